"""More small runs with a known verdict: from what was offered to what was handed over.

Traces here are of version 2, and say both ends.
"""

from __future__ import annotations

from typing import Final

from tests.oracles.corpus import broken, sound
from tests.oracles.group_corpus import CASES
from tests.oracles.story import Story, digest_of

__all__ = ["CASES"]


def a_told_exchange(s: Story) -> Story:
    """n0 sends five messages; n1 is handed them."""
    s.at(1.0).offers(1, 5).opens().sends(1, 5, number=1)
    s.at(1.1).listens().delivers(1, 5).is_given(1, 5).acks(5)
    return s.at(1.2).purges(1, 5)


def a_large_exchange(s: Story, *, oob: bool = False) -> Story:
    """n0 offers one message of three pieces; n1 delivers all of them."""
    s.at(1.0).offers(1).cuts(1, 3).opens()
    for seqno in (1, 2, 3):
        s.sends(seqno, number=1, piece=True, oob=oob)
    s.at(1.1).listens()
    for seqno in (1, 2, 3):
        s.delivers(seqno, piece=True, oob=oob)
    return s


def half_a_message(s: Story, *, of: int = 3) -> Story:
    """n0 offers one message of some pieces; two of them leave, and n1 delivers these."""
    s.at(1.0).offers(1).cuts(1, of).opens().sends(1, number=1, piece=True)
    s.sends(2, number=1, piece=True)
    return s.at(1.1).listens().delivers(1, piece=True).delivers(2, piece=True)


# -- G1: accepted, and handed to the application ---------------------------------------------------


@sound(both_ends=True)
def all_that_was_offered_is_handed_over(s: Story) -> None:
    """In ranges of their own: two batches as one, one batch in two."""
    a_told_exchange(s)
    s.at(2.0).offers(6, 12).sends(6, 8, number=6).sends(9, 12, number=9)
    s.at(2.1).delivers(6, 8).delivers(9, 12).is_given(6, 10).is_given(11, 12).acks(12)
    s.at(2.2).purges(6, 12)


@sound(both_ends=True)
def an_early_message_is_handed_over_early(s: Story) -> None:
    a_told_exchange(s)
    s.at(2.0).offers(6, 8).sends(6, 7, number=6).sends(8, number=8, oob=True)
    s.at(2.1).delivers(8, oob=True).delivers(6, 7).is_given(8).is_given(6, 7).acks(8)
    s.at(2.2).purges(6, 8)


@sound(both_ends=True)
def a_message_in_pieces_is_handed_over_whole(s: Story) -> None:
    a_large_exchange(s).is_given_whole(1, 1, 3).acks(3).at(1.2).purges(1, 3)


@sound(both_ends=True)
def pieces_of_early_messages_come_in_any_order(s: Story) -> None:
    """Two messages of two pieces each; the second one is whole first."""
    s.at(1.0).offers(1, 2).cuts(1, 2).opens()
    s.sends(1, number=1, piece=True, oob=True).sends(2, number=1, piece=True, oob=True)
    s.cuts(2, 2).sends(3, number=2, piece=True, oob=True).sends(4, number=2, piece=True, oob=True)
    s.at(1.1).listens().delivers(4, piece=True, oob=True).delivers(1, piece=True, oob=True)
    s.delivers(3, piece=True, oob=True).is_given_whole(2, 3, 4)
    s.at(1.2).delivers(2, piece=True, oob=True).is_given_whole(1, 1, 2).acks(4)
    s.at(1.3).purges(1, 4)


@sound(both_ends=True)
def unnumbered_messages_are_offered_and_handed_over_too(s: Story) -> None:
    s.at(1.0).offers(1).shouts("one", number=1).at(1.1).hears("one").is_given_unnumbered()


@sound(both_ends=True)
def a_message_between_unnumbered_ones_keeps_its_place(s: Story) -> None:
    s.at(1.0).offers(1, 3).shouts("one", number=1).opens().sends(1, number=2)
    s.shouts("three", number=3)
    s.at(1.1).listens().delivers(1).is_given(1).acks(1).at(1.2).purges(1)


@sound(both_ends=True)
def what_waited_for_a_member_that_crashed_owes_nothing(s: Story) -> None:
    a_told_exchange(s).at(2.0).offers(6, 9).fault("crash", member="n1").bites(1, do="crash")


@sound(both_ends=True)
def what_a_member_that_crashed_had_delivered_owes_nothing(s: Story) -> None:
    a_told_exchange(s).at(2.0).offers(6, 7).sends(6, 7, number=6).at(2.1).delivers(6, 7)
    s.at(2.2).fault("crash", member="n1").bites(1, do="crash")


@sound(both_ends=True)
def a_sender_that_is_told_lost_nothing_in_silence(s: Story) -> None:
    """A command forgets the connection: what had left, and what still waited, is said."""
    a_told_exchange(s).at(2.0).offers(6, 9).sends(6, 7, number=6)
    s.at(3.0).gives_up(6, 7).removes(why="forgot").throws_away(8, 9)


@sound(both_ends=True)
def multicasts_are_offered_and_handed_over_too(s: Story) -> None:
    """Also to their own sender; n1 is handed two batches as one."""
    s.a_group("n0", "n1").at(1.0).offers(1, 5, to="").casts(1, 3, number=1).casts(4, 5, number=4)
    s.is_given_cast(1, 5, "n0").at(1.1).takes(1, 3).takes(4, 5).is_given_cast(1, 5)
    s.at(1.2).drops(1, 5)


@sound(both_ends=True)
def a_window_that_opens_again_delivers_the_rest_of_a_message_in_pieces(s: Story) -> None:
    """The first piece in the old window, the second in the new one: together they are whole."""
    s.at(1.0).offers(1).cuts(1, 2).opens().sends(1, number=1, piece=True)
    s.sends(2, number=1, piece=True)
    s.at(1.1).listens().delivers(1, piece=True).at(1.2).forgets()
    s.at(1.3).listens(epoch=2).delivers(2, piece=True, epoch=2)
    s.is_given_whole(1, 1, 2).acks(2, epoch=2).at(1.4).purges(1, 2)


@sound(both_ends=True)
def a_message_of_which_some_pieces_left_is_given_up(s: Story) -> None:
    """The connection was forgotten in the middle of it; the next message is whole again."""
    s.at(1.0).offers(1, 2).cuts(1, 3).opens().sends(1, number=1, piece=True)
    s.sends(2, number=1, piece=True).gives_up(1, 2).removes(why="forgot").throws_away(1)
    s.at(2.0).cuts(2, 2).opens(conn=2).sends(1, number=2, piece=True, conn=2)
    s.sends(2, number=2, piece=True, conn=2)
    s.at(2.1).listens(conn=2).delivers(1, piece=True, conn=2).delivers(2, piece=True, conn=2)
    s.is_given_whole(2, 1, 2, conn=2).acks(2, conn=2).at(2.2).purges(1, 2, conn=2)


@sound(both_ends=True)
def numbers_go_on_where_a_record_keeps_half_of_them(s: Story) -> None:
    """The low half of a number starts again at 0."""
    beyond = 1 << 32
    a_told_exchange(s).at(2.0).offers(6, beyond + 4).throws_away(6, beyond - 2)
    s.sends(6, 7, number=beyond - 1).sends(8, 11, number=1)
    s.at(2.1).delivers(6, 7).delivers(8, 11).is_given(6, 11).acks(11).at(2.2).purges(6, 11)


@broken(
    "G1",
    witness=("n0#5 t=2.000 offered n1 messages 6..9",),
    both_ends=True,
)
def messages_wait_in_the_outbox_for_ever(s: Story) -> None:
    a_told_exchange(s).at(2.0).offers(6, 9)


@broken(
    "G1",
    witness=("n0#6 t=2.000 sent to n1 conn 1 seqnos 6..7",),
    both_ends=True,
)
def messages_vanish_from_the_outbox(s: Story) -> None:
    """8 and 9 of the application's messages never left; 10 did."""
    a_told_exchange(s).at(2.0).offers(6, 9).sends(6, 7, number=8)
    s.at(2.1).delivers(6, 7).is_given(6, 7).acks(7).at(2.2).purges(6, 7)


@broken(
    "G1",
    witness=("n0#8 t=1.000 sent to n1 conn 1 seqnos 4..4 (FRAGMENT)",),
    both_ends=True,
)
def the_last_piece_of_a_message_never_leaves(s: Story) -> None:
    """The next message leaves whole, and its pieces are not taken for those of the first."""
    s.at(1.0).offers(1, 2).cuts(1, 3).opens().sends(1, number=1, piece=True)
    s.sends(2, number=1, piece=True).cuts(2, 2)
    s.sends(3, number=2, piece=True).sends(4, number=2, piece=True)
    s.at(1.1).listens()
    for seqno in (1, 2, 3, 4):
        s.delivers(seqno, piece=True)
    s.is_given_whole(2, 3, 4).acks(4).at(1.2).purges(1, 4)


@broken(
    "G1",
    witness=("n1#5 t=2.100 delivered from n0 conn 1 seqnos 6..7",),
    both_ends=True,
)
def a_delivery_never_reaches_its_application(s: Story) -> None:
    a_told_exchange(s).at(2.0).offers(6, 7).sends(6, 7, number=6)
    s.at(2.1).delivers(6, 7).acks(7).at(2.2).purges(6, 7)


@broken(
    "G1",
    witness=(
        "n1#5 t=2.100 delivered from n0 conn 1 seqnos 6..7",
        "n1#7 t=2.100 handed over from n0 conn 1 seqnos 8..9",
    ),
    both_ends=True,
)
def a_delivery_is_passed_over(s: Story) -> None:
    a_told_exchange(s).at(2.0).offers(6, 9).sends(6, 7, number=6).sends(8, 9, number=8)
    s.at(2.1).delivers(6, 7).delivers(8, 9).is_given(8, 9).acks(9).at(2.2).purges(6, 9)


@broken(
    "G1",
    witness=(
        "n0#2 t=1.000 cut message 1 to n1 into 3 pieces",
        "n1#4 t=1.100 delivered from n0 conn 1 seqnos 3..3 (FRAGMENT)",
    ),
    both_ends=True,
)
def a_message_in_pieces_is_thrown_away_after_it_was_acked(s: Story) -> None:
    a_large_exchange(s).acks(3).at(1.2).purges(1, 3)


def a_large_multicast(s: Story, *, taken: int) -> Story:
    """n0 multicasts one message of three pieces; n1 delivers the first ones."""
    s.a_group("n0", "n1").at(1.0).offers(1, to="").cuts(1, 3, to="")
    for seqno in (1, 2, 3):
        s.casts(seqno, number=1, piece=True, muted=True)
    s.at(1.1)
    for seqno in range(1, taken + 1):
        s.takes(seqno, piece=True, muted=True)
    return s


@sound(both_ends=True)
def pieces_of_two_windows_make_no_message(s: Story) -> None:
    """n1 and n0 lose each other in the middle of it: what n1 had is given up, and a window that
    goes on where the first one ended brings the rest."""
    a_large_multicast(s, taken=2).at(2.0).installs(2, "n0").unwatches("n0", "n1", epoch=2)
    s.installs(2, "n1").unwatches("n1", "n0", at=2)
    s.at(4.0).installs(3, "n0", "n1", merge=True).watches("n0", "n1", epoch=4, why="merge")
    s.watches("n1", "n0", after=2, epoch=4, why="merge")
    s.at(4.1).takes(3, epoch=4, piece=True, muted=True)


def a_window_is_replaced_amid_a_message(s: Story) -> Story:
    """n1 has two of three pieces as a merge replaces its window; no view drops n0."""
    a_large_multicast(s, taken=2).at(2.0).unwatches("n1", "n0", at=2, why="merge")
    s.watches("n1", "n0", after=2, epoch=4, why="merge").installs(2, "n0", "n1", merge=True)
    return s.at(2.1).takes(3, epoch=4, piece=True, muted=True)


@broken(
    "G1",
    witness=(
        "n0#4 t=1.000 cut message 1 to the group into 3 pieces",
        "n1#8 t=2.100 delivered from n0 window 4 multicasts 3..3 (DONT_LOOPBACK|FRAGMENT)",
    ),
    both_ends=True,
)
def pieces_of_a_window_that_was_replaced_are_thrown_away(s: Story) -> None:
    """G1: only a view that drops the sender gives pieces up."""
    a_window_is_replaced_amid_a_message(s).at(2.2).drops(1, 3)


@sound(both_ends=True)
def pieces_of_a_window_that_was_replaced_are_joined_with_the_rest(s: Story) -> None:
    a_window_is_replaced_amid_a_message(s).is_given_whole_cast(1, 3).at(2.2).drops(1, 3)


@sound(both_ends=True)
def a_view_between_two_windows_with_pieces_drops_their_sender(s: Story) -> None:
    """The window in between brings nothing: it ends with the view."""
    a_large_multicast(s, taken=2).at(2.0).unwatches("n1", "n0", at=2, why="merge")
    s.watches("n1", "n0", after=2, epoch=4, why="merge").installs(2, "n0", "n1", merge=True)
    s.at(3.0).installs(3, "n0").unwatches("n0", "n1", epoch=2)
    s.installs(3, "n1").unwatches("n1", "n0", at=2, epoch=4)
    s.at(4.0).installs(4, "n0", "n1", merge=True).watches("n0", "n1", epoch=5, why="merge")
    s.watches("n1", "n0", after=2, epoch=5, why="merge")
    s.at(4.1).takes(3, epoch=5, piece=True, muted=True)


@broken(
    "G1",
    witness=(
        "n0#4 t=1.000 cut message 1 to the group into 3 pieces",
        "n1#5 t=1.100 delivered from n0 window 1 multicasts 3..3 (DONT_LOOPBACK|FRAGMENT)",
    ),
    both_ends=True,
)
def a_multicast_in_pieces_is_thrown_away(s: Story) -> None:
    a_large_multicast(s, taken=3).at(1.2).drops(1, 3)


@broken("G1", witness=("n0#6 t=3.000 offered n1 messages 6..9",), both_ends=True)
def messages_are_given_up_before_they_were_offered(s: Story) -> None:
    a_told_exchange(s).at(2.0).throws_away(6, 1000).at(3.0).offers(6, 9)


@broken("G1", witness=("n0#7 t=3.000 offered n1 messages 6..9",), both_ends=True)
def the_last_of_what_is_given_up_was_not_offered(s: Story) -> None:
    a_told_exchange(s).at(2.0).offers(6, 7).throws_away(6, 9).at(3.0).offers(6, 9)


@broken("G1", witness=("n0#7 t=3.000 sent to n1 conn 1 seqnos 6..6",), both_ends=True)
def what_was_given_up_before_it_was_offered_vanishes(s: Story) -> None:
    a_told_exchange(s).at(2.0).throws_away(6, 9).at(3.0).offers(6, 10).sends(6, number=10)
    s.at(3.1).delivers(6).is_given(6).acks(6).at(3.2).purges(6)


@broken("G1", witness=("n0#7 t=3.000 offered the group messages 4..9",), both_ends=True)
def multicasts_are_given_up_before_they_were_offered(s: Story) -> None:
    s.a_group("n0", "n1").at(1.0).casts(1, 3, number=1).is_given_cast(1, 3, "n0", "n0")
    s.at(1.1).takes(1, 3).is_given_cast(1, 3).at(2.0).throws_away(4, 9, to="")
    s.at(3.0).offers(4, 9, to="")


@sound(both_ends=True)
def what_is_given_up_may_be_recorded_as_offered_a_moment_later(s: Story) -> None:
    a_told_exchange(s).at(2.0).throws_away(6, 9).at(2.25).offers(6, 9)


@broken(
    "G1",
    witness=(
        "n0#2 t=1.000 cut message 1 to n1 into 4 pieces",
        "n0#11 t=2.000 sent to n1 conn 2 seqnos 2..2 (FRAGMENT)",
    ),
    both_ends=True,
)
def a_message_leaves_in_halves_on_two_connections(s: Story) -> None:
    """All of its pieces are delivered, and no receiver can join them."""
    half_a_message(s, of=4).acks(2).at(1.2).purges(1, 2)
    s.at(2.0).closes(why="idle").removes().opens(conn=2)
    s.sends(1, number=1, piece=True, conn=2).sends(2, number=1, piece=True, conn=2)
    s.at(2.1).listens(conn=2, epoch=2).delivers(1, piece=True, conn=2, epoch=2)
    s.delivers(2, piece=True, conn=2, epoch=2).acks(2, conn=2, epoch=2)
    s.at(2.2).purges(1, 2, conn=2)


@broken("G1", both_ends=True)
def of_a_message_in_halves_the_sender_is_told_before_its_pieces_leave(s: Story) -> None:
    """G1: "What it is told is of messages that were sent by then"."""
    s.at(1.0).offers(1).cuts(1, 4).opens().gives_up(1, 1000)
    s.sends(1, number=1, piece=True).sends(2, number=1, piece=True)
    s.at(1.1).listens().delivers(1, piece=True).delivers(2, piece=True).acks(2)
    s.at(1.2).purges(1, 2).at(2.0).closes(why="idle").removes().opens(conn=2)
    s.sends(1, number=1, piece=True, conn=2).sends(2, number=1, piece=True, conn=2)
    s.at(2.1).listens(conn=2, epoch=2).delivers(1, piece=True, conn=2, epoch=2)
    s.delivers(2, piece=True, conn=2, epoch=2).acks(2, conn=2, epoch=2)
    s.at(2.2).purges(1, 2, conn=2)


@broken("G1", "G2", both_ends=True)
def of_a_message_in_halves_the_sender_is_told_before_it_offers_it(s: Story) -> None:
    """G2: what was said to be given up leaves all the same."""
    half_a_message(s.at(0.5).throws_away(1), of=4).acks(2).at(1.2).purges(1, 2)
    s.at(2.0).closes(why="idle").removes().opens(conn=2)
    s.sends(1, number=1, piece=True, conn=2).sends(2, number=1, piece=True, conn=2)
    s.at(2.1).listens(conn=2, epoch=2).delivers(1, piece=True, conn=2, epoch=2)
    s.delivers(2, piece=True, conn=2, epoch=2).acks(2, conn=2, epoch=2)
    s.at(2.2).purges(1, 2, conn=2)


@sound(both_ends=True)
def of_a_message_in_halves_on_two_connections_the_sender_is_told(s: Story) -> None:
    """The first half was given up with its connection."""
    half_a_message(s, of=4).at(2.0).gives_up(1, 2).removes(why="forgot", unacked=2).opens(conn=2)
    s.sends(1, number=1, piece=True, conn=2).sends(2, number=1, piece=True, conn=2)
    s.at(2.1).listens(conn=2, epoch=2).delivers(1, piece=True, conn=2, epoch=2)
    s.delivers(2, piece=True, conn=2, epoch=2).acks(2, conn=2, epoch=2)
    s.at(2.2).purges(1, 2, conn=2).at(3.0).removes(conn=2, why="forgot")


@broken(
    "G1",
    witness=(
        "n0#6 t=2.000 sent to n1 conn 1 seqnos 6..7",
        "n0#7 t=3.000 sender removed to n1 conn 1 (forgot)",
    ),
    both_ends=True,
)
def a_connection_is_forgotten_in_silence(s: Story) -> None:
    a_told_exchange(s).at(2.0).offers(6, 7).sends(6, 7, number=6).at(3.0).removes(why="forgot")


@sound(both_ends=True)
def what_is_delivered_in_the_last_moment_may_be_handed_over_unsaid(s: Story) -> None:
    a_told_exchange(s).at(19.4).offers(6, 7).sends(6, 7, number=6)
    s.at(19.6).delivers(6, 7).acks(7).at(19.8).purges(6, 7).quiet(19.9).ends(20.0)


def _a_late_large_message(s: Story, last: float) -> None:
    """Two of three pieces come at 19.3 s, the last one later; the run ends at 20 s."""
    s.at(19.2).offers(1).cuts(1, 3).opens()
    for seqno in (1, 2, 3):
        s.sends(seqno, number=1, piece=True)
    s.at(19.3).listens().delivers(1, piece=True).delivers(2, piece=True)
    s.at(last).delivers(3, piece=True).acks(3).at(19.8).purges(1, 3).quiet(19.9).ends(20.0)


@sound(both_ends=True)
def the_last_piece_in_the_last_moment_may_be_joined_unsaid(s: Story) -> None:
    _a_late_large_message(s, last=19.6)


@broken("G1", both_ends=True)
def the_last_piece_comes_just_before_the_last_moment(s: Story) -> None:
    _a_late_large_message(s, last=19.45)


@sound(both_ends=True)
def a_command_forgets_a_connection_that_was_closing_as_idle(s: Story) -> None:
    """In a group, too: whoever commands it is told."""
    s.a_group("n0", "n1")
    a_told_exchange(s).at(2.0).offers(6, 9).sends(6, 7, number=6).at(80.0).closes(why="idle")
    s.at(81.0).gives_up(6, 7).removes(why="forgot", unacked=2).throws_away(8, 9)
    s.quiet(91.0).ends(100.0)


@sound(both_ends=True)
def a_silent_peer_is_given_up_with_what_waits_for_it(s: Story) -> None:
    """Nobody but the sender can notice that the peer does not answer: there is no group."""
    a_told_exchange(s).at(2.0).offers(6, 9).sends(6, 7, number=6)
    s.at(80.0).closes(why="idle").at(90.0).gives_up(6, 7, why="closed")
    s.removes(why="closed", unacked=2).throws_away(8, 9).quiet(91.0).ends(100.0)


@broken(
    "G1",
    witness=(
        "n0#6 t=2.000 sent to n1 conn 1 seqnos 6..9",
        "n0#8 t=3.000 sender removed to n1 conn 1 (forgot)",
    ),
    both_ends=True,
)
def a_connection_is_forgotten_and_only_a_part_of_it_is_told(s: Story) -> None:
    a_told_exchange(s).at(2.0).offers(6, 9).sends(6, 9, number=6)
    s.at(3.0).gives_up(7, 9).removes(why="forgot")


@broken(
    "G1",
    witness=(
        "n0#8 t=4.000 sent to n1 conn 1 seqnos 1..3",
        "n0#9 t=5.000 sender removed to n1 conn 1 (forgot)",
    ),
    both_ends=True,
)
def what_was_told_of_a_connection_is_not_told_of_the_next(s: Story) -> None:
    """The next one has the same id, and counts from 1 again."""
    s.at(1.0).offers(1, 3).opens().sends(1, 3, number=1)
    s.at(3.0).gives_up(1, 3).removes(why="forgot", unacked=3)
    s.at(4.0).offers(4, 6).opens().sends(1, 3, number=4)
    s.at(5.0).removes(why="forgot", unacked=3).at(6.0).syncs()


@broken(
    "G1",
    witness=(
        "n0#4 t=2.000 sent to n1 conn 1 seqnos 1..3",
        "n0#5 t=3.000 sender removed to n1 conn 1 (forgot)",
    ),
    both_ends=True,
)
def messages_are_given_up_before_they_were_sent(s: Story) -> None:
    s.at(1.0).offers(1, 3).opens().gives_up(1, 3).at(2.0).sends(1, 3, number=1)
    s.at(3.0).removes(why="forgot", unacked=3).at(4.0).syncs()


@sound(both_ends=True)
def what_is_told_after_the_connection_ended_is_told(s: Story) -> None:
    s.at(1.0).offers(1, 3).opens().sends(1, 3, number=1)
    s.at(3.0).removes(why="forgot", unacked=3).gives_up(1, 3).at(4.0).syncs()


@broken(
    "G1",
    witness=("n0#3 t=1.000 offered the group messages 1..9",),
    both_ends=True,
)
def multicasts_wait_in_the_outbox_for_ever(s: Story) -> None:
    s.a_group("n0", "n1").at(1.0).offers(1, 9, to="").casts(1, 3, number=1)
    s.is_given_cast(1, 3, "n0").at(1.1).takes(1, 3).is_given_cast(1, 3).at(1.2).drops(1, 3)


@broken(
    "G1",
    witness=("n1#3 t=1.100 delivered from n0 window 1 multicasts 1..3",),
    both_ends=True,
)
def a_multicast_never_reaches_an_application(s: Story) -> None:
    s.a_group("n0", "n1").at(1.0).offers(1, 3, to="").casts(1, 3, number=1)
    s.is_given_cast(1, 3, "n0").at(1.1).takes(1, 3).is_given_cast(1, 2).at(1.2).drops(1, 3)


@broken(
    "G1",
    witness=(
        "n0#8 t=22.000 sender removed to n1 conn 1 (aged)",
        "n0#9 t=22.000 gave up messages 6..9 to n1 (connection-closed)",
    ),
    both_ends=True,
)
def what_waited_for_a_member_of_the_view_is_given_up(s: Story) -> None:
    s.a_group("n0", "n1")
    a_told_exchange(s).at(2.0).offers(6, 9)
    s.at(22.0).removes(why="aged").throws_away(6, 9).quiet(23.0).ends(40.0)


@broken(
    "G1",
    witness=(
        "n0#7 t=90.000 sender removed to n1 conn 1 (closed)",
        "n0#8 t=90.000 gave up messages 6..9 to n1 (connection-closed)",
    ),
    both_ends=True,
)
def a_connection_is_called_idle_while_messages_wait_for_it(s: Story) -> None:
    a_told_exchange(s).at(2.0).offers(6, 9)
    s.at(80.0).closes(why="idle").at(90.0).removes(why="closed").throws_away(6, 9)
    s.quiet(91.0).ends(100.0)


@broken(
    "G1",
    witness=(
        "n0#8 t=2.000 sent to n1 conn 1 seqnos 6..7",
        "n0#10 t=22.000 sender removed to n1 conn 1 (aged)",
    ),
    both_ends=True,
)
def a_member_of_the_view_is_given_up(s: Story) -> None:
    """The sender is told; but its view still has the receiver, and so it was to wait."""
    s.a_group("n0", "n1")
    a_told_exchange(s).at(2.0).offers(6, 7).sends(6, 7, number=6)
    s.at(22.0).gives_up(6, 7, why="aged").removes(why="aged").quiet(23.0).ends(40.0)


# -- G2: handed over once --------------------------------------------------------------------------


@broken(
    "G2",
    witness=("n0#6 t=2.000 sent to n1 conn 1 seqnos 6..7",),
    both_ends=True,
)
def messages_leave_twice(s: Story) -> None:
    a_told_exchange(s).at(2.0).offers(6).sends(6, 7, number=5)
    s.at(2.1).delivers(6, 7).is_given(6, 7).acks(7).at(2.2).purges(6, 7)


@broken(
    "G2",
    witness=("n0#12 t=2.000 sent to n1 conn 2 seqnos 3..3 (FRAGMENT)",),
    both_ends=True,
)
def a_message_that_was_given_up_in_the_middle_leaves_all_the_same(s: Story) -> None:
    """Its sender was told that it is given up; the pieces that left before do not count."""
    s.at(1.0).offers(1).cuts(1, 3).opens().sends(1, number=1, piece=True)
    s.sends(2, number=1, piece=True).gives_up(1, 2).removes(why="forgot").throws_away(1)
    s.at(2.0).opens(conn=2)
    for seqno in (1, 2, 3):
        s.sends(seqno, number=1, piece=True, conn=2)
    s.at(2.1).listens(conn=2)
    for seqno in (1, 2, 3):
        s.delivers(seqno, piece=True, conn=2)
    s.is_given_whole(1, 1, 3, conn=2).acks(3, conn=2).at(2.2).purges(1, 3, conn=2)


@broken(
    "G2",
    witness=("n0#7 t=1.000 sent to n1 conn 1 seqnos 4..4",),
    both_ends=True,
)
def a_message_in_pieces_is_followed_by_itself(s: Story) -> None:
    a_large_exchange(s).is_given_whole(1, 1, 3).at(1.0).sends(4, number=1)
    s.at(1.2).delivers(4).is_given(4).acks(4).at(1.3).purges(1, 4)


@broken(
    "G2",
    witness=("n0#11 t=2.000 sent to n1 conn 2 seqnos 2..2 (FRAGMENT)",),
    both_ends=True,
)
def a_message_of_which_two_pieces_left_leaves_on_another_connection(s: Story) -> None:
    """Its first pieces were acked; all of them leave again, and its application has it once."""
    half_a_message(s).acks(2).at(1.2).purges(1, 2).at(2.0).closes().removes().opens(conn=2)
    for seqno in (1, 2, 3):
        s.sends(seqno, number=1, piece=True, conn=2)
    s.at(2.1).listens(conn=2, epoch=2)
    for seqno in (1, 2, 3):
        s.delivers(seqno, piece=True, conn=2, epoch=2)
    s.is_given_whole(1, 1, 3, conn=2).acks(3, conn=2, epoch=2).at(2.2).purges(1, 3, conn=2)


@broken(
    "G2",
    witness=(
        "n1#5 t=2.100 delivered from n0 conn 1 seqnos 6..7",
        "n1#6 t=2.100 handed over from n0 conn 1 seqnos 5..6",
    ),
    both_ends=True,
)
def a_message_is_handed_over_twice(s: Story) -> None:
    a_told_exchange(s).at(2.0).offers(6, 7).sends(6, 7, number=6)
    s.at(2.1).delivers(6, 7).is_given(5, 6).is_given(7).acks(7).at(2.2).purges(6, 7)


@broken(
    "G2",
    witness=(
        "n1#5 t=1.100 handed over from n0 conn 1 the message of seqnos 1..3",
        "n1#6 t=1.100 handed over from n0 conn 1 the message of seqnos 1..3",
    ),
    both_ends=True,
)
def a_message_in_pieces_is_handed_over_twice(s: Story) -> None:
    a_large_exchange(s).is_given_whole(1, 1, 3).is_given_whole(1, 1, 3).acks(3)
    s.at(1.2).purges(1, 3)


@broken(
    "G2",
    "G1",
    witness=(
        "n1#3 t=1.100 handed over from n0 conn 1 seqnos 1..5",
        "n1#5 t=1.500 handed over from n0 conn 1 seqnos 1..1",
    ),
    both_ends=True,
)
def what_is_lost_behind_what_is_handed_over_twice(s: Story) -> None:
    """Each guarantee is judged by itself: 7 is delivered and never handed over."""
    a_told_exchange(s).at(1.5).is_given(1).at(2.0).offers(6, 8).sends(6, 8, number=6)
    s.at(2.1).delivers(6, 8).is_given(6).is_given(8).acks(8).at(2.2).purges(6, 8)


@broken(
    "G1",
    "G3",
    witness=("n1#8 t=2.200 delivered from n0 conn 1 seqnos 8..9",),
    both_ends=True,
)
def what_is_lost_behind_what_is_handed_over_in_another_order(s: Story) -> None:
    """Of 8 and 9 only 8 is handed over."""
    a_told_exchange(s).at(2.0).offers(6, 9).sends(6, number=6).sends(7, number=7)
    s.at(2.1).delivers(6).delivers(7).is_given(7).at(2.2).sends(8, 9, number=8)
    s.delivers(8, 9).is_given(6).is_given(8).acks(9).at(2.3).purges(6, 9)


@broken(
    "G1",
    "G4",
    witness=("n1#6 t=2.100 delivered from n0 window 1 multicasts 6..6",),
    both_ends=True,
)
def a_multicast_is_lost_behind_one_that_never_was(s: Story) -> None:
    s.a_group("n0", "n1").at(1.0).offers(1, 6, to="").casts(1, 5, number=1)
    s.is_given_cast(1, 5, "n0").at(1.1).takes(1, 5).is_given_cast(1, 5)
    s.at(1.5).is_given_cast(9).at(2.0).casts(6, number=6).is_given_cast(6, 6, "n0")
    s.at(2.1).takes(6).at(2.2).drops(1, 6)


# -- G3: handed over in order ----------------------------------------------------------------------


@broken(
    "G3",
    witness=(
        "n1#5 t=2.100 delivered from n0 conn 1 seqnos 6..6",
        "n1#7 t=2.100 handed over from n0 conn 1 seqnos 7..7",
    ),
    both_ends=True,
)
def deliveries_are_handed_over_in_another_order(s: Story) -> None:
    a_told_exchange(s).at(2.0).offers(6, 7).sends(6, number=6).sends(7, number=7)
    s.at(2.1).delivers(6).delivers(7).is_given(7).is_given(6).acks(7).at(2.2).purges(6, 7)


@broken(
    "G3",
    witness=("n1#5 t=1.200 handed over from n0 conn 1 the message of seqnos 2..3",),
    both_ends=True,
)
def a_message_in_pieces_overtakes_what_was_delivered_before_it(s: Story) -> None:
    s.at(1.0).offers(1, 2).opens().sends(1, number=1).cuts(2, 2)
    s.sends(2, number=2, piece=True).sends(3, number=2, piece=True)
    s.at(1.1).listens().delivers(1).delivers(2, piece=True).delivers(3, piece=True)
    s.at(1.2).is_given_whole(2, 2, 3).is_given(1).acks(3).at(1.3).purges(1, 3)


@broken(
    "G3",
    witness=("n1#4 t=1.200 handed over from n0 conn 1 the message of seqnos 1..3",),
    both_ends=True,
)
def a_message_in_pieces_is_handed_over_before_its_last_piece(s: Story) -> None:
    s.at(1.0).offers(1, 2).cuts(1, 3).opens()
    for seqno in (1, 2, 3):
        s.sends(seqno, number=1, piece=True)
    s.sends(4, number=2)
    s.at(1.1).listens().delivers(1, piece=True).delivers(2, piece=True)
    s.at(1.2).is_given_whole(1, 1, 3).delivers(3, piece=True).delivers(4).is_given(4).acks(4)
    s.at(1.3).purges(1, 4)


@broken(
    "G3",
    witness=("n1#6 t=1.200 handed over from n0 conn 1 the message of seqnos 1..2",),
    both_ends=True,
)
def a_message_in_pieces_is_handed_over_after_what_was_delivered_behind_it(s: Story) -> None:
    s.at(1.0).offers(1, 2).cuts(1, 2).opens()
    s.sends(1, number=1, piece=True).sends(2, number=1, piece=True).sends(3, number=2)
    s.at(1.1).listens().delivers(1, piece=True).delivers(2, piece=True).delivers(3)
    s.at(1.2).is_given(3).is_given_whole(1, 1, 2).acks(3).at(1.3).purges(1, 3)


def _two_messages_around_each_other(s: Story) -> Story:
    """The pieces of message 1 lie around those of message 2, which so is whole first."""
    s.at(1.0).offers(1, 2).cuts(1, 2).opens().sends(1, number=1, piece=True, oob=True)
    s.sends(2, number=1, piece=True, oob=True).cuts(2, 2)
    s.sends(3, number=2, piece=True, oob=True).sends(4, number=2, piece=True, oob=True)
    s.at(1.1).listens()
    for seqno in (1, 3, 4, 2):
        s.delivers(seqno, piece=True, oob=True)
    return s.at(1.2)


@sound(both_ends=True)
def of_two_messages_in_pieces_the_one_that_is_whole_first_comes_first(s: Story) -> None:
    _two_messages_around_each_other(s).is_given_whole(2, 3, 4).is_given_whole(1, 1, 2).acks(4)
    s.at(1.3).purges(1, 4)


@broken(
    "G3",
    witness=("n1#7 t=1.200 handed over from n0 conn 1 the message of seqnos 3..4",),
    both_ends=True,
)
def of_two_messages_in_pieces_the_one_that_is_whole_last_comes_first(s: Story) -> None:
    _two_messages_around_each_other(s).is_given_whole(1, 1, 2).is_given_whole(2, 3, 4).acks(4)
    s.at(1.3).purges(1, 4)


@broken(
    "G3",
    witness=(
        "n1#7 t=2.000 delivered from n0 conn 1 seqnos 7..7",
        "n1#11 t=3.000 delivered from n0 conn 1 seqnos 6..6",
    ),
    both_ends=True,
)
def a_later_window_delivers_what_was_sent_before(s: Story) -> None:
    """Within each window all is in order."""
    s.at(1.0).offers(1, 7).opens().sends(1, 5, number=1).sends(6, number=6).sends(7, number=7)
    s.at(1.1).listens().delivers(1, 5).acks(5).is_given(1, 5).at(1.2).purges(1, 5)
    s.at(2.0).forgets().listens(epoch=2).delivers(7, epoch=2).is_given(7)
    s.at(3.0).forgets(epoch=2).listens(epoch=3).delivers(6, epoch=3).is_given(6)
    s.acks(7, epoch=3).at(3.1).purges(6, 7)


@broken("G3", both_ends=True)
def a_later_window_delivers_multicasts_that_were_sent_before(s: Story) -> None:
    """Each window begins where it says."""
    s.a_group("n0", "n1").at(1.0).offers(1, 7, to="").casts(1, 5, number=1).casts(6, number=6)
    s.casts(7, number=7).is_given_cast(1, 7, "n0", "n0")
    s.at(1.1).takes(1, 5).is_given_cast(1, 5).at(2.0).unwatches("n1", "n0", at=5)
    s.watches("n1", "n0", after=6, epoch=11, why="merge").at(2.1).takes(7, epoch=11)
    s.is_given_cast(7).at(3.0).unwatches("n1", "n0", epoch=11, at=7)
    s.watches("n1", "n0", after=5, epoch=12, why="merge").at(3.1).takes(6, epoch=12)
    s.is_given_cast(6).at(4.0).drops(1, 7)


@sound(both_ends=True)
def an_early_message_of_the_last_window_was_sent_after_this_one(s: Story) -> None:
    """It is OOB, and no measure of the order."""
    s.at(1.0).offers(1, 7).opens().sends(1, 5, number=1).sends(6, number=6)
    s.sends(7, number=7, oob=True).at(1.1).listens().delivers(1, 5).is_given(1, 5).acks(5)
    s.delivers(7, oob=True).is_given(7).at(2.0).forgets().listens(epoch=2)
    s.delivers(6, epoch=2).is_given(6).acks(7, epoch=2).at(3.1).purges(1, 7)


# -- G4: handed over as it was ---------------------------------------------------------------------


@broken(
    "G4",
    witness=(
        "n0#2 t=1.000 cut message 1 to n1 into 3 pieces",
        "n1#5 t=1.100 handed over from n0 conn 1 the message of seqnos 1..3",
    ),
    both_ends=True,
)
def a_message_is_joined_with_other_bytes(s: Story) -> None:
    a_large_exchange(s).is_given_whole(1, 1, 3, digest=digest_of("other")).acks(3)
    s.at(1.2).purges(1, 3)


@broken(
    "G4",
    witness=(
        "n0#2 t=1.000 cut message 1 to n1 into 3 pieces",
        "n1#5 t=1.100 handed over from n0 conn 1 the message of seqnos 1..3",
    ),
    both_ends=True,
)
def a_message_is_joined_with_another_length(s: Story) -> None:
    a_large_exchange(s).is_given_whole(1, 1, 3, size=99).acks(3).at(1.2).purges(1, 3)


@broken(
    "G4",
    witness=("n1#5 t=2.100 handed over from n0 conn 1 seqnos 6..6",),
    both_ends=True,
)
def what_was_never_delivered_is_handed_over(s: Story) -> None:
    a_told_exchange(s).at(2.1).is_given(6)


@broken(
    "G4",
    witness=("n1#6 t=2.100 handed over from n0 conn 1 seqnos 6..7",),
    both_ends=True,
)
def what_is_delivered_is_handed_over_before(s: Story) -> None:
    """The second message of the range comes later."""
    a_told_exchange(s).at(2.0).offers(6, 7).sends(6, number=6).sends(7, number=7)
    s.at(2.1).delivers(6).is_given(6, 7).delivers(7).acks(7).at(2.2).purges(6, 7)


HALF_JOINED: Final = (
    "n0#2 t=1.000 cut message 1 to n1 into 3 pieces",
    "n1#4 t=1.100 handed over from n0 conn 1 the message of seqnos 1..2",
)


def half_a_message_is_joined(s: Story) -> Story:
    return half_a_message(s).is_given_whole(1, 1, 2, size=66, digest=77).acks(2)


@broken(
    "G4",
    witness=(
        "n0#4 t=1.000 sent to n1 conn 1 seqnos 1..1 (FRAGMENT)",
        "n1#2 t=1.100 delivered from n0 conn 1 seqnos 1..1",
    ),
    both_ends=True,
)
def pieces_are_handed_over_as_messages(s: Story) -> None:
    s.at(1.0).offers(1).cuts(1, 3).opens()
    for seqno in (1, 2, 3):
        s.sends(seqno, number=1, piece=True)
    s.at(1.1).listens().delivers(1).delivers(2).delivers(3).is_given(1, 3).acks(3)
    s.at(1.2).purges(1, 3)


@broken(
    "G4",
    witness=(
        "n0#6 t=2.000 sent to n1 conn 1 seqnos 6..6",
        "n1#5 t=2.100 delivered from n0 conn 1 seqnos 6..6 (FRAGMENT)",
    ),
    both_ends=True,
)
def a_message_is_taken_for_a_piece(s: Story) -> None:
    """No other piece comes, so nothing is handed over."""
    a_told_exchange(s).at(2.0).offers(6).sends(6, number=6)
    s.at(2.1).delivers(6, piece=True).acks(6).at(2.2).purges(6)


@broken(
    "G4",
    witness=(
        "n0#4 t=1.000 sent to the group multicasts 1..1",
        "n1#3 t=1.100 delivered from n0 window 1 multicasts 1..1 (FRAGMENT)",
    ),
    both_ends=True,
)
def a_multicast_is_taken_for_a_piece(s: Story) -> None:
    s.a_group("n0", "n1").at(1.0).offers(1, to="").casts(1, number=1).is_given_cast(1, 1, "n0")
    s.at(1.1).takes(1, piece=True).at(1.2).drops(1)


@broken("G4", witness=HALF_JOINED, both_ends=True)
def half_a_message_is_joined_before_its_connection_ends(s: Story) -> None:
    """The sender is told that it gave the message up; the receiver hands over what it has of it."""
    half_a_message_is_joined(s).at(1.2).purges(1, 2).at(1.3).removes(why="forgot").throws_away(1)


@broken("G4", witness=HALF_JOINED, both_ends=True)
def half_a_message_of_a_crashed_sender_is_joined(s: Story) -> None:
    half_a_message_is_joined(s).at(1.3).fault("crash", member="n0").bites(1, do="crash")


@broken(
    "G4",
    witness=(
        "n0#4 t=1.000 cut message 1 to the group into 3 pieces",
        "n1#5 t=1.100 handed over from n0 the message of seqnos 1..2",
    ),
    both_ends=True,
)
def half_a_multicast_is_joined(s: Story) -> None:
    s.a_group("n0", "n1").at(1.0).offers(1, to="").cuts(1, 3, to="")
    s.casts(1, number=1, piece=True).casts(2, number=1, piece=True)
    s.at(1.1).takes(1, piece=True).takes(2, piece=True).is_given_whole_cast(1, 2)
    s.at(1.3).fault("crash", member="n0").bites(1, do="crash")
    s.at(2.0).unwatches("n1", "n0", at=2).installs(2, "n1")


@broken(
    "G4",
    witness=("n1#4 t=1.100 handed over from n0 conn 1 the message of seqnos 1..2",),
    both_ends=True,
)
def pieces_that_nobody_cut_are_joined(s: Story) -> None:
    s.at(1.0).offers(1).opens().sends(1, number=1, piece=True).sends(2, number=1, piece=True)
    s.at(1.1).listens().delivers(1, piece=True).delivers(2, piece=True)
    s.is_given_whole(1, 1, 2).acks(2)
    s.at(1.3).fault("crash", member="n0").bites(1, do="crash")


@broken(
    "G4",
    witness=(
        "n0#5 t=1.000 cut message 2 to n1 into 2 pieces",
        "n1#6 t=1.100 handed over from n0 conn 1 the message of seqnos 3..3",
    ),
    both_ends=True,
)
def the_message_after_a_whole_one_is_joined_without_its_end(s: Story) -> None:
    s.at(1.0).offers(1, 2).cuts(1, 2).opens().sends(1, number=1, piece=True)
    s.cuts(2, 2).sends(2, number=1, piece=True).sends(3, number=2, piece=True)
    s.at(1.1).listens().delivers(1, piece=True).delivers(2, piece=True).is_given_whole(1, 1, 2)
    s.delivers(3, piece=True).is_given_whole(2, 3, 3, size=50).acks(3)
    s.at(1.3).fault("crash", member="n0").bites(1, do="crash")
