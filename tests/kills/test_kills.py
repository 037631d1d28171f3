"""A hundred kills, as `make kill-test KILLS=100` does them."""

from __future__ import annotations

from pathlib import Path

import pytest

from stormcast.pipeline.questions import CannotError
from stormcast.pipeline.session import check_java, check_pyspark
from tests.kills.campaign import AT_ONCE, Campaign, table
from tests.kills.plan import CELLS

pytestmark = [pytest.mark.root, pytest.mark.slow]

SEED = 1
KILLS = 100
FEWEST = 90
"""The moment of some is over before they come; on a busy machine it is rarely hit."""


def has_spark() -> bool:
    try:
        check_pyspark()
        check_java()
    except CannotError:
        return False
    return True


def test_a_hundred_kills_at_moments_drawn_from_a_seed_leave_nothing_and_lose_nothing(
    tmp_path: Path,
) -> None:
    campaign = Campaign(
        seed=SEED, folder=tmp_path, at_once=AT_ONCE, has_spark=has_spark(), say=print
    )
    campaign.run(range(KILLS))
    print(table(campaign))
    assert campaign.bad == []
    assert len(campaign.done) + len(campaign.skipped) >= FEWEST
    struck = {(kill.victim, kill.phase) for kill, _found in campaign.done}
    left_out = {(kill.victim, kill.phase) for kill in campaign.skipped + campaign.missed}
    assert struck | left_out == set(CELLS)
    # Else it would show nothing.
    assert sum(found.blocks for _kill, found in campaign.done) > KILLS
    assert any(found.acted for _kill, found in campaign.done)
    assert campaign.beside
