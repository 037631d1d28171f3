"""Deaths that nobody ordered: what they excuse, and what not."""

from __future__ import annotations

import json

import pytest
from xxhash import xxh3_64_intdigest

from stormcast.chaos.oracles.evidence import Evidence
from stormcast.chaos.oracles.verdict import RUN, Judgement, Verdict, judge
from stormcast.node import trace
from tests.oracles.story import Story

SAID = "n1 died at 1.5 s of signal 9; nothing in the scenario did that"


def judged(story: Story) -> Judgement:
    return judge(Evidence.from_blocks(story.told(), xxh3_64_intdigest))


def verdicts(judgement: Judgement) -> dict[str, str]:
    """What does not hold."""
    return {
        finding.guarantee: str(finding.verdict)
        for finding in judgement.findings
        if finding.verdict is not Verdict.HOLDS
    }


def a_loss() -> Story:
    """n0 sends to n1 what n1 never delivers. The run began at 1.0."""
    return Story().a_clean_exchange().at(2.0).sends(6)


def test_nothing_is_owed_to_a_member_that_died_and_the_run_is_unknown_all_the_same() -> None:
    judgement = judged(a_loss().at(2.5).exits("n1"))

    assert verdicts(judgement) == {RUN: "unknown"}
    assert judgement.findings[0].detail == SAID
    assert judgement.findings[0].at == pytest.approx(1.5)
    assert verdicts(judged(a_loss())) == {"G1": "violated"}


def test_what_is_null_of_a_death_is_missing() -> None:
    null = {"signal": None, "incarnation": None, "why": None}
    judgement = judged(Story().a_clean_exchange().at(2.5).exits("n1", code=1, **null))
    assert judgement.findings[0].detail.startswith("n1 died at 1.5 s of exit code 1; ")


def test_an_end_that_the_rig_ordered_is_no_doubt() -> None:
    story = a_loss().at(2.5).fault("crash", member="n1").bites(1, do="crash")
    assert verdicts(judged(story.at(2.6).exits("n1", ordered=True))) == {}


def test_an_end_that_was_ordered_excuses_nothing_by_itself() -> None:
    """Whoever left wrote a STOP; the record of the process is not what tells."""
    assert verdicts(judged(a_loss().at(2.5).exits("n1", ordered=True))) == {"G1": "violated"}


def test_a_death_excuses_what_others_owed_each_other_only_afterwards() -> None:
    """n2 died; n1 lives and lacks a message: lost before that, the death explains nothing."""
    after = judged(Story().a_clean_exchange().at(1.8).exits("n2").at(2.0).sends(6))
    assert verdicts(after) == {RUN: "unknown", "G1": "unknown"}
    detail = after.of("G1").detail
    assert detail.startswith("n2 died at 0.8 s of signal 9; nothing in the scenario did that: ")
    assert after.of("G1").witness

    before = judged(a_loss().at(3.0).exits("n2"))
    assert verdicts(before) == {RUN: "unknown", "G1": "violated"}
    assert before.verdict is Verdict.VIOLATED


def test_no_death_explains_that_a_message_was_delivered_twice() -> None:
    story = Story().a_clean_exchange().at(1.5).exits("n2").at(2.0).delivers(5)
    judgement = judged(story)

    assert verdicts(judgement)["G2"] == "violated"
    assert judgement.verdict is Verdict.VIOLATED
    assert judgement.findings[0].guarantee == RUN


def test_a_group_that_had_no_time_to_agree_on_a_view_without_the_dead_is_not_blamed() -> None:
    story = Story(protocols={}).a_group().a_clean_cast()
    assert verdicts(judged(story.at(19.9).exits("n2"))) == {RUN: "unknown", "V4": "unknown"}


def an_offer_that_waits() -> Story:
    """Half of what n0 offers to the group before a death has not left at the end."""
    story = Story(both_ends=True).a_group().at(1.0).offers(1, 10, to="").casts(1, 5, number=1)
    story.is_given_cast(1, 5, "n0", "n0").at(1.1)
    for who in ("n1", "n2"):
        story.takes(1, 5, who).is_given_cast(1, 5, who)
    return story


def a_lane_that_waits() -> Story:
    """n0 waits for room for a message to the group from before a death to the end."""
    return Story().a_group().at(0.9).blocks().a_clean_cast()


WAITING = {"G1": an_offer_that_waits, "L1": a_lane_that_waits}


@pytest.mark.parametrize("guarantee", WAITING)
def test_what_waits_at_the_end_is_due_then_and_a_death_before_may_explain_it(
    guarantee: str,
) -> None:
    assert verdicts(judged(WAITING[guarantee]())) == {guarantee: "violated"}
    explained = judged(WAITING[guarantee]().at(5.0).exits("n2"))
    assert verdicts(explained)[guarantee] == "unknown"
    assert explained.verdict is Verdict.UNKNOWN


def test_the_last_block_of_a_member_that_died_may_be_torn() -> None:
    story = Story().a_clean_exchange()
    seen = len(story.told()["n1"])
    story.at(2.0).sends(6).at(2.1).exits("n1").delivers(6)
    blocks = story.told()
    torn = blocks | {"n1": blocks["n1"][: seen + 30]}
    judgement = judge(Evidence.from_blocks(torn, xxh3_64_intdigest))
    assert {finding.verdict for finding in judgement.findings[1:]} == {Verdict.HOLDS}


@pytest.mark.parametrize(
    ("who", "how", "said"),
    [
        ("n1", {"code": 1}, "n1 died at 2.0 s of exit code 1;"),
        ("n1", {"signal": 9, "why": "OOMKilled"}, "n1 died at 2.0 s of signal 9 (OOMKilled);"),
        ("n1-2", {"signal": 11}, "n1-2 died at 2.0 s of signal 11;"),
    ],
)
def test_how_a_member_died_is_told(who: str, how: dict[str, object], said: str) -> None:
    story = Story().a_clean_exchange().at(3.0).exits(who, **how)
    assert judged(story).findings[0].detail.startswith(said)


def test_a_death_while_members_gathered_is_not_given_a_time_of_the_run() -> None:
    story = Story().a_clean_exchange(at=1.0).at(1.5).exits("n2")
    story.rig.record(trace.PHASE, 2.0, text="begin")
    assert (
        "n2 died as the scenario began, or before, of signal 9" in judged(story).findings[0].detail
    )


def test_a_death_whose_member_nobody_knows_is_told_and_excuses_what_came_after() -> None:
    story = Story().a_clean_exchange().at(2.0).sends(6)
    text = {"name": "n3", "incarnation": 1, "signal": 9, "ordered": False}
    story.rig.record(trace.EXIT, 1.9, text=json.dumps(text))
    assert verdicts(judged(story)) == {RUN: "unknown", "G1": "unknown"}


def test_a_record_of_an_end_that_cannot_be_read_is_a_defect() -> None:
    story = Story().a_clean_exchange()
    story.rig.record(trace.EXIT, 2.0, text='{"name": "n1"}')
    assert "does not say what it should" in judged(story).findings[0].detail
