"""G1 for windows that end: what one held without a gap is delivered in it.

A sender may have purged what a receiver acked, or be gone: nobody else has it then. How much a
window holds is in its gauges. It holds each seqno once, above what it delivered and not above what
was sent by then: if that many are held, all of them are, and there is no gap.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator, Sequence
from itertools import chain
from typing import NamedTuple

from stormcast.chaos.oracles.coverage import Range, first_gap
from stormcast.chaos.oracles.groups import Window
from stormcast.chaos.oracles.history import EPSILON, Epoch, Member, Violation
from stormcast.node.core.model import OOB
from stormcast.node.trace import Event


class Held(NamedTuple):
    """How many messages a window held at a time, and how far it had delivered in order."""

    gauge: Event
    window: Window | Epoch
    reached: int
    """No more than that: messages that came early keep a place in the window until the gap before
    them is closed, so they prove nothing."""

    @property
    def receiver(self) -> Member:
        where = self.window
        return where.receiver if isinstance(where, Window) else where.connection.receiver

    @property
    def high(self) -> int:
        """The highest seqno that was sent by then."""
        return max((_sent_by(sent, self.gauge.time) for sent in self._sent()), default=0)

    @property
    def is_all(self) -> bool:
        """Whether the window held all that was sent by then, and not delivered."""
        return self.gauge.lo == self.high - self.reached

    def lost(self) -> int | None:
        """Return the first seqno that the window held and never delivered; None: there is none.
        What it gave up aloud is not judged."""
        given_up = (Range(0, skip.hi) for skip in self.window.skipped)
        return first_gap(self.reached + 1, self.high, [*self._delivered(), *given_up])

    def _sent(self) -> Iterator[Sequence[Event]]:
        if isinstance(self.window, Window):
            yield self.window.stream.sent
        else:
            yield from (entry.sent for entry in self.window.connection.entries)

    def _delivered(self) -> Iterator[Event]:
        """Return what was delivered in this window, or early in one before: that keeps a place in
        this one."""
        where = self.window
        lives: Sequence[Window | Epoch] = (
            where.stream.windows_of(where.receiver)
            if isinstance(where, Window)
            else where.connection.epochs
        )
        return chain.from_iterable(one.delivered for one in lives if one.number <= where.number)


def held(gauge: Event, window: Window | Epoch | None) -> Held | None:
    """Return what a gauge says of the window that is there. None: nothing that can be judged; there
    is no window, or what it gave up aloud counts as held."""
    if window is None or window.skipped or gauge.lo <= 0:
        return None
    offset = window.offset if isinstance(window, Window) else 0
    in_order = (event.hi for event in reversed(window.delivered) if not event.flags & OOB)
    return Held(gauge, window, next(in_order, offset))


def violations(gauged: Sequence[Held]) -> Iterator[Violation]:
    """Messages that were lost with a window that held them, at members that stay."""
    newest: dict[int, Held] = {}
    for one in gauged:
        if one.window.removed is not None and one.receiver.lives and one.is_all:
            newest[id(one.window)] = one
    for one in newest.values():
        removed, lost = one.window.removed, one.lost()
        if removed is None or removed.text == "stop" or lost is None:
            continue
        what = "multicast" if isinstance(one.window, Window) else "seqno"
        detail = f"{what} {lost} was held without a gap, and never delivered: its window ended"
        witness = (one.receiver, one.gauge), (one.receiver, removed.event)
        yield Violation(removed.event.time, detail, witness)


def _sent_by(sent: Sequence[Event], time: float) -> int:
    at = bisect_right(sent, time + EPSILON, key=lambda event: event.time)
    return sent[at - 1].hi if at else 0
