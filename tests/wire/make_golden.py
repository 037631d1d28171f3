"""Writes the golden bytes: `python -m tests.wire.make_golden`, by hand, and only for a new format.

One file per kind and shape of frame, in hex, sixteen bytes a line. A change of any of them is a
change of the wire format (or of the trace format) and needs a new version number.
"""

from __future__ import annotations

from pathlib import Path
from typing import Final

from xxhash import xxh3_64_intdigest as hash64

from stormcast.node import trace
from stormcast.node.core import wire
from stormcast.node.core.codec import Codec, pack_body
from stormcast.node.core.digest import Digest
from stormcast.node.core.model import (
    DONT_BUNDLE,
    DONT_LOOPBACK,
    FIRST,
    FRAGMENT,
    OOB,
    Address,
    Payload,
    View,
    ViewId,
)
from stormcast.node.core.packing import Writer
from stormcast.node.keys.cluster_keys import ClusterKey
from stormcast.node.keys.seals import Seals
from stormcast.node.protocols.discovery import QUESTION_BYTES
from stormcast.node.protocols.frag import HEADER
from stormcast.node.protocols.gms import messages
from stormcast.node.trace.tracer import Tracer
from stormcast.node.transports.handshake import ACCEPT, LENGTH, Hello, pack_hello, pack_notice

FOLDER: Final = Path(__file__).parent / "golden"
CLUSTER: Final = 0x0C0FFEE0
SOURCE: Final = 0xA0A0A0A1
DEST: Final = 0xB0B0B0B2
CONN: Final = 7
CODEC: Final = Codec(CLUSTER, SOURCE, hash64)

# A group of three: who sends, who receives, and somebody else.
FROM: Final = Address((1 << 64) + SOURCE, "n0")
TO: Final = Address((2 << 64) + DEST, "n1")
THIRD: Final = Address((3 << 64) + 0xC0C0C0C3, "n2")
VIEW: Final = View(ViewId(5, FROM), (FROM, TO, THIRD))
DIGEST: Final = Digest({FROM.short: (9, 12), TO.short: (0, 0), THIRD.short: (7, 7)})
OWN_DIGEST: Final = Digest({FROM.short: (9, 12)})
KEY: Final = ClusterKey(bytes(range(32)))
MERGE: Final = messages.MergeId(FROM, 3)


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


def multicast(
    *payloads: Payload, protocol: int = wire.NAKACK2, dest: int = wire.GROUP, transmission: int = 0
) -> bytes:
    """A DATA frame to the group."""
    body = pack_body(payloads, hash64)
    return CODEC.pack_data(protocol, dest, 0, 1000, body, 0, transmission, 990, 0) + body.data


def fragment() -> bytes:
    """The second of three pieces of a message."""
    body = pack_body([b"piece"], hash64, HEADER.pack(77, 1, 3, 15))
    return CODEC.pack_data(wire.UNICAST3, DEST, CONN, 1000, body, FRAGMENT, 0, 990, 0) + body.data


def group(
    kind: int,
    protocol: int,
    body: bytes = b"",
    *,
    dest: int = DEST,
    lo: int = 0,
    conn: int = 0,
    mark: int = 0,
    stamp: int = 0,
    flags: int = 0,
    transmission: int = 0,
) -> bytes:
    """A control frame of one of a group's protocols."""
    return CODEC.pack_control(
        kind, protocol, dest, conn, lo, transmission, mark, stamp, flags=flags, body=body
    )


def multicast_frames() -> dict[str, bytes]:
    """NAKACK2 and MCAST."""
    return {
        "multicast": multicast(b"hello"),
        "multicast-mcast": multicast(b"hello", protocol=wire.MCAST),
        "multicast-sent-again-to-one": multicast(b"hello", dest=DEST, transmission=2),
        "multicast-request": CODEC.pack_control(
            wire.XMIT_REQ, wire.NAKACK2, DEST, THIRD.short, 1003,
            ranges=[(1001, 1001), (1003, 1003)],
        ),
        "multicast-ack": group(wire.ACK, wire.MCAST, lo=1009),
        "highest-seqno": group(
            wire.HIGHEST_SEQNO, wire.NAKACK2, dest=wire.GROUP, lo=1009, mark=990, transmission=1
        ),
        "baseline": group(wire.BASELINE, wire.NAKACK2, lo=1009, mark=990, flags=FIRST),
        "baseline-request": group(wire.BASELINE_REQ, wire.NAKACK2, lo=990),
        "gossip": group(
            wire.GOSSIP, wire.STABLE_PROTOCOL, Writer().view_id(VIEW.id).digest(DIGEST).bytes(),
            lo=5, conn=4, mark=2, stamp=1,
        ),
        "stability": group(
            wire.STABILITY, wire.STABLE_PROTOCOL, Writer().view_id(VIEW.id).digest(DIGEST).bytes(),
            dest=wire.GROUP, lo=5, conn=3,
        ),
        "credit": group(wire.CREDIT, wire.MFC, lo=1 << 33, mark=5000),
        "credit-request": group(wire.CREDIT_REQ, wire.UFC, lo=5000, conn=CONN, mark=9, stamp=3),
    }  # fmt: skip  # one frame after the other


def membership_frames() -> dict[str, bytes]:
    """Joins, leaves, views, merges."""
    part = messages.MergePart(MERGE, DIGEST, frozenset({FROM.short, THIRD.short}))
    agreed = messages.MergeAnswer(MERGE, False, VIEW, OWN_DIGEST)
    rejected = messages.MergeAnswer(MERGE, True, VIEW, Digest())
    merge_id, view_id = messages.pack_merge_id(MERGE), messages.pack_view_id(VIEW.id)
    gms = wire.GMS
    return {
        "join-request": group(wire.JOIN_REQ, gms, messages.pack_address(FROM), lo=1),
        "join-cookie": group(wire.COOKIE, gms, b"", lo=1, mark=0x0123_4567_89AB_CDEF),
        "prove": group(wire.PROVE, gms, b"", mark=0x0123_4567_89AB_CDEF),
        "proof": group(wire.PROOF, gms, b"", mark=0x0123_4567_89AB_CDEF),
        "join-request-with-cookie": group(
            wire.JOIN_REQ, gms, messages.pack_address(FROM), lo=1, mark=0x0123_4567_89AB_CDEF
        ),
        "join-answer": group(wire.JOIN_RSP, gms, messages.pack_join_answer(VIEW, DIGEST), lo=5),
        "join-refusal": group(wire.JOIN_RSP, gms, messages.pack_join_refusal(TO, "no"), lo=1),
        "leave-request": group(wire.LEAVE_REQ, gms, messages.pack_address(FROM)),
        "leave-answer": group(wire.LEAVE_RSP, gms, messages.pack_address(TO)),
        "view": group(wire.VIEW, gms, messages.pack_view(VIEW), lo=5, transmission=1),
        "merge-view": group(wire.VIEW, gms, messages.pack_merge_view(VIEW, part), lo=5),
        "view-ack": group(wire.VIEW_ACK, gms, view_id, lo=5),
        "get-view": group(wire.GET_VIEW, gms, view_id, lo=5),
        "merge-request": group(wire.MERGE_REQ, gms, merge_id, lo=3),
        "merge-answer": group(wire.MERGE_RSP, gms, messages.pack_merge_answer(agreed), lo=3),
        "merge-rejection": group(wire.MERGE_RSP, gms, messages.pack_merge_answer(rejected), lo=3),
        "digest-request": group(wire.GET_DIGEST_REQ, gms, merge_id, lo=3),
        "digest-answer": group(wire.GET_DIGEST_RSP, gms, messages.pack_merge_answer(agreed), lo=3),
        "merge-cancelled": group(wire.CANCEL_MERGE, gms, merge_id, lo=3),
    }


def detection_frames() -> dict[str, bytes]:
    """Who is there, who is alive, who holds which view."""
    everyone = wire.GROUP
    asker = Writer().address(FROM).u8(0).bytes().ljust(QUESTION_BYTES, b"\0")
    me = Writer().address(FROM).bytes()
    server = Writer().address(FROM).u8(3).address(THIRD).bytes()
    info = Writer().address(FROM).view_id(VIEW.id).bytes()
    named = Writer().addresses([TO, THIRD]).bytes()
    return {
        "members-request": group(wire.GET_MBRS_REQ, wire.DISCOVERY, asker, dest=everyone, lo=1),
        "members-answer": group(wire.GET_MBRS_RSP, wire.DISCOVERY, server, lo=1),
        "info": group(wire.INFO, wire.MERGE3, info, dest=everyone, lo=8),
        "view-request": group(wire.VIEW_REQ, wire.MERGE3, me, lo=2),
        "view-cookie": group(wire.COOKIE, wire.MERGE3, lo=2, mark=0x0123_4567_89AB_CDEF),
        "view-answer": group(wire.VIEW_RSP, wire.MERGE3, Writer().view(VIEW).bytes(), lo=2),
        "heartbeat": group(wire.HEARTBEAT, wire.FD_ALL3, dest=everyone, lo=8),
        "are-you-dead": group(wire.ARE_YOU_DEAD, wire.VERIFY_SUSPECT2, lo=2, transmission=1),
        "i-am-not-dead": group(wire.I_AM_NOT_DEAD, wire.VERIFY_SUSPECT2, lo=2, transmission=1),
        "suspect": group(wire.SUSPECT, wire.FD_SOCK2, named, dest=everyone, lo=8),
        "unsuspect": group(wire.UNSUSPECT, wire.FD_SOCK2, named, dest=everyone, lo=9),
        "goodbye": group(wire.CLOSE, wire.FD_SOCK2),
        "keys": group(wire.KEYS, wire.NONE, dest=wire.GROUP, conn=0),
    }


def sealed_frames() -> dict[str, bytes]:
    """A batch, a frame without a body and two texts, by a member that drew and numbered just so."""
    seals = Seals([KEY], CLUSTER, SOURCE, lambda size: bytes(range(100, 100 + size)))
    frames = [(DEST, data(b"hello"), b""), (DEST, group(wire.VIEW_REQ, wire.MERGE3, lo=2), b"")]
    first, second = (head + body for _dest, head, body in seals.seal(frames, CODEC))
    hello = Hello(CLUSTER, 3, FROM, ACCEPT, bytes(range(16)), bytes(range(16, 32)))
    return {
        "sealed-data": first,
        "sealed-view-request": second,
        "sealed-hello": pack_hello(hello, seals)[LENGTH.size :],
        "sealed-notice": pack_notice(CLUSTER, seals)[LENGTH.size :],
    }


def trace_blocks() -> bytes:
    """Two trace blocks, the first with texts."""
    blocks: list[bytes] = []
    tracer = Tracer(SOURCE, 1_700_000_000_000_000_000, hash64, blocks.append)
    tracer.record(trace.START, 0.0, text="n0 settings")
    tracer.record(
        trace.SENT, 0.25, flags=OOB, protocol=wire.UNICAST3, peer=DEST, conn=CONN, epoch=3, view=5,
        count=10, lo=1, hi=10, size=1234, digest=0x1122334455667788,
    )  # fmt: skip  # one frame after the other
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
        "data-fragment": fragment(),
        **sealed_frames(),
        "ack": control(wire.ACK, 1009, stamp=41),
        "ack-repeated": control(wire.ACK, 1009, transmission=3, stamp=42),
        "send-first-seqno": control(wire.SFS, 1004, stamp=43),
        "request-of-one-range": request((1001, 1001)),
        "request-of-three-ranges": request((1001, 1001), (1003, 1010), (1 << 40, (1 << 40) + 5)),
        "stable": control(wire.STABLE, 1009, wire.UNICAST2, mark=1020, stamp=44),
        "close": control(wire.CLOSE, 0),
        "reset-to": control(wire.RESET_TO, 1005),
        "trace-blocks": trace_blocks(),
        **multicast_frames(),
        **membership_frames(),
        **detection_frames(),
    }


def as_hex(frame: bytes) -> str:
    """Sixteen bytes a line, so that a difference can be pointed at."""
    return "".join(frame[at : at + 16].hex(" ") + "\n" for at in range(0, len(frame), 16))


if __name__ == "__main__":
    FOLDER.mkdir(exist_ok=True)
    for name, frame in golden().items():
        (FOLDER / f"{name}.hex").write_text(as_hex(frame))
