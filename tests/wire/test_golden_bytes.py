"""The bytes of every kind and shape of frame, pinned: a difference is a new format version."""

from __future__ import annotations

from random import Random

import pytest
from xxhash import xxh3_64_intdigest as hash64

from stormcast.node import trace
from stormcast.node.core import wire
from stormcast.node.core.codec import Codec, unpack_lengths_untrusted, unpack_ranges_untrusted
from stormcast.node.core.model import split_payloads
from stormcast.node.settings import load_settings
from stormcast.node.stack import Stack
from stormcast.node.trace.tracer import Tracer
from tests.wire.make_golden import (
    CLUSTER,
    CONN,
    DEST,
    FOLDER,
    SOURCE,
    TO,
    VIEW,
    detection_frames,
    golden,
    membership_frames,
    multicast_frames,
    sealed_frames,
)

NAMES = sorted(path.stem for path in FOLDER.glob("*.hex"))
READER = Codec(CLUSTER, DEST, hash64)
NO_PLAIN_FRAMES = {"trace-blocks", *sealed_frames()}
GROUP_FRAMES = {**multicast_frames(), **membership_frames(), **detection_frames()}
UNWANTED = {
    "proof": "proof-unasked",
    "credit": "credit-beyond-limit",
    "digest-answer": "merge-unknown",
    "gossip": "not-coordinator",
    "join-refusal": "join-late",
    "join-request": "not-coordinator",
    "join-request-with-cookie": "not-coordinator",
    "join-cookie": "join-unasked",
    "keys": "kind",
    "view-cookie": "unasked",
    "leave-answer": "leave-unasked",
    "members-answer": "unasked",
    "merge-answer": "merge-unknown",
    "unsuspect": "not-suspected",
    "merge-rejection": "merge-unknown",
    "multicast-ack": "ack-beyond-sent",
    "stability": "stability-beyond-vote",
    "view-answer": "unasked",
}
"""What a member says of frames that are whole, and come at the wrong time or to the wrong one."""


def pinned(name: str) -> bytes:
    return bytes.fromhex((FOLDER / f"{name}.hex").read_text())


def receiver(name: str) -> Stack:
    """A member of the golden view whose stack has the protocol of a golden frame."""
    settings = load_settings("mcast" if name in {"multicast-mcast", "multicast-ack"} else "udp")
    tracer = Tracer(DEST, 0, hash64, lambda _block: None)

    def hashed(data: bytes) -> int:
        return CLUSTER if data == b"golden" else hash64(data)

    member = Stack(TO, "golden", settings, hashed, tracer, 0.0, dice=Random(1))
    member.install_view(VIEW, 0.0)
    return member


def test_every_kind_and_shape_has_its_golden_file() -> None:
    assert sorted(golden()) == NAMES
    kinds = {pinned(name)[wire.OFFSETS["kind"]] for name in NAMES if name not in NO_PLAIN_FRAMES}
    assert kinds == set(wire.KINDS)


@pytest.mark.parametrize("name", NAMES)
def test_what_is_written_today_are_the_golden_bytes(name: str) -> None:
    assert golden()[name].hex(" ") == pinned(name).hex(" ")


@pytest.mark.parametrize(
    "name",
    [name for name in NAMES if name not in {*NO_PLAIN_FRAMES, "data-lengths-of-four-bytes"}],
)
def test_golden_bytes_are_read_back(name: str) -> None:
    """Yesterday's frames are believed today, with the fields they were made from."""
    head, body = READER.unpack_untrusted(pinned(name))
    assert (head.magic, head.version) == (0x5C, 1)
    assert (head.cluster, head.source) == (CLUSTER, SOURCE)
    if name not in GROUP_FRAMES:
        assert (head.dest, head.conn) == (DEST, CONN)
    assert head.dest in (DEST, wire.GROUP)
    assert head.digest == (hash64(body) if body else 0)
    assert (head.headers, head.seal) == (24 if name == "data-fragment" else 0, 0)


@pytest.mark.parametrize("name", sorted(GROUP_FRAMES))
def test_golden_frames_of_a_group_are_what_its_protocols_understand(name: str) -> None:
    """A member of the view takes each apart, and refuses what it did not ask for."""
    member = receiver(name)
    member.receive(pinned(name), 0.0)
    member.end_turn(0.0)
    assert member.record.refused == ({UNWANTED[name]: 1} if name in UNWANTED else {})


@pytest.mark.parametrize(
    ("name", "width", "payloads"),
    [
        ("data-one-message", 0, [b"hello"]),
        ("data-one-empty-message", 0, [b""]),
        ("data-equal-lengths", 0, [b"abcd", b"efgh", b"ijkl"]),
        ("data-equal-lengths-empty", 0, [b"", b"", b""]),
        ("data-lengths-of-two-bytes", 2, [b"a", b"", b"ccc"]),
    ],
)
def test_golden_data_holds_the_payloads(name: str, width: int, payloads: list[bytes]) -> None:
    head, body = READER.unpack_untrusted(pinned(name))
    start, lengths = unpack_lengths_untrusted(head, body)
    assert (head.kind, head.count, head.width) == (wire.DATA, len(payloads), width)
    assert (head.lo, head.mark) == (1000, 990)
    assert list(split_payloads(body, start, lengths, head.count)) == payloads


def test_golden_control_frames_hold_their_fields() -> None:
    def fields(name: str) -> tuple[int, ...]:
        head, _body = READER.unpack_untrusted(pinned(name))
        return head.kind, head.protocol, head.lo, head.mark, head.stamp, head.transmission

    assert fields("ack") == (wire.ACK, wire.UNICAST3, 1009, 0, 41, 0)
    assert fields("ack-repeated") == (wire.ACK, wire.UNICAST3, 1009, 0, 42, 3)
    assert fields("send-first-seqno") == (wire.SFS, wire.UNICAST3, 1004, 0, 43, 0)
    assert fields("stable") == (wire.STABLE, wire.UNICAST2, 1009, 1020, 44, 0)
    assert fields("close") == (wire.CLOSE, wire.UNICAST3, 0, 0, 0, 0)
    assert fields("reset-to") == (wire.RESET_TO, wire.UNICAST3, 1005, 0, 0, 0)


def test_a_golden_request_holds_its_ranges() -> None:
    head, body = READER.unpack_untrusted(pinned("request-of-three-ranges"))
    ranges = [(1001, 1001), (1003, 1010), (1 << 40, (1 << 40) + 5)]
    assert unpack_ranges_untrusted(head, body) == ranges
    assert (head.count, head.lo, head.transmission) == (3, ranges[-1][1], 2)


def test_golden_trace_blocks_are_read_back() -> None:
    blocks = list(trace.read_blocks_untrusted(pinned("trace-blocks"), hash64))
    assert [(block.first, len(block.events)) for block in blocks] == [(0, 2), (2, 1)]
    start, sent = blocks[0].events
    assert blocks[0].text(start) == "n0 settings"
    assert (sent.name, sent.peer, sent.lo, sent.hi, sent.bytes) == ("sent", DEST, 1, 10, 1234)
    assert (blocks[1].events[0].name, blocks[1].events[0].time) == ("stop", 60.5)
