"""Decides when to request missing messages: the two-look rule, requests of bounded size (C1)."""

from __future__ import annotations

from math import inf
from typing import Any, Final

from stormcast.node.core.rtt import RoundTrip
from stormcast.node.core.timing import Pacer
from stormcast.node.core.window import ReceiveWindow
from stormcast.node.core.wire import told_apart

Ranges = list[tuple[int, int]]

MAX_REQUESTS_PER_LOOK: Final = 64
"""Request frames that one look sends at most; the rest waits for the next look."""
_ALL: Final = 1 << 62


class Asked:
    """Seqnos that were first requested together: up to `hi`, last asked for at `at`."""

    __slots__ = ("at", "hi", "is_sampled", "tries")

    def __init__(self, hi: int, at: float) -> None:
        self.hi = hi
        self.at = at
        self.tries = 0
        self.is_sampled = False


class GapLook:
    """Compares what a window misses with the previous look, and requests what is still missing
    (JGRP-1539)."""

    __slots__ = ("asked", "missing_before", "rtt")

    def __init__(self, rtt: RoundTrip) -> None:
        self.rtt = rtt
        self.missing_before = 0
        """Highest missing seqno at the previous look; 0 when nothing was missing."""
        self.asked: list[Asked] = []
        """Requested seqnos that may still be missing, ascending: each entry covers those above the
        `hi` of the entry before."""

    def look(self, window: ReceiveWindow[Any], pacer: Pacer, now: float) -> tuple[Ranges, float]:
        """Return the ranges to request now, and when to look again: infinity if none is missing."""
        missing = window.missing(_ALL)
        if not missing:
            self.missing_before = 0
            self.asked.clear()
            return [], inf
        before, highest = self.missing_before, missing[-1][1]
        self.missing_before = max(before, highest)
        ask = self._due_requests(window, missing, before, pacer, now)
        due = pacer.second_gap_look(now, self.rtt) if highest > before else inf
        for asked in self.asked:
            due = min(due, pacer.next_gap_look(asked.at, self.rtt, asked.tries))
        return ask, max(due, now)

    def transmission(self) -> int:
        """Return the transmission number of the next requests, by the one repeated most often."""
        return told_apart(max((asked.tries for asked in self.asked), default=0))

    def _due_requests(
        self, window: ReceiveWindow[Any], missing: Ranges, before: int, pacer: Pacer, now: float
    ) -> Ranges:
        """Return the missing ranges to request now: those missing at the previous look and never
        requested, and those requested too long ago."""
        asked = [one for one in self.asked if one.hi > window.deliverable]
        known = asked[-1].hi if asked else window.deliverable
        due: Ranges = []
        lo = 0
        for one in asked:
            if pacer.next_gap_look(one.at, self.rtt, one.tries) <= now:
                due += _overlap(missing, lo + 1, one.hi)
                one.at = now
                one.tries += 1
            lo = one.hi
        if before > known and (fresh := _overlap(missing, known + 1, before)):
            due += fresh
            asked.append(Asked(before, now))
        self.asked = asked
        return due

    def sample(self, seqno: int, now: float) -> None:
        """Measure the round trip from a request to the arrival of a repeat, if no other request can
        have caused the repeat."""
        for asked in self.asked:
            if seqno <= asked.hi:
                if not asked.tries and not asked.is_sampled:
                    self.rtt.sample(now - asked.at)
                    asked.is_sampled = True
                return


def _overlap(ranges: Ranges, lo: int, hi: int) -> Ranges:
    """The parts of ascending ranges within `lo..hi`."""
    return [(max(first, lo), min(last, hi)) for first, last in ranges if last >= lo and first <= hi]


def count_seqnos(ranges: Ranges) -> int:
    """Return how many seqnos some ranges have."""
    return sum(hi - lo + 1 for lo, hi in ranges)


def split_ranges(ranges: Ranges, most_seqnos: int, most_ranges: int) -> list[tuple[Ranges, int]]:
    """Cut ascending ranges into requests, each with how many seqnos it asks for."""
    requests: list[tuple[Ranges, int]] = []
    part: Ranges = []
    number = 0
    for first, last in ranges:
        lo = first
        while lo <= last:
            hi = min(last, lo + most_seqnos - number - 1)
            part.append((lo, hi))
            number += hi - lo + 1
            lo = hi + 1
            if number >= most_seqnos or len(part) >= most_ranges:
                requests.append((part, number))
                part, number = [], 0
    if part:
        requests.append((part, number))
    return requests
