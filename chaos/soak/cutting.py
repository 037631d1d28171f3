"""Cuts a piece out of a soak: windows one after the other, as a scenario from a fresh start."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import NamedTuple

from stormcast.chaos.language.scenario import Scenario
from stormcast.chaos.soak.directory import Kept
from stormcast.node.core.errors import ConfigError
from stormcast.node.reading.quantities import DURATION


class Placed(NamedTuple):
    """A window, and the seconds of the soak in which it was played: of one that broke off none."""

    number: int
    start: float
    end: float


def placed(kept: Kept) -> list[Placed]:
    """Return all windows, each at its time."""
    found, at = [], 0.0
    for window in kept.windows:
        end = round(at + float(window["seconds"]), 3)
        found.append(Placed(int(window["window"]), at, end))
        at = end
    return found


def chosen(kept: Kept, start: float, end: float) -> list[Placed]:
    """Return the windows of a stretch of time; ConfigError if there are none."""
    windows = placed(kept)
    found = [one for one in windows if one.start < end and (one.end > start or one.start >= start)]
    if not found:
        last = DURATION.write(round(windows[-1].end, 3) if windows else 0.0)
        raise ConfigError(f"no window was played in that time: the soak is {last} long")
    return found


def cut(kept: Kept, windows: Sequence[Placed]) -> Scenario:
    """Return windows as one scenario. It begins with a fresh cluster, where in the soak it was an
    old one."""
    parts = list(_parts(kept, windows))
    first = parts[0][1]
    for one, (_at, scenario) in zip(windows, parts, strict=True):
        if scenario.cluster != first.cluster:
            raise ConfigError(
                f"window {one.number} is of another turn than window {windows[0].number}: a "
                "scenario has one cluster; choose a stretch of one turn"
            )
    numbers = f"{windows[0].number}-{windows[-1].number}"
    return replace(
        first,
        name=f"{kept.storm.name}-{numbers}",
        about=f"Windows {numbers} of a soak, seed {kept.seed}.",
        workload=tuple(
            replace(load, start=round(load.start + at, 3))
            for at, scenario in parts
            for load in scenario.workload
        ),
        timeline=tuple(
            replace(step, at=round(step.at + at, 3))
            for at, scenario in parts
            for step in scenario.timeline
        ),
        limits=replace(first.limits, run=first.limits.run * len(parts)),
    )


def _parts(kept: Kept, windows: Sequence[Placed]) -> Iterator[tuple[float, Scenario]]:
    """Yield the scenario of each window, and when it begins in the piece. One that broke off has
    the time of its storm: when it did nobody knows."""
    at = 0.0
    for one in windows:
        yield at, kept.storm.scenario(kept.seed, one.number)
        at += one.end - one.start or kept.storm.window
