"""FRAG: pieces out, messages in, and what a sender that never finishes can cost."""

from __future__ import annotations

from math import inf

import pytest

from node.core.errors import BadFrame, ConfigError
from node.core.model import Payload
from node.protocols.frag import (
    EXPIRY,
    HEADER,
    PIECE_COST,
    FragConfig,
    Fragmenter,
    Reassembler,
)

A, B, C = 1, 2, 3
SIZE = 100
Pieces = list[tuple[bytes, Payload]]


def config(**rest: int) -> FragConfig:
    values = {"frag_size": SIZE, "max_message_size": 1000, "max_open_bytes": 8000} | rest
    return FragConfig(**values)


def text(size: int, start: int = 0) -> bytes:
    return bytes((start + at) % 251 for at in range(size))


class Receiver:
    """Takes pieces, and remembers what became whole."""

    def __init__(self, **rest: int) -> None:
        self.reassembler = Reassembler(config(**rest))
        self.whole: list[bytes] = []
        self.now = 0.0

    def take(
        self, source: int, *pieces: tuple[bytes, Payload], group: bool = False, oob: bool = False
    ) -> None:
        for header, piece in pieces:
            whole = self.reassembler.take(source, group, oob, header, piece, self.now)
            if whole is not None:
                self.whole.append(bytes(whole))

    def refuses(self, reason: str, source: int, piece: tuple[bytes, Payload], **how: bool) -> None:
        with pytest.raises(BadFrame, match=f"^{reason}$"):
            self.take(source, piece, **how)


def cut(*sizes: int, first: int = 1) -> list[Pieces]:
    """The pieces of messages of these sizes, numbered from `first`."""
    fragmenter = Fragmenter(config())
    for _ in range(first - 1):
        fragmenter.split(bytes(SIZE + 1))
    return [fragmenter.split(text(size, size)) for size in sizes]


def forged(message: int, index: int, count: int, total: int, size: int) -> tuple[bytes, bytes]:
    return HEADER.pack(message, index, count, total), bytes(size)


# -- Cutting and joining ---------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("size", "sizes"),
    [
        (101, [100, 1]),
        (199, [100, 99]),
        (200, [100, 100]),
        (201, [100, 100, 1]),
        (1000, [100] * 10),
    ],
)
def test_a_message_is_cut_at_every_frag_size_and_comes_out_whole(
    size: int, sizes: list[int]
) -> None:
    (pieces,) = cut(size)
    assert [len(piece) for _header, piece in pieces] == sizes
    receiver = Receiver()
    receiver.take(A, *pieces)
    assert receiver.whole == [text(size, size)]
    assert receiver.reassembler.open_bytes == 0


def test_a_slice_is_cut_not_the_buffer_around_it() -> None:
    """FR-02."""
    buffer = memoryview(text(5000))
    receiver = Receiver()
    receiver.take(A, *Fragmenter(config()).split(buffer[700:1000]))
    assert receiver.whole == [text(5000)[700:1000]]


def test_a_message_beyond_the_largest_is_refused_at_its_sender() -> None:
    fragmenter = Fragmenter(config())
    fragmenter.split(bytes(1000))
    with pytest.raises(ConfigError, match="max_message_size is 1000"):
        fragmenter.split(bytes(1001))


def test_messages_of_many_senders_and_kinds_do_not_mix() -> None:
    """The same ids, sent by two, to one and to all, piece by piece in turn."""
    receiver = Receiver()
    (first,), (second,), (third,) = cut(250), cut(240), cut(230)
    for one, two, three in zip(first, second, third, strict=True):
        receiver.take(A, one)
        receiver.take(B, two)
        receiver.take(A, three, group=True)
    assert receiver.whole == [text(250, 250), text(240, 240), text(230, 230)]


def test_pieces_of_oob_messages_may_come_in_any_order() -> None:
    receiver = Receiver()
    first, second = cut(300, 301)
    shuffled = [first[2], second[3], second[0], first[0], second[2], second[1], first[1]]
    receiver.take(A, *shuffled, oob=True)
    assert receiver.whole == [text(301, 301), text(300, 300)]
    assert receiver.reassembler.open_messages() == 0


@pytest.mark.parametrize("oob", [False, True])
def test_a_piece_that_comes_twice_counts_once(*, oob: bool) -> None:
    receiver = Receiver()
    (pieces,) = cut(300)
    receiver.take(A, pieces[0], pieces[0], pieces[1], pieces[0], oob=oob)
    assert receiver.whole == []
    receiver.take(A, pieces[2], oob=oob)
    assert receiver.whole == [text(300, 300)]


# -- Never finished --------------------------------------------------------------------------------


def test_a_newer_message_ends_an_unfinished_one_of_its_sender_and_kind() -> None:
    """Regular messages come in order: what is missing of the first will never come."""
    receiver = Receiver()
    first, second = cut(300, 200)
    receiver.take(A, *first[:2])
    receiver.take(B, *first[:2])
    receiver.take(A, *first[:2], group=True)
    receiver.take(A, second[0])
    assert receiver.reassembler.open_messages() == 3
    assert receiver.reassembler.given_up == 1
    receiver.take(A, second[1])
    receiver.take(B, first[2])
    receiver.take(A, first[2], group=True)
    assert receiver.whole == [text(200, 200), text(300, 300), text(300, 300)]
    assert receiver.reassembler.open_bytes == 0


def test_a_newer_oob_message_ends_nothing() -> None:
    receiver = Receiver()
    first, second = cut(300, 200)
    receiver.take(A, *first[:2])
    receiver.take(A, *second, oob=True)
    receiver.take(A, first[2])
    assert receiver.whole == [text(200, 200), text(300, 300)]


def test_pieces_of_a_message_that_was_delivered_or_overtaken_are_refused() -> None:
    """A window that is made anew repeats what was not acked."""
    receiver = Receiver()
    first, second, third = cut(200, 200, 200)
    receiver.take(A, *first, second[0], *third)
    for piece in [*first, *second, *third]:
        receiver.refuses("fragment-old", A, piece)
    assert receiver.whole == [text(200, 200)] * 2
    assert receiver.reassembler.open_bytes == 0


def test_repeated_pieces_of_an_older_message_do_not_end_the_newer_one() -> None:
    receiver = Receiver()
    first, second = cut(200, 200)
    receiver.take(A, *first, second[0])
    receiver.refuses("fragment-old", A, first[1])
    receiver.take(A, second[0], second[1])
    assert len(receiver.whole) == 2


def test_a_member_that_leaves_takes_its_unfinished_messages_along() -> None:
    """P-35: and nobody else's."""
    receiver = Receiver()
    reassembler = receiver.reassembler
    reassembler.on_view([A, B], 0.0)
    first, second = cut(300, 300)
    for sender in (A, B):
        receiver.take(sender, first[0], group=True)
        receiver.take(sender, first[0])
        receiver.take(sender, second[0], oob=True)
    reassembler.on_view([B, C], 1.0)
    assert reassembler.open_messages() == 3
    receiver.take(B, *first[1:])
    assert receiver.whole == [text(300, 300)]
    reassembler.on_view([C], 2.0)
    assert (reassembler.open_messages(), reassembler.open_bytes) == (0, 0)


def test_an_oob_message_is_given_up_a_minute_after_its_last_piece() -> None:
    receiver = Receiver()
    (pieces,) = cut(300)
    receiver.take(A, pieces[0], oob=True)
    receiver.now = 50.0
    receiver.take(A, pieces[1], oob=True)
    assert receiver.reassembler.next_deadline() == EXPIRY
    assert receiver.reassembler.expire(EXPIRY) == 0
    assert receiver.reassembler.next_deadline() == 50.0 + EXPIRY
    assert receiver.reassembler.expire(50.0 + EXPIRY) == 1
    assert receiver.reassembler.open_bytes == 0
    assert receiver.reassembler.next_deadline() == inf


def test_a_regular_message_of_a_member_waits_however_long_its_window_needs() -> None:
    receiver = Receiver()
    receiver.reassembler.on_view([A, B], 0.0)
    (pieces,) = cut(300)
    receiver.take(A, *pieces[:2])
    assert receiver.reassembler.expire(10 * EXPIRY) == 0
    receiver.now = 10 * EXPIRY
    receiver.take(A, pieces[2])
    assert receiver.whole == [text(300, 300)]


def test_of_a_stranger_nothing_is_left_after_a_minute() -> None:
    """P-10: not even which message was its newest."""
    receiver = Receiver()
    receiver.reassembler.on_view([A], 0.0)
    (done,), (begun,) = cut(200), cut(300)
    receiver.take(B, *done)
    receiver.take(C, begun[0])
    assert receiver.reassembler.expire(EXPIRY) == 1
    assert receiver.reassembler.open_bytes == 0
    assert receiver.reassembler.next_deadline() == inf
    receiver.take(B, *done)
    assert len(receiver.whole) == 2


# -- Hostile pieces --------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("reason", "piece"),
    [
        ("fragment-header", (bytes(HEADER.size - 1), b"x")),
        ("fragment-header", (bytes(HEADER.size + 1), b"x")),
        ("fragment-index", forged(1, 0, 0, 10, 10)),
        ("fragment-index", forged(1, 3, 3, 300, 100)),
        ("fragment-total", forged(1, 0, 11, 1001, 100)),
        ("fragment-total", forged(1, 0, 2, (1 << 64) - 1, 100)),
        ("fragment-size", forged(1, 0, 3, 300, 0)),
        ("fragment-size", forged(1, 0, 301, 300, 1)),
        ("fragment-size", forged(1, 0, 3, 300, 299)),
    ],
)
@pytest.mark.parametrize("oob", [False, True])
def test_a_piece_that_cannot_be_is_refused_and_costs_nothing(
    reason: str, piece: tuple[bytes, bytes], *, oob: bool
) -> None:
    receiver = Receiver()
    receiver.refuses(reason, A, piece, oob=oob)
    assert (receiver.reassembler.open_messages(), receiver.reassembler.open_bytes) == (0, 0)
    assert receiver.reassembler.next_deadline() == inf


def test_ids_begin_with_one() -> None:
    receiver = Receiver()
    receiver.refuses("fragment-old", A, forged(0, 0, 2, 200, 100))
    receiver.take(A, forged(1, 0, 2, 200, 100))
    assert receiver.reassembler.open_messages() == 1


def test_a_piece_may_leave_just_a_byte_for_each_that_is_missing() -> None:
    receiver = Receiver()
    receiver.take(A, forged(1, 0, 3, 300, 298), forged(1, 1, 3, 300, 1), forged(1, 2, 3, 300, 1))
    assert len(receiver.whole) == 1


@pytest.mark.parametrize(
    "piece",
    [
        forged(1, 1, 4, 300, 100),  # Another count.
        forged(1, 1, 3, 301, 100),  # Another total.
        forged(1, 1, 3, 300, 200),  # Nothing would be left for the third.
    ],
)
@pytest.mark.parametrize("oob", [False, True])
def test_a_piece_that_contradicts_the_others_ends_its_message(
    piece: tuple[bytes, bytes], *, oob: bool
) -> None:
    receiver = Receiver()
    receiver.take(A, forged(1, 0, 3, 300, 100), oob=oob)
    receiver.refuses("fragment-inconsistent", A, piece, oob=oob)
    assert (receiver.reassembler.open_messages(), receiver.reassembler.open_bytes) == (0, 0)
    assert receiver.reassembler.given_up == 1


def test_pieces_that_are_complete_and_too_short_are_no_message() -> None:
    receiver = Receiver()
    receiver.take(A, forged(1, 0, 2, 300, 100))
    receiver.refuses("fragment-inconsistent", A, forged(1, 1, 2, 300, 100))
    assert receiver.whole == []


def test_headers_that_announce_much_cost_what_arrives() -> None:
    """A million pieces announced, one here: one is paid for."""
    receiver = Receiver(max_message_size=1 << 20, max_open_bytes=1 << 22)
    receiver.take(A, forged(1, 0, 1 << 20, 1 << 20, 1))
    assert receiver.reassembler.open_bytes == 1 + PIECE_COST


def test_unfinished_oob_messages_of_one_sender_are_bounded() -> None:
    receiver = Receiver(max_open_messages=4)
    for message in range(4):
        receiver.take(A, forged(message, 0, 2, 200, 100), oob=True)
    receiver.refuses("fragment-messages", A, forged(4, 0, 2, 200, 100), oob=True)
    receiver.take(B, forged(4, 0, 2, 200, 100), oob=True)
    receiver.take(A, forged(3, 1, 2, 200, 100), oob=True)
    receiver.take(A, forged(4, 0, 2, 200, 100), oob=True)
    assert receiver.reassembler.open_messages() == 5


@pytest.mark.parametrize("oob", [False, True])
def test_unfinished_bytes_of_all_senders_are_bounded_together(*, oob: bool) -> None:
    """Tiny pieces count with what keeping them costs; who goes beyond loses its own message."""
    receiver = Receiver(max_open_bytes=2280)
    kept = 2280 // (1 + PIECE_COST)
    for sender in range(1, kept + 1):
        receiver.take(sender, forged(1, 0, 2, 200, 1), oob=oob)
    receiver.refuses("fragment-bytes", 99, forged(1, 0, 2, 200, 1), oob=oob)
    assert receiver.reassembler.open_messages() == kept
    assert receiver.reassembler.open_bytes <= 2280


@pytest.mark.parametrize(
    "wrong",
    [
        {"frag_size": 0},
        {"frag_size": 1 << 24},
        {"max_message_size": SIZE - 1},
        {"max_open_bytes": 1000 + 10 * PIECE_COST - 1},
        {"max_open_messages": 0},
    ],
)
def test_settings_that_cannot_work_are_refused(wrong: dict[str, int]) -> None:
    (name,) = wrong
    with pytest.raises(ConfigError, match=name):
        config(**wrong)
