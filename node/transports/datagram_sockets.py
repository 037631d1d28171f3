"""Sockets for datagrams, and options by which the kernel cuts, joins, and counts its drops."""

from __future__ import annotations

import socket
import struct
from typing import Final

from stormcast.node.transports.interfaces import Interface

SOL_UDP: Final = 17
UDP_SEGMENT: Final = 103
SEGMENT: Final = struct.Struct("@H")
"""The size at which the kernel cuts packets out of a write (GSO)."""
UDP_GRO: Final = 104
IP_MTU_DISCOVER: Final = 10
IP_PMTUDISC_DONT: Final = 0
IPV6_MTU_DISCOVER: Final = 23
SO_MEMINFO: Final = 55
_MEMINFO: Final = struct.Struct("9I")
_DROPS: Final = 8


def datagram_socket(interface: Interface) -> socket.socket:
    """Return a socket of the interface's family that is not bound yet."""
    made = socket.socket(interface.family, socket.SOCK_DGRAM)
    made.setblocking(False)
    if interface.is_ipv6:
        made.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
        made.setsockopt(socket.IPPROTO_IPV6, IPV6_MTU_DISCOVER, IP_PMTUDISC_DONT)
    else:
        # A packet that is too large for its path is fragmented there: a router's message about it
        # may never come back through a network that loses packets.
        made.setsockopt(socket.IPPROTO_IP, IP_MTU_DISCOVER, IP_PMTUDISC_DONT)
    return made


def join_packets(sock: socket.socket) -> bool:
    """Have the kernel join packets that came together (GRO); return False if it does not."""
    try:
        sock.setsockopt(SOL_UDP, UDP_GRO, 1)
    except OSError:
        return False
    return True


def kernel_drops(sock: socket.socket) -> int:
    """Count the datagrams that came while the receive buffer was full, or that a filter dropped."""
    if sock.fileno() < 0:
        return 0
    info = sock.getsockopt(socket.SOL_SOCKET, SO_MEMINFO, _MEMINFO.size)
    drops: int = _MEMINFO.unpack(info)[_DROPS]
    return drops
