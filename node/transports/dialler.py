"""Connections that this member makes: one at a time to each place, and a pause after a failure."""

from __future__ import annotations

import socket
from collections import Counter
from collections.abc import Callable
from typing import TYPE_CHECKING

from stormcast.node.transports.places import MAX_LEARNED
from stormcast.node.transports.stream_sockets import tune

if TYPE_CHECKING:
    from stormcast.node.settings.transports import TcpConfig
    from stormcast.node.transports.connection import Connection
    from stormcast.node.transports.interfaces import Interface, SocketAddress
    from stormcast.node.transports.owner import TransportOwner


class Dialler:
    """Dials addresses, and remembers those that are not to be dialled now."""

    def __init__(
        self,
        config: TcpConfig,
        owner: TransportOwner,
        interface: Interface,
        counters: Counter[str],
        make: Callable[[socket.socket, SocketAddress], Connection],
        most: int,
    ) -> None:
        self.dialled: dict[SocketAddress, Connection] = {}
        """Connections that do not stand yet, by the address they lead to."""
        self.own: set[SocketAddress] = set()
        """Addresses that lead to this member itself."""
        self.is_stopped = False
        self._config = config
        self._owner = owner
        self._interface = interface
        self._counters = counters
        self._make = make
        self._most = most
        """Connections that may be in the making at a time."""
        self._pauses: dict[SocketAddress, tuple[float, float]] = {}
        """By address at which dialling failed: when to dial again, and the pause after that."""

    def dial(self, at: SocketAddress) -> Connection | None:
        """Return a connection that is being made; None for an address not to be dialled now."""
        known = self.dialled.get(at)
        if known is not None:
            return known
        not_before, _wait = self._pauses.get(at, (0.0, 0.0))
        if at in self.own or self.is_stopped or self._owner.now() < not_before:
            return None
        if len(self.dialled) >= self._most:
            self._counters["dial_too_many"] += 1
            return None
        sock = self._socket(at)
        if sock is None:
            return None
        self.dialled[at] = connection = self._make(sock, at)
        connection.connect(self._config.sock_conn_timeout)
        return connection

    def _socket(self, at: SocketAddress) -> socket.socket | None:
        try:
            sock = socket.socket(
                socket.AF_INET6 if ":" in at[0] else socket.AF_INET, socket.SOCK_STREAM
            )
        except OSError:
            self._counters["no_socket"] += 1
            return None
        tune(sock, self._config)
        try:
            # From the address that others know, so that rules and people recognise the member.
            sock.bind(self._interface.host)
        except OSError:
            self._counters["no_own_address"] += 1
        return sock

    def on_established(self, connection: Connection) -> None:
        """Forget a connection that stands, and the pauses for its address."""
        if self.dialled.get(connection.remote) is connection:
            del self.dialled[connection.remote]
        self._pauses.pop(connection.remote, None)

    def on_closed(self, connection: Connection) -> bool:
        """Note that a connection is closed; return whether it was dialled here, and never stood."""
        at = connection.remote
        if self.dialled.get(at) is not connection:
            return False
        del self.dialled[at]
        if len(self._pauses) >= MAX_LEARNED:
            self._pauses.clear()
        _not_before, wait = self._pauses.get(at, (0.0, self._config.reconnect_interval))
        most = self._config.reconnect_max_interval
        self._pauses[at] = (self._owner.now() + wait, min(2 * wait, most))
        return True
