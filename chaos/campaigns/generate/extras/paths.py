"""Paths: a round trip that takes tenths of a second, and cuts of minutes under lasting loss."""

from __future__ import annotations

from dataclasses import replace
from random import Random
from typing import Final

from stormcast.chaos import faults
from stormcast.chaos.campaigns.generate.extras.changes import (
    longer_by,
    with_protocol,
    with_steps,
    with_unicast,
)
from stormcast.chaos.faults import Link
from stormcast.chaos.language.scenario import Scenario
from stormcast.chaos.language.timeline import Step

LONGER: Final = 1.5
"""Seconds by which a frame may come later over a long path: for as much longer a removed connection
is remembered, and an alarm waits."""
MERGED: Final = 2.0
"""Seconds for which the leader of a merge waits at least: within a round trip nobody can answer."""
NUMBERS_REPEAT_AFTER: Final = 128.0
"""Seconds of repeats, at one every half second, after which their numbers begin again."""
LONGEST_RUN: Final = 900.0
"""Seconds that a run may take: a small window empties slowly after a cut."""
NEVER_SUSPECTED: Final = 600.0
"""Seconds of silence after which a member is suspected, in groups that keep their view."""


def long_paths(scenario: Scenario, random: Random) -> Scenario:
    """Messages are under way for up to a fifth of a second."""
    link = Link(
        delay=round(random.uniform(0.03, 0.2), 3), jitter=random.choice((0.0, 0.0, 0.02, 0.1))
    )
    scenario = replace(scenario, network=link)
    scenario = longer_by(scenario, LONGER)
    merge = dict(dict(scenario.cluster.protocols).get("GMS", ())).get("merge_timeout")
    if isinstance(merge, float):
        scenario = with_protocol(scenario, "GMS", merge_timeout=max(MERGED, merge))
    return scenario


def long_cut(scenario: Scenario, random: Random) -> Scenario:
    """A member does not reach another one for more than two minutes, and the network always loses
    frames: repeats that shared one number would share one fate. Half of the groups keep their
    view."""
    source, dest = _talking(scenario, random)
    at = round(random.uniform(2.0, 6.0), 3)
    length = round(NUMBERS_REPEAT_AFTER + random.uniform(5.0, 30.0), 3)
    link = replace(scenario.network, loss=round(random.uniform(0.05, 0.25), 3))
    limits = replace(scenario.limits, run=max(scenario.limits.run, LONGEST_RUN))
    scenario = replace(scenario, network=link, limits=limits)
    scenario = with_unicast(scenario, max_retransmit_time=0.0)
    if scenario.needs and random.random() < 0.5:
        scenario = with_protocol(scenario, "FD_ALL3", timeout=NEVER_SUSPECTED)
    cut = faults.Cut(sources=(source,), dests=(dest,))
    return with_steps(scenario, Step(at=at, action=cut, duration=length))


def _talking(scenario: Scenario, random: Random) -> tuple[str, str]:
    """Draw a member and another one: where there are unicasts, from the one to the other."""
    pairs = [
        (load.sources[0], load.dests[0])
        for load in scenario.workload
        if load.do == "unicast" and load.sources[0] != load.dests[0]
    ]
    if pairs:
        return random.choice(pairs)
    source, dest = random.sample(scenario.cluster.members, 2)
    return source, dest
