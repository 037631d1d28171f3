"""How much a run owed: what its verdict is worth."""

from __future__ import annotations

import pytest
from xxhash import xxh3_64_intdigest

from stormcast.chaos.oracles.evidence import Evidence
from stormcast.chaos.oracles.owed import owed_by
from stormcast.chaos.oracles.verdict import judge
from tests.oracles.application_corpus import CASES
from tests.oracles.corpus import Case
from tests.oracles.story import Story


@pytest.mark.parametrize(
    ("case", "said"),
    [
        ("all_that_was_offered_is_handed_over", "12 of 12 delivered (12 unicasts)"),
        ("a_message_in_pieces_is_handed_over_whole", "1 of 1 delivered (1 unicasts)"),
        ("a_message_in_pieces_is_thrown_away_after_it_was_acked", "0 of 1 delivered (1 unicasts)"),
        ("a_delivery_never_reaches_its_application", "5 of 7 delivered (7 unicasts)"),
        # What is given up aloud is not owed any more.
        ("a_sender_that_is_told_lost_nothing_in_silence", "5 of 5 delivered (5 unicasts)"),
        # Older traces are counted by what windows delivered.
        ("the_end_of_a_batch_is_lost", "7 of 10 delivered (10 unicasts)"),
        ("all_multicasts_are_delivered", "33 of 33 delivered (11 multicasts to 3 members)"),
    ],
)
def test_a_run_says_how_much_it_owed_and_how_much_of_it_arrived(case: str, said: str) -> None:
    evidence = Evidence.from_blocks(CASES[case].blocks, xxh3_64_intdigest)
    assert str(owed_by(evidence)) == said


SOUND = [case for case in CASES.values() if not case.violates]


@pytest.mark.parametrize("case", SOUND, ids=lambda case: case.name)
def test_where_nothing_is_lost_what_is_owed_need_not_be_looked_for(case: Case) -> None:
    evidence = Evidence.from_blocks(case.blocks, xxh3_64_intdigest)
    if not evidence.groups.alarms:
        assert owed_by(evidence, is_all_there=True) == owed_by(evidence)


def test_what_an_alarm_excuses_is_missing_all_the_same() -> None:
    case = CASES["without_repair_a_lost_multicast_raises_the_alarm"]
    owed = judge(Evidence.from_blocks(case.blocks, xxh3_64_intdigest)).owed
    assert owed is not None
    assert (owed.owed, owed.delivered) == (33, 27)


def test_batches_of_billions_are_counted_as_ranges() -> None:
    """No member writes them; a trace may say so all the same, and nobody counts one by one."""
    most = (1 << 32) - 1
    story = Story(both_ends=True).at(1.0).offers(1, most).opens().sends(1, most, number=1)
    story.at(1.1).listens().delivers(1, 3 * 10**9, part_of=(1, most)).is_given(1, 3 * 10**9)
    evidence = Evidence.from_blocks(story.told(), xxh3_64_intdigest)
    assert evidence.defects == []
    assert str(owed_by(evidence)) == f"3000000000 of {most} delivered ({most} unicasts)"
