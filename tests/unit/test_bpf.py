"""The filter of own multicasts: its bytes, and what it does, by an interpreter of what it uses."""

from __future__ import annotations

import struct
from collections import Counter
from typing import Any

import pytest
from xxhash import xxh3_64_intdigest as hash64

from stormcast.node.core import wire
from stormcast.node.core.codec import Codec
from stormcast.node.core.wire import GROUP
from stormcast.node.transports.bpf import reject_source
from stormcast.node.transports.reach import Reach

UDP_HEADER = bytes(8)
SHORTS = [1, 0xA, 0x7FFFFFFF, 0x80000000, 0xFFFFFFFF]


def run(program: bytes, packet: bytes) -> int:
    """How many bytes of a packet pass: the classic BPF machine, as far as it is needed."""
    steps = list(struct.iter_unpack("HBBI", program))
    at = accumulator = 0
    while True:
        code, if_true, if_false, operand = steps[at]
        at += 1
        if code == 0x20:  # ld [k]
            if operand + 4 > len(packet):
                return 0  # As the kernel does: a load beyond the end ends the program.
            (accumulator,) = struct.unpack_from(">I", packet, operand)
        elif code == 0x15:  # jeq #k
            at += if_true if accumulator == operand else if_false
        else:
            assert code == 0x06, f"unknown instruction {code:#x}"  # ret #k
            return int(operand)


def frame(source: int) -> bytes:
    return Codec(0xC1, source, hash64).pack_control(wire.HEARTBEAT, wire.FD_ALL3, GROUP, 0, 1)


def test_the_program_is_what_it_was() -> None:
    assert reject_source(0x01020304) == b"".join(
        struct.pack("HBBI", *step)
        for step in [
            (0x20, 0, 0, 20),
            (0x15, 0, 1, 0x01020304),
            (0x06, 0, 0, 0),
            (0x06, 0, 0, 0xFFFFFFFF),
        ]
    )


@pytest.mark.parametrize("short", SHORTS)
def test_own_frames_do_not_pass_and_all_others_do(short: int) -> None:
    program = reject_source(short)
    assert run(program, UDP_HEADER + frame(short)) == 0
    for other in SHORTS:
        if other != short:
            assert run(program, UDP_HEADER + frame(other)) == 0xFFFFFFFF


def test_a_member_whose_id_differs_in_one_bit_is_heard() -> None:
    program = reject_source(0x12345678)
    for bit in range(32):
        assert run(program, UDP_HEADER + frame(0x12345678 ^ 1 << bit)) == 0xFFFFFFFF


def test_a_probe_passes() -> None:
    """It is shorter than a frame, and no load may reach beyond its end."""
    probes: list[bytes] = []
    nothing: Any = lambda *_: None  # noqa: E731 it stands for three
    reach = Reach(0xC1, 0xA, lambda: 7, probes.append, nothing, lambda: 0.0, nothing, Counter())
    reach.on_view({0xB})
    assert run(reject_source(0xB), UDP_HEADER + probes[0]) == 0xFFFFFFFF


@pytest.mark.parametrize("size", range(17))
def test_what_is_too_short_to_have_a_source_is_dropped(size: int) -> None:
    passes = run(reject_source(0xA), UDP_HEADER + frame(0xB)[:size])
    assert passes == (0xFFFFFFFF if size >= 16 else 0)
