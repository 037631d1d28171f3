"""The codec: a DATA frame of a hundred messages of a hundred bytes, and an ACK."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from xxhash import xxh3_64_intdigest

from bench.micro.measure import Work
from stormcast.node.core import wire
from stormcast.node.core.codec import Codec, pack_body, unpack_lengths_untrusted
from stormcast.node.core.model import split_payloads

FRAMES: Final = 20_000
MESSAGES: Final = 100
PAYLOADS: Final = tuple(number.to_bytes(8, "big") * 12 + bytes(4) for number in range(MESSAGES))
CODEC: Final = Codec(0xC1, 0xA, xxh3_64_intdigest)
DEST: Final = 0xB


def data_frame(lo: int = 1) -> bytes:
    """Return a DATA frame, head and body."""
    body = pack_body(PAYLOADS, xxh3_64_intdigest)
    return CODEC.pack_data(wire.UNICAST3, DEST, 1, lo, body, 0, 0, 0, 0) + body.data


def pack_data() -> Callable[[], None]:
    """Return work that joins, hashes and heads batches: the cost of each to its sender."""

    def run() -> None:
        pack = CODEC.pack_data
        for lo in range(1, FRAMES + 1):
            body = pack_body(PAYLOADS, xxh3_64_intdigest)
            pack(wire.UNICAST3, DEST, 1, lo, body, 0, 0, 0, 0)

    return run


def unpack_data() -> Callable[[], None]:
    """Return work that checks frames and finds payloads: the cost of each batch to its receiver
    before the application reads it."""
    frame = data_frame()

    def run() -> None:
        unpack = CODEC.unpack_untrusted
        for _ in range(FRAMES):
            head, body = unpack(frame)
            unpack_lengths_untrusted(head, body)

    return run


def cut_data() -> Callable[[], None]:
    """Return the same work, with payloads cut out, as for an application that reads them."""
    frame = data_frame()

    def run() -> None:
        unpack = CODEC.unpack_untrusted
        for _ in range(FRAMES):
            head, body = unpack(frame)
            start, lengths = unpack_lengths_untrusted(head, body)
            split_payloads(body, start, lengths, head.count)

    return run


def pack_ack() -> Callable[[], None]:
    """Return work that packs control frames without a body."""

    def run() -> None:
        pack = CODEC.pack_control
        for seqno in range(1, FRAMES + 1):
            pack(wire.ACK, wire.UNICAST3, DEST, 1, seqno, stamp=seqno)

    return run


def unpack_ack() -> Callable[[], None]:
    """Return work that checks acks: the cost of each to the sender before it is believed."""
    frame = CODEC.pack_control(wire.ACK, wire.UNICAST3, DEST, 1, 7, stamp=3)

    def run() -> None:
        unpack = CODEC.unpack_untrusted
        for _ in range(FRAMES):
            unpack(frame)

    return run


WORKS: Final = tuple(
    Work(name=name, batches=FRAMES, messages=messages, prepare=prepare)
    for name, messages, prepare in (
        ("codec: pack DATA 100 x 100 B", MESSAGES, pack_data),
        ("codec: unpack DATA 100 x 100 B", MESSAGES, unpack_data),
        ("codec: unpack and cut 100 x 100 B", MESSAGES, cut_data),
        ("codec: pack ACK", 0, pack_ack),
        ("codec: unpack ACK", 0, unpack_ack),
    )
)
