"""The wire: rules for repeats and flags, and a network that is always poor."""

from __future__ import annotations

from dataclasses import replace
from random import Random
from typing import Any, Final

from stormcast.chaos import faults
from stormcast.chaos.campaigns.generate.extras.changes import (
    longer_by,
    never_repairs,
    with_steps,
)
from stormcast.chaos.language.scenario import Scenario
from stormcast.chaos.language.timeline import Step
from stormcast.node.core.match import FLAG_BY_NAME, Match

HELD: Final = 1.0
"""Seconds for which a rule keeps a frame, at most."""
LATER: Final = 1.5
"""Seconds by which a frame of a poor network, or one that a rule kept, may come later."""
LATER_ON_STREAMS: Final = 4.0
"""The same where a kernel repeats what is lost, and all behind it waits."""
SMALL: Final = 3_000
"""Bytes of a message that passes a narrow link at once."""


def rare_rules(scenario: Scenario, random: Random) -> Scenario:
    """One or two rules strike repeats, frames with a flag, or the first seqnos."""
    steps = [_rule(scenario, random) for _ in range(random.randint(1, 2))]
    return with_steps(longer_by(scenario, LATER), *steps)


def _rule(scenario: Scenario, random: Random) -> Step:
    one, other = random.sample(scenario.cluster.members, 2)
    aim: dict[str, Any] = random.choice(
        (
            {"transmission": (1, random.choice((1, 3, 255)))},
            {"flags": (random.choice(tuple(FLAG_BY_NAME)),)},
            {"seqno": (1, random.randint(1, 20))},
        )
    )
    match = Match(
        kinds=random.choice((("DATA",), ("DATA",), (), ("XMIT_REQ",))),
        sources=(one,) if random.random() < 0.6 else (),
        dests=(other,) if random.random() < 0.5 else (),
        **aim,
    )
    # Where nothing is repaired no rule may take a multicast away.
    taking = () if never_repairs(scenario) else ("drop", "corrupt")
    does = random.choice(("delay", "hold", "duplicate", *taking))
    rule = faults.Rule(
        does=does,
        match=match,
        delay=round(random.uniform(0.05, HELD), 3) if does == "delay" else 0.0,
        copies=random.choice((1, 3)) if does == "duplicate" else 1,
        times=random.choice((None, 1, 5)),
    )
    at, length = round(random.uniform(0.0, 7.0), 3), round(random.uniform(0.3, HELD), 3)
    return Step(at=at, action=rule, duration=length)


def poor_network(scenario: Scenario, random: Random) -> Scenario:
    """All links always double, reorder or corrupt some frames, or are narrow."""
    link = scenario.network
    for what in random.sample(("duplicate", "reorder", "corrupt", "bandwidth"), k=2):
        if what == "bandwidth":
            rates = (100_000, 400_000) if scenario.largest <= SMALL else (2_000_000, 4_000_000)
            link = replace(link, bandwidth=float(random.randint(*rates)))
        elif what == "reorder":
            by = round(random.uniform(0.005, 0.3), 3)
            link = replace(link, reorder=round(random.uniform(0.01, 0.2), 3), reorder_by=by)
        elif what == "duplicate":
            link = replace(link, duplicate=round(random.uniform(0.01, 0.2), 3))
        else:
            link = replace(link, corrupt=round(random.uniform(0.01, 0.1), 3))
    is_stream = scenario.cluster.stack.startswith("tcp")
    later = longer_by(scenario, LATER_ON_STREAMS if is_stream else LATER)
    return replace(later, network=link)
