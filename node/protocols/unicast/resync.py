"""Keeps frames that have no window yet, and asks their senders for their first seqno.

Apart from the entries, because it is needed exactly when there is no entry.
"""

from __future__ import annotations

from collections.abc import Iterator
from math import inf
from typing import Final

from stormcast.node import trace
from stormcast.node.core import wire
from stormcast.node.core.serial import is_newer
from stormcast.node.core.strangers import MAX_GAUGED
from stormcast.node.core.wire import Head
from stormcast.node.protocols.unicast.entries import Arrival, Sync
from stormcast.node.protocols.unicast.state import Connections
from stormcast.node.protocols.unicast.tombstones import MAX_PEERS
from stormcast.node.protocols.windowed import gauge

DEFAULT_SYNC_LIFE: Final = 60.0
"""Seconds for which a silent sender without a window is remembered, if `max_retransmit_time` is
0."""
_KEEPER: Final = "unicast early frames"


class Resync:
    """Keeps early frames (D-6), and sends SEND_FIRST_SEQNO to their senders."""

    def __init__(self, state: Connections) -> None:
        self.wanted: list[Sync] = []
        """SEND_FIRST_SEQNOs to send at the end of this turn, unless the first frame came in it;
        always the same list."""
        self._state = state
        self._port = state.port
        self._syncs: dict[int, Sync] = {}
        self._cached_bytes = 0
        """Bytes of all early frames together: no more than one window holds."""

    # -- Early frames -------------------------------------------------------------------------

    def remember(self, arrival: Arrival, now: float) -> Sync:
        """Keep an early frame, newest connection only, if there is room; return the `Sync` of its
        sender."""
        head = arrival.head
        sync = self._sync_of(head)
        if sync.conn != head.conn:
            sync.conn = head.conn
            sync.repeats = -1
            self._uncache(sync)
        sync.seqno = head.lo + head.count - 1
        sync.used_at = now
        config, size = self._state.config, len(arrival.body)
        if (
            len(sync.cached) < config.max_cached_frames
            and self._cached_bytes + size <= config.window_bytes
        ):
            sync.cached.append(arrival)
            sync.size += size
            self._cached_bytes += size
        if self._state.is_stranger(sync.peer):
            self._count_stranger(sync)
        return sync

    def _count_stranger(self, sync: Sync) -> None:
        """Count what is kept of a stranger: its early frames, and the question to it."""
        self._port.strangers.keep(sync.peer, _KEEPER, 1 + len(sync.cached), sync.size)

    def forget_stranger(self, peer: int) -> None:
        """Give up early frames of a stranger; where there are none, the question to it. Who is
        forgotten is asked again at once, so that comes last."""
        sync = self._syncs.get(peer)
        if sync is None or not self._state.is_stranger(peer):
            return
        if sync.cached:
            self._port.drop("stranger-early", len(sync.cached))
            self._uncache(sync)
            self._count_stranger(sync)
        else:
            self._forget(sync)

    def _sync_of(self, head: Head) -> Sync:
        sync = self._syncs.get(head.source)
        if sync is None:
            if len(self._syncs) >= MAX_PEERS:
                self._forget(next(iter(self._syncs.values())))
            sync = self._syncs[head.source] = Sync(head.source, head.conn)
        return sync

    def knows(self, peer: int) -> bool:
        """Whether a peer was asked, or is about to be."""
        return peer in self._syncs

    def take_cached(self, peer: int, conn: int) -> list[Arrival]:
        """Take the early frames of a connection that just opened; throw away those of others."""
        sync = self._syncs.get(peer)
        if sync is None:
            return []
        return [arrival for arrival in self._uncache(sync) if arrival.head.conn == conn]

    def opened(self, peer: int) -> None:
        """Cancel a deferred SEND_FIRST_SEQNO: the window exists."""
        if sync := self._syncs.get(peer):
            self._state.looks.cancel(sync)

    def retain(self, members: frozenset[int]) -> None:
        """Drop the early frames of peers that are not in the view."""
        for peer, sync in self._syncs.items():
            if peer not in members:
                self._uncache(sync)
                if self._state.is_grouped:
                    self._count_stranger(sync)

    def cached_counts(self) -> Iterator[tuple[int, int]]:
        """Yield each sender of early frames, and how many are kept."""
        return ((peer, len(sync.cached)) for peer, sync in self._syncs.items() if sync.cached)

    def gauge(self, now: float) -> None:
        """Record how many early frames are kept (G5)."""
        port, protocol = self._state.port, self._state.generation.protocol
        bound = self._state.config.max_cached_frames
        strangers = 0
        for peer, cached in self.cached_counts():
            is_stranger = self._state.is_stranger(peer)
            strangers += is_stranger
            if is_stranger and strangers > MAX_GAUGED:
                continue
            gauge(port, protocol, trace.CACHED_FRAMES, peer, cached, bound, now)

    def _forget(self, sync: Sync) -> None:
        self._uncache(sync)
        self._state.looks.cancel(sync)
        self._state.expiries.cancel(sync)
        self._port.strangers.keep(sync.peer, _KEEPER, 0, 0)
        del self._syncs[sync.peer]

    def _uncache(self, sync: Sync) -> list[Arrival]:
        cached, sync.cached = sync.cached, []
        self._cached_bytes -= sync.size
        sync.size = 0
        if cached and self._state.is_stranger(sync.peer):
            self._count_stranger(sync)
        return cached

    # -- Asking -------------------------------------------------------------------------------

    def ask(self, arrival: Arrival, now: float) -> None:
        """Keep a frame that has no window, and ask its sender for the lowest seqno it has."""
        if self._is_outdated(arrival.head):
            self._port.drop("old-connection")
            return
        state = self._state
        peer = arrival.head.source
        if (
            peer not in self._syncs
            and state.is_stranger(peer)
            and not self._port.strangers.questions.admits(now)
        ):
            self._port.drop("stranger-questions")
            return
        sync = self.remember(arrival, now)
        if state.expiries.due(sync) == inf:
            self.expire(sync, now)
        if not state.config.historical.sync_spacing:
            self._send(sync, now)
        elif state.config.defers_sync():
            if state.looks.due(sync) == inf:
                state.looks.set(sync, self._deferred_until(sync, now))
        elif not sync.is_wanted and now >= sync.sent_at + self._spacing(sync):
            # The first frame may follow in the same turn, or even in the same datagram.
            sync.is_wanted = True
            self.wanted.append(sync)

    def _is_outdated(self, head: Head) -> bool:
        """Whether a frame belongs to an older connection than the one that is asked for."""
        sync = self._syncs.get(head.source)
        return sync is not None and is_newer(sync.conn, head.conn)

    def _spacing(self, sync: Sync) -> float:
        state = self._state
        return state.pacer.spaced(state.config.sync_min_interval, state.round_trip(sync.peer))

    def least_spacing(self) -> float:
        """Return the seconds between two questions to one sender, if the network has no delay."""
        config, pacer = self._state.config, self._state.pacer
        if not config.defers_sync():
            return pacer.spaced(config.sync_min_interval, pacer.floor())
        timing = pacer.timing
        pace = timing.reorder_tolerance if timing.adaptive else config.xmit_interval
        return max(config.sync_min_interval, pace)

    def _deferred_until(self, sync: Sync, now: float) -> float:
        """Return when to ask: at the next tick; in `fast`, after the reordering tolerance at first,
        then at the pace of resends."""
        pacer, rtt = self._state.pacer, self._state.round_trip(sync.peer)
        due = max(
            pacer.second_gap_look(now, rtt), sync.sent_at + self._state.config.sync_min_interval
        )
        if sync.repeats < 0:
            return due
        return max(due, pacer.next_send_look(sync.sent_at, rtt, sync.repeats))

    def visit(self, sync: Sync, now: float) -> None:
        """Ask, unless the window is open by now."""
        entry = self._state.receivers.get(sync.peer)
        if entry is None or entry.conn != sync.conn:
            self._send(sync, now)

    def finish_turn(self, now: float) -> None:
        """Ask for the first frames that this turn did not bring."""
        for sync in self.wanted:
            if sync.is_wanted:
                sync.is_wanted = False
                self.visit(sync, now)
        # Last: where one of them fails, the others are asked for in the next turn.
        self.wanted.clear()

    def expire(self, sync: Sync, now: float) -> None:
        """Forget a sender that fell silent; else set when to check that again."""
        config = self._state.config
        life = config.max_retransmit_time or DEFAULT_SYNC_LIFE
        # No sooner than it may be asked again: a sender that is forgotten would be asked at once.
        due = sync.used_at + max(life, config.sync_min_interval)
        if now >= due:
            self._forget(sync)
        else:
            self._state.expiries.set(sync, due)

    def repace(self, soon: float, now: float) -> None:
        """Move deferred SEND_FIRST_SEQNOs that are still to be sent to a new interval."""
        looks = self._state.looks
        for sync in self._syncs.values():
            if now < looks.due(sync) < inf:
                looks.set(sync, max(soon, sync.sent_at + self._state.config.sync_min_interval))

    def _send(self, sync: Sync, now: float) -> None:
        port, protocol = self._port, self._state.generation.protocol
        peer = sync.peer
        if self._state.is_stranger(peer) and not port.strangers.said.admits_for(peer, now):
            # It is asked when its next frame comes.
            return
        sync.sent_at = now
        sync.stamp = self._state.next_stamp()
        sync.repeats = wire.told_apart(sync.repeats + 1)
        port.tracer.record(
            trace.SYNC, now, protocol=protocol, peer=sync.peer, conn=sync.conn, lo=sync.seqno
        )
        frame = port.codec.pack_control(
            wire.SFS,
            protocol,
            sync.peer,
            sync.conn,
            sync.seqno,
            transmission=sync.repeats,
            stamp=sync.stamp,
        )
        port.frames.append((sync.peer, frame, b""))
