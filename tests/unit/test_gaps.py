"""When to ask for what is missing: at the second look, not too often, in bounded pieces (C1)."""

from __future__ import annotations

from itertools import pairwise
from math import inf

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stormcast.node.core.gaps import GapLook, Ranges, split_ranges
from stormcast.node.core.timing import Pacer, Timing
from stormcast.node.core.window import ReceiveWindow

GRID = 0.5
COMPATIBLE = Timing()
FAST = Timing(name="fast", adaptive=True)


class Receiver:
    """A window and its looks: what is asked for, and when."""

    def __init__(self, timing: Timing = COMPATIBLE, offset: int = 0) -> None:
        self.pacer = Pacer(timing, GRID)
        self.window: ReceiveWindow[None] = ReceiveWindow(offset, 10_000, 1 << 20)
        self.gaps = GapLook(self.pacer.round_trip())
        self.due = inf

    def get(self, *ranges: tuple[int, int]) -> None:
        for lo, hi in ranges:
            self.window.add(lo, hi, 1, None)

    def look(self, now: float) -> Ranges:
        ask, self.due = self.gaps.look(self.window, self.pacer, now)
        return ask

    def asked_when_due(self, until: float) -> list[tuple[float, Ranges]]:
        """Look whenever a look is due; what that asked for."""
        asked = []
        while self.due <= until:
            now = self.due
            if ask := self.look(now):
                asked.append((now, ask))
        return asked


# -- Two looks -----------------------------------------------------------------------------------


def test_nothing_missing_is_nothing_to_ask_for_and_nothing_to_look_at_again() -> None:
    receiver = Receiver()
    receiver.get((1, 5))
    assert receiver.look(0.5) == []
    assert receiver.due == inf


@pytest.mark.parametrize("timing", [COMPATIBLE, FAST], ids=lambda timing: timing.name)
def test_what_is_missing_is_asked_for_at_the_second_look(timing: Timing) -> None:
    """JGRP-1539: the first look only notes it, because it may still be under way."""
    receiver = Receiver(timing)
    receiver.get((1, 2), (5, 5), (8, 9))
    assert receiver.look(0.5) == []
    assert 0.5 < receiver.due < inf
    assert receiver.look(receiver.due) == [(3, 4), (6, 7)]


def test_what_came_between_two_looks_is_not_asked_for() -> None:
    """Mere reordering costs no request."""
    receiver = Receiver()
    receiver.get((1, 2), (5, 5), (8, 9))
    receiver.look(0.5)
    receiver.get((3, 4))
    assert receiver.look(1.0) == [(6, 7)]


def test_a_gap_above_those_of_the_first_look_waits_for_a_second_look_of_its_own() -> None:
    receiver = Receiver()
    receiver.get((1, 2), (5, 5))
    receiver.look(0.5)
    receiver.get((9, 9))
    assert receiver.look(1.0) == [(3, 4)]
    assert receiver.look(1.5) == [(3, 4), (6, 8)]


def test_a_closed_gap_is_forgotten_and_a_later_one_gets_two_looks_again() -> None:
    receiver = Receiver()
    receiver.get((2, 2))
    receiver.look(0.5)
    receiver.get((1, 1))
    assert receiver.look(1.0) == []
    assert receiver.due == inf
    receiver.get((4, 4))
    assert receiver.look(1.5) == []
    assert receiver.look(2.0) == [(3, 3)]


def test_messages_known_to_exist_are_asked_for_though_none_came_after_them() -> None:
    """Somebody said that 5 is the highest: the last message is lost, and no gap shows it."""
    receiver = Receiver()
    receiver.get((1, 3))
    receiver.window.note(5)
    assert receiver.look(0.5) == []
    assert receiver.look(1.0) == [(4, 5)]


# -- Again ---------------------------------------------------------------------------------------


def test_on_the_grid_what_stays_missing_is_asked_for_once_per_interval() -> None:
    receiver = Receiver()
    receiver.get((2, 2))
    receiver.due = 0.5
    assert receiver.asked_when_due(2.6) == [(at, [(1, 1)]) for at in (1.0, 1.5, 2.0, 2.5)]


def test_a_look_between_two_due_ones_asks_for_nothing_twice() -> None:
    """Frames that arrive may cause any number of looks; requests keep their pace."""
    receiver = Receiver()
    receiver.get((2, 2))
    receiver.look(0.5)
    assert receiver.look(1.0) == [(1, 1)]
    for now in (1.0, 1.1, 1.2, 1.3, 1.4, 1.499):
        assert receiver.look(now) == []
        assert receiver.due == 1.5
    assert receiver.look(1.5) == [(1, 1)]


def test_in_fast_timing_silence_doubles_the_wait_up_to_the_interval() -> None:
    receiver = Receiver(FAST)
    receiver.get((2, 2))
    receiver.due = 0.0
    times = [at for at, _ask in receiver.asked_when_due(10.0)]
    waits = [later - earlier for earlier, later in pairwise(times)]
    assert times[0] < 0.01
    for shorter, longer in pairwise(waits):
        assert longer == pytest.approx(min(2 * shorter, GRID))
    assert waits[-1] == pytest.approx(GRID)


def test_a_repeat_counts_itself_so_that_it_is_another_frame() -> None:
    receiver = Receiver()
    assert receiver.gaps.transmission() == 0
    receiver.get((2, 2))
    receiver.due = 0.5
    receiver.asked_when_due(1.0)
    assert receiver.gaps.transmission() == 0
    receiver.asked_when_due(2.0)
    assert receiver.gaps.transmission() == 2


def test_the_count_of_repeats_fits_its_byte_and_never_stands_still() -> None:
    """Of equal repeats a rig would lose all, if it lost one."""
    receiver = Receiver()
    receiver.get((2, 2))
    receiver.due = 0.5
    receiver.asked_when_due(GRID * 255)
    assert receiver.gaps.transmission() == 253
    receiver.asked_when_due(GRID * 300)
    first = receiver.gaps.transmission()
    receiver.asked_when_due(GRID * 301)
    assert 128 <= first < receiver.gaps.transmission() <= 255


def test_what_was_asked_for_and_came_leaves_the_count_of_repeats() -> None:
    """A new gap must not begin as the hundredth repeat of an old one."""
    receiver = Receiver()
    receiver.get((2, 2))
    receiver.due = 0.5
    receiver.asked_when_due(5.0)
    receiver.get((1, 1), (4, 4))
    receiver.look(5.5)
    assert receiver.look(6.0) == [(3, 3)]
    assert receiver.gaps.transmission() == 0


# -- Round trips ---------------------------------------------------------------------------------


def asked_at_one() -> Receiver:
    """1 and 2 are missing, and asked for once, at 1.0."""
    receiver = Receiver()
    receiver.get((3, 3))
    receiver.look(0.5)
    assert receiver.look(1.0) == [(1, 2)]
    return receiver


def test_the_first_answer_to_a_request_measures_the_round_trip() -> None:
    receiver = asked_at_one()
    before = receiver.gaps.rtt.smoothed
    receiver.gaps.sample(1, 1.1)
    once = receiver.gaps.rtt.smoothed
    assert once == pytest.approx(before + (0.1 - before) / 8)
    receiver.gaps.sample(2, 1.4)
    assert receiver.gaps.rtt.smoothed == once


def test_an_answer_to_a_repeated_request_measures_nothing() -> None:
    """Karn: nobody knows which of the two it answers."""
    receiver = asked_at_one()
    assert receiver.look(1.5) == [(1, 2)]
    before = receiver.gaps.rtt.smoothed
    receiver.gaps.sample(1, 1.6)
    assert receiver.gaps.rtt.smoothed == before


def test_a_message_that_was_not_asked_for_measures_nothing() -> None:
    receiver = asked_at_one()
    before = receiver.gaps.rtt.smoothed
    receiver.gaps.sample(3, 1.1)
    assert receiver.gaps.rtt.smoothed == before


# -- Requests ------------------------------------------------------------------------------------


def test_a_request_ends_at_its_number_of_seqnos_or_of_ranges() -> None:
    assert split_ranges([], 10, 10) == []
    assert split_ranges([(1, 10)], 10, 10) == [([(1, 10)], 10)]
    assert split_ranges([(1, 11)], 10, 10) == [([(1, 10)], 10), ([(11, 11)], 1)]
    assert split_ranges([(1, 3), (5, 9), (12, 12)], 5, 10) == [
        ([(1, 3), (5, 6)], 5),
        ([(7, 9), (12, 12)], 4),
    ]
    assert split_ranges([(1, 1), (3, 3), (5, 5)], 100, 2) == [
        ([(1, 1), (3, 3)], 2),
        ([(5, 5)], 1),
    ]


@st.composite
def ascending(draw: st.DrawFn) -> Ranges:
    at, ranges = 0, []
    for gap, size in draw(st.lists(st.tuples(st.integers(2, 9), st.integers(0, 40)), max_size=12)):
        ranges.append((at + gap, at + gap + size))
        at += gap + size
    return ranges


@given(ascending(), st.integers(1, 50), st.integers(1, 5))
def test_requests_ask_for_everything_once_in_order_and_keep_their_bounds(
    ranges: Ranges, most_seqnos: int, most_ranges: int
) -> None:
    requests = split_ranges(ranges, most_seqnos, most_ranges)
    parts = [part for request, _number in requests for part in request]
    asked = [seqno for lo, hi in parts for seqno in range(lo, hi + 1)]
    assert asked == [seqno for lo, hi in ranges for seqno in range(lo, hi + 1)]
    for request, number in requests:
        assert 0 < number <= most_seqnos
        assert 0 < len(request) <= most_ranges
        assert number == sum(hi - lo + 1 for lo, hi in request)


# -- Against a model -------------------------------------------------------------------------------


@pytest.mark.parametrize("timing", [COMPATIBLE, FAST], ids=lambda timing: timing.name)
@given(
    steps=st.lists(
        st.tuples(st.integers(1, 40), st.integers(0, 5), st.sampled_from([0.0, 0.1, 0.3, 0.5])),
        max_size=40,
    )
)
def test_only_what_is_missing_and_was_missing_at_the_look_before_is_asked_for(
    timing: Timing, steps: list[tuple[int, int, float]]
) -> None:
    """And no seqno twice within the pace of `compatible`: looks may come at any time."""
    receiver = Receiver(timing)
    before: set[int] = set()
    last_asked: dict[int, float] = {}
    now = 0.0
    for lo, more, wait in steps:
        now += wait
        receiver.get((lo, lo + more))
        missing = {
            seqno
            for first, last in receiver.window.missing(1 << 62)
            for seqno in range(first, last + 1)
        }
        asked = {seqno for first, last in receiver.look(now) for seqno in range(first, last + 1)}
        assert asked <= missing
        highest = max(before, default=0)
        assert all(seqno <= highest for seqno in asked)
        if not timing.adaptive:
            assert all(now - last_asked.get(seqno, -inf) >= 0.99 * GRID for seqno in asked)
        last_asked |= dict.fromkeys(asked, now)
        assert (receiver.due == inf) == (not missing)
        assert receiver.due >= now
        # Seqnos at or below the highest that was missing count as seen: they are older still.
        before = {max(highest, *missing)} if missing else set()
        receiver.window.take_ready()
