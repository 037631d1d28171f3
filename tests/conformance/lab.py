"""A small cluster on any backend: the vocabulary of the conformance stories."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from xxhash import xxh3_64_intdigest

from stormcast.chaos.backends.base import Backend, Bites, ClusterPlan, MemberPlan
from stormcast.chaos.backends.sim.backend import SimBackend
from stormcast.chaos.faults import NetworkFault
from stormcast.chaos.language.features import FEATURES
from stormcast.chaos.language.network_state import NetworkState
from stormcast.chaos.oracles.evidence import Evidence
from stormcast.node import trace
from stormcast.node.trace import Event, read_blocks_untrusted
from stormcast.node.trace.tracer import Tracer

NAMES = ("n0", "n1", "n2")
PATIENCE = 30.0
"""Seconds of the backend's clock in which anything that must come has to: a slow machine takes
them."""


@dataclass(frozen=True, kw_only=True)
class Kind:
    """One kind of backend: how to make it, and how to neglect it."""

    make: Callable[[], Backend]
    neglect: Callable[[Backend, float], object] = lambda _backend, seconds: time.sleep(seconds)
    """Let a time pass in which nobody renews anything, as when the controller hangs."""
    why_pauses_last: str = ""
    """Why a pause does not end by itself then, where something else sees to it."""


def _neglect_sim(backend: Backend, seconds: float) -> None:
    assert isinstance(backend, SimBackend)
    engine = backend._world.engine
    engine.run(engine.now + seconds)


def _neglect_pods(backend: Backend, seconds: float) -> None:
    # Its thread only: a renewal by hand must still be possible.
    leases = backend._leases  # type: ignore[attr-defined]
    leases._over.set()
    leases._thread.join()
    time.sleep(seconds)


def _netns() -> Backend:
    from tests.helpers.live import netns  # noqa: PLC0415 only as root

    return netns()


def _kubernetes() -> Backend:
    from stormcast.chaos.backends.kubernetes.backend import KubernetesBackend  # noqa: PLC0415 needs a cluster

    return KubernetesBackend()


def _docker() -> Backend:
    from stormcast.chaos.backends.docker.backend import DockerBackend  # noqa: PLC0415 needs a daemon
    from tests.helpers.containers import features  # noqa: PLC0415 as above

    return DockerBackend(features())


KINDS = {
    "sim": Kind(make=SimBackend, neglect=_neglect_sim),
    "netns": Kind(make=_netns, why_pauses_last="members end with the process that paused them"),
    "docker": Kind(make=_docker, neglect=_neglect_pods),
    "kubernetes": Kind(make=_kubernetes, neglect=_neglect_pods),
}


class Lab:
    """Three members of one cluster, or what a story wants instead."""

    def __init__(self, kind: Kind, folder: Path) -> None:
        self.kind = kind
        self.backend = kind.make()
        self.folder = folder
        self.names = NAMES

    # -- The cluster ---------------------------------------------------------------------------

    def open(
        self, stack: str = "udp", needs: Iterable[str] = FEATURES, names: tuple[str, ...] = NAMES
    ) -> None:
        """A place for each member; nobody runs. What cannot be had here is not asked for."""
        self.names = names
        can = {word for word, why in self.backend.features().items() if why is None}
        config = {"stack": stack, "timing": "fast", "cluster": "conformance"}
        self.backend.open(
            ClusterPlan(
                run="conformance",
                members=tuple(MemberPlan(name=name, config=config) for name in names),
                folder=self.folder,
                needs=frozenset(needs) & can,
            )
        )

    def open_and_start(self, stack: str = "udp") -> None:
        """A group of all, in one view; or without a group, members told of each other."""
        self.open(stack)
        for name in self.names:
            self.backend.start(name)
        if stack == "unicast-only":
            self.wait_until(lambda: all(map(self.is_ready, self.names)), "all are ready")
            self.introduce()
        else:
            self.wait_for_view(*self.names)

    def introduce(self) -> None:
        """Tell everyone of everyone."""
        people = [self.person(name) for name in self.names]
        for name in self.names:
            self.ask(name, "POST", "/peers", {"members": people})

    def need(self, feature: str) -> None:
        """Skip what this backend cannot do here; it says why."""
        why = self.backend.features()[feature]
        if why is not None:
            pytest.skip(f"{self.backend.name} has no {feature}: {why}")

    # -- Members -------------------------------------------------------------------------------

    def ask(self, name: str, method: str, target: str, body: object = None) -> Any:
        return self.backend.ask(name, method, target, body)

    def state(self, name: str) -> Mapping[str, Any]:
        found: Mapping[str, Any] = self.ask(name, "GET", "/state")
        return found

    def person(self, name: str) -> dict[str, str]:
        """A member as commands name it."""
        state = self.state(name)
        return {key: state[key] for key in ("name", "identity", "where")}

    def is_ready(self, name: str) -> bool:
        """Whether a member is in its group, or bound; one that has not begun does not answer."""
        try:
            return bool(self.state(name)["state"] == "connected")
        except Exception as error:
            if type(error).__name__ != "MemberError":
                raise
            return False

    def view(self, name: str) -> tuple[object, frozenset[str]] | None:
        """Id and members of the view that a member holds."""
        if not self.is_ready(name):
            return None
        view = self.state(name)["view"]
        if view is None:
            return None
        return view["id"], frozenset(member["name"] for member in view["members"])

    def wait_for_view(self, *names: str) -> None:
        """Until these hold one view, of just these."""

        def is_one() -> bool:
            views = {self.view(name) for name in names}
            first = next(iter(views))
            return len(views) == 1 and first is not None and first[1] == frozenset(names)

        self.wait_until(is_one, f"one view of {' '.join(names)}")

    def send(self, source: str, count: int = 20, dest: str | None = None) -> None:
        """Have a member send some messages, to the group or to one, and quickly."""
        load: dict[str, object] = {"do": "multicast", "count": count, "rate": "200/s"}
        if dest is not None:
            load |= {"do": "unicast", "to": dest, "from": source}
        self.ask(source, "POST", "/workload", load)

    def received(self, name: str, source: str) -> int:
        """How many messages of another's a member's application has."""
        told: dict[str, int] = self.ask(name, "GET", "/workload")["received_from"]
        return sum(number for who, number in told.items() if who.startswith(f"{source}:"))

    def wait_for(self, count: int, source: str, *dests: str) -> None:
        """Until so many messages of one have arrived."""
        self.wait_until(
            lambda: all(self.received(dest, source) >= count for dest in dests),
            f"{count} messages of {source} at {' '.join(dests)}",
        )

    # -- Time and network ----------------------------------------------------------------------

    def wait(self, seconds: float) -> None:
        self.backend.wait(seconds)

    def wait_until(self, is_done: Callable[[], bool], what: str) -> None:
        assert self.backend.wait(PATIENCE, is_done), f"not within {PATIENCE:g} s: {what}"

    def neglect(self, seconds: float) -> None:
        """A time in which nobody renews anything."""
        self.kind.neglect(self.backend, seconds)

    def apply(self, **faults: NetworkFault) -> None:
        """These faults, and no others, by id."""
        netem = self.backend.features()["netem"] is None
        self.backend.apply(NetworkState(members=self.names, faults=faults, seed=7, netem=netem))

    def bites(self, fault: str) -> Mapping[tuple[str, str], int]:
        found: Bites = self.backend.bites()
        return found.get(fault, {})

    # -- The end -------------------------------------------------------------------------------

    def finish(self) -> Evidence:
        """Freeze, and read what everyone wrote, with the rig's own few words."""
        for name in self.names:
            if self.backend.is_alive(name):
                self.ask(name, "POST", "/gauge", {})
        blocks: list[bytes] = []
        members = self.backend
        quiet = members.now()
        members.freeze()
        collected = dict(members.collect())
        first = next(read_blocks_untrusted(next(iter(collected.values())), xxh3_64_intdigest))
        rig = Tracer(0, first.wall_ns, xxh3_64_intdigest, blocks.append)
        rig.record(trace.PHASE, quiet, text="quiet")
        rig.record(trace.PHASE, members.now(), text="end")
        rig.seal()
        return Evidence.from_blocks({**collected, "rig": b"".join(blocks)}, xxh3_64_intdigest)

    def lives(self, name: str) -> list[list[Event]]:
        """What each incarnation of a member has written so far, the first one first."""
        found = [
            [
                event
                for block in read_blocks_untrusted(data, xxh3_64_intdigest)
                for event in block.events
            ]
            for label, data in self.backend.collect().items()
            if label.startswith(f"{name}-")
        ]
        return sorted(found, key=lambda events: events[0].time)
