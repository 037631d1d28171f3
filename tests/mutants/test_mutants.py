"""A check that was never seen failing is no check: each known bug is found by the search."""

from __future__ import annotations

import pytest

from chaos.oracles.verdict import CHECKS, Verdict
from chaos.search import run_seed
from tests.mutants.hunt import CRASH, SEEDS, hunt
from tests.mutants.mutants import BLIND, MUTANTS, Mutant

BLIND_SEEDS = 40
"""Enough to notice that a blind spot is mended, and cheap while it is not."""

pytestmark = pytest.mark.slow


def _parameter(mutant: Mutant) -> object:
    reason = BLIND.get(mutant.name)
    marks = [pytest.mark.xfail(reason=reason)] if reason else []
    return pytest.param(mutant, id=mutant.name, marks=marks)


@pytest.mark.parametrize("mutant", [_parameter(mutant) for mutant in MUTANTS.values()])
def test_a_mutant_is_caught(mutant: Mutant) -> None:
    """Within 500 of its seeds, by a guarantee that it breaks, and the product holds on that one."""
    caught = hunt(mutant, BLIND_SEEDS if mutant.name in BLIND else SEEDS)

    assert caught is not None, f"{mutant.about} Nothing noticed it."
    assert {*mutant.breaks, CRASH} & {*caught.broken}, caught.details
    assert run_seed(caught.seed).verdict is Verdict.HOLDS


@pytest.mark.parametrize("guarantee", CHECKS)
def test_every_guarantee_has_a_mutant(guarantee: str) -> None:
    assert any(
        guarantee in mutant.breaks for mutant in MUTANTS.values() if mutant.name not in BLIND
    )
