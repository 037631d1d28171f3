"""Moves the loads and steps of a failing scenario closer together."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import fields, is_dataclass
from typing import Final

from stormcast.chaos.campaigns.shrink.paths import Path, with_part
from stormcast.chaos.campaigns.shrink.trials import GRID, Trials
from stormcast.chaos.language.scenario import Scenario

MOMENTS: Final = frozenset({"at", "start"})
"""Fields with the time at which something begins; other times are lengths or deadlines."""


def close_gaps(trials: Trials) -> None:
    """Move all that begins from some time on earlier, by the whole, a half or a quarter of the gap
    before it."""
    number = 0
    while number < len(moments := sorted({time for _path, time in _moments(trials.best.scenario)})):
        gap = moments[number] - (moments[number - 1] if number else 0.0)
        for by in (gap, round(gap / 2, GRID), round(gap / 4, GRID)):
            if by > 0 and trials.try_scenario(_earlier(trials.best.scenario, moments[number], by)):
                break
        number += 1


def _moments(scenario: Scenario) -> Iterator[tuple[Path, float]]:
    """Yield the path and the value of each time at which a load or a step begins."""
    for part in fields(scenario):
        entries = getattr(scenario, part.name)
        for number, entry in enumerate(entries if isinstance(entries, tuple) else ()):
            for one in fields(entry) if is_dataclass(entry) else ():
                if one.name in MOMENTS:
                    yield (part.name, number, one.name), getattr(entry, one.name)


def _earlier(scenario: Scenario, since: float, by: float) -> Scenario:
    """Return a scenario with all that begins at `since` or later moved `by` seconds earlier."""
    for path, time in list(_moments(scenario)):
        if time >= since:
            scenario = with_part(scenario, path, max(0.0, round(time - by, 6)))
    return scenario
