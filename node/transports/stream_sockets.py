"""Sockets for streams: makes one that listens, and sets up those of connections."""

from __future__ import annotations

import socket
import struct
from typing import Final

from stormcast.node.settings.transports import TcpConfig
from stormcast.node.transports.binding import set_receive_buffer, set_send_buffer
from stormcast.node.transports.interfaces import Interface

TCP_USER_TIMEOUT: Final = 18


def listening_socket(interface: Interface) -> socket.socket:
    """Return a socket of the interface's family that is not bound yet."""
    made = socket.socket(interface.family, socket.SOCK_STREAM)
    made.setblocking(False)
    made.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    return made


def tune(sock: socket.socket, config: TcpConfig) -> None:
    """Set up the socket of a connection."""
    sock.setblocking(False)
    if config.tcp_nodelay:
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    if config.linger >= 0:
        lingers = struct.pack("ii", 1, config.linger)
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, lingers)
    # Finds a peer that has vanished: what was written is not acked for `user_timeout`, or, where
    # nothing was written, the kernel asks (keepalive) and gets no answer.
    seconds = config.user_timeout
    sock.setsockopt(socket.IPPROTO_TCP, TCP_USER_TIMEOUT, round(seconds * 1000))
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPIDLE, max(1, round(seconds)))
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPINTVL, max(1, round(seconds / 3)))
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPCNT, 3)
    set_send_buffer(sock, config.send_buffer)
    set_receive_buffer(sock, config.receive_buffer)
