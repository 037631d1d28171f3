"""Connections that this member makes: one at a time to each place, and a pause after a failure."""

from __future__ import annotations

import socket
from collections import Counter
from collections.abc import Callable, Iterable
from math import inf
from typing import TYPE_CHECKING, Final

from stormcast.node.admission import Bounds, address_key, in_the_way
from stormcast.node.transports.peer_places import MAX_LEARNED
from stormcast.node.transports.stream_sockets import tune

SEARCH_SHARE: Final = 0.25
"""The share of the connections in the making that `search` may use; the others are for members that
a frame is for."""
STRANGERS_SHARE: Final = 0.5
"""The share that dials for strangers may use: anybody can name any place, and one that does not
answer occupies a connection for as long as dialling may take. A merge asks many at once."""
MOST_FOR_STRANGERS: Final = 512
"""The most that they may use, where there are many descriptors."""
SELF_SECONDS: Final = 60.0
"""Seconds for which an address at which this member itself has answered is not dialled."""
EVICTED: Final = "evicted"
"""Why a dial ends whose place another one needs."""

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
        """Addresses at which this member listens."""
        self._selves: dict[SocketAddress, float] = {}
        """Other addresses that this member itself has answered at, and until when they are not
        dialled; the latest last. Without keys whoever is dialled can say what it was told."""
        self.answered: dict[SocketAddress, int] = {}
        """By address, the short id of the member there: who answered last, or came last by the
        view."""
        self.is_stopped = False
        self._config = config
        self._owner = owner
        self._interface = interface
        self._counters = counters
        self._make = make
        self._most = most
        """Connections that may be in the making at a time."""
        self._most_searching = max(1, int(most * SEARCH_SHARE))
        self._searching: set[SocketAddress] = set()
        """Addresses in `dialled` that `search` dialled: no frame waited for a member there."""
        most_strange = max(1, min(int(most * STRANGERS_SHARE), MOST_FOR_STRANGERS))
        self._most_for_strangers = Bounds(most_strange, max(1, most_strange // 2))
        self._for_strangers: dict[SocketAddress, str] = {}
        """Addresses in `dialled` at which only strangers are, by age, each with its host."""
        self._searched: dict[SocketAddress, float] = {}
        """By address, the time of the last search there."""
        self._pauses: dict[SocketAddress, tuple[float, float]] = {}
        """By address at which dialling failed: when to dial again, and the pause after that."""

    def dial(self, at: SocketAddress, *, is_peer: bool) -> Connection | None:
        """Return a connection that is being made, for a frame to a member (`is_peer`) or to a
        stranger; None for an address not to be dialled now."""
        known = self.dialled.get(at)
        if known is not None:
            if is_peer:
                self._for_strangers.pop(at, None)
            return known
        if not self._may_dial(at):
            return None
        if not is_peer:
            self._make_room_for_stranger(at)
        elif len(self.dialled) >= self._most and self._for_strangers:
            self.dialled[next(iter(self._for_strangers))].drop(EVICTED)
        connection = self._begin(at)
        if connection is not None and not is_peer:
            self._for_strangers[at] = address_key(at)
        return connection

    def _may_dial(self, at: SocketAddress) -> bool:
        not_before, _wait = self._pauses.get(at, (0.0, 0.0))
        not_before = max(not_before, self._selves.get(at, 0.0))
        return at not in self.own and not self.is_stopped and self._owner.now() >= not_before

    def note_self(self, at: SocketAddress) -> None:
        """Note that this member itself has answered at an address: another name of its host."""
        self._selves.pop(at, None)
        if len(self._selves) >= MAX_LEARNED:
            del self._selves[next(iter(self._selves))]
        self._selves[at] = self._owner.now() + SELF_SECONDS

    def _make_room_for_stranger(self, at: SocketAddress) -> None:
        """End the oldest dial for a stranger, one of the same host if that has its share, unless
        there is room. Who answers does so at once, and is no longer among them."""
        way = in_the_way(self._for_strangers.items(), address_key(at), self._most_for_strangers)
        if way:
            self.dialled[way[0]].drop(EVICTED)

    def _begin(self, at: SocketAddress) -> Connection | None:
        if len(self.dialled) >= self._most:
            self._counters["dial_too_many"] += 1
            return None
        sock = self._socket(at)
        if sock is None:
            return None
        self.dialled[at] = connection = self._make(sock, at)
        connection.connect(self._config.sock_conn_timeout)
        return connection

    def search(self, places: Iterable[SocketAddress]) -> list[Connection]:
        """Return the connections that are being made to addresses where a member may be. Where
        there are too many, those come first that were never searched, or longest ago: a host that
        is gone occupies a connection for as long as dialling may take."""
        found = []
        for at in sorted(places, key=lambda at: self._searched.get(at, -inf)):
            connection = self.dialled.get(at)
            has_room = len(self._searching) < self._most_searching
            if connection is None:
                if not has_room:
                    self._counters["search_too_many"] += 1
                    continue
                connection = self._begin(at) if self._may_dial(at) else None
                if connection is None:
                    continue
                self._searching.add(at)
                self._note_search(at)
            elif has_room and self._for_strangers.pop(at, None) is not None:
                self._searching.add(at)
            found.append(connection)
        return found

    def _note_search(self, at: SocketAddress) -> None:
        if len(self._searched) >= MAX_LEARNED:
            self._searched.clear()
        self._searched[at] = self._owner.now()

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
            self._end(connection.remote)
        self._pauses.pop(connection.remote, None)

    def on_closed(self, connection: Connection, cause: str) -> bool:
        """Note that a connection is closed; return whether it was dialled here, and never stood."""
        at = connection.remote
        if self.dialled.get(at) is not connection:
            return False
        self._end(at)
        if cause == EVICTED:
            # Nobody knows yet whether somebody is there: a member may have to be dialled there now.
            return True
        if len(self._pauses) >= MAX_LEARNED:
            self._pauses.clear()
        _not_before, wait = self._pauses.get(at, (0.0, self._config.reconnect_interval))
        most = self._config.reconnect_max_interval
        self._pauses[at] = (self._owner.now() + wait, min(2 * wait, most))
        return True

    def note_answer(self, at: SocketAddress, short: int) -> None:
        """Note which member is at an address: it answered there, or the view says so."""
        if len(self.answered) >= MAX_LEARNED:
            self.answered.clear()
        self.answered[at] = short
        self._selves.pop(at, None)

    def _end(self, at: SocketAddress) -> None:
        del self.dialled[at]
        self._searching.discard(at)
        self._for_strangers.pop(at, None)
