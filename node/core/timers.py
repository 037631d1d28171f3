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

    __slots__ = ("_heap", "_order", "_when")

    def __init__(self) -> None:
        self._when: dict[K, float] = {}
        self._heap: list[tuple[float, int, K]] = []
        self._order = count()

    def set(self, key: K, when: float) -> None:
        """Come back at `when`; infinity is never."""
        if when == inf:
            self._when.pop(key, None)
        elif self._when.get(key) != when:
            self._when[key] = when
            heappush(self._heap, (when, next(self._order), key))
            if len(self._heap) > _SLACK + 2 * len(self._when):
                self._compact()

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
        self._when.pop(key, None)

    def clear(self) -> None:
        """Forget all of them."""
        self._when.clear()
        self._heap.clear()

    def next_deadline(self) -> float:
        """The earliest moment."""
        heap = self._heap
        while heap:
            when, _order, key = heap[0]
            if self._when.get(key) == when:
                return when
            heappop(heap)
        return inf

    def take_due(self, now: float) -> Iterator[K]:
        """The keys whose moment has come, earliest first, each once. One after the other: what is
        cancelled or moved meanwhile does not come."""
        heap = self._heap
        due = []
        while heap and heap[0][0] <= now:
            when, _order, key = heappop(heap)
            if self._when.get(key) == when:
                due.append((when, key))
        for when, key in due:
            if self._when.get(key) == when:
                del self._when[key]
                yield key
