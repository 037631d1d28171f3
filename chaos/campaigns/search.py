"""Many seeds, on all cores: generated scenarios, run and judged; a violation is kept and named."""

from __future__ import annotations

import os
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from chaos.campaigns.generate import CELLS, Cell, cell_of, generate, least_of
from chaos.language.scenario import Scenario
from chaos.language.timeline import CURES, WORDS
from chaos.oracles.verdict import Verdict, worst
from chaos.records.directory import make_fresh
from chaos.session.runner import Outcome, run_scenario, write_run

CHUNK: Final = 20
ATTEMPTS: Final = 8
"""Scenarios drawn for a seed until enough of its faults bite."""


@dataclass(frozen=True, slots=True)
class SeedResult:
    """What became of one seed."""

    seed: int
    verdict: Verdict
    events: int
    messages: int
    faults: tuple[str, ...]
    """Kinds of faults that bit."""
    broken: tuple[str, ...] = ()
    """Guarantees violated, each with its first witness."""


@dataclass(slots=True)
class SearchResult:
    """What became of all of them."""

    seeds: int = 0
    events: int = 0
    seconds: float = 0.0
    violations: list[SeedResult] = field(default_factory=list)
    unknown: list[SeedResult] = field(default_factory=list)
    cells: Counter[Cell] = field(default_factory=Counter)
    """How often each generation or stack met each kind of fault that bit."""

    def add(self, result: SeedResult) -> None:
        self.seeds += 1
        self.events += result.events
        what, _leading = cell_of(result.seed)
        self.cells.update((what, kind) for kind in result.faults)
        if result.verdict is Verdict.VIOLATED:
            self.violations.append(result)
        elif result.verdict is Verdict.UNKNOWN:
            self.unknown.append(result)

    def as_json(self) -> dict[str, Any]:
        """What `stormcast search --json` prints."""
        return {
            "seeds": self.seeds,
            "violations": len(self.violations),
            "unknown": len(self.unknown),
            "events": self.events,
            "seconds": round(self.seconds, 3),
            "violated_seeds": [
                {"seed": result.seed, "broken": list(result.broken)} for result in self.violations
            ],
            "unknown_seeds": [result.seed for result in self.unknown],
        }


def run_seed(
    seed: int, make_unicast: Callable[..., Any] | None = None, out: Path | None = None
) -> SeedResult:
    """Draw scenarios for a seed until one bites, run it, judge it."""
    outcome, enough = outcome_of(seed, make_unicast)
    if out is not None and outcome.verdict is not Verdict.HOLDS:
        # A seed that was kept before, by another version maybe, stays as it is.
        write_run(outcome, make_fresh(out, f"seed-{seed}"))
    return _summary(seed, outcome, enough=enough)


def outcome_of(
    seed: int,
    make_unicast: Callable[..., Any] | None = None,
    make_multicast: Callable[..., Any] | None = None,
) -> tuple[Outcome, bool]:
    """The first run of a seed that is worth judging, or proves a violation; and whether it is."""
    least = least_of(seed)
    for attempt in range(ATTEMPTS):
        outcome = run_scenario(
            generate(seed, attempt),
            seed,
            make_unicast=make_unicast,
            make_multicast=make_multicast,
            min_bites=0,
        )
        bitten = sum(1 for count in outcome.run.bites.values() if count)
        enough = bitten >= least.bites and outcome.run.sent >= least.messages
        if enough or outcome.verdict is Verdict.VIOLATED:
            break
    return outcome, enough


def _summary(seed: int, outcome: Outcome, *, enough: bool) -> SeedResult:
    broken = tuple(
        f"{finding.guarantee}: {finding.detail}"
        + (f" [{finding.witness[0]}]" if finding.witness else "")
        for finding in outcome.judgement.findings
        if finding.verdict is not Verdict.HOLDS
    )
    kinds = {kind for fault, kind in _kinds(outcome.scenario) if outcome.run.bites.get(fault)}
    verdict = outcome.verdict if enough else worst([outcome.verdict, Verdict.UNKNOWN])
    return SeedResult(
        seed, verdict, outcome.run.events, outcome.run.sent, tuple(sorted(kinds)), broken
    )


def _kinds(scenario: Scenario) -> Iterator[tuple[str, str]]:
    """Every fault of a scenario, by the id that it runs under, and its word in the file: what it
    is made of (a churn of leaves and joins) may go by other words."""
    steps = (step for step in scenario.timeline if not isinstance(step.action, CURES))
    for number, step in enumerate(steps, 1):
        yield step.name or f"f{number}", WORDS[type(step.action)]


def search(
    seeds: range,
    progress: Callable[[SearchResult], None],
    out: Path | None = None,
    workers: int | None = None,
) -> SearchResult:
    """Run all seeds in parallel; `progress` is told after each chunk."""
    total = SearchResult()
    began = time.perf_counter()
    for results in _results(seeds, out, workers or os.cpu_count() or 1):
        for result in results:
            total.add(result)
        total.seconds = time.perf_counter() - began
        progress(total)
    return total


def _results(seeds: range, out: Path | None, workers: int) -> Iterator[list[SeedResult]]:
    chunks = [seeds[at : at + CHUNK] for at in range(0, len(seeds), CHUNK)]
    if workers == 1:
        yield from (_run_chunk(chunk, out) for chunk in chunks)
        return
    with ProcessPoolExecutor(workers) as pool:
        futures = [pool.submit(_run_chunk, chunk, out) for chunk in chunks]
        try:
            for future in futures:
                yield future.result()
        except BaseException:
            # Ctrl-C, or a broken scenario: what has not begun never will.
            pool.shutdown(wait=False, cancel_futures=True)
            raise


def _run_chunk(seeds: range, out: Path | None) -> list[SeedResult]:
    return [_run_guarded(seed, out) for seed in seeds]


def _run_guarded(seed: int, out: Path | None) -> SeedResult:
    """A seed whose run falls over is a finding with a name, not the end of the search."""
    try:
        return run_seed(seed, out=out)
    except Exception as error:  # noqa: BLE001 whatever it is, it broke every promise
        return SeedResult(seed, Verdict.VIOLATED, 0, 0, (), (f"crash: {error!r}",))


def empty_cells(result: SearchResult, cells: Iterable[Cell] = CELLS) -> list[Cell]:
    """Which generation or stack never met which kind of fault."""
    return [cell for cell in cells if not result.cells[cell]]
