"""A run that proves nothing is unknown, never passed."""

from __future__ import annotations

import pytest

from stormcast.node.trace.files import count_events
from stormcast.pipeline.judgement import Judgement
from tests.pipeline.doubtful import OTHERS, UNKNOWN

pytestmark = pytest.mark.slow


@pytest.mark.parametrize("name", UNKNOWN)
def test_what_proves_nothing_is_unknown_and_says_why(
    name: str, doubts: dict[str, Judgement]
) -> None:
    judgement = doubts[name]

    assert str(judgement.verdict) == "unknown"
    assert any(UNKNOWN[name][1] in finding.detail for finding in judgement.findings)


def test_what_is_whole_holds(doubts: dict[str, Judgement]) -> None:
    assert str(doubts["clean"].verdict) == "holds"
    assert doubts["clean"].figures.messages == 5


def test_a_run_is_as_long_as_it_lasted_whatever_its_host_shows(
    doubts: dict[str, Judgement],
) -> None:
    """And a violation is at a time of the run; events are counted as whoever ran it counts them."""
    name = "on-a-host-that-is-up-for-an-hour"
    judgement = doubts[name]

    assert judgement.figures.seconds == pytest.approx(20.0)
    assert judgement.figures.events == sum(map(count_events, OTHERS[name].values()))
    (found,) = [one for one in judgement.findings if one.guarantee == "G1"]
    assert str(found.verdict) == "violated"
    assert found.at == pytest.approx(2.0)


def test_the_last_block_of_a_killed_member_may_be_torn(doubts: dict[str, Judgement]) -> None:
    assert str(doubts["torn-where-it-was-killed"].verdict) == "holds"


def test_a_death_that_nobody_ordered_is_said_first_and_excuses_what_came_after_it(
    doubts: dict[str, Judgement],
) -> None:
    first, *rest = doubts["death"].findings
    assert (first.guarantee, first.at) == ("run", pytest.approx(1.5))
    assert all(finding.holds for finding in rest)
    excused = doubts["loss-after-death"]
    assert excused.verdicts()["G1"] == "unknown"
    assert str(doubts["loss-before-death"].verdict) == "violated"
    assert str(doubts["ordered"].verdict) == "holds"


def test_a_violation_counts_even_where_a_fault_did_not_bite(
    doubts: dict[str, Judgement],
) -> None:
    assert str(doubts["a-loss-and-no-bite"].verdict) == "violated"


def test_a_run_that_was_cut_short_proves_no_loss(doubts: dict[str, Judgement]) -> None:
    judgement = doubts["cut-short"]

    assert str(judgement.verdict) == "unknown"
    assert judgement.verdicts()["G1"] == "unknown"


def test_what_waits_behind_a_gap_when_a_run_is_cut_short_is_no_violation(
    doubts: dict[str, Judgement],
) -> None:
    assert doubts["behind-a-gap"].verdicts()["G5"] == "violated"
    assert doubts["behind-a-gap-when-it-was-cut-short"].verdicts()["G5"] == "unknown"
    assert doubts["above-a-bound-before-it-was-cut-short"].verdicts()["G5"] == "violated"


def test_what_was_found_when_it_ran_is_told_and_never_passed_over(
    doubts: dict[str, Judgement],
) -> None:
    judgement = doubts["found-when-it-ran"]

    assert judgement.verdicts()["G8"] == "holds"
    assert judgement.verdicts()["G4"] == "holds"
    assert str(judgement.verdict) == "unknown"
    assert "G4 was violated when it ran" in judgement.findings[-1].detail


def test_what_nobody_judged_is_named(doubts: dict[str, Judgement]) -> None:
    """And what nobody has a check for is unknown, as the oracles say."""
    judgement = doubts["asked-for-more"]

    assert judgement.not_judged == ("G8",)
    assert judgement.verdicts() == {"G1": "holds", "T1": "unknown"}
    assert judgement.findings[-1].detail == "no check for it"
    assert str(judgement.verdict) == "unknown"


def test_a_fault_must_have_bitten_as_often_as_is_asked(doubts: dict[str, Judgement]) -> None:
    assert str(doubts["few-bites"].verdict) == "unknown"
