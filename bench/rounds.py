"""A figure is made of several rounds: their median, and how far apart they lie."""

from __future__ import annotations

from dataclasses import dataclass
from math import inf
from statistics import median


@dataclass(frozen=True, slots=True, kw_only=True)
class Rounds:
    """The rates of several rounds of the same work."""

    rounds: tuple[float, ...]

    @property
    def median(self) -> float:
        return median(self.rounds)

    @property
    def spread(self) -> float:
        """(highest - lowest) / median; 0 if all are 0, infinity if only the median is."""
        apart = max(self.rounds) - min(self.rounds)
        if not self.median:
            return inf if apart else 0.0
        return apart / self.median
