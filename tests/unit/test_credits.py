"""Credits as totals: what a question settles, and what a limit lets out."""

from __future__ import annotations

from itertools import pairwise

import pytest

from stormcast.node.core.credits import Allowance, Intake, Question, StreamEnd, is_reached

SENT = StreamEnd(conn=3, seqno=10, unacked=4)


def test_a_place_is_reached_when_its_seqno_was_taken() -> None:
    assert not is_reached(SENT, (3, 9))
    assert is_reached(SENT, (3, 10))


def test_a_newer_connection_leaves_nothing_of_an_older_one_to_come() -> None:
    assert is_reached(SENT, (4, 0))
    assert not is_reached(SENT, (2, 99))


def test_connections_keep_their_order_across_the_wrap() -> None:
    last = StreamEnd(conn=0xFFFFFFFF, seqno=10, unacked=0)
    assert is_reached(last, (1, 0))
    assert not is_reached(StreamEnd(1, 10, 0), (0xFFFFFFFF, 99))


def test_a_receiver_without_a_window_has_everything_only_if_all_was_acked() -> None:
    """Else the window is still to come, and with it what is under way."""
    assert not is_reached(SENT, None)
    assert is_reached(SENT._replace(unacked=0), None)


@pytest.mark.parametrize("taken", [None, (2, 5), (3, 0), (7, 5)])
def test_before_the_first_message_of_a_connection_nothing_is_under_way(
    taken: tuple[int, int] | None,
) -> None:
    """Also for a receiver that still has the connection before it, or a later one."""
    assert is_reached(StreamEnd(3, 0, 0), taken)


def test_a_place_stands_still_while_its_connection_lives() -> None:
    """Only how much of it is unacked goes down, to nothing."""
    assert SENT.as_of(StreamEnd(3, 10, 4)) == SENT
    assert SENT.as_of(StreamEnd(3, 15, 7)) == StreamEnd(3, 10, 2)
    assert SENT.as_of(StreamEnd(3, 15, 2)) == StreamEnd(3, 10, 0)


@pytest.mark.parametrize("end", [StreamEnd(4, 0, 0), StreamEnd(4, 12, 1), StreamEnd(3, 9, 4)])
def test_a_place_is_gone_with_its_connection(end: StreamEnd) -> None:
    """The last: connections without ids, of which the next one counts from 1 again."""
    assert SENT.as_of(end) is None


def test_of_multicasts_only_the_seqno_counts() -> None:
    assert not is_reached(StreamEnd(0, 10, 0), (0, 9))
    assert is_reached(StreamEnd(0, 10, 0), (0, 10))


def test_nothing_is_counted_before_the_count_is_known() -> None:
    intake = Intake(max_credits=1000, low=200)
    assert not intake.took(5000, 1)
    intake.settle(300)
    assert intake.announce() == 1300


def test_the_limit_is_named_anew_when_little_is_left_of_it() -> None:
    """Of 1000 credits 800 must be taken; 799 are not enough."""
    intake = Intake(max_credits=1000, low=200)
    intake.settle(0)
    intake.announce()
    assert not intake.took(799, 1)
    assert intake.took(1, 1)
    assert intake.announce() == 1800


def test_settling_corrects_a_count_in_both_directions() -> None:
    intake = Intake(max_credits=1000, low=200)
    for total in (500, 300, 900):
        intake.settle(total)
        assert intake.announce() == total + 1000


def test_what_comes_late_of_an_ended_connection_is_not_counted_twice() -> None:
    """It is in the total that was settled on."""
    intake = Intake(max_credits=1000, low=200)
    intake.settle(700, oldest=3)
    assert not intake.took(900, 2)
    assert intake.announce() == 1700
    assert intake.took(900, 3)
    assert intake.announce() == 2600


def test_connections_of_no_id_all_count() -> None:
    intake = Intake(max_credits=1000, low=200)
    intake.settle(700)
    assert intake.took(900, 0)
    assert intake.took(900, 0xFFFFFFF0)


def test_a_repeated_introduction_does_not_take_the_count_back() -> None:
    intake = Intake(max_credits=1000, low=200)
    first = Question(500, SENT, is_introduction=True)
    assert not intake.is_stale(first)
    intake.settle(500)
    assert intake.is_stale(first)
    assert not intake.is_stale(first._replace(total=501))
    assert not intake.is_stale(first._replace(is_introduction=False))


@pytest.mark.parametrize("base", [0, 700])
def test_somebody_new_gets_full_credits(base: int) -> None:
    """Who waits for as much as is left fits; one byte more does not."""
    allowance = Allowance(base, 1000)
    allowance.need = 1000
    assert not allowance.is_short(base)
    allowance.need = 1001
    assert allowance.is_short(base)


def test_repeats_are_numbered_differently_however_many_there_are() -> None:
    allowance, intake = Allowance(0, 1000), Intake(1000, 200)
    asks = [allowance.next_ask() for _ in range(600)]
    answers = [intake.next_answer() for _ in range(600)]
    for numbers in (asks, answers):
        assert max(numbers) == 255
        assert all(one != other for one, other in pairwise(numbers))
