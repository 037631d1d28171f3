"""One piece of work, timed in rounds: the median says how fast, the spread how sure that is."""

from __future__ import annotations

import gc
from collections.abc import Callable
from dataclasses import dataclass
from statistics import median
from time import perf_counter
from typing import Final

NANO: Final = 1e9


@dataclass(frozen=True, slots=True, kw_only=True)
class Work:
    """The work of one round, how many batches it handles, and how many messages a batch has."""

    name: str
    batches: int
    messages: int
    prepare: Callable[[], Callable[[], None]]
    """Makes fresh state, untimed, and returns what is timed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Figure:
    """Nanoseconds per batch, of each round."""

    work: Work
    rounds: tuple[float, ...]

    @property
    def median(self) -> float:
        return median(self.rounds)

    @property
    def spread(self) -> float:
        """(slowest - fastest) / median."""
        return (max(self.rounds) - min(self.rounds)) / self.median

    def __str__(self) -> str:
        per_message = self.median / self.work.messages if self.work.messages else 0.0
        cell = f"{per_message:12,.1f} ns/message" if per_message else " " * 23
        return (
            f"{self.work.name:34}{self.median:12,.0f} ns/batch{cell}"
            f"   spread {self.spread:.1%} over {len(self.rounds)} rounds"
        )


def measure(work: Work, rounds: int) -> Figure:
    """Time `rounds` rounds, after one that warms up caches and free lists."""
    seconds = [_time(work) for _ in range(rounds + 1)][1:]
    return Figure(work=work, rounds=tuple(one * NANO / work.batches for one in seconds))


def _time(work: Work) -> float:
    run = work.prepare()
    # A collection that strikes one round and not the next would be most of the spread.
    gc.collect()
    gc.disable()
    try:
        began = perf_counter()
        run()
        return perf_counter() - began
    finally:
        gc.enable()
