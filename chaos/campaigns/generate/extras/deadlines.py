"""Deadlines: by when a group is one again, and all that was sent has arrived."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from math import inf
from random import Random
from typing import Final

from stormcast.chaos import faults
from stormcast.chaos.language.scenario import Scenario
from stormcast.chaos.language.timeline import Step
from stormcast.chaos.language.workload import Expect, ExpectView, ScenarioLoad

REGROUPED: Final = 120.0
"""Seconds from the last step to one view of all: twice what the slowest settings that are drawn
promise (58 s), merges in vain included."""
LIVES: Final = frozenset({"conn_expiry_timeout", "max_retransmit_time"})
"""Settings of unicast that, where they are short, end a connection with what it still holds."""
LONGEST: Final = 30.0
"""Seconds that a step may last: in longer ones a connection may end by the usual settings."""
STARTING: Final = (faults.Restart, faults.Join, faults.Crash, faults.Leave, faults.Churn)
"""Steps that start a member, if only when they end."""
GOING: Final = (faults.Leave, faults.Crash, faults.Churn, faults.Join)
"""Steps by which a member of unicast alone is away for a while."""
CALM: Final = (
    faults.Restart,
    faults.Join,
    faults.Crash,
    faults.Leave,
    faults.Delay,
    faults.Duplicate,
    faults.Reorder,
    faults.Stall,
    faults.SetAttribute,
    faults.ChangeKeys,
)
"""Steps through which one who is started is heard."""
SOON: Final = 0.1
"""Seconds that a frame may be under way to or from one who is started: it asks who is there, asks
to be let in, proves its address, and becomes a group of its own after half a second in vain."""
MCAST: Final = "mcast"
"""The stack whose senders suspect a member that takes nothing (`slow_member_timeout`)."""
NARROW: Final = frozenset({"window_bytes", "window_messages"})
"""Settings of multicast that bound what may be under way."""
HOLD_BACK: Final = frozenset({"max_credits", "max_open_bytes", "max_open_messages"})
"""Settings of other protocols that do so: credits, and what may be open of messages in pieces."""
FINDS_LESS: Final = frozenset({"max_rank_to_reply", "max_join_attempts"})
"""Settings by which one who is started hears of nobody while the coordinator that died is still in
the view of the others, or is told too late."""


def deadlines(scenario: Scenario, _random: Random) -> Scenario:
    """All that is sent arrives, and in a group all members hold one view: that by the time that the
    settings promise, the rest before the run must be over, as a narrow window takes minutes."""
    members, limit = scenario.cluster.members, scenario.limits.run
    expect: list[Expect | ExpectView] = [Expect(by=limit, sources=members, dests=members)]
    if scenario.needs:
        by = min(limit, round(_last(scenario) + REGROUPED, 3))
        expect.append(ExpectView(by=by, seen_by=members, view=members))
    return replace(scenario, expect=tuple(expect))


def gives_nothing_up(scenario: Scenario) -> bool:
    """Whether nobody has a reason to give a message up, everybody is there at the end, and no load
    is for its sender alone."""
    cluster = scenario.cluster
    lives = {name for name, seconds in cluster.settings if seconds} & LIVES
    if "queue_frames" in _set_of_protocols(scenario):
        # Where few frames leave in a turn, what is for one member may wait until it is given up.
        return False
    is_lossy = any("NO_RELIABILITY" in load.flags for load in scenario.workload)
    if lives or is_lossy or cluster.stack == "tcp-no-retransmit":
        return False
    if scenario.needs and scenario.network.can_lose:
        # Enough heartbeats may be lost in a row: then a group parts although no fault acts.
        return False
    if not scenario.needs and any(isinstance(step.action, GOING) for step in scenario.timeline):
        # What was sent to a member that went is owed to nobody, yet G8 counts it as sent.
        return False
    if not all(_keeps_all(step) and comes_back(step, scenario) for step in scenario.timeline):
        return False
    return not scenario.needs or (_finds_its_group(scenario) and _is_sent_to_all(scenario))


def _set_of_protocols(scenario: Scenario) -> set[str]:
    """Return the names of the settings of protocols that a scenario sets."""
    return {name for _protocol, values in scenario.cluster.protocols for name, _ in values}


def _keeps_all(step: Step) -> bool:
    """Whether a step has nobody give messages up."""
    action = step.action
    if isinstance(action, faults.SetAttribute):
        name = action.attribute.rpartition(".")[2]
        return name not in LIVES and not (name == "xmit_interval" and action.value == 0)
    is_losing = isinstance(action, faults.Forget | faults.Close | faults.InstallView)
    return not is_losing and (step.duration or 0.0) <= LONGEST


def comes_back(step: Step, scenario: Scenario) -> bool:
    """Whether a step ends nobody for good."""
    action = step.action
    if not isinstance(action, faults.Crash | faults.Leave) or step.duration is not None:
        return True
    return any(
        isinstance(other.action, faults.Restart | faults.Join)
        and other.action.member == action.member
        and action.member in scenario.cluster.members
        and other.at > step.at
        for other in scenario.timeline
    )


def _finds_its_group(scenario: Scenario) -> bool:
    """Whether whoever is started finds the others at once: else it may be alone for the rest of its
    load, which then owes nobody anything."""
    actions = [step.action for step in scenario.timeline]
    starts = [action for action in actions if isinstance(action, STARTING)]
    if not starts:
        return True
    if _set_of_protocols(scenario) & FINDS_LESS or len(starts) > 1:
        return False
    return all(isinstance(action, CALM) for action in actions) and _under_way(scenario) <= SOON


def _under_way(scenario: Scenario) -> float:
    """Return the most seconds that a frame is under way, by the network and by delays."""
    late = [0.0]
    for step in scenario.timeline:
        if isinstance(step.action, faults.Delay):
            late.append(step.action.delay + step.action.jitter)
        elif isinstance(step.action, faults.Reorder):
            late.append(step.action.by)
    link = scenario.network
    return link.delay + link.jitter + link.reorder_by + max(late)


def _is_sent_to_all(scenario: Scenario) -> bool:
    """Whether each load of multicasts begins to be sent while all members are in one view: one that
    is sent when some are away is never for these. Where few messages are sent at a time, a load
    waits for those before it, however early it begins."""
    loads = [load for load in scenario.workload if load.do == "multicast"]
    parted = min((step.at for step in scenario.timeline if _may_part(step, scenario)), default=inf)
    if parted < inf and _has_queue(loads) and _sends_few(scenario):
        return False
    return all(load.start < parted for load in loads)


def _has_queue(loads: Sequence[ScenarioLoad]) -> bool:
    """Whether some member sends several of these loads."""
    sources = [source for load in loads for source in load.sources]
    return len(sources) > len(set(sources))


def _sends_few(scenario: Scenario) -> bool:
    """Whether less may be under way than by default."""
    is_narrow = any(name in NARROW for name, _value in scenario.cluster.multicast_settings)
    return is_narrow or bool(_set_of_protocols(scenario) & HOLD_BACK)


def _may_part(step: Step, scenario: Scenario) -> bool:
    """Whether a step may part the group: MCAST suspects a member that takes nothing, too."""
    if isinstance(step.action, faults.Stall):
        return scenario.cluster.stack == MCAST
    return not isinstance(step.action, CALM)


def _last(scenario: Scenario) -> float:
    """Return the time at which the last step has ended, and the last load."""
    steps = (step.at + (step.duration or 0.0) for step in scenario.timeline)
    return max((*steps, *(load.end for load in scenario.workload)), default=0.0)
