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
    "short", "magic", "version", "cluster", "head-check", "sealed", "size", "truncated", "digest",
)  # fmt: skip  # one line
LENGTH: Final = 4
LONGEST_HELLO: Final = 1024
HELLO: Final = 18
"""Bytes of a hello before its address."""
IDENTITY: Final = 16
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
    if head.seal:
        return "sealed"
    if head.size > 1 << 24 or head.headers > head.size:
        return "size"
    body = data[at + wire.HEAD_SIZE : at + wire.HEAD_SIZE + head.size]
    if len(body) < head.size:
        return "truncated"
    if body and hash64(body) != head.digest:
        return "digest"
    return head


def greeted(stream: bytes, cluster: int) -> str:  # noqa: PLR0911 one per reason
    """Return why a member refuses the hello that a stream begins with; empty if it does not, or if
    the hello is not whole."""
    size = int.from_bytes(stream[:4], "big")
    body = stream[4 : 4 + size]
    if len(stream) < LENGTH or (size <= LONGEST_HELLO and len(body) < size):
        return ""
    if size > LONGEST_HELLO:
        return "hello-length"
    if size < HELLO:
        return "hello-short"
    if body[:4] != b"SCtp":
        return "hello-cookie"
    if body[4:6] != b"\0\1":
        return "hello-version"
    if why := _addressed(body[HELLO:]):
        return why
    return "" if int.from_bytes(body[6:10], "big") == cluster else "hello-cluster"


def _addressed(data: bytes) -> str:
    """Return why bytes are not just one address."""
    at = IDENTITY
    if len(data) >= IDENTITY and not any(data[:IDENTITY]):
        return "address"
    for _text in ("name", "where"):
        if at >= len(data):
            return "body-short"
        at += 1 + data[at]
    if at > len(data):
        return "body-short"
    return "body-long" if at < len(data) else ""


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
