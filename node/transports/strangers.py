"""Connections that belong to nobody in the view, each kind within its share: the one that is idle
for longest ends when another comes.

One address has half of a share: a group that starts on one host fits, and others find room.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from stormcast.node.admission import Bounds, address_key, in_the_way
from stormcast.node.descriptors import Shares
from stormcast.node.transports.connection import Connection, State

UNFINISHED_BYTES: Final = 2 << 20
"""Bytes of buffers for frames that strangers have begun, and of what waits in retired connections
for them, all together."""


class Strangers:
    """Decides which connections of strangers stay."""

    def __init__(self, shares: Shares) -> None:
        self.unknown: dict[Connection, str] = {}
        """Accepted, and the other end has not said who it is; by age, each with its address."""
        self._buffers: dict[Connection, int] = {}
        """Bytes that a connection holds; the one that began first comes first."""
        self._most_unknown = Bounds(shares.unknown, max(1, shares.unknown // 2))
        self._most_known = Bounds(shares.strangers, max(1, shares.strangers // 2))

    def add(self, connection: Connection) -> None:
        """Take a connection that was accepted just now."""
        address = address_key(connection.remote)
        way = in_the_way(self.unknown.items(), address, self._most_unknown)
        if way:
            way[0].drop("evicted")
        self.unknown[connection] = address

    def make_room(self, newcomer: Connection, others: Iterable[Connection]) -> bool:
        """Make room for a connection whose other end is in no view with this member, among
        `others` of that kind; return False if none of them can end."""
        # This member has dialled to say something: such a connection goes last.
        ranked = sorted(others, key=lambda one: (one.is_initiated, one.last_used))
        way = in_the_way(
            ((one, _address_of(one)) for one in ranked), _address_of(newcomer), self._most_known
        )
        if way and way[0].is_initiated:
            return False
        if way:
            way[0].drop("evicted")
        return True

    def make_room_for(self, connection: Connection, size: int) -> None:
        """Count the buffer for a frame that a stranger has begun, 0 when it is whole, and what
        waits in a retired connection; those that began first end if all of them hold too much."""
        self._buffers.pop(connection, None)
        if connection.state is State.RETIRING:
            size += connection.out.size
        if not size:
            return
        self._buffers[connection] = size
        while sum(self._buffers.values()) > UNFINISHED_BYTES:
            next(iter(self._buffers)).drop("evicted")

    def end(self, connection: Connection) -> None:
        """Forget a connection that has ended, or whose other end is a member now."""
        self.discard(connection)
        self._buffers.pop(connection, None)

    def discard(self, connection: Connection) -> None:
        """Forget that a connection is unknown: its other end has said who it is, or it has
        ended."""
        self.unknown.pop(connection, None)


def _address_of(connection: Connection) -> str:
    """Return the address for which a connection counts: none if this member has dialled it."""
    return "" if connection.is_initiated else address_key(connection.remote)
