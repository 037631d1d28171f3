"""Values that were measured several times: their median, and how sure it is."""

from __future__ import annotations

from collections.abc import Sequence
from math import comb
from typing import Final

CONFIDENCE: Final = 0.95
FEWEST: Final = 6
"""The median is between the least and the greatest of six values with a probability of 97 %; of
five, 94 %."""
_SHORT: Final = 100
"""From here on figures have no fraction."""


def interval(values: Sequence[float]) -> tuple[float, float]:
    """Return bounds that hold the median of what the values were drawn from, with a probability of
    CONFIDENCE, by the order of the values alone."""
    ordered = sorted(values)
    place = _left_off(len(ordered))
    return ordered[place], ordered[-1 - place]


def _left_off(count: int) -> int:
    """Return how many values may be left off at either end."""
    place, beyond = 0, 2 / 2**count
    while place < count // 2:
        beyond += 2 * comb(count, place + 1) / 2**count
        if beyond > 1 - CONFIDENCE:
            break
        place += 1
    return place


def in_words(value: float) -> str:
    """Return a figure as text, with three digits or more."""
    is_whole = abs(value) >= _SHORT or value == round(value)
    return f"{value:,.0f}" if is_whole else f"{value:.3g}"
