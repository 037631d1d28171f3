"""Ranges of seqnos, and what they cover together."""

from __future__ import annotations

from collections.abc import Iterable

from stormcast.node.trace import Event


def first_gap(lo: int, hi: int, parts: Iterable[Event]) -> int | None:
    """The first seqno of `lo..hi` that no part covers."""
    at = lo
    for part_lo, part_hi in sorted((part.lo, part.hi) for part in parts):
        if part_lo > at:
            break
        at = max(at, part_hi + 1)
    return at if at <= hi else None
