"""What is played by both: scenarios with a group, on the stacks that both have."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final

from stormcast.chaos.backends.base import Unsupported
from stormcast.chaos.campaigns.library import has_group, library
from stormcast.chaos.language.scenario import Scenario
from stormcast.chaos.language.shipped import shipped
from stormcast.chaos.language.workload import ScenarioLoad
from stormcast.chaos.peers.jgroups_backend import with_jgroups
from stormcast.chaos.peers.jgroups_member import STACKS
from stormcast.chaos.session.plans import cluster_plan

JUDGED: Final = ("G1", "G2", "G3", "G4", "G8", "A1", "V1", "V2", "V3", "V4")
"""What an application can see. All other guarantees speak of frames, acks and windows."""
PATIENCE: Final = 40.0
"""Seconds that a run may last longer than its file says, so that what is repaired late has time to
be. What has to be there by when is said by `expect`, and stays as it is."""
BUNDLED: Final = (("UDP", (("bundler", "transfer-queue"), ("offload", "never"))),)
"""Settings of Stormcast's UDP: frames share datagrams, as they do when nothing is struck, and as
JGroups' do. And each datagram is a packet of its own, or a fault would strike several at once."""
_FLAGS: Final = frozenset({"OOB"})
"""The flags of messages that both have, and that mean the same."""
_LEAST_BYTES: Final = 16
"""A message of JGroups' member is known by so many bytes of it."""


@dataclass(frozen=True, slots=True)
class Contest:
    """One scenario on one stack, for both."""

    scenario: Scenario
    stack: str

    @property
    def name(self) -> str:
        return self.scenario.name


@dataclass(frozen=True, slots=True)
class LeftOut:
    """A scenario that is not played, and why."""

    name: str
    why: str


def group_scenarios() -> Iterator[Scenario]:
    """Yield the scenarios with a group: the short ones, then the library."""
    short = (one.read() for one in shipped("live"))
    yield from (one for one in (*short, *library()) if has_group(one))


def contests(
    words: Iterable[str], features: Mapping[str, str | None]
) -> tuple[list[Contest], list[LeftOut]]:
    """Return what is played, on a machine with these features, and what is not. `words`: only
    scenarios with one of them in their name; none: all."""
    wanted = tuple(words)
    played, left_out = [], []
    for scenario in group_scenarios():
        if wanted and not any(word in scenario.name for word in wanted):
            continue
        if why := _means_nothing(scenario):
            left_out.append(LeftOut(scenario.name, why))
            continue
        for stack in STACKS:
            contest = Contest(on_stack(scenario, stack), stack)
            if why := _lacks(contest, features):
                left_out.append(LeftOut(f"{scenario.name} on {stack}", why))
            else:
                played.append(contest)
    return played, _summed_up(left_out)


def on_stack(scenario: Scenario, stack: str) -> Scenario:
    """Return a scenario in fast timing on a stack, judged by what an application sees."""
    protocols = BUNDLED if stack == "udp" else ()
    cluster = replace(
        scenario.cluster, timing="fast", stack=stack, max_batch=None, protocols=protocols
    )
    judged = tuple(name for name in scenario.guarantees if name in JUDGED)
    limits = replace(
        scenario.limits,
        run=scenario.limits.run + PATIENCE,
        settle=max(scenario.limits.settle, PATIENCE),
    )
    # The run directory keeps the changed scenario, not the text of the file.
    return replace(
        scenario, cluster=cluster, guarantees=judged, limits=limits, budget=None, text=""
    )


def _means_nothing(scenario: Scenario) -> str:
    """Return why a scenario means nothing for members that are not Stormcast's; empty: it does."""
    cluster = scenario.cluster
    sets = [name for name, _values in cluster.protocols]
    sets += ["unicast"] * bool(cluster.settings or cluster.unicast)
    sets += ["multicast"] * bool(cluster.multicast_settings)
    if sets or cluster.outbox_bytes:
        return f"the file sets {', '.join(sets) or 'outbox_bytes'} of Stormcast's own stack"
    if any(_is_foreign(load) for load in scenario.workload):
        return "its messages have flags, or are too short, that JGroups' member does not send"
    return ""


def _is_foreign(load: ScenarioLoad) -> bool:
    return bool({*load.flags} - _FLAGS) or load.size[0] < _LEAST_BYTES


def _lacks(contest: Contest, features: Mapping[str, str | None]) -> str:
    """Return what one of the two lacks for a contest; empty: nothing."""
    for there in (features, with_jgroups(features)):
        try:
            cluster_plan(contest.scenario, 1, "x", Path(), there)
        except Unsupported as refusal:
            return str(refusal).removeprefix(f"{contest.name} ")
    return ""


def _summed_up(left_out: list[LeftOut]) -> list[LeftOut]:
    """Say once what is so on all stacks."""
    found: dict[str, list[str]] = {}
    for one in left_out:
        found.setdefault(one.name.partition(" on ")[0], []).append(one.why)
    whole = {name for name, whys in found.items() if len(whys) == len(STACKS)}
    once = [LeftOut(name, whys[0]) for name, whys in found.items() if name in whole]
    rest = [one for one in left_out if one.name.partition(" on ")[0] not in whole]
    return sorted([*once, *rest], key=lambda one: one.name)
