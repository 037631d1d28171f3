"""UNICAST2: the receiver is silent while all is well, asks for gaps, and reports what it has now
and then.

Reports (STABLE) replace acks. A lost first message is repeated until its one ACK came; a lost last
one is noticed by the report that follows the silence, or by the sender whose window does not empty.
See docs/protocols/unicast2.md.
"""

from __future__ import annotations

from math import inf

from node.core import wire
from node.core.errors import BadFrame
from node.core.model import FIRST
from node.core.wire import Head
from node.protocols.unicast.config import Unicast2Config
from node.protocols.unicast.entries import ReceiverEntry, SenderEntry
from node.protocols.unicast.machinery import Unicast


class Unicast2(Unicast):
    """The second generation."""

    protocol = wire.UNICAST2
    config_type = Unicast2Config
    closes_at_once = True
    config: Unicast2Config

    def _after_data(
        self, entry: ReceiverEntry, new: int, size: int, flags: int, now: float
    ) -> None:
        if flags & FIRST:
            self._send_ack(entry, now)
        entry.reports = 0
        if new:
            entry.fresh_at = now
            entry.unacked += new
            # Duplicates do not count: a repeated tail would bring reports that repeat it again.
            entry.unacked_bytes += size
        if (
            entry.unacked_bytes >= min(self.config.max_bytes, self.config.window_bytes // 4)
            or entry.unacked >= self.config.window_messages // 4
        ):
            self._report(entry, now)
        if entry.report_due == inf:
            entry.report_due = self._next_report_look(entry, now)
            self._looks.set_earlier(entry, entry.report_due)

    def _next_report_look(self, entry: ReceiverEntry, now: float) -> float:
        if self.config.historical.repair_ends:
            return self.pacer.next_send_look(now, entry.rtt, entry.reports)
        return now + self.config.stable_interval

    def _visit_receiver_extra(self, entry: ReceiverEntry, now: float) -> float:
        """Report when the stream went quiet or the interval passed; then fall silent until
        something arrives."""
        if entry.report_due > now:
            return entry.report_due
        # Duplicates are not traffic: the sender repeats because it waits for this report.
        is_quiet = now - entry.fresh_at >= self._settled_after(entry) / 2
        is_due = now - entry.last_ack >= self.config.stable_interval
        if is_due or (is_quiet and self.config.historical.repair_ends):
            self._report(entry, now)
        # A repeat covers the loss of a report; the sender's own look covers the loss of all of
        # them.
        enough = 1 if entry.window.deliverable == entry.window.seen else self.config.max_stable_msgs
        entry.report_due = inf if entry.reports >= enough else self._next_report_look(entry, now)
        return entry.report_due

    def _settled_after(self, entry: ReceiverEntry | SenderEntry) -> float:
        """How old something must be not to be simply under way."""
        if self.pacer.timing.adaptive:
            return entry.rtt.wait(self.pacer.timing.min_wait, self.pacer.interval)
        return self.pacer.interval

    def _report(self, entry: ReceiverEntry, now: float) -> None:
        entry.reports += 1
        self._send_ack(entry, now, wire.STABLE)

    def _flush_ack(self, entry: ReceiverEntry, now: float) -> None:
        self._send_ack(entry, now, wire.STABLE)

    def _ack_value(self, entry: ReceiverEntry) -> int:
        return entry.window.delivered

    def _on_stable(self, head: Head, now: float) -> None:
        if head.lo > head.mark:
            raise BadFrame("stable-order")
        entry = self._sender_for(head, "stable")
        if entry is None:
            return
        seqno = self._acked_by(entry, head)
        if self._is_stale(entry, head, "stable"):
            return
        self._purge(entry, seqno, now)
        entry.established = True
        if entry.window.high > head.mark and self.config.historical.repair_ends:
            self._resend_tail(entry, head.mark, now)

    def _resend_tail(self, entry: SenderEntry, seen: int, now: float) -> None:
        """Repeat what lies above the highest seqno the receiver knows of: it cannot ask for it."""
        # What is younger than one wait may simply be under way, and so may the previous repeat.
        wait = self._settled_after(entry)
        if now < entry.tail_resent_at + wait:
            return
        for stored in list(entry.window):
            if stored.hi > seen and stored.item.sent_at <= now - wait:
                self._resend(entry, stored, now)
                entry.tail_resent_at = now

    def _ack_within(self) -> float:
        return self.config.stable_interval + 2 * self.config.xmit_interval

    def _repair(self, entry: SenderEntry, now: float) -> None:
        if not self.config.historical.repair_ends:
            return
        oldest = entry.window.oldest()
        if not entry.established and oldest is not None:
            self._resend(entry, oldest, now)
        else:
            super()._repair(entry, now)

    def _answer_sfs(self, entry: SenderEntry, head: Head, now: float) -> None:
        """The lowest batch as a start, and the newest (D-9): the receiver asks for what lies
        between."""
        super()._answer_sfs(entry, head, now)
        newest = entry.window.newest()
        if newest is not None and newest is not entry.window.oldest():
            self._resend(entry, newest, now)
