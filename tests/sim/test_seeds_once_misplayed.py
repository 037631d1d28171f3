"""Seeds whose scenarios a session once played wrongly, and others of their kind, with connections
counted as real members count them."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from stormcast.chaos.backends.base import Unsupported
from stormcast.chaos.backends.sim.backend import SimBackend
from stormcast.chaos.campaigns.generate import generate
from stormcast.chaos.language.scenario import Scenario
from stormcast.chaos.oracles.verdict import Verdict
from stormcast.chaos.session.judging import judge_run
from stormcast.chaos.session.session import play

BROKE = (5028, 5336, 5540, 5613, 5642, 5713, 5795, 5833, 6067, 6188, 6293, 6335, 90995)
"""Seeds whose session once blamed the members for what it had done itself, or broke off."""
SEEDS = (*BROKE, *range(7000, 7040))


@pytest.mark.parametrize("seed", SEEDS)
def test_what_is_generated_holds(seed: int, tmp_path: Path) -> None:
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
