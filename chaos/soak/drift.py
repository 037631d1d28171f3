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

from stormcast.weights import AGENT

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
LIMITS: Final[Mapping[str, float]] = {
    "memory": 4 << 20,
    "journal": 4 << 20,
    "descriptors": 1.0,
    "threads": 1.0,
}
"""By figure: the growth per hour that is none."""
CPU: Final = "cpu"
"""Seconds of CPU for a thousand messages."""
LATENCY: Final = "latency"
"""Seconds from the sending of a message to its delivery, as half of them need."""
SHARE: Final = 0.25
"""Of figures without a limit of their own: the share of the median by which one grows in an hour if
it does not grow."""
FEWEST: Final = 1000
"""Messages of a window from which the CPU for a thousand is known."""
JUDGE: Final = "judge"
"""The name under which a soak weighs itself."""
MESSAGES: Final = "messages"
"""Stands for what has no process: how long messages take."""

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
    limit: float
    """Growth per hour that is none."""

    @property
    def is_known(self) -> bool:
        """Whether enough was weighed, for long enough, to tell."""
        return self.slope.samples >= LEAST and self.hours >= LEAST_HOURS

    @property
    def grows(self) -> bool:
        """Whether it grows, and not by chance."""
        return self.is_known and self.slope.is_above(self.limit)

    def as_json(self) -> dict[str, Any]:
        """Return it as `status.json` has it."""
        return {
            "of": self.of,
            "figure": self.figure,
            "per_hour": round(self.slope.value, 6) if self.slope.samples >= LEAST else None,
            "at_least": round(self.slope.lower, 6) if self.slope.lower > float("-inf") else None,
            "limit": round(self.limit, 6),
            "samples": self.slope.samples,
            "verdict": ("grows" if self.grows else "steady") if self.is_known else "too short",
        }


class _Process:
    """The figures of one process of a soak: the judge, an agent, or a member until it is started
    anew."""

    def __init__(self, of: str, begun: float) -> None:
        self.of = of
        self.begun = begun
        """The second of the soak in which it was weighed first."""
        self.seconds = 0.0
        """Seconds from then until it was weighed last."""
        self.samples: dict[str, list[tuple[float, float]]] = {}
        """By figure: samples that may be compared, each with the second of the soak."""
        self._cpu: tuple[int, float] | None = None
        """The window after which it was weighed last, and the seconds of CPU that it had taken."""

    def add(self, at: float, weight: Mapping[str, float], number: int, messages: int) -> None:
        """Take what it weighed at the end of a window that had so many messages."""
        self.seconds = at - self.begun
        for figure, value in weight.items():
            if figure != CPU:
                self._add(figure, at, value)
                continue
            # What it took in a window is known if it was weighed at the end of the one before.
            before, self._cpu = self._cpu, (number, value)
            if before is not None and before[0] == number - 1 and messages >= FEWEST:
                self._add(CPU, at, 1000 * (value - before[1]) / messages)

    def _add(self, figure: str, at: float, value: float) -> None:
        self.samples.setdefault(figure, []).append((at, value))

    def series(self, figure: str) -> Samples:
        """Return the samples of a figure that count: none of the first quarter of its time."""
        young = self.begun + max(YOUNG_HOURS * HOUR, WARM_UP * self.seconds)
        return [(at / HOUR, value) for at, value in self.samples.get(figure, ()) if at >= young]


def drifts(windows: Sequence[Mapping[str, Any]], latest: int = MOST) -> list[Drift]:
    """Return the drift of each figure, from the lines of `windows.jsonl`, the latest of them. Each
    process is compared with itself alone: one that was started anew begins again with what a young
    process takes."""
    found: dict[tuple[str, str], list[_Process]] = {}
    for process in _processes(windows, latest):
        for figure in process.samples:
            found.setdefault((process.of, figure), []).append(process)
    return [_drift(of, figure, processes) for (of, figure), processes in sorted(found.items())]


def _drift(of: str, figure: str, processes: Sequence[_Process]) -> Drift:
    series = [process.series(figure) for process in processes]
    values = [value for samples in series for _at, value in samples]
    limit = LIMITS.get(figure, SHARE * median(values) if values else 0.0)
    hours = max(process.seconds for process in processes) / HOUR
    return Drift(of, figure, slope_of(*series), hours, limit)


def _processes(windows: Sequence[Mapping[str, Any]], latest: int) -> Collection[_Process]:
    """Return all processes, with their figures of the latest windows."""
    found: dict[tuple[object, ...], _Process] = {}
    at = 0.0
    for number, window in enumerate(windows):
        at += float(window["seconds"])
        messages = int(window.get("sent", 0)) + int(window.get("delivered", 0))
        weights = dict(window.get("weights", {}))
        latency = window.get("costs", {}).get(LATENCY)
        if latency is not None:
            weights[MESSAGES] = {LATENCY: latency}
        is_late = number >= len(windows) - latest
        for who, weight in weights.items():
            # A soak that was resumed is another process, whose members have other pids. By turns
            # other protocols play, and each takes what it takes.
            key = window.get("process"), window.get("runs"), who
            process = found.get(key)
            if process is None:
                process = found[key] = _Process(_kind(who), at)
            process.add(at, weight if is_late else {}, number, messages)
    return found.values()


def _kind(who: str) -> str:
    """Return whose process it is, by the name under which it was weighed."""
    if who in (JUDGE, MESSAGES):
        return who
    return "agents" if who.startswith(AGENT) else "members"
