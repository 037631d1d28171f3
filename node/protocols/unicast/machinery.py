"""The connection machinery of all unicast generations. Keeps G1 (no loss), G2 (once), G3 (FIFO), G6, G7.

A generation decides when a receiver acks and what a sender repeats; everything else is here, once:
numbering, windows, connection ids, finding each other again (SEND_FIRST_SEQNO), gap requests,
closing and ageing. See docs/protocols/unicast.md for the table of events.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import replace
from heapq import heappop, heappush
from itertools import count
from math import inf
from typing import ClassVar, Final

from node import trace
from node.core import wire
from node.core.codec import pack_body, unpack_lengths_untrusted, unpack_ranges_untrusted
from node.core.errors import BadFrame, ConfigError
from node.core.model import DONT_LOOPBACK, FIRST, OOB, Delivery, Payload
from node.core.rtt import RoundTrip
from node.core.serial import is_newer, next_serial
from node.core.timing import Pacer, Timing
from node.core.window import Piece, ReceiveWindow, SendWindow, Stored
from node.core.wire import Head
from node.protocols.port import Port
from node.protocols.unicast.config import UnicastConfig
from node.protocols.unicast.entries import Arrival, Asked, Batch, Entry, ReceiverEntry, SenderEntry, State
from node.protocols.unicast.resync import Resync, Sync

UNLIMITED: Final = 1 << 62
REMOVED: Final = -1.0
MAX_REQUESTS_PER_LOOK: Final = 64
"""Request frames that one look sends at most; the rest waits for the next look."""


class Unicast(ABC):
    """One member's reliable unicast: sender and receiver entries per peer, no clock and no socket."""

    protocol: ClassVar[int]
    config_type: ClassVar[type[UnicastConfig]]
    asks_for_gaps: ClassVar[bool] = True
    """Whether the receiver requests what is missing."""
    closes_at_once: ClassVar[bool] = False
    """Whether a view without the peer removes its connections at once instead of letting them flush."""

    def __init__(self, config: UnicastConfig, timing: Timing, port: Port, first_conn: int = 1) -> None:
        self.config = config
        self.pacer = Pacer(timing, config.xmit_interval)
        self.members: frozenset[int] | None = None
        """Short ids of the view's members; None while no view was ever installed."""
        self.resync = Resync(config)
        self._port = port
        self._codec = port.codec
        self._tracer = port.tracer
        self._senders: dict[int, SenderEntry] = {}
        self._receivers: dict[int, ReceiverEntry] = {}
        self._last_conn = first_conn - 1
        self._last_stamp = 0
        self._epochs = 0
        self._self_seqno = 0
        self._self_conn = 0
        self._consuming = True
        self._agenda: list[tuple[float, int, Entry | Sync]] = []
        self._order = count()
        self._acks_now: list[ReceiverEntry] = []

    # -- What a generation decides ------------------------------------------------------------

    @abstractmethod
    def _after_data(self, entry: ReceiverEntry, new: int, size: int, flags: int, now: float) -> None:
        """New messages (or a duplicate, when `new` is 0) were taken: ack now, later, or not at all."""

    def _repair(self, entry: SenderEntry, now: float) -> None:
        """Nothing was acked or sent since the previous look: the newest batch makes every hole visible."""
        newest = entry.window.newest()
        if newest is not None:
            self._resend(entry, newest, now)

    def _answer_sfs(self, entry: SenderEntry, head: Head, now: float) -> None:
        """Resend the lowest retained batch as a possible start (D-9); the rest will be asked for."""
        oldest = entry.window.oldest()
        if oldest is not None:
            self._resend(entry, oldest, now, FIRST, head.stamp)

    def _ack_value(self, entry: ReceiverEntry) -> int:
        """What an ack reports: received in order (JGRP-1664), consumed or not."""
        return entry.window.deliverable

    def _visit_receiver_extra(self, entry: ReceiverEntry, now: float) -> float:
        """A generation's own timer on a receiver entry; returns when to come back."""
        return inf

    # -- Send --------------------------------------------------------------------------------

    def room(self, peer: int) -> tuple[int, int]:
        """Messages and bytes that `send` would take now."""
        if peer == self._port.me:
            return (UNLIMITED, UNLIMITED) if self._consuming else (0, 0)
        entry = self._senders.get(peer)
        if entry is None:
            return self.config.window_messages, self.config.window_bytes
        return entry.window.room()

    def send(self, peer: int, payloads: Sequence[Payload], flags: int, now: float) -> None:
        """Number a batch that `room` admits, keep it, and send it as one frame."""
        if peer == self._port.me:
            self._send_to_self(payloads, flags, now)
            return
        entry = self._senders.get(peer)
        if entry is None:
            entry = self._open_sender(peer, now)
        elif entry.state is not State.OPEN:
            self._set_sender_state(entry, State.OPEN, "used", now)
        body = pack_body(payloads, self._codec.hash64)
        batch = Batch(body, flags, now)
        window = entry.window
        was_idle = window.low == window.high
        size = len(body.data)
        lo = window.append(body.count, size, batch)
        self._tracer.records.append(
            (trace.SENT, flags, self.protocol, 0, peer, entry.conn, 0, 0,
             body.count, lo, window.high, size, body.digest, 0, 0, now)
        )  # fmt: skip
        self._emit(entry, lo, batch, flags | FIRST if lo == 1 else flags, 0)
        entry.last_used = now
        if was_idle:
            entry.tries = 0
            # In `compatible` the first look is a grid tick that only remembers; here it is now.
            entry.watermark = (window.low, window.high) if self.pacer.timing.adaptive else (-1, -1)
            entry.look_due = self.pacer.next_send_look(now, entry.rtt, 0)
            self._wake(entry, entry.look_due)

    def _emit(self, entry: SenderEntry, lo: int, batch: Batch, flags: int, stamp: int) -> None:
        conn = entry.conn
        if lo != 1 and self.config.historical.conn_ids == "first":
            conn = 0
        head = self._codec.pack_data(
            self.protocol, entry.peer, conn, lo, batch.body, flags, batch.transmission, entry.window.low, stamp
        )
        self._port.frames.append((entry.peer, head, batch.body.data))

    def _resend(self, entry: SenderEntry, stored: Stored[Batch], now: float, flags: int = 0, stamp: int = 0) -> None:
        """Send a batch again. The stored batch stays as it is; only its transmission number grows."""
        batch = stored.item
        if batch.transmission < 255:
            batch.transmission += 1
        flags |= batch.flags
        if stored.lo == 1:
            flags |= FIRST
        self._tracer.records.append(
            (trace.RETRANSMITTED, flags, self.protocol, batch.transmission, entry.peer, entry.conn, 0, 0,
             batch.body.count, stored.lo, stored.hi, stored.size, batch.body.digest, 0, 0, now)
        )  # fmt: skip
        self._emit(entry, stored.lo, batch, flags, stamp)

    def _send_to_self(self, payloads: Sequence[Payload], flags: int, now: float) -> None:
        """Messages to self are numbered and handed straight up: no window can fill, nothing can be lost."""
        if not self._self_conn:
            self._self_conn = self._next_conn()
        body = pack_body(payloads, self._codec.hash64)
        lo = self._self_seqno + 1
        hi = self._self_seqno = self._self_seqno + body.count
        me, conn, size = self._port.me, self._self_conn, len(body.data)
        record = (self.protocol, 0, me, conn, 0, 0, body.count, lo, hi, size, body.digest, 0, 0, now)
        self._tracer.records.append((trace.SENT, flags, *record))
        if flags & DONT_LOOPBACK:
            return
        self._tracer.records.append((trace.DELIVERED, flags, *record))
        start = 4 if body.width == 0 else body.width * body.count
        lengths = list(map(len, payloads)) if body.width else len(payloads[0])
        self._port.deliveries.append(Delivery(me, conn, lo, hi, flags, body.data, start, lengths))

    # -- Receive -----------------------------------------------------------------------------

    def receive(self, head: Head, body: bytes, now: float) -> None:
        """Take one checked frame. Whatever contradicts the connection raises BadFrame and changes nothing."""
        kind = head.kind
        if kind == wire.DATA:
            self._on_data(head, body, now)
        elif kind == wire.ACK:
            self._on_ack(head, now)
        elif kind == wire.XMIT_REQ:
            self._on_request(head, body, now)
        elif kind == wire.SFS:
            self._on_sfs(head, now)
        elif kind == wire.CLOSE:
            self._on_close(head, now)
        elif kind == wire.STABLE:
            self._on_stable(head, now)
        elif kind == wire.RESET_TO:
            self._on_reset(head, now)
        else:
            raise BadFrame("kind")

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
        oob = bool(flags & OOB)
        new = window.add(head.lo, head.lo + head.count - 1, len(arrival.body), arrival, oob=oob)
        entry.last_used = now
        if entry.state is not State.OPEN:
            self._set_receiver_state(entry, State.OPEN, "used", now)
        taken = 0
        if new:
            for piece in new:
                taken += piece.hi - piece.lo + 1
                if oob:
                    self._deliver(entry, piece, now)
            if self._consuming:
                self._deliver_ready(entry, now)
        else:
            self._refused(entry, head)
        if head.transmission and entry.asked:
            self._sample_round_trip(entry, head.lo, now)
        self._after_data(entry, taken, len(arrival.body), flags, now)
        if window.deliverable < window.seen and entry.look_due == inf and self.asks_for_gaps:
            entry.look_due = self.pacer.first_gap_look(now)
            if entry.look_due <= now:
                self._look_at_gaps(entry, now)
            self._wake(entry, entry.look_due)

    @staticmethod
    def _sample_round_trip(entry: ReceiverEntry, seqno: int, now: float) -> None:
        """Only an answer to the one request that can have caused it measures a round trip."""
        for asked in entry.asked:
            if seqno <= asked.hi:
                if not asked.tries and not asked.is_sampled:
                    entry.rtt.sample(now - asked.at)
                    asked.is_sampled = True
                return

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
                self._deliver(entry, piece, now)

    def _deliver(self, entry: ReceiverEntry, piece: Piece[Arrival], now: float) -> None:
        """Hand a piece up; a part of a batch is cut out of it."""
        arrival = piece.item
        assert arrival is not None
        head, body, start, lengths = arrival
        lo, hi = piece.lo, piece.hi
        size, stream, trim = len(body), trace.WHOLE, 0
        if hi - lo + 1 != head.count:
            skip, number = lo - head.lo, hi - lo + 1
            if isinstance(lengths, int):
                start += skip * lengths
                size = number * lengths
            else:
                start += sum(lengths[:skip])
                lengths = lengths[skip : skip + number]
                size = sum(lengths)
            stream = trace.PARTIAL
            trim = self._codec.hash64(body[start : start + size]) & 0xFFFFFFFF
        self._tracer.records.append(
            (trace.DELIVERED, head.flags, self.protocol, stream, entry.peer, entry.conn, entry.epoch, 0,
             hi - lo + 1, lo, hi, size, head.digest, trim, 0, now)
        )  # fmt: skip
        self._port.deliveries.append(Delivery(entry.peer, entry.conn, lo, hi, head.flags, body, start, lengths))

    def set_consuming(self, consuming: bool, now: float) -> None:  # noqa: FBT001 it is the whole message
        """Whether the application takes deliveries. While it does not, windows fill and senders block."""
        self._consuming = consuming
        if consuming:
            for entry in list(self._receivers.values()):
                before = entry.window.delivered
                self._deliver_ready(entry, now)
                if entry.window.delivered > before:
                    self._after_data(entry, entry.window.delivered - before, 0, 0, now)
            self._port.woken.append(self._port.me)

    # -- Finding the receiver entry ---------------------------------------------------------------

    def _find_receiver(self, entry: ReceiverEntry | None, arrival: Arrival, now: float) -> ReceiverEntry | None:
        """The table of docs/protocols/unicast.md: use, create, replace, ask for the first seqno, or ignore."""
        head = arrival.head
        conn_ids = self.config.historical.conn_ids
        if conn_ids == "none":
            return entry or self._open_receiver(head.source, 0, 0, now)
        if conn_ids == "first" and head.conn == 0 and entry is not None:
            return entry
        if head.conn == 0 and conn_ids == "every":
            raise BadFrame("no-conn")
        if entry is not None and is_newer(entry.conn, head.conn):
            self._port.drop("old-connection")
            return None
        tomb = self.resync.tombstone(head.source, now)
        if tomb and is_newer(tomb, head.conn):
            self._port.drop("old-connection")
            return None
        if head.flags & FIRST and (tomb != head.conn or self.resync.is_answer(head)):
            if entry is not None:
                self._remove_receiver(entry, "replaced", now)
            # A batch may begin below what the sender still has to get acked: that part was delivered before.
            offset = max(head.lo - 1, head.mark)
            entry = self._open_receiver(head.source, head.conn, offset, now)
            for early in self.resync.take_cached(head.source, head.conn):
                self._take(entry, early, now)
            return entry
        self._ask_first_seqno(arrival, now)
        return None

    def _ask_first_seqno(self, arrival: Arrival, now: float) -> None:
        """No window for this connection: keep the frame, and have the sender begin at its lowest."""
        head = arrival.head
        sync = self.resync.remember(arrival, now)
        if self.config.historical.sync_spacing and getattr(self.config, "sync", "spaced") == "deferred":
            if sync.due == inf:
                sync.due = self._deferred_until(sync, now)
                heappush(self._agenda, (sync.due, next(self._order), sync))
            return
        spacing = self.pacer.spaced(self.config.sync_min_interval, self._round_trip(head.source))
        if self.config.historical.sync_spacing and now < sync.sent_at + spacing:
            return
        self._send_sfs(sync, now)

    def _deferred_until(self, sync: Sync, now: float) -> float:
        """The next tick; in `fast`, after the reordering tolerance at first, then at the pace of resends."""
        rtt = self._round_trip(sync.peer)
        if sync.repeats < 0:
            return self.pacer.second_gap_look(now, rtt)
        return max(self.pacer.second_gap_look(now, rtt), self.pacer.next_send_look(sync.sent_at, rtt, sync.repeats))

    def _send_sfs(self, sync: Sync, now: float) -> None:
        sync.sent_at = now
        sync.stamp = self._next_stamp()
        sync.repeats = min(sync.repeats + 1, 255)
        self._tracer.records.append(
            (trace.SYNC, 0, self.protocol, 0, sync.peer, sync.conn, 0, 0, 0, sync.seqno, 0, 0, 0, 0, 0, now)
        )
        frame = self._codec.pack_control(
            wire.SFS, self.protocol, sync.peer, sync.conn, sync.seqno,
            transmission=sync.repeats, stamp=sync.stamp,
        )  # fmt: skip
        self._port.frames.append((sync.peer, frame, b""))

    # -- Control frames at the sender --------------------------------------------------------------

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
        self._tracer.records.append(
            (trace.PURGED, 0, self.protocol, 0, entry.peer, entry.conn, 0, 0,
             seqno - low, low + 1, seqno, 0, 0, 0, 0, now)
        )  # fmt: skip
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
            return
        window = entry.window
        if ranges[-1][1] > window.low + window.capacity and self.config.historical.conn_ids == "every":
            raise BadFrame("request-beyond-window")
        entry.heard_at = now
        for stored in window.covering(ranges):
            self._resend(entry, stored, now)
        if ranges[0][0] <= window.low and self.config.historical.stamps:
            # Nothing can be sent for these: either the request is old, or it would be repeated for ever.
            frame = self._codec.pack_control(wire.RESET_TO, self.protocol, entry.peer, entry.conn, window.low)
            self._port.frames.append((entry.peer, frame, b""))

    # -- Control frames at the receiver ------------------------------------------------------------

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
                trace.SKIPPED, now, protocol=self.protocol, peer=entry.peer, conn=entry.conn, epoch=entry.epoch,
                count=skipped, hi=head.lo, text="the sender no longer has these messages: G6 was broken",
            )  # fmt: skip
            self._deliver_ready(entry, now)

    # -- Acks and requests of the receiver ---------------------------------------------------------

    def _ack_soon(self, entry: ReceiverEntry) -> None:
        """Ack at the end of this turn: one ack for all that arrives in it."""
        if not entry.ack_wanted:
            entry.ack_wanted = True
            self._acks_now.append(entry)

    def _ack_later(self, entry: ReceiverEntry, now: float) -> None:
        """Ack at the next tick, or when the spacing of acks allows."""
        if entry.ack_due == inf and not entry.ack_wanted:
            due = self.pacer.ack_at(now, entry.last_ack)
            if due <= now:
                self._ack_soon(entry)
            else:
                entry.ack_due = due
                self._wake(entry, due)

    def _send_ack(self, entry: ReceiverEntry, now: float, kind: int = wire.ACK) -> None:
        value = self._ack_value(entry)
        # The fate of a frame is drawn from its preamble: a repeated ack must not share the lost one's.
        entry.ack_repeats = min(entry.ack_repeats + 1, 255) if value == entry.acked else 0
        entry.acked = value
        entry.unacked = entry.unacked_bytes = 0
        entry.ack_due = inf
        entry.last_ack = now
        self._tracer.records.append(
            (trace.ACKED, 0, self.protocol, kind, entry.peer, entry.conn, entry.epoch, 0, 0, value, 0, 0, 0, 0, 0, now)
        )
        conn = 0 if self.config.historical.conn_ids == "first" else entry.conn
        frame = self._codec.pack_control(
            kind, self.protocol, entry.peer, conn, value,
            transmission=entry.ack_repeats, mark=entry.window.seen, stamp=self._next_stamp(),
        )  # fmt: skip
        self._port.frames.append((entry.peer, frame, b""))

    def finish_turn(self, now: float) -> None:
        """Send the acks that this turn asked for."""
        entries = self._acks_now
        if entries:
            self._acks_now = []
            for entry in entries:
                entry.ack_wanted = False
                if entry.due != REMOVED:
                    self._send_ack(entry, now)

    def _look_at_gaps(self, entry: ReceiverEntry, now: float) -> None:
        """The two-look rule: ask only for what was already missing at the previous look (JGRP-1539)."""
        window = entry.window
        missing = window.missing(UNLIMITED)
        if not missing:
            entry.missing_before = 0
            entry.asked.clear()
            entry.look_due = inf
            return
        before, highest = entry.missing_before, missing[-1][1]
        entry.missing_before = max(before, highest)
        ask = self._due_requests(entry, missing, before, now)
        if ask:
            self._request(entry, ask, now)
        due = self.pacer.second_gap_look(now, entry.rtt) if highest > before else inf
        for asked in entry.asked:
            due = min(due, self.pacer.next_gap_look(asked.at, entry.rtt, asked.tries))
        entry.look_due = max(due, now)

    def _due_requests(
        self, entry: ReceiverEntry, missing: list[tuple[int, int]], before: int, now: float
    ) -> list[tuple[int, int]]:
        """What of the missing ranges to ask for now: never asked and seen before, or asked too long ago."""
        pacer, rtt = self.pacer, entry.rtt
        asked = [one for one in entry.asked if one.hi > entry.window.deliverable]
        known = asked[-1].hi if asked else entry.window.deliverable
        due: list[tuple[int, int]] = []
        lo = 0
        for one in asked:
            if pacer.next_gap_look(one.at, rtt, one.tries) <= now:
                parts = _overlap(missing, lo + 1, one.hi)
                due += parts
                one.at = now
                one.tries += 1
            lo = one.hi
        if before > known and (fresh := _overlap(missing, known + 1, before)):
            due += fresh
            asked.append(Asked(before, now))
        entry.asked = asked
        return due

    def _request(self, entry: ReceiverEntry, ranges: list[tuple[int, int]], now: float) -> None:
        """Ask, in as many frames as the size of a request makes of it, but not without limit."""
        config = self.config
        requests = split_ranges(ranges, config.max_xmit_req_size, config.max_xmit_req_ranges)
        transmission = max(asked.tries for asked in entry.asked)
        for part, number in requests[:MAX_REQUESTS_PER_LOOK]:
            self._tracer.records.append(
                (trace.REQUESTED, 0, self.protocol, 0, entry.peer, entry.conn, entry.epoch, 0,
                 number, part[0][0], part[-1][1], 0, 0, 0, 0, now)
            )  # fmt: skip
            frame = self._codec.pack_control(
                wire.XMIT_REQ, self.protocol, entry.peer, entry.conn, part[-1][1],
                transmission=min(transmission, 255), ranges=part,
            )  # fmt: skip
            self._port.frames.append((entry.peer, frame, b""))

    # -- Time --------------------------------------------------------------------------------

    def next_deadline(self) -> float:
        """When `tick` has something to do; early by chance, late never."""
        return self._agenda[0][0] if self._agenda else inf

    def tick(self, now: float) -> None:
        """Visit every entry whose moment has come, each once: a tick ends whatever the visits ask for."""
        agenda = self._agenda
        come = []
        while agenda and agenda[0][0] <= now:
            when, _order, entry = heappop(agenda)
            if entry.due == when:
                entry.due = inf
                come.append(entry)
        for entry in come:
            if entry.due == REMOVED:
                continue
            if isinstance(entry, SenderEntry):
                self._visit_sender(entry, now)
            elif isinstance(entry, ReceiverEntry):
                self._visit_receiver(entry, now)
            else:
                self._visit_sync(entry, now)

    def _wake(self, entry: Entry, when: float) -> None:
        if when < entry.due:
            entry.due = when
            heappush(self._agenda, (when, next(self._order), entry))

    def _visit_sender(self, entry: SenderEntry, now: float) -> None:
        if entry.look_due <= now:
            self._look_at_acks(entry, now)
        if entry.expire_due <= now:
            self._expire_sender(entry, now)
            if entry.due == REMOVED:
                return
        self._wake(entry, min(entry.look_due, entry.expire_due))

    def _look_at_acks(self, entry: SenderEntry, now: float) -> None:
        """Repair when highest acked and highest sent are what they were at the previous look (L1)."""
        window = entry.window
        if window.low == window.high:
            entry.look_due = inf
            return
        mark = (window.low, window.high)
        if mark == entry.watermark:
            self._repair(entry, now)
            entry.tries += 1
        else:
            entry.watermark = mark
            entry.tries = 0
        entry.look_due = self.pacer.next_send_look(now, entry.rtt, entry.tries)

    def _visit_receiver(self, entry: ReceiverEntry, now: float) -> None:
        if entry.ack_due <= now:
            self._send_ack(entry, now)
        if entry.look_due <= now:
            self._look_at_gaps(entry, now)
        extra = self._visit_receiver_extra(entry, now)
        if entry.expire_due <= now:
            self._expire_receiver(entry, now)
            if entry.due == REMOVED:
                return
        self._wake(entry, min(entry.ack_due, entry.look_due, entry.expire_due, extra))

    def _visit_sync(self, sync: Sync, now: float) -> None:
        if sync.peer not in self._receivers or self._receivers[sync.peer].conn != sync.conn:
            self._send_sfs(sync, now)

    # -- Life of a connection -----------------------------------------------------------------------

    def _next_conn(self) -> int:
        if self.config.historical.conn_ids == "none":
            return 0
        self._last_conn = next_serial(self._last_conn)
        return self._last_conn

    def _next_stamp(self) -> int:
        self._last_stamp = next_serial(self._last_stamp)
        return self._last_stamp

    def _round_trip(self, peer: int) -> RoundTrip:
        """The estimate that both halves of a pair share."""
        other = self._senders.get(peer) or self._receivers.get(peer)
        return other.rtt if other else self.pacer.round_trip()

    def _open_sender(self, peer: int, now: float) -> SenderEntry:
        config = self.config
        window: SendWindow[Batch] = SendWindow(config.window_messages, config.window_bytes)
        entry = SenderEntry(peer, self._next_conn(), now, self._round_trip(peer), window)
        self._senders[peer] = entry
        self._trace_conn(entry, trace.SENDER_OPEN, "", now)
        self._schedule_expiry(entry, now)
        return entry

    def _open_receiver(self, peer: int, conn: int, offset: int, now: float) -> ReceiverEntry:
        config = self.config
        window: ReceiveWindow[Arrival] = ReceiveWindow(offset, config.window_messages, config.window_bytes)
        self._epochs += 1
        entry = ReceiverEntry(peer, conn, now, self._round_trip(peer), window, self._epochs)
        self._receivers[peer] = entry
        self.resync.opened(peer)
        self._trace_conn(entry, trace.RECEIVER_OPEN, "", now)
        self._schedule_expiry(entry, now)
        return entry

    def _set_sender_state(self, entry: SenderEntry, state: State, reason: str, now: float) -> None:
        stream = trace.SENDER_OPEN if state is State.OPEN else trace.SENDER_CLOSING
        self._set_state(entry, state, stream, reason, now)

    def _set_receiver_state(self, entry: ReceiverEntry, state: State, reason: str, now: float) -> None:
        stream = trace.RECEIVER_OPEN if state is State.OPEN else trace.RECEIVER_CLOSING
        self._set_state(entry, state, stream, reason, now)

    def _set_state(self, entry: Entry, state: State, stream: int, reason: str, now: float) -> None:
        entry.state = state
        entry.last_used = now
        self._trace_conn(entry, stream, reason, now)
        self._schedule_expiry(entry, now)

    def _close_sender(self, entry: SenderEntry, reason: str, now: float) -> None:
        """Start closing: what is unacked is still flushed, and a new message re-opens."""
        if not self.config.historical.flush_on_close:
            self._remove_sender(entry, reason, now)
        elif entry.state is State.OPEN:
            self._set_sender_state(entry, State.CLOSING, reason, now)

    def _close_receiver(self, entry: ReceiverEntry, reason: str, now: float) -> None:
        if not self.config.historical.flush_on_close:
            self._remove_receiver(entry, reason, now)
        elif entry.state is State.OPEN:
            self._set_receiver_state(entry, State.CLOSING, reason, now)

    def _remove_sender(self, entry: SenderEntry, reason: str, now: float) -> None:
        entry.due = REMOVED
        del self._senders[entry.peer]
        self._trace_conn(entry, trace.SENDER_REMOVED, reason, now, len(entry.window))
        self._port.closed.append(entry.peer)

    def _remove_receiver(self, entry: ReceiverEntry, reason: str, now: float) -> None:
        """Remove after handing up what is in order, and acking it (JGRP-1755)."""
        self._deliver_ready(entry, now)
        if entry.unacked or entry.ack_due != inf or entry.ack_wanted:
            self._flush_ack(entry, now)
        entry.due = REMOVED
        del self._receivers[entry.peer]
        self.resync.bury(entry.peer, entry.conn, self._last_stamp, now)
        self._trace_conn(entry, trace.RECEIVER_REMOVED, reason, now, entry.window.delivered)

    def _flush_ack(self, entry: ReceiverEntry, now: float) -> None:
        self._send_ack(entry, now)

    def _trace_conn(self, entry: Entry, stream: int, reason: str, now: float, number: int = 0) -> None:
        epoch = entry.epoch if isinstance(entry, ReceiverEntry) else 0
        self._tracer.record(
            trace.CONN, now, protocol=self.protocol, stream=stream, peer=entry.peer, conn=entry.conn,
            epoch=epoch, lo=number, text=reason,
        )  # fmt: skip

    # -- Expiry ------------------------------------------------------------------------------

    def _schedule_expiry(self, entry: Entry, now: float) -> None:
        """Come back when the entry may be idle, may be removed, or may turn out to talk to nobody."""
        config = self.config
        idle = config.conn_expiry_timeout if entry.state is State.OPEN else config.conn_close_timeout
        due = entry.last_used + idle if idle > 0 else inf
        if isinstance(entry, SenderEntry) and self._is_ageing(entry):
            due = min(due, max(entry.heard_at, entry.opened_at) + config.max_retransmit_time)
        entry.expire_due = max(due, now)
        self._wake(entry, entry.expire_due)

    def _is_ageing(self, entry: SenderEntry) -> bool:
        is_member = self.members is not None and entry.peer in self.members
        return self.config.max_retransmit_time > 0 and not is_member

    @staticmethod
    def _has_passed(entry: Entry, timeout: float, now: float) -> bool:
        """Whether the entry was unused for `timeout`; 0 is never."""
        return timeout > 0 and now >= entry.last_used + timeout

    def _expire_sender(self, entry: SenderEntry, now: float) -> None:
        config = self.config
        # Sums, not differences: the same rounding as the moment that was scheduled.
        is_silent = now >= max(entry.heard_at, entry.opened_at) + config.max_retransmit_time
        if self._is_ageing(entry) and entry.window.low < entry.window.high and is_silent:
            self._remove_sender(entry, "aged", now)
            return
        if entry.state is State.OPEN and self._has_passed(entry, config.conn_expiry_timeout, now):
            self._close_sender(entry, "idle", now)
        elif entry.state is State.CLOSING and self._has_passed(entry, config.conn_close_timeout, now):
            self._remove_sender(entry, "closed", now)
            if self.members is None or entry.peer in self.members:
                frame = self._codec.pack_control(wire.CLOSE, self.protocol, entry.peer, entry.conn, 0)
                self._port.frames.append((entry.peer, frame, b""))
        if entry.due != REMOVED:
            if self._is_ageing(entry) and entry.window.low == entry.window.high:
                # Nothing waits for an answer: silence says nothing until something does.
                entry.heard_at = now
            self._schedule_expiry(entry, now)

    def _expire_receiver(self, entry: ReceiverEntry, now: float) -> None:
        config = self.config
        if entry.state is State.OPEN and self._has_passed(entry, config.conn_expiry_timeout, now):
            self._close_receiver(entry, "idle", now)
        elif entry.state is State.CLOSING and self._has_passed(entry, config.conn_close_timeout, now):
            self._remove_receiver(entry, "closed", now)
        if entry.due != REMOVED:
            self._schedule_expiry(entry, now)

    # -- Membership, commands -------------------------------------------------------------------------

    def on_view(self, members: frozenset[int], now: float) -> None:
        """Close towards who is gone, re-open towards who is back."""
        self.members = members
        for sender in list(self._senders.values()):
            if sender.peer in members:
                if sender.state is State.CLOSING:
                    self._set_sender_state(sender, State.OPEN, "view", now)
            elif self.closes_at_once:
                self._remove_sender(sender, "view", now)
            else:
                self._close_sender(sender, "view", now)
        for receiver in list(self._receivers.values()):
            if receiver.peer in members:
                if receiver.state is State.CLOSING:
                    self._set_receiver_state(receiver, State.OPEN, "view", now)
            elif self.closes_at_once:
                self._remove_receiver(receiver, "view", now)
            else:
                self._close_receiver(receiver, "view", now)
        self.resync.retain(members)

    def close(self, peer: int, now: float) -> None:
        """Close both halves towards `peer`, flushing what is unacked."""
        if sender := self._senders.get(peer):
            self._close_sender(sender, "close", now)
        if receiver := self._receivers.get(peer):
            self._close_receiver(receiver, "close", now)

    def forget(self, peer: int, now: float, *, sender: bool = True, receiver: bool = True) -> None:
        """Lose the state towards `peer` at once, as a one-sided close of old did."""
        if sender and (sending := self._senders.get(peer)):
            self._remove_sender(sending, "forgot", now)
        if receiver and (receiving := self._receivers.get(peer)):
            self._remove_receiver(receiving, "forgot", now)

    def stop(self, now: float) -> None:
        """Ack what is pending, and forget everything."""
        for receiver in list(self._receivers.values()):
            self._remove_receiver(receiver, "stop", now)
        for sender in list(self._senders.values()):
            self._remove_sender(sender, "stop", now)
        self._agenda.clear()

    def set_attribute(self, name: str, value: object, now: float) -> None:
        """Change a setting that may change at run time, and look at everything in its light."""
        if name not in self.config.settable:
            raise ConfigError(
                f"{name} can not change at run time; what can: {', '.join(sorted(self.config.settable))}"
            )
        self.config = replace(self.config, **{name: value})  # type: ignore[arg-type] checked by the config
        self.resync.config = self.config
        self.pacer.interval = self.config.xmit_interval
        for entry in [*self._senders.values(), *self._receivers.values()]:
            if entry.look_due != inf:
                entry.look_due = self.pacer.next_send_look(now, entry.rtt, 0)
                self._wake(entry, entry.look_due)
            self._schedule_expiry(entry, now)

    def bounds(self) -> dict[str, float]:
        """What this configuration promises a checker: C1 and L1 in seconds and counts (`inf`: nothing)."""
        config, timing = self.config, self.pacer.timing
        least = timing.min_wait if timing.adaptive else config.xmit_interval
        return {
            "ack_within": self._ack_within(),
            "ack_spacing": timing.ack_delay if timing.adaptive else config.xmit_interval,
            "ack_threshold": self._ack_threshold(),
            "resend_within": 2 * config.xmit_interval,
            "request_spacing": least,
            "request_size": config.max_xmit_req_size,
            "sync_spacing": self._sync_spacing(),
            "quiet_within": self._quiet_within(),
        }

    def _quiet_within(self) -> float:
        """A dozen intervals, and one more for each look that the gaps of a whole window may take to ask for."""
        looks = self.config.window_messages / (MAX_REQUESTS_PER_LOOK * self.config.max_xmit_req_size)
        return (12 + looks) * self.config.xmit_interval

    def _ack_within(self) -> float:
        return self.config.xmit_interval

    def _ack_threshold(self) -> int:
        """New messages that cause an ack at once; 0 where every frame does."""
        return 0

    def _sync_spacing(self) -> float:
        return self.pacer.spaced(self.config.sync_min_interval, self.pacer.floor())

    # -- What others may know -----------------------------------------------------------------------

    def send_connections(self) -> dict[int, SenderEntry]:
        """Peers that are sent to, and the state towards them. To be read, not changed."""
        return self._senders

    def receive_connections(self) -> dict[int, ReceiverEntry]:
        """Peers that were received from, and the state towards them. To be read, not changed."""
        return self._receivers

    def gauge(self, now: float) -> None:
        """Record how full everything bounded is (G5)."""
        for sender in self._senders.values():
            window = sender.window
            if window.low < window.high:
                self._gauge(trace.SEND_MESSAGES, sender.peer, len(window), window.capacity, now)
                # One message of any size enters an empty window, so it is its own bound.
                bound = max(window.capacity_bytes, max(stored.size for stored in window))
                self._gauge(trace.SEND_BYTES, sender.peer, window.bytes, bound, now)
        for receiver in self._receivers.values():
            held = receiver.window
            if held.bytes:
                self._gauge(trace.RECEIVE_MESSAGES, receiver.peer, len(held), held.capacity, now)
                self._gauge(trace.RECEIVE_BYTES, receiver.peer, held.bytes, held.capacity_bytes, now)
        for peer, cached in self.resync.cached_counts():
            self._gauge(trace.CACHED_FRAMES, peer, cached, self.config.max_cached_frames, now)

    def _gauge(self, stream: int, peer: int, value: int, bound: int, now: float) -> None:
        self._tracer.record(trace.GAUGE, now, protocol=self.protocol, stream=stream, peer=peer, lo=value, hi=bound)


def _overlap(ranges: list[tuple[int, int]], lo: int, hi: int) -> list[tuple[int, int]]:
    """The parts of ascending ranges within `lo..hi`."""
    return [(max(first, lo), min(last, hi)) for first, last in ranges if last >= lo and first <= hi]


def split_ranges(
    ranges: list[tuple[int, int]], most_seqnos: int, most_ranges: int
) -> list[tuple[list[tuple[int, int]], int]]:
    """Cut ascending ranges into requests, each with how many seqnos it asks for."""
    requests: list[tuple[list[tuple[int, int]], int]] = []
    part: list[tuple[int, int]] = []
    number = 0
    for first, last in ranges:
        lo = first
        while lo <= last:
            hi = min(last, lo + most_seqnos - number - 1)
            part.append((lo, hi))
            number += hi - lo + 1
            lo = hi + 1
            if number >= most_seqnos or len(part) >= most_ranges:
                requests.append((part, number))
                part, number = [], 0
    if part:
        requests.append((part, number))
    return requests
