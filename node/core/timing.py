"""Decides when protocols look: one mechanism, two clocks.

Every repair is the outcome of a *look* at a connection: a receiver compares what is missing with
its previous look, a sender compares what is acked with its previous look, and only what did not
change is repaired. A `Timing` says how far apart looks are. `compatible` looks at every connection
on one grid of `xmit_interval`, as the design notes do. `fast` looks after a reordering tolerance or
a round trip, backing off to `xmit_interval`, which is only the upper bound of its waits (C1).
"""

from __future__ import annotations

from dataclasses import dataclass
from math import floor, inf, nextafter

from stormcast.node.core.errors import require
from stormcast.node.core.rtt import RoundTrip


@dataclass(frozen=True, slots=True, kw_only=True)
class Timing:
    """The clock settings of a stack."""

    name: str = "compatible"
    """The name of the timing file that these settings come from."""

    adaptive: bool = False
    """False: look on the grid of `xmit_interval`. True: look when the round trip says so."""

    initial_rtt: float = 0.02
    """Seconds assumed for a round trip before the first one was measured."""

    min_wait: float = 0.002
    """Seconds of silence that never mean loss: covers scheduling noise of a busy host."""

    reorder_tolerance: float = 0.001
    """Seconds that a gap may be mere reordering; a quarter of the round trip if that is longer."""

    ack_delay: float = 0.001
    """Seconds between two acks of one connection that no threshold asked for."""

    def __post_init__(self) -> None:
        require(
            self.initial_rtt > 0, f"timing.initial_rtt is {self.initial_rtt}: it must be positive"
        )
        require(self.min_wait > 0, f"timing.min_wait is {self.min_wait}: it must be positive")
        require(
            self.reorder_tolerance >= 0,
            f"timing.reorder_tolerance is {self.reorder_tolerance}: it must not be negative",
        )
        require(
            self.ack_delay >= 0, f"timing.ack_delay is {self.ack_delay}: it must not be negative"
        )

    def repeat_wait(self, interval: float, tries: int) -> float:
        """Return the seconds without an answer after which a control frame is repeated: `interval`,
        or, in `fast`, two round trips, doubled at each repeat up to `interval`."""
        if self.adaptive:
            return min(interval, 2 * self.initial_rtt * (1 << min(tries, 10)))
        return interval


def next_on_grid(now: float, interval: float) -> float:
    """The first multiple of `interval` after `now`."""
    tick = floor(now / interval) + 1
    due = tick * interval
    if due > now:
        return due
    # Rounding may leave `now` itself, and a timer that fires at its own start would spin. Adding
    # the interval would miss the next tick by a hair, and make two looks of one.
    return max((tick + 1) * interval, nextafter(now, inf))


class Pacer:
    """Turns a Timing and a protocol's interval into moments. The interval may change."""

    __slots__ = ("_adaptive", "interval", "timing")

    def __init__(self, timing: Timing, interval: float) -> None:
        self.timing = timing
        self.interval = interval
        self._adaptive = timing.adaptive

    def round_trip(self) -> RoundTrip:
        """A fresh estimate for one peer."""
        return RoundTrip(self.timing.initial_rtt)

    def floor(self) -> RoundTrip:
        """Return the estimate for a network without delay: it gives the shortest waits."""
        return RoundTrip(0.0)

    def ack_at(self, now: float, last_ack: float) -> float:
        """Return when a delayed ack is due: at the next grid tick, or in `fast` at the earliest
        `ack_delay` after the previous one."""
        if self._adaptive:
            earliest = last_ack + self.timing.ack_delay
            return earliest if earliest > now else now
        return next_on_grid(now, self.interval)

    def first_gap_look(self, now: float) -> float:
        """Return when a gap that just appeared is looked at for the first time."""
        return now if self._adaptive else next_on_grid(now, self.interval)

    def second_gap_look(self, now: float, rtt: RoundTrip) -> float:
        """Return when a gap is requested, if it is still there."""
        if self._adaptive:
            tolerance = max(self.timing.reorder_tolerance, rtt.smoothed / 4)
            return now + min(self.interval, tolerance)
        return next_on_grid(now, self.interval)

    def next_gap_look(self, now: float, rtt: RoundTrip, tries: int) -> float:
        """Return when a gap that was requested at `now` may be requested again."""
        if self._adaptive:
            return self.next_send_look(now, rtt, tries)
        # A late tick, after a pause, must not shorten the spacing to the next one.
        return next_on_grid(now + 0.999 * self.interval, self.interval)

    def next_send_look(self, now: float, rtt: RoundTrip, tries: int) -> float:
        """Return when a sender looks again whether acks moved: at the next grid tick, or in `fast`
        after a wait that doubles with each try, up to the interval."""
        if self._adaptive:
            wait = rtt.wait(self.timing.min_wait, self.interval)
            return now + min(self.interval, wait * (1 << min(tries, 10)))
        return next_on_grid(now, self.interval)

    def look_after_change(self, now: float, changed_at: float, rtt: RoundTrip) -> float:
        """Return when a sender looks again after a look that found something changed: in `fast` the
        wait begins with the change, not with the look that found it."""
        if self._adaptive:
            return max(now, self.next_send_look(changed_at, rtt, 0))
        return self.next_send_look(now, rtt, 0)

    def settled_after(self, rtt: RoundTrip) -> float:
        """Return the age in seconds from which something is no longer assumed to be under way."""
        if self._adaptive:
            return rtt.wait(self.timing.min_wait, self.interval)
        return self.interval

    def spaced(self, least: float, rtt: RoundTrip) -> float:
        """Return the seconds between two questions: `least`, or in `fast` four waits of a round
        trip (at most the interval), if that is more."""
        if self._adaptive:
            wait = 4 * rtt.wait(self.timing.min_wait, self.interval)
            return max(least, min(self.interval, wait))
        return least
