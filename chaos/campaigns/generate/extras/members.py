"""Unicast alone: members that leave, crash, come late or churn, and messages with all flags."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from math import inf
from random import Random
from typing import Final, NamedTuple

from stormcast.chaos import faults
from stormcast.chaos.campaigns.generate.draw import Names
from stormcast.chaos.campaigns.generate.extras.changes import with_steps
from stormcast.chaos.language.scenario import Scenario
from stormcast.chaos.language.timeline import Step
from stormcast.chaos.language.workload import ScenarioLoad
from stormcast.node.member.loads import FLAGS

LATE_SHARE: Final = 0.3
"""The share of scenarios with departures in which a member is late."""
LATEST: Final = 3.0
"""The latest time at which a late member comes."""
ENDING: Final = faults.Crash | faults.Leave
MEETING: Final = 0.2
"""Seconds in which a load sends something."""


def departures(scenario: Scenario, random: Random) -> Scenario:
    """One or two members leave, crash or churn, one of three or more perhaps for good; or a member
    is late. Nobody goes for good where nothing could be sent before."""
    members = scenario.cluster.members
    steps = [_departure(members, random)]
    if len(members) > 2 and random.random() < 0.5:
        steps.append(_departure(members, random, for_good=True))
    if random.random() < LATE_SHARE:
        late = random.choice(members)
        scenario = replace(scenario, cluster=replace(scenario.cluster, late=(late,)))
        # Before anybody goes for good: all messages may be between that member and the late one.
        goes = (step.at for step in steps if _is_for_good(step))
        at = round(random.uniform(0.1, min((LATEST, *goes))), 3)
        steps.append(Step(at=at, action=faults.Join(member=late)))
    changed = with_steps(scenario, *steps)
    absences = tuple(_absences(changed))
    if not any(_can_send(load, absences) for load in changed.workload):
        changed = with_steps(scenario, *(step for step in steps if not _is_for_good(step)))
    return changed


def _is_for_good(step: Step) -> bool:
    return isinstance(step.action, ENDING) and not step.duration


class _Absence(NamedTuple):
    """A time in which a member is away, or is there and does nothing."""

    member: str
    start: float
    end: float
    is_paused: bool = False


def _absences(scenario: Scenario) -> Iterator[_Absence]:
    coming = {
        step.action.member: step.at
        for step in scenario.timeline
        if isinstance(step.action, faults.Join)
    }
    for name in scenario.cluster.late:
        yield _Absence(name, 0.0, coming.get(name, inf))
    for step in scenario.timeline:
        action, end = step.action, step.at + (step.duration or inf)
        if isinstance(action, ENDING):
            yield _Absence(action.member, step.at, end)
        elif isinstance(action, faults.Churn):
            # It comes and goes: half of the time it is away.
            yield from (_Absence(name, step.at, end) for name in action.members)
        elif isinstance(action, faults.Pause):
            yield _Absence(action.member, step.at, end, is_paused=True)


def _can_send(load: ScenarioLoad, absences: Sequence[_Absence]) -> bool:
    """Whether for a while a sender acts and its receiver is there."""
    for sender, receiver in load.pairs():
        begin = load.start
        missing = [
            (one.start, one.end)
            for one in absences
            if one.member == sender or (one.member == receiver and not one.is_paused)
        ]
        for start, end in sorted((*missing, (load.end, inf))):
            if start - begin >= MEETING:
                return True
            begin = max(begin, end)
    return False


def _departure(members: Names, random: Random, *, for_good: bool = False) -> Step:
    """Draw a member's departure, also before it has come."""
    name, at = random.choice(members), round(random.uniform(0.3, 7.5), 3)
    away = None if for_good else round(random.uniform(0.1, 4.0), 3)
    kind = random.choice(("leave", "crash", "churn"))
    if kind == "churn":
        every = round(random.uniform(0.5, 2.0), 3)
        return Step(at=at, action=faults.Churn(members=(name,), every=every), duration=3.0)
    how = faults.Leave if kind == "leave" else faults.Crash
    return Step(at=at, action=how(member=name), duration=away)


def all_flags(scenario: Scenario, random: Random) -> Scenario:
    """Loads have one or two of all flags. The first one is reliable: something must be owed."""
    first, *rest = scenario.workload
    reliable = [name for name in FLAGS if name != "NO_RELIABILITY"]
    loads = [_flagged(first, reliable, random), *(_flagged(one, [*FLAGS], random) for one in rest)]
    return replace(scenario, workload=tuple(loads))


def _flagged(load: ScenarioLoad, names: list[str], random: Random) -> ScenarioLoad:
    return replace(load, flags=tuple(random.sample(names, random.choice((1, 1, 2)))))
