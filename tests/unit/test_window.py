"""The sliding windows, row by row of the behaviours they inherit (B-01 to B-24; G1, G2, G3, G5)."""

from __future__ import annotations

import gc
import random
import sys
from collections.abc import Callable
from types import FrameType

import pytest

from stormcast.node.core.islands import Piece
from stormcast.node.core.window import ReceiveWindow, SendWindow, quarter_of

PLENTY = 1 << 30


class Receiver:
    """A receive window and what the application got out of it, message by message."""

    def __init__(self, offset: int = 0, capacity: int = 1 << 20, room: int = PLENTY) -> None:
        self.window: ReceiveWindow[str] = ReceiveWindow(offset, capacity, room)
        self.got: list[int] = []

    def add(self, *seqnos: int) -> list[bool]:
        """Single messages, one after the other; True for each that was new."""
        return [bool(self.window.add(seqno, seqno, 1, "one")) for seqno in seqnos]

    def batch(self, lo: int, hi: int, size: int = 1) -> list[tuple[int, int]]:
        """The ranges of a batch that were new."""
        return [(piece.lo, piece.hi) for piece in self.window.add(lo, hi, size, "batch")]

    def oob(self, lo: int, hi: int, size: int = 1) -> list[tuple[int, int]]:
        """The ranges of an out-of-band batch that are to be delivered at once."""
        return [(piece.lo, piece.hi) for piece in self.window.add(lo, hi, size, "oob", oob=True)]

    def take(self) -> list[int]:
        """The seqnos that are next in order and were not delivered out of band."""
        pieces = [piece for piece in self.window.take_ready() if piece.item is not None]
        taken = [seqno for piece in pieces for seqno in range(piece.lo, piece.hi + 1)]
        self.got += taken
        return taken

    def marks(self) -> tuple[int, int, int]:
        """Delivered, deliverable, high."""
        return self.window.delivered, self.window.deliverable, self.window.high

    def missing(self) -> list[int]:
        return [s for lo, hi in self.window.missing(PLENTY) for s in range(lo, hi + 1)]


# -- Receiving -----------------------------------------------------------------------------------


@pytest.mark.parametrize("offset", [0, 20, 300_000, (1 << 63) - 10])
@pytest.mark.parametrize("capacity", [1, 100, 128])
def test_a_new_window_is_empty_at_its_offset(offset: int, capacity: int) -> None:
    """B-01: no rounding of the capacity, nothing missing, nothing to take."""
    receiver = Receiver(offset, capacity)
    assert receiver.window.capacity == capacity
    assert receiver.marks() == (offset, offset, offset)
    assert len(receiver.window) == receiver.window.bytes == 0
    assert not receiver.window.has_gap()
    assert receiver.missing() == receiver.take() == []


@pytest.mark.parametrize("offset", [0, 100, 1000])
def test_each_seqno_is_new_once(offset: int) -> None:
    """B-02: eight scattered seqnos are new, a repeat of any is not and changes nothing (G2)."""
    receiver = Receiver(offset)
    seqnos = [offset + step for step in (1, 5, 9, 10, 11, 19, 20, 29)]
    assert all(receiver.add(*seqnos))
    before = (receiver.marks(), receiver.missing(), receiver.window.bytes)

    assert not any(receiver.add(*seqnos))
    assert (receiver.marks(), receiver.missing(), receiver.window.bytes) == before
    assert receiver.marks() == (offset, offset + 1, offset + 29)
    assert len(receiver.window) == 8


def test_the_offset_and_what_is_below_it_are_already_delivered() -> None:
    """B-03."""
    receiver = Receiver(offset=20)
    assert receiver.add(10, 20) == [False, False]
    assert receiver.marks() == (20, 20, 20)
    assert receiver.add(21) == [True]


def test_a_late_message_releases_what_waited_for_it() -> None:
    """B-04: 3 is missing, so 4 to 6 wait; they follow it in order (G3)."""
    receiver = Receiver()
    receiver.add(1, 2, 4, 5, 6)
    assert receiver.missing() == [3]
    assert receiver.take() == [1, 2]
    assert receiver.take() == []

    receiver.add(3)
    assert receiver.take() == [3, 4, 5, 6]
    assert receiver.take() == []


def test_taking_stops_at_the_gap() -> None:
    """B-05: 1 to 9 and 20 are there; 10 to 19 stay missing whatever is taken."""
    receiver = Receiver()
    receiver.add(*range(1, 10), 20)
    assert receiver.take() == list(range(1, 10))
    assert receiver.marks() == (9, 9, 20)
    assert receiver.missing() == list(range(10, 20))


def test_nothing_is_taken_before_the_gap_is_filled() -> None:
    """B-05: an empty window, and one whose first message is missing, yield nothing and stay."""
    receiver = Receiver()
    assert receiver.take() == []
    receiver.add(2)
    assert receiver.take() == []
    assert receiver.marks() == (0, 0, 2)
    receiver.add(1)
    assert receiver.take() == [1, 2]


def test_adding_and_taking_in_turn_never_wears_the_window_out() -> None:
    """B-05, B-18: many times its capacity passes through a small window."""
    receiver = Receiver(capacity=32)
    for seqno in range(1, 1000):
        assert receiver.add(seqno) == [True]
        assert receiver.take() == [seqno]
    assert receiver.window.bytes == 0


@pytest.mark.parametrize(
    ("seqnos", "missing"),
    [
        ([2, 4, 6, 8], 4),
        ([3, 4, 5], 2),
        ([8], 7),
        ([2, 5, 10, 11, 12, 13, 15, 20, 28, 30], 20),
        ([1, 2, 3, 4, 5, 6, 8], 1),
        ([1, 100], 98),
        ([1, 2, 3], 0),
    ],
)
def test_missing_is_what_was_not_added(seqnos: list[int], missing: int) -> None:
    """B-11: gaps before the first received message count; no gap gives no list."""
    receiver = Receiver()
    receiver.add(*seqnos)
    assert receiver.missing() == [s for s in range(1, max(seqnos) + 1) if s not in seqnos]
    assert len(receiver.missing()) == missing
    assert receiver.window.has_gap() == bool(missing)


def test_delivered_seqnos_drop_out_of_the_missing() -> None:
    """B-12."""
    receiver = Receiver(offset=300_000)
    receiver.add(300_002, 300_004, 300_006, 300_008)
    assert receiver.missing() == [300_001, 300_003, 300_005, 300_007]
    receiver.add(300_001)
    receiver.take()
    assert receiver.missing() == [300_003, 300_005, 300_007]


def test_a_gap_of_a_million_is_asked_for_in_bounded_pieces() -> None:
    """B-14: a request starts at the lowest missing seqno, within limits of seqnos and ranges."""
    receiver = Receiver(capacity=1 << 21)
    receiver.batch(1, 999_999)
    receiver.add(2_000_000)
    assert receiver.window.missing(limit=511_600) == [(1_000_000, 1_511_599)]

    sparse = Receiver()
    sparse.add(*range(2, 100, 2))
    assert sparse.window.missing(limit=3) == [(1, 1), (3, 3), (5, 5)]
    assert sparse.window.missing(limit=100, ranges_limit=2) == [(1, 1), (3, 3)]
    assert sparse.window.missing(limit=1, ranges_limit=1) == [(1, 1)]


def test_asking_for_nothing_is_a_bug_of_the_caller() -> None:
    receiver = Receiver()
    with pytest.raises(AssertionError):
        receiver.window.missing(limit=0)
    with pytest.raises(AssertionError):
        receiver.window.missing(limit=1, ranges_limit=0)


def test_deliverable_is_the_end_of_the_gapless_run() -> None:
    """B-15, B-34: highest delivered, deliverable and received after each step."""
    receiver = Receiver()
    receiver.batch(1, 6)
    receiver.add(8)
    assert receiver.marks() == (0, 6, 8)
    receiver.take()
    assert receiver.marks() == (6, 6, 8)
    receiver.add(7)
    assert receiver.marks() == (6, 8, 8)
    assert receiver.take() == [7, 8]
    assert receiver.marks() == (8, 8, 8)


def test_seqnos_near_the_end_of_their_range_are_like_any_other() -> None:
    """B-18: no array to wrap, no sign to change."""
    top = (1 << 63) - 1
    receiver = Receiver(offset=top - 11, capacity=16)
    receiver.add(top - 10, top - 8, top)
    assert receiver.missing() == [top - 9, *range(top - 7, top)]
    receiver.batch(top - 10, top)
    assert receiver.take() == list(range(top - 10, top + 1))


def test_what_was_passed_and_not_delivered_is_held() -> None:
    receiver = Receiver()
    assert receiver.window.pass_next(1, 2)
    receiver.window.put_back([Piece(1, 2, 5, "batch")])
    assert (receiver.marks(), receiver.window.bytes) == ((0, 2, 2), 5)
    assert not receiver.window.pass_next(3, 3)
    receiver.add(3)
    assert receiver.take() == [1, 2, 3]


def test_what_overtook_a_gap_and_was_not_delivered_is_held() -> None:
    """In its place, whether that is behind the gap or next in order; the rest stays as it is."""
    for first in (1, 2):
        receiver = Receiver()
        pieces = receiver.window.add(first, 3, 7, "oob", oob=True)
        receiver.add(5)
        receiver.window.put_back_early(pieces)
        assert receiver.window.bytes == 8
        receiver.add(1, 4)
        assert receiver.take() == [1, 2, 3, 4, 5]


def test_a_batch_is_trimmed_to_what_is_new() -> None:
    """B-24: 1 to 10 meets 3 and 6 to 7; only the rest is new, and order is kept across pieces."""
    receiver = Receiver()
    receiver.add(3, 6, 7)
    assert receiver.batch(1, 10) == [(1, 2), (4, 5), (8, 10)]
    assert receiver.batch(1, 10) == []
    assert receiver.take() == list(range(1, 11))
    assert receiver.batch(5, 12) == [(11, 12)]


def test_a_batch_is_trimmed_to_the_window_and_the_rest_is_asked_for() -> None:
    """Capacity 10 holds 1 to 10 of 6 to 15; after taking, what was cut off is missing (G1, G5)."""
    receiver = Receiver(capacity=10)
    assert receiver.batch(6, 15) == [(6, 10)]
    assert receiver.window.seen == 10
    assert receiver.batch(11, 20) == []
    assert receiver.batch(1, 5) == [(1, 5)]
    assert receiver.missing() == []

    receiver.take()
    assert receiver.batch(30, 40) == []
    assert receiver.window.seen == 20, "something exists beyond: ask up to the end of the window"
    assert receiver.missing() == list(range(11, 21))


def test_the_window_ends_exactly_at_its_capacity() -> None:
    receiver = Receiver(capacity=10)
    assert receiver.add(10, 11) == [True, False]
    full = Receiver(capacity=10)
    assert full.batch(1, 10) == [(1, 10)]
    assert full.batch(11, 11) == []
    full.take()
    assert full.batch(11, 11) == [(11, 11)]


def test_messages_come_out_once_and_in_order_whatever_the_network_does() -> None:
    """B-38: lost, repeated and shuffled batches with repair; everything arrives (G1, G2, G3)."""
    chance = random.Random(38)
    receiver = Receiver(capacity=512)
    total = 20_000
    while receiver.window.delivered < total:
        base = receiver.window.delivered
        starts = [base + chance.randrange(1, 600) for _ in range(40)]
        for lo in starts + [gap for gap, _hi in receiver.window.missing(100)]:
            if lo <= total and chance.random() < 0.7:
                receiver.batch(lo, min(total, lo + chance.randrange(30)))
        receiver.take()
    assert receiver.got == list(range(1, total + 1))


# -- Out of band ---------------------------------------------------------------------------------


def test_an_oob_message_is_handed_out_at_once_and_only_once() -> None:
    """3 is delivered ahead of 1 and 2, holds its place at no cost, and a copy of it is refused."""
    receiver = Receiver()
    assert receiver.oob(3, 3, size=500) == [(3, 3)]
    assert receiver.window.bytes == 0
    assert receiver.missing() == [1, 2]
    assert receiver.oob(3, 3) == receiver.batch(3, 3) == []

    receiver.batch(1, 4)
    assert receiver.take() == [1, 2, 4]
    assert receiver.marks() == (4, 4, 4)


def test_an_oob_message_next_in_order_is_not_delivered_again_by_taking() -> None:
    receiver = Receiver()
    assert receiver.oob(1, 2) == [(1, 2)]
    assert receiver.marks() == (0, 2, 2)
    assert receiver.take() == []
    assert receiver.marks() == (2, 2, 2)


def test_the_place_of_an_oob_message_is_never_given_up() -> None:
    """Lack of room evicts 5 but not the place of 6, or a copy of 6 would be delivered (G2)."""
    receiver = Receiver(room=100)
    assert receiver.oob(6, 6, size=90) == [(6, 6)]
    assert receiver.batch(5, 5, size=60) == [(5, 5)]
    assert receiver.batch(2, 2, size=60) == [(2, 2)]

    assert receiver.missing() == [1, 3, 4, 5]
    assert receiver.oob(6, 6, size=90) == []


# -- Bytes ---------------------------------------------------------------------------------------


def test_bytes_are_bounded_and_the_lowest_batch_wins() -> None:
    """100 bytes hold 4 and 3; 2 evicts 4, the one that is needed last; 4 is missing again (G5)."""
    receiver = Receiver(room=100)
    receiver.batch(3, 3, size=50)
    receiver.batch(4, 4, size=50)
    assert receiver.batch(5, 5, size=1) == [], "nothing above it to evict"

    assert receiver.batch(2, 2, size=50) == [(2, 2)]
    assert receiver.window.bytes == receiver.window.bytes_bound() == 100
    assert receiver.missing() == [1, 4, 5]


def test_nothing_is_evicted_for_a_batch_that_is_refused_all_the_same() -> None:
    """60 bytes wait for the application; 50 more do not fit even without the 40 of 5."""
    receiver = Receiver(room=100)
    receiver.batch(1, 1, size=60)
    receiver.batch(5, 5, size=40)
    assert receiver.batch(3, 3, size=50) == []
    assert receiver.missing() == [2, 3, 4]
    assert receiver.window.bytes == 100


def test_bytes_fit_exactly_at_the_bound_and_not_just_past_it() -> None:
    receiver = Receiver(room=100)
    receiver.batch(1, 1, size=60)
    assert receiver.batch(2, 2, size=41) == []
    assert receiver.batch(2, 2, size=40) == [(2, 2)]
    receiver.take()
    assert receiver.window.bytes == 0


def test_a_batch_larger_than_the_bound_is_held_alone() -> None:
    """Else a sender whose window admits it would resend it for ever (G1)."""
    receiver = Receiver(room=100)
    assert receiver.batch(3, 3, size=30) == [(3, 3)]
    assert receiver.batch(1, 2, size=500) == [(1, 2)]
    assert receiver.missing() == [3]
    assert receiver.batch(3, 3, size=1) == []
    assert receiver.take() == [1, 2]
    assert receiver.batch(3, 3, size=30) == [(3, 3)]


@pytest.mark.parametrize("place", [1, 3])
def test_a_batch_larger_than_the_bound_is_held_beside_places_of_oob_messages(place: int) -> None:
    """They cost nothing; the application is not taking, so place 1 stays in the window too."""
    receiver = Receiver(room=100)
    receiver.oob(place, place)
    assert receiver.batch(2, 2, size=500) == [(2, 2)]
    assert receiver.window.bytes == receiver.window.bytes_bound() == 500


def test_a_trimmed_piece_is_charged_for_its_whole_batch() -> None:
    """The piece keeps the batch's frame alive, however little of it was new."""
    receiver = Receiver(room=100)
    receiver.batch(1, 9, size=10)
    receiver.take()
    receiver.batch(5, 10, size=70)
    assert receiver.window.bytes == 70


def test_what_waits_behind_a_gap_keeps_its_bytes_when_the_rest_is_taken() -> None:
    receiver = Receiver(room=100)
    receiver.batch(1, 1, size=20)
    receiver.batch(3, 3, size=30)
    receiver.take()
    assert receiver.window.bytes == 30


# -- Skipping ------------------------------------------------------------------------------------


def test_skipping_gives_up_only_what_is_missing() -> None:
    """2 to 4 will never come again: 3 is kept, 2 and 4 are given up, and 6 still waits for 5."""
    receiver = Receiver()
    receiver.add(1, 3, 6)
    assert receiver.window.skip_to(4) == 2
    assert receiver.take() == [1, 3]
    assert receiver.marks() == (4, 4, 6)
    assert receiver.missing() == [5]
    assert receiver.window.skip_to(4) == 0


def test_skipping_into_a_batch_keeps_both_parts_of_it() -> None:
    receiver = Receiver()
    receiver.batch(3, 8, size=10)
    assert receiver.window.skip_to(5) == 2
    assert receiver.take() == [3, 4, 5, 6, 7, 8]
    assert receiver.window.bytes == 0


def test_skipping_over_nothing_received_moves_the_window() -> None:
    receiver = Receiver(capacity=10)
    assert receiver.window.skip_to(10) == 10
    assert receiver.marks() == (10, 10, 10)
    assert receiver.add(10, 11, 20, 21) == [False, True, True, False]


def test_skipping_beyond_the_window_is_a_bug_of_the_caller() -> None:
    receiver = Receiver(capacity=10)
    with pytest.raises(AssertionError):
        receiver.window.skip_to(11)


# -- Sending -------------------------------------------------------------------------------------


def test_batches_are_numbered_without_gaps_from_one() -> None:
    window: SendWindow[str] = SendWindow(100, PLENTY)
    assert [window.append(3, 10, "a"), window.append(1, 10, "b"), window.append(2, 5, "c")] == [
        1,
        4,
        5,
    ]
    assert [(s.lo, s.hi, s.size, s.item) for s in window] == [
        (1, 3, 10, "a"),
        (4, 4, 10, "b"),
        (5, 6, 5, "c"),
    ]
    assert (window.low, window.high, len(window), window.bytes) == (0, 6, 6, 25)


def test_an_ack_inside_a_batch_keeps_the_batch() -> None:
    """B-17, B-20, G6: a batch is dropped when all of it is acked, and an old ack does nothing."""
    window: SendWindow[str] = SendWindow(100, PLENTY)
    for item in "abc":
        window.append(3, 10, item)
    assert window.ack(2) is None
    assert (window.low, window.bytes, window.oldest().item) == (2, 30, "a")
    assert window.ack(7).item == "b"
    assert (window.low, window.bytes, window.oldest().item) == (7, 10, "c")
    assert window.ack(7) is None
    assert window.ack(3) is None
    assert window.low == 7
    assert window.ack(9).item == "c"
    assert (len(window), window.bytes, window.oldest(), window.newest()) == (0, 0, None, None)


def test_an_ack_beyond_what_was_sent_is_a_bug_of_the_caller() -> None:
    """B-20: low never passes high; the protocol refuses such an ack from a peer before."""
    window: SendWindow[str] = SendWindow(10, PLENTY)
    window.append(4, 1, "a")
    with pytest.raises(AssertionError):
        window.ack(5)
    assert window.ack(4).item == "a"


def test_the_send_window_is_full_at_its_capacity() -> None:
    """G5: room counts messages down to zero; one more is a bug of the caller."""
    window: SendWindow[str] = SendWindow(4, PLENTY)
    window.append(3, 1, "a")
    assert window.room()[0] == 1
    window.append(1, 1, "b")
    assert window.room()[0] == 0
    with pytest.raises(AssertionError):
        window.append(1, 1, "c")
    with pytest.raises(AssertionError):
        window.append(0, 1, "c")
    assert (window.high, window.bytes) == (4, 2)


def test_the_send_window_counts_bytes_until_they_are_acked() -> None:
    """A batch larger than the bound is taken when nothing else is held; then there is no room."""
    window: SendWindow[str] = SendWindow(4, 100)
    window.append(2, 60, "a")
    assert window.room() == (2, 40)
    window.ack(1)
    assert window.room() == (3, 40), "half of a batch is still all of its bytes"
    window.ack(2)
    window.append(1, 5000, "large")
    assert window.room() == (3, -4900)
    assert window.bytes_bound() == 5000
    window.ack(3)
    assert window.room() == (4, 100)


def test_a_request_is_rounded_outward_to_whole_batches() -> None:
    """Each batch once, in order, whatever the ranges; nothing for what is acked or never sent."""
    window: SendWindow[str] = SendWindow(100, PLENTY)
    for item in "abcde":
        window.append(4, 1, item)
    window.ack(5)

    def resent(*ranges: tuple[int, int]) -> str:
        return "".join(stored.item for stored in window.covering(list(ranges)))

    assert resent((6, 6)) == "b"
    assert resent((8, 9)) == "bc"
    assert resent((6, 6), (8, 8), (17, 17)) == "be"
    assert resent((1, 100)) == "bcde"
    assert resent((1, 4)) == resent((21, 30)) == resent() == ""
    assert resent((1, 2), (20, 40)) == "e"


# -- Cost ----------------------------------------------------------------------------------------


def calls_of(action: Callable[[], object]) -> int:
    """How many functions, of Python or C, an action calls: a cost that no busy machine changes."""
    count = 0

    def profile(_frame: FrameType, event: str, _arg: object) -> None:
        nonlocal count
        count += event in {"call", "c_call"}

    before = sys.getprofile()
    # A collection calls whoever asked to be told of it.
    gc.disable()
    sys.setprofile(profile)
    try:
        action()
    finally:
        sys.setprofile(before)
        gc.enable()
    return count


def test_an_in_order_batch_costs_the_same_after_a_hundred_thousand_of_them() -> None:
    """Nobody takes, so all of them are held; adding one more looks at none of them."""
    window: ReceiveWindow[None] = ReceiveWindow(0, PLENTY, PLENTY)

    def add() -> None:
        window.add(window.deliverable + 1, window.deliverable + 8, 8, None)

    first = calls_of(add)
    for _ in range(100_000):
        add()
    assert calls_of(add) == first
    assert window.missing(1) == []
    assert len(window.take_ready()) == 100_002


def test_a_batch_behind_a_gap_costs_the_same_after_many_of_them() -> None:
    """1 is missing: what follows is appended without looking at what waits already."""
    window: ReceiveWindow[None] = ReceiveWindow(0, PLENTY, PLENTY)
    window.add(2, 9, 8, None)

    def add() -> None:
        window.add(window.high + 1, window.high + 8, 8, None)

    first = calls_of(add)
    for _ in range(20_000):
        add()
    assert calls_of(add) == first

    window.add(1, 1, 1, None)
    assert len(window.take_ready()) == 20_004


def test_taking_costs_what_is_taken_and_not_what_waits() -> None:
    """After 3 is filled, 5000 batches still wait for 5: taking 3 and 4 does not look at them."""
    few, many = (waiting_behind_a_gap(count) for count in (5, 5000))
    assert calls_of(many.take_ready) == calls_of(few.take_ready)


def waiting_behind_a_gap(count: int) -> ReceiveWindow[None]:
    window: ReceiveWindow[None] = ReceiveWindow(2, PLENTY, PLENTY)
    window.add(4, 4, 1, None)
    for seqno in range(6, 6 + 2 * count, 2):
        window.add(seqno, seqno, 1, None)
    window.add(3, 3, 1, None)
    return window


def test_an_ack_costs_what_it_completes() -> None:
    few, many = (sent(count) for count in (10, 100_000))
    assert calls_of(lambda: many.ack(40)) == calls_of(lambda: few.ack(40))
    assert calls_of(lambda: many.append(1, 1, None)) == calls_of(lambda: few.append(1, 1, None))


def sent(batches: int) -> SendWindow[None]:
    window: SendWindow[None] = SendWindow(PLENTY, PLENTY)
    for _ in range(batches):
        window.append(8, 8, None)
    return window


def test_what_was_delivered_out_of_band_before_keeps_its_place_in_the_next_window() -> None:
    """G2: 12 and 13 came early in a window that ended; the next one begins at 10 and skips them."""
    ended: ReceiveWindow[str] = ReceiveWindow(10, 100, 1000)
    ended.add(12, 13, 5, "early", oob=True)
    window: ReceiveWindow[str] = ReceiveWindow(10, 100, 1000)
    for lo, hi in ended.places():
        window.hold_place(lo, hi)
    assert window.missing(100) == [(11, 11)]
    assert window.add(12, 13, 5, "again") == []
    window.add(11, 11, 5, "rest")
    assert [(piece.lo, piece.hi, piece.item) for piece in window.take_ready()] == [
        (11, 11, "rest"),
        (12, 13, None),
    ]
    assert window.delivered == 13


def test_a_place_beyond_the_window_is_not_held() -> None:
    window: ReceiveWindow[str] = ReceiveWindow(0, 10, 1000)
    window.hold_place(9, 20)
    window.hold_place(11, 12)
    assert window.places() == [(9, 10)]
    assert window.seen == 10


@pytest.mark.parametrize(
    ("window", "threshold"), [(1, 1), (7, 1), (8, 2), (4095, 1023), (4096, 1024), (1 << 16, 1024)]
)
def test_a_fixed_window_is_acked_at_a_quarter_and_at_1024_at_most(
    window: int, threshold: int
) -> None:
    assert quarter_of(window) == threshold
