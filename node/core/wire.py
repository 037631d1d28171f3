"""The wire, declared once: the codec, the docs and every outside matcher are derived from here.

A frame is a head of fixed size, then a body. The first 32 bytes of the head are the *preamble*:
whatever a kernel rule may want to select by stands there, at an offset that never moves.
"""

from __future__ import annotations

import struct
from typing import Annotated, Final, NamedTuple, get_type_hints

MAGIC: Final = 0x5C
VERSION: Final = 1
PREAMBLE_SIZE: Final = 32


class Field(NamedTuple):
    """How one field travels: its struct code (network order) and what it means."""

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
    transmission: Annotated[int, Field("B", "0 at first, +1 for each repeat, saturating at 255")]
    flags: Annotated[int, Field("B", "message flags, FIRST, RESET")]
    cluster: Annotated[int, Field("I", "hash of the cluster name")]
    source: Annotated[int, Field("I", "short id of the sender")]
    dest: Annotated[int, Field("I", "short id of the receiver, or of the group")]
    conn: Annotated[int, Field("I", "connection id, serial; 0 none")]
    lo: Annotated[int, Field("Q", "first seqno of DATA; acked or highest seqno of a control frame")]
    digest: Annotated[int, Field("Q", "XXH3-64 of the body; 0 for an empty body")]
    mark: Annotated[
        int, Field("Q", "DATA: highest seqno the sender has dropped; STABLE: highest received")
    ]
    stamp: Annotated[
        int, Field("I", "timestamp of ACK, STABLE, SFS; DATA answering an SFS echoes its stamp")
    ]
    size: Annotated[int, Field("I", "bytes of the body")]
    headers: Annotated[int, Field("H", "bytes of the body taken by headers of upper protocols")]
    width: Annotated[int, Field("B", "bytes per length: 0 one u32 for all, 2 or 4 a vector")]
    spare: Annotated[int, Field("B", "zero")]
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
MAX_SEQNO: Final = (1 << 63) - 1


def _offsets() -> dict[str, int]:
    offsets, at = {}, 0
    for name, field in FIELDS.items():
        offsets[name] = at
        at += struct.calcsize(">" + field.code)
    return offsets


OFFSETS: Final = _offsets()
assert HEAD_SIZE == 2 * PREAMBLE_SIZE
assert OFFSETS["digest"] == PREAMBLE_SIZE

# Kinds of frames.
DATA: Final = 1
ACK: Final = 2
SFS: Final = 3
XMIT_REQ: Final = 4
STABLE: Final = 5
CLOSE: Final = 6
RESET_TO: Final = 7

KINDS: Final[dict[int, tuple[str, str]]] = {
    DATA: ("DATA", "a batch of messages"),
    ACK: ("ACK", "the receiver has everything up to `lo`"),
    SFS: (
        "SFS",
        "send first seqno: the receiver has no window for connection `conn`; it just saw `lo`",
    ),
    XMIT_REQ: ("XMIT_REQ", "the receiver misses these ranges"),
    STABLE: ("STABLE", "delivered up to `lo`, received up to `mark`"),
    CLOSE: ("CLOSE", "the sender has removed connection `conn`"),
    RESET_TO: ("RESET_TO", "what lies at or below `lo` can no longer be sent"),
}

# Protocols.
NONE: Final = 0
UNICAST: Final = 1
UNICAST2: Final = 2
UNICAST3: Final = 3
UNICAST4: Final = 4

PROTOCOLS: Final[dict[int, str]] = {
    NONE: "NONE",
    UNICAST: "UNICAST",
    UNICAST2: "UNICAST2",
    UNICAST3: "UNICAST3",
    UNICAST4: "UNICAST4",
}
KIND_BY_NAME: Final = {name: kind for kind, (name, _about) in KINDS.items()}
PROTOCOL_BY_NAME: Final = {name: protocol for protocol, name in PROTOCOLS.items()}

RANGE_STRUCT: Final = struct.Struct(">QI")
"""One range of an XMIT_REQ: first missing seqno, how many."""
