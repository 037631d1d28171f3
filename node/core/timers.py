"""Moments at which something wants to be looked at: one heap, any number of named timers."""

from __future__ import annotations

from collections.abc import Hashable, Iterator
from heapq import heappop, heappush
from itertools import count
from math import inf
from typing import Final, Generic, TypeVar

K = TypeVar("K", bound=Hashable)
_SLACK: Final = 64
"""Entries of the heap that may be void before it is worth a look."""


class Timers(Generic[K]):
    """Each key has at most one moment. Setting it again moves it; a moment that is due is taken
    once."""

    __slots__ = ("_heap", "_order", "_when", "earliest", "is_moved")

    def __init__(self) -> None:
        self.earliest = inf
        """The earliest moment, or one before it where `is_moved`; kept at hand, because every turn
        asks for it and few change it."""
        self.is_moved = False
        """Whether what was the earliest was moved, cancelled or taken: `next_deadline` finds out
        what is now."""
        self._when: dict[K, float] = {}
        self._heap: list[tuple[float, int, K]] = []
        self._order = count()

    def set(self, key: K, when: float) -> None:
        """Come back at `when`; infinity is never."""
        if when == inf:
            self.cancel(key)
            return
        before = self._when.get(key)
        if before != when:
            self._when[key] = when
            heappush(self._heap, (when, next(self._order), key))
            if len(self._heap) > _SLACK + 2 * len(self._when):
                self._compact()
            if when < self.earliest:
                self.earliest = when
            elif before == self.earliest:
                self.is_moved = True

    def _compact(self) -> None:
        """Drop what was moved or cancelled: a timer that moves all the time must not fill memory
        (G5)."""
        when = self._when
        # Backwards, so that of equal moments of a key the first that was set keeps its place.
        live = {
            entry[2]: entry
            for entry in sorted(self._heap, reverse=True)
            if when.get(entry[2]) == entry[0]
        }
        # Sorted, and so a heap.
        self._heap = sorted(live.values())

    def set_earlier(self, key: K, when: float) -> None:
        """Come back at `when`, unless an earlier moment is set."""
        if when < self._when.get(key, inf):
            self.set(key, when)

    def due(self, key: K) -> float:
        """The moment of a key; infinity when none is set."""
        return self._when.get(key, inf)

    def cancel(self, key: K) -> None:
        """Do not come back."""
        if self._when.pop(key, None) == self.earliest:
            self.is_moved = True

    def clear(self) -> None:
        """Forget all of them."""
        self._when.clear()
        self._heap.clear()
        self.earliest = inf
        self.is_moved = False

    def next_deadline(self) -> float:
        """The earliest moment."""
        if self.is_moved:
            self._find_earliest()
        return self.earliest

    def _find_earliest(self) -> None:
        self.is_moved = False
        heap = self._heap
        while heap:
            when, _order, key = heap[0]
            if self._when.get(key) == when:
                self.earliest = when
                return
            heappop(heap)
        self.earliest = inf

    def take_due(self, now: float) -> Iterator[K]:
        """The keys whose moment has come, earliest first, each once. One after the other: what is
        cancelled or moved meanwhile does not come."""
        heap = self._heap
        due = []
        while heap and heap[0][0] <= now:
            when, _order, key = heappop(heap)
            if self._when.get(key) == when:
                due.append((when, key))
        if due:
            self.is_moved = True
        for when, key in due:
            if self._when.get(key) == when:
                del self._when[key]
                yield key
