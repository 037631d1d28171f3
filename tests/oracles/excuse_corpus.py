"""More small runs with a known verdict: what follows a loss that is excused (G1), reports without
a text, and what the rig leaves out.

A loss is excused where its sender told of it, and a seqno that no message has cannot be lost. What
is lost beside it is a loss all the same.
"""

from __future__ import annotations

from tests.oracles.corpus import broken, sound
from tests.oracles.group_corpus import TCP, nakack2
from tests.oracles.leaver_corpus import CASES, a_group_with_traffic, n0_leaves
from tests.oracles.story import Story

__all__ = ["CASES"]


# -- Unicasts that were given up -------------------------------------------------------------------


def ten_messages(s: Story) -> Story:
    """n0 sends 1 to 10 as one batch, and n1 has a window for them."""
    s.at(1.0).offers(1, 10).opens().sends(1, 10, number=1)
    return s.at(1.1).listens()


@broken(
    "G1",
    both_ends=True,
    witness=(
        "n0#3 t=1.000 sent to n1 conn 1 seqnos 1..10",
        "n0#5 t=3.000 sender removed to n1 conn 1 (forgot)",
    ),
)
def only_the_beginning_of_a_batch_is_told(s: Story) -> None:
    """Of 4 to 10 nobody speaks."""
    ten_messages(s).at(3.0).gives_up(1, 3).removes(why="forgot", unacked=10)


@broken("G1", both_ends=True)
def the_middle_of_a_batch_is_not_told(s: Story) -> None:
    """1 and 2 arrive, n0 tells of 3, and of 6 to 10; 4 and 5 are lost in silence."""
    ten_messages(s).delivers(1, 2, part_of=(1, 10)).is_given(1, 2)
    s.at(3.0).gives_up(3).gives_up(6, 10).removes(why="forgot", unacked=8)


@sound(both_ends=True)
def a_batch_is_delivered_in_part_and_told_in_parts(s: Story) -> None:
    ten_messages(s).delivers(1, 2, part_of=(1, 10)).is_given(1, 2)
    s.at(3.0).gives_up(3).gives_up(4, 10).removes(why="forgot", unacked=8)


@sound(both_ends=True)
def what_is_told_spans_batches(s: Story) -> None:
    s.at(1.0).offers(1, 9).opens().sends(1, 4, number=1).sends(5, 9, number=5)
    s.at(1.1).listens().delivers(1, 2, part_of=(1, 4)).is_given(1, 2)
    s.at(3.0).gives_up(3, 9).removes(why="forgot", unacked=7)


@broken("G1", both_ends=True)
def a_report_ends_before_the_last_batch_does(s: Story) -> None:
    s.at(1.0).offers(1, 9).opens().sends(1, 4, number=1).sends(5, 9, number=5)
    s.at(1.1).listens().delivers(1, 2, part_of=(1, 4)).is_given(1, 2)
    s.at(3.0).gives_up(3, 8).removes(why="forgot", unacked=7)


@broken("G1", both_ends=True)
def a_report_is_no_excuse_where_the_connection_stands(s: Story) -> None:
    """n0 says that it gave 1 to 3 up, and has no reason to."""
    ten_messages(s).at(3.0).gives_up(1, 10)


@sound()
def an_older_trace_does_not_tell_of_unicasts(s: Story) -> None:
    s.at(1.0).opens().sends(1, 10).at(1.1).listens().delivers(1, 2, part_of=(1, 10))
    s.at(3.0).removes(why="forgot", unacked=8)


# -- Multicasts of a leaver ------------------------------------------------------------------------


def n2_has_all(s: Story) -> Story:
    return s.takes(6, 10, "n2").is_given_cast(6, 10, "n2")


@broken("G1", both_ends=True, witness=("n0#9 t=2.000 sent to the group multicasts 6..10",))
def a_leaver_tells_of_the_first_losses_only(s: Story) -> None:
    """n1 never gets 6 to 10, and n0 speaks of 6 and 7."""
    n2_has_all(a_group_with_traffic(s).at(2.1))
    s.at(3.0).gives_up_casts(6, 7)
    n0_leaves(s)


@broken("G1", both_ends=True, witness=("n0#9 t=2.000 sent to the group multicasts 6..10",))
def a_leaver_tells_of_what_is_around_a_loss(s: Story) -> None:
    """n1 gets 6, and n0 speaks of 6 and of 9."""
    n2_has_all(a_group_with_traffic(s).at(2.1))
    s.takes(6, part_of=(6, 10)).is_given_cast(6)
    s.at(3.0).gives_up_casts(6).gives_up_casts(9)
    n0_leaves(s)


@sound(both_ends=True)
def a_leaver_tells_of_all_losses_in_parts(s: Story) -> None:
    n2_has_all(a_group_with_traffic(s).at(2.1))
    s.takes(6, part_of=(6, 10)).is_given_cast(6)
    s.at(3.0).gives_up_casts(7, 8).gives_up_casts(9, 10)
    n0_leaves(s)


# -- Holes in the numbering ------------------------------------------------------------------------


@broken(
    "G1",
    "G3",
    protocols=nakack2(),
    witness=("n0#5 t=2.000 sent to the group multicasts 7..10",),
)
def what_follows_a_number_that_nobody_used_is_lost(s: Story) -> None:
    """There is no multicast 6. That n0 passes over it is against G3."""
    s.a_group("n0", "n1").at(1.0).casts(1, 5).at(1.1).takes(1, 5).at(2.0).casts(7, 10)


@broken(
    "G1",
    protocols=nakack2(),
    witness=("n0#4 t=2.000 sent to the group multicasts 7..10",),
)
def what_follows_a_number_that_nobody_used_is_lost_at_its_sender(s: Story) -> None:
    s.a_group("n0").at(1.0).casts(1, 5).at(2.0).casts_mutely(7, 10)


# -- Reports without a text ------------------------------------------------------------------------


@broken("G1", protocols=nakack2(), witness=("n1#4 t=1.500 alarm about n0 multicasts 5..5",))
def an_alarm_without_a_text_is_one(s: Story) -> None:
    s.a_group("n0", "n1").at(1.0).casts(1, 5).at(1.1).takes(1, 5).at(1.5).alarms(5, text="")


@broken("G1", witness=("n1#4 t=2.100 skipped from n0 conn 1 seqnos up to 10",))
def who_gives_messages_up_without_a_word_gives_them_up(s: Story) -> None:
    s.a_clean_exchange().at(2.0).sends(6, 10).sends(11, 15)
    s.at(2.1).skips(10, text="").delivers(11, 15).at(3.0).removes(why="forgot")


# -- Messages without a number, and members that end -----------------------------------------------


def one_is_lost_before_a_cut(s: Story) -> Story:
    """The network is never healed, so that nobody owes a last view."""
    s.a_group("n0", "n1").at(1.0).shouts_to_all("lost").at(1.1).shouts("next")
    return s.at(1.2).hears("next").at(4.0).fault("cut").bites(1)


@broken("G1", protocols=TCP)
def a_message_without_a_number_is_lost_between_two_that_stay(s: Story) -> None:
    one_is_lost_before_a_cut(s)


@sound(protocols=TCP)
def a_message_without_a_number_is_lost_to_one_that_ends_later(s: Story) -> None:
    one_is_lost_before_a_cut(s).at(5.0).fault("crash", member="n1", name="f2").bites(1, "f2")


@sound(protocols=TCP)
def a_message_without_a_number_is_lost_of_one_that_ends_later(s: Story) -> None:
    one_is_lost_before_a_cut(s).at(5.0).fault("crash", member="n0", name="f2").bites(1, "f2")


# -- What the rig leaves out -----------------------------------------------------------------------


@sound()
def what_the_rig_says_is_null_is_missing(s: Story) -> None:
    nothing = {"copies": None, "late": None, "attribute": None, "value": None, "member": None}
    s.a_clean_exchange().at(3.0).fault("duplicate", name="f1", **nothing).bites(1, "f1")
    s.at(4.0).exits("n1", ordered=True, signal=None, incarnation=None, why=None)
