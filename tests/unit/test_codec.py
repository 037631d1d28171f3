"""Frames to bytes and back: what was packed comes out, and nothing else is believed (G4)."""

from __future__ import annotations

import struct
import tracemalloc
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import pytest
from xxhash import xxh3_64_intdigest as hash64

from stormcast.node.core import wire
from stormcast.node.core.codec import (
    Codec,
    pack_body,
    pack_ranges,
    unpack_lengths_untrusted,
    unpack_ranges_untrusted,
)
from stormcast.node.core.errors import BadFrame
from stormcast.node.core.model import FIRST, OOB, split_payloads

CLUSTER = 0xC1C2C3C4
A = Codec(CLUSTER, 0xAAAAAAAA, hash64)
B = Codec(CLUSTER, 0xBBBBBBBB, hash64)


def data(*payloads: bytes | memoryview, lo: int = 10) -> bytes:
    """A DATA frame from A to B."""
    body = pack_body(payloads, hash64)
    return A.pack_data(wire.UNICAST3, B.source, 3, lo, body, FIRST, 0, 9, 0) + body.data


def payloads_of(frame: bytes) -> list[bytes | memoryview]:
    head, body = B.unpack_untrusted(frame)
    start, lengths = unpack_lengths_untrusted(head, body)
    return list(split_payloads(body, start, lengths, head.count))


def forged(frame: bytes, body: bytes | None = None, **fields: int) -> bytes:
    """The frame with other fields or another body, and with every hash correct again."""
    head = wire.Head._make(wire.HEAD_STRUCT.unpack_from(frame))
    if body is None:
        body = frame[wire.HEAD_SIZE :]
    else:
        fields = {"size": len(body)} | fields
    head = head._replace(**({"digest": hash64(body) if body else 0} | fields))
    front = wire.HEAD_STRUCT.pack(*head)[: wire.CHECK_OFFSET]
    return front + struct.pack(">I", hash64(front) & 0xFFFFFFFF) + body


def reason(parse: Callable[[], object]) -> str:
    """Why it is refused."""
    with pytest.raises(BadFrame) as refused:
        parse()
    return refused.value.reason


def refusal(frame: bytes) -> str:
    return reason(lambda: B.unpack_untrusted(frame))


FRAMES = {
    "data": data(b"one", b"two", b"three"),
    "data-equal": data(b"one", b"two"),
    "data-single": data(b"payload"),
    "data-empty": data(b""),
    "ack": A.pack_control(wire.ACK, wire.UNICAST3, B.source, 3, 99, stamp=7),
    "sfs": A.pack_control(wire.SFS, wire.UNICAST3, B.source, 3, 99, stamp=8),
    "request": A.pack_control(
        wire.XMIT_REQ, wire.UNICAST3, B.source, 3, 9, ranges=[(1, 1), (4, 9)]
    ),
    "stable": A.pack_control(wire.STABLE, wire.UNICAST2, B.source, 3, 99, mark=120),
    "close": A.pack_control(wire.CLOSE, wire.UNICAST3, B.source, 3, 0),
    "reset": A.pack_control(wire.RESET_TO, wire.UNICAST3, B.source, 3, 99),
}
each_frame = pytest.mark.parametrize("frame", FRAMES.values(), ids=FRAMES)


# -- Round trips ---------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("payloads", "width"),
    [
        ([b"one"], 0),
        ([b""], 0),
        ([b"", b"", b""], 0),
        ([b"abc", b"def"], 0),
        ([b"abc", b"de"], 2),
        ([b"", bytes((1 << 16) - 1)], 2),
        ([b"", bytes(1 << 16)], 4),
        ([bytes(1 << 16), bytes(1 << 16)], 0),
        ([b"x"] * 65535, 0),
        ([b""] * wire.MAX_EMPTY, 0),
        ([b"x"] * 65534 + [b""], 2),
    ],
    ids=lambda value: f"{len(value)}" if isinstance(value, list) else f"width {value}",
)
def test_payloads_survive_and_take_the_narrowest_lengths(payloads: list[bytes], width: int) -> None:
    """One length for all where they are equal; else two bytes each, or four past 65535."""
    frame = data(*payloads)
    assert payloads_of(frame) == payloads
    assert B.unpack_untrusted(frame)[0].width == width


def test_memoryviews_and_bytes_make_the_same_frame() -> None:
    """An application may send slices of a larger buffer without copying them."""
    source = bytes(range(200))
    cuts = [(0, 10), (10, 10), (10, 200)]
    views = [memoryview(source)[low:high] for low, high in cuts]
    copies = [source[low:high] for low, high in cuts]
    assert data(*views) == data(*copies)
    assert data(views[2]) == data(copies[2])
    assert data(views[0], copies[0]) == data(copies[0], copies[0])


def test_the_largest_body_is_read_and_one_byte_more_is_refused() -> None:
    """One huge payload: 16 MiB with its length is the bound that protects a stream reader."""
    largest = bytes(wire.MAX_BODY - 4)
    assert payloads_of(data(largest)) == [largest]
    assert refusal(data(largest + b"x")) == "size"


def test_every_field_of_a_control_frame_survives() -> None:
    frame = A.pack_control(
        wire.STABLE,
        wire.UNICAST2,
        (1 << 32) - 1,
        (1 << 32) - 2,
        (1 << 64) - 1,
        transmission=255,
        mark=(1 << 64) - 3,
        stamp=(1 << 32) - 4,
    )
    head, body = B.unpack_untrusted(frame)
    assert head == wire.Head(
        magic=wire.MAGIC, version=wire.VERSION, count=0, kind=wire.STABLE, protocol=wire.UNICAST2,
        transmission=255, flags=0, cluster=CLUSTER, source=A.source, dest=(1 << 32) - 1,
        conn=(1 << 32) - 2, lo=(1 << 64) - 1, digest=0, mark=(1 << 64) - 3, stamp=(1 << 32) - 4,
        size=0, headers=0, width=0, seal=0, check=head.check,
    )  # fmt: skip  # a header's fields
    assert body == b""


@pytest.mark.parametrize(
    "ranges",
    [
        [(1, 1)],
        [(1, 1), (2, 2), (4, 1000)],
        [(wire.MAX_SEQNO, wire.MAX_SEQNO)],
        [(5, 4 + (1 << 32) - 1)],
        [(2 * n, 2 * n) for n in range(1, 513)],
    ],
    ids=["one", "adjacent", "last seqno", "longest", "alternating"],
)
def test_ranges_survive(ranges: list[tuple[int, int]]) -> None:
    """B-39, B-41: what is iterated is what was written, in as many bytes as announced."""
    frame = A.pack_control(wire.XMIT_REQ, wire.UNICAST3, B.source, 3, 9, ranges=ranges)
    head, body = B.unpack_untrusted(frame)
    assert unpack_ranges_untrusted(head, body) == ranges
    assert (head.count, head.size) == (len(ranges), 12 * len(ranges))
    assert body == pack_ranges(ranges)


def test_frames_in_one_datagram_are_read_one_after_the_other() -> None:
    datagram = b"".join(FRAMES.values())
    at, seen = 0, []
    while at < len(datagram):
        head, _body = B.unpack_untrusted(datagram, at)
        at += wire.HEAD_SIZE + head.size
        seen.append(head.kind)
    assert seen == [frame[wire.OFFSETS["kind"]] for frame in FRAMES.values()]


def test_a_batch_is_hashed_once_and_the_digest_is_what_arrives() -> None:
    """The same value is the journal's payload digest, on both sides (G4)."""
    body = pack_body([b"a", b"bc"], hash64)
    frame = A.pack_data(wire.UNICAST3, B.source, 3, 1, body, OOB, 1, 0, 0) + body.data
    head, received = B.unpack_untrusted(frame)
    assert head.digest == body.digest == hash64(received)
    assert (head.flags, head.transmission) == (OOB, 1)


# -- What is refused -----------------------------------------------------------------------------


@each_frame
def test_every_flipped_bit_is_noticed(frame: bytes) -> None:
    """G4, and each is refused for what it looks like."""
    for bit in range(8 * len(frame)):
        bad = bytearray(frame)
        bad[bit // 8] ^= 1 << bit % 8
        assert refusal(bytes(bad)) == expected_reason(bit // 8)


def expected_reason(at: int) -> str:
    """Foreign before harmed: what is not ours is not counted as damage."""
    if at >= wire.HEAD_SIZE:
        return "digest"
    first = {wire.OFFSETS["magic"]: "magic", wire.OFFSETS["version"]: "version"}
    if wire.OFFSETS["cluster"] <= at < wire.OFFSETS["cluster"] + 4:
        return "cluster"
    return first.get(at, "head-check")


@each_frame
def test_every_truncation_is_noticed(frame: bytes) -> None:
    for size in range(len(frame)):
        assert refusal(frame[:size]) == ("short" if size < wire.HEAD_SIZE else "truncated")


@pytest.mark.parametrize(
    ("fields", "why"),
    [
        ({"magic": 0x5D}, "magic"),
        ({"magic": 0}, "magic"),
        ({"version": 2}, "version"),
        ({"version": 0}, "version"),
        ({"cluster": CLUSTER ^ 1}, "cluster"),
        ({"cluster": 0}, "cluster"),
    ],
)
def test_a_foreign_frame_is_refused_for_what_is_foreign(fields: dict[str, int], why: str) -> None:
    """Its hashes agree: a newer version and another cluster are healthy, just not for us."""
    assert refusal(forged(FRAMES["data"], **fields)) == why


@pytest.mark.parametrize(
    ("fields", "why"),
    [
        ({"size": wire.MAX_BODY + 1}, "size"),
        ({"size": (1 << 32) - 1}, "size"),
        ({"size": wire.MAX_BODY}, "truncated"),
        ({"size": len(FRAMES["data"]) - wire.HEAD_SIZE + 1}, "truncated"),
        ({"size": len(FRAMES["data"]) - wire.HEAD_SIZE - 1}, "digest"),
        ({"size": 0, "headers": 1}, "size"),
        ({"headers": len(FRAMES["data"]) - wire.HEAD_SIZE + 1}, "size"),
        ({"headers": 65535}, "size"),
        ({"digest": 0}, "digest"),
    ],
)
def test_a_frame_that_contradicts_itself_is_refused(fields: dict[str, int], why: str) -> None:
    """All hashes of the head are correct: a peer wrote these sizes on purpose."""
    assert refusal(forged(FRAMES["data"], **fields)) == why


@pytest.mark.parametrize(
    ("body", "fields", "why"),
    [
        (b"", {"count": 0}, "no-messages"),
        (b"", {"count": 1, "width": 0}, "lengths"),
        (b"\0\0\0", {"count": 1, "width": 0}, "lengths"),
        (b"\0\0\0\1", {"count": 1, "width": 0}, "lengths"),
        (b"\0\0\0\1x", {"count": 2, "width": 0}, "lengths"),
        (b"\0\0\0\1xxx", {"count": 2, "width": 0}, "lengths"),
        (b"\xff\xff\xff\xffx", {"count": 65535, "width": 0}, "lengths"),
        (b"\0\0\0\1x", {"count": 1, "width": 0, "headers": 1}, "lengths"),
        (b"\0\0\0\1x", {"count": 1, "width": 0, "headers": 5}, "lengths"),
        (bytes(4), {"count": wire.MAX_EMPTY + 1, "width": 0}, "empty-messages"),
        (bytes(4), {"count": wire.MAX_COUNT, "width": 0}, "empty-messages"),
        (b"\0\1x", {"count": 1, "width": 1}, "width"),
        (b"\0\1x", {"count": 1, "width": 3}, "width"),
        (b"\0\1x", {"count": 1, "width": 255}, "width"),
        (b"\0\1", {"count": 1, "width": 2}, "lengths"),
        (b"\0\1xx", {"count": 1, "width": 2}, "lengths"),
        (b"\0\1x", {"count": 2, "width": 2}, "lengths"),
        (b"\0\1x", {"count": 65535, "width": 2}, "lengths"),
        (b"\0\0\0\1x", {"count": 65535, "width": 4}, "lengths"),
        (b"\xff\xff\xff\xff" * 2, {"count": 2, "width": 4}, "lengths"),
        (b"\0\1x", {"count": 1, "width": 2, "headers": 2}, "lengths"),
    ],
)
def test_lengths_that_do_not_add_up_are_refused(
    body: bytes, fields: dict[str, int], why: str
) -> None:
    """Every hash is correct; only counts, widths, lengths and header sizes lie."""
    head, seen = B.unpack_untrusted(forged(FRAMES["data"], body, **fields))
    assert reason(lambda: unpack_lengths_untrusted(head, seen)) == why


def test_a_batch_of_empty_messages_ends_where_it_would_cost_more_than_its_bytes() -> None:
    """1,024 of them stand in 68 bytes, and cost their receiver what 1,024 others do. Where each has
    a byte, or a length of its own, more may come."""
    assert payloads_of(data(*[b""] * wire.MAX_EMPTY)) == [b""] * wire.MAX_EMPTY
    assert len(payloads_of(data(*[b"x"] * wire.MAX_COUNT))) == wire.MAX_COUNT
    mixed = [b""] * wire.MAX_EMPTY + [b"x"]
    assert payloads_of(data(*mixed)) == mixed


def test_headers_of_upper_protocols_are_skipped_over() -> None:
    """Lengths start behind them, in every width."""
    for payloads in ([b"one"], [b"one", b"two"], [b"", b"abc"]):
        packed = pack_body(payloads, hash64)
        frame = forged(data(*payloads), b"upper" + packed.data, headers=5)
        assert payloads_of(frame) == payloads


@pytest.mark.parametrize(
    ("body", "count"),
    [
        (b"", 0),
        (b"", 1),
        (struct.pack(">QI", 1, 1), 0),
        (struct.pack(">QI", 1, 1), 2),
        (struct.pack(">QI", 1, 1), 65535),
        (struct.pack(">QI", 1, 1) + b"x", 1),
        (struct.pack(">QI", 0, 1), 1),
        (struct.pack(">QI", 5, 0), 1),
        (struct.pack(">QI", wire.MAX_SEQNO, 2), 1),
        (struct.pack(">QI", wire.MAX_SEQNO + 1, 1), 1),
        (struct.pack(">QI", (1 << 64) - 1, (1 << 32) - 1), 1),
        (struct.pack(">QIQI", 5, 2, 6, 1), 2),
        (struct.pack(">QIQI", 5, 2, 5, 1), 2),
        (struct.pack(">QIQI", 5, 1, 1, 1), 2),
    ],
)
def test_ranges_must_be_ascending_disjoint_and_within_the_seqnos(body: bytes, count: int) -> None:
    head, seen = B.unpack_untrusted(forged(FRAMES["request"], body, count=count))
    assert reason(lambda: unpack_ranges_untrusted(head, seen)) == "ranges"


# -- Bounds --------------------------------------------------------------------------------------


@contextmanager
def at_most(size_bytes: int) -> Iterator[None]:
    """What the block allocates at its peak stays within a bound."""
    tracemalloc.start()
    try:
        yield
        assert tracemalloc.get_traced_memory()[1] <= size_bytes
    finally:
        tracemalloc.stop()


def test_announced_sizes_and_counts_allocate_nothing() -> None:
    """G5: a few hostile bytes claim gigabytes, millions of messages, billions of seqnos."""
    huge = forged(FRAMES["data"], size=(1 << 32) - 1)
    large = forged(FRAMES["data"], size=wire.MAX_BODY)
    head, body = B.unpack_untrusted(forged(FRAMES["data"], b"\xff" * 8, count=65535, width=4))
    longest = struct.pack(">QI", 1, (1 << 32) - 1)
    with at_most(20_000):
        assert refusal(huge) == "size"
        assert refusal(large) == "truncated"
        assert reason(lambda: unpack_lengths_untrusted(head, body)) == "lengths"
        request = B.unpack_untrusted(forged(FRAMES["request"], longest, count=1))
        assert unpack_ranges_untrusted(*request) == [(1, (1 << 32) - 1)]


def test_what_a_peer_sends_does_not_stay_in_memory() -> None:
    """Forty full frames, each of another shape: reading them leaves nothing large behind (G5)."""
    frames = [data(*[b"x"] * count) for count in range(65_000, 65_040)]
    with at_most(16 << 20):
        for frame in frames:
            assert len(payloads_of(frame)) >= 65_000
