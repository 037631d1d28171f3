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
    DELIVERED,
    HANDED,
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
    {SENT, DELIVERED, REQUESTED, RETRANSMITTED, PURGED, OFFERED, HANDED, ABANDONED}
)
"""Events about `lo..hi`."""
VIEW_MASK: Final = 0xFFFFFFFF
"""The bits of a view's number that a record keeps."""


def impossible(events: Sequence[Event]) -> str:
    """Return what the events of a trace say that no member can say; empty if there is nothing."""
    views = {0}
    named: dict[int, int] = {}
    last = len(events) - 1
    for number, event in enumerate(events):
        kind, lo, hi = event.kind, event.lo, event.hi
        if not -inf < event.time < inf:
            return f"event {number} ({event.name}) is at {event.time}"
        if lo >= MOST or hi >= MOST:
            return f"event {number} ({event.name}) has a number that is too large"
        if lo > hi and kind in RANGES:
            return f"event {number} ({event.name}) ends before it begins"
        if event.view:
            named.setdefault(event.view, number)
        if kind == VIEW:
            views.add(lo & VIEW_MASK)
        elif kind == STOP and number != last:
            return f"event {number + 1} ({events[number + 1].name}) comes after the member's end"
    for view, number in named.items():
        if view not in views:
            return f"event {number} ({events[number].name}) is of a view that the member never had"
    return ""
