"""Which of the scenarios that are drawn for a seed is its result: all before it hold, and met too
little."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from stormcast.chaos import faults
from stormcast.chaos.campaigns.generate import cell_of, generate, least_of
from stormcast.chaos.campaigns.replay import Result, read_run, replay
from stormcast.chaos.campaigns.search import run_seed
from stormcast.chaos.faults import KEY_STEPS
from stormcast.chaos.language.cluster import Cluster
from stormcast.chaos.language.scenario import Scenario
from stormcast.chaos.language.timeline import Step
from stormcast.chaos.oracles.verdict import Verdict


def with_first(monkeypatch: pytest.MonkeyPatch, change: Callable[[Scenario], Scenario]) -> None:
    """The first scenario of each seed is another one."""

    with_all(monkeypatch, change, until=1)


def with_all(
    monkeypatch: pytest.MonkeyPatch, change: Callable[[Scenario], Scenario], until: int = 1_000
) -> None:
    """All scenarios of each seed before the one of number `until` are others."""

    def drawn(seed: int, attempt: int = 0) -> Scenario:
        scenario = generate(seed, attempt)
        return change(scenario) if attempt < until else scenario

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


def test_messages_that_are_owed_to_nobody_do_not_count(monkeypatch: pytest.MonkeyPatch) -> None:
    """All multicasts are NO_RELIABILITY: hundreds leave, and no guarantee asks for one of them."""
    with_first(monkeypatch, _promises_nothing)
    result = run_seed(3)
    assert (result.verdict, result.attempt) == (Verdict.HOLDS, 1)
    assert result.owed is not None
    assert result.owed >= least_of(3).owed


def _promises_nothing(scenario: Scenario) -> Scenario:
    loads = [replace(load, flags=("NO_RELIABILITY",)) for load in scenario.workload]
    return replace(scenario, workload=tuple(loads))


LEADING = Step(at=2.0, action=faults.Partition(shape="halves"), duration=3.0)
"""Of the kind that seed 0 is led by."""


KEY_CHANGE = [
    Step(at=2.0 + number, action=faults.ChangeKeys(step=word))
    for number, word in enumerate(KEY_STEPS)
]


def a_change(value: float) -> Step:
    action = faults.SetAttribute(member="n1", attribute="NAKACK2.xmit_interval", value=value)
    return Step(at=3.0, action=action)


@pytest.mark.parametrize(
    ("steps", "verdict"),
    [
        ([LEADING, a_change(0.7)], Verdict.HOLDS),
        ([LEADING, a_change(0.7), a_change(0.5)], Verdict.HOLDS),
        ([LEADING], Verdict.UNKNOWN),
        ([LEADING, a_change(0.5), a_change(0.5)], Verdict.UNKNOWN),
        ([LEADING, *KEY_CHANGE], Verdict.UNKNOWN),
        ([a_change(0.7), Step(at=4.0, action=faults.Restart(member="n2"))], Verdict.UNKNOWN),
    ],
    ids=["enough", "back and forth", "one", "no change", "changes of keys", "not led"],
)
def test_faults_count_that_trouble_somebody_the_leading_one_among_them(
    monkeypatch: pytest.MonkeyPatch, steps: list[Step], verdict: Verdict
) -> None:
    """The members repair every half second as they are: to set that is no fault."""
    with_all(monkeypatch, lambda one: replace(one, timeline=tuple(steps), cluster=a_group(one)))
    monkeypatch.setattr("stormcast.chaos.campaigns.search.ATTEMPTS", 1)
    assert cell_of(0) == ("udp", "partition")
    assert run_seed(0).verdict is verdict


def a_group(scenario: Scenario) -> Cluster:
    """The same members, sealed, with the settings of their stack."""
    return Cluster(members=scenario.cluster.members, stack="udp", timing="fast", sealed=True)


def test_a_seed_that_never_meets_enough_is_unknown(monkeypatch: pytest.MonkeyPatch) -> None:
    with_all(monkeypatch, lambda one: replace(one, timeline=(), cluster=a_group(one)))
    monkeypatch.setattr("stormcast.chaos.campaigns.search.ATTEMPTS", 2)
    result = run_seed(0)
    assert (result.verdict, result.attempt) == (Verdict.UNKNOWN, 1)
    assert result.fingerprint == "no scenario of 2 met enough"
