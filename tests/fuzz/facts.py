"""Facts: all that an attacker on the members' network can know of a group.

Frames are made from facts, so a frame is the same in two groups, but for who is meant. `translated`
gives frames that were recorded in one group the identities of another.
"""

from __future__ import annotations

import json
import struct
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, Final

from xxhash import xxh3_64_intdigest as hash64
from xxhash import xxh3_128_intdigest

from stormcast.node.core import wire
from stormcast.node.core.model import Address, View, ViewId

STRANGERS: Final = 64
"""So many senders that are in no view take turns: enough to fill what is kept of one sender, few
enough to come again."""
_CHECK: Final = struct.Struct(">I")


@dataclass(frozen=True, kw_only=True)
class Facts:
    """A group, as its network shows it."""

    cluster: int
    members: tuple[Address, ...]
    """In the order of the view."""
    view: int
    """Number of the view; its creator is the first member."""
    monitors: tuple[int, ...]
    """By member: the port of FD_SOCK2."""
    alone: tuple[int, ...]
    """Protocols that take frames for one member."""
    group: tuple[int, ...]
    """Protocols that take frames for the group."""
    multicast: tuple[str, int] = ("", 0)
    """Where multicasts go; no host: nowhere."""
    corpus: tuple[bytes, ...] = ()
    """Frames that members have sent."""
    hellos: tuple[bytes, ...] = ()
    """Sealed hellos that members have said, each with its length in front."""
    is_keyed: bool = False
    """Whether members have a key, and refuse what is not sealed by it."""

    @property
    def shorts(self) -> tuple[int, ...]:
        """The short ids of the members."""
        return tuple(member.short for member in self.members)

    @cached_property
    def genuine(self) -> frozenset[bytes]:
        """The frames that members have sent."""
        return frozenset(self.corpus)

    @cached_property
    def said(self) -> frozenset[bytes]:
        """The sealed hellos that members have said, without their lengths."""
        return frozenset(hello[4:] for hello in self.hellos)

    @cached_property
    def keys(self) -> tuple[int, ...]:
        """The ids of the keys by which members seal, as each frame shows them."""
        at = wire.HEAD_SIZE
        marks = (frame[at : at + 4] for frame in self.corpus if frame[wire.OFFSETS["seal"]])
        return tuple(sorted({int.from_bytes(mark, "big") for mark in marks}))

    def view_of(self, members: Sequence[Address], number: int, creator: Address) -> View:
        """Return a view."""
        return View(ViewId(number, creator), tuple(members))

    def save(self, path: Path) -> None:
        """Write all of it as JSON."""
        words = asdict(self) | {
            "members": [(f"{m.identity:x}", m.name, m.where) for m in self.members],
            "corpus": [frame.hex() for frame in self.corpus],
            "hellos": [hello.hex() for hello in self.hellos],
        }
        path.write_text(json.dumps(words))

    @classmethod
    def load(cls, path: Path) -> Facts:
        """Read what `save` has written."""
        words: dict[str, Any] = json.loads(path.read_text())
        members = tuple(Address(int(one, 16), name, at) for one, name, at in words.pop("members"))
        corpus, hellos = (
            tuple(bytes.fromhex(one) for one in words.pop(key, ())) for key in ("corpus", "hellos")
        )
        lists = {key: tuple(words.pop(key)) for key in ("monitors", "alone", "group", "multicast")}
        return cls(members=members, corpus=corpus, hellos=hellos, **lists, **words)


def strangers(seed: int) -> tuple[Address, ...]:
    """Return senders that are in no view, each somewhere in a network of its own."""
    return tuple(
        Address(
            xxh3_128_intdigest(f"stranger {seed} {number}".encode()) | 1,
            f"x{number}",
            f"198.19.{number}.1[7800]",
        )
        for number in range(STRANGERS)
    )


def whole_frames(payload: bytes) -> list[bytes]:
    """Return the frames that stand back to back at the start of a payload."""
    frames, at = [], 0
    while len(payload) - at >= wire.HEAD_SIZE and payload[at] == wire.MAGIC:
        end = at + wire.HEAD_SIZE + int.from_bytes(payload[at:][wire.span("size")], "big")
        if end > len(payload):
            break
        frames.append(payload[at:end])
        at = end
    return frames


def framed(payload: bytes) -> list[bytes]:
    """Return the frames of a piece of a stream: each has its length in front."""
    frames, at = [], 0
    while at + _CHECK.size < len(payload):
        (size,) = _CHECK.unpack_from(payload, at)
        frame = payload[at + _CHECK.size : at + _CHECK.size + size]
        if len(frame) != size or whole_frames(frame) != [frame]:
            break
        frames.append(frame)
        at += _CHECK.size + size
    return frames


def hellos_in(payload: bytes) -> list[bytes]:
    """Return the sealed hellos that stand back to back at the start of a piece of a stream."""
    found, at = [], 0
    while payload[at + _CHECK.size : at + _CHECK.size + 4] == b"SCts":
        (size,) = _CHECK.unpack_from(payload, at)
        hello = payload[at : at + _CHECK.size + size]
        if len(hello) < _CHECK.size + size:
            break
        found.append(hello)
        at += len(hello)
    return found


def rechecked(head: bytes) -> bytes:
    """Return a head with the check that belongs to it."""
    front = head[: wire.CHECK_OFFSET]
    return front + _CHECK.pack(hash64(front) & 0xFFFFFFFF)


def sealed(front: bytes, body: bytes) -> bytes:
    """Return a frame with the checks, of a group without keys, that belong to these fields and
    this body."""
    digest = hash64(body) if body else 0
    at = wire.span("digest")
    head = front[: at.start] + digest.to_bytes(8, "big") + front[at.stop : wire.CHECK_OFFSET]
    return head + _CHECK.pack(hash64(head) & 0xFFFFFFFF) + body


def translated(frames: Iterable[bytes], old: Facts, new: Facts) -> tuple[bytes, ...]:
    """Return frames of one group as the other's members, of the same places in the view, would
    have sent them."""
    shorts = dict(zip(old.shorts, new.shorts, strict=False))
    names = [
        (one.identity.to_bytes(16, "big"), other.identity.to_bytes(16, "big"))
        for one, other in zip(old.members, new.members, strict=False)
    ]
    made = []
    for frame in frames:
        head = wire.Head._make(wire.HEAD_STRUCT.unpack_from(frame))
        body = frame[wire.HEAD_SIZE :]
        for one, other in names:
            body = body.replace(one, other)
        fields = head._replace(
            cluster=new.cluster,
            source=shorts.get(head.source, head.source),
            dest=shorts.get(head.dest, head.dest),
            conn=shorts.get(head.conn, head.conn),
        )
        made.append(sealed(wire.HEAD_STRUCT.pack(*fields), body))
    return tuple(made)


def counterparts(frames: Sequence[bytes], old: Facts, new: Facts) -> tuple[bytes, ...]:
    """Return for each frame of one group with keys a genuine one of the other: its seal cannot be
    made anew. It is of the same kind, and of the same place in the view, if there is one."""
    by_like: dict[tuple[int, ...], list[bytes]] = {}
    for frame in new.corpus:
        for like in _likes(frame, new):
            by_like.setdefault(like, []).append(frame)
    found = []
    for number, frame in enumerate(frames):
        several = next((by_like[like] for like in _likes(frame, old) if like in by_like), ())
        found += [several[number % len(several)]] if several else []
    return tuple(found)


def _likes(frame: bytes, facts: Facts) -> list[tuple[int, ...]]:
    """Return what a frame has in common with others, the most first."""
    head = wire.Head._make(wire.HEAD_STRUCT.unpack_from(frame))
    places = {short: number for number, short in enumerate(facts.shorts)}
    source, dest = places.get(head.source, -1), places.get(head.dest, -1)
    return [(head.protocol, head.kind, source, dest), (head.protocol, head.kind), ()]
