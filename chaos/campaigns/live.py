"""`chaos-test` on real packets: scenarios on every protocol that they are meant for, as processes
in network namespaces or containers.

Each run has a network of its own, so several runs go on side by side: each worker process of the
pool is called a lane here. Runs that do not fit into the time are left out and reported.
"""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping
from concurrent.futures import FIRST_COMPLETED, Future, wait
from concurrent.futures.process import BrokenProcessPool
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from shutil import rmtree
from typing import Any, Final

from stormcast.chaos.backends.base import Unsupported
from stormcast.chaos.backends.by_name import NETNS, make_backend
from stormcast.chaos.backends.pods.features import OF_PODS
from stormcast.chaos.campaigns.errors import KILLED, error_in_words
from stormcast.chaos.campaigns.library import has_group, library
from stormcast.chaos.campaigns.pool import ProcessPool
from stormcast.chaos.language.cluster import GENERATIONS
from stormcast.chaos.language.features import ONLY_SIMULATED
from stormcast.chaos.language.scenario import Scenario
from stormcast.chaos.language.shipped import find_shipped
from stormcast.chaos.language.stacks import is_stream
from stormcast.chaos.oracles.verdict import Verdict
from stormcast.chaos.session.judging import LATE_SECONDS
from stormcast.chaos.session.plans import cluster_plan
from stormcast.chaos.session.record import ResyncTimes
from stormcast.chaos.session.runner import run_on
from stormcast.node.core.errors import NodeError

BUDGET_SECONDS: Final = 540.0
"""Runs that have not begun after so long are left out."""
LANES: Final = 3
"""Runs at a time. Members mostly wait, so more runs than cores fit; but judging a run keeps a core
busy."""
RUN_SECONDS: Final = 9.0
LIBRARY_RUN_SECONDS: Final = 90.0
"""Seconds that a run takes with its judgement, measured on two cores: for a first estimate of the
time that all runs take."""
LOSSLESS: Final = (("drop_when_full", False), ("user_timeout", 45.0))
"""As in tcp-no-retransmit: without retransmission, the transport must not lose anything."""
SHOWN_SECONDS: Final = 0.0005
"""The table shows no resync time that is shorter than this."""
NOT_BEGUN: Final = f"not begun: {KILLED}"
NO_MACHINE_HAS: Final = frozenset({*ONLY_SIMULATED, "first-conn", "frames-of-streams"})
"""Features that no machine has: what needs one of them means nothing there."""
LIBRARY: Final = "verdict"
"""The act of the library's runs, which is also the heading of their column."""
UNSUPPORTED: Final = "unsupported"
UNICASTS: Final = "unicasts"
MULTICASTS: Final = "multicasts"


@dataclass(frozen=True, slots=True, kw_only=True)
class Kind:
    """A protocol under test, and the stack that runs it."""

    name: str
    family: str
    """The scenario of each act that it is put through: that of unicasts, or of multicasts."""
    stack: str
    unicast: str | None = None
    repairs: bool = True
    """Whether it asks for missing messages."""


KINDS: Final = (
    *(Kind(name=name, family=UNICASTS, stack="udp", unicast=name) for name in GENERATIONS),
    Kind(name="NAKACK2 on UDP", family=MULTICASTS, stack="udp"),
    Kind(name="NAKACK2 on TCP", family=MULTICASTS, stack="tcp"),
    Kind(name="NAKACK2 on TCP, no retransmission", family=MULTICASTS, stack="tcp", repairs=False),
    Kind(
        name="NAKACK2 on TCP_NIO2, no retransmission",
        family=MULTICASTS,
        stack="tcp-no-retransmit",
        repairs=False,
    ),
    Kind(name="MCAST", family=MULTICASTS, stack="mcast"),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Act:
    """One thing that is tried on every protocol, with the scenario for each family."""

    name: str
    unicasts: str
    multicasts: str
    loses_frames: bool = False
    """Whether frames are lost, over connections inside of a member: then only retransmission brings
    them back."""
    holds_frames: bool = False
    """Whether frames are held back, which cannot be done to the frames of a connection."""


ACTS: Final = (
    Act(
        name="order",
        unicasts="order-of-unicasts",
        multicasts="order-of-multicasts",
    ),
    Act(
        name="resync",
        unicasts="resync-of-connections",
        multicasts="resync-of-a-group",
    ),
    Act(
        name="restart",
        unicasts="restart-with-unicasts",
        multicasts="restart-of-a-member",
    ),
    Act(
        name="first lost",
        unicasts="first-message-lost",
        multicasts="first-multicast-lost",
        loses_frames=True,
    ),
    Act(
        name="last lost",
        unicasts="last-message-lost",
        multicasts="last-multicast-lost",
        loses_frames=True,
    ),
    Act(
        name="delayed ack",
        unicasts="delayed-acks",
        multicasts="acks-of-multicasts-delayed",
        holds_frames=True,
    ),
)


@dataclass(frozen=True, slots=True)
class LiveRun:
    """One scenario on one protocol."""

    act: str
    kind: str
    scenario: Scenario

    @property
    def directory(self) -> str:
        """The name of its run directory."""
        words = self.kind.lower().replace(",", "").replace(" ", "-")
        return f"{words}-{self.scenario.name}"


@dataclass(frozen=True, slots=True)
class LiveResult:
    """The result of one run."""

    run: LiveRun
    verdict: Verdict | None
    """None: the scenario cannot be run here, or on no machine (`lacking` tells which)."""
    detail: str
    """The worst finding, or why the scenario was not run."""
    seconds: float
    """Seconds that the run took."""
    directory: str
    resync: ResyncTimes | None = None
    notes: tuple[str, ...] = ()
    is_late: bool = False
    """Whether the machine was so busy that steps came too late, not when the scenario says, and no
    member died meanwhile, which another run may not show."""
    lacking: str = ""
    """What this machine lacks for the run, and others have; empty: nothing."""

    @property
    def counted(self) -> Verdict | None:
        """What counts in the verdict on all runs: a machine that cannot run a scenario has not
        tested it. None: nothing, since on real packets the run means nothing."""
        return Verdict.UNKNOWN if self.lacking else self.verdict

    @property
    def cell(self) -> str:
        """The cell of the table: verdict, resync time, and `*` for notes."""
        if self.verdict is None:
            return UNSUPPORTED if self.lacking else "-"
        seconds = self.resync.seconds if self.resync is not None else None
        shown = f" {seconds:.3f}s" if seconds is not None and seconds >= SHOWN_SECONDS else ""
        return f"{self.verdict}{shown}{'*' if self.notes else ''}"

    def as_json(self) -> dict[str, Any]:
        """Return the row of `stormcast chaos-test --json`."""
        return {
            "scenario": self.run.scenario.name,
            "protocol": self.run.kind,
            "what": self.run.act,
            "verdict": UNSUPPORTED if self.verdict is None else str(self.verdict),
            "detail": self.detail,
            "resync": self.resync.as_json() if self.resync is not None else None,
            "notes": list(self.notes),
            "seconds": round(self.seconds, 3),
            "run": self.directory,
        }


def live_runs(kinds: Iterable[Kind] = KINDS, acts: Iterable[Act] = ACTS) -> Iterator[LiveRun]:
    """Yield a run for every act and every protocol on which the act is possible."""
    chosen = tuple(kinds)
    for act in acts:
        for kind in chosen:
            is_unicast = kind.family == UNICASTS
            scenario = find_shipped(act.unicasts if is_unicast else act.multicasts).read()
            run = LiveRun(act.name, kind.name, on_kind(scenario, kind))
            is_in_vain = (act.loses_frames and not kind.repairs) or (
                act.holds_frames and is_stream(run.scenario)
            )
            if not is_in_vain:
                yield run


def library_runs() -> Iterator[LiveRun]:
    """Yield a run for every file of the library, on the stack that it names, but in fast timing:
    runs take real time."""
    for scenario in library():
        cluster = replace(scenario.cluster, timing="fast")
        stack = cluster.stack if has_group(scenario) else (cluster.unicast or "UNICAST3")
        yield LiveRun(LIBRARY, stack, replace(scenario, cluster=cluster, text=""))


def on_kind(scenario: Scenario, kind: Kind) -> Scenario:
    """Return a scenario in fast timing, on the stack of a protocol under test."""
    cluster = replace(scenario.cluster, timing="fast", unicast=kind.unicast)
    if scenario.cluster.stack != "unicast-only":
        cluster = replace(cluster, stack=kind.stack)
        if not kind.repairs and kind.stack == "tcp":
            # The shipped stack without retransmission has the transport TCP_NIO2.
            cluster = replace(
                cluster,
                multicast_settings=(("xmit_interval", 0),),
                protocols=(*cluster.protocols, ("TCP", LOSSLESS)),
            )
    # Drop the original text, so that the run directory stores the changed scenario.
    return replace(scenario, cluster=cluster, text="")


def lacks(run: LiveRun, features: Mapping[str, str | None]) -> str | None:
    """Return why a scenario cannot be run with these features; None if it can."""
    scenario = run.scenario
    try:
        cluster_plan(scenario, 1, "x", Path(), features)
    except Unsupported as refusal:
        return str(refusal)
    return None


def machine_lacks(run: LiveRun, features: Mapping[str, str | None], backend: str = NETNS) -> str:
    """Return the first feature that a scenario needs and that only this machine lacks, with the
    reason; empty if there is none."""
    never = NO_MACHINE_HAS if backend == NETNS else NO_MACHINE_HAS | OF_PODS.keys()
    elsewhere = {name: why if name in never else None for name, why in features.items()}
    try:
        needs = cluster_plan(run.scenario, 1, "x", Path(), elsewhere).needs
    except Unsupported:
        return ""
    return next((f"{need}: {why}" for need in sorted(needs) if (why := features.get(need))), "")


def run_live(
    runs: Iterable[LiveRun],
    seed: int,
    out: Path,
    features: Mapping[str, str | None],
    *,
    lanes: int = LANES,
    budget: float = BUDGET_SECONDS,
    stopped: Callable[[], None] = lambda: None,
    begins: Callable[[LiveRun], None] = lambda _run: None,
    key_file: Path | None = None,
    backend: str = NETNS,
) -> Generator[LiveResult]:
    """Run scenarios side by side; yields results as they are ready. Calls `begins` for each run
    that begins, and `stopped` on an interrupt. With `key_file` all members seal by the keys of that
    file, but where a scenario changes its members' keys."""
    batch = _Batch(list(runs), out, time.monotonic() + budget)

    def begin(pool: ProcessPool, run: LiveRun) -> Future[LiveResult]:
        begins(run)
        return pool.submit(run_one, run, seed, out / run.directory, features, key_file, backend)

    with ProcessPool(lanes, _begin_lane) as pool:
        try:
            while batch.fill(lanes, partial(begin, pool)):
                done, _rest = wait(batch.begun, return_when=FIRST_COMPLETED)
                yield from filter(None, map(batch.take, done))
        except (KeyboardInterrupt, GeneratorExit) as end:
            # Have each lane heal its network and keep its run directory. Those that Ctrl-C in the
            # terminal has reached, too, do so already.
            pool.interrupt()
            stopped()
            wait(batch.begun)
            if isinstance(end, KeyboardInterrupt):
                yield from batch.ended()
            raise
    yield from batch.left(NOT_BEGUN if batch.is_broken else f"not begun within {budget:g}s")


@dataclass(slots=True)
class _Batch:
    """The runs of one call of `run_live` that are not over."""

    waiting: list[LiveRun]
    out: Path
    deadline: float
    begun: dict[Future[LiveResult], LiveRun] = field(default_factory=dict)
    late: dict[str, LiveResult] = field(default_factory=dict)
    """By run directory: the first result of each run that was late and is to be run again."""
    is_broken: bool = False
    """Whether a lane was killed: then its pool runs nothing any more."""

    def fill(self, lanes: int, begin: Callable[[LiveRun], Future[LiveResult]]) -> bool:
        """Begin runs until each lane has one; returns whether any run is under way."""
        while len(self.begun) < lanes and self._is_to_begin():
            run = self.waiting[0]
            if run.directory in self.late:
                rmtree(self.out / run.directory, ignore_errors=True)
            try:
                self.begun[begin(run)] = run
            except BrokenProcessPool:
                self.is_broken = True
                break
            del self.waiting[0]
        return bool(self.begun)

    def _is_to_begin(self) -> bool:
        return bool(self.waiting) and not self.is_broken and time.monotonic() < self.deadline

    def take(self, future: Future[LiveResult]) -> LiveResult | None:
        """Return the result of a run that is over; None if it is to be run again."""
        run = self.begun.pop(future)
        result = self._result_of(run, future)
        # A violation is proof, however busy the machine was.
        is_in_vain = result.is_late and result.verdict is not Verdict.VIOLATED
        if is_in_vain and run.directory not in self.late:
            # Run it once more, after the others, when the machine may be less busy.
            self.late[run.directory] = result
            self.waiting.append(run)
            return None
        return result

    def _result_of(self, run: LiveRun, future: Future[LiveResult]) -> LiveResult:
        try:
            return future.result()
        except Exception as error:  # noqa: BLE001 an error of one run must not hide others' results
            self.is_broken |= isinstance(error, BrokenProcessPool)
            why = error_in_words(error)
        return LiveResult(run, Verdict.UNKNOWN, why, 0.0, str(self.out / run.directory))

    def ended(self) -> Iterator[LiveResult]:
        """Yield the results of all runs that had begun, after their end."""
        yield from (self._result_of(run, future) for future, run in self.begun.items())
        yield from (self.late[run.directory] for run in self.waiting if run.directory in self.late)

    def left(self, why: str) -> Iterator[LiveResult]:
        """Yield a result for each run that has not begun; the first one of a run that was late."""
        for run in self.waiting:
            late = self.late.get(run.directory)
            yield late or LiveResult(run, Verdict.UNKNOWN, why, 0.0, "")


class _Lane:
    """The state of this process as a lane: whether a run is under way, which alone may be
    interrupted."""

    has_run = False


def _begin_lane() -> None:
    def on_interrupt(_number: int, _frame: object) -> None:
        if _Lane.has_run:
            _Lane.has_run = False
            raise KeyboardInterrupt

    signal.signal(signal.SIGINT, on_interrupt)


def run_one(
    run: LiveRun,
    seed: int,
    out: Path,
    features: Mapping[str, str | None],
    key_file: Path | None = None,
    backend: str = NETNS,
) -> LiveResult:
    """Run one scenario, and keep its run directory."""
    scenario = run.scenario
    if scenario.changes_keys:
        key_file = None
    elif key_file is not None:
        scenario = scenario.with_keys()
    began = time.monotonic()

    def result(verdict: Verdict | None, detail: str, **more: Any) -> LiveResult:  # noqa: ANN401 fields of it
        return LiveResult(run, verdict, detail, time.monotonic() - began, str(out), **more)

    _Lane.has_run = True
    try:
        why = lacks(run, features)
        if why:
            return result(None, why, lacking=machine_lacks(run, features, backend))
        word = f"{run.directory}-{os.getpid()}"
        made = make_backend(backend, features=features, key_file=key_file)
        outcome = run_on(made, scenario, seed, out=out, run=word)
    except KeyboardInterrupt:
        return result(Verdict.UNKNOWN, "interrupted before it had begun")
    except Unsupported as refusal:
        return result(None, str(refusal))
    except NodeError as error:
        return result(Verdict.UNKNOWN, f"it did not begin: {error}")
    except Exception as error:  # noqa: BLE001 a bug in one run must not end all others
        return result(Verdict.UNKNOWN, error_in_words(error))
    finally:
        _Lane.has_run = False
    findings = outcome.judgement.findings
    worst = max(findings, key=lambda finding: finding.verdict)
    detail = "" if worst.verdict is Verdict.HOLDS else f"{worst.guarantee}: {worst.detail}"
    return result(
        outcome.verdict,
        detail,
        resync=outcome.run.resync,
        notes=outcome.run.notes,
        is_late=outcome.run.late > LATE_SECONDS and not outcome.run.evidence.rig.deaths,
    )


def table_of(results: Iterable[LiveResult]) -> list[tuple[str, ...]]:
    """Return the table: a row per protocol, a column per act, in the cells verdicts and resync
    times; for the library a row per run."""
    results = list(results)
    listed = sorted(
        (one.run.scenario.name, one.run.kind, one.cell) for one in results if one.run.act == LIBRARY
    )
    if listed:
        return [("scenario", "on", LIBRARY), *listed]
    cells = {(one.run.kind, one.run.act): one.cell for one in results}
    kinds = [kind.name for kind in KINDS if any(row == kind.name for row, _act in cells)]
    acts = [act.name for act in ACTS if any(column == act.name for _kind, column in cells)]
    rows = [("protocol", *acts)]
    rows += [(kind, *(cells.get((kind, act), "-") for act in acts)) for kind in kinds]
    return rows
