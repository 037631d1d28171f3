"""Events to trace blocks and back: the record of a run, and the contract with every checker.

A block is a header, fixed-size records, and a heap of texts. It is checked as a whole, so a reader
of a torn file believes everything up to the last whole block and nothing after it. The format is
docs/trace-format.md; changing it means a new version.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator, Sequence
from contextlib import suppress
from functools import partial
from itertools import starmap
from typing import Final, NamedTuple

from stormcast.node.core.codec import Hash64
from stormcast.node.core.errors import BadTrace
from stormcast.node.core.model import Address

MAGIC: Final = b"STRC"
VERSION: Final = 3
READABLE: Final = frozenset({1, 2, VERSION})
"""Version 1 has no events about what an application offered and was handed; version 2 does not say
which multicasts a member gave up at its end."""

# Kinds of events.
START: Final = 1
SENT: Final = 2
DELIVERED: Final = 3
ACKED: Final = 4
REQUESTED: Final = 5
RETRANSMITTED: Final = 6
PURGED: Final = 7
BLOCKED: Final = 8
UNBLOCKED: Final = 9
VIEW: Final = 10
CONN: Final = 11
SUSPECT: Final = 12
DROPPED: Final = 13
GAUGE: Final = 14
SYNC: Final = 15
SKIPPED: Final = 16
FAULT: Final = 17
PROBE: Final = 18
PHASE: Final = 19
STOP: Final = 20
ALARM: Final = 21
FREEZE: Final = 22
TRUNCATED: Final = 23
"""Stands in place of events that were not kept, and has the number of the first of them."""
OFFERED: Final = 24
HANDED: Final = 25
ABANDONED: Final = 26
CREDIT: Final = 27
CUT: Final = 28
EXIT: Final = 29
OVERHEARD: Final = 30
ANSWERED: Final = 31

EVENT_NAMES: Final[dict[int, str]] = {
    START: "start",
    SENT: "sent",
    DELIVERED: "delivered",
    ACKED: "acked",
    REQUESTED: "requested",
    RETRANSMITTED: "retransmitted",
    PURGED: "purged",
    BLOCKED: "blocked",
    UNBLOCKED: "unblocked",
    VIEW: "view",
    CONN: "conn",
    SUSPECT: "suspect",
    DROPPED: "dropped",
    GAUGE: "gauge",
    SYNC: "sync",
    SKIPPED: "skipped",
    FAULT: "fault",
    PROBE: "probe",
    PHASE: "phase",
    STOP: "stop",
    ALARM: "alarm",
    FREEZE: "freeze",
    TRUNCATED: "truncated",
    OFFERED: "offered",
    HANDED: "handed",
    ABANDONED: "abandoned",
    CREDIT: "credit",
    CUT: "cut",
    EXIT: "exit",
    OVERHEARD: "overheard",
    ANSWERED: "answered",
}

WALL_VARIABLE: Final = "SC_WALL_NS"
"""The variable by which a rig tells members on its own machine what the wall clock showed, in
nanoseconds, when their common monotonic clock was 0."""

# `stream` of a VIEW event.
REGULAR: Final = 0
MERGE: Final = 1
"""The view joins groups that were apart."""

# `stream` of a SUSPECT event: the new state of the peer, as the writer of the event sees it.
SUSPECTED: Final = 1
CONFIRMED: Final = 2
CLEARED: Final = 3
SUSPICIONS: Final[dict[int, str]] = {
    SUSPECTED: "suspected",
    CONFIRMED: "confirmed",
    CLEARED: "cleared",
}

# `stream` of a REQUESTED event.
REPAIR: Final = 0
JOINING: Final = 1
"""The window is not yet known to be complete: it was opened at a join, a merge or a reconnect."""

# `stream` of a CONN event: which half of the connection, and its new state.
SENDER_OPEN: Final = 1
SENDER_CLOSING: Final = 2
SENDER_REMOVED: Final = 3
RECEIVER_OPEN: Final = 5
RECEIVER_CLOSING: Final = 6
RECEIVER_REMOVED: Final = 7
CONN_STATES: Final[dict[int, str]] = {
    SENDER_OPEN: "sender open",
    SENDER_CLOSING: "sender closing",
    SENDER_REMOVED: "sender removed",
    RECEIVER_OPEN: "receiver open",
    RECEIVER_CLOSING: "receiver closing",
    RECEIVER_REMOVED: "receiver removed",
}

# `stream` of a CREDIT event. `hi` is a limit, `bytes` how much of the sender's count is spent or
# taken.
NAMED: Final = 1
"""A receiver names the limit up to which its peer may send."""
BELIEVED: Final = 2
"""A sender heard of a higher limit."""
ASKED: Final = 3
"""A sender asks for a limit."""
CREDITS: Final[dict[int, str]] = {
    NAMED: "named",
    BELIEVED: "believed",
    ASKED: "asked",
}

# `stream` of a GAUGE event: what was measured; `lo` is the value, `hi` the bound (0: unbounded by
# design).
SEND_MESSAGES: Final = 1
SEND_BYTES: Final = 2
RECEIVE_MESSAGES: Final = 3
RECEIVE_BYTES: Final = 4
OUTBOX_BYTES: Final = 5
CACHED_FRAMES: Final = 6
QUEUED_MESSAGES: Final = 7
FRAGMENT_BYTES: Final = 8
GAUGES: Final[dict[int, str]] = {
    SEND_MESSAGES: "send window messages",
    SEND_BYTES: "send window bytes",
    RECEIVE_MESSAGES: "receive window messages",
    RECEIVE_BYTES: "receive window bytes",
    OUTBOX_BYTES: "outbox bytes",
    CACHED_FRAMES: "cached early frames",
    QUEUED_MESSAGES: "messages queued until the first view",
    FRAGMENT_BYTES: "bytes of unfinished fragmented messages",
}

# `stream` of a DELIVERED event.
WHOLE: Final = 0
PARTIAL: Final = 1
"""Only a part of the batch was new: `digest` names the batch, `trim` is the digest of the part."""

# `stream` of a HANDED event.
AS_DELIVERED: Final = 0
JOINED: Final = 1
"""One message, which came in the pieces `lo..hi`."""


class Event(NamedTuple):
    """One record: what happened to a range of messages, or to a connection, or to the member."""

    kind: int
    flags: int
    protocol: int
    stream: int
    peer: int
    conn: int
    epoch: int
    view: int
    count: int  # type: ignore[assignment]  # hides tuple.count
    lo: int
    hi: int
    bytes: int
    digest: int
    trim: int
    text: int
    time: float

    @property
    def name(self) -> str:
        return EVENT_NAMES.get(self.kind, f"event-{self.kind}")


RECORD: Final = struct.Struct("<BBBBIIIIIQQQQIId")
HEADER: Final = struct.Struct("<4sHHIIQQIIQ")
"""magic, version, header size, member short id, records, first event number, wall clock (ns) at
monotonic zero, text bytes, reserved, check of all the rest."""

TORN: Final = "torn"
"""What the reason begins with where the last block is not whole, as after a kill."""
DAMAGED: Final = "damaged"
"""What the reason begins with where a block is not whole, and is not the last one."""
_MOST_SOUGHT: Final = 64
"""Places behind a torn block at which a whole one is looked for. A tear leaves few bytes that look
like the beginning of one; each place may cost a hash of all that follows."""
NO_MAGIC: Final = bytes(len(MAGIC))
"""Found where a block would begin, after the last block of a file that was allocated ahead."""

_PACK = RECORD.pack
_ZEROS: Final = bytes(1 << 16)
# `Event._make` is a function written in Python, and takes three times as long.
_new_event: Final = partial(tuple.__new__, Event)
# All of the header but its check, which is over what comes before it and after it.
_FRONT: Final = struct.Struct(HEADER.format[:-1])
_PACK_FRONT = _FRONT.pack
_PACK_CHECK = struct.Struct("<Q").pack


def pack_block(
    member: int,
    first: int,
    wall_ns: int,
    records: Sequence[tuple[float, ...]],
    texts: bytes,
    hash64: Hash64,
) -> bytes:
    """Return a block of these records, the first of which has the number `first`."""
    front = _PACK_FRONT(
        MAGIC, VERSION, HEADER.size, member, len(records), first, wall_ns, len(texts), 0
    )
    # One call per record is faster than one for all: it passes fewer arguments at a time.
    body = b"".join(list(starmap(_PACK, records)))
    if texts:
        body += texts
    return front + _PACK_CHECK(hash64(front + body)) + body


def pack_text(text: str) -> bytes:
    """Return a text as it stands in the heap."""
    # No text may make packing fail: half a surrogate pair becomes "?".
    data = text.encode(errors="replace")[:65535]
    return len(data).to_bytes(2, "little") + data


class Block(NamedTuple):
    """One checked block."""

    member: int
    first: int
    wall_ns: int
    events: list[Event]
    texts: list[str]
    size: int
    """Bytes that it takes."""
    version: int

    def text(self, event: Event) -> str:
        """Return the text of an event of this block."""
        return self.texts[event.text - 1] if event.text else ""


def read_blocks_untrusted(data: bytes, hash64: Hash64) -> Iterator[Block]:
    """Yield the blocks of a trace; BadTrace at the first that is torn or foreign. Only the last
    block can be torn: one that looks so before a whole one is damaged."""
    at = 0
    while (found := _next_block_untrusted(data, at, hash64)) is not None:
        block, at = found
        yield block


def _next_block_untrusted(data: bytes, at: int, hash64: Hash64) -> tuple[Block, int] | None:
    try:
        return None if is_over(data, at) else read_block_untrusted(data, at, hash64)
    except BadTrace as bad:
        if bad.reason.startswith(TORN) and _has_block(data, at + 1, hash64):
            raise BadTrace(f"{DAMAGED}: whole blocks follow") from bad
        raise


def _has_block(data: bytes, start: int, hash64: Hash64) -> bool:
    """Whether a whole block begins anywhere from `start` on, or so many seem to that no tear has
    left them."""
    at = data.find(MAGIC, start)
    for _place in range(_MOST_SOUGHT):
        if at < 0:
            return False
        with suppress(BadTrace):
            read_block_untrusted(data, at, hash64)
            return True
        at = data.find(MAGIC, at + 1)
    return True


def is_over(data: bytes, at: int) -> bool:
    """Whether no block follows: the data end here, or are zeros from here on (allocated ahead)."""
    if at == len(data):
        return True
    # A journal writes the magic of a block last. So zeros and then something else are a block that
    # was never finished.
    if data[at : at + len(NO_MAGIC)] != NO_MAGIC[: len(data) - at]:
        return False
    if any(map(_is_something, _pieces(data, at))):
        raise BadTrace(f"{TORN} block")
    return True


def _pieces(data: bytes, at: int) -> Iterator[bytes]:
    return (data[start : start + len(_ZEROS)] for start in range(at, len(data), len(_ZEROS)))


def _is_something(piece: bytes) -> bool:
    return piece != _ZEROS[: len(piece)]


def read_block_untrusted(data: bytes, at: int, hash64: Hash64) -> tuple[Block, int]:
    """Return the block that begins at `at`, and the position of its end."""
    if len(data) - at < HEADER.size:
        raise BadTrace(f"{TORN} block header")
    front = HEADER.unpack_from(data, at)
    magic, version, header, member, count, first, wall_ns, texts_size, _reserved, check = front
    if magic != MAGIC:
        raise BadTrace("not a trace block")
    if version not in READABLE or header != HEADER.size:
        raise BadTrace(f"trace version {version}")
    body_at = at + HEADER.size
    texts_at = body_at + count * RECORD.size
    end = texts_at + texts_size
    if end > len(data):
        raise BadTrace(f"{TORN} block")
    body = data[body_at:end]
    if hash64(data[at : body_at - 8] + body) != check:
        raise BadTrace("block check")
    events = list(map(_new_event, RECORD.iter_unpack(data[body_at:texts_at])))
    texts = _read_texts_untrusted(data[texts_at:end])
    if any(event.text > len(texts) for event in events):
        raise BadTrace("text number")
    return Block(member, first, wall_ns, events, texts, end - at, version), end


def _read_texts_untrusted(heap: bytes) -> list[str]:
    texts, at = [], 0
    while at < len(heap):
        start = at + 2
        at = start + int.from_bytes(heap[at:start], "little")
        if at > len(heap):
            raise BadTrace("texts")
        texts.append(heap[start:at].decode(errors="replace"))
    return texts


def describe_start(address: Address, settings: str) -> str:
    """Return the text of a START event: name, identity and settings."""
    return f"{address.name} {address.identity:032x} {settings}"


def describe_loss(event: Event, why: str) -> str:
    """Return a TRUNCATED event in words."""
    lost = f"{event.lo}..{event.hi}" if event.count else f"from {event.lo} on"
    return f"events {lost} were not kept: {why}"
