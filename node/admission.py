"""Bounds the connections of a listener: when it is full, one of the connections found here ends,
and the newcomer is taken."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from ipaddress import IPv6Address, ip_address
from typing import Final, NamedTuple, TypeVar

T = TypeVar("T")

_SUBNET_BITS: Final = 64


class Bounds(NamedTuple):
    """The most connections that a listener keeps: in all, and of one client address."""

    most: int
    per_address: int
    """Connections of one client address: fewer than `most`, so that one address cannot take every
    place."""


def address_key(remote: object) -> str:
    """Return the address for which connections from `remote` (as `getpeername` has it) are counted:
    a host of IPv4, a subnet of IPv6, "" for a unix socket, which has no address.

    One host of IPv6 has all addresses of its /64 to choose from.
    """
    if not isinstance(remote, tuple) or not remote:
        return ""
    text = str(remote[0]).partition("%")[0]
    try:
        address = ip_address(text)
    except ValueError:
        return text
    if isinstance(address, IPv6Address):
        if address.ipv4_mapped is not None:
            return str(address.ipv4_mapped)
        return f"{int(address) >> _SUBNET_BITS:x}/{_SUBNET_BITS}"
    return str(address)


def in_the_way(others: Iterable[tuple[T, str]], address: str, bounds: Bounds) -> list[T]:
    """Return the connections of which one must end before another from `address` fits: none while
    there is room, those of the same address if it has its share, else all.

    `others` are the connections that there are, each with its address; their order is kept.
    """
    there = list(others)
    if address and Counter(at for _, at in there)[address] >= bounds.per_address:
        return [one for one, at in there if at == address]
    return [one for one, _ in there] if len(there) >= bounds.most else []
