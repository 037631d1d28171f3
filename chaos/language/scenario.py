"""Scenario files: the cluster, its faults and what must hold, from YAML to dataclasses and back.

A file means the same on every backend, or is refused with file, line and column: unknown keys,
missing units, names that no member has, times beyond the run.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from itertools import chain
from pathlib import Path
from typing import Final

from stormcast.chaos.faults import ChangeKeys, Link, Names
from stormcast.chaos.language.cluster import CLUSTER, GENERATIONS, Cluster
from stormcast.chaos.language.timeline import (
    WORDS,
    Step,
    actions,
    check_timeline,
    read_step,
    write_step,
)
from stormcast.chaos.language.workload import (
    Expect,
    ExpectView,
    ScenarioLoad,
    check_expectations,
    check_workload,
    expect_notation,
    load_notation,
)
from stormcast.node.member.loads import LOADS
from stormcast.node.reading.items import Item
from stormcast.node.reading.notations import (
    POSITIVE_TIME,
    TEXT,
    TIME,
    Notation,
    Plain,
    list_of,
    quantity,
    some_of,
    whole,
    word,
)
from stormcast.node.reading.parsing import MAX_BYTES, decode
from stormcast.node.reading.quantities import BANDWIDTH, RATIO, SHARE, SIZE
from stormcast.node.reading.shapes import Key, Shape
from stormcast.node.reading.writing import flow
from stormcast.node.reading.yaml_nodes import compose
from stormcast.node.settings import is_path

__all__ = [
    "GENERATIONS",
    "GUARANTEES",
    "NEEDS",
    "Budget",
    "Cluster",
    "Expect",
    "ExpectView",
    "Limits",
    "Link",
    "Scenario",
    "ScenarioLoad",
    "Step",
    "dump",
    "load_scenario",
    "parse_scenario",
]

GUARANTEES: Final = (
    *(f"G{n}" for n in range(1, 9)),
    "A1",
    *(f"V{n}" for n in range(1, 5)),
    "C1",
    "L1",
    "S1",
    "T1",
)
NEEDS: Final = tuple(dict.fromkeys([*LOADS, "stream", "clock-skew", *WORDS.values()]))
"""The needs that a file may name: kinds of load, kinds of fault, and those that no key implies."""

_NAME: Final = re.compile(r"[a-z0-9][a-z0-9-]{0,79}")


@dataclass(frozen=True, slots=True, kw_only=True)
class Budget:
    """The most control traffic that is acceptable; None: not judged."""

    acks: float | None = None
    """Acks per data message."""
    resends: float | None = None
    """Messages sent again per data message."""
    syncs: int | None = None
    requests: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """The limits of a run."""

    run: float = 60.0
    """Seconds in which workload, timeline and expectations must be over."""
    settle: float = 20.0
    """Seconds that the healed cluster has to settle after the last of them; more, if its group may
    take longer to regroup."""
    trace: int = 200 << 20
    """Bytes of trace, over all members."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Scenario:
    """One scenario file."""

    name: str
    about: str = ""
    guarantees: Names = ("G1", "G2", "G3", "G4", "G5", "G6", "G7", "C1", "L1")
    """Ids of docs/guarantees.md."""
    needs: Names = ()
    cluster: Cluster
    network: Link = field(default_factory=Link)
    """Every directed link at the start."""
    workload: tuple[ScenarioLoad, ...] = ()
    timeline: tuple[Step, ...] = ()
    expect: tuple[Expect | ExpectView, ...] = ()
    budget: Budget | None = None
    limits: Limits = field(default_factory=Limits)
    path: str = field(default="", compare=False)
    text: str = field(default="", compare=False)
    """The file as it was written."""

    @property
    def largest(self) -> int:
        """The size of the largest message that a load may send."""
        return max((load.size[1] for load in self.workload), default=0)

    @property
    def changes_keys(self) -> bool:
        """Whether a step changes the members' keys, so that a file of keys would be changed."""
        return any(isinstance(step.action, ChangeKeys) for step in self.timeline)

    def with_keys(self) -> Scenario:
        """Return the scenario with members that have a key."""
        if self.cluster.sealed:
            return self
        # Drop the original text, so that the run directory stores the changed scenario.
        return replace(self, cluster=replace(self.cluster, sealed=True), text="")


def load_scenario(path: str | Path) -> Scenario:
    """Read a scenario file."""
    with Path(path).open("rb") as file:
        content = file.read(MAX_BYTES + 1)
    scenario = parse_scenario(decode(content, str(path)), str(path))
    stack = scenario.cluster.stack
    if not is_path(stack):
        return scenario
    # A path is relative to the scenario file, not to where the command runs.
    found = str((Path(path).parent / stack).resolve())
    return replace(scenario, cluster=replace(scenario.cluster, stack=found))


def parse_scenario(text: str, path: str = "<text>") -> Scenario:
    """Read a scenario from the text of its file; raises nothing but ConfigError."""
    root = compose(text, path, "scenario")
    if root.has("guests"):
        raise root.peek("guests").error(
            "guests: this command plays members only; stormcast run plays a file with guests"
        )
    found = {key.name: value for key, value in root.pairs()}
    # These two first: names and times are checked against them.
    cluster = CLUSTER.read(root.peek("cluster"))
    limits = LIMITS.read(found["limits"]) if "limits" in found else Limits()
    scenario: Scenario = _scenario(cluster.members, limits.run).read(root)
    return replace(scenario, needs=_needs(scenario), path=path, text=text)


def dump(scenario: Scenario) -> str:
    """Return the text of a file that reads as an equal scenario."""
    shape = _scenario(scenario.cluster.members, scenario.limits.run)
    return "".join(chain.from_iterable(map(_lines, shape.write(scenario).items())))


def _lines(entry: tuple[str, Plain]) -> Iterator[str]:
    key, value = entry
    if key in ("workload", "timeline", "expect") and isinstance(value, list):
        yield f"{key}:\n"
        yield from (f"  - {flow(part)}\n" for part in value)
    else:
        yield f"{key}: {flow(value)}\n"


def _needs(scenario: Scenario) -> Names:
    """Return the needs that the file names, and those that its loads imply."""
    implied = [load.do for load in scenario.workload if load.do == "multicast"]
    return tuple(dict.fromkeys([*scenario.needs, *implied]))


# -- The shapes of the file ------------------------------------------------------------------


_SHARE: Final = quantity(SHARE)


LEAST_BANDWIDTH: Final = 1000.0
"""Bytes per second that a network which is always narrow lets pass at least."""


def _check_network(item: Item, link: Link) -> None:
    if bool(link.reorder) != bool(link.reorder_by):
        raise item.error(
            "network: reorder and reorder_by need each other: a share, and how late; add the other"
        )
    for name, share in (("loss", link.loss), ("corrupt", link.corrupt)):
        if share >= 1:
            raise item.error(
                f"network: {name} of 100%: nothing would ever arrive; write less, or have a step "
                "of the timeline take all for a while"
            )
    if link.bandwidth is not None and link.bandwidth < LEAST_BANDWIDTH:
        raise item.error(
            f"network: a bandwidth below {LEAST_BANDWIDTH:g}B/s lets hardly anything arrive; write "
            "more, or have a step of the timeline narrow it for a while"
        )


NETWORK: Final = Shape(
    Link,
    {
        "delay": Key("delay", TIME, 0.001),
        "jitter": Key("jitter", TIME, 0.0),
        "loss": Key("loss", _SHARE, 0.0),
        "duplicate": Key("duplicate", _SHARE, 0.0),
        "reorder": Key("reorder", _SHARE, 0.0),
        "reorder_by": Key("reorder_by", TIME, 0.0),
        "corrupt": Key("corrupt", _SHARE, 0.0),
        "bandwidth": Key("bandwidth", quantity(BANDWIDTH, above_zero=True), None),
    },
    _check_network,
)


def _check_budget(item: Item, budget: Budget) -> None:
    if budget == Budget():
        raise item.error("budget: it judges nothing; give acks, resends, syncs or requests")


BUDGET: Final = Shape(
    Budget,
    {
        "acks": Key("acks", quantity(RATIO), None),
        "resends": Key("resends", quantity(RATIO), None),
        "syncs": Key("syncs", whole(0), None),
        "requests": Key("requests", whole(0), None),
    },
    _check_budget,
)
LIMITS: Final = Shape(
    Limits,
    {
        "run": Key("run", POSITIVE_TIME, 60.0),
        "settle": Key("settle", TIME, 20.0),
        "trace": Key("trace", quantity(SIZE, above_zero=True), 200 << 20),
    },
)


def _scenario(members: Names, run: float) -> Shape:
    """Return the shape of the whole file, given its members and the limit of the run."""
    shapes = actions(members)
    step = Notation(
        lambda item: read_step(item, shapes),
        lambda step: write_step(step, shapes),
    )

    def check(item: Item, scenario: Scenario) -> None:
        found = {key.name: value.items() for key, value in item.pairs() if value.is_list()}
        check_workload(zip(found.get("workload", ()), scenario.workload, strict=True), run)
        steps = zip(found.get("timeline", ()), scenario.timeline, strict=True)
        check_timeline(steps, run, scenario.cluster.late, sealed=scenario.cluster.sealed)
        check_expectations(
            zip(found.get("expect", ()), scenario.expect, strict=True), scenario.workload, run
        )

    return Shape(
        Scenario,
        {
            "name": Key("name", word(_NAME, "use small letters, digits and dashes")),
            "about": Key("about", TEXT, ""),
            "guarantees": Key("guarantees", some_of(GUARANTEES, "guarantee", at_least=1)),
            "needs": Key("needs", some_of(NEEDS, "need"), ()),
            "cluster": Key("cluster", CLUSTER.notation()),
            "network": Key("network", NETWORK.notation(), Link()),
            "workload": Key("workload", list_of(load_notation(members)), ()),
            "timeline": Key("timeline", list_of(step), ()),
            "expect": Key("expect", list_of(expect_notation(members)), ()),
            "budget": Key("budget", BUDGET.notation(), None),
            "limits": Key("limits", LIMITS.notation(), Limits()),
        },
        check,
    )
