"""DNS_PING's look-up: the A, AAAA or SRV records of one name, without a thread."""

from __future__ import annotations

import socket
from typing import TYPE_CHECKING, Final

from stormcast.node.core.errors import ConfigError
from stormcast.node.protocols.discovery import DnsPingConfig
from stormcast.node.transports.interfaces import SocketAddress
from stormcast.node.transports.peer_places import numeric, parse_where

if TYPE_CHECKING:
    from dns.asyncresolver import Resolver

DNS_PORT: Final = 53
MAX_ANSWERS: Final = 4096
"""Records that are taken from one answer."""


class DnsLookup:
    """Looks up one name, each time anew."""

    def __init__(
        self, config: DnsPingConfig, family: socket.AddressFamily, default_port: int
    ) -> None:
        self._config = config
        self._hosts = ("A",) if family == socket.AF_INET else ("AAAA",)
        self._types = _record_types(config.record_type, family)
        self._port = config.port or default_port
        self._resolver = _resolver(config)

    async def look_up(self) -> tuple[list[SocketAddress], str]:
        """Return the addresses behind the records, and what went wrong if there are none."""
        found: list[SocketAddress] = []
        failures: list[str] = []
        for record_type in self._types:
            name = self._config.dns_query
            if record_type == "SRV":
                found += await self._services(name, failures)
            else:
                found += [
                    at
                    for host in await self._ask(name, record_type, failures)
                    if (at := numeric(host, self._port)) is not None
                ]
        return found, "; ".join(failures) if not found else ""

    async def _services(self, name: str, failures: list[str]) -> list[SocketAddress]:
        """Look up the hosts and ports that SRV records name, and the addresses of each host."""
        found: list[SocketAddress] = []
        for record in await self._ask(name, "SRV", failures):
            _priority, _weight, port, target = record.split()
            for address_type in self._hosts:
                for host in await self._ask(target, address_type, []):
                    at = numeric(host, self._port if port == "0" else int(port))
                    if at is not None:
                        found.append(at)
        return found

    async def _ask(self, name: str, record_type: str, failures: list[str]) -> list[str]:
        import dns.exception  # noqa: PLC0415 only stacks with DNS_PING pay for it
        import dns.resolver  # noqa: PLC0415 an extra

        try:
            answer = await self._resolver.resolve(
                name, record_type, lifetime=self._config.timeout, search=True
            )
        except dns.resolver.NoAnswer:
            return []
        except dns.resolver.NXDOMAIN:
            failures.append(f"{name} has no {record_type} record (yet)")
            return []
        except dns.exception.Timeout:
            # Not the error's own text: the time in it differs at each look-up.
            failures.append(f"{name} {record_type}: no answer within {self._config.timeout:g} s")
            return []
        except (dns.exception.DNSException, OSError) as error:
            said = str(error) or type(error).__name__
            failures.append(f"{name} {record_type}: {said}")
            return []
        return [record.to_text() for record in list(answer)[:MAX_ANSWERS]]


def _record_types(wanted: str, family: socket.AddressFamily) -> tuple[str, ...]:
    if wanted == "auto":
        return ("A",) if family == socket.AF_INET else ("AAAA",)
    return (wanted,)


def _resolver(config: DnsPingConfig) -> Resolver:
    """Make a resolver as /etc/resolv.conf says, or as the settings do."""
    import dns.asyncresolver  # noqa: PLC0415 only stacks with DNS_PING pay for it
    import dns.resolver  # noqa: PLC0415 an extra

    try:
        resolver = dns.asyncresolver.Resolver(configure=not config.dns_address)
    except dns.resolver.NoResolverConfiguration as error:
        raise ConfigError(f"DNS_PING: {error}; set dns_address to a name server") from None
    if config.dns_address:
        at = _name_server(config.dns_address)
        resolver.nameservers = [at[0]]
        resolver.port = at[1]
    # Pods come and go: a cached answer may be wrong.
    resolver.cache = None
    return resolver


def _name_server(text: str) -> SocketAddress:
    at = parse_where(text) if "[" in text else numeric(text, DNS_PORT)
    if at is None:
        raise ConfigError(f"dns_ping.dns_address is {text!r}: write a number, host or host[port]")
    return at
