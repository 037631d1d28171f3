"""Later: faults that begin after the usual ones, and messages after the last fault has ended."""

from __future__ import annotations

from dataclasses import replace
from random import Random
from typing import Final

from stormcast.chaos import faults
from stormcast.chaos.campaigns.generate import unicast
from stormcast.chaos.campaigns.generate.draw import Draw
from stormcast.chaos.campaigns.generate.extras.changes import (
    never_repairs,
    remembering_for,
    with_loads,
    with_steps,
)
from stormcast.chaos.campaigns.generate.groups.dice import GroupDraw
from stormcast.chaos.campaigns.generate.groups.kinds import KINDS
from stormcast.chaos.campaigns.generate.groups.lifetimes import frame_life
from stormcast.chaos.language.plots import TRAFFIC_SECONDS
from stormcast.chaos.language.scenario import Scenario
from stormcast.chaos.language.timeline import Step
from stormcast.chaos.language.workload import ScenarioLoad
from stormcast.node.member.loads import FLAGS

EARLIEST, LATEST = 8.5, 16.0
"""Seconds at which a late step begins: the usual ones have begun by 8 s."""
SENT_UNTIL: Final = 20.0
WAVE_SECONDS: Final = 1.0
"""Seconds that each load of a second wave takes."""
GROUP_KINDS: Final = tuple(kind for kind in KINDS if kind != "join")
"""All but joins of late members, which have joined by then."""
MARGIN: Final = 2.0
"""Seconds for which a removed connection is remembered after its last frame may come."""


def second_wave(scenario: Scenario, random: Random) -> Scenario:
    """Messages are sent again once the last step has ended, or is about to: over connections that
    were idle, or have ended."""
    end = max((step.at + (step.duration or 0.0) for step in scenario.timeline), default=0.0)
    starts = [max(end, TRAFFIC_SECONDS) + random.uniform(-1.0, 3.0) for _ in range(2)]
    loads = [_load(scenario, random, round(start, 3), WAVE_SECONDS) for start in starts]
    return with_loads(scenario, *loads)


def late_steps(scenario: Scenario, random: Random) -> Scenario:
    """One to three faults begin after the usual ones, while messages are sent."""
    draw_step = _of_group if scenario.needs else _of_unicast
    times = [round(random.uniform(EARLIEST, LATEST), 3) for _ in range(random.randint(1, 3))]
    steps = draw_step(scenario, random, times)
    loads = [_load(scenario, random, EARLIEST, SENT_UNTIL - EARLIEST) for _ in range(2)]
    return with_loads(with_steps(_patient(scenario, steps), *steps), *loads)


def _load(scenario: Scenario, random: Random, start: float, length: float) -> ScenarioLoad:
    """Draw a load of some messages over `length` seconds: of groups mostly multicasts."""
    members = scenario.cluster.members
    is_multicast = bool(scenario.needs) and random.random() < 0.6
    source, dest = random.sample(members, 2)
    count = random.randint(1, 60)
    return ScenarioLoad(
        do="multicast" if is_multicast else "unicast",
        sources=(source,),
        dests=members if is_multicast else (dest,),
        excludes_self=not is_multicast,
        count=count,
        rate=round(count / length, 3),
        # A stack may take no larger messages than the ones before.
        size=(16, min(scenario.largest, random.choice((16, 100, 1000)))),
        start=start,
        burst=random.choice((1, 5)),
        flags=random.choice(((), (), (random.choice(tuple(FLAGS)),))),
    )


def _busy(scenario: Scenario) -> tuple[tuple[str, str], ...]:
    return tuple(
        (load.sources[0], load.dests[0])
        for load in scenario.workload
        if load.do == "unicast" and load.sources != load.dests
    )


def _of_unicast(scenario: Scenario, random: Random, times: list[float]) -> list[Step]:
    draw = Draw(random, scenario.cluster.members)
    draw.busy = _busy(scenario)
    kinds = random.choices(tuple(unicast.KINDS), k=len(times))
    steps = []
    for at, kind in zip(times, kinds, strict=True):
        length = draw.seconds(0.3, 4.0) if kind in unicast.LASTING else None
        action = unicast.KINDS[kind](draw)
        steps.append(Step(at=at, action=action, duration=length))
        if isinstance(action, faults.InstallView):
            back = replace(action, members=draw.members)
            steps.append(Step(at=round(at + draw.seconds(0.0, 3.0), 3), action=back))
    return steps


def _of_group(scenario: Scenario, random: Random, times: list[float]) -> list[Step]:
    draw = _group_draw(scenario, random)
    kinds = random.choices(GROUP_KINDS, k=len(times))
    return [replace(KINDS[kind](draw), at=at) for at, kind in zip(times, kinds, strict=True)]


def _group_draw(scenario: Scenario, random: Random) -> GroupDraw:
    """Return the dice for further steps of a group. Nobody else may go for good."""
    cluster = scenario.cluster
    draw = GroupDraw(random, cluster.members, cluster.stack)
    draw.busy, draw.late, draw.spare = _busy(scenario), cluster.late, 0
    draw.switches = never_repairs(scenario)
    return draw


def _patient(scenario: Scenario, steps: list[Step]) -> Scenario:
    """Have connections remembered, and alarms wait, for longer than the steps keep a frame."""
    if not scenario.needs:
        return scenario
    draw = _group_draw(scenario, Random(0))
    draw.steps = [*scenario.timeline, *steps]
    return remembering_for(scenario, round(frame_life(draw) + MARGIN, 3))
