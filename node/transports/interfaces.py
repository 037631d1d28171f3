"""Chooses the address that is bound, among those of all interfaces, by match rules."""

from __future__ import annotations

import fcntl
import ipaddress
import re
import socket
import struct
from collections.abc import Callable, Iterable
from typing import Final, NamedTuple

# Pure Python over getifaddrs: the standard library lists interfaces, but not their addresses.
import ifaddr

from stormcast.node.core.errors import ConfigError

SocketAddress = tuple[str, int] | tuple[str, int, int, int]
"""An address as the socket module has it."""
AUTO: Final = "site_local,loopback"
DEFAULT_MTU: Final = 1500
SIOCGIFMTU: Final = 0x8921
IPV4_PLACE: Final = ("host", "port")
"""The parts of an IPv4 address of a socket; IPv6 has a flow and an interface besides."""


class Interface(NamedTuple):
    """One address of one interface."""

    name: str
    number: int
    """The interface's index in the system."""
    address: str
    """Without scope."""
    rule: str
    """The match rule that chose it."""

    @property
    def is_ipv6(self) -> bool:
        return ":" in self.address

    @property
    def family(self) -> socket.AddressFamily:
        return socket.AF_INET6 if self.is_ipv6 else socket.AF_INET

    @property
    def host(self) -> SocketAddress:
        """The address as `bind` wants it, with port 0."""
        if not self.is_ipv6:
            return self.address, 0
        scope = self.number if ipaddress.ip_address(self.address).is_link_local else 0
        return self.address, 0, 0, scope

    def reach(self, at: SocketAddress) -> SocketAddress | None:
        """Return a destination as a socket bound here has to be given it; None for one of the other
        family, to which that socket cannot send."""
        if (len(at) > len(IPV4_PLACE)) != self.is_ipv6:
            return None
        if len(at) > len(IPV4_PLACE) and not at[-1] and ipaddress.ip_address(at[0]).is_link_local:
            # Other members name it without our interface, which they do not know.
            return at[0], at[1], 0, self.number
        return at

    def mtu(self) -> int:
        """Return the bytes of the interface's largest packet."""
        # Not from /sys, which may show another network namespace than that of this process.
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sock:
            try:
                asked = struct.pack("16si12x", self.name.encode()[:15], 0)
                answer = fcntl.ioctl(sock, SIOCGIFMTU, asked)
            except OSError:
                return DEFAULT_MTU
        mtu: int = struct.unpack_from("i", answer, 16)[0]
        return mtu


def interfaces() -> list[Interface]:
    """Return all addresses of this host, in the system's order."""
    found = []
    for adapter in ifaddr.get_adapters():
        index = adapter.index if adapter.index is not None else 0
        for ip in adapter.ips:
            address = ip.ip if isinstance(ip.ip, str) else ip.ip[0]
            found.append(Interface(adapter.name, index, address, ""))
    return found


def _is_site_local(address: str) -> bool:
    ip = ipaddress.ip_address(address)
    # Not `is_private`, which leaves out 100.64.0.0/10: pod networks use that.
    return not (ip.is_global or ip.is_loopback or ip.is_link_local)


_RULES: Final[dict[str, Callable[[str], bool]]] = {
    "loopback": lambda address: ipaddress.ip_address(address).is_loopback,
    "site_local": _is_site_local,
    "link_local": lambda address: ipaddress.ip_address(address).is_link_local,
    "global": lambda address: ipaddress.ip_address(address).is_global,
}


def choose(bind_addr: str, there: Iterable[Interface] | None = None) -> Interface:
    """Return the first interface that a rule of `bind_addr` fits; ConfigError if none does."""
    found = list(interfaces() if there is None else there)
    rules = AUTO if bind_addr == "auto" else bind_addr
    for rule in filter(None, map(str.strip, rules.split(","))):
        fits = _matcher(rule)
        # Where a rule fits both, IPv4 first: most networks have it.
        for interface in [*sorted(found, key=lambda one: one.is_ipv6), *_unnamed(rule, found)]:
            if fits(interface):
                return interface._replace(rule=rule)
    known = ", ".join(f"{one.name} {one.address}" for one in found) or "none"
    raise ConfigError(
        f"bind_addr is {bind_addr!r}: no interface of this host fits; there is {known}"
    )


def _unnamed(rule: str, found: Iterable[Interface]) -> list[Interface]:
    """Return the loopback interface for an address of 127.0.0.0/8: all of them are its own, but the
    system lists only 127.0.0.1."""
    if not re.fullmatch(r"127(\.\d{1,3}){3}", rule):
        return []
    return [one._replace(address=rule) for one in found if one.address == "127.0.0.1"]


def _matcher(rule: str) -> Callable[[Interface], bool]:
    kind, colon, pattern = rule.partition(":")
    if rule in _RULES:
        wanted = _RULES[rule]
        return lambda one: wanted(one.address)
    if colon and kind in ("match-interface", "match-address"):
        try:
            compiled = re.compile(pattern)
        except re.error as error:
            raise ConfigError(f"bind_addr is {rule!r}: not a pattern: {error}") from None
        if kind == "match-interface":
            return lambda one: compiled.fullmatch(one.name) is not None
        return lambda one: compiled.fullmatch(one.address) is not None
    try:
        address = str(ipaddress.ip_address(rule.partition("%")[0]))
    except ValueError:
        return lambda one: one.name == rule
    return lambda one: one.address == address
