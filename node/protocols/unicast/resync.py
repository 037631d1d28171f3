"""What a receiver remembers of senders it has no window for: syncs sent, early frames, tombstones.

Apart from the entries, because it is needed exactly when there is no entry.
"""

from __future__ import annotations

from collections.abc import Iterator
from math import inf
from typing import Any, Final, NamedTuple

from node.core.serial import is_newer
from node.core.timers import Timers
from node.core.wire import Head
from node.protocols.unicast.config import UnicastConfig
from node.protocols.unicast.entries import Arrival, ReceiverEntry

MAX_PEERS: Final = 4096
"""Strangers remembered at once; the oldest is forgotten first, so a flood of sources is bounded."""


class Sync:
    """A SEND_FIRST_SEQNO towards one sender, and the frames that wait for its answer."""

    __slots__ = (
        "cached",
        "conn",
        "is_wanted",
        "peer",
        "repeats",
        "sent_at",
        "seqno",
        "stamp",
        "used_at",
    )

    def __init__(self, peer: int, conn: int) -> None:
        self.peer = peer
        self.conn = conn
        self.seqno = 0
        self.sent_at = -inf
        self.stamp = 0
        self.repeats = -1
        self.is_wanted = False
        """It leaves at the end of this turn, unless the first frame comes before."""
        self.used_at = -inf
        self.cached: list[Arrival] = []


class Tombstone(NamedTuple):
    """A removed connection."""

    conn: int
    stamp: int
    """Our newest timestamp at that moment."""
    until: float
    """Before, a first frame opens it only as an answer to what was asked since."""
    delivered: int
    """Up to which seqno its windows delivered: the sender may not have heard, and repeat it."""
    places: list[tuple[int, int]]
    """What they delivered out of band, above a gap."""


class Resync:
    """The tables of one member."""

    def __init__(self, config: UnicastConfig, looks: Timers[Any], expiries: Timers[Any]) -> None:
        self.config = config
        self._looks = looks
        """When a deferred sync is to be sent."""
        self._expiries = expiries
        """When a sender may have been silent for too long."""
        self._syncs: dict[int, Sync] = {}
        self._tombs: dict[int, Tombstone] = {}
        self._cached_bytes = 0
        """Of all early frames together: no more than one window holds."""

    def remember(self, arrival: Arrival, now: float) -> Sync:
        """Keep an early frame (D-6), newest connection only, and say what was sent to its sender so
        far."""
        head = arrival.head
        sync = self._syncs.get(head.source)
        if sync is None:
            if len(self._syncs) >= MAX_PEERS:
                self.forget(next(iter(self._syncs.values())))
            sync = self._syncs[head.source] = Sync(head.source, head.conn)
        if sync.conn != head.conn:
            sync.conn = head.conn
            sync.repeats = -1
            self._uncache(sync)
        sync.seqno = head.lo + head.count - 1
        sync.used_at = now
        size = len(arrival.body)
        if (
            len(sync.cached) < self.config.max_cached_frames
            and self._cached_bytes + size <= self.config.window_bytes
        ):
            sync.cached.append(arrival)
            self._cached_bytes += size
        return sync

    def is_outdated(self, head: Head) -> bool:
        """Whether a frame belongs to an older connection than the one a sync was sent for."""
        sync = self._syncs.get(head.source)
        return sync is not None and is_newer(sync.conn, head.conn)

    def forget(self, sync: Sync) -> None:
        """Remember a sender no longer: nothing came from it for long enough."""
        self._uncache(sync)
        self._looks.cancel(sync)
        self._expiries.cancel(sync)
        del self._syncs[sync.peer]

    def _uncache(self, sync: Sync) -> list[Arrival]:
        cached, sync.cached = sync.cached, []
        self._cached_bytes -= sum(len(arrival.body) for arrival in cached)
        return cached

    def is_answer(self, head: Head) -> bool:
        """Whether a first frame answers a SEND_FIRST_SEQNO sent since the removal (R-3)."""
        if not self.config.historical.stamps:
            return head.source in self._syncs
        buried = self._tombs.get(head.source)
        return buried is not None and head.stamp != 0 and is_newer(head.stamp, buried.stamp)

    def take_cached(self, peer: int, conn: int) -> list[Arrival]:
        """The early frames of a connection that just opened; those of others are thrown away."""
        sync = self._syncs.get(peer)
        if sync is None:
            return []
        return [arrival for arrival in self._uncache(sync) if arrival.head.conn == conn]

    def opened(self, peer: int) -> None:
        """A window exists: an outstanding deferred sync is pointless."""
        if sync := self._syncs.get(peer):
            self._looks.cancel(sync)

    def bury(self, entry: ReceiverEntry, stamp: int, now: float) -> None:
        """Remember the newest connection of a peer that was removed: a late first frame of it must
        not open it again, and where it opens again, nothing is delivered twice (G2)."""
        self._tombs.pop(entry.peer, None)
        if len(self._tombs) >= MAX_PEERS:
            del self._tombs[next(iter(self._tombs))]
        window = entry.window
        until = now + self.config.conn_close_timeout
        self._tombs[entry.peer] = Tombstone(
            entry.conn, stamp, until, window.delivered, window.places()
        )

    def tombstone(self, peer: int, now: float) -> int:
        """The connection of `peer` last removed, or 0 where that is long ago."""
        buried = self._tombs.get(peer)
        if buried is None or (now >= buried.until and self.config.conn_close_timeout > 0):
            return 0
        return buried.conn

    def delivered(self, peer: int, conn: int) -> tuple[int, list[tuple[int, int]]]:
        """What earlier windows of a connection delivered: up to a seqno, and places above it."""
        buried = self._tombs.get(peer)
        remembers = self.config.historical.remembers_delivered
        if buried is None or buried.conn != conn or not conn or not remembers:
            return 0, []
        return buried.delivered, buried.places

    def retain(self, members: frozenset[int]) -> None:
        """Drop the early frames of who is not in the view; the tombstones outlive it."""
        for peer, sync in self._syncs.items():
            if peer not in members:
                self._uncache(sync)

    def waiting(self) -> list[Sync]:
        """Deferred syncs that are still to be sent."""
        return [sync for sync in self._syncs.values() if self._looks.due(sync) < inf]

    def cached_counts(self) -> Iterator[tuple[int, int]]:
        """How many early frames are kept, per sender."""
        return ((peer, len(sync.cached)) for peer, sync in self._syncs.items() if sync.cached)
