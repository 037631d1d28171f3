"""The sliding windows of sender and receiver. They store ranges, but are exact for each seqno.

Both are bounded in messages and in bytes, refuse without changing what they hold, and cost O(1)
per batch while traffic is in order. Only gaps, overlaps, duplicates and partial purges cost more.

A step first makes what may need memory, and assigns last: where there is none, nothing has changed.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import deque
from collections.abc import Callable, Iterator
from typing import Final, Generic, NamedTuple, TypeVar

from stormcast.node.core.islands import (
    Piece,
    absent,
    first_absent,
    highest,
    next_in_order,
    split,
)

T = TypeVar("T")
# Makes the tuples of each batch by one call into C: the constructor of a NamedTuple is a function
# written in Python.
_new_tuple: Final = tuple.__new__


MOST_UNACKED: Final = 1024
"""Messages after which a receiver acks at the latest. A quarter of a large window may be more
messages than its bytes admit: the sender would be blocked until a timer brings the ack about."""


def quarter_of(window_messages: int) -> int:
    """Return the default number of messages after which the receiver of a fixed window acks."""
    return max(1, min(MOST_UNACKED, window_messages // 4))


class Stored(NamedTuple, Generic[T]):
    """A numbered batch that the sender may have to send again."""

    lo: int
    hi: int
    size: int
    item: T


class SendWindow(Generic[T]):
    """The batches that were sent and not yet acknowledged.

    `low` is the highest acked seqno, `high` the highest sent; `low <= high`, and
    `high - low <= capacity`. Batches cover `(low, high]` without gaps; only the first may begin
    before `low + 1`, when an ack ended inside it.
    """

    __slots__ = ("_batches", "bytes", "capacity", "capacity_bytes", "high", "low")

    def __init__(self, capacity: int, capacity_bytes: int) -> None:
        assert capacity > 0
        assert capacity_bytes > 0
        self.capacity = capacity
        self.capacity_bytes = capacity_bytes
        self.low = 0
        self.high = 0
        self.bytes = 0
        self._batches: deque[Stored[T]] = deque()

    def __len__(self) -> int:
        """Messages sent and not acked."""
        return self.high - self.low

    def __iter__(self) -> Iterator[Stored[T]]:
        """The retained batches, oldest first."""
        return iter(self._batches)

    def room(self) -> tuple[int, int]:
        """Messages and bytes that still fit."""
        return self.capacity - (self.high - self.low), self.capacity_bytes - self.bytes

    def bytes_bound(self) -> int:
        """Return the bound of `bytes`: one batch of any size may enter an empty window."""
        is_alone = len(self._batches) == 1
        return max(self.capacity_bytes, self.bytes) if is_alone else self.capacity_bytes

    def append(self, count: int, size: int, item: T) -> int:
        """Number `count` messages and keep them; returns the first seqno. Call `room` before."""
        assert 0 < count <= self.capacity - (self.high - self.low), "append beyond the window"
        lo = self.high + 1
        hi = self.high + count
        # First: where there is no memory for it, nothing has changed.
        self._batches.append(_new_tuple(Stored, (lo, hi, size, item)))
        self.high = hi
        self.bytes += size
        return lo

    def take_back(self) -> None:
        """Undo the last `append`: the batch was not sent."""
        stored = self._batches.pop()
        self.high = stored.lo - 1
        self.bytes -= stored.size

    def ack(self, seqno: int) -> Stored[T] | None:
        """Drop everything up to `seqno`; returns the newest batch that this completed."""
        assert seqno <= self.high, "ack beyond what was sent"
        newest = None
        if seqno <= self.low:
            return None
        self.low = seqno
        batches = self._batches
        while batches and batches[0].hi <= seqno:
            newest = batches.popleft()
            self.bytes -= newest.size
        return newest

    def oldest(self) -> Stored[T] | None:
        """The batch that holds `low + 1`."""
        return self._batches[0] if self._batches else None

    def newest(self) -> Stored[T] | None:
        """The batch that holds `high`."""
        return self._batches[-1] if self._batches else None

    def covering(self, ranges: list[tuple[int, int]]) -> list[Stored[T]]:
        """The retained batches that hold any of the (ascending) ranges, each once."""
        found: list[Stored[T]] = []
        wanted = iter(ranges)
        lo, hi = next(wanted, (0, 0))
        for batch in self._batches:
            while hi < batch.lo:
                following = next(wanted, None)
                if following is None:
                    return found
                lo, hi = following
            if lo <= batch.hi:
                found.append(batch)
        return found


class ReceiveWindow(Generic[T]):
    """The messages that were received and not yet delivered.

    `delivered <= deliverable <= high`: highest delivered, end of the gapless run after it, highest
    received. `seen` is the highest seqno known to exist within the window, beyond `high` when
    something was refused for lack of room. Nothing above `delivered + capacity` is ever stored.
    """

    __slots__ = (
        "_islands",
        "_ready",
        "bytes",
        "capacity",
        "capacity_bytes",
        "deliverable",
        "delivered",
        "seen",
    )

    def __init__(self, offset: int, capacity: int, capacity_bytes: int) -> None:
        assert capacity > 0
        assert capacity_bytes > 0
        self.capacity = capacity
        self.capacity_bytes = capacity_bytes
        self.delivered = offset
        self.deliverable = offset
        self.seen = offset
        self.bytes = 0
        self._ready: list[Piece[T]] = []
        # Ascending, disjoint, all above `deliverable + 1`.
        self._islands: list[Piece[T]] = []

    @property
    def high(self) -> int:
        """The highest seqno held or delivered."""
        return self._islands[-1].hi if self._islands else self.deliverable

    def __len__(self) -> int:
        """Messages held and not delivered."""
        return self.deliverable - self.delivered + sum(p.hi - p.lo + 1 for p in self._islands)

    def bytes_bound(self) -> int:
        """Return the bound of `bytes`: one batch of any size may enter an empty window."""
        if self.bytes <= self.capacity_bytes:
            return self.capacity_bytes
        # Pieces that only keep a place hold no bytes: a batch beside them is still the only one.
        charged = sum(1 for piece in (*self._ready, *self._islands) if piece.size)
        return self.bytes if charged == 1 else self.capacity_bytes

    def pieces(self) -> int:
        """Return how many batches, or parts of batches, are held."""
        return len(self._ready) + len(self._islands)

    def has_gap(self) -> bool:
        """Whether a seqno is missing below the highest one known to exist."""
        return self.deliverable < self.seen

    def pass_next(self, lo: int, hi: int) -> bool:
        """Count a batch as delivered without holding it, if it is the next one and nothing else is
        held; return whether it was. Else it has to be added."""
        if (
            lo != self.deliverable + 1
            or self._islands
            or self._ready
            or hi - self.delivered > self.capacity
        ):
            return False
        self.delivered = self.deliverable = hi
        if hi > self.seen:
            self.seen = hi
        return True

    def add(self, lo: int, hi: int, size: int, item: T, *, oob: bool = False) -> list[Piece[T]]:
        """Take a batch; returns the parts that are new (none for a duplicate or for lack of room).

        With `oob` the caller delivers the new parts at once and the window keeps only their places.
        """
        assert 0 < lo <= hi
        if (
            not oob
            and lo == self.deliverable + 1
            and not self._islands
            and hi - self.delivered <= self.capacity
            and (not self.bytes or self.bytes + size <= self.capacity_bytes)
        ):
            piece: Piece[T] = _new_tuple(Piece, (lo, hi, size, item))
            held = self.bytes + size
            self._ready.append(piece)
            self.bytes = held
            self.deliverable = hi
            if hi > self.seen:
                self.seen = hi
            return [piece]
        return self._add_slowly(lo, hi, size, item, oob=oob)

    def note(self, seqno: int) -> None:
        """Note that all seqnos up to `seqno` exist: those not received, if within the window, are
        missing."""
        self.seen = max(self.seen, min(seqno, self.delivered + self.capacity))

    def places(self) -> list[tuple[int, int]]:
        """Return the ranges that were delivered out of band, ahead of missing messages."""
        return [(piece.lo, piece.hi) for piece in self._islands if piece.item is None]

    def hold_place(self, lo: int, hi: int) -> None:
        """Keep the place of messages delivered before this window existed: they must not be
        delivered again."""
        first, last = max(lo, self.deliverable + 1), min(hi, self.delivered + self.capacity)
        if first > last:
            return
        self.seen = max(self.seen, last)
        for gap_lo, gap_hi in absent(self._islands, first, last):
            self._store(Piece(gap_lo, gap_hi, 0, None))
        self._absorb()

    def take_ready(self) -> list[Piece[T]]:
        """Take everything that is next in order."""
        ready = self._ready
        if ready:
            left = self.bytes - sum(piece.size for piece in ready) if self._islands else 0
            self._ready = []
            self.delivered = self.deliverable
            self.bytes = left
        return ready

    def put_back(self, pieces: list[Piece[T]]) -> None:
        """Hold the last pieces again that `take_ready` returned or `pass_next` counted: they were
        not delivered."""
        if pieces:
            delivered = pieces[0].lo - 1
            held = self.bytes + sum(piece.size for piece in pieces)
            self._ready[:0] = pieces
            self.delivered = delivered
            self.bytes = held
        # What failed may have been an `add` that came no further.
        self._absorb()

    def take_early(self, may_overtake: Callable[[T], bool]) -> list[Piece[T]]:
        """Take the pieces behind a gap that may be delivered ahead of it, and keep their places."""
        taken: list[Piece[T]] = []
        islands: list[Piece[T]] = []
        left = self.bytes
        for piece in self._islands:
            if piece.item is not None and may_overtake(piece.item):
                taken.append(piece)
                islands.append(Piece(piece.lo, piece.hi, 0, None))
                left -= piece.size
            else:
                islands.append(piece)
        self._islands = islands
        self.bytes = left
        return taken

    def put_back_early(self, pieces: list[Piece[T]]) -> None:
        """Hold pieces again of which only the places are held: they were not delivered."""
        by_place = {piece.lo: piece for piece in pieces}
        ready = [by_place.get(piece.lo, piece) for piece in self._ready]
        islands = [by_place.get(piece.lo, piece) for piece in self._islands]
        held = sum(piece.size for piece in ready) + sum(piece.size for piece in islands)
        self._ready, self._islands = ready, islands
        self.bytes = held

    def missing(self, limit: int, ranges_limit: int = 1 << 30) -> list[tuple[int, int]]:
        """The absent ranges, oldest first: at most `limit` seqnos in `ranges_limit` ranges."""
        last = min(self.seen, self.delivered + self.capacity)
        return first_absent(self._islands, self.deliverable + 1, last, limit, ranges_limit)

    def skip_to(self, seqno: int) -> int:
        """Give up on what is missing at or below `seqno`; returns how many were skipped."""
        assert seqno <= self.delivered + self.capacity, "skip beyond the window"
        if seqno <= self.deliverable:
            return 0
        below, islands = split(self._islands, seqno)
        skipped = seqno - self.deliverable - sum(piece.hi - piece.lo + 1 for piece in below)
        ready = self._ready + below
        self._ready, self._islands = ready, islands
        self.deliverable = seqno
        self.seen = max(self.seen, seqno)
        self._absorb()
        if not self._ready:
            self.delivered = self.deliverable
        return skipped

    def _add_slowly(self, lo: int, hi: int, size: int, item: T, *, oob: bool) -> list[Piece[T]]:
        """Trim to what is absent and fits, then store it piece by piece."""
        first = max(lo, self.deliverable + 1)
        last = min(hi, self.delivered + self.capacity)
        # Seqnos beyond the window are not stored, but prove that all up to the window's end exist.
        self.seen = max(self.seen, min(hi, self.delivered + self.capacity))
        islands = self._islands
        if islands and first > islands[-1].hi and lo == first and hi == last and not oob:
            # Behind a gap the rest usually arrives in order: append, without searching.
            if self.bytes and self.bytes + size > self.capacity_bytes:
                return []
            piece = Piece(lo, hi, size, item)
            held = self.bytes + size
            islands.append(piece)
            self.bytes = held
            return [piece]
        new: list[Piece[T]] = []
        try:
            for gap_lo, gap_hi in absent(self._islands, first, last):
                # A trimmed piece keeps the whole batch alive, so it is charged for the whole.
                piece = Piece(gap_lo, gap_hi, size, item)
                if not oob and not self._make_room(piece):
                    continue
                new.append(piece)
                self._store(Piece(gap_lo, gap_hi, 0, None) if oob else piece)
            self._absorb()
        except BaseException:
            if oob:
                # Nobody gets them: a place is only for what was delivered.
                self.put_back_early(new)
            raise
        return new

    def _make_room(self, piece: Piece[T]) -> bool:
        """Evict the highest islands for a lower piece, which is needed sooner; whether it fits."""
        excess = self.bytes + piece.size - self.capacity_bytes
        if excess <= 0:
            return True
        islands = self._islands
        at, freed = highest(islands, piece.hi, excess)
        # A window that holds no bytes admits one batch of any size, as the sender's does. If the
        # evictions would neither empty the window nor make enough room, nothing is evicted.
        if freed < excess and freed < self.bytes:
            return False
        # The place of messages delivered out of band stays, else a copy is delivered too (G2).
        left = self.bytes - freed
        islands[at:] = [island for island in islands[at:] if not island.size]
        self.bytes = left
        return True

    def _store(self, piece: Piece[T]) -> None:
        index = bisect_right(self._islands, piece.lo, key=lambda island: island.lo)
        held = self.bytes + piece.size
        self._islands.insert(index, piece)
        self.bytes = held

    def _absorb(self) -> None:
        """Move the islands that no gap precedes any more to the ready pieces."""
        islands = self._islands
        reached, end = next_in_order(islands, self.deliverable)
        if reached:
            left = islands[reached:]
            self._ready += islands[:reached]
            self._islands = left
            self.deliverable = end
