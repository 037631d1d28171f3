"""Scales from values to pixels, and the ticks of axes."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from math import ceil, floor, log10
from typing import Final

from stormcast.pipeline.report import quantities

_STEPS: Final = (1.0, 2.0, 5.0, 10.0)
_TIME_STEPS: Final = (
    0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0, 2.0, 5.0, 10.0, 20.0, 30.0, 60.0,
    120.0, 300.0, 600.0, 1200.0, 1800.0, 3600.0, 7200.0, 10800.0, 21600.0, 43200.0, 86400.0,
)  # fmt: skip  # a list of numbers
_MINUTES_FROM: Final = 600.0
"""Axes of at least so many seconds are labelled in minutes."""
_HOURS_FROM: Final = 3 * 3600.0
_DECADE: Final = 1
_EDGE: Final = 0.06
"""The least distance of a value from the lower end, in decades: nearer ones would seem to be on the
axis."""


@dataclass(frozen=True, slots=True)
class Linear:
    """A linear scale from `low..high` to `start..end`."""

    low: float
    high: float
    start: float
    end: float

    def __call__(self, value: float) -> float:
        span = self.high - self.low
        inside = min(max(value, self.low), self.high)
        return self.start + (inside - self.low) / span * (self.end - self.start)


@dataclass(frozen=True, slots=True)
class Log:
    """A logarithmic scale from `low..high` to `start..end`; both bounds are above 0."""

    low: float
    high: float
    start: float
    end: float

    def __call__(self, value: float) -> float:
        inside = min(max(value, self.low), self.high)
        part = log10(inside / self.low) / log10(self.high / self.low)
        return self.start + part * (self.end - self.start)


def round_up(value: float) -> float:
    """Return the next round number, for the end of an axis."""
    if value <= 0:
        return 1.0
    scale = 10.0 ** floor(log10(value))
    steps = (1, 1.5, 2, 2.5, 3, 4, 5, 6, 8, 10)
    return next(step * scale for step in steps if step * scale >= value * (1 - 1e-9))


def ticks(high: float, wanted: int) -> list[float]:
    """Return about `wanted` ticks from 0 to `high`, in steps of 1, 2 or 5 times a power of ten."""
    step = step_for(high / max(1, wanted))
    return [step * number for number in range(floor(high / step * (1 + 1e-9)) + 1)]


def step_for(least: float) -> float:
    """Return the least step of 1, 2 or 5 times a power of ten that is at least `least`."""
    if least <= 0:
        return 1.0
    scale = 10.0 ** floor(log10(least))
    return next(step * scale for step in _STEPS if step * scale >= least * (1 - 1e-9))


def time_ticks(seconds: float, wanted: int) -> list[float]:
    """Return ticks of time from 0, in steps such as 30 s or 5 min."""
    least = seconds / max(1, wanted)
    step = next((step for step in _TIME_STEPS if step >= least * (1 - 1e-9)), _TIME_STEPS[-1])
    while seconds / step > 2 * wanted:
        step *= 2
    return [step * number for number in range(floor(seconds / step * (1 + 1e-9)) + 1)]


def time_label(seconds: float, longest: float) -> str:
    """Format a tick on an axis that ends at `longest`, in its unit: seconds, minutes or hours."""
    for since, unit, factor in ((_HOURS_FROM, "h", 3600.0), (_MINUTES_FROM, "min", 60.0)):
        if longest >= since:
            return f"{quantities.significant(seconds / factor, 4)}{quantities.THIN_SPACE}{unit}"
    return f"{quantities.significant(seconds, 4)}{quantities.THIN_SPACE}s"


def decades(low: float, high: float) -> tuple[float, float]:
    """Return powers of ten around two values, at least one decade apart, with some room below."""
    first, last = floor(log10(low) - _EDGE), ceil(log10(high) - 1e-9)
    return 10.0**first, 10.0 ** max(last, first + _DECADE)


def decade_ticks(low: float, high: float) -> Iterator[float]:
    """Yield the powers of ten from `low` to `high`."""
    for power in range(round(log10(low)), round(log10(high)) + 1):
        yield 10.0**power
