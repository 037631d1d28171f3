"""MCAST: a fixed window, acked by every member. Flow control is built in, and no STABLE is needed.

A sender is at most `window_messages` ahead of its slowest member; then its outbox waits, and in the
end refuses. Receivers never wait: what does not fit is dropped, and asked for when there is room.
See docs/protocols/mcast.md.
"""

from __future__ import annotations

from math import inf
from random import Random

from node import trace
from node.core import wire
from node.core.ack_table import AckTable
from node.core.batch import Batch
from node.core.errors import BadFrame
from node.core.model import View
from node.core.timing import Timing
from node.core.window import quarter_of
from node.core.wire import Head
from node.protocols.events import Suspected
from node.protocols.multicast.config import McastConfig, MulticastConfig
from node.protocols.multicast.inbound import Inbound
from node.protocols.multicast.machinery import Multicast
from node.protocols.multicast.state import ACK, OWN, SLOW
from node.protocols.port import Port


class Mcast(Multicast):
    """Positive acknowledgement."""

    protocol = wire.MCAST
    config_type = McastConfig
    config: McastConfig

    def __init__(self, config: MulticastConfig, timing: Timing, port: Port, dice: Random) -> None:
        super().__init__(config, timing, port, dice)
        self.acks = AckTable()
        self._low_before = 0

    # -- Acks sent ------------------------------------------------------------------------------

    def _after_data(self, entry: Inbound, new: int, now: float) -> None:
        entry.unacked += new
        if entry.unacked >= self._ack_threshold():
            self._ack_soon(entry)
        else:
            # Duplicates are acked too: the sender repeats only because it misses our ack.
            self._ack_later(entry, now)

    def _announced(self, entry: Inbound, now: float) -> None:
        # Whatever else is pending: the sender announces because an ack of ours was lost, and while
        # it is blocked no message of it will bring another (JGRP-2874).
        self._ack_later(entry, now)

    def _ack_threshold(self) -> int:
        return self.config.ack_threshold or quarter_of(self.config.window_messages)

    def _ack_soon(self, entry: Inbound) -> None:
        """Ack at the end of this turn: one ack for all that arrives in it."""
        if not entry.ack_wanted:
            entry.ack_wanted = True
            self.acks_now.append(entry)

    def _ack_later(self, entry: Inbound, now: float) -> None:
        if entry.ack_wanted or self.timers.due((ACK, entry.peer)) < inf:
            return
        due = self.pacer.ack_at(now, entry.last_ack)
        if due <= now:
            self._ack_soon(entry)
        else:
            self.timers.set((ACK, entry.peer), due)

    def finish_turn(self, now: float) -> None:
        entries = self.acks_now
        if not entries or self.is_frozen:
            return
        self.acks_now = []
        for entry in entries:
            entry.ack_wanted = False
            if self._inbound.get(entry.peer) is entry:
                self._send_ack(entry, now)

    def _send_ack(self, entry: Inbound, now: float) -> None:
        value = entry.window.delivered
        entry.ack_repeats = min(entry.ack_repeats + 1, 255) if value == entry.acked else 0
        entry.acked = value
        entry.unacked = 0
        entry.last_ack = now
        self.timers.cancel((ACK, entry.peer))
        self._tracer.records.append(
            (trace.ACKED, 0, self.protocol, wire.ACK, entry.peer, 0, entry.epoch,
             self.view_number, 0, value, 0, 0, 0, 0, 0, now)
        )  # fmt: skip
        self._port.control(
            entry.peer, wire.ACK, self.protocol, value, transmission=entry.ack_repeats
        )

    # -- Acks received ----------------------------------------------------------------------------

    def _on_ack(self, head: Head, now: float) -> None:
        if head.lo > self.own.high:
            raise BadFrame("ack-beyond-sent")
        rose = self.acks.ack(head.source, head.lo)
        if rose is None:
            # Of someone who left, or is not in yet: an entry for it would never move (JGRP-2904).
            self._port.drop("ack-stranger")
        elif rose:
            self._purge(self.acks.minimum, now)

    def _own_progress(self, now: float) -> None:
        # Own messages never cross the network, so neither does the ack for them; without it a
        # window of DONT_LOOPBACK messages would never empty (JGRP-2829).
        if not self.is_frozen and self.acks.ack(self._port.me, self.own_delivered):
            self._purge(self.acks.minimum, now)

    def _members_changed(self, now: float) -> None:
        self.acks.adjust(self.members, self.own.low)
        self._own_progress(now)
        self._purge(self.acks.minimum, now)

    def on_tentative(self, view: View, now: float) -> None:
        super().on_tentative(view, now)
        self.acks.adjust(self.members | self.coming, self.own.low)

    def _open_window(self, peer: int, offset: int, reason: str, now: float) -> Inbound:
        entry = super()._open_window(peer, offset, reason, now)
        if offset:
            # The sender may be blocked, waiting for exactly this member.
            self._ack_later(entry, now)
        return entry

    def _has_more_to_announce(self) -> bool:
        return self.own.low < self.own.high

    # -- Freezing -----------------------------------------------------------------------------

    def suspend(self, seconds: float, now: float) -> None:
        if not self.is_frozen:
            self._tracer.record(trace.FREEZE, now, protocol=self.protocol, lo=1)
        super().suspend(seconds, now)

    def resume(self, now: float) -> None:
        if self.is_frozen:
            self._tracer.record(trace.FREEZE, now, protocol=self.protocol)
        super().resume(now)

    # -- Slow members ---------------------------------------------------------------------------

    def on_blocked(self, now: float) -> None:
        timeout = self.config.slow_member_timeout
        if timeout and self.timers.due((SLOW, 0)) == inf:
            self._low_before = self.own.low
            self.timers.set((SLOW, 0), now + timeout)

    def _suspect_slow(self, now: float) -> None:
        """The window was full all the time and its low end did not move: have the members in its
        way asked whether they can hear and be heard."""
        own = self.own
        if own.high - own.low < own.capacity and own.bytes < own.capacity_bytes:
            return
        if own.low == self._low_before and self.view is not None:
            slow = set(self.acks.slowest()) - {self._port.me}
            members = tuple(member for member in self.view.members if member.short in slow)
            for member in members:
                self._tracer.record(
                    trace.SUSPECT, now, protocol=self.protocol, stream=trace.SUSPECTED,
                    peer=member.short,
                )  # fmt: skip
            if members:
                self._port.events.append(Suspected(members))
        self.on_blocked(now)

    def _on_timer(self, what: str, peer: int, now: float) -> None:
        if what == SLOW:
            self._suspect_slow(now)
        elif what == ACK:
            entry = self._inbound.get(peer)
            if entry is not None:
                self._ack_soon(entry)
        else:
            super()._on_timer(what, peer, now)

    def _emit(self, lo: int, batch: Batch, dest: int) -> None:
        super()._emit(lo, batch, dest)
        if self.config.historical.split_send and not batch.transmission:
            self._come_between(lo)

    def _come_between(self, lo: int) -> None:
        """The flaw of numbering and sending apart: the thread that has number 2 is interrupted
        between the two, until number 4 has left."""
        frames = self._port.frames
        place = lo % 5
        if place == 2:  # noqa: PLR2004 the number in the story: 1, 3, 4, 2, 5
            self._late = frames.pop()
        elif place == 4 and self._late is not None:  # noqa: PLR2004
            frames.append(self._late)
            self._late = None

    _late: tuple[int, bytes, bytes] | None = None

    def bounds(self) -> dict[str, float]:
        config, timing = self.config, self.pacer.timing
        return super().bounds() | {
            "ack_within": 2 * config.xmit_interval,
            "ack_spacing": timing.ack_delay if timing.adaptive else config.xmit_interval,
            "ack_threshold": self._ack_threshold(),
        }

    def stop(self, now: float) -> None:
        super().stop(now)
        self.acks.clear()
        self.acks_now.clear()
        self.timers.cancel((OWN, 0))
