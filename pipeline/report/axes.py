"""The two axes of a chart over time, with the lines and words beside them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from stormcast.pipeline.report import quantities, scales
from stormcast.pipeline.report.markup import Markup, join, tag
from stormcast.pipeline.report.scales import Linear

PIXELS_PER_TICK: Final = 85.0


@dataclass(frozen=True, slots=True)
class Axes:
    """Time from 0 to `end` below a chart, and values at its left."""

    x: Linear
    """The scale of time; it may go on after the end."""
    end: float
    bottom: float

    def time(self) -> Markup:
        """Return the time axis with its ticks."""
        wanted = int((self.x.end - self.x.start) / PIXELS_PER_TICK)
        marks = [
            tag(
                "text",
                scales.time_label(at, self.end),
                class_="tick",
                x=self.x(at),
                y=self.bottom + 17,
                text_anchor="start" if not at else "middle",
            )
            for at in scales.time_ticks(self.x.high, wanted)
            if at < self.end * 0.985 or not at
        ]
        return join(self._line("base", self.bottom), *marks)

    def values(self, y: Linear, wanted: int = 3) -> Markup:
        """Return the hairlines and values of the vertical axis."""
        parts = []
        for value in scales.ticks(y.high, wanted):
            if value:
                parts.append(self.hairline(y(value)))
            parts.append(self.tick(y(value), quantities.significant(value)))
        return join(*parts)

    def hairline(self, at: float) -> Markup:
        """Return a faint line across the chart."""
        return self._line("hair", at)

    def tick(self, at: float, text: str) -> Markup:
        """Return a value beside the axis."""
        return tag("text", text, class_="tick", x=self.x.start - 8, y=at + 4, text_anchor="end")

    def _line(self, class_: str, at: float) -> Markup:
        return tag("line", class_=class_, x1=self.x.start, x2=self.x(self.end), y1=at, y2=at)
