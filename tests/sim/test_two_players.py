"""One scenario, two players: the simulator by itself, and a session over the verbs of its backend,
as real members are played. They differ in moments, never in what a run proves.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from stormcast.chaos.backends.base import Unsupported
from stormcast.chaos.backends.sim.backend import SimBackend
from stormcast.chaos.campaigns.generate import generate
from stormcast.chaos.language.scenario import Scenario, load_scenario
from stormcast.chaos.oracles.verdict import Verdict
from stormcast.chaos.session.judging import judge_run
from stormcast.chaos.session.record import RunRecord
from stormcast.chaos.session.runner import run_scenario
from stormcast.chaos.session.session import play

LIBRARY = Path(__file__).parents[2] / "chaos" / "scenarios"
TOO_MANY = frozenset({"fifty-members", "hundred-members"})
"""Scenarios that take a quarter of a minute each, for nothing that the others do not show."""
SCENARIOS = sorted(path for path in LIBRARY.glob("*.yaml") if path.stem not in TOO_MANY)
BROKE = (5028, 5336, 5540, 5613, 5642, 5713, 5795, 5833, 6067, 6188, 6293, 6335, 90995)
"""Seeds whose session once blamed the members for what it had done itself, or broke off."""
SEEDS = (*BROKE, *range(7000, 7040))


def last_views(run: RunRecord) -> dict[str, frozenset[str]]:
    """Who is with whom at the end, by the names of members."""
    return {
        run.lives[label].name: frozenset(run.lives[who].name for who in views[-1].members)
        for label, views in run.views.items()
        if run.lives[label].end >= run.seconds
    }


@pytest.mark.parametrize("path", SCENARIOS, ids=lambda path: path.stem)
def test_both_players_come_to_the_same(path: Path, tmp_path: Path) -> None:
    scenario = load_scenario(path)

    one = run_scenario(scenario, 7)
    other = play(scenario, 7, SimBackend(), tmp_path)

    assert judge_run(scenario, other).verdict is one.verdict is Verdict.HOLDS
    assert last_views(other) == last_views(one.run)
    assert {fault for fault, bites in other.bites.items() if bites} == {
        fault for fault, bites in one.run.bites.items() if bites
    }


@pytest.mark.parametrize("seed", SEEDS)
def test_what_is_generated_holds_for_a_session_too(seed: int, tmp_path: Path) -> None:
    scenario = as_real_members_can(generate(seed, 0))

    try:
        run = play(scenario, seed, SimBackend(), tmp_path)
    except Unsupported as error:
        pytest.skip(str(error))

    findings = judge_run(scenario, run, min_bites=0).findings
    assert [one for one in findings if one.verdict is not Verdict.HOLDS] == []


def as_real_members_can(scenario: Scenario) -> Scenario:
    """Real members count their connections from 1."""
    return replace(scenario, cluster=replace(scenario.cluster, unicast_first_conn=None))
