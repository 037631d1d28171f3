"""Timers: any number of keys in one heap, each with the moment at which it is due."""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Iterator
from heapq import heappop, heappush
from itertools import count
from math import inf
from typing import Final, Generic, TypeVar

K = TypeVar("K", bound=Hashable)
AFTER_FAILURE: Final = 1.0
"""Seconds until a key is due again whose handling failed: later than the next turn, so that turns
in between come to their end."""
_SLACK: Final = 64
"""Entries of the heap, above two for each key, that may be void before they are removed."""


class Timers(Generic[K]):
    """Keeps at most one moment for each key. Setting a key again moves its moment; a moment that is
    due is taken once."""

    __slots__ = ("_heap", "_in_turn", "_order", "_when", "earliest", "is_moved")

    def __init__(self, *, in_turn: bool = False) -> None:
        """`in_turn`: of keys that are due at one moment, the one that was set first comes last, so
        that another one leads each time."""
        self._in_turn = in_turn
        self.earliest = inf
        """The earliest moment, or, if `is_moved`, one not later than that. Stored, because every
        turn asks for the earliest moment and few turns change it."""
        self.is_moved = False
        """Whether the earliest moment was moved, cancelled or taken: `next_deadline` then looks for
        the new one."""
        self._when: dict[K, float] = {}
        self._heap: list[tuple[float, int, K]] = []
        self._order = count()

    def set(self, key: K, when: float) -> None:
        """Set the moment of a key; infinity cancels it."""
        if when == inf:
            self.cancel(key)
            return
        before = self._when.get(key)
        if before != when:
            # The heap first: where there is no memory for its entry, the key is not set.
            heappush(self._heap, (when, next(self._order), key))
            self._when[key] = when
            if when < self.earliest:
                self.earliest = when
            elif before == self.earliest:
                self.is_moved = True
            if len(self._heap) > _SLACK + 2 * len(self._when):
                self._compact()

    def _compact(self) -> None:
        """Remove entries of moved or cancelled keys: a timer that moves all the time must not fill
        memory (G5)."""
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
        """Set the moment of a key, unless an earlier one is set."""
        if when < self._when.get(key, inf):
            self.set(key, when)

    def due(self, key: K) -> float:
        """The moment of a key; infinity when none is set."""
        return self._when.get(key, inf)

    def cancel(self, key: K) -> None:
        """Remove the moment of a key, if one is set."""
        if self._when.pop(key, None) == self.earliest:
            self.is_moved = True

    def clear(self) -> None:
        """Remove all moments."""
        self._when.clear()
        self._heap.clear()
        self.earliest = inf
        self.is_moved = False

    def next_deadline(self) -> float:
        """Return the earliest moment; infinity when none is set."""
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
        """Yield the keys whose moment has come, earliest first, each once. A key that is cancelled
        or moved while others are handled is not yielded.

        If the handling of a key fails, the rest is due still, and the key itself after
        `AFTER_FAILURE`, unless it was set meanwhile: one bug must not end other timers, nor any for
        ever.
        """
        heap = self._heap
        due = []
        try:
            while heap and heap[0][0] <= now:
                when, _order, key = heap[0]
                if self._when.get(key) == when:
                    due.append((when, key))
                heappop(heap)
            if due:
                self.is_moved = True
                if self._in_turn:
                    first = due[0]
                    due.insert(sum(when == first[0] for when, _key in due) - 1, due.pop(0))
            for when, key in due:
                if self._when.get(key) == when:
                    del self._when[key]
                    yield key
        except GeneratorExit:
            self._put_back(due)
            self.set_earlier(key, now + AFTER_FAILURE)
            raise
        except BaseException:
            # No memory: none of them was handled.
            self._put_back(due)
            raise

    def _put_back(self, entries: Iterable[tuple[float, K]]) -> None:
        """Make keys due again that were taken from the heap, except those that were yielded."""
        for when, key in entries:
            if self._when.get(key) == when:
                heappush(self._heap, (when, next(self._order), key))
                self.earliest = min(self.earliest, when)
        self.is_moved = True
