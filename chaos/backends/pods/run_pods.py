"""The pods of one run, and requests to all of them at once."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from typing import Final, TypeVar

from stormcast.chaos.agent.agent import merged
from stormcast.chaos.backends.base import BackendError, Bites
from stormcast.chaos.backends.pods.member_pod import MemberPod
from stormcast.chaos.backends.pods.pod import Pod
from stormcast.chaos.records.exits import MemberExit
from stormcast.node.core.errors import NodeError

LOOK_SECONDS: Final = 0.5
"""The least time between two looks who lives."""
FRESH_SECONDS: Final = 0.05
"""Seconds for which a member that was alive is assumed to be so without asking again."""

T = TypeVar("T")


class RunPods:
    """The pods of a run, by the name of the member in each."""

    def __init__(self, pods: Mapping[str, MemberPod], threads: ThreadPoolExecutor) -> None:
        self._pods = pods
        self._threads = threads
        self._alive: dict[str, tuple[float, bool]] = {}
        """By member: the time of the last question whether it lives, and the answer."""
        self._looked = 0.0
        self._exits: list[MemberExit] = []

    def __iter__(self) -> Iterator[MemberPod]:
        return iter(self._pods.values())

    def __len__(self) -> int:
        return len(self._pods)

    def known(self, name: str) -> MemberPod:
        """Return the pod of a member; BackendError if there is none."""
        if name not in self._pods:
            known = ", ".join(self._pods) or "nobody: open the backend first"
            raise BackendError(f"{name} is no member of this run; there is {known}")
        return self._pods[name]

    def is_alive(self, name: str) -> bool:
        """Whether a member was started and has not ended; the answer may be `FRESH_SECONDS` old."""
        pod = self.known(name)
        at, was = self._alive.get(name, (0.0, False))
        now = time.monotonic()
        if not was or now - at > FRESH_SECONDS:
            self._alive[name] = now, (was := pod.is_alive())
        return was

    def living(self, name: str) -> MemberPod:
        """Return the pod of a member that something is to be done to; BackendError if the member
        does not run."""
        self.forget(name)
        if not self.is_alive(name):
            raise BackendError(f"{name} does not run")
        self.forget(name)
        return self.known(name)

    def look(self) -> None:
        """Ask from time to time who lives, so that it is known when a member ended that nobody told
        to. A keeper that does not answer for a moment is no trouble."""
        if time.monotonic() - self._looked >= LOOK_SECONDS:
            self._looked = time.monotonic()
            with suppress(NodeError):
                self.each(MemberPod.is_alive)

    def exits(self, ask: Callable[[], Sequence[Pod]]) -> list[MemberExit]:
        """Return the ends of all incarnations so far. Where a keeper tells nothing of its member,
        `ask` returns the pods as they are now."""
        lost = [pod for pod in self if pod.is_lost and pod.end is None]
        with suppress(NodeError):
            found = {pod.name: pod for pod in ask()} if lost else {}
            for pod in lost:
                if pod.pod.name in found:
                    pod.note_restart(found[pod.pod.name])
        for pod in self:
            if pod.end is not None and pod.end not in self._exits:
                self._exits.append(pod.end)
        return list(self._exits)

    def forget(self, name: str) -> None:
        """Forget whether a member lives, because something is done to it."""
        self._alive.pop(name, None)

    @property
    def have_agents(self) -> bool:
        """Whether each pod has an agent."""
        return all(pod.pod.has_agent for pod in self)

    def sites(self) -> dict[str, str]:
        """Return the agents' name of each member: `n` and the number of its pod."""
        return {name: f"n{pod.pod.ordinal}" for name, pod in self._pods.items()}

    def places(self) -> dict[str, tuple[str, ...]]:
        """Return the addresses of each member."""
        return {name: pod.pod.addresses for name, pod in self._pods.items()}

    def bites(self) -> Bites:
        """Return the bites that the agents of all pods have counted, by members' names."""
        names = {site: name for name, site in self.sites().items()}
        counted = merged(self.each(lambda pod: pod.agent.bites()))
        return {
            fault: {
                (names.get(source, source), names.get(dest, dest)): number
                for (source, dest), number in pairs.items()
            }
            for fault, pairs in counted.items()
        }

    def each(self, do: Callable[[MemberPod], T]) -> list[T]:
        """Call `do` for all pods at once; raises the first failure when all calls have ended."""
        work = [self._threads.submit(do, pod) for pod in self]
        failures = [error for one in work if (error := one.exception()) is not None]
        for error in failures:
            if isinstance(error, NodeError) and not isinstance(error, BackendError):
                raise BackendError(str(error)) from None
            raise error
        return [one.result() for one in work]
