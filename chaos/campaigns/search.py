"""Runs and judges generated scenarios of many seeds, on all cores or on many hosts. Runs that do
not hold are kept, and grouped with others that fail in the same way.

Seeds are run in parts, each a task for an engine: processes of this machine, or Spark. The results
of a part are the rows that it writes (`rows.py`), so both engines are used alike, and an
interrupted search is resumed where it was.
"""

from __future__ import annotations

import os
import socket
import time
import traceback
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures.process import BrokenProcessPool
from contextlib import closing
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any, Final, NamedTuple, Protocol

from stormcast.chaos.backends.sim.garbage import no_garbage_collection
from stormcast.chaos.campaigns.enough import bitten_kinds, is_enough
from stormcast.chaos.campaigns.fingerprint import fingerprint, kind_of
from stormcast.chaos.campaigns.generate import CELLS, Cell, generate
from stormcast.chaos.campaigns.pool import ProcessPool
from stormcast.chaos.campaigns.rows import (
    Plan,
    Reader,
    SearchDirectory,
    SeedResult,
    StorageError,
    differences,
    keep_run,
    read_plan,
)
from stormcast.chaos.oracles.verdict import Verdict, worst
from stormcast.chaos.session.outcome import RunOutcome
from stormcast.chaos.session.runner import run_scenario
from stormcast.chaos.session.versions import versions
from stormcast.machine import in_words, is_exhausted
from stormcast.node.core.errors import ConfigError, NodeError

ATTEMPTS: Final = 40
"""The most scenarios that are drawn for a seed, until one meets enough (`is_enough`). Of those led
by a rule in unicast six of ten do not: the rule strikes few frames, or none."""
LOOK_SECONDS: Final = 0.5
"""The time between two looks for new rows."""
SEEN_SECONDS: Final = 60.0
"""Seconds that a file of another host may take to appear on a network file system."""
POOLS: Final = 4
"""The most pools that are tried: when a process dies, all tasks of its pool are lost."""


class SearchError(NodeError):
    """A search was not completed; the text says why, and what to do."""


class Engine(Protocol):
    """Runs tasks: each to its end, and again if its process died."""

    def run(
        self, work: Callable[[Any], str | None], items: Sequence[Any], look: Callable[[], None]
    ) -> list[str]:
        """Call `work` with each item, and `look` now and then. Returns all results but None: each
        says why an item could not be done."""


@dataclass(slots=True)
class Group:
    """The seeds that fail in one way: same verdict, same fingerprint."""

    verdict: Verdict
    guarantee: str
    fingerprint: str
    seeds: int = 0
    first: int = 0
    """The lowest seed."""
    smallest: int = 0
    """The seed whose run has the fewest events."""
    events: int = 0
    """The number of events of `smallest`."""

    def add(self, result: SeedResult) -> None:
        """Add a seed."""
        if not self.seeds or (result.events, result.seed) < (self.events, self.smallest):
            self.smallest, self.events = result.seed, result.events
        self.first = min(self.first, result.seed) if self.seeds else result.seed
        self.seeds += 1

    def as_json(self) -> dict[str, Any]:
        """Return a part of the object that `stormcast search --json` prints."""
        return {
            "verdict": str(self.verdict),
            "guarantee": self.guarantee,
            "fingerprint": self.fingerprint,
            "seeds": self.seeds,
            "first": self.first,
            "smallest": self.smallest,
        }


@dataclass(slots=True)
class SearchResult:
    """The totals of a search."""

    seeds: int = 0
    events: int = 0
    seconds: float = 0.0
    """The time since this search was begun or resumed."""
    resumed: int = 0
    """Seeds that had been run before the search was resumed."""
    violations: list[SeedResult] = field(default_factory=list)
    unknown: list[SeedResult] = field(default_factory=list)
    cells: Counter[Cell] = field(default_factory=Counter)
    """By generation or stack, and kind of fault: the number of seeds in which the fault bit."""

    def add(self, result: SeedResult) -> None:
        self.seeds += 1
        self.events += result.events
        what, _leading = result.cell
        self.cells.update((what, kind) for kind in result.faults)
        if result.verdict is Verdict.VIOLATED:
            self.violations.append(result)
        elif result.verdict is Verdict.UNKNOWN:
            self.unknown.append(result)

    @property
    def rate(self) -> float:
        """Seeds per second."""
        return (self.seeds - self.resumed) / self.seconds if self.seconds else 0.0

    def groups(self) -> list[Group]:
        """Group the seeds that do not hold by fingerprint: the violated first, and of each verdict
        the most frequent group first."""
        groups: dict[tuple[Verdict, str], Group] = {}
        for result in [*self.violations, *self.unknown]:
            key = (result.verdict, result.fingerprint)
            group = groups.setdefault(key, Group(result.verdict, result.guarantee, key[1]))
            group.add(result)
        order = sorted(groups.values(), key=lambda one: one.first)
        return sorted(order, key=lambda one: (one.verdict, one.seeds), reverse=True)

    def as_json(self) -> dict[str, Any]:
        """Return the object that `stormcast search --json` prints."""
        violated = sorted(self.violations, key=lambda result: result.seed)
        return {
            "seeds": self.seeds,
            "violations": len(self.violations),
            "unknown": len(self.unknown),
            "events": self.events,
            "seconds": round(self.seconds, 3),
            "resumed": self.resumed,
            "violated_seeds": [
                {"seed": result.seed, "broken": list(result.broken)} for result in violated
            ],
            "unknown_seeds": sorted(result.seed for result in self.unknown),
        }


class Drawn(NamedTuple):
    """The run that counts for a seed."""

    outcome: RunOutcome
    attempt: int
    """The number of its scenario among those drawn for the seed, from 0."""
    enough: bool
    """Whether it met enough."""


def run_seed(
    seed: int, make_unicast: Callable[..., Any] | None = None, out: Path | None = None
) -> SeedResult:
    """Draw, run and judge scenarios for a seed until one meets enough or does not hold; keep the
    run in `out` if it does not hold."""
    found = outcome_of(seed, make_unicast)
    if out is not None and found.outcome.verdict is not Verdict.HOLDS:
        keep_run(found.outcome, out / f"seed-{seed}")
    return _summary(seed, found)


def outcome_of(
    seed: int,
    make_unicast: Callable[..., Any] | None = None,
    make_multicast: Callable[..., Any] | None = None,
) -> Drawn:
    """Return the first run of a seed that meets enough or does not hold, else the last one."""
    for attempt in range(ATTEMPTS):
        outcome = run_scenario(
            generate(seed, attempt),
            seed,
            make_unicast=make_unicast,
            make_multicast=make_multicast,
            min_bites=0,
        )
        enough = is_enough(seed, outcome)
        # A run that breaks off or does not end may show a bug, and such a run has few bites or
        # none: to draw another scenario would hide it.
        if enough or outcome.verdict is not Verdict.HOLDS:
            break
    return Drawn(outcome, attempt, enough)


def _summary(seed: int, found: Drawn) -> SeedResult:
    outcome = found.outcome
    findings = [one for one in outcome.judgement.findings if one.verdict is not Verdict.HOLDS]
    broken = tuple(
        f"{finding.guarantee}: {finding.detail}"
        + (f" [{finding.witness[0]}]" if finding.witness else "")
        for finding in findings
    )
    owed = outcome.judgement.owed
    verdict = outcome.verdict if found.enough else worst([outcome.verdict, Verdict.UNKNOWN])
    first = next((one for one in findings if one.verdict is verdict), None)
    why = fingerprint(first, outcome.scenario.cluster.members) if first is not None else ""
    if verdict is Verdict.UNKNOWN and first is None:
        why = f"no scenario of {ATTEMPTS} met enough"
    return SeedResult(
        seed=seed,
        verdict=verdict,
        events=outcome.run.events,
        messages=outcome.run.sent,
        faults=tuple(sorted(set(bitten_kinds(outcome)))),
        broken=broken,
        guarantee=first.guarantee if first is not None else "",
        fingerprint=why,
        attempt=found.attempt,
        owed=owed.owed if owed is not None else None,
    )


# -- A whole search --------------------------------------------------------------------------------


class Search:
    """A search over the seeds of a plan, run by an engine; seeds with a row are not run again."""

    def __init__(self, plan: Plan, directory: SearchDirectory) -> None:
        self.plan = plan
        self.directory = directory
        self.total = SearchResult()
        self._reader = Reader(directory)

    def run(self, engine: Engine, tell: Callable[[SearchResult], None]) -> SearchResult:
        """Run the seeds that are left; calls `tell` with the totals now and then. However the
        search ends, `total` counts all rows."""
        began = time.monotonic()
        self._look()
        self.total.resumed = self.total.seeds

        def look() -> None:
            self._look()
            self.total.seconds = time.monotonic() - began
            tell(self.total)

        try:
            left = [part for part in self.plan.parts() if not self._reader.seeds.issuperset(part)]
            refusals = engine.run(partial(run_part, self.directory.path), left, look)
            self._wait_for_rows(hopeful=not refusals)
        finally:
            look()
        if refusals:
            raise SearchError("; ".join(dict.fromkeys(refusals)))
        if missing := len(self.plan) - self.total.seeds:
            raise SearchError(f"{missing} seeds left no row in {self.directory.path}: run it again")
        return self.total

    def _look(self) -> None:
        for row in self._reader.new():
            self.total.add(row)

    def _wait_for_rows(self, *, hopeful: bool) -> None:
        deadline = time.monotonic() + (SEEN_SECONDS if hopeful else 0.0)
        self._look()
        while self.total.seeds < len(self.plan) and time.monotonic() < deadline:
            time.sleep(LOOK_SECONDS)
            self._look()


def run_part(path: Path, part: range) -> str | None:
    """Run those seeds of a part that have no row yet, and write a row for each: the task of an
    engine, on any host. Returns why this host must not run them, else None."""
    try:
        plan = read_plan(path)
    except ConfigError as error:
        return f"{socket.gethostname()}: {error}: --out must be storage that all hosts share"
    if others := differences(plan.versions, versions()):
        return (
            f"{socket.gethostname()} has another version ({others}): install on each worker what "
            "the search was begun with"
        )
    directory = SearchDirectory(path)
    done = {row.seed for row in directory.rows_of(part)}
    if done.issuperset(part):
        return None
    with directory.writer(part) as rows:
        for seed in part:
            if seed not in done:
                rows.write(_run_guarded(seed, path).as_line() + "\n")
    return None


def _run_guarded(seed: int, out: Path) -> SeedResult:
    """Run a seed; an exception of the run becomes a finding, and does not end the search. But what
    the machine has run out of says nothing about the run: StorageError, and the seed has no row."""
    began = time.perf_counter()
    try:
        with no_garbage_collection():
            result = run_seed(seed, out=out)
    except StorageError:
        raise
    except Exception as error:
        if is_exhausted(error):
            raise StorageError(f"seed {seed} has no result: {in_words(error)}") from error
        # Whatever else it is, it broke every promise.
        result = _crash(seed, error)
    return replace(result, seconds=time.perf_counter() - began)


def _crash(seed: int, error: Exception) -> SeedResult:
    last = traceback.extract_tb(error.__traceback__)[-1]
    place = f"{Path(last.filename).name} in {last.name}"
    return SeedResult(
        seed=seed,
        verdict=Verdict.VIOLATED,
        events=0,
        messages=0,
        faults=(),
        broken=(f"crash: {error!r} [{place}, line {last.lineno}]",),
        guarantee="crash",
        fingerprint=f"crash: {kind_of(repr(error), ())} [{place}]",
    )


class Processes:
    """The engine that uses processes of this machine; with one worker, only this process."""

    def __init__(self, workers: int | None = None) -> None:
        self._workers = workers or os.cpu_count() or 1

    def run(
        self, work: Callable[[Any], str | None], items: Sequence[Any], look: Callable[[], None]
    ) -> list[str]:
        """Run all tasks. A process that dies ends its pool: unfinished tasks are run again."""
        if self._workers == 1:
            return self._run_here(work, items, look)
        said: list[str] = []
        left = list(items)
        for _ in range(POOLS):
            try:
                self._run_pool(work, left, said, look)
            except BrokenProcessPool:
                continue
            return said
        raise SearchError(
            f"processes of the search died {POOLS} times, killed or out of memory; "
            "fewer --workers need less"
        )

    @staticmethod
    def _run_here(
        work: Callable[[Any], str | None], items: Sequence[Any], look: Callable[[], None]
    ) -> list[str]:
        said = []
        for item in items:
            if why := work(item):
                said.append(why)
            look()
        return said

    def _run_pool(
        self,
        work: Callable[[Any], str | None],
        left: list[Any],
        said: list[str],
        look: Callable[[], None],
    ) -> None:
        """Run the items of `left`, and remove each when it is done."""
        with (
            ProcessPool(self._workers) as pool,
            closing(pool.each(work, list(left), LOOK_SECONDS)) as ended,
        ):
            looked = time.monotonic()
            for one in ended:
                if one is not None:
                    item, why = one
                    left.remove(item)
                    if why:
                        said.append(why)
                if time.monotonic() > looked + LOOK_SECONDS:
                    looked = time.monotonic()
                    look()


def empty_cells(result: SearchResult, cells: Iterable[Cell] = CELLS) -> list[Cell]:
    """Return the cells, generation or stack with a kind of fault, in which no fault bit."""
    return [cell for cell in cells if not result.cells[cell]]
