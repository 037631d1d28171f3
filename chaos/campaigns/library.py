"""The scenarios that ship with the rig, and on which stacks and timings each is run.

A file names one stack and one timing; the library runs it wherever else it means the same.
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
from stormcast.node.settings import read_layers

NO_GROUP: Final = "unicast-only"
DATAGRAMS: Final = ("udp", "mcast")
STREAMS: Final = ("tcp", "tcp-nio2", "tcp-no-retransmit")
GROUP_STACKS: Final = (*DATAGRAMS, *STREAMS)
FAMILIES: Final = {"udp": GROUP_STACKS, "tcp": STREAMS}
"""Whoever names the first stack of a family means all of it; any other stack stands for itself."""
BY_HAND: Final = ("storm", "hundred-members")
"""Files that `chaos-test` leaves out: the one has a command of its own, the other is long."""


@dataclass(frozen=True, slots=True)
class Side:
    """A scenario as it is run once."""

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
    """What came of a side."""

    side: Side
    verdict: Verdict
    run: str
    """Its directory."""

    def as_json(self) -> dict[str, str]:
        """A row of `stormcast chaos-test --json`."""
        side = self.side
        return {
            "scenario": side.name,
            "stack" if side.is_group else "unicast": side.kind,
            "timing": side.timing,
            "verdict": str(self.verdict),
            "run": self.run,
        }


def library() -> Iterator[Scenario]:
    """The files that `chaos-test` runs, in order of their names."""
    for one in shipped("."):
        if one.name not in BY_HAND:
            yield one.read()


def has_group(scenario: Scenario) -> bool:
    """Whether its members form a group."""
    return scenario.cluster.stack != NO_GROUP


def kinds_of(scenario: Scenario) -> tuple[str, ...]:
    """The generations of unicast, or the stacks, that a scenario is run on.

    A rule takes chosen frames away, which nothing can do to the frames of a connection: it means
    the same on datagram networks only. And a stack must have the protocols that the file names.
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
    """Protocols that the file sets, changes, or chooses frames of."""
    named = {name for name, _values in scenario.cluster.protocols}
    for step in scenario.timeline:
        if isinstance(step.action, faults.Rule):
            named.update(step.action.match.protocols)
        elif isinstance(step.action, faults.SetAttribute):
            protocol, dot, _setting = step.action.attribute.partition(".")
            named.update({protocol} if dot else ())
    return named


def timings_of(scenario: Scenario) -> tuple[str, ...]:
    """What holds in the slow timing is to hold in the fast one; `timing: fast` says it need not
    in the slow one."""
    fast_only = has_group(scenario) and scenario.cluster.timing == "fast"
    return ("fast",) if fast_only else TIMINGS


def sides_of(scenario: Scenario, timings: Iterable[str] = TIMINGS) -> Iterator[Side]:
    """Every way in which a scenario is run."""
    for timing in timings_of(scenario):
        for kind in kinds_of(scenario) if timing in timings else ():
            of_kind: dict[str, Any] = {"stack" if has_group(scenario) else "unicast": kind}
            cluster = replace(scenario.cluster, timing=timing, **of_kind)
            # The text is what the file says; this side is not what the file says.
            side = replace(scenario, cluster=cluster, text="")
            yield Side(kind, side)


def run_sides(
    sides: Iterable[Side], seed: int, out: Path, workers: int | None = None
) -> Generator[SideResult]:
    """Run all of them, on all cores; results come as they are ready. What runs ends when this is
    closed."""
    work = partial(_run_into, seed, out)
    with (
        ProcessPool(workers or os.cpu_count() or 1) as pool,
        closing(pool.each(work, sides)) as ended,
    ):
        for one in ended:
            assert one is not None
            yield one[1]


def _run_into(seed: int, out: Path, side: Side) -> SideResult:
    return run_side(side, seed, out / side.directory)


def run_side(side: Side, seed: int, out: Path) -> SideResult:
    """Run one, and keep its traces."""
    outcome = run_scenario(side.scenario, seed, out=out)
    return SideResult(side, outcome.verdict, str(out))
