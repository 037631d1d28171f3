"""What the kernel, scapy and every other matcher rely on: offsets and numbers that never move."""

from __future__ import annotations

import struct

import pytest
from xxhash import xxh3_64_intdigest as hash64

from stormcast.node.core import wire
from stormcast.node.core.codec import Codec, pack_body

OFFSETS = {
    "magic": (0, 1),
    "version": (1, 1),
    "count": (2, 2),
    "kind": (4, 1),
    "protocol": (5, 1),
    "transmission": (6, 1),
    "flags": (7, 1),
    "cluster": (8, 4),
    "source": (12, 4),
    "dest": (16, 4),
    "conn": (20, 4),
    "lo": (24, 8),
    # Behind the preamble.
    "digest": (32, 8),
    "mark": (40, 8),
    "stamp": (48, 4),
    "size": (52, 4),
    "headers": (56, 2),
    "width": (58, 1),
    "seal": (59, 1),
    "check": (60, 4),
}

KINDS = {
    "DATA": 1,
    "ACK": 2,
    "SFS": 3,
    "XMIT_REQ": 4,
    "STABLE": 5,
    "CLOSE": 6,
    "RESET_TO": 7,
    "HIGHEST_SEQNO": 8,
    "BASELINE": 9,
    "BASELINE_REQ": 10,
    "GOSSIP": 11,
    "STABILITY": 12,
    "CREDIT": 13,
    "CREDIT_REQ": 14,
    "GET_MBRS_REQ": 15,
    "GET_MBRS_RSP": 16,
    "INFO": 17,
    "VIEW_REQ": 18,
    "VIEW_RSP": 19,
    "HEARTBEAT": 20,
    "ARE_YOU_DEAD": 21,
    "I_AM_NOT_DEAD": 22,
    "SUSPECT": 23,
    "UNSUSPECT": 24,
    "JOIN_REQ": 25,
    "JOIN_RSP": 26,
    "LEAVE_REQ": 27,
    "LEAVE_RSP": 28,
    "VIEW": 29,
    "VIEW_ACK": 30,
    "GET_VIEW": 31,
    "MERGE_REQ": 32,
    "MERGE_RSP": 33,
    "CANCEL_MERGE": 34,
    "GET_DIGEST_REQ": 35,
    "GET_DIGEST_RSP": 36,
    "COOKIE": 37,
    "KEYS": 38,
    "PROVE": 39,
    "PROOF": 40,
}

PROTOCOLS = {
    "NONE": 0,
    "UNICAST": 1,
    "UNICAST2": 2,
    "UNICAST3": 3,
    "UNICAST4": 4,
    "NAKACK2": 5,
    "MCAST": 6,
    "STABLE": 7,
    "GMS": 8,
    "MERGE3": 9,
    "FD_ALL3": 10,
    "FD_SOCK2": 11,
    "VERIFY_SUSPECT2": 12,
    "DISCOVERY": 13,
    "UFC": 14,
    "MFC": 15,
}

CONSTANTS = {"STABLE": "STABLE_PROTOCOL"}
"""Protocols whose constant has another name, because a kind has theirs."""


def test_the_preamble_is_the_first_32_bytes() -> None:
    """Everything a kernel rule may select by ends at 32; the body begins at 64."""
    assert wire.PREAMBLE_SIZE == 32
    assert wire.HEAD_SIZE == 64
    assert wire.OFFSETS["lo"] + 8 == wire.OFFSETS["digest"] == 32
    assert wire.OFFSETS["check"] + 4 == 64


def test_every_field_is_where_it_always_was() -> None:
    sizes = {name: struct.calcsize(">" + field.code) for name, field in wire.FIELDS.items()}
    assert {name: (at, sizes[name]) for name, at in wire.OFFSETS.items()} == OFFSETS
    assert list(wire.OFFSETS) == list(wire.FIELDS) == list(wire.Head._fields)
    assert wire.CHECK_OFFSET == 60


@pytest.mark.parametrize("name", OFFSETS)
def test_a_field_is_found_at_its_offset_in_network_order(name: str) -> None:
    """Each byte of a made-up head is its own offset, so each field's value tells where it was."""
    head = wire.Head._make(wire.HEAD_STRUCT.unpack(bytes(range(wire.HEAD_SIZE))))
    at, size = OFFSETS[name]
    assert getattr(head, name) == int.from_bytes(range(at, at + size), "big")


def test_a_matcher_can_pick_out_a_frame_without_parsing_it() -> None:
    """A packed frame holds each value at the offset that nft, BPF and scapy will look at."""
    body = pack_body([b"x", b"yy"], hash64)
    codec = Codec(0x01020304, 0x11121314, hash64)
    frame = codec.pack_data(
        wire.UNICAST3, 0x21222324, 0x31323334, 0x4142434445464748, body, 0x21, 5, 77, 88
    )
    assert frame[:32].hex(" ") == (
        "5c 01 00 02 01 03 05 21 01 02 03 04 11 12 13 14 "
        "21 22 23 24 31 32 33 34 41 42 43 44 45 46 47 48"
    )


def test_kinds_are_pinned() -> None:
    assert wire.KIND_BY_NAME == KINDS
    assert {kind: name for kind, (name, _about) in wire.KINDS.items()} == {
        number: name for name, number in KINDS.items()
    }
    assert {name: getattr(wire, name) for name in KINDS} == KINDS


def test_protocols_are_pinned() -> None:
    assert wire.PROTOCOL_BY_NAME == PROTOCOLS
    assert {number: name for name, number in PROTOCOLS.items()} == wire.PROTOCOLS
    assert {name: getattr(wire, CONSTANTS.get(name, name)) for name in PROTOCOLS} == PROTOCOLS


def test_numbers_fit_their_byte_and_no_kind_is_zero() -> None:
    """0 is what a frame of zeros would say; it must mean nothing."""
    assert all(0 < kind < 256 for kind in wire.KINDS)
    assert all(0 <= protocol < 256 for protocol in wire.PROTOCOLS)


def test_constants_of_the_format_are_pinned() -> None:
    assert (wire.MAGIC, wire.VERSION) == (0x5C, 1)
    assert (wire.MAX_BODY, wire.MAX_SEQNO) == (1 << 24, (1 << 62) - 1)
    assert wire.RANGE_STRUCT.format == ">QI"
    # No member's short id: what a frame to the group carries.
    assert wire.GROUP == 0
