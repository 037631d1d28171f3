"""Groups: few participants of a merge, a member that never rests, narrow windows, endless lives."""

from __future__ import annotations

from random import Random
from typing import Final

from stormcast.chaos import faults
from stormcast.chaos.campaigns.generate.extras.changes import (
    with_multicast,
    with_protocol,
    with_steps,
    with_unicast,
)
from stormcast.chaos.language.scenario import Scenario
from stormcast.chaos.language.timeline import Step

PIECES: Final = (400, 1000)
"""Bytes of a piece, in groups whose messages come in pieces."""


def few_participants(scenario: Scenario, random: Random) -> Scenario:
    """A merge asks two or three members, however many groups there are."""
    parts = random.choice((2, 3))
    scenario = with_protocol(scenario, "MERGE3", max_participants=parts)
    shape = random.choice(("halves", "random", "isolate-coordinator", "isolate-random"))
    if random.random() < 0.4:
        action = faults.Partition(groups=tuple((name,) for name in scenario.cluster.members))
    else:
        action = faults.Partition(shape=shape)
    at, length = round(random.uniform(2.0, 5.0), 3), round(random.uniform(3.0, 6.0), 3)
    return with_steps(scenario, Step(at=at, action=action, duration=length))


def restless_member(scenario: Scenario, random: Random) -> Scenario:
    """One member restarts again and again while a partition heals, so that views come often."""
    there = [name for name in scenario.cluster.members if name not in scenario.cluster.late]
    one = random.choice(there)
    at = round(random.uniform(2.0, 4.0), 3)
    churn = faults.Churn(members=(one,), every=round(random.uniform(0.5, 1.2), 3))
    return with_steps(
        scenario,
        Step(at=at, action=faults.Partition(shape="halves"), duration=4.0),
        Step(at=at + 2.0, action=churn, duration=round(random.uniform(8.0, 40.0), 3)),
    )


def narrow_window(scenario: Scenario, random: Random) -> Scenario:
    """A member takes no messages while the sender's window is full in bytes, for longer than slow
    members are borne."""
    scenario = with_multicast(
        scenario, window_bytes=4096, slow_member_timeout=random.choice((0.5, 1.0))
    )
    there = [name for name in scenario.cluster.members if name not in scenario.cluster.late]
    slow = random.choice(there)
    action = random.choice((faults.Stall(member=slow), faults.Pause(member=slow)))
    at, length = round(random.uniform(1.5, 4.0), 3), round(random.uniform(2.0, 5.0), 3)
    return with_steps(scenario, Step(at=at, action=action, duration=length))


def endless_lives(scenario: Scenario, random: Random) -> Scenario:
    """Nobody is given up, and messages come in pieces."""
    scenario = with_unicast(scenario, max_retransmit_time=0.0)
    if not scenario.needs or "FRAG" in dict(scenario.cluster.protocols):
        return scenario
    return with_protocol(scenario, "FRAG", frag_size=random.choice(PIECES))


def has_small_messages(scenario: Scenario) -> bool:
    """Whether no message takes minutes through a narrow window."""
    return scenario.largest <= 3_000
