"""Guests that are pods of a cluster: struck where they are, by an agent in each, and neither
started nor ended. A thread asks the cluster for them again and again."""

from __future__ import annotations

import threading
import time
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from stormcast.chaos.attack.on_pods import NO_PAUSE
from stormcast.chaos.attack.pod_agents import PodAgents, chosen_image
from stormcast.chaos.attack.targets import PodName, TargetError
from stormcast.chaos.backends.base import BackendError
from stormcast.chaos.backends.kubernetes.any_pods import AnyPods, NoSuchPodError
from stormcast.chaos.guests.found import OthersGuest, OthersNetworks, first_of
from stormcast.node.core.errors import NodeError
from stormcast.node.core.names import one_line

EVERY_SECONDS: Final = 0.5
SILENCE_SECONDS: Final = 10.0
"""A cluster that says nothing of a pod for so long ends the run: nobody knows whether it lives."""


class FoundPods(OthersNetworks):
    """The pods of a run, as a lab uses them."""

    def __init__(self, targets: Mapping[str, str]) -> None:
        super().__init__(targets)
        self._watch: PodWatch | None = None

    def make(self) -> None:
        """Find all guests; BackendError if one is not there, or cannot be told from another."""
        self.find()
        pods: dict[PodName, str] = {}
        for name in self.found:
            if (other := pods.setdefault(self.pod(name), name)) != name:
                raise BackendError(f"{name} and {other} are one pod; name another for one of them")
        self._watch = PodWatch(self.finder.pods.cluster, {name: pod for pod, name in pods.items()})
        self._watch.start()

    def agent(self, _folder: Path) -> PodAgents:
        """Return what does faults to their networks."""
        return PodAgents(self.finder.pods.cluster, self.targets(), chosen_image())

    def guest(self, name: str, folder: Path) -> PodGuest:
        """Return a guest as a lab uses it."""
        return PodGuest(name, self.found[name].what, self.watch, folder)

    def remove(self) -> None:
        """Let go of them."""
        if self._watch is not None:
            self._watch.stop()
        super().remove()

    @property
    def watch(self) -> PodWatch:
        """What the cluster says of them."""
        assert self._watch is not None, "they were found"
        return self._watch

    def pod(self, name: str) -> PodName:
        """Return the pod that a guest is."""
        pod = self.found[name].pod
        assert pod is not None, "the guests of a lab are all pods, or none is"
        return pod

    def address(self, name: str) -> str:
        """Return the address of a guest."""
        return first_of(self.pod(name).addresses)

    def inside(self, _name: str, argv: Sequence[str]) -> tuple[str, ...]:
        """Return the words that run a program: on this machine, for nobody starts one in a pod."""
        return tuple(argv)


@dataclass(frozen=True, slots=True)
class Said:
    """What the cluster said of a pod, once."""

    asked: float
    answered: float
    """Times on the machine's clock."""
    ended: str
    """Why it is not the pod any more that was found; empty: it is."""
    conditions: Mapping[str, bool]


class PodWatch:
    """Asks the cluster for some pods, in a thread of its own."""

    def __init__(self, cluster: AnyPods, pods: Mapping[str, PodName]) -> None:
        self._cluster = cluster
        self._pods = pods
        self._said: dict[str, Said] = {}
        self._restarts: dict[str, int] = {}
        """How often containers of each had been started anew when it was first seen."""
        self._trouble = ""
        self._is_over = threading.Event()
        self._thread = threading.Thread(target=self._work, name="pods", daemon=True)

    def start(self) -> None:
        """Ask for all once, and go on in the thread; BackendError if no cluster answers."""
        for name in self._pods:
            self._ask(name)
        self._thread.start()

    def stop(self) -> None:
        """Ask no more."""
        self._is_over.set()
        if self._thread.is_alive():
            self._thread.join()

    def said(self, name: str) -> Said:
        """Return what was said last of a pod; BackendError if that was long ago."""
        found = self._said[name]
        if time.monotonic() - found.asked > SILENCE_SECONDS:
            raise BackendError(
                f"the cluster has said nothing of pod {self._pods[name]} for "
                f"{SILENCE_SECONDS:g}s: {self._trouble or 'it does not answer'}"
            )
        return found

    def _work(self) -> None:
        while not self._is_over.wait(EVERY_SECONDS):
            for name in self._pods:
                try:
                    self._ask(name)
                except (NodeError, OSError) as error:
                    # Whoever looks is told, if it goes on.
                    self._trouble = one_line(error)

    def _ask(self, name: str) -> None:
        pod, asked = self._pods[name], time.monotonic()
        try:
            found: Mapping[str, Any] = self._cluster.get(pod.namespace, pod.name)
        except NoSuchPodError:
            found = {}
        self._said[name] = Said(
            asked, time.monotonic(), self._ended(name, pod, found), _conditions(found)
        )

    def _ended(self, name: str, pod: PodName, found: Mapping[str, Any]) -> str:
        meta, status = found.get("metadata", {}), found.get("status", {})
        if not found or meta.get("uid") != pod.uid or meta.get("deletionTimestamp"):
            return "it was deleted"
        if status.get("phase") != "Running":
            return f"it is {str(status.get('phase', 'unknown')).lower()}"
        number = sum(int(one.get("restartCount", 0)) for one in status.get("containerStatuses", ()))
        if number > self._restarts.setdefault(name, number):
            return "a container of it was started anew"
        return ""


def _conditions(found: Mapping[str, Any]) -> dict[str, bool]:
    listed = found.get("status", {}).get("conditions", ())
    return {str(one.get("type")): one.get("status") == "True" for one in listed}


class PodGuest(OthersGuest):
    """A pod, as a lab uses it."""

    def __init__(self, name: str, what: str, watch: PodWatch, folder: Path) -> None:
        super().__init__(name, folder)
        self._what = what
        self._watch = watch

    @property
    def is_alive(self) -> bool:
        """Whether it is the pod that was found, with the containers that ran then: one that is made
        in its place is another guest, with another network."""
        said = self._watch.said(self.name)
        if not said.ended:
            self.seen_alive = said.asked
        return not said.ended

    def start(self) -> None:
        """Take it as it runs; BackendError if it has ended since it was found."""
        if why := self._watch.said(self.name).ended:
            raise BackendError(f"{self.name}: {self._what}: {why}")

    def inside(self, words: Sequence[str]) -> tuple[str, ...]:
        """Return the words that run a program for its author: on this machine."""
        return tuple(words)

    def stop(self, _by: str) -> None:
        """Leave it running."""

    def pause(self, _spared: Collection[int]) -> int:
        """Refuse: nobody can."""
        raise TargetError(f"pause of {self.name}: {NO_PAUSE}; part its network")

    def resume(self) -> None:
        """Do nothing: it was not stopped."""

    def why_ended(self) -> str:
        """Return why it is not the pod any more that was found."""
        return self._watch.said(self.name).ended


class ConditionProber:
    """Looks whether a pod has a condition, as its cluster says. Its interface is that of
    `Prober`."""

    group: Final = None
    """The process group of what asks: there is none."""

    def __init__(self, watch: PodWatch, name: str, condition: str) -> None:
        self._watch = watch
        self._name = name
        self._condition = condition
        self._asked = 0.0
        self.samples: list[tuple[float, bool]] = []
        """Times of answers. A yes has the time at which it came, a no that at which it was
        asked."""

    def look(self) -> None:
        """Take what was said since the last look."""
        said = self._watch.said(self._name)
        if said.asked == self._asked:
            return
        self._asked = said.asked
        is_ready = not said.ended and said.conditions.get(self._condition, False)
        self.samples.append((said.answered if is_ready else said.asked, is_ready))

    def forget(self) -> None:
        """Do nothing: nobody was asked for this alone."""

    def is_ready_since(self, at: float) -> bool:
        """Whether the last answer says so, and was given after a time."""
        return bool(self.samples) and self.samples[-1][1] and self.samples[-1][0] >= at
