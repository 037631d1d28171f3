"""Connections that are retired and not closed yet. What is under way on them still arrives."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Container, Iterable

from stormcast.node.transports.connection import Connection
from stormcast.node.transports.connection_state import State
from stormcast.node.transports.strangers import Strangers


class Retired:
    """Retires connections, so many at a time: a peer that replaces its connection again and again
    must not make them pile up, nor the bytes that they hold. Of each member one may take its time;
    its others are bounded like those of strangers."""

    def __init__(self, most: int, strangers: Strangers) -> None:
        self.connections: dict[Connection, None] = {}
        """By age."""
        self.is_closing = False
        """Whether this member is about to end: then any number may take their time."""
        self._most = most
        self._strangers = strangers
        self._is_empty = asyncio.Event()

    def retire(self, connection: Connection) -> None:
        """Retire a connection. If too many are retired and not closed yet, the oldest ends."""
        if connection.state is State.CLOSED:
            # It ended for what others hold. Nothing would ever take it out of `connections`.
            return
        while len(self.connections) >= self._most and not self.is_closing:
            self._evict()
        bounded = [one for one in self.connections if one.peer == connection.peer]
        # Added before `retire`, which closes a broken connection at once.
        self.connections[connection] = None
        connection.retire()
        if connection.reader.is_stranger:
            bounded.append(connection)
        if not self.is_closing:
            self._bound(bounded)

    def expect(self, connection: Connection) -> None:
        """Wait also for a connection that is retired as soon as it stands."""
        self.connections[connection] = None

    def _evict(self) -> None:
        of_strangers = (one for one in self.connections if one.reader.is_stranger)
        next(of_strangers, next(iter(self.connections))).drop("evicted")

    def on_view(self, members: Container[int]) -> None:
        """Take in a view: bound the connections to peers that are not in it."""
        gone = [one for one in self.connections if one.peer and one.peer.short not in members]
        self._bound(gone)

    def _bound(self, connections: Iterable[Connection]) -> None:
        """Give what these connections hold the budget and the time of strangers."""
        for connection in connections:
            if connection.state is State.RETIRING and not connection.is_bounded:
                connection.bound()
                self._strangers.make_room_for(connection, connection.reader.buffered)

    def end(self, connection: Connection) -> None:
        """Forget a connection that is closed; it need not be one of these."""
        self.connections.pop(connection, None)
        if not self.connections:
            self._is_empty.set()

    async def wait(self, seconds: float) -> None:
        """Wait until all are closed, for so many seconds at most."""
        self._is_empty.clear()
        if self.connections:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(seconds):
                    await self._is_empty.wait()
