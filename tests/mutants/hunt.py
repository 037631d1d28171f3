"""The search for one mutant: consecutive seeds of its cells, until one is violated."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import cache
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

TABLE: Final = Path(__file__).parents[2] / "docs" / "testing.md"
STORIES: Final = Path(__file__).parents[1] / "sim" / "regressions"
SEEDS = 500
"""How many of its seeds a mutant may take."""
BLIND_SEEDS = 40
"""Enough to notice that a blind spot is mended, and cheap while it is not."""
BLIND_AGAIN = 10
"""Fewer where only what the table says is tried again."""
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


def story_of(mutant: AnyMutant) -> str:
    """Return the name of the scenario in which to look for a mutant; empty: in those of seeds."""
    return mutant.story if isinstance(mutant, GroupMutant) else ""


def applicable(mutant: AnyMutant) -> Iterator[int]:
    """The seeds in which to look for a mutant, from 0."""
    if story_of(mutant):
        return count()
    return (seed for seed in count() if mutant.applies(seed))


def play(mutant: AnyMutant, seed: int) -> RunOutcome:
    """Run what a seed stands for, of a mutant: a drawn scenario, or the mutant's own."""
    if story := story_of(mutant):
        return run_scenario(load_scenario(STORIES / f"{story}.yaml"), seed, min_bites=0)
    return outcome_of(seed).outcome


def hunt(mutant: AnyMutant, seeds: int = SEEDS) -> Catch | None:
    """Run applicable seeds until one is violated, or give up."""
    if mutant.name in ALL_BLIND:
        seeds = min(seeds, BLIND_SEEDS)
    return _first_catch(mutant, islice(applicable(mutant), seeds))


@cache
def known_seeds() -> dict[str, int]:
    """Return the seed by which each mutant was caught when the table was made."""
    rows = re.finditer(r"^\| ([a-z0-9-]+) \|.*\| (\d+) \|$", TABLE.read_text(), re.MULTILINE)
    return {row[1]: int(row[2]) for row in rows}


def catch_again(mutant: AnyMutant) -> Catch | None:
    """Run the seed that caught a mutant before; only if it does not any more, hunt for another."""
    known = known_seeds().get(mutant.name)
    again = _first_catch(mutant, [known]) if known is not None else None
    return again or hunt(mutant, BLIND_AGAIN if mutant.name in ALL_BLIND else SEEDS)


def _first_catch(mutant: AnyMutant, seeds: Iterable[int]) -> Catch | None:
    for needed, seed in enumerate(seeds, 1):
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
