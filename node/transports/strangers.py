"""Connections that belong to nobody in the view, each kind within its share: the one that is idle
for longest ends when another comes.

One address has half of a share: a group that starts on one host fits, and others find room.
"""

from __future__ import annotations

from collections.abc import Callable, Container, Iterable
from typing import Final

from stormcast.node.admission import Bounds, address_key, in_the_way
from stormcast.node.core.model import Address
from stormcast.node.descriptors import Shares
from stormcast.node.transports.connection import Connection
from stormcast.node.transports.connection_state import State
from stormcast.node.transports.owner import TransportOwner

UNFINISHED_BYTES: Final = 2 << 20
"""Bytes of buffers for frames that strangers have begun, and of what waits to be sent to them, in
connections that are being made, open, or retired, all together."""
MOST_FOR_ONE: Final = UNFINISHED_BYTES // 4
"""Bytes that may wait for one stranger before frames for it are dropped, which protocols repair:
one that is only slow keeps its connection, and takes no other's."""


class Strangers:
    """Decides which connections of strangers stay."""

    def __init__(
        self, shares: Shares, owner: TransportOwner, is_fixed: Callable[[Connection], bool]
    ) -> None:
        self.unknown: dict[Connection, str] = {}
        """Accepted, and the other end has not said who it is; by age, each with its address."""
        self._held: dict[Connection, tuple[int, int]] = {}
        """Bytes that a connection holds: the buffer for a frame that it has begun, and what waits
        to be sent. The one that has held something for longest comes first."""
        self._held_bytes = 0
        self._owner = owner
        self._is_fixed = is_fixed
        """Whether the place of the other end is known, and not only what somebody said."""
        self._most_unknown = Bounds(shares.unknown, max(1, shares.unknown // 2))
        self._most_known = Bounds(shares.strangers, max(1, shares.strangers // 2))

    def add(self, connection: Connection) -> None:
        """Take a connection that was accepted just now."""
        address = address_key(connection.remote)
        way = in_the_way(self.unknown.items(), address, self._most_unknown)
        if way:
            way[0].drop("evicted")
        self.unknown[connection] = address

    def make_room(self, newcomer: Connection, others: Iterable[Connection]) -> None:
        """Make room for a connection whose other end is in no view with this member, among `others`
        of that kind."""
        ranked = sorted(others, key=lambda one: one.last_used)
        # This member has dialled to say something: such a connection goes last. But anybody can
        # have it dial, and half of the places are for those who come.
        dialled = [one for one in ranked if one.is_initiated and self._is_fixed(one)]
        last = dict.fromkeys(dialled[-(self._most_known.most // 2) :])
        ranked = [*(one for one in ranked if one not in last), *last]
        way = in_the_way(
            ((one, address_key(one.remote)) for one in ranked),
            address_key(newcomer.remote),
            self._most_known,
        )
        if way:
            way[0].drop("evicted")

    def make_room_for(self, connection: Connection, size: int) -> None:
        """Count the buffer for a frame that a stranger has begun, 0 when it is whole, and what
        waits in a rationed connection; those that began first end if all of them hold too much."""
        waiting = connection.out.cost if connection.is_rationed else 0
        if not waiting:
            self._forget(connection)
        self._hold(connection, size, waiting)

    def note_waiting(self, connection: Connection) -> None:
        """Count what waits in a rationed connection, none if it is rationed no more.

        It keeps its rank by age until nothing waits: whoever reads is not given up for those who
        ask again and again and read nothing. One of these ends with its connection; were frames
        dropped instead, it would keep what others need.
        """
        self.is_peer_now(connection)
        buffered, _waiting = self._held.get(connection, (0, 0))
        self._hold(connection, buffered, connection.out.cost if connection.is_rationed else 0)

    def is_peer_now(self, connection: Connection) -> bool:
        """Whether a connection is rationed no more. A view that is on its way has new members in it
        before the table of connections knows of the view, and the frames that tell them must pass.
        """
        peer = connection.peer
        if connection.is_rationed and peer is not None and connection.state is State.OPEN:
            self.expect(connection, peer.short)
        return not connection.is_rationed

    def expect(self, connection: Connection, peer: int) -> None:
        """Note that a frame for a peer waits in a connection, which may still be being made."""
        if connection.is_rationed and self._owner.is_peer(peer):
            connection.is_rationed = False
            self.note_waiting(connection)

    def _hold(self, connection: Connection, buffered: int, waiting: int) -> None:
        if connection.state is State.CLOSED or not buffered + waiting:
            self._forget(connection)
            return
        self._held_bytes += buffered + waiting - sum(self._held.get(connection, (0, 0)))
        self._held[connection] = buffered, waiting
        while self._held_bytes > UNFINISHED_BYTES:
            next(iter(self._held)).drop("evicted")

    def _forget(self, connection: Connection) -> None:
        self._held_bytes -= sum(self._held.pop(connection, (0, 0)))

    def update(self, connection: Connection, peer: Address, members: Container[int]) -> None:
        """Note whether the other end of an open connection is a stranger: these are members."""
        is_stranger = peer.short not in members
        if not is_stranger:
            self.end(connection)
        connection.reader.set_stranger(is_stranger)
        connection.is_rationed = is_stranger and not self._owner.is_peer(peer.short)

    def end(self, connection: Connection) -> None:
        """Forget a connection that has ended, or whose other end is a member now."""
        self.discard(connection)
        self._forget(connection)

    def discard(self, connection: Connection) -> None:
        """Forget that a connection is unknown: its other end has said who it is, or it has
        ended."""
        self.unknown.pop(connection, None)
