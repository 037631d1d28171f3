"""Frames put together into writes: all of them, in order, and each write as the kernel takes it."""

from __future__ import annotations

from random import Random

import pytest

from stormcast.node.settings.transports import MAX_DATAGRAM
from stormcast.node.transports.bundles import (
    IOV_MAX,
    LARGE_FROM,
    MAX_SEGMENTS,
    join_frames,
    line_up_segments,
)

HEAD = 64
PACKET = 1472
Pair = tuple[bytes, bytes]


def frames(*sizes: int) -> list[Pair]:
    """Heads with bodies of these sizes; each frame is filled with its number."""
    return [(bytes([n % 256]) * HEAD, bytes([n % 256]) * size) for n, size in enumerate(sizes)]


def whole(pairs: list[Pair]) -> bytes:
    return b"".join(head + body for head, body in pairs)


def mixed(dice: Random) -> list[Pair]:
    lengths = [0, 1, 100, PACKET - HEAD, PACKET - HEAD + 1, LARGE_FROM, 60_000]
    return frames(*(dice.choice(lengths) for _ in range(dice.randint(1, 300))))


@pytest.mark.parametrize("limit", [PACKET, MAX_DATAGRAM])
@pytest.mark.parametrize("seed", range(5))
def test_joined_frames_are_all_there_in_datagrams_that_fit(seed: int, limit: int) -> None:
    given = mixed(Random(seed))
    datagrams = [b"".join(parts) for parts in join_frames(given, limit)]
    assert b"".join(datagrams) == whole(given)
    longest = max(len(head) + len(body) for head, body in given)
    assert all(len(one) <= max(limit, longest) for one in datagrams)


def test_frames_share_a_datagram_up_to_its_limit_and_not_beyond() -> None:
    assert len(join_frames(frames(100, 100), 2 * (HEAD + 100))) == 1
    assert len(join_frames(frames(100, 100), 2 * (HEAD + 100) - 1)) == 2


def test_a_large_body_begins_a_datagram() -> None:
    assert len(join_frames(frames(1, LARGE_FROM - 1), MAX_DATAGRAM)) == 1
    assert len(join_frames(frames(1, LARGE_FROM), MAX_DATAGRAM)) == 2


def test_a_write_has_no_more_parts_than_the_kernel_takes() -> None:
    joined = join_frames(frames(*[1] * 600), MAX_DATAGRAM)
    assert [len(parts) for parts in joined] == [IOV_MAX, 1200 - IOV_MAX]


def test_a_frame_without_a_body_is_one_part() -> None:
    assert [len(parts) for parts in join_frames(frames(0, 5), MAX_DATAGRAM)] == [3]


@pytest.mark.parametrize("seed", range(5))
def test_what_the_kernel_cuts_out_of_a_write_are_the_frames(seed: int) -> None:
    given = mixed(Random(seed))
    packets: list[bytes] = []
    for parts, segment in line_up_segments(given, PACKET):
        data = b"".join(parts)
        assert len(data) <= MAX_DATAGRAM
        assert segment <= PACKET
        step = segment or len(data)
        cut = [data[start : start + step] for start in range(0, len(data), step)]
        assert len(cut) <= MAX_SEGMENTS
        packets += cut
    assert packets == [head + body for head, body in given]


def test_equal_frames_and_one_shorter_are_one_write() -> None:
    (only,) = line_up_segments(frames(900, 900, 10), PACKET)
    assert only[1] == HEAD + 900
    assert [segment for _parts, segment in line_up_segments(frames(900, 10, 10), PACKET)] == [
        HEAD + 900,
        0,
    ]


def test_a_longer_frame_and_one_above_a_packet_begin_a_write() -> None:
    assert [segment for _parts, segment in line_up_segments(frames(10, 900), PACKET)] == [0, 0]
    above = frames(*[PACKET] * 2)
    assert [segment for _parts, segment in line_up_segments(above, PACKET)] == [0, 0]
