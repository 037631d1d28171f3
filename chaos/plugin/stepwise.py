"""A session without a timeline: its caller says what happens next, in the words of a scenario.

Each action takes effect at once, time passes only in the waits, and the run is recorded and judged
like any other.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from math import inf
from pathlib import Path
from typing import Final

from stormcast.chaos.backends.base import Backend, BackendError, MemberError, Unsupported
from stormcast.chaos.faults import Names, Release
from stormcast.chaos.language.scenario import Scenario
from stormcast.chaos.language.schedule import TimedStep, schedule
from stormcast.chaos.language.stacks import settings_of
from stormcast.chaos.language.timeline import LASTING, Step, actions, read_action
from stormcast.chaos.language.workload import load_notation
from stormcast.chaos.session.plans import FRAME_BY_FRAME, cluster_plan
from stormcast.chaos.session.record import Pair, RunRecord
from stormcast.chaos.session.roster import POLL_SECONDS
from stormcast.chaos.session.session import Session
from stormcast.node.core.errors import ConfigError, require, suggestion
from stormcast.node.reading.items import PlainItem
from stormcast.node.reading.notations import Plain

OF_A_GROUP: Final = (
    *(f"G{number}" for number in range(1, 9)),
    "A1",
    "V1",
    "V2",
    "V3",
    "V4",
    "C1",
    "L1",
)
OF_CONNECTIONS: Final = (*(f"G{number}" for number in range(1, 8)), "C1", "L1")
"""The guarantees that a stack without a group gives."""
_MOMENT: Final = 1.0
"""The duration, in seconds, of a fault that is scheduled only to learn what ends it."""


class TooLateError(BackendError):
    """A wait of a test timed out."""


@dataclass(frozen=True, slots=True)
class Begun:
    """An action that was begun, and the step that ends it."""

    fault: str
    undo: TimedStep | None
    """None: nothing ends it, or it is over by itself."""


class StepwiseSession(Session):
    """One cluster, played step by step: `open`, `gather`, any actions and waits, `settle`."""

    def __init__(self, scenario: Scenario, seed: int, backend: Backend, folder: Path) -> None:
        super().__init__(_frame_by_frame(scenario), seed, backend, folder, run=scenario.name)
        self.seed = seed
        # Nobody knows yet what will be done, so the plan asks for all that the backend can do.
        can = {word for word, why in backend.features().items() if why is None}
        self.plan = replace(self.plan, needs=self.plan.needs | _by_stack(can, scenario))
        self._number = 0
        self._folder = folder

    # -- Actions ---------------------------------------------------------------------------------

    def begin(self, do: str, words: Mapping[str, Plain], name: str | None = None) -> Begun:
        """Do now what a timeline would say with these words. Unsupported where this backend
        cannot."""
        members = self.scenario.cluster.members
        known = actions(members)
        require(
            str(do) in known,
            f"do is {do!r}: there is no such action{suggestion(str(do), known)}",
        )
        self._number += 1
        fault = name or f"f{self._number}"
        shape = known[do]
        action = read_action(PlainItem({"do": do, **words}, do), shape, besides=["do"])
        lasts = isinstance(action, LASTING)
        step = Step(at=0.0, action=action, name=fault, duration=_MOMENT if lasts else None)
        scripted = replace(self.scenario, timeline=(step,))
        self._check(scripted)
        first, *rest = schedule(scripted, self.seed)
        self.nemesis.do(replace(first, at=self.now()))
        self._look_after()
        return Begun(fault, rest[0] if lasts else None)

    def end(self, begun: Begun) -> None:
        """Undo an action: a fault ends, a paused member goes on, a killed one is started."""
        if begun.undo is not None:
            self.nemesis.do(replace(begun.undo, at=self.now()))
            self._look_after()

    def release(self, begun: Begun) -> None:
        """Let go the frames that a rule holds; the rule goes on."""
        action = Release(name=begun.fault)
        step = TimedStep(at=self.now(), fault=begun.fault, do="release", action=action)
        self.nemesis.do(step)

    def load(self, do: str, words: Mapping[str, Plain]) -> None:
        """Have members send what a workload would say with these words, from now on."""
        codec = load_notation(self.scenario.cluster.members)
        load = codec.read(PlainItem({"do": do, **words}, do))
        require(not load.start, f"start is {words.get('start')}: a load begins now; wait before it")
        self.traffic.begin(replace(load, start=self.now() + load.start))

    def _check(self, scripted: Scenario) -> None:
        there = self.backend.features()
        needs = cluster_plan(scripted, self.seed, self.plan.run, self._folder, there).needs
        for need in sorted(needs - self.plan.needs):
            raise Unsupported(f"{self.backend.name} has no {need}: {there.get(need)}")

    # -- Waiting, and asking members -------------------------------------------------------------

    def wait(self, seconds: float) -> None:
        """Let time pass."""
        _check_seconds("wait", seconds)
        self.wait_until(self.now() + seconds)

    def wait_for(self, is_done: Callable[[], bool], what: str, within: float) -> None:
        """Wait until `is_done`; TooLateError after `within` seconds, which names `what`."""
        _check_seconds("within", within)
        until = self.now() + within
        while not is_done():
            if self.now() >= until:
                raise TooLateError(f"not within {within:g} s: {what}")
            self.wait(POLL_SECONDS)

    def received(self, dest: str, source: str) -> int:
        """Return how many messages of `source`, in all its incarnations, the newest incarnation of
        `dest` was given; 0 if it does not answer."""
        members = self.scenario.cluster.members
        for name in (source, dest):
            require(name in members, f"no member {name}; there is {' '.join(members)}")
        if dest in self.roster.paused or not self.roster.is_alive(dest):
            return 0
        try:
            told = self.roster.ask(dest, "GET", "/workload")["received_from"]
        except MemberError:
            return 0
        return sum(int(number) for who, number in told.items() if who.startswith(f"{source}:"))

    def exchanged(self, names: Names) -> dict[Pair, int]:
        """Return, for each pair of these members on a load, how many messages the dest was given by
        the source, both in their newest incarnations."""
        states = self.roster.states()
        got: dict[Pair, int] = {}
        for source, dest in self.traffic.pairs():
            if source in names and dest in names:
                told = states[dest]["workload"]["received_from"] if dest in states else {}
                got[source, dest] = int(told.get(f"{source}:{self.roster.short(source) or 0:x}", 0))
        return got

    def is_sent(self) -> bool:
        """Whether every member is ready and has sent all that it was told to send."""
        states = self.roster.states()
        for name, state in states.items():
            self.traffic.note_errors(name, state["workload"])
        return (
            not self.roster.joining
            and len(states) == len(self.roster.living())
            and not any(state["workload"]["running"] for state in states.values())
        )

    # -- The end ---------------------------------------------------------------------------------

    def settle(self, within: float) -> RunRecord:
        """Heal everything, wait until all that was sent has arrived and silence has lasted, and end
        the run."""
        _check_seconds("within", within)
        self.nemesis.heal_all()
        until = self.now() + within
        while not self.is_sent() and self.now() < until:
            self.wait(POLL_SECONDS)
        self._ending.complete = self.is_sent()
        if not self._ending.complete:
            self._ending.unsent = self.traffic.left()
            self.traffic.stop()
        self._ending.load_errors = self.traffic.errors()
        self._settle()
        return self.finish()

    def played(self) -> Scenario:
        """Return the scenario with the loads that began, and time enough for them: what they were
        to do is judged as in any run."""
        loads = self.traffic.played()
        run = max([self.scenario.limits.run, *(load.end for load in loads)])
        limits = replace(self.scenario.limits, run=run)
        return replace(self.scenario, workload=loads, limits=limits)


def _check_seconds(what: str, seconds: object) -> None:
    """Refuse a time that never passes, or is none."""
    is_number = isinstance(seconds, int | float) and not isinstance(seconds, bool)
    if not is_number or not 0 <= seconds < inf:  # type: ignore[operator]
        raise ConfigError(f"{what} is {seconds!r}: write a number of seconds, such as 2.5")


def _frame_by_frame(scenario: Scenario) -> Scenario:
    """Return the scenario with one frame per UDP datagram: a fault strikes whole datagrams."""
    protocols = dict(scenario.cluster.protocols)
    if settings_of(scenario).transport != "UDP":
        return scenario
    protocols["UDP"] = tuple((FRAME_BY_FRAME | dict(protocols.get("UDP", ()))).items())
    cluster = replace(scenario.cluster, protocols=tuple(protocols.items()))
    return replace(scenario, cluster=cluster)


def _by_stack(can: set[str], scenario: Scenario) -> set[str]:
    """Return what a backend can do, without `group` or `no-group`, whichever the stack is not."""
    settings = settings_of(scenario)
    other = "no-group" if settings.has_group else "group"
    return can - {other}
