"""More small runs with a known verdict: what is resent for a request that comes (L1)."""

from __future__ import annotations

from tests.oracles.corpus import broken, sound
from tests.oracles.group_corpus import nakack2
from tests.oracles.quiet_corpus import CASES
from tests.oracles.story import Story

__all__ = ["CASES"]


# -- Unicasts --------------------------------------------------------------------------------------


def a_gap(s: Story) -> Story:
    """n1 has 1 to 5, which are purged, and asks for 6 to 20, which it lacks."""
    s.at(1.0).sends(1, 5).sends(6, 10).sends(11, 15).sends(16, 20).at(1.1).delivers(1, 5).acks(5)
    return s.at(1.2).purges(1, 5).requests(6, 20).at(1.3)


def is_repaired(s: Story) -> Story:
    """What n1 lacked has come, and is acked and purged."""
    s.at(1.9).delivers(6, 10).delivers(11, 15).delivers(16, 20).acks(20)
    return s.at(2.0).purges(6, 20)


@sound()
def a_request_is_answered_whole(s: Story) -> None:
    is_repaired(a_gap(s).is_asked(6, 20).resends(6, 10).resends(11, 15).resends(16, 20))


@broken("L1", witness=("n0#6 t=1.300 answered to n1 conn 1 seqnos 6..20",))
def a_request_is_not_answered(s: Story) -> None:
    is_repaired(a_gap(s).is_asked(6, 20))


@broken(
    "L1",
    witness=(
        "n0#6 t=1.300 answered to n1 conn 1 seqnos 6..20",
        "n0#7 t=1.300 resent to n1 conn 1 seqnos 6..10",
    ),
)
def a_request_is_answered_with_the_first_batch(s: Story) -> None:
    is_repaired(a_gap(s).is_asked(6, 20).resends(6, 10))


@broken("L1")
def a_request_is_answered_with_the_last_batch(s: Story) -> None:
    is_repaired(a_gap(s).is_asked(6, 20).resends(16, 20))


@broken("L1")
def a_request_is_answered_but_for_the_middle(s: Story) -> None:
    """L1: "... and altogether for as many as it counts"."""
    is_repaired(a_gap(s).is_asked(6, 20).resends(6, 10).resends(16, 20))


@sound()
def what_a_request_leaves_out_need_not_be_resent(s: Story) -> None:
    is_repaired(a_gap(s).is_asked(6, 20, count=10).resends(6, 10).resends(16, 20))


@broken("L1")
def the_last_seqno_of_a_request_is_asked_for(s: Story) -> None:
    is_repaired(a_gap(s).is_asked(6, 20, count=10).resends(6, 10).resends(11, 15))


@broken("L1")
def the_first_seqno_of_a_request_is_asked_for(s: Story) -> None:
    is_repaired(a_gap(s).is_asked(6, 20, count=10).resends(11, 15).resends(16, 20))


@sound()
def what_is_purged_cannot_be_resent(s: Story) -> None:
    is_repaired(a_gap(s).is_asked(1, 20).resends(6, 10).resends(11, 15).resends(16, 20))


@broken("L1")
def what_is_purged_excuses_nothing_above_it(s: Story) -> None:
    is_repaired(a_gap(s).is_asked(1, 20).resends(11, 15).resends(16, 20))


@sound()
def what_is_asked_for_beyond_the_last_that_was_sent_cannot_be_resent(s: Story) -> None:
    is_repaired(a_gap(s).is_asked(6, 30).resends(6, 10).resends(11, 15).resends(16, 20))


@sound()
def a_late_request_for_what_is_purged_needs_no_answer(s: Story) -> None:
    is_repaired(a_gap(s)).at(2.5).is_asked(6, 20)


@broken("L1")
def a_repeat_a_moment_later_is_no_answer(s: Story) -> None:
    a_gap(s).is_asked(6, 20).resends(6, 10).resends(11, 15)
    is_repaired(s.at(1.301).resends(16, 20))


@broken("L1")
def one_batch_twice_is_not_two(s: Story) -> None:
    a_gap(s).is_asked(6, 20, count=15).resends(6, 10).resends(6, 10)
    is_repaired(s.resends(16, 20))


# -- Multicasts ------------------------------------------------------------------------------------


def a_gap_in_multicasts(s: Story) -> Story:
    """n1 has the multicasts 1 to 5 of n0, and asks at 1.4 s for 6 to 15, which it lacks."""
    s.a_group("n0", "n1").at(1.0).casts(1, 5).casts(6, 10).casts(11, 15).at(1.1).takes(1, 5)
    return s.at(1.2).asks(6, 15).at(1.4)


def all_is_taken(s: Story) -> None:
    s.at(1.9).takes(6, 10).takes(11, 15)


@sound(protocols=nakack2(answer_lasts=0.1))
def a_request_for_multicasts_is_answered_whole(s: Story) -> None:
    all_is_taken(
        a_gap_in_multicasts(s)
        .is_asked_for_casts(6, 15)
        .recasts(6, 10, to="n1")
        .recasts(11, 15, to="n1")
    )


@sound(protocols=nakack2(answer_lasts=0.1))
def what_was_just_resent_to_all_is_an_answer(s: Story) -> None:
    """L1: "A multicast that was resent to all no more than `answer_lasts` before counts"."""
    a_gap_in_multicasts(s).at(1.31).recasts(6, 10).at(1.4)
    all_is_taken(s.is_asked_for_casts(6, 15).recasts(11, 15))


@broken("L1", protocols=nakack2(answer_lasts=0.1))
def what_was_resent_to_all_before_is_no_answer(s: Story) -> None:
    a_gap_in_multicasts(s).at(1.29).recasts(6, 10).at(1.4)
    all_is_taken(s.is_asked_for_casts(6, 15).recasts(11, 15))


@broken("L1", protocols=nakack2(answer_lasts=0.1))
def what_was_just_resent_to_another_is_no_answer(s: Story) -> None:
    a_gap_in_multicasts(s).at(1.31).recasts(6, 10, to="n2").at(1.4)
    all_is_taken(s.is_asked_for_casts(6, 15).recasts(11, 15))


@broken(
    "L1",
    protocols=nakack2(answer_lasts=0.1),
    witness=("n0#9 t=1.400 answered to n1 multicasts 6..15",),
)
def a_request_for_multicasts_is_not_answered(s: Story) -> None:
    all_is_taken(a_gap_in_multicasts(s).is_asked_for_casts(6, 15))


@sound(protocols=nakack2())
def where_nothing_is_promised_an_answer_may_have_gone_to_all_at_any_time(s: Story) -> None:
    all_is_taken(a_gap_in_multicasts(s).is_asked_for_casts(6, 15))
