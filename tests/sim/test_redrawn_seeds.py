"""Which of the scenarios that are drawn for a seed is its result: all before it hold, and met too
little."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from stormcast.chaos.campaigns.generate import generate
from stormcast.chaos.campaigns.replay import Result, read_run, replay
from stormcast.chaos.campaigns.search import run_seed
from stormcast.chaos.language.scenario import Scenario
from stormcast.chaos.oracles.verdict import Verdict


def with_first(monkeypatch: pytest.MonkeyPatch, change: Callable[[Scenario], Scenario]) -> None:
    """The first scenario of each seed is another one."""

    def drawn(seed: int, attempt: int = 0) -> Scenario:
        scenario = generate(seed, attempt)
        return scenario if attempt else change(scenario)

    monkeypatch.setattr("stormcast.chaos.campaigns.search.generate", drawn)


def test_a_run_that_broke_off_is_the_result_of_its_seed(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """It counts no bites; the next scenario of this seed would hold."""
    with_first(monkeypatch, lambda one: replace(one, limits=replace(one.limits, trace=50_000)))
    result = run_seed(3, out=tmp_path)
    assert (result.verdict, result.attempt) == (Verdict.UNKNOWN, 0)
    assert result.fingerprint.startswith("run: it broke off: ")
    kept = read_run(tmp_path / "seed-3")
    assert replay(kept).result is Result.IDENTICAL


def test_a_run_whose_load_did_not_end_is_the_result_of_its_seed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Cut off by its limit, it met too few faults as well."""
    with_first(
        monkeypatch,
        lambda one: replace(
            one, timeline=(), limits=replace(one.limits, run=one.workload[0].start)
        ),
    )
    result = run_seed(3)
    assert (result.verdict, result.attempt) == (Verdict.UNKNOWN, 0)
    assert "the workload did not end" in result.broken[0]


def test_a_run_that_holds_and_met_too_little_is_drawn_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    with_first(monkeypatch, lambda one: replace(one, timeline=()))
    result = run_seed(3)
    assert (result.verdict, result.attempt) == (Verdict.HOLDS, 1)
