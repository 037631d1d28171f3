"""Sends: numbers a batch, keeps it in the window of its peer, and sends it as one frame (G1)."""

from __future__ import annotations

from collections.abc import Sequence

from stormcast.node.core.codec import pack_body
from stormcast.node.core.credits import UNLIMITED
from stormcast.node.core.model import DONT_LOOPBACK, FIRST, Payload
from stormcast.node.core.window import Stored
from stormcast.node.protocols.deliveries import hand_to_self
from stormcast.node.protocols.unicast.entries import Batch, SenderEntry, State
from stormcast.node.protocols.unicast.senders import Senders
from stormcast.node.protocols.unicast.state import Connections
from stormcast.node.protocols.windowed import note_resent


class Outgoing:
    """Sends and resends the batches of this member."""

    def __init__(self, state: Connections, senders: Senders) -> None:
        self._state = state
        self._senders = senders
        self._entries = state.senders
        self._port = state.port
        self._tracer = state.port.tracer
        self._codec = state.port.codec
        self._me = state.port.me
        self._pacer = state.pacer
        self._looks = state.looks
        self._protocol = state.generation.protocol
        self._names_first_only = state.config.historical.conn_ids == "first"
        self._is_adaptive = state.pacer.timing.adaptive
        self._self_conn = 0
        self._self_seqno = 0

    def room(self, peer: int) -> tuple[int, int]:
        """Messages and bytes that `send` would take now."""
        if peer == self._me:
            return (UNLIMITED, UNLIMITED) if self._state.is_consuming else (0, 0)
        entry = self._entries.get(peer)
        if entry is None:
            return self._state.config.window_messages, self._state.config.window_bytes
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
        of its first message among the application's messages to this peer."""
        if peer == self._me:
            self._send_to_self(payloads, flags, now, header, number)
            return
        entry = self._entries.get(peer)
        if entry is None:
            entry = self._senders.open(peer, now)
        elif entry.state is not State.OPEN:
            self._senders.reopen(entry, "used", now)
        body = pack_body(payloads, self._codec.hash64, header, lengths)
        batch = Batch(body, flags, now, number)
        window = entry.window
        was_idle = window.low == window.high
        lo = window.append(body.count, len(body.data), batch)
        entry.last_used = now
        if was_idle:
            # At once: what is in a window is repeated, even if the rest of this fails.
            try:
                self._look_later(entry, now)
            except BaseException:
                window.take_back()
                raise
        self._tracer.sent(
            now,
            self._protocol,
            peer,
            entry.conn,
            0,
            flags,
            body,
            number,
            lo,
            window.high,
        )
        self._emit(entry, lo, batch, flags | FIRST if lo == 1 else flags, 0)

    def _look_later(self, entry: SenderEntry, now: float) -> None:
        """Set the first look, when something waits for an ack again."""
        window = entry.window
        entry.tries = 0
        # In `compatible` the first look, at a grid tick, only notes how far acks are; in `fast`
        # this is noted now.
        entry.watermark = (window.low, window.high) if self._is_adaptive else (-1, -1)
        entry.look_due = self._pacer.next_send_look(now, entry.rtt, 0)
        self._looks.set_earlier(entry, entry.look_due)

    def _emit(self, entry: SenderEntry, lo: int, batch: Batch, flags: int, stamp: int) -> None:
        conn = 0 if self._names_first_only and lo != 1 else entry.conn
        head = self._codec.pack_data(
            self._protocol,
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

    def resend(
        self, entry: SenderEntry, stored: Stored[Batch], now: float, flags: int = 0, stamp: int = 0
    ) -> None:
        """Send a batch again. Of what is stored, only the transmission number changes."""
        batch = stored.item
        flags |= batch.flags
        if stored.lo == 1:
            flags |= FIRST
        note_resent(
            self._tracer,
            stored,
            now,
            protocol=self._protocol,
            peer=entry.peer,
            conn=entry.conn,
            flags=flags,
        )
        self._emit(entry, stored.lo, batch, flags, stamp)

    # -- To self ------------------------------------------------------------------------------

    def sent_to_self(self) -> tuple[int, int]:
        """Return connection and last seqno of what this member sent to itself."""
        return self._self_conn, self._self_seqno

    def _send_to_self(
        self, payloads: Sequence[Payload], flags: int, now: float, header: bytes, number: int
    ) -> None:
        """Number messages to self and hand them up at once: no window can fill, nothing can be
        lost. Where that fails, they have no number."""
        if not self._self_conn:
            self._self_conn = self._state.next_conn()
        body = pack_body(payloads, self._codec.hash64, header)
        lo = self._self_seqno + 1
        hi = self._self_seqno + body.count
        me, conn, protocol = self._me, self._self_conn, self._protocol
        tracer = self._tracer
        recorded = len(tracer.records)
        try:
            tracer.sent(
                now,
                protocol,
                me,
                conn,
                0,
                flags,
                body,
                number,
                lo,
                hi,
            )
            if not flags & DONT_LOOPBACK:
                hand_to_self(self._port, protocol, me, conn, 0, lo, body, payloads, flags, now)
        except BaseException:
            # They go back to the lane, and are recorded again when they leave.
            del tracer.records[recorded:]
            raise
        self._self_seqno = hi
