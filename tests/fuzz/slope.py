"""Whether memory grows with what was sent: a robust slope, and a bound below which it does not lie.

The slope is the median of the slopes of all pairs of samples (Theil and Sen). Steps of an allocator
and single outliers hardly move it. Its lower bound is the one of Sen's interval: a growth is found
only if the slope is above the limit with high confidence, so noise is not taken for a leak.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import ceil, sqrt
from statistics import median
from typing import Final, NamedTuple

Z: Final = 2.576
"""Of a normal distribution: 99 of 100 lie within, so half of one percent lies below the bound."""
WARM_UP: Final = 0.25
"""Share of the samples, at the beginning, in which tables and pools take what they need."""
LEAST: Final = 8
"""Samples after that, below which nothing is said."""


class Slope(NamedTuple):
    """Growth per unit of x."""

    value: float
    lower: float
    """With high confidence the slope is not below this."""
    samples: int

    def is_above(self, limit: float) -> bool:
        """Whether the growth is above a limit, and not by chance."""
        return self.samples >= LEAST and self.lower > limit


def after_warm_up(samples: Sequence[tuple[float, float]]) -> list[tuple[float, float]]:
    """Return the samples that count."""
    return list(samples[ceil(WARM_UP * len(samples)) :])


def slope_of(samples: Sequence[tuple[float, float]]) -> Slope:
    """Return the slope of samples (x, y), all of which count."""
    count = len(samples)
    slopes = sorted(
        (y2 - y1) / (x2 - x1)
        for at, (x1, y1) in enumerate(samples)
        for x2, y2 in samples[at + 1 :]
        if x2 > x1
    )
    if not slopes:
        return Slope(0.0, 0.0, count)
    # The spread of Kendall's statistic: so many of all pairs may lie on the wrong side by chance.
    spread = Z * sqrt(count * (count - 1) * (2 * count + 5) / 18)
    lowest = int((len(slopes) - spread) / 2)
    lower = slopes[lowest] if lowest >= 0 else float("-inf")
    return Slope(median(slopes), lower, count)
