"""The receiving half: finding the window of a frame, delivering in order, acking (G2, G3, G7)."""

from __future__ import annotations

from abc import abstractmethod
from math import inf
from typing import ClassVar, Final

from node import trace
from node.core import wire
from node.core.codec import unpack_lengths_untrusted
from node.core.errors import BadFrame
from node.core.model import FIRST, OOB
from node.core.serial import is_newer
from node.core.window import Piece, ReceiveWindow
from node.core.wire import Head
from node.protocols.handing import hand_up
from node.protocols.unicast.asking import Asking
from node.protocols.unicast.entries import (
    Arrival,
    ReceiverEntry,
    State,
)
from node.protocols.unicast.resync import Sync

DEFAULT_SYNC_LIFE: Final = 60.0
"""Seconds for which a silent sender without a window is remembered, where nothing else says."""


class Receiving(Asking):
    """Receiver entries, by peer; the life of one is an epoch."""

    asks_for_gaps: ClassVar[bool] = True
    """Whether the receiver requests what is missing."""

    # -- What a generation decides -------------------------------------------------------------

    @abstractmethod
    def _after_data(
        self, entry: ReceiverEntry, new: int, size: int, flags: int, now: float
    ) -> None:
        """New messages (or duplicates, when `new` is 0) came: ack now, later, or not at all."""

    def _ack_value(self, entry: ReceiverEntry) -> int:
        """What an ack reports: received in order (JGRP-1664), consumed or not."""
        return entry.window.deliverable

    def _defers_sync(self) -> bool:
        """Whether SEND_FIRST_SEQNO waits for the next tick, instead of being spaced."""
        return False

    def _visit_receiver_extra(self, entry: ReceiverEntry, now: float) -> float:
        """A generation's own timer on a receiver entry; returns when to come back."""
        return inf

    # -- Data ---------------------------------------------------------------------------------

    def _on_data(self, head: Head, body: bytes, now: float) -> None:
        if not 0 < head.lo <= wire.MAX_SEQNO - head.count:
            raise BadFrame("seqno")
        start, lengths = unpack_lengths_untrusted(head, body)
        if head.mark >= head.lo + head.count - 1:
            raise BadFrame("mark")
        arrival = Arrival(head, body, start, lengths)
        entry = self._receivers.get(head.source)
        if entry is None or entry.conn != head.conn:
            entry = self._find_receiver(entry, arrival, now)
            if entry is None:
                return
        self._take(entry, arrival, now)

    def _take(self, entry: ReceiverEntry, arrival: Arrival, now: float) -> None:
        """Add a batch to its window and deliver what is next."""
        head = arrival.head
        flags = head.flags
        window = entry.window
        # An application that does not listen hears OOB messages later, in their place.
        oob = bool(flags & OOB) and self.is_consuming
        new = window.add(head.lo, head.lo + head.count - 1, len(arrival.body), arrival, oob=oob)
        entry.last_used = now
        if entry.state is not State.OPEN:
            self._set_receiver_state(entry, State.OPEN, "used", now)
        taken = 0
        if new:
            for piece in new:
                taken += piece.hi - piece.lo + 1
                if oob:
                    self._deliver(entry, piece, window.delivered, now)
            if self.is_consuming:
                self._deliver_ready(entry, now)
        else:
            self._refused(entry, head)
        if head.transmission and entry.gaps.asked:
            entry.gaps.sample(head.lo, now)
        self._after_data(entry, taken, len(arrival.body), flags, now)
        if entry.look_due == inf and self.asks_for_gaps and window.has_gap():
            entry.look_due = self.pacer.first_gap_look(now)
            if entry.look_due <= now:
                self._look_at_gaps(entry, now)
            self._looks.set_earlier(entry, entry.look_due)

    def _refused(self, entry: ReceiverEntry, head: Head) -> None:
        hi = head.lo + head.count - 1
        if hi <= entry.window.deliverable:
            self._port.drop("duplicate")
        elif head.lo > entry.window.delivered + entry.window.capacity:
            self._port.drop("beyond-window")
        else:
            self._port.drop("duplicate-or-no-room")

    def _deliver_ready(self, entry: ReceiverEntry, now: float) -> None:
        for piece in entry.window.take_ready():
            if piece.item is not None:
                self._deliver(entry, piece, piece.lo - 1, now)

    def _deliver(
        self, entry: ReceiverEntry, piece: Piece[Arrival], settled: int, now: float
    ) -> None:
        hand_up(self._port, piece, entry.conn, entry.epoch, 0, settled, now)

    def set_consuming(self, consuming: bool, now: float) -> int:  # noqa: FBT001 it is the whole message
        """Whether the application takes deliveries. While it does not, windows fill and senders
        block. Returns how many seqnos waited for it."""
        self.is_consuming = consuming
        waited = 0
        if consuming:
            for entry in list(self._receivers.values()):
                before = entry.window.delivered
                self._deliver_ready(entry, now)
                if entry.window.delivered > before:
                    waited += entry.window.delivered - before
                    self._after_data(entry, entry.window.delivered - before, 0, 0, now)
            self._port.woken.append(self._port.me)
        return waited

    # -- Finding the entry ----------------------------------------------------------------------

    def _find_receiver(
        self, entry: ReceiverEntry | None, arrival: Arrival, now: float
    ) -> ReceiverEntry | None:
        """The table of docs/protocols/unicast.md: use, create, replace, ask for the first seqno, or
        ignore."""
        head = arrival.head
        conn_ids = self.config.historical.conn_ids
        if conn_ids == "none":
            return entry or self._open_receiver(head.source, 0, 0, now)
        if conn_ids == "first" and head.conn == 0 and entry is not None:
            return entry
        if head.conn == 0 and conn_ids == "every":
            raise BadFrame("no-conn")
        tomb = self.resync.tombstone(head.source, now)
        if (entry is not None and is_newer(entry.conn, head.conn)) or (
            tomb and is_newer(tomb, head.conn)
        ):
            self._port.drop("old-connection")
            return None
        if head.flags & FIRST and (tomb != head.conn or self.resync.is_answer(head)):
            if not self.is_consuming and self._is_withholding(head.source):
                self._port.drop("not-consuming")
                return None
            if entry is not None:
                self._remove_receiver(entry, "replaced", now)
            # A batch may begin below what the sender still has to get acked: that part was
            # delivered before.
            offset = max(head.lo - 1, head.mark)
            entry = self._open_receiver(head.source, head.conn, offset, now)
            for early in self.resync.take_cached(head.source, head.conn):
                self._take(entry, early, now)
            return entry
        self._ask_first_seqno(arrival, now)
        return None

    def _is_withholding(self, peer: int) -> bool:
        """Whether windows that ended left as much for a stalled application as a window holds: no
        further one is opened before it was taken (G5)."""
        held = [delivery for delivery in self._port.withheld if delivery.source == peer]
        return (
            sum(len(delivery) for delivery in held) >= self.config.window_messages
            or sum(delivery.size for delivery in held) >= self.config.window_bytes
        )

    def _ask_first_seqno(self, arrival: Arrival, now: float) -> None:
        """No window for this connection: keep the frame, and ask the sender for its lowest."""
        head = arrival.head
        if self.resync.is_outdated(head):
            self._port.drop("old-connection")
            return
        sync = self.resync.remember(arrival, now)
        if self._expiries.due(sync) == inf:
            self._expire_sync(sync, now)
        if not self.config.historical.sync_spacing:
            self._send_sfs(sync, now)
        elif self._defers_sync():
            if self._looks.due(sync) == inf:
                self._looks.set(sync, self._deferred_until(sync, now))
        elif not sync.is_wanted:
            rtt = self._round_trip(head.source)
            spacing = self.pacer.spaced(self.config.sync_min_interval, rtt)
            if now >= sync.sent_at + spacing:
                # The first frame may follow in the same turn, or even in the same datagram.
                sync.is_wanted = True
                self.syncs_now.append(sync)

    def _expire_sync(self, sync: Sync, now: float) -> None:
        """Forget a sender that fell silent; else come back when it would be one."""
        life = self.config.max_retransmit_time or DEFAULT_SYNC_LIFE
        # No sooner than it may be asked again: who is forgotten is asked at once.
        due = sync.used_at + max(life, self.config.sync_min_interval)
        if now >= due:
            self.resync.forget(sync)
        else:
            self._expiries.set(sync, due)

    def _deferred_until(self, sync: Sync, now: float) -> float:
        """The next tick; in `fast`, after the reordering tolerance at first, then at the pace of
        resends."""
        rtt = self._round_trip(sync.peer)
        due = max(
            self.pacer.second_gap_look(now, rtt), sync.sent_at + self.config.sync_min_interval
        )
        if sync.repeats < 0:
            return due
        return max(due, self.pacer.next_send_look(sync.sent_at, rtt, sync.repeats))

    def _send_sfs(self, sync: Sync, now: float) -> None:
        sync.sent_at = now
        sync.stamp = self._next_stamp()
        sync.repeats = min(sync.repeats + 1, 255)
        self._tracer.record(
            trace.SYNC, now, protocol=self.protocol, peer=sync.peer, conn=sync.conn, lo=sync.seqno
        )
        frame = self._codec.pack_control(
            wire.SFS, self.protocol, sync.peer, sync.conn, sync.seqno,
            transmission=sync.repeats, stamp=sync.stamp,
        )  # fmt: skip
        self._port.frames.append((sync.peer, frame, b""))

    def _visit_sync(self, sync: Sync, now: float) -> None:
        if sync.peer not in self._receivers or self._receivers[sync.peer].conn != sync.conn:
            self._send_sfs(sync, now)

    # -- What senders say ----------------------------------------------------------------------

    def _on_close(self, head: Head, now: float) -> None:
        entry = self._receivers.get(head.source)
        if entry is None or (entry.conn != head.conn and self.config.historical.conn_check):
            self._port.drop("close-other-connection")
            return
        self._remove_receiver(entry, "closed by sender", now)

    def _on_reset(self, head: Head, now: float) -> None:
        entry = self._receivers.get(head.source)
        if entry is None or entry.conn != head.conn:
            self._port.drop("reset-other-connection")
            return
        if head.lo > entry.window.delivered + entry.window.capacity:
            raise BadFrame("reset-beyond-window")
        skipped = entry.window.skip_to(head.lo)
        if skipped:
            self._tracer.record(
                trace.SKIPPED,
                now,
                protocol=self.protocol,
                peer=entry.peer,
                conn=entry.conn,
                epoch=entry.epoch,
                count=skipped,
                hi=head.lo,
                text="the sender no longer has these messages: G6 was broken",
            )
            if self.is_consuming:
                self._deliver_ready(entry, now)

    # -- Acks ---------------------------------------------------------------------------------

    def _ack_soon(self, entry: ReceiverEntry) -> None:
        """Ack at the end of this turn: one ack for all that arrives in it."""
        if not entry.ack_wanted:
            entry.ack_wanted = True
            self.acks_now.append(entry)

    def _ack_later(self, entry: ReceiverEntry, now: float) -> None:
        """Ack at the next tick, or when the spacing of acks allows."""
        if entry.ack_due == inf and not entry.ack_wanted:
            due = self.pacer.ack_at(now, entry.last_ack)
            if due <= now:
                self._ack_soon(entry)
            else:
                entry.ack_due = due
                self._looks.set_earlier(entry, due)

    def _send_ack(self, entry: ReceiverEntry, now: float, kind: int = wire.ACK) -> None:
        value = self._ack_value(entry)
        # The fate of a frame is drawn from its preamble: a repeated ack must not share the lost
        # one's.
        entry.ack_repeats = min(entry.ack_repeats + 1, 255) if value == entry.acked else 0
        entry.acked = value
        entry.unacked = entry.unacked_bytes = 0
        entry.ack_due = inf
        entry.last_ack = now
        self._tracer.acked(
            now,
            protocol=self.protocol,
            kind=kind,
            peer=entry.peer,
            conn=entry.conn,
            epoch=entry.epoch,
            seqno=value,
        )
        conn = 0 if self.config.historical.conn_ids == "first" else entry.conn
        frame = self._codec.pack_control(
            kind, self.protocol, entry.peer, conn, value,
            transmission=entry.ack_repeats, mark=entry.window.seen, stamp=self._next_stamp(),
        )  # fmt: skip
        self._port.frames.append((entry.peer, frame, b""))

    def _flush_ack(self, entry: ReceiverEntry, now: float) -> None:
        self._send_ack(entry, now)

    def finish_turn(self, now: float) -> None:
        """Send the acks that this turn asked for, and ask for the first frames that it did not
        bring."""
        if self.syncs_now:
            syncs, self.syncs_now = self.syncs_now, []
            for sync in syncs:
                sync.is_wanted = False
                self._visit_sync(sync, now)
        entries, self.acks_now = self.acks_now, []
        for entry in entries:
            if entry.ack_wanted:
                entry.ack_wanted = False
                self._send_ack(entry, now)

    # -- Life of an entry ----------------------------------------------------------------------

    def _visit_receiver(self, entry: ReceiverEntry, now: float) -> None:
        if entry.ack_due <= now:
            self._send_ack(entry, now)
        if entry.look_due <= now:
            self._look_at_gaps(entry, now)
        extra = self._visit_receiver_extra(entry, now)
        self._looks.set_earlier(entry, min(entry.ack_due, entry.look_due, extra))

    def _open_receiver(self, peer: int, conn: int, offset: int, now: float) -> ReceiverEntry:
        config = self.config
        delivered, places = self.resync.delivered(peer, conn)
        window: ReceiveWindow[Arrival] = ReceiveWindow(
            max(offset, delivered), config.window_messages, config.window_bytes
        )
        for lo, hi in places:
            window.hold_place(lo, hi)
        self._epochs += 1
        entry = ReceiverEntry(peer, conn, now, self._round_trip(peer), window, self._epochs)
        self._receivers[peer] = entry
        self.resync.opened(peer)
        self._trace_conn(entry, trace.RECEIVER_OPEN, "", now)
        self._schedule_expiry(entry, now)
        if places and self.is_consuming:
            self._deliver_ready(entry, now)
        return entry

    def _set_receiver_state(
        self, entry: ReceiverEntry, state: State, reason: str, now: float
    ) -> None:
        stream = trace.RECEIVER_OPEN if state is State.OPEN else trace.RECEIVER_CLOSING
        self._set_state(entry, state, stream, reason, now)

    def _close_receiver(self, entry: ReceiverEntry, reason: str, now: float) -> None:
        if not self.config.historical.flush_on_close:
            self._remove_receiver(entry, reason, now)
        elif entry.state is State.OPEN:
            self._set_receiver_state(entry, State.CLOSING, reason, now)

    def _remove_receiver(self, entry: ReceiverEntry, reason: str, now: float) -> None:
        """Remove after handing up what is in order, and acking it (JGRP-1755)."""
        self._deliver_ready(entry, now)
        # A stalled receiver may have acked, and so counts nothing, before it handed up the rest.
        late = self._ack_value(entry) > max(entry.acked, 0)
        if late or entry.unacked or entry.ack_due != inf or entry.ack_wanted:
            self._flush_ack(entry, now)
        entry.ack_wanted = False
        self._stop_timers(entry)
        del self._receivers[entry.peer]
        self.resync.bury(entry, self._last_stamp, now)
        self._trace_conn(entry, trace.RECEIVER_REMOVED, reason, now, entry.window.delivered)

    def _expire_receiver(self, entry: ReceiverEntry, now: float) -> None:
        config = self.config
        if entry.state is State.OPEN and self._has_passed(entry, config.conn_expiry_timeout, now):
            self._close_receiver(entry, "idle", now)
        elif entry.state is State.CLOSING and self._has_passed(
            entry, config.conn_close_timeout, now
        ):
            self._remove_receiver(entry, "closed", now)
        if self._receivers.get(entry.peer) is entry:
            self._schedule_expiry(entry, now)
