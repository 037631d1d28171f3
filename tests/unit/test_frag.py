"""FRAG: pieces out, messages in, and what a sender that never finishes can cost."""

from __future__ import annotations

from math import inf
from typing import Any

import pytest
from xxhash import xxh3_64_intdigest

from stormcast.node.core.errors import BadFrame, ConfigError
from stormcast.node.core.model import Payload
from stormcast.node.protocols.frag import (
    HEADER,
    LEAST_EXPIRY,
    MEMBERS_EXPIRY,
    FragConfig,
    Fragmenter,
    Reassembler,
)
from stormcast.node.protocols.unfinished import PIECE_COST

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
        self,
        source: int,
        *pieces: tuple[bytes, Payload],
        group: bool = False,
        oob: bool = False,
        conn: int = 7,
        settled: int = 0,
    ) -> None:
        for header, piece in pieces:
            # Ids and seqnos of a message go together: both are given in the order of sending.
            message, index = HEADER.unpack(header.ljust(HEADER.size)[: HEADER.size])[:2]
            first = 1000 * message + 1
            joined = self.reassembler.take(
                source, group, oob, conn, first + index, header, piece, settled, self.now
            )
            if joined is not None:
                self.whole.append(joined.payload)
                count = HEADER.unpack(header)[2]
                assert (joined.lo, joined.hi) == (first, first + count - 1)

    def refuses(self, reason: str, source: int, piece: tuple[bytes, Payload], **how: Any) -> None:
        with pytest.raises(BadFrame, match=f"^{reason}$"):
            self.take(source, piece, **how)


def cut(*sizes: int, first: int = 1) -> list[Pieces]:
    """The pieces of messages of these sizes, numbered from `first`."""
    fragmenter = Fragmenter(config(), xxh3_64_intdigest)
    for _ in range(first - 1):
        fragmenter.cut(bytes(SIZE + 1))
    return [pieces_of(fragmenter, text(size, size)) for size in sizes]


def pieces_of(fragmenter: Fragmenter, payload: Payload) -> Pieces:
    """Header and piece of each fragment of a message."""
    cut = fragmenter.cut(payload)
    return [(cut.header(index), piece) for index, piece in enumerate(cut.pieces)]


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
    receiver.take(A, *pieces_of(Fragmenter(config(), xxh3_64_intdigest), buffer[700:1000]))
    assert receiver.whole == [text(5000)[700:1000]]


def test_a_message_beyond_the_largest_is_refused_at_its_sender() -> None:
    fragmenter = Fragmenter(config(), xxh3_64_intdigest)
    fragmenter.cut(bytes(1000))
    with pytest.raises(ConfigError, match="max_message_size is 1000"):
        fragmenter.cut(bytes(1001))


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


class Costly(bytes):
    """A piece whose length cannot be had at one of the times that it is asked for."""

    left = 0

    def __len__(self) -> int:
        self.left -= 1
        if not self.left:
            raise MemoryError
        return super().__len__()


@pytest.mark.parametrize("oob", [False, True])
def test_a_piece_that_could_not_be_taken_costs_nothing(*, oob: bool) -> None:
    for at in (1, 2, 3):
        receiver = Receiver()
        (pieces,) = cut(300)
        header, piece = pieces[0]
        costly = Costly(piece)
        costly.left = at
        with pytest.raises(MemoryError):
            receiver.take(A, (header, costly), oob=oob)
        receiver.take(A, *pieces, oob=oob)
        assert receiver.whole == [text(300, 300)]
        assert receiver.reassembler.open_bytes == 0


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


def test_a_member_that_leaves_takes_its_unfinished_multicasts_along() -> None:
    """P-35: and nobody else's. Its unicasts may go on, as connections cross the borders of
    views, and end with the connection."""
    receiver = Receiver()
    reassembler = receiver.reassembler
    reassembler.on_view([A, B], 0.0)
    first, second = cut(300, 300)
    for sender in (A, B):
        receiver.take(sender, first[0], group=True)
        receiver.take(sender, first[0])
        receiver.take(sender, second[0], oob=True)
    reassembler.on_view([B, C], 1.0)
    assert reassembler.open_messages() == 5
    receiver.now = 1.0
    receiver.take(A, *first[1:])
    assert receiver.whole == [text(300, 300)]
    reassembler.on_view([C], 2.0)
    assert reassembler.expire(2.0 + LEAST_EXPIRY) == 0
    assert reassembler.next_expiry == 1.0 + MEMBERS_EXPIRY
    assert reassembler.expire(2.0 + MEMBERS_EXPIRY) == 3
    assert (reassembler.open_messages(), reassembler.open_bytes) == (0, 0)


def test_what_a_member_began_waits_for_an_hour_from_the_view_without_it() -> None:
    """Its pieces were acked, and it may have this member in its view all the time."""
    receiver = Receiver()
    receiver.reassembler.on_view([A, B], 0.0)
    (pieces,) = cut(300)
    receiver.take(A, *pieces[:2])
    receiver.reassembler.on_view([B], 100.0)
    receiver.reassembler.on_view([A, B], 3000.0)
    receiver.reassembler.on_view([B], 3500.0)
    assert receiver.reassembler.expire(100.0 + MEMBERS_EXPIRY) == 0
    receiver.now = 100.0 + MEMBERS_EXPIRY
    receiver.take(A, pieces[2])
    assert receiver.whole == [text(300, 300)]


def test_of_gone_members_no_more_is_kept_for_long_than_one_of_them_may_have() -> None:
    receiver = Receiver(max_open_bytes=1400, max_message_size=600)
    receiver.reassembler.on_view([A, B, C], 0.0)
    (pieces,) = cut(600)
    for at, sender in enumerate((A, B, C)):
        receiver.take(sender, *pieces[:5])
        receiver.reassembler.on_view([A, B, C][at + 1 :], 10.0 * at)
    assert receiver.reassembler.expire(LEAST_EXPIRY) == 1
    assert receiver.reassembler.expire(10.0 + LEAST_EXPIRY) == 1
    assert receiver.reassembler.next_expiry == 20.0 + MEMBERS_EXPIRY
    assert receiver.reassembler.open_messages() == 1


@pytest.mark.parametrize("oob", [False, True])
def test_what_a_member_began_waits_however_long_its_windows_need(*, oob: bool) -> None:
    receiver = Receiver()
    receiver.reassembler.on_view([A, B], 0.0)
    (pieces,) = cut(300)
    receiver.take(A, *pieces[:2], oob=oob)
    assert receiver.reassembler.next_expiry == inf
    receiver.now = 10 * LEAST_EXPIRY
    receiver.take(A, pieces[2], oob=oob)
    assert receiver.whole == [text(300, 300)]


def test_a_message_that_began_before_the_window_is_not_begun() -> None:
    """Its first pieces were sent before this member was known: nothing of it is kept."""
    receiver = Receiver()
    first, second = cut(300, 200)
    receiver.refuses("fragment-headless", A, first[1])
    receiver.refuses("fragment-old", A, first[2])
    assert receiver.reassembler.open_bytes == 0
    receiver.take(A, *second)
    assert receiver.whole == [text(200, 200)]


def test_a_new_connection_ends_what_was_begun_on_the_old_one() -> None:
    """All pieces of a message travel on one connection: its sender gave the old ones up."""
    receiver = Receiver(max_open_messages=2)
    first, second, third, fourth = cut(200, 200, 200, 200)
    receiver.take(A, first[0], second[0], oob=True)
    receiver.take(A, third[0], oob=True, conn=8)
    receiver.take(A, fourth[0], oob=True, conn=8)
    assert receiver.reassembler.open_messages() == 2
    assert receiver.reassembler.given_up == 2
    receiver.take(A, third[1], fourth[1], oob=True, conn=8)
    assert receiver.whole == [text(200, 200)] * 2


def test_pieces_of_an_oob_message_that_was_joined_do_not_begin_it_again() -> None:
    """A window that is opened again may bring some of them twice."""
    receiver = Receiver()
    (pieces,) = cut(300)
    receiver.take(A, *pieces, oob=True)
    receiver.refuses("fragment-old", A, pieces[2], oob=True)
    assert receiver.reassembler.open_messages() == 0


def test_of_a_stranger_nothing_is_left_after_a_minute() -> None:
    """P-10: not even which message was its newest."""
    receiver = Receiver()
    receiver.reassembler.on_view([A], 0.0)
    (done,), (begun,) = cut(200), cut(300)
    receiver.take(B, *done)
    receiver.take(C, begun[0])
    assert receiver.reassembler.expire(LEAST_EXPIRY) == 1
    assert receiver.reassembler.open_bytes == 0
    assert receiver.reassembler.next_expiry == inf
    receiver.take(B, *done)
    assert len(receiver.whole) == 2


def test_where_senders_never_give_up_their_remains_stay_within_the_bound_for_ever() -> None:
    """Beyond it the oldest go after an hour: dead members would fill the memory."""
    receiver = Receiver(max_message_size=1000, max_open_bytes=2400)
    receiver.reassembler = Reassembler(receiver.reassembler.config, lambda: inf)
    receiver.reassembler.on_view([A], 0.0)
    (begun,) = cut(1000)
    for sender in range(B, B + 5):
        receiver.take(sender, *begun[:4])
    assert receiver.reassembler.open_bytes > 2400
    receiver.reassembler.expire(MEMBERS_EXPIRY - 1.0)
    assert receiver.reassembler.open_messages() == 5
    receiver.reassembler.expire(MEMBERS_EXPIRY)
    assert 1200 < receiver.reassembler.open_bytes <= 2400
    receiver.reassembler.expire(1000 * MEMBERS_EXPIRY)
    assert receiver.reassembler.open_bytes > 1200


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
    assert receiver.reassembler.next_expiry == inf


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


def test_a_sender_beyond_the_settings_loses_what_it_began_first() -> None:
    """One with the same settings never gets there, and what it began first is then the oldest
    that can not be finished any more. Others keep theirs."""
    receiver = Receiver(max_open_messages=4)
    for message in range(4):
        receiver.take(A, forged(message, 0, 2, 200, 100), oob=True)
    receiver.take(B, forged(4, 0, 2, 200, 100), oob=True)
    receiver.refuses("fragment-beyond-settings", A, forged(4, 0, 2, 200, 100), oob=True)
    assert receiver.reassembler.open_messages() == 5
    receiver.refuses("fragment-old", A, forged(0, 1, 2, 200, 100), oob=True)
    for message in range(1, 5):
        receiver.take(A, forged(message, 1, 2, 200, 100), oob=True)
    assert len(receiver.whole) == 4


def test_what_cannot_be_whole_any_more_takes_no_message_its_place() -> None:
    """A window began after the first piece of message 1: its sender has the acks of all of it, and
    so begins messages 2 and 3. A piece of 2 had overtaken what is left of 1."""
    receiver = Receiver(max_open_messages=2)
    (left, second, third) = cut(300, 400, 500)
    before = 1001
    receiver.take(A, second[3], left[1], left[2], second[0], oob=True, settled=before)
    receiver.take(A, third[2], oob=True, settled=2001)
    assert receiver.reassembler.given_up == 1
    receiver.take(A, second[1], second[2], *third[:2], *third[3:], oob=True, settled=2001)
    assert receiver.whole == [text(400, 400), text(500, 500)]


def test_a_message_that_began_before_its_window_is_refused_where_it_is_one_too_many() -> None:
    receiver = Receiver(max_open_messages=1)
    (left, second) = cut(300, 400)
    receiver.take(A, second[0], oob=True, settled=1001)
    receiver.refuses("fragment-headless", A, left[2], oob=True, settled=1001)
    receiver.refuses("fragment-old", A, left[1], oob=True, settled=1001)
    receiver.take(A, *second[1:], oob=True, settled=1001)
    assert receiver.whole == [text(400, 400)]


def test_unfinished_oob_bytes_of_a_sender_are_bounded() -> None:
    """Tiny pieces count with what keeping them costs."""
    receiver = Receiver(max_open_bytes=2280)
    kept = 2280 // (1 + PIECE_COST)
    for message in range(1, kept + 1):
        receiver.take(A, forged(message, 0, 2, 200, 1), oob=True)
    refused = forged(kept + 1, 0, 2, 200, 1)
    receiver.refuses("fragment-beyond-settings", A, refused, oob=True)
    assert receiver.reassembler.open_messages() == kept
    assert receiver.reassembler.open_bytes <= 2280


@pytest.mark.parametrize("oob", [False, True])
def test_members_do_not_share_a_bound(*, oob: bool) -> None:
    """What one sends costs no other its message: each may have the largest one unfinished."""
    receiver = Receiver(max_open_bytes=2280)
    receiver.reassembler.on_view(range(1, 10), 0.0)
    (pieces,) = cut(1000)
    for sender in range(1, 10):
        receiver.take(sender, *pieces[:-1], oob=oob)
    for sender in range(1, 10):
        receiver.take(sender, pieces[-1], oob=oob)
    assert receiver.whole == [text(1000, 1000)] * 9


def test_pieces_of_a_stranger_count_from_when_it_left_the_view() -> None:
    receiver = Receiver()
    receiver.reassembler.on_view([A], 0.0)
    (pieces,) = cut(1000)
    receiver.take(A, *pieces[:4])
    assert receiver.reassembler.kept_of_stranger(B) == (0, 0)
    receiver.take(B, *pieces[:2])
    assert receiver.reassembler.kept_of_stranger(B) == (2, 2 * (100 + PIECE_COST))
    receiver.reassembler.on_view([C], 0.0)
    assert receiver.reassembler.kept_of_stranger(A) == (0, 0)
    receiver.take(A, pieces[4])
    assert receiver.reassembler.kept_of_stranger(A) == (1, 100 + PIECE_COST)
    receiver.take(A, *pieces[5:])
    assert receiver.reassembler.kept_of_stranger(A) == (0, 0)


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
