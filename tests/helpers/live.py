"""What no user of the fixtures needs, for tests of groups in network namespaces."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from typing import Any

from stormcast.chaos.backends.netns.backend import NetnsBackend, features_here
from stormcast.chaos.backends.netns.commands import member_argv
from stormcast.chaos.backends.netns.members import Argv
from stormcast.chaos.backends.netns.process import Process
from stormcast.chaos.oracles.evidence import Evidence
from stormcast.chaos.plugin.live_cluster import LiveCluster
from stormcast.node.trace import CONFIRMED, SUSPECT, SUSPECTED

ENDLESS = 10**7
"""Messages of a load that lasts until it is stopped."""
AS_SHIPPED: dict[str, dict[str, dict[str, object]]] = {
    "udp": {"UDP": {"bundler": "transfer-queue", "offload": "auto"}}
}
"""By stack: protocols as users have them. `cluster` has each datagram carry one frame, so that any
fault strikes single frames, unless a test says otherwise."""


@cache
def _features() -> Mapping[str, str | None]:
    """Found out once: it takes a second."""
    return features_here()


def netns(argv: Argv = member_argv) -> NetnsBackend:
    """A backend whose members are started with these words."""
    return NetnsBackend(_features(), argv)


def process(group: LiveCluster, name: str) -> Process:
    """The newest incarnation of a member."""
    backend = group.session.backend
    assert isinstance(backend, NetnsBackend)
    return backend.opened.members.processes[name]


def stats(group: LiveCluster, name: str) -> dict[str, Any]:
    """A member's counters."""
    found: dict[str, Any] = group.state(name)["stats"]
    return found


def short_of(group: LiveCluster, name: str) -> int:
    """The short id of a member."""
    return int(group.state(name)["short"], 16)


def label(group: LiveCluster, name: str) -> str:
    """A member as others list it."""
    return f"{name}:{short_of(group, name):x}"


def talk(group: LiveCluster, *sources: str) -> None:
    """Have these, or all, send a bit of everything to all, until they are stopped."""
    chosen = sources or "all"
    group.multicast(ENDLESS, chosen, rate="60/s", size="16B..2KiB", oob_every=10)
    group.unicast(ENDLESS, chosen, rate="15/s", size="16B..2KiB")


def suspicions(evidence: Evidence, suspect: int) -> list[str]:
    """Who held a member for dead."""
    return [
        f"{member.label} at {event.time:.3f}"
        for member in evidence.members.values()
        for event in member.events
        if event.kind == SUSPECT
        and event.peer == suspect
        and event.stream in (SUSPECTED, CONFIRMED)
    ]
