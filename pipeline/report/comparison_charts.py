"""The charts of two sides: a median with its interval of each, values and verdicts by window.

The first side is round and its line whole, the second is square and its line dashed: colour alone
never tells them apart. For the same reason a worse verdict is a higher bar.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Final

from stormcast.pipeline.report import quantities, scales
from stormcast.pipeline.report.axes import PIXELS_PER_TICK, Axes
from stormcast.pipeline.report.comparison import Comparison, Figure, Places, Spread
from stormcast.pipeline.report.markup import Markup, join, number, tag
from stormcast.pipeline.report.page import tone
from stormcast.pipeline.report.plot import AXIS, Width
from stormcast.pipeline.report.run_files import HOLDS, UNKNOWN, VIOLATED
from stormcast.pipeline.report.scales import Linear

LETTERS: Final = ("A", "B")
CLASSES: Final = ("first-side", "second-side")
_ROW: Final = 40.0
"""Pixels for the words and the whisker of one side."""
_CAP: Final = 5.0
"""Half the length of the line at each end of a whisker."""
_BARS: Final[Mapping[str, float]] = {HOLDS: 8.0, UNKNOWN: 16.0, VIOLATED: 24.0}
"""The height of a verdict's bar in pixels; any other verdict is as unknown."""
_STRIP: Final = 32.0
"""Pixels from one strip of verdicts to the next."""
_HALF_NUMBER: Final = 30.0
"""Pixels for half of a number below an axis."""
_MILLION: Final = 1_000_000
_SMALL_FROM: Final = 60
"""Above so many places dots are small: others would cover each other."""
_GAP_FROM: Final = 3.0
"""Bars of so many pixels have a hairline between them."""


def mark(side: int, x: float, y: float, size: float = 5.0) -> Markup:
    """Return the mark of a side: a disc, or a square."""
    if side == 0:
        return tag("circle", class_=f"mark {CLASSES[side]}", cx=x, cy=y, r=size)
    edge = 1.8 * size
    corner = x - edge / 2, y - edge / 2
    return tag(
        "rect",
        class_=f"mark {CLASSES[side]}",
        x=corner[0],
        y=corner[1],
        width=edge,
        height=edge,
    )


def sign(side: int) -> Markup:
    """Return the mark of a side, for a line of text."""
    return tag(
        "svg",
        mark(side, 8.0, 8.0, 6.0),
        viewBox="0 0 16 16",
        class_="sign",
        aria_hidden="true",
        xmlns="http://www.w3.org/2000/svg",
    )


def medians(figure: Figure, width: Width) -> Markup:
    """Return both medians with their intervals on one axis, which begins at 0."""
    bottom = 2 * _ROW
    most = max(_greatest(spread) for spread in figure.spreads)
    x = Linear(0.0, scales.round_up(most), width.left, width.pixels - width.right - _CAP)
    rows = [_whisker(side, spread, x, side * _ROW) for side, spread in enumerate(figure.spreads)]
    about = "; ".join(
        f"{letter}: {spread.text}" for letter, spread in zip(LETTERS, figure.spreads, strict=True)
    )
    return _svg(width, bottom + AXIS, f"{figure.name}. {about}", *_values_below(x, bottom), *rows)


def _greatest(spread: Spread) -> float:
    """Return the greatest value that a row shows."""
    high = spread.interval[1] if spread.interval is not None else 0.0
    return max(high, spread.middle or 0.0)


def _whisker(side: int, spread: Spread, x: Linear, top: float) -> Markup:
    assert spread.middle is not None
    y = top + _ROW - 13.0
    line = None
    if spread.interval is not None:
        low, high = (number(x(value)) for value in spread.interval)
        caps = "".join(f"M{at} {number(y - _CAP)}v{number(2 * _CAP)}" for at in (low, high))
        line = tag("path", class_=f"whisker {CLASSES[side]}", d=f"M{low} {number(y)}H{high}{caps}")
    return tag(
        "g",
        tag("text", LETTERS[side], class_="label", x=x.start - 16, y=y + 4, text_anchor="end"),
        tag("text", spread.text, class_="label in-front", x=x.start, y=top + 13),
        line,
        mark(side, x(spread.middle), y),
    )


def _values_below(x: Linear, bottom: float) -> Iterator[Markup]:
    yield tag("line", class_="base", x1=x.start, x2=x.end, y1=bottom, y2=bottom)
    for value in scales.ticks(x.high, int((x.end - x.start) / PIXELS_PER_TICK)):
        at = x(value)
        yield tag("line", class_="hair", x1=at, x2=at, y1=0.0, y2=bottom)
        # At the right edge there is no room for half of a long number.
        anchor = "middle" if x.end - at > _HALF_NUMBER else "end"
        yield tag("text", _tick(value), class_="tick", x=at, y=bottom + 17, text_anchor=anchor)


def _tick(value: float) -> str:
    """Format a value beside an axis, where seven digits have no room."""
    if value < _MILLION:
        return quantities.significant(value)
    return f"{quantities.significant(value / _MILLION)}{quantities.THIN_SPACE}million"


def course(compared: Comparison, figure: Figure, width: Width) -> Markup:
    """Return the values of both sides, window by window."""
    chart = _Windows(compared.places, width, top=24.0, height=110.0)
    found = [
        compared.places.medians(side, spread.values)
        for side, spread in zip(compared.sides, figure.spreads, strict=True)
    ]
    most = max(value for values in found for value in values.values())
    y = Linear(0.0, scales.round_up(most), chart.bottom, chart.top)
    return chart.svg(
        f"{figure.name}, by window",
        *chart.values(y),
        *(chart.line(side, values, y) for side, values in enumerate(found)),
        *_key_of_sides(width),
    )


def strips(compared: Comparison, width: Width) -> Markup:
    """Return the verdicts of both sides, window by window, one strip above the other."""
    chart = _Windows(compared.places, width, top=24.0, height=2 * _STRIP)
    bars: list[Markup] = []
    for number_, side in enumerate(compared.sides):
        base = chart.top + (number_ + 1) * _STRIP
        bars.append(chart.axes.tick(base - 8.0, LETTERS[number_]))
        if number_ == 0:
            bars.append(chart.axes.hairline(base))
        found = compared.places.verdicts(side)
        bars += [chart.bar(LETTERS[number_], place, found[place], base) for place in found]
    return chart.svg("Verdict of each window", *bars, *_key_of_verdicts(width))


@dataclass(frozen=True)
class _Windows:
    """A chart over the windows of two soaks, of one width."""

    places: Places
    width: Width
    top: float
    height: float

    @property
    def bottom(self) -> float:
        return self.top + self.height

    @cached_property
    def x(self) -> Linear:
        """The scale from places to pixels; that of a place ends where the next one begins."""
        right = self.width.pixels - self.width.right
        return Linear(0.0, float(self.places.count), self.width.left, right)

    @cached_property
    def axes(self) -> Axes:
        return Axes(self.x, self.x.high, self.bottom)

    def svg(self, about: str, *marks: Markup) -> Markup:
        height = self.bottom + AXIS
        # The axis is first: a mark at 0 is seen before it.
        return _svg(self.width, height, about, *self._numbers(), *marks)

    def values(self, y: Linear) -> Iterator[Markup]:
        """Yield the hairlines and values at the left."""
        for value in scales.ticks(y.high, 3):
            if value:
                yield self.axes.hairline(y(value))
            yield self.axes.tick(y(value), _tick(value))

    def line(self, side: int, values: Mapping[int, float], y: Linear) -> Markup:
        """Return a line from each place to the next, and a dot at each; a place without a value is
        a gap."""
        path, dots = [], []
        for place, value in values.items():
            here = f"{number(self.x(place + 0.5))} {number(y(value))}"
            path.append(f"{'L' if place - 1 in values else 'M'}{here}")
            dots.append(f"M{here}h0")
        class_ = CLASSES[side]
        small = " small" if self.places.count > _SMALL_FROM else ""
        return join(
            tag("path", class_=f"line {class_}", d="".join(path)),
            tag("path", class_=f"dots {class_}{small}", d="".join(dots)),
        )

    def bar(self, letter: str, place: int, verdict: str, base: float) -> Markup:
        """Return the verdict of a place: the worse, the higher."""
        left, right = self.x(place), self.x(place + 1)
        height = _BARS.get(verdict, _BARS[UNKNOWN])
        return tag(
            "rect",
            tag("title", f"{letter}, {self._name(place)}: {verdict}"),
            class_=f"window {tone(verdict)}",
            x=left,
            y=base - height,
            width=right - left - (1.0 if right - left > _GAP_FROM else 0.0),
            height=height,
        )

    def _name(self, place: int) -> str:
        first = self.places.first + place * self.places.shared
        last = min(first + self.places.shared - 1, self.places.last)
        return f"window {first}" if first == last else f"windows {first} to {last}, at worst"

    def _numbers(self) -> Iterator[Markup]:
        """Yield the axis, with the numbers of some windows."""
        yield tag(
            "line", class_="base", x1=self.x.start, x2=self.x.end, y1=self.bottom, y2=self.bottom
        )
        # The words stand where the number of the first window would.
        yield tag("text", "window", class_="tick", x=0.0, y=self.bottom + 17)
        wanted = (self.x.end - self.x.start) / PIXELS_PER_TICK
        first, last = self.places.first, self.places.last
        step = max(1, round(scales.step_for((last - first + 1) / wanted)))
        for window in range(first, last + 1, step):
            yield tag(
                "text",
                quantities.count(window),
                class_="tick",
                x=self.x(self.places.place(window) + 0.5),
                y=self.bottom + 17,
                text_anchor="middle",
            )


def _svg(width: Width, height: float, about: str, *marks: Markup) -> Markup:
    return tag(
        "svg",
        tag("title", about),
        *marks,
        xmlns="http://www.w3.org/2000/svg",
        viewBox=f"0 0 {number(width.pixels)} {number(height)}",
        class_=f"chart {width.name}",
        role="img",
    )


def _key_of_sides(width: Width) -> Iterator[Markup]:
    at = width.pixels - width.right - 70.0
    for side, letter in enumerate(LETTERS):
        yield mark(side, at + 40.0 * side, 8.0, 4.0)
        yield tag("text", letter, class_="label", x=at + 40.0 * side + 9.0, y=12.0)


def _key_of_verdicts(width: Width) -> Iterator[Markup]:
    at = width.pixels - width.right - 215.0
    for verdict, height in _BARS.items():
        # As on the strips, in half the size.
        top = 13.0 - height / 2
        yield tag(
            "rect", class_=f"window {tone(verdict)}", x=at, y=top, width=10.0, height=height / 2
        )
        yield tag("text", verdict, class_="label", x=at + 15.0, y=13.0)
        at += 30.0 + 6.5 * len(verdict)
