"""What a member must say of bytes before it looks at protocols: written from docs/wire-format.md,
not from the product, so that the two check each other."""

from __future__ import annotations

from collections import Counter
from typing import Final, NamedTuple

from xxhash import xxh3_64_intdigest as hash64

from stormcast.node.core import wire
from stormcast.node.core.wire import Head
from tests.fuzz.facts import Facts

IN_HEADS: Final = (
    "short", "magic", "version", "cluster", "head-check", "size", "truncated", "digest",
)  # fmt: skip  # one line
BY_STACK: Final = ("other-destination", "bad-source", "protocol")
FORESEEN: Final = (*IN_HEADS, *BY_STACK)
"""The reasons that follow from the bytes alone."""


def heard(data: bytes, cluster: int, at: int = 0) -> Head | str:  # noqa: PLR0911 one per reason
    """Return the head of the frame at a place, or the reason why there is none."""
    if len(data) - at < wire.HEAD_SIZE:
        return "short"
    head = Head._make(wire.HEAD_STRUCT.unpack_from(data, at))
    if head.magic != wire.MAGIC:
        return "magic"
    if head.version != wire.VERSION:
        return "version"
    if head.cluster != cluster:
        return "cluster"
    if hash64(data[at : at + wire.CHECK_OFFSET]) & 0xFFFFFFFF != head.check:
        return "head-check"
    if head.size > 1 << 24 or head.headers > head.size:
        return "size"
    body = data[at + wire.HEAD_SIZE : at + wire.HEAD_SIZE + head.size]
    if len(body) < head.size:
        return "truncated"
    if body and hash64(body) != head.digest:
        return "digest"
    return head


class Foreseen(NamedTuple):
    """What a member does with some bytes."""

    certain: Counter[str]
    """Refusals by reason, whatever state the member is in."""
    possible: Counter[str]
    """Those that also come if no protocol refuses a frame before them in the same datagram."""
    passed: int
    """Frames that reach a protocol, at most."""
    sender: int
    """Sender of the last good frame; 0 if there is none."""


def foresee(data: bytes, me: int, facts: Facts) -> Foreseen:
    """Say what a member does with one datagram, or one frame of a stream."""
    certain: Counter[str] = Counter()
    possible: Counter[str] = Counter()
    counts = certain
    at = passed = sender = 0
    while at < len(data):
        head = heard(data, facts.cluster, at)
        if isinstance(head, str):
            counts[head] += 1
            break
        at += wire.HEAD_SIZE + head.size
        sender = head.source
        routes = facts.alone if head.dest == me else facts.group
        if head.dest not in (me, wire.GROUP):
            counts["other-destination"] += 1
        elif head.source in (me, 0):
            counts["bad-source"] += 1
        elif head.protocol not in routes:
            counts["protocol"] += 1
        else:
            passed += 1
            # Its protocol may refuse it, and the rest of the datagram with it.
            counts = possible
    return Foreseen(certain, possible, passed, sender)
