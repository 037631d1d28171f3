"""The scenarios that ship with the rig, and the stacks and timings on which each is run.

A file names one stack and one timing; the library also runs it on all others for which the scenario
means the same.
"""

from __future__ import annotations

import os
from collections.abc import Generator, Iterable, Iterator
from contextlib import closing
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any, Final

from stormcast.chaos import faults
from stormcast.chaos.campaigns.pool import ProcessPool
from stormcast.chaos.language.cluster import GENERATIONS, TIMINGS
from stormcast.chaos.language.scenario import Scenario
from stormcast.chaos.language.shipped import shipped
from stormcast.chaos.oracles.verdict import Verdict
from stormcast.chaos.session.runner import run_scenario
from stormcast.node.keys.cluster_keys import ClusterKey
from stormcast.node.settings import read_layers

NO_GROUP: Final = "unicast-only"
DATAGRAMS: Final = ("udp", "mcast")
STREAMS: Final = ("tcp", "tcp-nio2", "tcp-no-retransmit")
GROUP_STACKS: Final = (*DATAGRAMS, *STREAMS)
FAMILIES: Final = {"udp": GROUP_STACKS, "tcp": STREAMS}
"""By stack named in a file: the stacks it stands for. A stack not listed stands for itself."""
BY_HAND: Final = ("storm", "hundred-members")
"""Files that `chaos-test` leaves out: the first has a command of its own, the second takes long."""


@dataclass(frozen=True, slots=True)
class Side:
    """A scenario for one run: on one generation or stack, in one timing."""

    kind: str
    """The generation of unicast, or the stack of the group."""
    scenario: Scenario

    @property
    def name(self) -> str:
        return self.scenario.name

    @property
    def timing(self) -> str:
        return self.scenario.cluster.timing

    @property
    def is_group(self) -> bool:
        return has_group(self.scenario)

    @property
    def directory(self) -> str:
        return f"{self.name}-{self.kind.lower()}-{self.timing}"


@dataclass(frozen=True, slots=True)
class SideResult:
    """The result of the run of a side."""

    side: Side
    verdict: Verdict
    run: str
    """The run directory."""

    def as_json(self) -> dict[str, str]:
        """Return the row of `stormcast chaos-test --json`."""
        side = self.side
        return {
            "scenario": side.name,
            "stack" if side.is_group else "unicast": side.kind,
            "timing": side.timing,
            "verdict": str(self.verdict),
            "run": self.run,
        }


def library() -> Iterator[Scenario]:
    """Yield the scenarios that `chaos-test` runs, in order of their names."""
    for one in shipped("."):
        if one.name not in BY_HAND:
            yield one.read()


def has_group(scenario: Scenario) -> bool:
    """Whether a scenario's members form a group."""
    return scenario.cluster.stack != NO_GROUP


def kinds_of(scenario: Scenario) -> tuple[str, ...]:
    """Return the generations of unicast, or the stacks, that a scenario is run on.

    A rule selects single frames, which cannot be done to the frames of a connection: a scenario for
    `udp` with rules is run on datagrams only. And a stack must have the protocols that the file
    names.
    """
    stack = scenario.cluster.stack
    if stack == NO_GROUP:
        return GENERATIONS
    family = FAMILIES.get(stack, (stack,))
    if stack == "udp" and any(isinstance(step.action, faults.Rule) for step in scenario.timeline):
        family = DATAGRAMS
    named = _protocols_named(scenario)
    return tuple(kind for kind in family if named <= {name for name, _ in read_layers(kind)})


def _protocols_named(scenario: Scenario) -> set[str]:
    """Return the protocols whose settings the file sets or changes, or whose frames it selects."""
    named = {name for name, _values in scenario.cluster.protocols}
    for step in scenario.timeline:
        if isinstance(step.action, faults.Rule):
            named.update(step.action.match.protocols)
        elif isinstance(step.action, faults.SetAttribute):
            protocol, dot, _setting = step.action.attribute.partition(".")
            named.update({protocol} if dot else ())
    return named


def timings_of(scenario: Scenario) -> tuple[str, ...]:
    """Return the timings that a scenario is run in: all, but for a group scenario with
    `timing: fast`, which need not hold in the slower timing."""
    fast_only = has_group(scenario) and scenario.cluster.timing == "fast"
    return ("fast",) if fast_only else TIMINGS


def sides_of(scenario: Scenario, timings: Iterable[str] = TIMINGS) -> Iterator[Side]:
    """Yield a side for every timing and every generation or stack that a scenario is run in."""
    for timing in timings_of(scenario):
        for kind in kinds_of(scenario) if timing in timings else ():
            of_kind: dict[str, Any] = {"stack" if has_group(scenario) else "unicast": kind}
            cluster = replace(scenario.cluster, timing=timing, **of_kind)
            # Drop the original text, so that the run directory stores the changed scenario.
            side = replace(scenario, cluster=cluster, text="")
            yield Side(kind, side)


def run_sides(
    sides: Iterable[Side],
    seed: int,
    out: Path,
    workers: int | None = None,
    keys: tuple[ClusterKey, ...] = (),
) -> Generator[SideResult]:
    """Run all sides, on all cores; yields results as they are ready. Closing the generator ends the
    runs. With `keys` all members seal by them, but where a scenario changes its members' keys."""
    work = partial(_run_into, seed, out, keys)
    with (
        ProcessPool(workers or os.cpu_count() or 1) as pool,
        closing(pool.each(work, sides)) as ended,
    ):
        for one in ended:
            assert one is not None
            yield one[1]


def _run_into(seed: int, out: Path, keys: tuple[ClusterKey, ...], side: Side) -> SideResult:
    return run_side(side, seed, out / side.directory, keys)


def run_side(side: Side, seed: int, out: Path, keys: tuple[ClusterKey, ...] = ()) -> SideResult:
    """Run one side, and keep its run directory."""
    scenario = side.scenario
    if keys and not scenario.changes_keys:
        outcome = run_scenario(scenario.with_keys(), seed, out=out, keys=keys)
    else:
        outcome = run_scenario(scenario, seed, out=out)
    return SideResult(side, outcome.verdict, str(out))
