"""The socket that others connect to."""

from __future__ import annotations

import socket
from collections import Counter
from collections.abc import Callable
from functools import partial
from typing import Final

from stormcast.node.settings.transports import TcpConfig
from stormcast.node.transports.binding import bind_in_range, set_receive_buffer, set_send_buffer
from stormcast.node.transports.interfaces import Interface, SocketAddress
from stormcast.node.transports.owner import TransportOwner
from stormcast.node.transports.stream_sockets import listening_socket

BACKLOG: Final = 128
ACCEPT_PAUSE: Final = 0.1
"""Seconds until accepting is tried again after it has failed."""


class Listener:
    """Accepts connections, at most BACKLOG at a time."""

    def __init__(
        self, config: TcpConfig, owner: TransportOwner, interface: Interface, counters: Counter[str]
    ) -> None:
        self.socket = bind_in_range(
            partial(listening_socket, interface), interface.host, config, "TCP port", BACKLOG
        )
        set_send_buffer(self.socket, config.send_buffer)
        set_receive_buffer(self.socket, config.receive_buffer)
        self.at: SocketAddress = self.socket.getsockname()
        self._owner = owner
        self._counters = counters
        self._is_stopped = False
        self._on_accepted: Callable[[socket.socket, SocketAddress], None]

    def start(self, on_accepted: Callable[[socket.socket, SocketAddress], None]) -> None:
        """Begin to accept."""
        self._on_accepted = on_accepted
        self._listen()

    def _listen(self) -> None:
        if not self._is_stopped:
            self._owner.loop.add_reader(self.socket.fileno(), self._on_acceptable)

    def _on_acceptable(self) -> None:
        for _ in range(BACKLOG):
            try:
                sock, remote = self.socket.accept()
            except (BlockingIOError, InterruptedError):
                return
            except OSError:
                # Out of descriptors, mostly: the connections still wait after a pause.
                self._counters["accept_errors"] += 1
                loop = self._owner.loop
                loop.remove_reader(self.socket.fileno())
                loop.call_later(ACCEPT_PAUSE, self._listen)
                return
            self._on_accepted(sock, remote)

    def stop(self) -> None:
        """Stop accepting."""
        self._is_stopped = True
        self._owner.loop.remove_reader(self.socket.fileno())

    def close(self) -> None:
        """Stop accepting, and close the socket."""
        self.stop()
        self.socket.close()
