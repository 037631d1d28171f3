"""Runs of the real protocols that hold are cut into chapters anywhere: each chapter holds, too."""

from __future__ import annotations

from collections.abc import Iterable
from random import Random
from typing import Final

import pytest

from stormcast.chaos.campaigns.search import outcome_of
from stormcast.chaos.language.scenario import Scenario
from stormcast.chaos.oracles.verdict import Verdict
from tests.oracles.cut import chapters_of, moments_of

SEEDS: Final = (*range(100, 112), 135, 160, 166, 176, 222, 261)
"""The last six were once judged otherwise in chapters."""
MORE: Final = range(112, 300)
CUTS: Final = 8


def in_chapters(seeds: Iterable[int]) -> int:
    """Cut the runs of these seeds, and return how many chapters went on in others."""
    turns = 0
    for seed in seeds:
        outcome = outcome_of(seed).outcome
        assert outcome.verdict is Verdict.HOLDS
        if sends_unnumbered(outcome.scenario):
            continue
        moments, dice = moments_of(outcome.run.traces), Random(seed)
        # At rest it is mostly at the end.
        for some in (moments, moments[-len(moments) // 3 :]):
            cuts = sorted(dice.sample(some, min(len(some), CUTS)))
            chapters = list(chapters_of(outcome.run.traces, cuts))
            turns += len(chapters) - 1
            for chapter in chapters:
                findings = chapter.judgement.findings
                bad = [one for one in findings if one.verdict is Verdict.VIOLATED]
                assert not bad, (seed, cuts, chapter.ends, bad)
    return turns


def sends_unnumbered(scenario: Scenario) -> bool:
    """Such a message may come late, or again, whenever it was sent; storms send none."""
    return any("NO_RELIABILITY" in load.flags for load in scenario.workload)


def test_chapters_of_a_run_that_holds_hold() -> None:
    assert in_chapters(SEEDS) >= 8


@pytest.mark.long
def test_chapters_of_many_runs_that_hold_hold() -> None:
    assert in_chapters(MORE) >= 100
