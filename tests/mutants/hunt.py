"""The search for one mutant: consecutive seeds of its cells, until one is violated."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import count, islice
from pathlib import Path
from typing import Final

from stormcast.chaos.campaigns.search import outcome_of
from stormcast.chaos.language.scenario import load_scenario
from stormcast.chaos.oracles.verdict import Verdict
from stormcast.chaos.session.outcome import RunOutcome
from stormcast.chaos.session.runner import run_scenario
from tests.mutants import rare, stalls  # noqa: F401 register their mutants
from tests.mutants.groups import GROUP_BLIND, GROUP_MUTANTS, GroupMutant
from tests.mutants.hidden import HIDDEN_MUTANTS, HiddenMutant
from tests.mutants.mutants import BLIND, MUTANTS, Mutant

STORIES: Final = Path(__file__).parents[1] / "sim" / "regressions"
SEEDS = 500
"""How many of its seeds a mutant may take."""
BLIND_SEEDS = 40
"""Enough to notice that a blind spot is mended, and cheap while it is not."""
CRASH = "crash"

AnyMutant = Mutant | GroupMutant
ALL_MUTANTS: Final[dict[str, AnyMutant]] = {**MUTANTS, **GROUP_MUTANTS}
ALL_BLIND: Final = {**BLIND, **GROUP_BLIND}
NAMED_TESTS: Final = {name: blind.test for name, blind in ALL_BLIND.items()} | {
    name: mutant.test for name, mutant in HIDDEN_MUTANTS.items()
}
"""The test that fails with a mutant, by its name: of all that the search does not find."""
NUMBER: Final = len({*ALL_MUTANTS, *HIDDEN_MUTANTS})
assert len(MUTANTS) + len(GROUP_MUTANTS) + len(HIDDEN_MUTANTS) == NUMBER, "two share a name"


def named(name: str) -> AnyMutant | HiddenMutant:
    """Look up a mutant of any kind."""
    return ALL_MUTANTS.get(name) or HIDDEN_MUTANTS[name]


@dataclass(frozen=True, slots=True)
class Catch:
    """The seed that gave a mutant away."""

    seed: int
    needed: int
    """Seeds of the mutant's cells up to this one."""
    broken: tuple[str, ...]
    """Guarantees that it violated, or `crash`."""
    details: tuple[str, ...]


def applicable(mutant: AnyMutant) -> Iterator[int]:
    """The seeds in which to look for a mutant, from 0."""
    if isinstance(mutant, GroupMutant) and mutant.story:
        return count()
    return (seed for seed in count() if mutant.applies(seed))


def play(mutant: AnyMutant, seed: int) -> RunOutcome:
    """Run what a seed stands for, of a mutant: a drawn scenario, or the mutant's own."""
    story = mutant.story if isinstance(mutant, GroupMutant) else ""
    if story:
        return run_scenario(load_scenario(STORIES / f"{story}.yaml"), seed, min_bites=0)
    return outcome_of(seed).outcome


def hunt(mutant: AnyMutant, seeds: int = SEEDS) -> Catch | None:
    """Run applicable seeds until one is violated, or give up."""
    if mutant.name in ALL_BLIND:
        seeds = min(seeds, BLIND_SEEDS)
    for needed, seed in enumerate(islice(applicable(mutant), seeds), 1):
        try:
            with mutant.alive():
                outcome = play(mutant, seed)
        except (AttributeError, NameError, TypeError):
            # The product has changed, and the mutant does not fit it any more: it shows nothing.
            raise
        except Exception as error:  # noqa: BLE001 whatever a bug makes of the run, it was noticed
            return Catch(seed, needed, (CRASH,), (f"{type(error).__name__}: {error}",))
        if outcome.verdict is Verdict.VIOLATED:
            found = [
                finding
                for finding in outcome.judgement.findings
                if finding.verdict is Verdict.VIOLATED
            ]
            broken = tuple(dict.fromkeys(finding.guarantee for finding in found))
            details = tuple(f"{finding.guarantee}: {finding.detail}" for finding in found)
            return Catch(seed, needed, broken, details)
    return None
