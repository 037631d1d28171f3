"""The wire, declared once: the codec, the docs and every outside matcher are derived from here.

A frame is a head of fixed size, then a body. The first 32 bytes of the head are the *preamble*: it
has all fields that a kernel rule may select by, at offsets that never change.
"""

from __future__ import annotations

import struct
from typing import Annotated, Final, NamedTuple, get_type_hints

MAGIC: Final = 0x5C
VERSION: Final = 1
LOW_HALF: Final = 0xFFFFFFFF
"""The half of 64 bits that a check sum, and the number of a view in some fields, keeps."""
PREAMBLE_SIZE: Final = 32


class Field(NamedTuple):
    """The encoding of one field, as a struct code (network order), and its meaning."""

    code: str
    about: str


class Head(NamedTuple):
    """The fixed part of every frame, in wire order."""

    magic: Annotated[int, Field("B", "0x5C: a frame of ours")]
    version: Annotated[int, Field("B", "format version, now 1")]
    count: Annotated[  # type: ignore[assignment]  # hides tuple.count
        int, Field("H", "messages of a DATA frame, ranges of an XMIT_REQ, else 0")
    ]
    kind: Annotated[int, Field("B", "what the frame is, see kinds")]
    protocol: Annotated[int, Field("B", "which protocol it belongs to, see protocols")]
    transmission: Annotated[int, Field("B", "0 at first, +1 for each repeat; after 255 comes 128")]
    flags: Annotated[int, Field("B", "message flags, FIRST, RESET, FRAGMENT")]
    cluster: Annotated[int, Field("I", "hash of the cluster name")]
    source: Annotated[int, Field("I", "short id of the sender")]
    dest: Annotated[int, Field("I", "short id of the receiver; 0 the whole group")]
    conn: Annotated[int, Field("I", "connection id, serial; 0 none (multicasts)")]
    lo: Annotated[int, Field("Q", "first seqno of DATA; acked or highest seqno of a control frame")]
    digest: Annotated[int, Field("Q", "XXH3-64 of the body; 0 for an empty body")]
    mark: Annotated[
        int,
        Field(
            "Q",
            "DATA: highest seqno the sender has dropped, of NONE to the group the number of its "
            "view; STABLE: highest received",
        ),
    ]
    stamp: Annotated[
        int,
        Field(
            "I",
            "timestamp of ACK, STABLE, SFS; DATA answering an SFS echoes its stamp; "
            "multicast DATA: a hash of the sender's view id",
        ),
    ]
    size: Annotated[int, Field("I", "bytes of the body")]
    headers: Annotated[int, Field("H", "bytes of the body taken by headers of upper protocols")]
    width: Annotated[int, Field("B", "bytes per length: 0 one u32 for all, 2 or 4 a vector")]
    seal: Annotated[
        int, Field("B", "1: the body is sealed, and `digest` is the number of the seal; else 0")
    ]
    check: Annotated[int, Field("I", "low half of XXH3-64 over the 60 bytes before")]


FIELDS: Final[dict[str, Field]] = {
    name: hint.__metadata__[0] for name, hint in get_type_hints(Head, include_extras=True).items()
}
HEAD_STRUCT: Final = struct.Struct(">" + "".join(field.code for field in FIELDS.values()))
HEAD_SIZE: Final = HEAD_STRUCT.size
CHECK_OFFSET: Final = HEAD_SIZE - 4
MAX_BODY: Final = 1 << 24
"""No frame body is larger: a hostile size cannot make a stream reader wait for gigabytes."""
MAX_TRANSMISSION: Final = 255
MAX_SEQNO: Final = (1 << 62) - 1
"""No sender comes near. Judges compute with sums of two such numbers in 64 bits."""
MAX_COUNT: Final = (1 << 8 * struct.calcsize(FIELDS["count"].code)) - 1
"""Messages in a batch at most."""
MAX_EMPTY: Final = 1024
"""Messages in a batch of empty ones at most: each costs its receiver time, and its sender no byte.
No fewer than batches have where nobody sets their size."""


def _offsets() -> dict[str, int]:
    offsets, at = {}, 0
    for name, field in FIELDS.items():
        offsets[name] = at
        at += struct.calcsize(">" + field.code)
    return offsets


OFFSETS: Final = _offsets()
assert HEAD_SIZE == 2 * PREAMBLE_SIZE
assert OFFSETS["digest"] == PREAMBLE_SIZE


def told_apart(tries: int) -> int:
    """Return the transmission number of a repeat: beyond 255 it goes round in the upper half, so
    that two repeats in a row never have the same number. A rig draws the fate of a frame from its
    preamble, so equal repeats would all be lost."""
    half = (MAX_TRANSMISSION + 1) // 2
    return tries if tries <= MAX_TRANSMISSION else half + tries % half


def span(first: str, last: str = "") -> slice:
    """Return where a field, or several adjacent ones, are in a frame."""
    last = last or first
    return slice(OFFSETS[first], OFFSETS[last] + struct.calcsize(">" + FIELDS[last].code))


IDENTITY: Final = (span("kind", "flags"), span("source"), span("conn", "lo"))
"""The fields that identify a frame: kind, protocol, transmission, flags, source, connection,
seqno."""
IDENTITY_SIZE: Final = sum(part.stop - part.start for part in IDENTITY)
KIND_AND_PROTOCOL: Final = span("kind", "protocol")
_WHAT, _SOURCE, _NUMBER = IDENTITY
_PREAMBLE: Final = struct.Struct(
    ">" + "".join(field.code for name, field in FIELDS.items() if OFFSETS[name] < PREAMBLE_SIZE)
)
_BEYOND: Final = (0,) * (len(FIELDS) - len(_PREAMBLE.unpack(bytes(PREAMBLE_SIZE))))


def identity(frame: bytes) -> bytes:
    """Return the bytes of a frame's IDENTITY fields."""
    return frame[_WHAT] + frame[_SOURCE] + frame[_NUMBER]


def source_of(frame: bytes) -> int:
    """Return the short id of the sender of a frame."""
    return int.from_bytes(frame[_SOURCE], "big")


def read_preamble(frame: bytes) -> Head:
    """Return the fields of the preamble, unchecked; the other fields of the head are 0."""
    # Half of the cost of `Head._make`, which is a function written in Python.
    return tuple.__new__(Head, _PREAMBLE.unpack_from(frame) + _BEYOND)


GROUP: Final = 0
"""The destination of frames for every member of the cluster."""

# Kinds of frames.
DATA: Final = 1
ACK: Final = 2
SFS: Final = 3
XMIT_REQ: Final = 4
STABLE: Final = 5
CLOSE: Final = 6
RESET_TO: Final = 7
HIGHEST_SEQNO: Final = 8
BASELINE: Final = 9
BASELINE_REQ: Final = 10
GOSSIP: Final = 11
STABILITY: Final = 12
CREDIT: Final = 13
CREDIT_REQ: Final = 14
GET_MBRS_REQ: Final = 15
GET_MBRS_RSP: Final = 16
INFO: Final = 17
VIEW_REQ: Final = 18
VIEW_RSP: Final = 19
HEARTBEAT: Final = 20
ARE_YOU_DEAD: Final = 21
I_AM_NOT_DEAD: Final = 22
SUSPECT: Final = 23
UNSUSPECT: Final = 24
JOIN_REQ: Final = 25
JOIN_RSP: Final = 26
LEAVE_REQ: Final = 27
LEAVE_RSP: Final = 28
VIEW: Final = 29
VIEW_ACK: Final = 30
GET_VIEW: Final = 31
MERGE_REQ: Final = 32
MERGE_RSP: Final = 33
CANCEL_MERGE: Final = 34
GET_DIGEST_REQ: Final = 35
GET_DIGEST_RSP: Final = 36
COOKIE: Final = 37
KEYS: Final = 38
PROVE: Final = 39
PROOF: Final = 40

KINDS: Final[dict[int, tuple[str, str]]] = {
    DATA: ("DATA", "a batch of messages"),
    ACK: ("ACK", "the receiver has everything up to `lo`"),
    SFS: (
        "SFS",
        "send first seqno: the receiver has no window for connection `conn`; it just saw `lo`",
    ),
    XMIT_REQ: ("XMIT_REQ", "the receiver misses these ranges; of multicasts, `conn` sent them"),
    STABLE: ("STABLE", "delivered up to `lo`, received up to `mark`"),
    CLOSE: ("CLOSE", "the sender has removed connection `conn`"),
    RESET_TO: ("RESET_TO", "what lies at or below `lo` can no longer be sent"),
    HIGHEST_SEQNO: ("HIGHEST_SEQNO", "the highest multicast of the sender is `lo`"),
    BASELINE: (
        "BASELINE",
        "of the sender's multicasts, `mark + 1` to `lo` can still be had; with FIRST, for good",
    ),
    BASELINE_REQ: ("BASELINE_REQ", "the receiver wants a BASELINE"),
    GOSSIP: ("GOSSIP", "what a member has delivered and received: a digest; `lo` is its view"),
    STABILITY: ("STABILITY", "what every member of view `lo` has delivered: a digest"),
    CREDIT: (
        "CREDIT",
        "the receiver takes messages up to byte `lo` in all; it last heard of `mark`",
    ),
    CREDIT_REQ: (
        "CREDIT_REQ",
        "the sender has sent `lo` bytes in all, the last as `mark`, of which `stamp` messages are "
        "unacked; `mark` 0: nothing was sent on `conn` yet, and what was before it has ended; with "
        "FIRST it does not wait yet",
    ),
    GET_MBRS_REQ: ("GET_MBRS_REQ", "who is there? with what the asker is"),
    GET_MBRS_RSP: ("GET_MBRS_RSP", "what a member is"),
    INFO: ("INFO", "the sender's view id, for whoever disagrees"),
    VIEW_REQ: ("VIEW_REQ", "asks for the receiver's view"),
    VIEW_RSP: ("VIEW_RSP", "the sender's view"),
    HEARTBEAT: ("HEARTBEAT", "the sender is alive"),
    ARE_YOU_DEAD: ("ARE_YOU_DEAD", "asks a suspected member for a sign of life"),
    I_AM_NOT_DEAD: ("I_AM_NOT_DEAD", "a sign of life, asked for"),
    SUSPECT: ("SUSPECT", "these members are believed dead"),
    UNSUSPECT: ("UNSUSPECT", "these members are alive after all"),
    JOIN_REQ: ("JOIN_REQ", "let me in"),
    JOIN_RSP: ("JOIN_RSP", "the first view of a joiner and where its windows begin, or why not"),
    LEAVE_REQ: ("LEAVE_REQ", "let me go"),
    LEAVE_RSP: ("LEAVE_RSP", "you are out"),
    VIEW: ("VIEW", "install this view; `lo` is its number"),
    VIEW_ACK: ("VIEW_ACK", "the sender has view `lo`"),
    GET_VIEW: ("GET_VIEW", "asks for a view newer than `lo`"),
    MERGE_REQ: ("MERGE_REQ", "asks a group to take part in a merge"),
    MERGE_RSP: ("MERGE_RSP", "a group's view and digest, or a rejection"),
    CANCEL_MERGE: ("CANCEL_MERGE", "the merge is off"),
    GET_DIGEST_REQ: ("GET_DIGEST_REQ", "asks a member how far its own multicasts are"),
    GET_DIGEST_RSP: ("GET_DIGEST_RSP", "how far they are, and the view it holds"),
    COOKIE: ("COOKIE", "ask again with this cookie, so that you are where you say"),
    KEYS: ("KEYS", "the sender's cluster has a key that the receiver did not seal by"),
    PROVE: ("PROVE", "give this cookie back, so that you are where the view of a merge says"),
    PROOF: ("PROOF", "the cookie of a PROVE"),
}

# Protocols.
NONE: Final = 0
UNICAST: Final = 1
UNICAST2: Final = 2
UNICAST3: Final = 3
UNICAST4: Final = 4
NAKACK2: Final = 5
MCAST: Final = 6
STABLE_PROTOCOL: Final = 7
GMS: Final = 8
MERGE3: Final = 9
FD_ALL3: Final = 10
FD_SOCK2: Final = 11
VERIFY_SUSPECT2: Final = 12
DISCOVERY: Final = 13
UFC: Final = 14
MFC: Final = 15

PROTOCOLS: Final[dict[int, str]] = {
    NONE: "NONE",
    UNICAST: "UNICAST",
    UNICAST2: "UNICAST2",
    UNICAST3: "UNICAST3",
    UNICAST4: "UNICAST4",
    NAKACK2: "NAKACK2",
    MCAST: "MCAST",
    STABLE_PROTOCOL: "STABLE",
    GMS: "GMS",
    MERGE3: "MERGE3",
    FD_ALL3: "FD_ALL3",
    FD_SOCK2: "FD_SOCK2",
    VERIFY_SUSPECT2: "VERIFY_SUSPECT2",
    DISCOVERY: "DISCOVERY",
    UFC: "UFC",
    MFC: "MFC",
}
KIND_BY_NAME: Final = {name: kind for kind, (name, _about) in KINDS.items()}
PROTOCOL_BY_NAME: Final = {name: protocol for protocol, name in PROTOCOLS.items()}

SEALED: Final = 1
"""`seal` of a frame whose body is sealed."""
SEAL_STRUCT: Final = struct.Struct(">I16sI")
"""Front of a sealed body: id of the cluster key, what the sealer drew when it started, short id of
the sealer."""
SEAL_TAG: Final = 16
"""Bytes of the tag at the end of a sealed body."""
RANGE_STRUCT: Final = struct.Struct(">QI")
"""One range of an XMIT_REQ: first missing seqno, how many."""
MAX_RANGES: Final = 4096
"""Ranges in one frame: with more, no datagram would carry it."""
