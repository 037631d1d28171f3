"""Sockets as the settings want them: on the first free port of a range, with large buffers."""

from __future__ import annotations

import errno
import socket
from collections.abc import Callable
from typing import Final

from stormcast.node.core.errors import ConfigError, NodeError
from stormcast.node.settings.transports import PORTS, TransportConfig
from stormcast.node.transports.interfaces import SocketAddress

SO_SNDBUFFORCE: Final = 32
SO_RCVBUFFORCE: Final = 33


class BindError(NodeError):
    """The system refused a socket; the text says which, why, and what to do."""


def bind_in_range(
    make: Callable[[], socket.socket],
    host: SocketAddress,
    config: TransportConfig,
    what: str,
    backlog: int = 0,
) -> socket.socket:
    """Return a socket on the first free port of `bind_port..bind_port + port_range`; it listens if
    there is a backlog."""
    first = config.bind_port
    last = min(first + config.port_range, PORTS - 1) if first else 0
    for port in range(first, last + 1):
        bound = make()
        try:
            bound.bind((host[0], port, *host[2:]))
            if backlog:
                # Two processes may bind a port at once; only one of them can listen there.
                bound.listen(backlog)
        except OSError as error:
            bound.close()
            if error.errno != errno.EADDRINUSE:
                raise BindError(f"cannot bind {what} {host[0]}[{port}]: {reason(error)}") from None
        else:
            return bound
    ports = f"{first}" if first == last else f"{first}..{last}"
    raise BindError(
        f"{what} {host[0]}[{ports}]: in use; choose another bind_port, or raise port_range"
    )


def reason(error: OSError) -> str:
    """Return the system's words for an error, and what to do, where that is known."""
    remedy = {
        errno.EACCES: "; ports below 1024 need a right, choose a higher one",
        errno.EADDRNOTAVAIL: "; no interface has this address, see `ip address`",
        errno.ENETUNREACH: "; no route leads there, see `ip route`",
    }.get(error.errno or 0, "")
    return f"{(error.strerror or str(error)).lower()}{remedy}"


def set_send_buffer(sock: socket.socket, wanted: int) -> int:
    """Ask for a send buffer of `wanted` bytes, 0: the system's default; return what was given."""
    return _set_buffer(sock, socket.SO_SNDBUF, SO_SNDBUFFORCE, wanted)


def set_receive_buffer(sock: socket.socket, wanted: int) -> int:
    """Do what `set_send_buffer` does, for the receive buffer."""
    return _set_buffer(sock, socket.SO_RCVBUF, SO_RCVBUFFORCE, wanted)


def _set_buffer(sock: socket.socket, option: int, force: int, wanted: int) -> int:
    if wanted:
        try:
            # Beyond the system's limit, where that is allowed.
            sock.setsockopt(socket.SOL_SOCKET, force, wanted)
        except OSError:
            try:
                sock.setsockopt(socket.SOL_SOCKET, option, wanted)
            except OSError as error:
                raise ConfigError(f"a buffer of {wanted} bytes: {reason(error)}") from None
    # The kernel doubles what it was asked for, for its own bookkeeping.
    return sock.getsockopt(socket.SOL_SOCKET, option) // 2
