"""Repeats that no XMIT_REQ asked for: at a look that found nothing changed, for a receiver without
a window, and after a report."""

from __future__ import annotations

from enum import Enum
from math import inf

from stormcast.node.core.model import FIRST
from stormcast.node.core.wire import Head
from stormcast.node.protocols.unicast.entries import SenderEntry
from stormcast.node.protocols.unicast.outgoing import Outgoing
from stormcast.node.protocols.unicast.state import Connections


class Repeats(Enum):
    """The messages that a generation repeats when acks do not come."""

    UNACKED = "unacked"
    """Everything that was unacked at the previous look: receivers do not ask."""
    NEWEST = "newest"
    """The newest batch: it makes every hole visible, and the receiver asks for just what it
    misses."""
    ENDS = "ends"
    """The oldest batch until it was acked, then the newest; and batches above the highest seqno of
    a report."""


class Repairs:
    """Looks at the unacked batches of sender entries, and repeats them."""

    def __init__(self, state: Connections, outgoing: Outgoing) -> None:
        self._repeats = state.generation.repeats
        self._resend = outgoing.resend
        self._pacer = state.pacer
        self._looks = state.looks
        self._repairs_ends = state.config.historical.repair_ends

    # -- Looks --------------------------------------------------------------------------------

    def visit(self, entry: SenderEntry, now: float) -> None:
        """Look, if it is time, and set the moment of the next look."""
        if entry.look_due <= now:
            if entry.window.low == entry.window.high:
                entry.look_due = inf
            elif self._repeats is Repeats.UNACKED:
                self._look_at_each(entry, now)
            else:
                self._look_at_acks(entry, now)
        self._looks.set_earlier(entry, entry.look_due)

    def repace(self, entry: SenderEntry, soon: float, now: float) -> None:
        """Move a look that is still to come; one that is due stays due."""
        if now < entry.look_due < inf:
            entry.look_due = soon
        self._looks.set_earlier(entry, entry.look_due)

    def _look_at_each(self, entry: SenderEntry, now: float) -> None:
        """Repeat whatever was unacked at the previous look already, progress or not."""
        window = entry.window
        _low, seen = entry.watermark
        old = [stored for stored in window if stored.hi <= seen]
        for stored in old:
            self._resend(entry, stored, now)
        entry.tries = entry.tries + 1 if old else 0
        entry.watermark = (window.low, window.high)
        entry.look_due = self._pacer.next_send_look(now, entry.rtt, entry.tries)

    def _look_at_acks(self, entry: SenderEntry, now: float) -> None:
        """Repair when highest acked and highest sent are what they were at the last look (L1)."""
        mark = (entry.window.low, entry.window.high)
        if mark == entry.watermark:
            self._repair(entry, now)
            entry.tries += 1
            entry.look_due = self._pacer.next_send_look(now, entry.rtt, entry.tries)
        else:
            entry.watermark = mark
            entry.tries = 0
            changed_at = self._changed_at(entry)
            entry.look_due = self._pacer.look_after_change(now, changed_at, entry.rtt)

    @staticmethod
    def _changed_at(entry: SenderEntry) -> float:
        newest = entry.window.newest()
        assert newest is not None
        if newest is entry.window.oldest() and not newest.item.transmission:
            # All that is unacked was sent at one moment: acks of earlier batches are no change.
            return newest.item.sent_at
        return max(entry.last_used, entry.heard_at)

    def _repair(self, entry: SenderEntry, now: float) -> None:
        """Resend one batch, since nothing was acked or sent after the previous look."""
        stored = entry.window.newest()
        if self._repeats is Repeats.ENDS:
            if not self._repairs_ends:
                return
            if not entry.established:
                stored = entry.window.oldest()
        if stored is not None:
            self._resend(entry, stored, now)

    # -- Receivers without a window, or with one that misses the end ----------------------------

    def answer_sfs(self, entry: SenderEntry, head: Head, now: float) -> None:
        """Resend the lowest batch, so that the receiver can open a window there (D-9). Receivers
        that do not ask for gaps (UNACKED) need all batches up to the one they saw; those of ENDS
        need the newest batch, too."""
        window = entry.window
        oldest, newest = window.oldest(), window.newest()
        if oldest is None or newest is None:
            return
        if self._repeats is Repeats.UNACKED:
            self._resend_up_to(entry, head, now)
            return
        self._resend(entry, oldest, now, FIRST, head.stamp)
        if self._repeats is Repeats.ENDS and newest is not oldest:
            self._resend(entry, newest, now)

    def _resend_up_to(self, entry: SenderEntry, head: Head, now: float) -> None:
        flags, stamp = FIRST, head.stamp
        for stored in list(entry.window):
            if stored.lo > head.lo:
                break
            self._resend(entry, stored, now, flags, stamp)
            flags, stamp = 0, 0

    def on_report(self, entry: SenderEntry, seen: int, now: float) -> None:
        """Repeat batches above the highest seqno the receiver knows of: it cannot ask for them."""
        # A batch younger than one wait may simply be under way, and so may the previous repeat.
        wait = self._pacer.settled_after(entry.rtt)
        if not self._repairs_ends or now < entry.tail_resent_at + wait:
            return
        for stored in list(entry.window):
            if stored.hi > seen and stored.item.sent_at <= now - wait:
                self._resend(entry, stored, now)
                entry.tail_resent_at = now
