"""More small runs with a known verdict: whether a connection was rightly given up (G1)."""

from __future__ import annotations

from stormcast.node.core import wire
from tests.oracles.answer_corpus import CASES
from tests.oracles.corpus import broken, sound
from tests.oracles.story import Story

__all__ = ["CASES"]


def n1_misses_three(s: Story, *views: tuple[str, ...]) -> Story:
    """n0 and n1 are a group; n1 never gets 6 to 8 of n0, which installs these views at 3 s."""
    s.a_group("n0", "n1").a_clean_exchange().at(2.0).sends(6, 8).at(3.0)
    for number, members in enumerate(views, 2):
        for peer in {"n1"} - set(members):
            s.unwatches("n0", peer, epoch=2)
        s.installs(number, *members, who="n0", by="n0")
    return s


def is_given_up_by_view(s: Story) -> Story:
    return s.removes(why="view", unacked=3, protocol=wire.UNICAST2).gives_up(6, 8, why="view")


@broken(
    "G1",
    witness=(
        "n0#6 t=2.000 sent to n1 conn 1 seqnos 6..8",
        "n0#7 t=3.000 sender removed to n1 conn 1 (view)",
    ),
)
def a_view_that_has_the_receiver_gives_no_connection_up(s: Story) -> None:
    """G1: "A view and a stop must be seen"."""
    is_given_up_by_view(n1_misses_three(s))


@broken("G1")
def a_view_that_came_later_gives_no_connection_up(s: Story) -> None:
    is_given_up_by_view(n1_misses_three(s))
    s.at(5.0).unwatches("n0", "n1", epoch=2).installs(2, "n0", who="n0").at(6.0)
    s.watches("n0", "n1", epoch=3, why="merge").watches("n1", "n0", epoch=3, why="merge")
    s.installs(3, "n0", "n1", merge=True)


@sound()
def a_view_without_the_receiver_gives_its_connection_up(s: Story) -> None:
    is_given_up_by_view(n1_misses_three(s, ("n0",))).at(6.0)
    s.watches("n0", "n1", epoch=3, why="merge").watches("n1", "n0", epoch=3, why="merge")
    s.installs(3, "n0", "n1", merge=True)


@sound()
def a_view_that_is_recorded_later_in_the_turn_gives_a_connection_up(s: Story) -> None:
    is_given_up_by_view(n1_misses_three(s)).unwatches("n0", "n1", epoch=2)
    s.installs(2, "n0", who="n0").at(6.0)
    s.watches("n0", "n1", epoch=3, why="merge").watches("n1", "n0", epoch=3, why="merge")
    s.installs(3, "n0", "n1", merge=True)


@sound()
def of_two_views_in_one_moment_the_first_gives_a_connection_up(s: Story) -> None:
    """A member that was paused takes all views that came meanwhile."""
    n1_misses_three(s, ("n0",)).watches("n0", "n1", epoch=3, why="merge")
    is_given_up_by_view(s.installs(3, "n0", "n1", merge=True, who="n0"))
    s.watches("n1", "n0", epoch=3, why="merge").installs(3, "n0", "n1", merge=True, who="n1")


@sound()
def without_a_view_nobody_is_a_member(s: Story) -> None:
    is_given_up_by_view(s.a_clean_exchange().at(2.0).sends(6, 8).at(3.0))


def n0_says_that_it_stops(s: Story) -> Story:
    s.a_clean_exchange().at(2.0).sends(6, 8).at(3.0).removes(why="stop", unacked=3)
    return s.gives_up(6, 8, why="stop")


@broken("G1")
def who_goes_on_has_not_stopped(s: Story) -> None:
    n0_says_that_it_stops(s).at(4.0).opens(conn=2).sends(1, conn=2)
    s.listens(conn=2, epoch=2).delivers(1, conn=2, epoch=2).acks(1, conn=2, epoch=2)
    s.purges(1, conn=2)


@broken("G1", both_ends=True)
def who_stops_later_has_not_stopped_before(s: Story) -> None:
    s.at(1.0).offers(1, 3).opens().sends(1, 3, number=1).at(3.0)
    s.removes(why="stop", unacked=3).gives_up(1, 3, why="stop").at(5.0).stops("n0")


@sound()
def whose_trace_ends_as_it_stops_has_stopped(s: Story) -> None:
    """It was frozen in that turn, as the run was over."""
    n0_says_that_it_stops(s)


# -- Messages that wait ----------------------------------------------------------------------------


def n0_has_no_connection_for_6_to_9(s: Story) -> Story:
    """All was acked when the connection closed as idle. Later messages wait for credits."""
    s.at(1.0).offers(1, 5).opens().sends(1, 5, number=1)
    s.at(1.1).listens().delivers(1, 5).is_given(1, 5).acks(5).at(1.2).purges(1, 5)
    return s.at(10.0).closes(why="idle").at(15.0).removes().at(30.0).offers(6, 9)


@sound(both_ends=True)
def what_a_leaver_gives_up_without_a_connection_is_no_fault_of_an_earlier_one(s: Story) -> None:
    n0_has_no_connection_for_6_to_9(s).at(35.0).throws_away(6, 9, why="stop").stops("n0")


@broken(
    "G1",
    both_ends=True,
    witness=(
        "n0#12 t=35.000 sender removed to n1 conn 2 (closed)",
        "n0#13 t=35.000 gave up messages 7..9 to n1 (connection-closed)",
    ),
)
def what_waits_is_given_up_with_the_last_of_two_connections(s: Story) -> None:
    n0_has_no_connection_for_6_to_9(s).opens(conn=2).sends(1, conn=2, number=6)
    s.listens(conn=2, epoch=2).delivers(1, conn=2, epoch=2).is_given(1, conn=2)
    s.acks(1, conn=2, epoch=2).purges(1, conn=2).at(33.0).closes(conn=2, why="idle")
    s.at(35.0).removes(conn=2).throws_away(7, 9)
