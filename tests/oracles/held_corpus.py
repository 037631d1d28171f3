"""More small runs with a known verdict: what a window held when it was removed (G1).

In each n1 has messages of n0 that its application has yet to take. Then its window ends: n0 crashed
or was parted from n1.
"""

from __future__ import annotations

from typing import Final

from stormcast.node import trace
from tests.oracles.corpus import broken, sound
from tests.oracles.excuse_corpus import CASES
from tests.oracles.story import Story

__all__ = ["CASES"]

GAUGE: Final = "n1#5 t=2.500 receive window messages n0 5 of 100"
REMOVAL: Final = "n1#6 t=4.000 receiver removed from n0 window 1 at multicast 0 (view)"


# -- Multicasts ------------------------------------------------------------------------------------


def n0_casts_and_crashes(s: Story, casts: int = 10) -> Story:
    """n0 multicasts 1 to 5, which all deliver, then more in one batch, which n2 delivers, and
    crashes."""
    s.a_group().a_clean_cast().at(2.0).casts(6, casts).at(2.1).takes(6, casts, "n2")
    return s.at(2.2).fault("crash", member="n0").bites(1)


def n1_holds(s: Story, count: int, at: float = 2.5) -> Story:
    return s.at(at).fills(trace.RECEIVE_MESSAGES, count, 100)


def n0_is_left_out(s: Story, at: float = 4.0) -> Story:
    """n1 and n2 go on without n0."""
    s.at(at).unwatches("n1", "n0").unwatches("n2", "n0")
    return s.installs(2, "n1", "n2")


@broken("G1", witness=(GAUGE, REMOVAL))
def what_a_window_held_is_lost_with_it(s: Story) -> None:
    """G1: "What a window held without a gap when it was removed is delivered in it"."""
    n0_is_left_out(n1_holds(n0_casts_and_crashes(s), 5))


@broken("G1", witness=(GAUGE, REMOVAL))
def the_last_that_a_window_held_is_lost_with_it(s: Story) -> None:
    """6 to 9 are delivered as it ends, and 10 is not."""
    n1_holds(n0_casts_and_crashes(s), 5)
    n0_is_left_out(s).takes(6, 9, part_of=(6, 10))


@broken("G1")
def what_a_window_held_before_more_was_sent_is_lost_with_it(s: Story) -> None:
    """n0 sends 11 after n1 was seen to hold all; n1 never had that."""
    s.a_group().a_clean_cast().at(2.0).casts(6, 10).at(2.1).takes(6, 10, "n2")
    n1_holds(s, 5).at(2.6).casts(11).at(2.7).takes(11, who="n2")
    n1_holds(s, 5, at=2.8).at(3.0).fault("crash", member="n0").bites(1)
    n0_is_left_out(s)


@broken("G1")
def what_waits_before_the_place_of_an_oob_message_is_lost(s: Story) -> None:
    """7 was delivered early; 6 came later, and closed the gap. The window counts both."""
    s.a_group().a_clean_cast().at(2.0).casts(6).casts(7, oob=True)
    s.at(2.1).takes(7, oob=True).takes(6, who="n2").takes(7, who="n2", oob=True)
    s.at(2.2).fault("crash", member="n0").bites(1)
    n0_is_left_out(n1_holds(s, 2))


@broken("G1")
def what_a_window_held_is_lost_as_it_is_replaced_in_a_merge(s: Story) -> None:
    """n0 excluded n1 before it sent, and says by a digest that 6 to 10 were not for it."""
    s.a_group("n0", "n1").at(1.0).casts(1, 5).at(1.1).takes(1, 5)
    s.at(1.5).unwatches("n0", "n1", epoch=2).installs(2, "n0", who="n0")
    n1_holds(s.at(2.0).casts(6, 10), 5)
    s.at(4.0).watches("n0", "n1", epoch=3, why="merge")
    s.unwatches("n1", "n0", why="merge").watches("n1", "n0", epoch=3, after=10, why="merge")
    s.installs(3, "n0", "n1", merge=True)


@sound()
def what_a_window_held_is_delivered_as_it_ends(s: Story) -> None:
    """In the same turn, though the removal is told first."""
    n1_holds(n0_casts_and_crashes(s), 5)
    n0_is_left_out(s).takes(6, 10)


@sound()
def what_a_window_held_behind_a_gap_ends_with_it(s: Story) -> None:
    """G1: "... without a gap ...": 6 never came."""
    n0_is_left_out(n1_holds(n0_casts_and_crashes(s), 4))


@sound()
def messages_behind_the_place_of_an_oob_message_end_with_a_window(s: Story) -> None:
    """7 was delivered early and keeps its place, 8 and 9 wait; 6 and 10 never came. Above 7 there
    are as many as the window holds."""
    s.a_group().a_clean_cast().at(2.0).casts(6).casts(7, oob=True).casts(8, 10)
    s.at(2.1).takes(7, oob=True).fault("crash", member="n0").bites(1)
    s.takes(6, who="n2").takes(7, who="n2", oob=True).takes(8, 10, "n2")
    n0_is_left_out(n1_holds(s, 3))


@sound()
def what_was_delivered_early_in_a_window_has_a_place_in_the_next(s: Story) -> None:
    """n1 lost n0 for a moment. Its second window holds 6, and the place of 7."""
    s.a_group("n0", "n1").at(1.0).casts(1, 5).at(1.1).takes(1, 5)
    s.at(2.0).casts(6).casts(7, oob=True).at(2.1).takes(7, oob=True)
    s.at(2.2).unwatches("n1", "n0").installs(2, "n1", who="n1")
    s.at(2.3).watches("n1", "n0", epoch=3, after=5, why="merge").installs(3, "n0", "n1", merge=True)
    n1_holds(s, 2).at(2.6).fault("crash", member="n0").bites(1)
    s.at(4.0).takes(6, epoch=3).unwatches("n1", "n0", epoch=3).installs(4, "n1")


@sound()
def what_a_window_gave_up_aloud_counts_as_held(s: Story) -> None:
    """n0 no longer has 8, which was not meant for n1; 9 and 10 never came. 6 and 7 are delivered as
    the window ends."""
    s.a_group().a_clean_cast().at(2.0).casts(6, 8).at(2.1).takes(6, 8, "n2").misses(8, meant=False)
    n1_holds(s, 3).at(2.6).fault("crash", member="n0").bites(1)
    n0_is_left_out(s).takes(6, 7, part_of=(6, 8))


@sound()
def what_a_window_held_ends_with_its_member(s: Story) -> None:
    """G1: "... if its member goes on": n1 stops."""
    s.a_group().a_clean_cast().at(2.0).casts(6, 10).at(2.1).takes(6, 10, "n2")
    n1_holds(s, 5).at(4.0).unwatches("n1", "n0", why="stop").stops("n1")
    s.at(5.0).unwatches("n0", "n1", epoch=2).unwatches("n2", "n1", epoch=2)
    s.installs(2, "n0", "n2")


# -- Unicasts --------------------------------------------------------------------------------------


def n0_sends_and_crashes(s: Story) -> Story:
    s.a_clean_exchange().at(2.0).sends(6, 10)
    return s.at(2.2).fault("crash", member="n0").bites(1)


@broken(
    "G1",
    witness=(
        "n1#4 t=2.500 receive window messages n0 5 of 100",
        "n1#5 t=4.000 receiver removed from n0 conn 1 (view)",
    ),
)
def unicasts_that_a_window_held_are_lost_with_it(s: Story) -> None:
    n0_sends_and_crashes(s).at(2.5).gauges(trace.RECEIVE_MESSAGES, 5, 100).at(4.0)
    s.forgets(why="view")


@broken("G1")
def unicasts_of_a_sender_that_was_told_are_lost_with_a_window(s: Story) -> None:
    """n0 gave its connection up for a view, as it had no ack of them; n1 had them all."""
    s.a_clean_exchange().at(2.0).sends(6, 10).at(2.5).gauges(trace.RECEIVE_MESSAGES, 5, 100)
    s.at(3.0).closes(why="view").at(4.0).removes(why="closed", unacked=5).gives_up(6, 10)
    s.at(5.0).forgets(why="closed")


@sound()
def unicasts_that_a_window_held_are_delivered_as_it_ends(s: Story) -> None:
    n0_sends_and_crashes(s).at(2.5).gauges(trace.RECEIVE_MESSAGES, 5, 100).at(4.0)
    s.delivers(6, 10).acks(10).forgets(why="view")


@sound()
def unicasts_of_one_connection_say_nothing_of_the_next(s: Story) -> None:
    """n1 holds four of the five that n0 sent on connection 2: as many as were sent on the one that
    it has ended."""
    s.at(1.0).opens().sends(1, 4).at(1.1).listens().delivers(1, 4).acks(4).at(1.2).purges(1, 4)
    s.at(2.0).removes().opens(conn=2).sends(1, 5, conn=2)
    s.at(2.1).forgets(why="replaced").listens(conn=2, epoch=2)
    s.at(2.2).fault("crash", member="n0").bites(1)
    s.at(2.5).gauges(trace.RECEIVE_MESSAGES, 4, 100).at(4.0).forgets(conn=2, epoch=2, why="view")
