"""Bytes of a stranger raise one kind of error, or are what they say; nothing else happens.

Three attackers: one sends noise, one damages healthy bytes, and one writes what it likes under
hashes that are all correct. The third is the interesting one.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterable
from functools import cache
from itertools import accumulate
from random import Random
from types import ModuleType
from typing import NamedTuple

import pytest
from hypothesis import event, example, given, settings
from hypothesis import strategies as st
from xxhash import xxh3_64_intdigest as hash64

from stormcast.node import trace
from stormcast.node.core import codec as codec_module
from stormcast.node.core import wire
from stormcast.node.core.codec import (
    Codec,
    pack_ranges,
    unpack_lengths_untrusted,
    unpack_ranges_untrusted,
)
from stormcast.node.core.errors import BadFrame, BadTrace
from stormcast.node.core.model import Address, split_payloads
from stormcast.node.core.wire import Head
from stormcast.node.settings import StackSettings, load_settings
from stormcast.node.stack import Stack
from stormcast.node.trace.tracer import Tracer
from tests.wire.make_golden import (
    CLUSTER,
    DEST,
    FROM,
    THIRD,
    TO,
    VIEW,
    detection_frames,
    golden,
    membership_frames,
    multicast_frames,
    sealed_frames,
)

READER = Codec(CLUSTER, 1, hash64)
HEALTHY = {
    name: frame
    for name, frame in golden().items()
    if name not in {"trace-blocks", *sealed_frames()}
}
HEALTHY_TRACE = golden()["trace-blocks"]
FIELD_BITS = {name: 8 * struct.calcsize(">" + field.code) for name, field in wire.FIELDS.items()}

LONG = settings(max_examples=4 * settings.default.max_examples)
NOISE = st.binary(max_size=300)


EDGES = [n + (1 << bits) for bits in (0, 2, 8, 16, 24, 32, 63) for n in (-1, 0)] + [(1 << 64) - 1]
NUMBERS = st.sampled_from(EDGES) | st.integers(0, 70) | st.integers(0, (1 << 64) - 1)


# -- The attackers -------------------------------------------------------------------------------


@st.composite
def damaged(draw: st.DrawFn, healthy: bytes) -> bytes:
    """Healthy bytes after a few edits: changed, cut out, repeated or put in."""
    data = bytearray(healthy)
    for _ in range(draw(st.integers(1, 4))):
        at = draw(st.integers(0, len(data)))
        end = draw(st.integers(at, min(len(data), at + 40)))
        data[at:end] = draw(st.binary(max_size=12) | st.just(bytes(data[at:end]) * 2))
    return bytes(data)


def noisy_frames() -> st.SearchStrategy[bytes]:
    """Noise behind the bytes that say what it is, long enough to be it."""
    begins = [b"", bytes([wire.MAGIC]), bytes([wire.MAGIC, wire.VERSION])]
    return st.builds(
        lambda begin, noise: begin + noise[len(begin) : 8] + CLUSTER.to_bytes(4, "big") + noise,
        st.sampled_from(begins),
        st.binary(min_size=60, max_size=200),
    )


class Body(NamedTuple):
    """A frame's body and the fields of the head that speak of it."""

    count: int  # type: ignore[assignment]
    width: int
    data: bytes


EQUAL = st.builds(
    lambda length, count: Body(count, 0, struct.pack(">I", length) + bytes(length * count)),
    st.integers(0, 1100),
    st.integers(1, 5),
)
UNEQUAL = st.builds(
    lambda lengths, width: Body(len(lengths), width, vector(lengths, width) + bytes(sum(lengths))),
    st.lists(st.integers(0, 1100), min_size=1, max_size=5),
    st.sampled_from([2, 4]),
)
RANGES = st.lists(st.tuples(NUMBERS, NUMBERS), min_size=1, max_size=4).map(
    lambda pairs: Body(len(pairs), 0, b"".join(a_range(*pair) for pair in pairs))
)
ASCENDING = st.lists(st.integers(1, (1 << 32) - 1), min_size=2, max_size=8).map(
    lambda steps: Body(len(steps) // 2, 0, pack_ranges(ascending(steps)))
)
NOISY = st.builds(Body, st.integers(0, 20), st.sampled_from([0, 2, 4]), NOISE)
BODIES = EQUAL | UNEQUAL | RANGES | ASCENDING | NOISY


def vector(lengths: list[int], width: int) -> bytes:
    return b"".join(length.to_bytes(width, "big") for length in lengths)


def a_range(lo: int, length: int) -> bytes:
    return wire.RANGE_STRUCT.pack(lo, length & 0xFFFFFFFF)


def ascending(steps: list[int]) -> list[tuple[int, int]]:
    marks = list(accumulate(steps))
    return [(lo, hi - 1) for lo, hi in zip(marks[::2], marks[1::2], strict=False)]


@st.composite
def well_hashed_frame(draw: st.DrawFn) -> bytes:
    """A frame that is nearly right: up to two fields say anything, and the hashes agree."""
    body = draw(BODIES)
    headers = draw(st.binary(max_size=3))
    data = headers + body.data
    right = {
        "magic": wire.MAGIC,
        "version": wire.VERSION,
        "cluster": CLUSTER,
        "kind": wire.DATA,
        "count": body.count,
        "width": body.width,
        "headers": len(headers),
        "size": len(data),
        "digest": hash64(data) if data else 0,
    }
    right |= draw(st.dictionaries(st.sampled_from(sorted(wire.FIELDS)), NUMBERS, max_size=2))
    head = b"".join(
        (right.get(name, 0) & (1 << bits) - 1).to_bytes(bits // 8, "big")
        for name, bits in FIELD_BITS.items()
    )
    front = head[: wire.CHECK_OFFSET]
    return front + struct.pack(">I", hash64(front) & 0xFFFFFFFF) + data


@st.composite
def well_hashed_block(draw: st.DrawFn) -> bytes:
    """A trace block of any records and a heap of texts, nearly right, and the check agrees."""
    texts = draw(st.lists(st.binary(max_size=5), max_size=3))
    heap = b"".join(len(text).to_bytes(2, "little") + text for text in texts)
    heap = draw(st.just(heap) | damaged(heap))
    named = draw(st.lists(st.integers(0, len(texts)) | NUMBERS, max_size=4))
    kinds = draw(st.binary(min_size=len(named), max_size=len(named)))
    body = b"".join(
        trace.RECORD.pack(kind, *[0] * 13, text & 0xFFFFFFFF, 0.0)
        for kind, text in zip(kinds, named, strict=True)
    )
    count = draw(st.just(len(named)) | st.integers(0, 5))
    size = len(heap) + (len(named) - count) * trace.RECORD.size
    front = trace.HEADER.pack(
        trace.MAGIC,
        trace.VERSION,
        trace.HEADER.size,
        1,
        count,
        draw(NUMBERS),
        draw(NUMBERS),
        max(0, size),
        0,
        0,
    )[:-8]
    return front + hash64(front + body + heap).to_bytes(8, "little") + body + heap


# -- What must hold of what is believed ----------------------------------------------------------

FRAME_REASONS = {
    "short",
    "magic",
    "version",
    "cluster",
    "head-check",
    "sealed",
    "size",
    "truncated",
    "digest",
}
TRACE_REASONS = {
    "torn block header",
    "not a trace block",
    "torn block",
    "block check",
    "texts",
    "text number",
    "trace version",
    "damaged: whole blocks follow",
}


def read_frame(data: bytes) -> bool:
    """Put bytes through every parser of frames; whether they were believed."""
    try:
        head, body = READER.unpack_untrusted(data)
    except BadFrame as bad:
        refused(bad, FRAME_REASONS)
        return False
    assert len(body) == head.size <= wire.MAX_BODY
    assert head.headers <= head.size
    read_lengths(head, body)
    read_ranges(head, body)
    return True


def read_lengths(head: Head, body: bytes) -> None:
    try:
        start, lengths = unpack_lengths_untrusted(head, body)
    except BadFrame as bad:
        refused(bad, {"no-messages", "empty-messages", "lengths", "width"})
        return
    event("lengths believed")
    payloads = split_payloads(body, start, lengths, head.count)
    assert len(payloads) == head.count > 0
    assert b"".join(payloads) == body[start:]
    assert start >= head.headers


def read_ranges(head: Head, body: bytes) -> None:
    try:
        ranges = unpack_ranges_untrusted(head, body)
    except BadFrame as bad:
        refused(bad, {"ranges"})
        return
    event("ranges believed")
    assert len(ranges) == head.count > 0
    marks = [mark for lo, hi in ranges for mark in (lo - 1, hi)]
    assert marks == sorted(marks)
    assert all(lo <= hi for lo, hi in ranges)
    assert 0 < ranges[0][0] <= ranges[-1][1] <= wire.MAX_SEQNO


def read_trace(data: bytes) -> list[trace.Block]:
    """The blocks that are believed; every event and text of them must be printable."""
    blocks = []
    try:
        for block in trace.read_blocks_untrusted(data, hash64):
            assert all(isinstance(block.text(record), str) for record in block.events)
            assert all(record.name for record in block.events)
            blocks.append(block)
            event("block believed")
    except BadTrace as bad:
        refused(bad, TRACE_REASONS)
    return blocks


def refused(bad: BadFrame | BadTrace, reasons: set[str]) -> None:
    """Reasons are counted, so there are only so many of them."""
    reason = bad.reason.rstrip(" 0123456789")
    assert reason in reasons
    event(reason)


# -- Frames --------------------------------------------------------------------------------------


@LONG
@given(NOISE | noisy_frames())
@example(b"")
@example(bytes(64))
@example(b"\xff" * 300)
def test_noise_is_not_a_frame(noise: bytes) -> None:
    assert not read_frame(noise)


@LONG
@given(st.sampled_from(sorted(HEALTHY)).flatmap(lambda name: damaged(HEALTHY[name])))
def test_a_damaged_frame_is_refused_or_read_as_it_is(data: bytes) -> None:
    """An edit may put bytes behind a frame, which then is still a frame; nothing else is."""
    believed = read_frame(data)
    assert not believed or any(data.startswith(frame) for frame in HEALTHY.values())


@pytest.mark.slow
@LONG
@given(well_hashed_frame())
def test_a_frame_with_correct_hashes_is_refused_or_means_something(data: bytes) -> None:
    """What is believed adds up: lengths to the body, ranges to ascending seqnos (G5)."""
    read_frame(data)


@example(body=Body(1, 0, bytes(4)), changes={"count": 1025})
@LONG
@given(
    body=BODIES,
    changes=st.fixed_dictionaries(
        {},
        optional={
            "count": st.integers(0, 65535),
            "headers": st.integers(0, 65535),
            "width": st.integers(0, 255),
        },
    ),
)
def test_parsers_of_bodies_stand_alone(body: Body, changes: dict[str, int]) -> None:
    """They do not lean on what the parser of heads has checked before."""
    zeros = Head._make([0] * len(Head._fields))
    fields = {"count": body.count, "width": body.width, "size": len(body.data)}
    head = zeros._replace(**(fields | changes))
    read_lengths(head, body.data)
    read_ranges(head, body.data)


# -- A group -------------------------------------------------------------------------------------


GROUP_FRAMES = [*multicast_frames().values(), *membership_frames().values()]
GROUP_FRAMES += detection_frames().values()
SPEAKERS = st.sampled_from([FROM, FROM, THIRD, Address(0xD, "stranger")])


@st.composite
def rehashed(draw: st.DrawFn) -> bytes:
    """A frame of a group, of which anything may have been changed, under hashes that agree."""
    frame = draw(st.sampled_from(GROUP_FRAMES))
    body = draw(st.just(frame[wire.HEAD_SIZE :]) | damaged(frame[wire.HEAD_SIZE :]))
    head = Head._make(wire.HEAD_STRUCT.unpack_from(frame))
    changed = draw(
        st.dictionaries(
            st.sampled_from(["count", "kind", "flags", "dest", "conn", "lo", "mark", "stamp"]),
            NUMBERS | st.sampled_from([FROM.short, DEST, THIRD.short]),
            max_size=2,
        )
    )
    fields = head._asdict() | {"source": draw(SPEAKERS).short} | changed
    fields |= {"size": len(body), "digest": hash64(body) if body else 0}
    front = b"".join(
        (fields[name] & (1 << bits) - 1).to_bytes(bits // 8, "big")
        for name, bits in FIELD_BITS.items()
    )[: wire.CHECK_OFFSET]
    return front + struct.pack(">I", hash64(front) & 0xFFFFFFFF) + body


@cache
def stack_settings(stack: str) -> StackSettings:
    return load_settings(stack, "fast")


def group_hash(data: bytes) -> int:
    """The hash of frames, under which the name of the cluster gives the golden one."""
    return CLUSTER if data == b"golden" else hash64(data)


def group_member(stack: str, *, joined: bool) -> Stack:
    """The receiver of the golden frames, in its view or on its way to a first one."""
    tracer = Tracer(DEST, 0, hash64, lambda _block: None)
    settings = stack_settings(stack)
    member = Stack(TO, "golden", settings, group_hash, tracer, 0.0, dice=Random(1))
    if joined:
        member.install_view(VIEW, 0.0)
    else:
        member.start(0.0)
    return member


@pytest.mark.slow
@pytest.mark.parametrize("joined", [True, False], ids=["joined", "joining"])
@pytest.mark.parametrize("stack", ["udp", "mcast", "tcp-no-retransmit"])
@given(frames=st.lists(rehashed(), max_size=8))
def test_whatever_is_said_to_a_member_of_a_group_it_goes_on(
    stack: str, frames: list[bytes], *, joined: bool
) -> None:
    """Counted, believed or ignored, but never an error, and never more work than there is to do:
    afterwards the member still ticks, sends, and leaves its trace in order (G5)."""
    member = group_member(stack, joined=joined)
    now = 0.0
    for frame in frames:
        member.receive(frame, now)
        member.end_turn(now)
        now += 0.01
    for _ in range(30):
        due = member.next_deadline()
        if due > now + 5:
            break
        now = max(now, due)
        member.tick(now)
        member.end_turn(now)
    if member.view is not None:
        views = member.take_news().views
        assert [view.id.number for view in views] == sorted({view.id.number for view in views})
        assert all(TO in view.members for view in views)
        assert member.try_send(wire.GROUP, b"still here")
    member.record.gauge(now)
    member.stop(now)


# -- Traces --------------------------------------------------------------------------------------


@given(NOISE)
@example(trace.MAGIC)
@example(bytes(48))
def test_noise_is_not_a_trace(noise: bytes) -> None:
    assert read_trace(noise) == []


@LONG
@given(damaged(HEALTHY_TRACE))
def test_a_damaged_trace_gives_only_blocks_that_were_written(data: bytes) -> None:
    """Edits may repeat or remove whole blocks; a block is the one that was written, or none."""
    written = [(block.events, block.texts) for block in read_trace(HEALTHY_TRACE)]
    for block in read_trace(data):
        assert (block.events, block.texts) in written


@pytest.mark.slow
@LONG
@given(st.lists(well_hashed_block(), min_size=1, max_size=2))
def test_a_trace_with_correct_checks_is_refused_or_printable(blocks: list[bytes]) -> None:
    read_trace(b"".join(blocks))


# -- Completeness --------------------------------------------------------------------------------


def public_parsers(*modules: ModuleType) -> Iterable[str]:
    owners: list[object] = [*modules, Codec]
    for owner in owners:
        for name, member in vars(owner).items():
            is_public = name.endswith("_untrusted") and not name.startswith("_")
            if is_public and isinstance(member, Callable):
                yield name


def test_no_parser_of_untrusted_bytes_is_left_out() -> None:
    """Whoever adds one to these modules adds it to the attackers above, and whoever adds one to
    membership a frame to the golden ones, which are what a group is attacked with."""
    assert {frame[wire.OFFSETS["kind"]] for frame in HEALTHY.values()} == set(wire.KINDS)
    assert sorted(public_parsers(codec_module, trace)) == [
        # By the next one, which reads a block after the other.
        "read_block_untrusted",
        "read_blocks_untrusted",
        # By `unpack_untrusted`, and by seals (tests/unit/test_seals.py).
        "unpack_fields_untrusted",
        "unpack_lengths_untrusted",
        "unpack_ranges_untrusted",
        "unpack_untrusted",
    ]
