"""Puts copies of packets into a member's network as if they came in."""

from __future__ import annotations

import socket
from contextlib import suppress
from ipaddress import ip_address
from pathlib import Path
from typing import Final, Protocol

from stormcast.chaos.drivers.base import DONE, DriverError, Site
from stormcast.chaos.drivers.netlink import inside

IPV4: Final = 4
IPV6_HDRINCL: Final = 36


class Injector(Protocol):
    """Puts packets into a member's network as if they came in."""

    def send(self, packet: bytes) -> None: ...
    def close(self) -> None: ...


class RawSockets:
    """Raw sockets in the namespace of a site; they mark packets so that no fault strikes these
    again."""

    def __init__(self, site: Site) -> None:
        self._site = site
        self._raw: dict[int, socket.socket] = {}
        """By version of IP, for those that the site has: a kernel may have no IPv6."""
        inside(Path(site.netns) if site.netns else None, self._open)

    def _open(self) -> None:
        versions = {ip_address(address).version for address in self._site.addresses}
        try:
            for version in sorted(versions):
                self._raw[version] = _raw_socket(version)
        except OSError as error:
            self.close()
            if isinstance(error, PermissionError):
                why = "copies of packets need root, or the capabilities NET_RAW and NET_ADMIN"
            else:
                why = f"{self._site.name} has no raw socket: {error.strerror}"
            raise DriverError(why) from None

    def send(self, packet: bytes) -> None:
        """Send a packet to its destination address, the member's own: it stays in the namespace."""
        version = packet[0] >> 4
        if version not in self._raw:
            # The site has no address to which it could go.
            return
        dest = packet[16:20] if version == IPV4 else packet[24:40]
        # A copy for which there is no room is lost, as any packet may be.
        with suppress(BlockingIOError):
            self._raw[version].sendto(packet, (str(ip_address(dest)), 0))

    def close(self) -> None:
        """Close the sockets."""
        for raw in self._raw.values():
            raw.close()


def _raw_socket(version: int) -> socket.socket:
    if version == IPV4:
        family, level, option = socket.AF_INET, socket.IPPROTO_IP, socket.IP_HDRINCL
    else:
        family, level, option = socket.AF_INET6, socket.IPPROTO_IPV6, IPV6_HDRINCL
    raw = socket.socket(family, socket.SOCK_RAW, socket.IPPROTO_RAW)
    try:
        raw.setsockopt(level, option, 1)
        raw.setsockopt(socket.SOL_SOCKET, socket.SO_MARK, DONE)
    except BaseException:
        raw.close()
        raise
    raw.setblocking(False)
    return raw
