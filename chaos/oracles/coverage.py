"""Ranges of seqnos: gaps in them, their union, and whether they cover another range."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Iterator, Sequence
from math import inf
from typing import NamedTuple

from stormcast.node.trace import Event


class Range(NamedTuple):
    """Seqnos that no event is about."""

    lo: int
    hi: int


def sent_by_then(abandoned: Event, sent: Sequence[Event]) -> list[Range]:
    """Return what a message that seqnos were given up says of those that were sent before it."""
    hi = min(abandoned.hi, max((batch.hi for batch in sent), default=0))
    return [Range(abandoned.lo, hi)] if hi >= abandoned.lo else []


def first_gap(lo: int, hi: int, parts: Iterable[Event | Range]) -> int | None:
    """Return the first seqno of `lo..hi` that no part covers; None: all are covered."""
    first = next(gaps(lo, hi, parts), None)
    return first.lo if first is not None else None


def gaps(lo: int, hi: int, parts: Iterable[Event | Range]) -> Iterator[Range]:
    """Yield the ranges of `lo..hi` that no part covers, in order."""
    at = lo
    for part_lo, part_hi in sorted((part.lo, part.hi) for part in parts):
        if part_lo > hi:
            break
        if part_lo > at:
            yield Range(at, part_lo - 1)
        at = max(at, part_hi + 1)
    if at <= hi:
        yield Range(at, hi)


def spans(parts: Iterable[tuple[int, int]]) -> list[tuple[int, int]]:
    """Return the union of the parts as the fewest ranges, in order."""
    found: list[tuple[int, int]] = []
    for lo, hi in sorted(parts):
        if found and lo <= found[-1][1] + 1:
            found[-1] = found[-1][0], max(found[-1][1], hi)
        else:
            found.append((lo, hi))
    return found


def is_covered(lo: int, hi: int, whole: Sequence[tuple[int, int]]) -> bool:
    """Whether one of the ranges that `spans` made holds all of `lo..hi`."""
    at = bisect_right(whole, (lo, inf)) - 1
    return at >= 0 and whole[at][1] >= hi


def counted(lo: int, hi: int, whole: Sequence[tuple[int, int]]) -> int:
    """Return how many of `lo..hi` are in the ranges that `spans` made."""
    count = 0
    for at in range(max(0, bisect_right(whole, (lo, inf)) - 1), len(whole)):
        if whole[at][0] > hi:
            break
        count += max(0, min(hi, whole[at][1]) - max(lo, whole[at][0]) + 1)
    return count


def between(lo: int, hi: int, whole: Sequence[tuple[int, int]]) -> Iterator[tuple[int, int]]:
    """Yield the ranges of `lo..hi` that are in none of the ranges that `spans` made."""
    for at in range(max(0, bisect_right(whole, (lo, inf)) - 1), len(whole)):
        begin, end = whole[at]
        if begin > hi:
            break
        if lo < begin:
            yield lo, begin - 1
        lo = max(lo, end + 1)
    if lo <= hi:
        yield lo, hi
