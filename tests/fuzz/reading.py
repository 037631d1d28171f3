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
IN_SEALS: Final = (
    "short", "magic", "version", "cluster", "head-check", "not-sealed", "size", "truncated",
    "key-unknown", "forged", "replayed",
)  # fmt: skip  # two lines
"""The same, of a member with a key."""
MOST: Final = 1 << 24
"""Bytes of a body."""
LENGTH: Final = 4
LONGEST_HELLO: Final = 1024
HELLO: Final = 18
"""Bytes of a hello before its address."""
IDENTITY: Final = 16
BY_STACK: Final = ("other-destination", "bad-source", "protocol")
FORESEEN: Final = (*dict.fromkeys((*IN_HEADS, *IN_SEALS)), *BY_STACK)
"""The reasons that follow from the bytes alone."""
SEAL: Final = 24 + 16
"""Bytes of a seal around the body of a frame: its mark and its tag."""
TEXT_SEAL: Final = 24 + 8 + 16
"""Bytes of a seal behind a hello: mark, number, tag."""
UNKEYED: Final = ("not-sealed", "key-unknown")
"""The reasons of which the other end is told that there is a key."""


def heard(data: bytes, cluster: int, at: int = 0) -> Head | str:
    """Return the head of the frame at a place, or the reason why a member without a key takes
    none."""
    head = _head(data, cluster, at)
    if isinstance(head, str):
        return head
    if head.seal:
        return "sealed"
    if head.size > MOST or head.headers > head.size:
        return "size"
    body = data[at + wire.HEAD_SIZE : at + wire.HEAD_SIZE + head.size]
    if len(body) < head.size:
        return "truncated"
    if body and hash64(body) != head.digest:
        return "digest"
    return head


def heard_with_key(data: bytes, facts: Facts, at: int = 0) -> Head | str:
    """The same of a member with a key. Whoever has not the key makes no seal that fits, so the only
    good frames are those that were recorded, bit by bit."""
    head = _head(data, facts.cluster, at)
    if isinstance(head, str):
        return head
    if head.seal != 1:
        return "not-sealed"
    if not SEAL <= head.size <= MOST + SEAL:
        return "size"
    begin, end = at + wire.HEAD_SIZE, at + wire.HEAD_SIZE + head.size
    if end > len(data):
        return "truncated"
    if int.from_bytes(data[begin : begin + 4], "big") not in facts.keys:
        return "key-unknown"
    return head if data[at:end] in facts.genuine else "forged"


def _head(data: bytes, cluster: int, at: int) -> Head | str:
    """Return the head at a place, or what is wrong with it."""
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
    return head


def greeted(stream: bytes, facts: Facts) -> str:  # noqa: PLR0911 one per reason
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
    if body[:4] not in (b"SCtp", b"SCts"):
        return "hello-cookie"
    if body[4:6] != b"\0\1":
        return "hello-version"
    if facts.is_keyed:
        return _sealed(body, facts)
    if body[:4] == b"SCts":
        return "sealed"
    if why := _addressed(body[HELLO:]):
        return why
    return "" if int.from_bytes(body[6:10], "big") == facts.cluster else "hello-cluster"


def _sealed(body: bytes, facts: Facts) -> str:
    """Return why the seal of a hello is none; empty for one that was recorded, bit by bit."""
    if body[:4] == b"SCtp" or len(body) < TEXT_SEAL:
        return "not-sealed"
    if int.from_bytes(body[-TEXT_SEAL:][:4], "big") not in facts.keys:
        return "key-unknown"
    return "" if body in facts.said else "forged"


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


def foresee(
    data: bytes, me: int, facts: Facts, replays: set[tuple[int, bytes]] | None = None
) -> Foreseen:
    """Say what a member does with one datagram, or one frame of a stream. `replays`: of a group
    with keys, the genuine frames that each member was sent before."""
    if facts.is_keyed:
        return _with_key(data, me, facts, set() if replays is None else replays)
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


def _with_key(data: bytes, me: int, facts: Facts, replays: set[tuple[int, bytes]]) -> Foreseen:
    """A genuine frame is taken once: by those to whom it was sent, before it was recorded. Others
    hear it now, unless it is older than the numbers that they tell apart."""
    certain: Counter[str] = Counter()
    possible: Counter[str] = Counter()
    counts, at, passed, sender = certain, 0, 0, 0
    while at < len(data):
        head = heard_with_key(data, facts, at)
        if isinstance(head, str):
            counts[head] += 1
            break
        frame = data[at : at + wire.HEAD_SIZE + head.size]
        at += len(frame)
        sealer = int.from_bytes(frame[wire.HEAD_SIZE + 20 : wire.HEAD_SIZE + 24], "big")
        was_heard = head.dest == me or (head.dest == wire.GROUP and me not in (sealer, head.source))
        if was_heard or (me, frame) in replays:
            counts["replayed"] += 1
            # Those behind it are read, unless it is so old that nothing is known of it any more.
            counts = possible
            continue
        replays.add((me, frame))
        counts = possible
        counts["replayed"] += 1
        if head.dest not in (me, wire.GROUP):
            counts["other-destination"] += 1
        elif head.source == me:
            counts["bad-source"] += 1
        else:
            passed += 1
    return Foreseen(certain, possible, passed, sender)
