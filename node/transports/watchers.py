"""The connections of members that watch this one (FD_SOCK2), within a bound.

A watcher says nothing, so it is known by its address alone. From an address at which members of the
view are, as many connections stay as members are there, the oldest ones: to end one of them would
look as if this member had died. All others are strangers', whose oldest makes room for a new one.
"""

from __future__ import annotations

import asyncio
import socket
from collections import Counter
from collections.abc import Iterable
from typing import Final, cast

from stormcast.node.admission import Bounds, address_key, in_the_way
from stormcast.node.core.model import Address
from stormcast.node.transports.places import parse_where

STRANGERS_PART: Final = 2
"""Strangers may have one of so many parts of all places, and one address a quarter of that."""


class Watchers:
    """Connections by address, the oldest first."""

    def __init__(self, most: int) -> None:
        self.evicted = 0
        self.unasked_bytes = 0
        """Bytes that watchers have sent: all of them are thrown away."""
        self._is_closed = False
        self._most = most
        strangers = max(1, most // STRANGERS_PART)
        self._strangers = Bounds(strangers, max(1, strangers // 4))
        self._at: dict[asyncio.Transport, str] = {}
        self._members: Counter[str] = Counter()
        """How many members of the view are at each address."""

    def __len__(self) -> int:
        return len(self._at)

    def on_view(self, members: Iterable[Address]) -> None:
        """Take in where the members of a view are."""
        places = (parse_where(member.where) for member in members)
        self._members = Counter(address_key(at) for at in places if at is not None)

    def admit(self, transport: asyncio.Transport) -> bool:
        """Keep a new connection, for which a stranger's may end; return False if there is no room,
        or if all are closed."""
        if self._is_closed:
            return False
        address = address_key(transport.get_extra_info("peername"))
        there = sum(at == address for at in self._at.values())
        strangers = self._of_strangers()
        if there >= self._members[address]:
            way = in_the_way(strangers, address, self._strangers)
        else:
            way = []
        if not way and len(self._at) >= self._most:
            if not strangers:
                return False
            way = [strangers[0][0]]
        if way:
            self.evicted += 1
            self.discard(way[0])
            way[0].abort()
        self._at[transport] = address
        return True

    def _of_strangers(self) -> list[tuple[asyncio.Transport, str]]:
        seen: Counter[str] = Counter()
        found = []
        for transport, at in self._at.items():
            seen[at] += 1
            if seen[at] > self._members[at]:
                found.append((transport, at))
        return found

    def discard(self, transport: asyncio.Transport) -> None:
        """Forget a connection that has ended."""
        self._at.pop(transport, None)

    def close(self) -> None:
        """Close all connections, and those that were accepted and are not here yet."""
        self._is_closed = True
        for transport in list(self._at):
            transport.close()


class Watcher(asyncio.Protocol):
    """A connection from a member that watches this one: sends the hello of this member, and stands
    until either end closes."""

    def __init__(self, hello: bytes, watchers: Watchers) -> None:
        self._hello = hello
        self._watchers = watchers
        self._transport: asyncio.Transport

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        # Not by isinstance: other loops have transports of their own.
        self._transport = cast("asyncio.Transport", transport)
        transport = self._transport
        # Keepalive finds watchers whose host is gone: they are as silent as the living.
        transport.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
        if not self._watchers.admit(transport):
            transport.abort()
            return
        transport.write(self._hello)

    def data_received(self, data: bytes) -> None:
        """Throw away what a watcher sends, and count it: it has nothing to say."""
        self._watchers.unasked_bytes += len(data)

    def connection_lost(self, exc: Exception | None) -> None:
        self._watchers.discard(self._transport)
