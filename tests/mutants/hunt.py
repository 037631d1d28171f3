"""The search for one mutant: consecutive seeds of its generations, until one is violated."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import count, islice

from chaos.generate import cell_of, generate
from chaos.oracles.verdict import Verdict
from chaos.runner import run_scenario
from chaos.search import ATTEMPTS, run_seed
from tests.mutants.mutants import Mutant

SEEDS = 500
"""How many of its seeds a mutant may take."""
CRASH = "crash"


@dataclass(frozen=True, slots=True)
class Catch:
    """The seed that gave a mutant away."""

    seed: int
    needed: int
    """Seeds of the mutant's generations up to this one."""
    broken: tuple[str, ...]
    """Guarantees that it violated, or `crash`."""
    details: tuple[str, ...]


def applicable(mutant: Mutant) -> Iterator[int]:
    """The seeds whose generation a mutant is a bug of, from 0."""
    return (seed for seed in count() if cell_of(seed)[0] in mutant.generations)


def hunt(mutant: Mutant, seeds: int = SEEDS) -> Catch | None:
    """Run applicable seeds until one is violated, or give up."""
    for needed, seed in enumerate(islice(applicable(mutant), seeds), 1):
        try:
            result = run_seed(seed, make_unicast=mutant.make_unicast)
        except Exception as error:  # noqa: BLE001 whatever a bug makes of the run, it was noticed
            return Catch(seed, needed, (CRASH,), (f"{type(error).__name__}: {error}",))
        if result.verdict is Verdict.VIOLATED:
            return Catch(seed, needed, *_violated(mutant, seed))
    return None


def _violated(mutant: Mutant, seed: int) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """What was violated, and how. A seed's own result also names what stayed unknown."""
    for attempt in range(ATTEMPTS):
        scenario = generate(seed, attempt)
        outcome = run_scenario(scenario, seed, make_unicast=mutant.make_unicast, min_bites=0)
        if outcome.verdict is Verdict.VIOLATED:
            break
    found = [
        finding for finding in outcome.judgement.findings if finding.verdict is Verdict.VIOLATED
    ]
    details = tuple(f"{finding.guarantee}: {finding.detail}" for finding in found)
    return tuple(dict.fromkeys(finding.guarantee for finding in found)), details
