"""One attack: begun, kept up by renewals, ended, and written down as a run."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, Final, Protocol, cast

from stormcast.chaos import faults
from stormcast.chaos.attack.kinds import KILL, OF_PROCESSES, faults_of
from stormcast.chaos.attack.stopped import Stopped, end
from stormcast.chaos.attack.targets import Target, sites_of
from stormcast.chaos.backends.netns.agent import AgentProcess
from stormcast.chaos.backends.netns.running import run_command
from stormcast.chaos.backends.run_id import RunId
from stormcast.chaos.drivers.base import Bites
from stormcast.chaos.faults import Action, Names, NetworkFault
from stormcast.chaos.language.network_state import PACKETS, NetworkState
from stormcast.chaos.language.timeline import WORDS
from stormcast.node.bound import bound_to_me

POLL_SECONDS: Final = 0.1


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """What an attack does, and to whom."""

    kind: str
    groups: tuple[tuple[Target, ...], ...]
    is_directed: bool = False
    options: Mapping[str, Any] = field(default_factory=dict)
    seconds: float | None = None
    """None: until it is ended."""
    seed: int = 1

    @property
    def targets(self) -> tuple[Target, ...]:
        return tuple(target for group in self.groups for target in group)

    @property
    def words(self) -> Names:
        """The names of all targets, as states have them."""
        return tuple(target.word for target in self.targets)

    @property
    def is_of_pods(self) -> bool:
        """Whether its targets are pods of a cluster."""
        return self.targets[0].pod is not None

    @property
    def is_of_processes(self) -> bool:
        """Whether it strikes processes, or whole pods, and no network."""
        return self.kind in OF_PROCESSES

    def network_faults(self) -> dict[str, NetworkFault]:
        """Return the faults of the network, by id."""
        if self.is_of_processes:
            return {}
        groups = tuple(tuple(target.word for target in group) for group in self.groups)
        return faults_of(self.kind, groups, self.options, is_directed=self.is_directed)

    def actions(self) -> dict[str, Action]:
        """Return everything that is done, by id, as a scenario has it."""
        if not self.is_of_processes:
            return cast("dict[str, Action]", self.network_faults())
        make = faults.Crash if self.kind == KILL else faults.Pause
        return {
            f"f{number}": make(member=target.word) for number, target in enumerate(self.targets, 1)
        }


class Striking(Protocol):
    """Does what a plan says."""

    def begin(self) -> None: ...
    def keep(self) -> None: ...
    def end(self) -> None: ...
    def bites(self) -> Bites: ...


class OnNetworks:
    """Faults of networks, done by an agent that ends, and clears everything, with this process."""

    def __init__(self, plan: Plan, run: RunId, folder: Path) -> None:
        self._plan = plan
        self._sites = sites_of(plan.targets, run_command)
        self._agent = AgentProcess(run, self._sites, folder, bound=partial(bound_to_me, by="TERM"))
        self._bites: Bites = {}

    def begin(self) -> None:
        self._agent.apply(
            NetworkState(
                members=self._plan.words,
                faults=self._plan.network_faults(),
                seed=self._plan.seed,
                dice=PACKETS,
            )
        )

    def keep(self) -> None:
        self._agent.keep()

    def bites(self) -> Bites:
        self._bites = self._agent.bites() or self._bites
        return self._bites

    def end(self) -> None:
        with ExitStack() as undo:
            undo.callback(self._agent.end)
            self.bites()


class OnProcesses:
    """Processes that are killed, or stopped for a while."""

    def __init__(self, plan: Plan, listed: Callable[[Target], Sequence[int]]) -> None:
        """`listed`: returns the processes of a target as they are now."""
        self._plan = plan
        self._listed = listed
        self._stopped: Stopped | None = None
        self._bites: dict[str, dict[tuple[str, str], int]] = {}

    def begin(self) -> None:
        if self._plan.kind != KILL:
            self._stopped = Stopped()
        for (fault, _action), target in zip(
            self._plan.actions().items(), self._plan.targets, strict=True
        ):
            listed = partial(self._listed, target)
            number = end(listed()) if self._stopped is None else self._stopped.stop(listed)
            self._bites[fault] = {(target.word, target.word): number}

    def keep(self) -> None:
        if self._stopped is not None:
            self._stopped.check()

    def bites(self) -> Bites:
        return self._bites

    def end(self) -> None:
        if self._stopped is not None:
            self._stopped.resume()
            self._stopped = None


def striking(plan: Plan, folder: Path, listed: Callable[[Target], Sequence[int]]) -> Striking:
    """Return what carries out a plan; TargetError if it cannot be."""
    if plan.is_of_processes:
        return OnProcesses(plan, listed)
    return OnNetworks(plan, RunId.next(), folder)


def act(
    work: Striking, seconds: float | None, tell: Callable[[], None], clock: Callable[[], float]
) -> None:
    """Keep an attack up for its time, or until Ctrl-C; call `tell` from time to time."""
    until = None if seconds is None else clock() + seconds
    while until is None or clock() < until:
        work.keep()
        tell()
        left = POLL_SECONDS if until is None else min(POLL_SECONDS, max(0.0, until - clock()))
        time.sleep(left)


def total(bites: Bites) -> dict[str, int]:
    """Return how often each fault struck."""
    return {fault: sum(pairs.values()) for fault, pairs in bites.items()}


def do_word(action: object) -> str:
    """Return the word of a scenario for what is done."""
    return WORDS[type(action)]


def own_process() -> tuple[int, int]:
    """Return pid and start time of this process."""
    run = RunId.next()
    return os.getpid(), run.started
