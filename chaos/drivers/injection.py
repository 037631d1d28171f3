"""Puts copies of packets into a member's network as if they came in."""

from __future__ import annotations

import socket
from contextlib import suppress
from pathlib import Path
from typing import Final, Protocol

from stormcast.chaos.drivers.base import DONE, DriverError, Site
from stormcast.chaos.drivers.netlink import inside

IPV6_HDRINCL: Final = 36


class Injector(Protocol):
    """Puts packets into a member's network as if they came in."""

    def send(self, packet: bytes) -> None: ...
    def close(self) -> None: ...


class RawSockets:
    """Raw sockets in the namespace of a site; they mark packets so that no fault strikes these
    again."""

    def __init__(self, site: Site) -> None:
        self._v4, self._v6 = inside(Path(site.netns) if site.netns else None, self._open)

    @staticmethod
    def _open() -> tuple[socket.socket, socket.socket]:
        opened = []
        try:
            for family, level, option in (
                (socket.AF_INET, socket.IPPROTO_IP, socket.IP_HDRINCL),
                (socket.AF_INET6, socket.IPPROTO_IPV6, IPV6_HDRINCL),
            ):
                raw = socket.socket(family, socket.SOCK_RAW, socket.IPPROTO_RAW)
                opened.append(raw)
                raw.setsockopt(level, option, 1)
                raw.setsockopt(socket.SOL_SOCKET, socket.SO_MARK, DONE)
                raw.setblocking(False)
        except PermissionError:
            for raw in opened:
                raw.close()
            raise DriverError(
                "copies of packets need root, or the capabilities NET_RAW and NET_ADMIN"
            ) from None
        return opened[0], opened[1]

    def send(self, packet: bytes) -> None:
        """Send a packet to its destination address, the member's own: it stays in the namespace."""
        # A copy for which there is no room is lost, as any packet may be.
        with suppress(BlockingIOError):
            if packet[0] >> 4 == 4:  # noqa: PLR2004 the version of IP
                self._v4.sendto(packet, (socket.inet_ntoa(packet[16:20]), 0))
            else:
                self._v6.sendto(packet, (socket.inet_ntop(socket.AF_INET6, packet[24:40]), 0))

    def close(self) -> None:
        """Close the sockets."""
        self._v4.close()
        self._v6.close()
