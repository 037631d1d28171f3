"""Two soaks or runs side by side, as `stormcast compare` tells of them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from math import ceil
from statistics import median
from typing import Any, Final

from stormcast.pipeline.report.run_files import rank

MOST: Final = 240
"""The most places of a chart: of more windows, those that follow each other share one."""


@dataclass(frozen=True, slots=True)
class Side:
    """A soak, or a run."""

    path: str
    is_soak: bool
    whole: str
    """The verdict on all of it."""
    facts: Mapping[str, str]
    verdicts: Sequence[str]
    """Of each window, or of the run."""
    windows: Sequence[int]
    """The number of each window; of a run it means nothing."""


@dataclass(frozen=True, slots=True)
class Spread:
    """A figure of one side."""

    text: str
    """The median and its interval, as the table prints them."""
    middle: float | None
    interval: tuple[float, float] | None
    """None: there are too few values for one."""
    values: Sequence[float | None]
    """A value of each window, or that of the run; None: it has none."""


@dataclass(frozen=True, slots=True)
class Figure:
    """One figure of both sides."""

    name: str
    spreads: tuple[Spread, Spread]
    ratio: str
    """The second median by the first, as the table prints it; empty: there is none."""

    @property
    def is_of_both(self) -> bool:
        return all(spread.middle is not None for spread in self.spreads)


@dataclass(frozen=True)
class Comparison:
    """All that the page shows."""

    warnings: Sequence[str]
    sides: tuple[Side, Side]
    figures: Sequence[Figure]
    of_neither: Sequence[str]
    """Figures that no side has."""

    @property
    def is_of_soaks(self) -> bool:
        return all(side.is_soak for side in self.sides)

    @cached_property
    def places(self) -> Places:
        """The places of the windows of both sides on one axis."""
        numbers = [number for side in self.sides for number in side.windows]
        return Places(min(numbers), max(numbers))


@dataclass(frozen=True, slots=True)
class Places:
    """Places on an axis of windows, which go from `first` to `last`."""

    first: int
    last: int

    @property
    def shared(self) -> int:
        """How many windows share a place."""
        return ceil((self.last - self.first + 1) / MOST)

    @property
    def count(self) -> int:
        return ceil((self.last - self.first + 1) / self.shared)

    def medians(self, side: Side, values: Sequence[float | None]) -> dict[int, float]:
        """Return by place the median of the values there; without values there is none."""
        found: dict[int, list[float]] = {}
        for number, value in zip(side.windows, values, strict=True):
            if value is not None:
                found.setdefault(self.place(number), []).append(value)
        return {place: median(those) for place, those in sorted(found.items())}

    def verdicts(self, side: Side) -> dict[int, str]:
        """Return by place the worst verdict of the windows there."""
        found: dict[int, str] = {}
        for number, verdict in zip(side.windows, side.verdicts, strict=True):
            place = self.place(number)
            found[place] = min((found.get(place, verdict), verdict), key=rank)
        return found

    def place(self, number: int) -> int:
        return (number - self.first) // self.shared


def read_comparison(told: Mapping[str, Any]) -> Comparison:
    """Read what `stormcast compare` tells of two sides."""
    first, second = map(_side, told["sides"])
    return Comparison(
        warnings=tuple(map(str, told["warnings"])),
        sides=(first, second),
        figures=tuple(map(_figure, told["figures"])),
        of_neither=tuple(map(str, told["of_neither"])),
    )


def _side(told: Mapping[str, Any]) -> Side:
    return Side(
        path=str(told["path"]),
        is_soak=bool(told["is_soak"]),
        whole=str(told["whole"]),
        facts={str(name): str(fact) for name, fact in told["facts"].items()},
        verdicts=tuple(str(part["verdict"]) for part in told["parts"]),
        windows=tuple(int(part["number"]) for part in told["parts"]),
    )


def _figure(told: Mapping[str, Any]) -> Figure:
    first, second, ratio = map(str, told["cells"])
    values, more_values = told["by_part"]
    return Figure(
        name=str(told["figure"]),
        spreads=(
            _spread(first, told["first"], values),
            _spread(second, told["second"], more_values),
        ),
        ratio=ratio,
    )


def _spread(text: str, told: Mapping[str, Any], values: Iterable[float | None]) -> Spread:
    interval = told["interval"]
    return Spread(
        text=text,
        middle=_number(told["median"]),
        interval=None if interval is None else (float(interval[0]), float(interval[1])),
        values=tuple(map(_number, values)),
    )


def _number(value: float | None) -> float | None:
    return None if value is None else float(value)
