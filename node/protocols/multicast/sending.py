"""The sending half: numbers, keeps what not everyone has, answers requests (G1, G6)."""

from __future__ import annotations

from collections.abc import Sequence
from math import inf

from node import trace
from node.core import wire
from node.core.batch import Batch
from node.core.codec import pack_body, unpack_ranges_untrusted
from node.core.errors import BadFrame
from node.core.model import DONT_LOOPBACK, FIRST, Payload
from node.core.window import Stored
from node.core.wire import Head
from node.protocols.handing import hand_to_self
from node.protocols.multicast.state import OWN, HeldOwn, State

UNLIMITED = 1 << 62


class Sending(State):
    """The own window."""

    _announcements = 0
    """How often the same highest seqno was announced."""
    _seen_high = 0
    """The highest own seqno at the previous look."""

    # -- Send ---------------------------------------------------------------------------------

    def room(self, dest: int = wire.GROUP) -> tuple[int, int]:
        """Messages and bytes that `send` would take now; nothing before the first view."""
        if self.view is None:
            return 0, 0
        return self.own.room()

    def send(
        self,
        dest: int,
        payloads: Sequence[Payload],
        flags: int,
        now: float,
        header: bytes = b"",
        lengths: list[int] | None = None,
        number: int = 0,
    ) -> None:
        """Number a batch that `room` admits, keep it, and send it as one frame: one step, so that
        nothing comes between a number and its message."""
        body = pack_body(payloads, self._codec.hash64, header, lengths)
        batch = Batch(body, flags, now, number)
        own = self.own
        lo = own.append(body.count, len(body.data), batch)
        self._tracer.sent(
            now,
            self.protocol,
            wire.GROUP,
            0,
            self.view_number,
            flags,
            body,
            number,
            lo,
            own.high,
        )
        self._emit(lo, batch, wire.GROUP)
        if flags & DONT_LOOPBACK and not self._held_own:
            self.own_delivered = own.high
        elif self.is_consuming:
            hand_to_self(
                self._port, self.protocol, wire.GROUP, 0, self.view_number, lo, body, payloads,
                flags, now,
            )  # fmt: skip
            self.own_delivered = own.high
        else:
            self._held_own.append(HeldOwn(lo, body, list(payloads), flags))
        self._own_progress(now)
        self._schedule_own_look(now)

    def _emit(self, lo: int, batch: Batch, dest: int) -> None:
        head = self._codec.pack_data(
            self.protocol, dest, 0, lo, batch.body, batch.flags, batch.transmission,
            self.own.low, self.view_tag,
        )  # fmt: skip
        self._port.frames.append((dest, head, batch.body.data))

    def _deliver_held_own(self, now: float) -> None:
        """Own messages that waited for the application."""
        while self._held_own and self.is_consuming:
            lo, body, payloads, flags = self._held_own.popleft()
            if not flags & DONT_LOOPBACK:
                hand_to_self(
                    self._port, self.protocol, wire.GROUP, 0, self.view_number, lo, body, payloads,
                    flags, now,
                )  # fmt: skip
            self.own_delivered = lo + body.count - 1
        self._own_progress(now)

    # -- The last message ----------------------------------------------------------------------

    def _schedule_own_look(self, now: float) -> None:
        if not self._announcements and self.timers.due((OWN, 0)) < inf:
            # One that is set comes earlier than the next would.
            return
        if self.config.resend_last_seqno and self.config.retransmits:
            self.timers.set_earlier((OWN, 0), self._next_own_look(now, 0))

    def _next_own_look(self, now: float, tries: int) -> float:
        return self.pacer.next_send_look(now, self.join_pacer.round_trip(), tries)

    def _look_at_own(self, now: float) -> None:
        """Announce the highest seqno when nothing was sent since the previous look (JGRP-1904).

        It is the highest of the window, which is stored and sent; never one that is only numbered.
        """
        own = self.own
        if self._seen_high != own.high:
            self._seen_high = own.high
            self._announcements = 0
        elif self._has_more_to_announce():
            self._announce(now)
        else:
            return
        if self._has_more_to_announce():
            self.timers.set((OWN, 0), self._next_own_look(now, self._announcements))

    def _announce(self, now: float) -> None:
        self._tracer.record(
            trace.SYNC, now, protocol=self.protocol, peer=wire.GROUP, lo=self.own.high
        )
        self._port.control(
            wire.GROUP, wire.HIGHEST_SEQNO, self.protocol, self.own.high, mark=self.own.low,
            transmission=self._announcements,
        )  # fmt: skip
        self._announcements += 1

    # -- What receivers ask --------------------------------------------------------------------

    def _on_request(self, head: Head, body: bytes, now: float) -> None:
        ranges = unpack_ranges_untrusted(head, body)
        if head.source not in self.members and head.source not in self.coming:
            self._port.drop("request-stranger")
            return
        if head.conn != self._port.me:
            self._answer_for(head, ranges, now)
            return
        own = self.own
        if ranges[-1][1] > own.high:
            raise BadFrame("request-beyond-sent")
        for stored in own.covering(ranges):
            self._resend(stored, head.source, now)
        if ranges[0][0] <= own.low:
            # Nothing can be sent for these: say from where on there is something.
            self._send_baseline(head.source, head.transmission)

    def _resend(self, stored: Stored[Batch], asker: int, now: float) -> None:
        """Send a batch again: to who asked, or to all, who may miss it as well."""
        batch = stored.item
        dest = wire.GROUP if self.config.use_mcast_xmit else asker
        if dest == wire.GROUP:
            # Many ask for what one lost multicast was: one answer serves all of them.
            wait = min(self.pacer.timing.min_wait, self.config.xmit_interval / 2)
            if now < batch.resent_at + wait:
                return
            batch.resent_at = now
        if batch.transmission < wire.MAX_TRANSMISSION:
            batch.transmission += 1
        self._tracer.retransmitted(
            now,
            protocol=self.protocol,
            peer=dest,
            conn=0,
            view=self.view_number,
            flags=batch.flags,
            transmission=batch.transmission,
            lo=stored.lo,
            hi=stored.hi,
            size=stored.size,
            digest=batch.body.digest,
        )
        self._emit(stored.lo, batch, dest)

    def _answer_for(self, head: Head, ranges: list[tuple[int, int]], now: float) -> None:
        """Resend what another member sent and this one kept."""
        entry = self._inbound.get(head.conn)
        if entry is None:
            self._port.drop("request-unknown-sender")
            return
        last = ranges[-1][1]
        for arrival in entry.kept:
            first = arrival.head.lo
            if first > last:
                break
            high = first + arrival.head.count - 1
            if not any(lo <= high and first <= hi for lo, hi in ranges):
                continue
            transmission = min(arrival.head.transmission + 1 + head.transmission, 255)
            again = self._codec.readdress(arrival.head, head.source, transmission)
            self._tracer.retransmitted(
                now,
                protocol=self.protocol,
                peer=head.source,
                conn=entry.peer,
                view=self.view_number,
                flags=arrival.head.flags,
                transmission=transmission,
                lo=first,
                hi=high,
                size=len(arrival.body),
                digest=arrival.head.digest,
            )
            self._port.frames.append((head.source, again, arrival.body))

    # -- Baselines -----------------------------------------------------------------------------

    def _send_baseline(self, peer: int, transmission: int = 0, question: int = 0) -> None:
        """Say what can still be had. To a member it is final, as long as it is one: nothing more is
        purged without it. Unasked, it says in which view that is so."""
        self._port.control(
            peer, wire.BASELINE, self.protocol, self.own.high, mark=self.own.low,
            flags=FIRST if peer in self.members else 0, transmission=transmission,
            stamp=question or self.view_tag,
        )  # fmt: skip

    def _on_baseline_request(self, head: Head, now: float) -> None:
        if head.source not in self.members and head.source not in self.coming:
            self._port.drop("request-stranger")
            return
        self._send_baseline(head.source, head.transmission, head.stamp)

    def _stop_sending(self) -> None:
        self._held_own.clear()
        self.timers.set((OWN, 0), inf)
