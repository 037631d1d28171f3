"""A check that was never seen failing is no check: each known bug is found by the search."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Final

import pytest

from stormcast.chaos.campaigns.search import outcome_of
from stormcast.chaos.oracles.verdict import CHECKS, Verdict
from tests.mutants.groups import GroupMutant
from tests.mutants.hunt import (
    ALL_BLIND,
    ALL_MUTANTS,
    CRASH,
    NAMED_TESTS,
    AnyMutant,
    catch_again,
    play,
    story_of,
)
from tests.mutants.patches import Patches

pytestmark = pytest.mark.slow

ROOT: Final = Path(__file__).parents[2]
SEARCHED: Final = range(1000)
"""The seeds of `make sim`, which looks whether the product holds on each of them."""
DEAR: Final = (
    "oob-not-placed",
    "silent-messages-never-own",
    "only-coordinators-merge",
    "the-dead-stay",
    "nobody-is-next",
    "credits-never-renewed",
)
"""What each of these breaks goes on until the end of its run, which takes ten to thirty seconds."""


def _parameter(mutant: AnyMutant) -> object:
    blind = ALL_BLIND.get(mutant.name)
    marks = [pytest.mark.xfail(reason=str(blind))] if blind else []
    marks += [pytest.mark.long] if mutant.name in DEAR else []
    return pytest.param(mutant, id=mutant.name, marks=marks)


@pytest.mark.parametrize("mutant", [_parameter(mutant) for mutant in ALL_MUTANTS.values()])
def test_a_mutant_is_caught(mutant: AnyMutant) -> None:
    """By the seed of the table, or within 500 of its seeds, by a guarantee that it breaks, and the
    product holds on that one: here, or in the search of CI."""
    caught = catch_again(mutant)

    assert caught is not None, f"{mutant.about} Nothing noticed it."
    assert {*mutant.breaks, CRASH} & {*caught.broken}, caught.details
    if story_of(mutant) or caught.seed not in SEARCHED:
        assert play(mutant, caught.seed).verdict is Verdict.HOLDS


def test_ci_searches_the_seeds_on_which_mutants_are_caught() -> None:
    assert f"make sim SEEDS={len(SEARCHED)}\n" in (ROOT / ".ci" / "run").read_text()


@pytest.mark.parametrize("name", NAMED_TESTS)
def test_a_mutant_that_the_search_cannot_find_fails_the_test_that_it_names(name: str) -> None:
    command = [sys.executable, "-m", "pytest", "-q", "-x", "-p", "no:cacheprovider"]
    command += ["-p", "tests.mutants.alive", "--mutant", name, NAMED_TESTS[name]]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == pytest.ExitCode.TESTS_FAILED, done.stdout + done.stderr
    assert "1 failed" in done.stdout


# Seeds draw no strangers: S1 has a cipher that hides nothing, in tests/sim/test_strangers.py.
@pytest.mark.parametrize("guarantee", [name for name in CHECKS if name != "S1"])
def test_every_guarantee_has_a_mutant(guarantee: str) -> None:
    assert any(
        guarantee in mutant.breaks
        for mutant in ALL_MUTANTS.values()
        if mutant.name not in ALL_BLIND
    )


def test_a_bug_ends_with_its_run() -> None:
    """Also what was inherited is as it was before."""

    class Product:
        def says(self) -> str:
            return "sound"

    class Part(Product):
        pass

    def bug(patches: Patches) -> None:
        patches.put(Part, "says", lambda _self: "broken")

    mutant = GroupMutant(
        name="x",
        about="x",
        source="x",
        stacks=(),
        kinds=(),
        plots=(),
        extras=(),
        breaks=(),
        bug=bug,
    )
    with mutant.alive():
        assert Part().says() == "broken"
        assert Product().says() == "sound"
    assert Part().says() == "sound"
    assert "says" not in vars(Part)


def test_what_went_wrong_before_a_run_broke_off_was_wrong() -> None:
    """Its group never comes to be, so that the scenario never begins: no reason to overlook why."""
    with ALL_MUTANTS["views-without-me-installed"].alive():
        outcome = outcome_of(0).outcome
    assert "one view" in outcome.run.broke_off
    assert outcome.verdict is Verdict.VIOLATED
    assert {finding.guarantee for finding in outcome.judgement.findings} == {"V2", "run"}
