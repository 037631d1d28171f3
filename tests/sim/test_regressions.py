"""Scenarios that once failed, each with the seed that found it: they hold, and stay."""

from __future__ import annotations

from pathlib import Path

import pytest

from stormcast.chaos.language.scenario import load_scenario
from stormcast.chaos.oracles.verdict import Verdict
from stormcast.chaos.session.runner import run_scenario

FILES = sorted(Path(__file__).with_name("regressions").glob("*.yaml"))


@pytest.mark.slow
@pytest.mark.parametrize("path", FILES, ids=[path.stem for path in FILES])
def test_what_once_failed_holds(path: Path) -> None:
    """The name says what went wrong; the number at its end is the seed."""
    seed = int(path.stem.rpartition("-")[2])
    outcome = run_scenario(load_scenario(path), seed, min_bites=0)
    assert outcome.verdict is Verdict.HOLDS, outcome.judgement.findings


def test_there_are_regressions() -> None:
    assert len(FILES) >= 3
