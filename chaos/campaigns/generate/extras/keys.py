"""Members have a key, and some of these groups change it while they send."""

from __future__ import annotations

from dataclasses import replace
from random import Random
from typing import Final

from stormcast.chaos import faults
from stormcast.chaos.campaigns.generate.extras.changes import with_steps
from stormcast.chaos.language.scenario import Scenario
from stormcast.chaos.language.timeline import Step

CHANGE_SHARE: Final = 0.5
"""The share of scenarios with keys that change them."""
LATEST: Final = 3.0
"""Seconds until a change begins, at the latest; it ends while there is traffic."""
LEAST_APART: Final = 1.2
MOST_APART: Final = 2.4
"""Seconds between two steps of a change. Members follow a step within a second."""


def keys(scenario: Scenario, random: Random) -> Scenario:
    """Return a scenario like it whose members have a key."""
    scenario = replace(scenario, cluster=replace(scenario.cluster, sealed=True))
    return with_steps(scenario, *_change(random)) if random.random() < CHANGE_SHARE else scenario


def _change(random: Random) -> list[Step]:
    """Draw the three steps of a change."""
    at = random.uniform(0.5, LATEST)
    steps = []
    for word in faults.KEY_STEPS:
        steps.append(Step(at=round(at, 3), action=faults.ChangeKeys(step=word)))
        at += random.uniform(LEAST_APART, MOST_APART)
    return steps
