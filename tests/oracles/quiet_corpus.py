"""More small runs with a known verdict: when control traffic has to end (C1)."""

from __future__ import annotations

from tests.oracles.corpus import broken, sound
from tests.oracles.held_corpus import CASES
from tests.oracles.story import Story

__all__ = ["CASES"]


# -- Ageing ----------------------------------------------------------------------------------------


def n1_crashes(s: Story) -> Story:
    """n0 sends five messages, which are acked; then n1 crashes, at 2 s."""
    return s.a_clean_exchange().at(2.0).fault("crash", member="n1").bites(1)


@broken(
    "C1",
    age_within=10.0,
    quiet_within=1.0,
    witness=("n0#5 t=13.100 resent to n1 conn 1 seqnos 6..8",),
)
def what_nobody_answers_is_resent_for_too_long(s: Story) -> None:
    n1_crashes(s).sends(6, 8).at(13.1).resends(6, 8).ends(20.0)


@sound(age_within=10.0, quiet_within=1.0)
def what_nobody_answers_is_resent_until_its_connection_ages(s: Story) -> None:
    n1_crashes(s).sends(6, 8).at(13.0).resends(6, 8).ends(20.0)


@sound(age_within=10.0, quiet_within=1.0)
def what_is_sent_to_a_dead_member_later_ages_from_then_on(s: Story) -> None:
    """C1: "counted from the end of that member, the last answer of it, and the first sending of the
    oldest batch that it has not acked"."""
    n1_crashes(s).at(9.0).sends(6, 8).at(20.0).resends(6, 8).ends(25.0)


@broken(
    "C1",
    age_within=10.0,
    quiet_within=1.0,
    witness=("n0#6 t=20.100 resent to n1 conn 1 seqnos 9..9",),
)
def the_oldest_unacked_batch_counts_and_not_the_newest(s: Story) -> None:
    n1_crashes(s).at(9.0).sends(6, 8).at(19.0).sends(9).at(20.1).resends(9).ends(25.0)


@sound(age_within=10.0, quiet_within=1.0)
def an_answer_that_was_under_way_counts(s: Story) -> None:
    """n1 took and acked 6 to 8 as it crashed; that is heard later."""
    s.a_clean_exchange().at(1.9).sends(6, 8).sends(9).at(2.0).delivers(6, 8).acks(8)
    s.fault("crash", member="n1").bites(1).at(4.0).purges(6, 8).at(15.0).resends(9).ends(20.0)


@sound(age_within=10.0, quiet_within=1.0)
def a_view_names_its_members_in_fewer_digits(s: Story) -> None:
    """Events, view: "eight hexadecimal digits each (a reader takes fewer)"."""
    n1_crashes(s).sends(6, 8).is_handed(1, "n0", "n1", who="n0", digits=2)
    s.at(30.0).resends(6, 8).ends(40.0)


@broken("C1", age_within=10.0, quiet_within=1.0)
def a_view_in_fewer_digits_lacks_the_receiver(s: Story) -> None:
    n1_crashes(s).sends(6, 8).is_handed(1, "n0", "n2", who="n0", digits=2)
    s.at(30.0).resends(6, 8).ends(40.0)


@sound(age_within=10.0, quiet_within=1.0)
def what_is_resent_in_the_turn_of_the_view_is_still_of_the_connection(s: Story) -> None:
    n1_crashes(s).sends(6, 8).is_handed(1, "n0", "n1", who="n0").at(30.0)
    s.is_handed(2, "n0", who="n0").resends(6, 8).removes(why="aged", unacked=3)
