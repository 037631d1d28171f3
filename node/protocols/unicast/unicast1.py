"""UNICAST: acks after every frame, resends everything unacked. Reference only.

Lost first and last messages are harmless because the sender keeps trying; the price is an ack per
frame and a resend of the whole window whenever one ack is late. See docs/protocols/unicast.md.
"""

from __future__ import annotations

from math import inf

from node.core import wire
from node.core.model import FIRST
from node.core.wire import Head
from node.protocols.unicast.config import Unicast1Config
from node.protocols.unicast.entries import ReceiverEntry, SenderEntry
from node.protocols.unicast.machinery import Unicast


class Unicast1(Unicast):
    """The first generation."""

    protocol = wire.UNICAST
    config_type = Unicast1Config
    asks_for_gaps = False
    closes_at_once = True

    def _after_data(
        self, entry: ReceiverEntry, new: int, size: int, flags: int, now: float
    ) -> None:
        entry.unacked += new
        if self.config.historical.conn_ids == "first":
            # The flaw of scenario #6 needs its ack on the spot, for what was just seen.
            self._send_ack(entry, now)
        else:
            self._ack_soon(entry)

    def _look_at_acks(self, entry: SenderEntry, now: float) -> None:
        """Repeat whatever was unacked at the previous look already, progress or not."""
        window = entry.window
        if window.low == window.high:
            entry.look_due = inf
            return
        _low, seen = entry.watermark
        old = [stored for stored in window if stored.hi <= seen]
        for stored in old:
            self._resend(entry, stored, now)
        entry.tries = entry.tries + 1 if old else 0
        entry.watermark = (window.low, window.high)
        entry.look_due = self.pacer.next_send_look(now, entry.rtt, entry.tries)

    def _answer_sfs(self, entry: SenderEntry, head: Head, now: float) -> None:
        """The lowest batch as a start, then all up to what the receiver saw: it does not ask."""
        flags, stamp = FIRST, head.stamp
        for stored in list(entry.window):
            if stored.lo > head.lo:
                break
            self._resend(entry, stored, now, flags, stamp)
            flags, stamp = 0, 0
