"""Writes the golden bytes: `python -m tests.wire.make_golden`, by hand, and only for a new format.

One file per kind and shape of frame, in hex, sixteen bytes a line. A change of any of them is a
change of the wire format (or of the trace format) and needs a new version number.
"""

from __future__ import annotations

from pathlib import Path
from typing import Final

from xxhash import xxh3_64_intdigest as hash64

from node import trace
from node.core import wire
from node.core.codec import Codec, pack_body
from node.core.model import DONT_BUNDLE, DONT_LOOPBACK, FIRST, OOB, Payload

FOLDER: Final = Path(__file__).parent / "golden"
CLUSTER: Final = 0x0C0FFEE0
SOURCE: Final = 0xA0A0A0A1
DEST: Final = 0xB0B0B0B2
CONN: Final = 7
CODEC: Final = Codec(CLUSTER, SOURCE, hash64)


def data(
    *payloads: Payload,
    protocol: int = wire.UNICAST3,
    lo: int = 1000,
    flags: int = 0,
    transmission: int = 0,
    stamp: int = 0,
) -> bytes:
    """A DATA frame, head and body together."""
    body = pack_body(payloads, hash64)
    return (
        CODEC.pack_data(protocol, DEST, CONN, lo, body, flags, transmission, 990, stamp) + body.data
    )


def control(kind: int, lo: int, protocol: int = wire.UNICAST3, **fields: int) -> bytes:
    """A control frame without ranges."""
    return CODEC.pack_control(kind, protocol, DEST, CONN, lo, **fields)


def request(*ranges: tuple[int, int]) -> bytes:
    """An XMIT_REQ frame."""
    return CODEC.pack_control(
        wire.XMIT_REQ, wire.UNICAST3, DEST, CONN, ranges[-1][1], transmission=2, ranges=ranges
    )


def trace_blocks() -> bytes:
    """Two trace blocks, the first with texts."""
    blocks: list[bytes] = []
    tracer = trace.Tracer(SOURCE, 1_700_000_000_000_000_000, hash64, blocks.append)
    tracer.record(trace.START, 0.0, text="n0 settings")
    tracer.record(
        trace.SENT, 0.25, flags=OOB, protocol=wire.UNICAST3, peer=DEST, conn=CONN, epoch=3, view=5,
        count=10, lo=1, hi=10, size=1234, digest=0x1122334455667788,
    )  # fmt: skip
    tracer.seal()
    tracer.record(trace.STOP, 60.5)
    tracer.seal()
    return b"".join(blocks)


def golden() -> dict[str, bytes]:
    """Every golden file's name and bytes."""
    return {
        "data-one-message": data(b"hello"),
        "data-one-empty-message": data(b""),
        "data-equal-lengths": data(b"abcd", b"efgh", b"ijkl"),
        "data-equal-lengths-empty": data(b"", b"", b""),
        "data-lengths-of-two-bytes": data(b"a", b"", b"ccc"),
        # Only its beginning: the rest of it is zeros.
        "data-lengths-of-four-bytes": data(b"a", bytes(1 << 16))[: wire.HEAD_SIZE + 16],
        "data-first-of-a-connection": data(b"x", lo=1, flags=FIRST, stamp=9),
        "data-with-message-flags": data(b"x", flags=OOB | DONT_BUNDLE | DONT_LOOPBACK),
        "data-sent-again": data(b"hello", transmission=255),
        "data-unicast": data(b"x", protocol=wire.UNICAST),
        "data-unicast2": data(b"x", protocol=wire.UNICAST2),
        "data-unicast4": data(b"x", protocol=wire.UNICAST4),
        "data-unreliable": data(b"x", protocol=wire.NONE, lo=0),
        "ack": control(wire.ACK, 1009, stamp=41),
        "ack-repeated": control(wire.ACK, 1009, transmission=3, stamp=42),
        "send-first-seqno": control(wire.SFS, 1004, stamp=43),
        "request-of-one-range": request((1001, 1001)),
        "request-of-three-ranges": request((1001, 1001), (1003, 1010), (1 << 40, (1 << 40) + 5)),
        "stable": control(wire.STABLE, 1009, wire.UNICAST2, mark=1020, stamp=44),
        "close": control(wire.CLOSE, 0),
        "reset-to": control(wire.RESET_TO, 1005),
        "trace-blocks": trace_blocks(),
    }


def as_hex(frame: bytes) -> str:
    """Sixteen bytes a line, so that a difference can be pointed at."""
    return "".join(frame[at : at + 16].hex(" ") + "\n" for at in range(0, len(frame), 16))


if __name__ == "__main__":
    FOLDER.mkdir(exist_ok=True)
    for name, frame in golden().items():
        (FOLDER / f"{name}.hex").write_text(as_hex(frame))
