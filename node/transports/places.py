"""Where members are: the places that they say in their addresses, as a socket wants them."""

from __future__ import annotations

import socket
from collections.abc import Container, Iterable, Sequence
from typing import Final

from stormcast.node.core.model import Address
from stormcast.node.settings.transports import PORTS
from stormcast.node.transports.interfaces import Interface, SocketAddress

MAX_NAMED: Final = 1024
"""Members of past views that are still asked: groups that were apart find each other by that."""
MAX_LEARNED: Final = 4096
"""Members and strangers whose place is remembered."""


class Places:
    """The places of members and of strangers, up to a bound."""

    def __init__(self, interface: Interface, own: Address, kept: Container[int]) -> None:
        self.at: dict[int, SocketAddress] = {}
        """By short id. One object for life: whoever looks up often may keep it."""
        self.own = own
        self._interface = interface
        self._kept = kept
        """Whom a full table does not forget."""
        self._named: dict[int, Address] = {}
        """Who was in a view of this member, the latest last."""

    def resolve(self, where: str) -> SocketAddress | None:
        """Where to send what is for a place; None if nothing can be sent there from here."""
        at = parse_where(where)
        return at if at is None else self._interface.reach(at)

    def locate(self, address: Address) -> bool:
        """Take an address at its word; False for one that leads nowhere, or here."""
        at = self.resolve(address.where)
        if at is None or address == self.own:
            return False
        self.put(address.short, at)
        return True

    def put(self, short: int, at: SocketAddress) -> None:
        """Remember who is at a place."""
        if len(self.at) >= MAX_LEARNED and short not in self.at:
            # Strangers can name whom they like between two views.
            self.forget_all_but(self._kept)
        self.at[short] = at

    def forget_all_but(self, kept: Container[int]) -> None:
        """Drop the places of all others."""
        for short in [short for short in self.at if short not in kept]:
            del self.at[short]

    def on_view(self, members: Sequence[Address]) -> None:
        """Remember whom to ask, once they are in this view no more."""
        for member in members:
            self._named.pop(member.short, None)
            self._named[member.short] = member
        while len(self._named) > MAX_NAMED:
            del self._named[next(iter(self._named))]

    def of_everyone(self, listed: Iterable[SocketAddress]) -> dict[SocketAddress, None]:
        """Where a frame for everyone goes: where discovery says, and to whoever is, or was, in a
        view. What strangers say of themselves is no reason to go and ask there."""
        told = dict.fromkeys(listed)
        for member in self._named.values():
            at = self.resolve(member.where)
            if at is not None and member != self.own:
                told[at] = None
        return told


class HeardPlaces:
    """For datagrams: whom no view has placed is answered where its frames come from."""

    def __init__(self, interface: Interface, own: Address) -> None:
        self._told: set[int] = set()
        """Who has a place by its address: no frame moves it."""
        self.places = Places(interface, own, self._told)
        self.known: dict[SocketAddress, int] = {}
        """Who sent from where last."""

    def locate(self, address: Address) -> bool:
        """Take an address at its word; False where too many were since the last view."""
        if len(self._told) >= MAX_LEARNED and address.short not in self._told:
            return False
        if self.places.locate(address):
            self._told.add(address.short)
        return True

    def learn(self, short: int, source: SocketAddress) -> None:
        """Frames of this member came from there."""
        if len(self.known) >= MAX_LEARNED:
            self.known.clear()
        self.known[source] = short
        if short not in self._told:
            self.places.put(short, source)

    def on_view(self, members: Sequence[Address]) -> None:
        """Forget what strangers have told; of what they were heard at, only if it is much."""
        shorts = {member.short for member in members}
        if len(self.places.at) > MAX_LEARNED // 2:
            self.places.forget_all_but(shorts)
        self._told &= shorts
        for member in members:
            self.locate(member)
        self.places.on_view(members)


def parse_where(where: str) -> SocketAddress | None:
    """`host[port]` of a member, as a socket wants it; only numbers, for a stranger's text must not
    make this member ask a name server."""
    host, bracket, port = where.removesuffix("]").partition("[")
    # `isdigit` alone is true of digits that `int` does not know.
    if not bracket or not (port.isascii() and port.isdigit()) or not 0 < int(port) < PORTS:
        return None
    return numeric(host, int(port))


def numeric(host: str, port: int) -> SocketAddress | None:
    """A numeric host, as a socket wants it; None for a name."""
    host, _percent, scope = host.partition("%")
    for family in (socket.AF_INET, socket.AF_INET6):
        try:
            packed = socket.inet_pton(family, host)
        except (OSError, ValueError):
            # ValueError: a zero byte, which only a stranger writes.
            continue
        text = socket.inet_ntop(family, packed)
        if family == socket.AF_INET:
            return text, port
        return text, port, 0, _scope(scope)
    return None


def _scope(name: str) -> int:
    if not name:
        return 0
    try:
        number = int(name) if name.isascii() and name.isdigit() else socket.if_nametoindex(name)
    except (OSError, ValueError):
        return 0
    return number if number < 1 << 32 else 0
