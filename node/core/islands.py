"""Islands: what a receive window holds behind a gap, as pieces that are ascending and disjoint.

They are a plain list, which the window asks in its fast path whether there are any.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence
from typing import Generic, NamedTuple, TypeVar

T = TypeVar("T")


class Piece(NamedTuple, Generic[T]):
    """Seqnos `lo..hi`, all of them new, and the batch that brought them.

    `item` is None and `size` 0 where the messages were delivered out of band: the piece only keeps
    their place.
    """

    lo: int
    hi: int
    size: int
    item: T | None


def absent(islands: Sequence[Piece[T]], first: int, last: int) -> list[tuple[int, int]]:
    """Return the parts of `first..last` that no island covers."""
    gaps = []
    at = first
    index = max(0, bisect_right(islands, at, key=lambda piece: piece.lo) - 1)
    while at <= last and index < len(islands):
        piece = islands[index]
        if piece.lo > last:
            break
        if piece.lo > at:
            gaps.append((at, piece.lo - 1))
        at = max(at, piece.hi + 1)
        index += 1
    if at <= last:
        gaps.append((at, last))
    return gaps


def first_absent(
    islands: Sequence[Piece[T]], first: int, last: int, limit: int, ranges_limit: int
) -> list[tuple[int, int]]:
    """Return the parts of `first..last` that no island covers, where none begins before `first`: at
    most `limit` seqnos in `ranges_limit` ranges, the lowest."""
    assert limit > 0
    assert ranges_limit > 0
    gaps: list[tuple[int, int]] = []
    at = first
    for piece in islands:
        if piece.lo > at:
            gaps.append((at, min(piece.lo - 1, at + limit - 1)))
            limit -= gaps[-1][1] - at + 1
            if limit <= 0 or len(gaps) >= ranges_limit:
                return gaps
        at = piece.hi + 1
    if at <= last:
        gaps.append((at, min(last, at + limit - 1)))
    return gaps


def split(islands: Sequence[Piece[T]], seqno: int) -> tuple[list[Piece[T]], list[Piece[T]]]:
    """Return the islands up to a seqno, and those above it. Of one on both sides, the upper part
    keeps the size."""
    below: list[Piece[T]] = []
    above: list[Piece[T]] = []
    for piece in islands:
        if piece.hi <= seqno:
            below.append(piece)
        elif piece.lo > seqno:
            above.append(piece)
        else:
            below.append(piece._replace(hi=seqno, size=0))
            above.append(piece._replace(lo=seqno + 1))
    return below, above


def highest(islands: Sequence[Piece[T]], seqno: int, wanted: int) -> tuple[int, int]:
    """Return the index of the first of the highest islands, all above a seqno, that hold as many
    bytes as are wanted, if there are so many; and their bytes."""
    at, held = len(islands), 0
    while held < wanted and at and islands[at - 1].lo > seqno:
        at -= 1
        held += islands[at].size
    return at, held


def next_in_order(islands: Sequence[Piece[T]], end: int) -> tuple[int, int]:
    """Return how many islands follow a seqno without a gap, and their last seqno."""
    reached = 0
    for piece in islands:
        if piece.lo != end + 1:
            break
        end = piece.hi
        reached += 1
    return reached, end
