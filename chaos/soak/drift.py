"""Whether something grows with time: a robust slope, and a bound below which it does not lie.

The slope is the median of the slopes of all pairs of samples (Theil and Sen). Steps of an allocator
and single outliers hardly move it. Its lower bound is the one of Sen's interval: a growth is found
only if the slope is above the limit with high confidence, so noise is not taken for a leak.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from math import sqrt
from statistics import median
from typing import Any, Final, NamedTuple

Z: Final = 2.576
"""Of a normal distribution: 99 of 100 lie within, so half of one percent lies below the bound."""
WARM_UP: Final = 0.25
"""Share of the time, at the beginning, in which tables and pools take what they need."""
LEAST: Final = 8
"""Samples after that, below which nothing is said."""

MOST: Final = 500
"""Windows, the latest ones, in which something must have grown to be told."""
HOUR: Final = 3600.0
LEAST_HOURS: Final = 1.0
"""Hours for which one process must have been weighed: before, nothing is said."""
YOUNG_HOURS: Final = 0.25
"""Hours in which a process, however short it lives, may take what it needs: they do not count."""
LIMITS: Final[Mapping[str, float]] = {"memory": 4 << 20, "descriptors": 1.0, "threads": 1.0}
"""By figure: the growth per hour that is none."""
JUDGE: Final = "judge"
"""The name under which a soak weighs itself."""

Samples = Sequence[tuple[float, float]]


class Slope(NamedTuple):
    """Growth per unit of x."""

    value: float
    lower: float
    """With high confidence the slope is not below this."""
    samples: int

    def is_above(self, limit: float) -> bool:
        """Whether the growth is above a limit, and not by chance."""
        return self.samples >= LEAST and self.lower > limit


def slope_of(*series: Samples) -> Slope:
    """Return the slope that several series of samples (x, y) share, all of which count. Only
    samples of one series are compared with each other."""
    slopes = sorted(
        (y2 - y1) / (x2 - x1)
        for samples in series
        for at, (x1, y1) in enumerate(samples)
        for x2, y2 in samples[at + 1 :]
        if x2 > x1
    )
    counts = [len(samples) for samples in series]
    if not slopes:
        return Slope(0.0, 0.0, sum(counts))
    # The spread of Kendall's statistic: so many of all pairs may lie on the wrong side by chance.
    variance = sum(count * (count - 1) * (2 * count + 5) / 18 for count in counts)
    lowest = int((len(slopes) - Z * sqrt(variance)) / 2)
    lower = slopes[lowest] if lowest >= 0 else float("-inf")
    return Slope(median(slopes), lower, sum(counts))


class Drift(NamedTuple):
    """The growth in an hour of a figure of members, or of the judge."""

    of: str
    figure: str
    slope: Slope
    hours: float
    """Hours for which the process that was weighed for longest was: hours in which only others take
    its place say nothing of growth."""

    @property
    def is_known(self) -> bool:
        """Whether enough was weighed, for long enough, to tell."""
        return self.slope.samples >= LEAST and self.hours >= LEAST_HOURS

    @property
    def grows(self) -> bool:
        """Whether it grows, and not by chance."""
        return self.is_known and self.slope.is_above(LIMITS[self.figure])

    def as_json(self) -> dict[str, Any]:
        """Return it as `status.json` has it."""
        return {
            "of": self.of,
            "figure": self.figure,
            "per_hour": round(self.slope.value, 3) if self.slope.samples >= LEAST else None,
            "at_least": round(self.slope.lower, 3) if self.slope.lower > float("-inf") else None,
            "samples": self.slope.samples,
            "verdict": ("grows" if self.grows else "steady") if self.is_known else "too short",
        }


class _Process:
    """The weights of one process of a soak: the judge, or a member until it is started anew."""

    def __init__(self, of: str, begun: float) -> None:
        self.of = of
        self.begun = begun
        """The second of the soak in which it was weighed first."""
        self.seconds = 0.0
        """Seconds from then until it was weighed last."""
        self.weights: list[tuple[float, Mapping[str, float]]] = []
        """Its weights that may be compared, each with the second of the soak."""

    def series(self, figure: str) -> Samples:
        """Return the samples of a figure that count: none of the first quarter of its time."""
        young = self.begun + max(YOUNG_HOURS * HOUR, WARM_UP * self.seconds)
        return [(at / HOUR, weight[figure]) for at, weight in self.weights if at >= young]


def drifts(windows: Sequence[Mapping[str, Any]], latest: int = MOST) -> list[Drift]:
    """Return the drift of each figure, from the lines of `windows.jsonl`, the latest of them. Each
    process is compared with itself alone: one that was started anew begins again with what a young
    process takes."""
    found: dict[str, list[_Process]] = {}
    for process in _processes(windows, latest):
        if process.weights:
            found.setdefault(process.of, []).append(process)
    return [
        Drift(
            of,
            figure,
            slope_of(*(process.series(figure) for process in processes)),
            max(process.seconds for process in processes) / HOUR,
        )
        for of, processes in sorted(found.items())
        for figure in sorted(LIMITS)
    ]


def _processes(windows: Sequence[Mapping[str, Any]], latest: int) -> Collection[_Process]:
    """Return all processes, with their weights of the latest windows."""
    found: dict[tuple[object, str], _Process] = {}
    at = 0.0
    for number, window in enumerate(windows):
        at += float(window["seconds"])
        for who, weight in window.get("weights", {}).items():
            # A soak that was resumed is another process, whose members have other pids.
            key = window.get("process"), who
            process = found.get(key)
            if process is None:
                process = found[key] = _Process(JUDGE if who == JUDGE else "members", at)
            process.seconds = at - process.begun
            if number >= len(windows) - latest:
                process.weights.append((at, weight))
    return found.values()
