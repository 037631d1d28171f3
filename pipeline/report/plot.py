"""The frame of all charts over time: equal widths, one time axis, faults as bands behind marks."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Final

from stormcast.pipeline.measured import Breach, FaultWindow, Metrics
from stormcast.pipeline.report import quantities
from stormcast.pipeline.report.axes import Axes
from stormcast.pipeline.report.markup import Markup, join, number, tag
from stormcast.pipeline.report.scales import Linear

COLOURS: Final = 8
"""The number of members' colours; the ninth member has the colour of the first."""
AXIS: Final = 26.0
"""Pixels for the ticks of time, below a chart."""
TOGETHER: Final = 3.0
"""Violations within so many pixels share a mark."""
MOST_TOLD: Final = 5
"""The most violations that the tooltip of one mark names."""


@dataclass(frozen=True, slots=True)
class Width:
    """One of the widths for each of which a chart is drawn, so that its text is never scaled."""

    name: str
    pixels: float
    left: float
    right: float

    @property
    def plot(self) -> float:
        return self.pixels - self.left - self.right


WIDTHS: Final = (Width("wide", 880.0, 76.0, 12.0), Width("narrow", 400.0, 52.0, 10.0))


@dataclass(frozen=True)
class Plot:
    """The drawing area of one chart over time."""

    name: str
    metrics: Metrics
    width: Width
    top: float
    height: float
    """Height of the part with the marks."""
    has_bands: bool = True

    @cached_property
    def x(self) -> Linear:
        """The scale from time to pixels, the same in all charts of one width."""
        end = self.metrics.grid.end
        return Linear(0.0, end, self.width.left, self.width.pixels - self.width.right)

    @property
    def bottom(self) -> float:
        return self.top + self.height

    @cached_property
    def axes(self) -> Axes:
        return Axes(self.x, self.metrics.grid.end, self.bottom)

    def svg(self, about: str, *marks: Markup | None) -> Markup:
        """Return the chart: bands, marks, and the time axis below."""
        height = self.bottom + AXIS
        return tag(
            "svg",
            tag("title", about),
            self.bands() if self.has_bands else None,
            *marks,
            self.breaches(),
            self.axes.time(),
            tag("line", class_="cross", y1=self.top, y2=self.bottom, x1=0, x2=0),
            xmlns="http://www.w3.org/2000/svg",
            viewBox=f"0 0 {number(self.width.pixels)} {number(height)}",
            class_=f"chart {self.width.name}",
            role="img",
            data_chart=self.name,
            data_left=self.x.start,
            data_right=self.x.end,
            data_end=self.metrics.grid.end,
        )

    def bands(self) -> Markup:
        """Return the faults: bands as long as they last, lines for those that are over at once."""
        return tag("g", *(self._band(fault) for fault in self.metrics.faults), class_="bands")

    def _band(self, fault: FaultWindow) -> Markup:
        start = self.x(fault.start)
        if fault.is_over_at_once:
            return tag("line", class_="instant", x1=start, x2=start, y1=self.top, y2=self.bottom)
        end = self.x(self.metrics.seconds if fault.end is None else fault.end)
        return tag(
            "rect",
            class_="band",
            x=start,
            y=self.top,
            width=max(1.0, end - start),
            height=self.height,
        )

    def breaches(self) -> Markup | None:
        """Return the violations: lines with a tip; violations close together share a line."""
        at: dict[int, list[Breach]] = {}
        for breach in self.metrics.breaches:
            # A violation after the end of the chart is drawn at its edge.
            x = min(max(self.x(breach.at), self.x.start), self.x.end)
            at.setdefault(round(x / TOGETHER), []).append(breach)
        return (
            tag("g", *(self._breach(each) for each in at.values()), class_="breaches")
            if (at)
            else None
        )

    def _breach(self, breaches: Sequence[Breach]) -> Markup:
        x = min(max(self.x(breaches[0].at), self.x.start), self.x.end)
        told = [
            f"{each.guarantee} at {quantities.moment(each.at)}: {each.detail}"
            for each in breaches[:MOST_TOLD]
        ]
        if len(breaches) > MOST_TOLD:
            told.append(f"and {len(breaches) - MOST_TOLD} more")
        left, right, tip = number(x - 4.5), number(x + 4.5), number(self.top + 7)
        return tag(
            "g",
            tag("title", "\n".join(told)),
            tag("line", class_="breach", x1=x, x2=x, y1=self.top, y2=self.bottom),
            tag(
                "path",
                class_="breach-tip",
                d=f"M{left} {number(self.top)}H{right}L{number(x)} {tip}Z",
            ),
        )

    def steps(self, values: Sequence[float], y: Linear) -> str:
        """Return the path of values per bin, level within each bin."""
        width = self.metrics.grid.width
        path, before = [f"M{number(self.x(0.0))} {number(y(0.0))}"], None
        for at, value in enumerate(values):
            if value != before:
                path.append(f"H{number(self.x(at * width))}V{number(y(value))}")
                before = value
        return "".join([*path, f"H{number(self.x.end)}"])

    def closed(self, values: Sequence[float], y: Linear) -> str:
        """Return the area below the path of `steps`."""
        return f"{self.steps(values, y)}V{number(y(0.0))}Z"

    def between(self, lower: Sequence[float], upper: Sequence[float], y: Linear) -> str:
        """Return the area between two paths, for the bins in which they differ."""
        width, path = self.metrics.grid.width, []
        for first, last in _runs([low != high for low, high in zip(lower, upper, strict=True)]):
            over = _edge(range(first, last), upper, lambda at: self.x(at * width), y)
            under = _edge(
                range(last - 1, first - 1, -1), lower, lambda at: self.x((at + 1) * width), y
            )
            ends = number(self.x(last * width)), number(self.x(first * width))
            path.append(f"M{over}H{ends[0]}L{under}H{ends[1]}Z")
        return "".join(path)


def _runs(wanted: Iterable[bool]) -> list[tuple[int, int]]:
    """Return the runs of consecutive true values: the first index, and one after the last."""
    runs: list[tuple[int, int]] = []
    for at, is_wanted in enumerate(wanted):
        if is_wanted and runs and runs[-1][1] == at:
            runs[-1] = runs[-1][0], at + 1
        elif is_wanted:
            runs.append((at, at + 1))
    return runs


def _edge(
    bins: Iterable[int], values: Sequence[float], x: Callable[[float], float], y: Linear
) -> str:
    path: list[str] = []
    before = None
    for at in bins:
        if values[at] != before:
            here = number(x(at)), number(y(values[at]))
            path.append(f"{here[0]} {here[1]}" if before is None else f"H{here[0]}V{here[1]}")
            before = values[at]
    return "".join(path)


def colour(names: Sequence[str], name: str) -> str:
    """Return the CSS class with a member's colour, the same in every chart."""
    return f"m{names.index(name) % COLOURS}" if name in names else "nobody"


def legend(width: Width, *entries: tuple[str, str], top: float = 14.0) -> Markup:
    """Return a legend: marks and their names, in one line that ends at the right."""
    sizes = [len(text) * 5.9 + 38 for _class, text in entries]
    at = width.pixels - width.right - sum(sizes) + 18
    parts = []
    for (class_, text), size in zip(entries, sizes, strict=True):
        parts.append(
            tag("rect", class_=f"k-{class_}", x=at, y=top - 9, width=14.0, height=9.0, rx=1.5)
        )
        parts.append(tag("text", text, class_="label", x=at + 20, y=top))
        at += size
    return join(*parts)
