"""Runs our members and the peers on one machine, in turns, round by round."""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Final

from bench import raw
from bench.check import Checked, check_journals
from bench.driven import Answer
from bench.errors import BenchError
from bench.figures import headline
from bench.namespace import Namespace
from bench.ours import Options, OurTeam
from bench.owned import make_folder
from bench.peers import aeron, jgroups
from bench.teams import AeronTeam, JavaTeam, RawTeam, Round, Team
from bench.work import OURS, Work

Say = Callable[[str], None]

WARM_SECONDS: Final = 1.0
"""Least seconds of a round that is thrown away."""
JAVA_WARM_SECONDS: Final = 3.0
FASTER: Final = 1.1
STALE_ROUNDS: Final = 2
"""Rounds in a row that were not faster, after which a JVM is warm."""
MEMORY: Final = Path("/dev/shm")  # noqa: S108 a folder of our own is made in it


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """The work to measure, by which teams, and how often."""

    work: Work
    teams: Sequence[str] = (OURS,)
    """The teams that take turns."""
    rounds: int = 5
    seconds: float = 3.0
    warm_rounds: int = 8
    """Most warm-up rounds of a JVM: it compiles while it runs, and is warm when it gets no
    faster."""
    options: Options = field(default_factory=Options)


@dataclass(slots=True, kw_only=True)
class Result:
    """The figures of a run, or of the part of it that was finished."""

    plan: Plan
    rounds: dict[str, list[Round]] = field(default_factory=dict)
    """By team."""
    failed: dict[str, str] = field(default_factory=dict)
    """Peers that could not be measured, and why."""
    idle: dict[str, list[Answer]] = field(default_factory=dict)
    """Memory and threads of each process before anything was sent."""
    stats: dict[str, Answer] = field(default_factory=dict)
    """The counters of our members at the end."""
    check: Checked | None = None
    """None when ours took no part, or the run was cut short."""
    network: str = ""
    delayed_by: str = ""
    is_interrupted: bool = False


def say(text: str) -> None:
    """Print progress to stderr."""
    print(text, file=sys.stderr, flush=True)


def measure(plan: Plan, tell: Say = say) -> Result:
    """Run the plan. A peer that fails is noted; a failure of ours is a BenchError."""
    with ExitStack() as stack:
        return _Run(plan, tell, stack).run()


class _Run:
    def __init__(self, plan: Plan, tell: Say, stack: ExitStack) -> None:
        self._plan = plan
        self._tell = tell
        self._stack = stack
        self._result = Result(plan=plan)
        self._folder = make_folder(stack)
        self._journals = make_folder(stack, plan.options.journal)
        self._network = stack.enter_context(Namespace())
        self._result.network = "namespace" if self._network.name else "plain loopback"
        self._teams: list[Team] = []

    def run(self) -> Result:
        """Run everything; after an interrupt, return the figures that there are."""
        result, plan = self._result, self._plan
        try:
            for name in plan.teams:
                self._start(name)
            self._disturb()
            result.rounds = {team.name: [] for team in self._teams}
            for team in list(self._teams):
                self._warm_up(team)
            for number in range(1, plan.rounds + 1):
                for team in list(self._teams):
                    self._turn(team, plan.seconds, f"round {number}")
            self._judge()
        except KeyboardInterrupt:
            result.is_interrupted = True
        return result

    def _start(self, name: str) -> None:
        """Start a team; a peer that cannot start is noted."""
        try:
            team = self._make(name)
            self._stack.callback(team.stop)
            team.start(self._network.words(), self._folder)
        except BenchError as error:
            self._give_up(name, error)
            return
        self._teams.append(team)
        self._result.idle[name] = team.idle

    def _make(self, name: str) -> Team:
        work = self._plan.work
        if name == OURS:
            return OurTeam(self._work_of_ours(), self._plan.options, self._journals)
        if name == "raw":
            return RawTeam(name, work, raw.commands(work))
        if name.startswith("jgroups"):
            return JavaTeam(name, work, jgroups.commands(name, work))
        folder = make_folder(self._stack, MEMORY if MEMORY.is_dir() else None)
        return AeronTeam(name, work, aeron.commands(name, work, folder))

    def _work_of_ours(self) -> Work:
        """Return the work of ours: without the delay if netem makes it, else with it, for DELAY."""
        work = self._plan.work
        if not work.delay:
            return work
        self._result.delayed_by = "netem" if self._network.can_delay() else "DELAY"
        return replace(work, delay=0.0) if self._result.delayed_by == "netem" else work

    def _disturb(self) -> None:
        """Begin loss and delay, after the teams have formed without them, as real groups do."""
        self._network.lose(self._plan.work.loss)
        if self._result.delayed_by == "netem":
            self._network.delay(self._plan.work.delay)

    def _warm_up(self, team: Team) -> None:
        """Run rounds that do not count: one, or for a JVM as many as make it faster."""
        least = JAVA_WARM_SECONDS if team.is_warmed_longer else WARM_SECONDS
        seconds, best, stale = max(least, self._plan.seconds), 0.0, 0
        try:
            team.prepare()
        except BenchError as error:
            self._give_up(team.name, error)
            return
        for _ in range(self._plan.warm_rounds if team.is_warmed_longer else 1):
            value = self._turn(team, seconds, "warm-up")
            if value is None:
                return
            speed = 1 / value if self._plan.work.is_latency else value
            stale = 0 if speed > FASTER * best else stale + 1
            best = max(best, speed)
            if stale == STALE_ROUNDS:
                return

    def _turn(self, team: Team, seconds: float, what: str) -> float | None:
        """Run one round of one team; return its headline, None when there is none."""
        if team.name in self._result.failed:
            return None
        try:
            figures = team.round(seconds)
        except BenchError as error:
            self._give_up(team.name, error)
            team.stop()
            return None
        value = headline(self._plan.work, figures)
        self._tell(f"  {what:8} {team.name:14} {'nothing' if value is None else f'{value:,.0f}'}")
        if what != "warm-up":
            self._result.rounds[team.name].append(figures)
        return value

    def _give_up(self, name: str, error: BenchError) -> None:
        if name == OURS:
            raise error
        self._result.failed[name] = str(error)
        self._tell(f"  {name} is out: {error}")

    def _judge(self) -> None:
        """End ours all at once, so that no member has left the group, and check their journals."""
        for team in self._teams:
            if isinstance(team, OurTeam):
                self._result.stats = team.stats()
                sent = team.sent()
                team.stop()
                self._tell("  checking the journals")
                lacking = sum(each["undelivered"] for each in self._result.rounds[OURS])
                self._result.check = check_journals(self._journals, sent, lacking)
