"""Keys of drawn scenarios: some members have one, and some of these change it while they send.

The dice are their own, so that the rest of a scenario is drawn as it is without keys.
"""

from __future__ import annotations

from dataclasses import replace
from random import Random
from typing import Final

from stormcast.chaos import faults
from stormcast.chaos.language.scenario import Scenario
from stormcast.chaos.language.timeline import Step

SEALED_SHARE: Final = 0.15
CHANGE_SHARE: Final = 0.5
"""The shares of scenarios whose members have a key, and of these that change it."""
LATEST: Final = 3.0
"""Seconds until a change begins, at the latest; it ends while there is traffic."""
LEAST_APART: Final = 1.2
MOST_APART: Final = 2.4
"""Seconds between two steps of a change. Members follow a step within a second."""


def with_keys(scenario: Scenario, seed: int, attempt: int) -> Scenario:
    """Return a scenario, or one like it whose members have a key."""
    random = Random(f"stormcast/keys/{seed}/{attempt}")
    if random.random() >= SEALED_SHARE:
        return scenario
    timeline = scenario.timeline
    if random.random() < CHANGE_SHARE:
        timeline = tuple(sorted([*timeline, *_change(random)], key=lambda step: step.at))
    return replace(scenario, cluster=replace(scenario.cluster, sealed=True), timeline=timeline)


def _change(random: Random) -> list[Step]:
    """Draw the three steps of a change."""
    at = random.uniform(0.5, LATEST)
    steps = []
    for word in faults.KEY_STEPS:
        steps.append(Step(at=round(at, 3), action=faults.ChangeKeys(step=word)))
        at += random.uniform(LEAST_APART, MOST_APART)
    return steps
