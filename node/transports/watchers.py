"""The connections of members that watch this one (FD_SOCK2), within a bound.

A watcher says nothing, or with keys a hello, so its place is kept by its address alone. From an
address at which members of the view are, as many connections stay as members are there, the oldest
ones: to end one of them would look as if this member had died. All others are strangers', whose
oldest makes room for a new one.
"""

from __future__ import annotations

import asyncio
import socket
from collections import Counter
from collections.abc import Callable, Iterable
from typing import Final, cast

from stormcast.node.admission import Bounds, address_key, in_the_way
from stormcast.node.core.errors import BadFrame
from stormcast.node.core.model import Address
from stormcast.node.transports.handshake import LENGTH, whole_hello_untrusted
from stormcast.node.transports.peer_places import parse_where

STRANGERS_PART: Final = 2
"""Strangers may have one of so many parts of all connections, and one address a quarter of that
part."""


class Watchers:
    """Connections by address, the oldest first."""

    def __init__(self, most: int) -> None:
        self.evicted = 0
        self.refused = 0
        """Connections that ended because their hello was not that of a watcher with the key."""
        self.unasked_bytes = 0
        """Bytes that watchers have sent: all of them are thrown away."""
        self._is_closed = False
        self._most = most
        strangers = max(1, most // STRANGERS_PART)
        self._strangers = Bounds(strangers, max(1, strangers // 4))
        self._at: dict[asyncio.Transport, str] = {}
        self._members: Counter[str] = Counter()
        """By address, the number of the view's members there."""

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
    """A connection from a member that watches this one: is told the hello of this member, and
    stands until either end closes."""

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
        self._begin()

    def _begin(self) -> None:
        self._transport.write(self._hello)

    def data_received(self, data: bytes) -> None:
        """Throw away what a watcher sends, and count it: it has nothing to say."""
        self._watchers.unasked_bytes += len(data)

    def connection_lost(self, exc: Exception | None) -> None:
        self._watchers.discard(self._transport)


class SealedWatcher(Watcher):
    """A watcher with keys: it sends a sealed hello first, and the answer repeats the bytes that it
    has drawn. So nobody without the key gets an answer, and no answer is good for two hellos."""

    def __init__(
        self, answer: Callable[[bytes], bytes], watchers: Watchers, patience: float
    ) -> None:
        super().__init__(b"", watchers)
        self._answer = answer
        """Returns the answer to a hello; BadFrame for one that was not sealed by a watcher."""
        self._patience = patience
        self._said: bytes | None = b""
        """The part of the hello that has come; None once the hello was whole."""
        self._timer: asyncio.TimerHandle | None = None

    def _begin(self) -> None:
        loop = asyncio.get_running_loop()
        self._timer = loop.call_later(self._patience, self._refuse)

    def data_received(self, data: bytes) -> None:
        if self._said is None:
            super().data_received(data)
            return
        self._said += data
        try:
            body = whole_hello_untrusted(memoryview(self._said))
            if body is None:
                return
            answer = self._answer(body)
        except BadFrame:
            self._refuse()
            return
        more = self._said[LENGTH.size + len(body) :]
        self._said = None
        self._cancel_timer()
        self._transport.write(answer)
        super().data_received(more)

    def _refuse(self) -> None:
        self._watchers.refused += 1
        self._transport.abort()

    def _cancel_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def connection_lost(self, exc: Exception | None) -> None:
        self._cancel_timer()
        super().connection_lost(exc)
