"""Many seeds, on all cores: generated scenarios, run and judged; a violation is kept and named."""

from __future__ import annotations

import os
import time
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from chaos.generate import MIN_BITES, MIN_MESSAGES, cell_of, generate
from chaos.oracles.verdict import Verdict, worst
from chaos.runner import Outcome, run_scenario, write_run

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
    cells: Counter[tuple[str, str]] = field(default_factory=Counter)
    """How often each generation met each kind of fault that bit."""

    def add(self, result: SeedResult) -> None:
        self.seeds += 1
        self.events += result.events
        generation, _leading = cell_of(result.seed)
        self.cells.update((generation, kind) for kind in result.faults)
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
    for attempt in range(ATTEMPTS):
        scenario = generate(seed, attempt)
        outcome = run_scenario(scenario, seed, make_unicast=make_unicast, min_bites=0)
        bitten = sum(1 for count in outcome.run.bites.values() if count)
        enough = bitten >= MIN_BITES and outcome.run.sent >= MIN_MESSAGES
        if enough or outcome.verdict is Verdict.VIOLATED:
            break
    if out is not None and outcome.verdict is not Verdict.HOLDS:
        write_run(outcome, out / f"seed-{seed}")
    return _summary(seed, outcome, enough=enough)


def _summary(seed: int, outcome: Outcome, *, enough: bool) -> SeedResult:
    broken = tuple(
        f"{finding.guarantee}: {finding.detail}"
        + (f" [{finding.witness[0]}]" if finding.witness else "")
        for finding in outcome.judgement.findings
        if finding.verdict is not Verdict.HOLDS
    )
    kinds = {
        outcome.run.kinds[fault]
        for fault, count in outcome.run.bites.items()
        if count and fault in outcome.run.kinds
    }
    verdict = outcome.verdict if enough else worst([outcome.verdict, Verdict.UNKNOWN])
    return SeedResult(
        seed, verdict, outcome.run.events, outcome.run.sent, tuple(sorted(kinds)), broken
    )


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


def empty_cells(
    result: SearchResult, generations: tuple[str, ...], kinds: tuple[str, ...]
) -> list[tuple[str, str]]:
    """Which generation never met which kind of fault."""
    return [
        (generation, kind)
        for generation in generations
        for kind in kinds
        if not result.cells[generation, kind]
    ]
