"""The memory of receiver entries that were removed."""

from __future__ import annotations

from typing import Final, NamedTuple

from stormcast.node.core.serial import is_newer
from stormcast.node.core.wire import Head
from stormcast.node.protocols.unicast.entries import ReceiverEntry
from stormcast.node.protocols.unicast.state import Connections

MAX_PEERS: Final = 4096
"""Peers remembered at once; the oldest is forgotten first, so a flood of sources is bounded."""
MAX_STRANGERS: Final = 1024
"""The same of strangers. They have places of their own: else a flood of them would have a member
forgotten, and a late frame of its would open again what is over."""


class Tombstone(NamedTuple):
    """A removed connection."""

    conn: int
    stamp: int
    """Our newest timestamp at that moment."""
    buried_at: float
    """For `conn_close_timeout` from then on, as it is set now, a first frame opens the connection
    only as an answer to a question asked after the removal."""
    delivered: int
    """Seqno up to which its windows delivered: the sender may have missed the ack, and repeat."""
    places: list[tuple[int, int]]
    """Ranges that its windows delivered out of band, above a gap."""


class Tombstones:
    """The newest connection of each peer that was removed: a late first frame of it must not open
    it again, and where it opens again, nothing is delivered twice (G2)."""

    def __init__(self, state: Connections) -> None:
        self._state = state
        self._tombs: dict[int, Tombstone] = {}
        """Of members and past ones; without a group of all."""
        self._of_strangers: dict[int, Tombstone] = {}

    def bury(self, entry: ReceiverEntry, now: float) -> None:
        """Remember an entry that is removed."""
        self._tombs.pop(entry.peer, None)
        self._of_strangers.pop(entry.peer, None)
        tombs, most = self._tombs, MAX_PEERS
        state = self._state
        if state.is_stranger(entry.peer) and not state.port.contacts.was_member(entry.peer):
            tombs, most = self._of_strangers, MAX_STRANGERS
        if len(tombs) >= most:
            del tombs[next(iter(tombs))]
        window = entry.window
        tombs[entry.peer] = Tombstone(
            entry.conn, state.last_stamp, now, window.delivered, window.places()
        )

    def _find(self, peer: int) -> Tombstone | None:
        return self._tombs.get(peer) or self._of_strangers.get(peer)

    def conn(self, peer: int, now: float) -> int:
        """Return the last removed connection of `peer`, or 0 if that was long ago."""
        buried = self._find(peer)
        life = self._state.config.conn_close_timeout
        if buried is None or (life > 0 and now >= buried.buried_at + life):
            return 0
        return buried.conn

    def is_answered(self, head: Head) -> bool:
        """Whether a first frame echoes a stamp that is newer than the removal (R-3)."""
        buried = self._find(head.source)
        return buried is not None and head.stamp != 0 and is_newer(head.stamp, buried.stamp)

    def delivered(self, peer: int, conn: int) -> tuple[int, list[tuple[int, int]]]:
        """Return what earlier windows of a connection delivered: up to a seqno, and ranges above
        it."""
        buried = self._find(peer)
        remembers = self._state.config.historical.remembers_delivered
        if buried is None or buried.conn != conn or not conn or not remembers:
            return 0, []
        return buried.delivered, buried.places
