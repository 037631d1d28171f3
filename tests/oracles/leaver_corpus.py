"""More small runs with a known verdict: what a member sent before it left (G1).

In each, n0 leaves in order at 3.0 s, and the others go on in a view without it.
"""

from __future__ import annotations

from tests.oracles.application_corpus import CASES
from tests.oracles.corpus import broken, sound
from tests.oracles.story import Story

__all__ = ["CASES"]


def a_group_with_traffic(s: Story) -> Story:
    """n0 multicasts 1 to 5, which all deliver, and then 6 to 10."""
    s.a_group().at(1.0).offers(1, 10, to="").casts(1, 5, number=1).is_given_cast(1, 5, "n0")
    s.at(1.1).takes(1, 5).is_given_cast(1, 5).takes(1, 5, "n2").is_given_cast(1, 5, "n2")
    s.at(1.2).drops(1, 5)
    return s.at(2.0).casts(6, 10, number=6).is_given_cast(6, 10, "n0")


def n0_leaves(s: Story, *, at: int = 10) -> None:
    """The others have its multicasts up to `at`."""
    s.at(3.0).stops("n0")
    for who, epoch in (("n1", 1), ("n2", 1)):
        s.at(3.1).unwatches(who, "n0", epoch=epoch, at=at)
        s.installs(2, "n1", "n2", who=who, by="n1")


def pieces_lie_between_each_other(s: Story) -> Story:
    """n0 multicasts two messages in pieces 11 and 13, 12 and 14: nobody can join them."""
    n1_and_n2_take(a_group_with_traffic(s).at(2.1), 6, 10).at(2.2).drops(6, 10).at(2.3)
    s.offers(11, 12, to="").cuts(11, 2, to="").cuts(12, 2, to="")
    for seqno, number in ((11, 11), (12, 12), (13, 11), (14, 12)):
        s.casts(seqno, number=number, piece=True, muted=True)
    return s


def n1_and_n2_meet_again(s: Story) -> None:
    s.at(5.0).watches("n1", "n2", epoch=13).watches("n2", "n1", epoch=13)
    s.installs(9, "n1", "n2", merge=True)


def n1_and_n2_take(s: Story, lo: int, hi: int) -> Story:
    for who in ("n1", "n2"):
        s.takes(lo, hi, who).is_given_cast(lo, hi, who)
    return s


@sound(both_ends=True)
def all_that_a_leaver_multicast_arrives(s: Story) -> None:
    n1_and_n2_take(a_group_with_traffic(s).at(2.1), 6, 10).at(2.2).drops(6, 10)
    n0_leaves(s)


@broken("G1", both_ends=True, witness=("n0#9 t=2.000 sent to the group multicasts 6..10",))
def a_multicast_of_a_leaver_is_lost_in_silence(s: Story) -> None:
    """n1 has it, n2 never gets it, and n0 said nothing as it left."""
    a_group_with_traffic(s).at(2.1).takes(6, 10).is_given_cast(6, 10)
    n0_leaves(s)


@sound(both_ends=True)
def a_leaver_says_which_multicasts_it_gave_up(s: Story) -> None:
    """n2 never gets 6 to 10."""
    a_group_with_traffic(s).at(2.1).takes(6, 10).is_given_cast(6, 10)
    s.at(3.0).gives_up_casts(6, 10)
    n0_leaves(s)


@broken("G1", both_ends=True)
def a_leaver_says_too_little(s: Story) -> None:
    """Nobody gets 6 to 10, and n0 speaks of 8 to 10."""
    a_group_with_traffic(s).at(3.0).gives_up_casts(8, 10)
    n0_leaves(s)


@sound(both_ends=True)
def a_leaver_says_that_it_gave_up_what_nobody_can_join(s: Story) -> None:
    pieces_lie_between_each_other(s).at(3.0).gives_up_casts(11, 14)
    n0_leaves(s)


@broken("G1", both_ends=True)
def what_nobody_can_join_is_lost_with_a_leaver(s: Story) -> None:
    """All pieces are delivered."""
    pieces_lie_between_each_other(s).at(2.4)
    for seqno in (11, 12, 13, 14):
        for who in ("n1", "n2"):
            s.takes(seqno, who=who, piece=True, muted=True)
    s.drops(11, 14)
    n0_leaves(s, at=14)


@broken("G1", both_ends=True)
def a_word_about_unicasts_is_none_about_multicasts(s: Story) -> None:
    a_group_with_traffic(s).opens(to="n2").at(3.0).gives_up(6, 10, to="n2", why="stop")
    n0_leaves(s)


@sound(both_ends=True)
def a_killed_member_owes_nothing(s: Story) -> None:
    """Not a stop, but a crash."""
    a_group_with_traffic(s).at(3.0).fault("crash", member="n0").bites(1, do="crash")
    for who in ("n1", "n2"):
        s.at(3.1).unwatches(who, "n0", at=5).installs(2, "n1", "n2", who=who, by="n1")


@sound()
def an_older_trace_does_not_say_what_a_leaver_gave_up(s: Story) -> None:
    s.a_group().a_clean_cast().at(2.0).casts(6, 10)
    n0_leaves(s)


@sound(both_ends=True)
def a_leaver_that_lost_a_member_before_owes_it_nothing(s: Story) -> None:
    """n0 has a view without n2 when it multicasts 6 to 10; n2 still has n0."""
    s.a_group().at(1.0).offers(1, 5, to="").casts(1, 5, number=1).is_given_cast(1, 5, "n0")
    s.at(1.1).takes(1, 5).is_given_cast(1, 5).takes(1, 5, "n2").is_given_cast(1, 5, "n2")
    s.at(1.2).drops(1, 5)
    s.at(1.5).unwatches("n0", "n2", epoch=3).installs(2, "n0", "n1", who="n0", by="n0")
    s.unwatches("n1", "n2", epoch=3).installs(2, "n0", "n1", who="n1", by="n0")
    s.at(2.0).offers(6, 10, to="").casts(6, 10, number=6).is_given_cast(6, 10, "n0")
    s.at(2.1).takes(6, 10).is_given_cast(6, 10).at(2.2).drops(6, 10)
    s.at(3.0).stops("n0").at(3.1).unwatches("n1", "n0", at=10).installs(3, "n1", who="n1")
    s.unwatches("n2", "n0", at=5).unwatches("n2", "n1", epoch=2).installs(2, "n2", who="n2")
    n1_and_n2_meet_again(s)


@broken("G1", both_ends=True)
def who_excludes_a_leaver_too_early_loses_what_it_sent(s: Story) -> None:
    """n2 puts n0 out before 6 to 10 come; n0 has both in its view, leaves and says nothing."""
    a_group_with_traffic(s).at(2.05).unwatches("n2", "n0", at=5)
    s.unwatches("n2", "n1", epoch=2).installs(2, "n2", who="n2")
    s.at(2.1).takes(6, 10).is_given_cast(6, 10).at(3.0).stops("n0")
    s.at(3.1).unwatches("n1", "n0", at=10).installs(2, "n1", "n2", who="n1")
    s.at(4.0).unwatches("n1", "n2", epoch=3).installs(3, "n1", who="n1")
    n1_and_n2_meet_again(s)


# -- Unicasts --------------------------------------------------------------------------------------


@broken("G1", both_ends=True, witness=("n0#3 t=1.000 sent to n1 conn 1 seqnos 1..5",))
def a_unicast_of_a_leaver_is_lost_in_silence(s: Story) -> None:
    s.at(1.0).offers(1, 5).opens().sends(1, 5, number=1)
    s.at(1.1).listens().at(3.0).stops("n0")


@sound(both_ends=True)
def a_leaver_says_which_unicasts_it_gave_up(s: Story) -> None:
    s.at(1.0).offers(1, 5).opens().sends(1, 5, number=1).at(1.1).listens()
    s.at(3.0).gives_up(1, 5, why="stop").removes(why="stop", unacked=5).stops("n0")


@broken("G1", both_ends=True)
def messages_that_wait_are_lost_with_a_leaver(s: Story) -> None:
    """6 to 9 never left, and nobody is told."""
    s.at(1.0).offers(1, 9).opens().sends(1, 5, number=1)
    s.at(1.1).listens().delivers(1, 5).is_given(1, 5).acks(5).at(1.2).purges(1, 5)
    s.at(3.0).removes(why="stop").stops("n0")


@sound(both_ends=True)
def a_leaver_says_which_messages_still_waited(s: Story) -> None:
    s.at(1.0).offers(1, 9).opens().sends(1, 5, number=1)
    s.at(1.1).listens().delivers(1, 5).is_given(1, 5).acks(5).at(1.2).purges(1, 5)
    s.at(3.0).removes(why="stop").throws_away(6, 9, why="stop").stops("n0")
