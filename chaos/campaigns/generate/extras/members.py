"""Unicast alone: members that leave, crash, come late or churn, and messages with all flags."""

from __future__ import annotations

from dataclasses import replace
from random import Random
from typing import Final

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


def departures(scenario: Scenario, random: Random) -> Scenario:
    """One or two members leave, crash or churn, one of three or more perhaps for good; or a member
    is late."""
    members = scenario.cluster.members
    steps = [_departure(members, random)]
    if len(members) > 2 and random.random() < 0.5:
        steps.append(_departure(members, random, for_good=True))
    if random.random() < LATE_SHARE:
        late = random.choice(members)
        scenario = replace(scenario, cluster=replace(scenario.cluster, late=(late,)))
        # Before anybody goes for good: all messages may be between that member and the late one.
        goes = (step.at for step in steps if isinstance(step.action, ENDING) and not step.duration)
        at = round(random.uniform(0.1, min((LATEST, *goes))), 3)
        steps.append(Step(at=at, action=faults.Join(member=late)))
    return with_steps(scenario, *steps)


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
