"""Records that no member writes: a trace that holds one is evidence of nothing.

What a check concludes rests on arithmetic with times and seqnos. So a trace is refused if one of
them cannot be: a time that is not finite, a number no count reaches, a range that ends before it
begins, an event after the member's end, or a view that the member never had.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import inf
from typing import Final

from stormcast.node.trace import (
    ABANDONED,
    ANSWERED,
    DELIVERED,
    HANDED,
    JOINED,
    OFFERED,
    PURGED,
    REQUESTED,
    RETRANSMITTED,
    SENT,
    STOP,
    VIEW,
    Event,
)

MOST: Final = 1 << 62
"""No seqno, number or bound of a record reaches this: sums of two stay numbers of 64 bits."""
RANGES: Final = frozenset(
    {SENT, DELIVERED, REQUESTED, RETRANSMITTED, PURGED, OFFERED, HANDED, ABANDONED, ANSWERED}
)
"""Events about `lo..hi`."""
COUNTED: Final = frozenset({SENT, DELIVERED, HANDED})
"""Events of as many messages as they have seqnos, if they have any; a joined message is one."""
VIEW_MASK: Final = 0xFFFFFFFF
"""The bits of a view's number that a record keeps."""


def impossible(events: Sequence[Event]) -> str:
    """Return what the events of a trace say that no member can say; empty if there is nothing."""
    views = {0}
    named: dict[int, int] = {}
    last = len(events) - 1
    for number, event in enumerate(events):
        if wrong := _wrong(event):
            return f"event {number} ({event.name}) {wrong}"
        if event.view:
            named.setdefault(event.view, number)
        if event.kind == VIEW:
            views.add(event.lo & VIEW_MASK)
        elif event.kind == STOP and number != last:
            return f"event {number + 1} ({events[number + 1].name}) comes after the member's end"
    for view, number in named.items():
        if view not in views:
            return f"event {number} ({events[number].name}) is of a view that the member never had"
    return ""


def _wrong(event: Event) -> str:
    """Return what is wrong with the numbers of an event; empty if nothing is."""
    kind, lo, hi = event.kind, event.lo, event.hi
    if not -inf < event.time < inf:
        return f"is at {event.time}"
    if lo >= MOST or hi >= MOST:
        return "has a number that is too large"
    if lo > hi and kind in RANGES:
        return "ends before it begins"
    if kind in COUNTED and event.count != _length(event):
        return "has another count than its range"
    return ""


def _length(event: Event) -> int:
    """Return how many messages a range holds: of those without seqnos what the event says."""
    if not event.protocol or (event.kind == HANDED and event.stream == JOINED):
        return event.count
    return event.hi - event.lo + 1
