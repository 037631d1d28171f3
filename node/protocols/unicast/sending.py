"""The sending half: numbers, keeps what is unacked, repeats it, and lets it go (G1, G6)."""

from __future__ import annotations

from collections.abc import Sequence
from math import inf

from node import trace
from node.core import wire
from node.core.codec import pack_body, unpack_ranges_untrusted
from node.core.errors import BadFrame
from node.core.model import DONT_LOOPBACK, FIRST, FRAGMENT, Payload
from node.core.serial import is_newer
from node.core.window import SendWindow, Stored
from node.core.wire import Head
from node.protocols.handing import hand_to_self
from node.protocols.port import Abandoned
from node.protocols.unicast.connections import UNLIMITED, Connections
from node.protocols.unicast.entries import (
    Batch,
    SenderEntry,
    State,
)


class Sending(Connections):
    """Sender entries, by peer."""

    # -- What a generation decides -------------------------------------------------------------

    def _repair(self, entry: SenderEntry, now: float) -> None:
        """Nothing was acked or sent since the previous look: the newest batch makes every hole
        visible."""
        newest = entry.window.newest()
        if newest is not None:
            self._resend(entry, newest, now)

    def _answer_sfs(self, entry: SenderEntry, head: Head, now: float) -> None:
        """Resend the lowest batch as a possible start (D-9); the rest will be asked for."""
        oldest = entry.window.oldest()
        if oldest is not None:
            self._resend(entry, oldest, now, FIRST, head.stamp)

    # -- Send ---------------------------------------------------------------------------------

    def room(self, peer: int) -> tuple[int, int]:
        """Messages and bytes that `send` would take now."""
        if peer == self._port.me:
            return (UNLIMITED, UNLIMITED) if self.is_consuming else (0, 0)
        entry = self._senders.get(peer)
        if entry is None:
            return self.config.window_messages, self.config.window_bytes
        return entry.window.room()

    def send(
        self,
        peer: int,
        payloads: Sequence[Payload],
        flags: int,
        now: float,
        header: bytes = b"",
        lengths: list[int] | None = None,
        number: int = 0,
    ) -> None:
        """Number a batch that `room` admits, keep it, and send it as one frame. `number` is that
        of its first message among the application's to this peer."""
        if peer == self._port.me:
            self._send_to_self(payloads, flags, now, header, number)
            return
        entry = self._senders.get(peer)
        if entry is None:
            entry = self._open_sender(peer, now)
        elif entry.state is not State.OPEN:
            self._set_sender_state(entry, State.OPEN, "used", now)
        body = pack_body(payloads, self._codec.hash64, header, lengths)
        batch = Batch(body, flags, now, number)
        window = entry.window
        was_idle = window.low == window.high
        lo = window.append(body.count, len(body.data), batch)
        self._tracer.sent(
            now,
            protocol=self.protocol,
            peer=peer,
            conn=entry.conn,
            flags=flags,
            body=body,
            number=number,
            lo=lo,
            hi=window.high,
        )
        self._emit(entry, lo, batch, flags | FIRST if lo == 1 else flags, 0)
        entry.last_used = now
        if was_idle:
            entry.tries = 0
            # In `compatible` the first look is a grid tick that only remembers; here it is now.
            entry.watermark = (window.low, window.high) if self.pacer.timing.adaptive else (-1, -1)
            entry.look_due = self.pacer.next_send_look(now, entry.rtt, 0)
            self._looks.set_earlier(entry, entry.look_due)

    def _emit(self, entry: SenderEntry, lo: int, batch: Batch, flags: int, stamp: int) -> None:
        conn = entry.conn
        if lo != 1 and self.config.historical.conn_ids == "first":
            conn = 0
        head = self._codec.pack_data(
            self.protocol,
            entry.peer,
            conn,
            lo,
            batch.body,
            flags,
            batch.transmission,
            entry.window.low,
            stamp,
        )
        self._port.frames.append((entry.peer, head, batch.body.data))

    def _resend(
        self, entry: SenderEntry, stored: Stored[Batch], now: float, flags: int = 0, stamp: int = 0
    ) -> None:
        """Send a batch again. Of what is stored, only the transmission number changes."""
        batch = stored.item
        if batch.transmission < wire.MAX_TRANSMISSION:
            batch.transmission += 1
        flags |= batch.flags
        if stored.lo == 1:
            flags |= FIRST
        self._tracer.retransmitted(
            now,
            protocol=self.protocol,
            peer=entry.peer,
            conn=entry.conn,
            flags=flags,
            transmission=batch.transmission,
            lo=stored.lo,
            hi=stored.hi,
            size=stored.size,
            digest=batch.body.digest,
        )
        self._emit(entry, stored.lo, batch, flags, stamp)

    def _send_to_self(
        self, payloads: Sequence[Payload], flags: int, now: float, header: bytes, number: int
    ) -> None:
        """Messages to self are numbered and handed straight up: no window can fill, nothing can be
        lost."""
        if not self._self_conn:
            self._self_conn = self._next_conn()
        body = pack_body(payloads, self._codec.hash64, header)
        lo = self._self_seqno + 1
        hi = self._self_seqno = self._self_seqno + body.count
        me, conn = self._port.me, self._self_conn
        self._tracer.sent(
            now,
            protocol=self.protocol,
            peer=me,
            conn=conn,
            flags=flags,
            body=body,
            number=number,
            lo=lo,
            hi=hi,
        )
        if not flags & DONT_LOOPBACK:
            hand_to_self(
                self._port, self.protocol, me, conn, 0, lo, body, payloads, flags, now
            )  # fmt: skip

    # -- What receivers say --------------------------------------------------------------------

    def _sender_for(self, head: Head, what: str) -> SenderEntry | None:
        """The entry that a control frame speaks of, unless it speaks of another connection."""
        entry = self._senders.get(head.source)
        if entry is None:
            self._port.drop(f"{what}-no-connection")
            return None
        historical = self.config.historical
        if head.conn != entry.conn and historical.conn_check and historical.conn_ids == "every":
            self._port.drop(f"{what}-other-connection")
            return None
        return entry

    def _is_stale(self, entry: SenderEntry, head: Head, what: str) -> bool:
        """Whether a timestamp says that something newer was already believed (JGRP-1873)."""
        if not self.config.historical.stamps:
            return False
        if entry.last_stamp and not is_newer(head.stamp, entry.last_stamp):
            self._port.drop(f"{what}-old-stamp")
            return True
        entry.last_stamp = head.stamp
        return False

    def _acked_by(self, entry: SenderEntry, head: Head) -> int:
        """The acked seqno of a control frame, which must have been sent."""
        historical = self.config.historical
        if head.lo > entry.window.high:
            if historical.conn_check and historical.conn_ids == "every":
                raise BadFrame("ack-beyond-sent")
            return entry.window.high
        return head.lo

    def _on_ack(self, head: Head, now: float) -> None:
        entry = self._sender_for(head, "ack")
        if entry is None:
            return
        seqno = self._acked_by(entry, head)
        if self._is_stale(entry, head, "ack"):
            return
        self._purge(entry, seqno, now)
        entry.established = True

    def _purge(self, entry: SenderEntry, seqno: int, now: float) -> None:
        """Forget what the receiver has (G6), and let the outbox fill the room."""
        window = entry.window
        entry.heard_at = now
        low = window.low
        if seqno <= low:
            return
        newest = window.ack(seqno)
        self._tracer.purged(
            now,
            protocol=self.protocol,
            peer=entry.peer,
            conn=entry.conn,
            lo=low + 1,
            hi=seqno,
        )
        if newest is not None and newest.item.transmission == 0:
            entry.rtt.sample(now - newest.item.sent_at)
        self._port.woken.append(entry.peer)

    def _on_stable(self, head: Head, now: float) -> None:
        raise BadFrame("kind")

    def _on_sfs(self, head: Head, now: float) -> None:
        entry = self._sender_for(head, "sfs")
        if entry is None:
            return
        if head.lo > entry.window.high and self.config.historical.conn_ids == "every":
            raise BadFrame("sfs-beyond-sent")
        if self._is_stale(entry, head, "sfs"):
            return
        entry.heard_at = now
        self._answer_sfs(entry, head, now)

    def _on_request(self, head: Head, body: bytes, now: float) -> None:
        ranges = unpack_ranges_untrusted(head, body)
        entry = self._sender_for(head, "request")
        if entry is None:
            self._disown(head)
            return
        window = entry.window
        if (
            ranges[-1][1] > window.low + window.capacity
            and self.config.historical.conn_ids == "every"
        ):
            raise BadFrame("request-beyond-window")
        entry.heard_at = now
        for stored in window.covering(ranges):
            self._resend(entry, stored, now)
        if ranges[0][0] <= window.low and self.config.historical.stamps:
            # Nothing can be sent for these: either the request is old, or it would be repeated for
            # ever.
            frame = self._codec.pack_control(
                wire.RESET_TO,
                self.protocol,
                entry.peer,
                entry.conn,
                window.low,
                transmission=head.transmission,
            )
            self._port.frames.append((entry.peer, frame, b""))

    def _disown(self, head: Head) -> None:
        """Nobody can ever answer this request: have the receiver drop the dead window (R-5)."""
        if self.config.historical.stamps and self.config.historical.conn_ids == "every":
            frame = self._codec.pack_control(
                wire.CLOSE, self.protocol, head.source, head.conn, 0, head.transmission
            )
            self._port.frames.append((head.source, frame, b""))

    # -- Looks --------------------------------------------------------------------------------

    def _visit_sender(self, entry: SenderEntry, now: float) -> None:
        if entry.look_due <= now:
            self._look_at_acks(entry, now)
        self._looks.set_earlier(entry, entry.look_due)

    def _look_at_acks(self, entry: SenderEntry, now: float) -> None:
        """Repair when highest acked and highest sent are what they were at the last look (L1)."""
        window = entry.window
        if window.low == window.high:
            entry.look_due = inf
            return
        mark = (window.low, window.high)
        if mark == entry.watermark:
            self._repair(entry, now)
            entry.tries += 1
            entry.look_due = self.pacer.next_send_look(now, entry.rtt, entry.tries)
        else:
            entry.watermark = mark
            entry.tries = 0
            newest = window.newest()
            assert newest is not None
            changed_at = max(entry.last_used, entry.heard_at)
            if newest is window.oldest() and not newest.item.transmission:
                # All that is missing was sent at one moment: acks of what was before say nothing.
                changed_at = newest.item.sent_at
            entry.look_due = self.pacer.look_after_change(now, changed_at, entry.rtt)

    # -- Life of an entry ----------------------------------------------------------------------

    def _open_sender(self, peer: int, now: float) -> SenderEntry:
        config = self.config
        window: SendWindow[Batch] = SendWindow(config.window_messages, config.window_bytes)
        entry = SenderEntry(peer, self._next_conn(), now, self._round_trip(peer), window)
        self._senders[peer] = entry
        self._trace_conn(entry, trace.SENDER_OPEN, "", now)
        self._schedule_expiry(entry, now)
        return entry

    def _set_sender_state(self, entry: SenderEntry, state: State, reason: str, now: float) -> None:
        stream = trace.SENDER_OPEN if state is State.OPEN else trace.SENDER_CLOSING
        self._set_state(entry, state, stream, reason, now)

    def _close_sender(self, entry: SenderEntry, reason: str, now: float) -> None:
        """Start closing: what is unacked is still flushed, and a new message re-opens."""
        if not self.config.historical.flush_on_close:
            self._remove_sender(entry, reason, now)
        elif entry.state is State.OPEN:
            self._set_sender_state(entry, State.CLOSING, reason, now)

    def _remove_sender(self, entry: SenderEntry, reason: str, now: float) -> None:
        self._stop_timers(entry)
        del self._senders[entry.peer]
        self._abandon(entry, reason, now)
        self._trace_conn(entry, trace.SENDER_REMOVED, reason, now, len(entry.window))
        self._port.closed.append(entry.peer)

    def _abandon(self, entry: SenderEntry, reason: str, now: float) -> None:
        """What is unacked is given up with its connection: say so (G1)."""
        window = entry.window
        if window.low == window.high:
            return
        low, count, last = window.low, 0, 0
        for stored in window:
            batch = stored.item
            if not batch.flags & FRAGMENT:
                count += stored.hi - max(stored.lo - 1, low)
            elif batch.number != last:
                count += 1
            last = batch.number if batch.flags & FRAGMENT else batch.number + batch.body.count - 1
        self._tracer.record(
            trace.ABANDONED, now, protocol=self.protocol, peer=entry.peer, conn=entry.conn,
            count=count, lo=low + 1, hi=window.high, text=reason,
        )  # fmt: skip
        self._port.abandoned.append(Abandoned(entry.peer, count, reason, last))

    def _end_sender(self, entry: SenderEntry, reason: str, now: float) -> None:
        """Remove an entry, and have the peer remove its window: member or not, nothing else may
        ever end it there."""
        self._remove_sender(entry, reason, now)
        frame = self._codec.pack_control(wire.CLOSE, self.protocol, entry.peer, entry.conn, 0)
        self._port.frames.append((entry.peer, frame, b""))

    def _expire_sender(self, entry: SenderEntry, now: float) -> None:
        config = self.config
        # Sums, not differences: the same rounding as the moment that was scheduled.
        waited_for = entry.unanswered_since(now) + config.max_retransmit_time
        if self._is_ageing(entry) and now >= waited_for:
            self._end_sender(entry, "aged", now)
            return
        if entry.state is State.OPEN and self._has_passed(entry, config.conn_expiry_timeout, now):
            self._close_sender(entry, "idle", now)
        elif entry.state is State.CLOSING and self._has_passed(
            entry, config.conn_close_timeout, now
        ):
            self._end_sender(entry, "closed", now)
        if self._senders.get(entry.peer) is entry:
            self._schedule_expiry(entry, now)
