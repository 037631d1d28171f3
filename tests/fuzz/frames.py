"""Hostile frames: frame `n` of seed `s` is the same each time, for the same facts.

A frame begins as one that a member would send: a kind of a protocol, with the numbers and names of
the group under attack. Then it lies: about who sent it, in a field, in a noun of its body, in its
checks or its length. Others are recorded ones, once more or harmed; and some are noise. To a group
with keys half of those that begin so have no seal, and the others one that does not fit.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from random import Random
from typing import Final, NamedTuple

from stormcast.node.core import wire
from stormcast.node.core.model import FIRST, FRAGMENT, Address
from stormcast.node.core.wire import Head
from tests.fuzz.facts import Facts, rechecked, sealed, strangers
from tests.fuzz.forging import Forger, pick
from tests.fuzz.nouns import EDGES, Body, Nouns, near
from tests.fuzz.powers import Power, power_of

QUESTION: Final = struct.Struct(">4sBIIQ")
"""Who hears multicast: docs/wire-format.md."""
CHUNK: Final = 8
"""Frames that are made from one draw of chance. Ranges begin and end between chunks."""
SEALED: Final = 0.5
"""Share of the frames to a group with keys that get a seal, which does not fit."""
_MUTABLE: Final = (
    "count", "kind", "protocol", "transmission", "flags", "dest", "conn", "lo", "mark", "stamp",
    "headers", "width", "seal", "source",
)  # fmt: skip  # they would be a column
_BITS: Final = {name: 8 * (wire.span(name).stop - wire.span(name).start) for name in wire.FIELDS}


class Frame(NamedTuple):
    """One hostile frame."""

    number: int
    data: bytes
    recipe: tuple[str, ...]
    """How it was made, for people."""
    power: Power
    """What it may do to a group without keys."""

    def __str__(self) -> str:
        return f"{self.number}: {' '.join(self.recipe)}: {described(self.data)}"


def described(data: bytes) -> str:
    """Return the fields of a frame as text, and its bytes."""
    if len(data) < wire.HEAD_SIZE:
        return data.hex()
    head = Head._make(wire.HEAD_STRUCT.unpack_from(data))
    kind, protocol = wire.KINDS.get(head.kind), wire.PROTOCOLS.get(head.protocol)
    words = [f"{kind[0] if kind else head.kind} of {protocol or head.protocol}"]
    words += [
        f"{name}={value:x}" if name in {"source", "dest", "conn"} else f"{name}={value}"
        for name, value in head._asdict().items()
        if value and name not in {"magic", "version", "kind", "protocol", "cluster", "check"}
    ]
    return f"{' '.join(words)} body={data[wire.HEAD_SIZE :][:200].hex()}"


class FrameMaker:
    """Makes the frames of one seed against one group."""

    def __init__(self, facts: Facts, seed: int, *, is_defused: bool) -> None:
        self.facts = facts
        self.seed = seed
        self.is_defused = is_defused
        """Whether frames that have power over a group without keys lose it: they are said to be of
        a stranger, or their check is made wrong."""
        self.others = strangers(seed)
        self._nouns = Nouns(facts, self.others)
        self._pairs = self._nouns.pairs()
        self.forger = Forger(facts, seed)

    def dice(self, chunk: int, what: str = "frames") -> Random:
        """Return the chance of a chunk, for one purpose."""
        return Random(f"{self.seed} {chunk} {what}")

    def chunk(self, number: int) -> list[Frame]:
        """Return the frames of a chunk."""
        dice = self.dice(number)
        receiver = self.receiver(number)
        first = number * CHUNK
        return [self._made(dice, first + n, receiver) for n in range(CHUNK)]

    def receiver(self, chunk: int) -> Address:
        """Return the member that a chunk is meant for."""
        return self.facts.members[chunk % len(self.facts.members)]

    def frames(self, first: int, count: int) -> Iterator[Frame]:
        """Return the frames of a range."""
        for number in range(first // CHUNK, (first + count + CHUNK - 1) // CHUNK):
            for frame in self.chunk(number):
                if first <= frame.number < first + count:
                    yield frame

    # -- One frame -----------------------------------------------------------------------------

    def _made(self, dice: Random, number: int, receiver: Address) -> Frame:
        how = dice.random()
        if how < 0.04:
            data, recipe = self._noise(dice), ("noise",)
        elif how < 0.05:
            data, recipe = self._question(dice, receiver), ("question",)
        elif how < 0.14 and self.facts.corpus:
            data, recipe = self._recorded(dice)
        else:
            data, recipe = self._built(dice, receiver)
            if self.facts.is_keyed and len(data) >= wire.HEAD_SIZE and dice.random() < SEALED:
                data, seal = self.forger.frame(dice, data)
                recipe += (seal,)
        power = power_of(data, self.facts)
        if power is not Power.NONE and self.is_defused:
            data, recipe = self._defused(dice, data, recipe)
            power = power_of(data, self.facts)
            assert power is Power.NONE, (recipe, described(data))
        return Frame(number, data, recipe, power)

    def _noise(self, dice: Random) -> bytes:
        size = dice.choice((0, 1, 3, 4, 21, 31, 63, 64, 65, 200, 1400))
        noise = dice.randbytes(size)
        how = dice.randrange(3)
        if how == 0:
            return noise
        front = bytes((wire.MAGIC, wire.VERSION)) + noise
        if how == 1 or size < wire.HEAD_SIZE:
            return front
        return noise[:8] + self.facts.cluster.to_bytes(4, "big") + noise[12:]

    def _question(self, dice: Random, receiver: Address) -> bytes:
        """A question whether multicasts are heard, or an answer, whose secret is guessed."""
        who = dice.choice((*self.facts.shorts, receiver.short, dice.choice(self.others).short, 0))
        cluster = dice.choice((self.facts.cluster, self.facts.cluster, 0))
        return QUESTION.pack(
            b"SCmp", dice.choice((0, 1, 2, 255)), cluster, who, near(dice, dice.getrandbits(64))
        )

    def _recorded(self, dice: Random) -> tuple[bytes, tuple[str, ...]]:
        corpus = self.facts.corpus
        data = pick(dice, corpus) if self.facts.is_keyed else dice.choice(corpus)
        if dice.random() < 0.5:
            return data, ("recorded",)
        body = bytearray(data[wire.HEAD_SIZE :])
        if body and dice.random() < 0.5:
            _harm(dice, body)
            fields = Head._make(wire.HEAD_STRUCT.unpack_from(data))._replace(size=len(body))
            return sealed(wire.HEAD_STRUCT.pack(*fields), bytes(body)), ("recorded", "harmed-body")
        whole = bytearray(data)
        _harm(dice, whole)
        return bytes(whole), ("recorded", "harmed")

    def _speaker(self, dice: Random, receiver: Address) -> tuple[Address, str]:
        how = dice.random()
        if how < 0.45:
            return dice.choice([one for one in self.facts.members if one != receiver]), "member"
        if how < 0.92:
            return dice.choice(self.others), "stranger"
        if how < 0.96:
            return receiver, "itself"
        # The short id is the low half: these are said to be 0, 1, the highest, and any.
        short = dice.choice((0, 1, 0xFFFFFFFF, dice.getrandbits(32)))
        return Address(1 << 64 | short, "nobody"), "nobody"

    def _built(self, dice: Random, receiver: Address) -> tuple[bytes, tuple[str, ...]]:
        speaker, who = self._speaker(dice, receiver)
        protocol, kind = dice.choice(self._pairs)
        if dice.random() < 0.8:
            # Of what this group speaks, else most would be refused for their protocol.
            protocol, kind = self._spoken(dice, protocol, kind)
        body = self._nouns.write(dice, protocol, kind, speaker)
        recipe = [who]
        data = bytearray(body.data)
        if data and dice.random() < 0.1:
            _harm(dice, data)
            recipe.append("harmed-body")
        fields = self._fields(dice, protocol, kind, speaker, receiver, body)
        fields["size"] = len(data)
        for _ in range(dice.choice((0, 0, 1, 1, 2))):
            name = dice.choice(_MUTABLE)
            fields[name] = self._value(dice, fields[name])
            recipe.append(name)
        front = wire.HEAD_STRUCT.pack(*(fields[n] & (1 << _BITS[n]) - 1 for n in wire.FIELDS))
        whole = sealed(front, bytes(data))
        if dice.random() < 0.15:
            whole, broken = self._broken(dice, whole, front, bytes(data))
            recipe.append(broken)
        return whole, tuple(recipe)

    def _spoken(self, dice: Random, protocol: int, kind: int) -> tuple[int, int]:
        spoken = self.facts.alone
        for _ in range(8):
            if protocol in spoken:
                break
            protocol, kind = dice.choice(self._pairs)
        return protocol, kind

    def _fields(
        self,
        dice: Random,
        protocol: int,
        kind: int,
        speaker: Address,
        receiver: Address,
        body: Body,
    ) -> dict[str, int]:
        facts = self.facts
        is_windowed = protocol in {wire.UNICAST, wire.UNICAST2, wire.UNICAST3, wire.UNICAST4}
        conn = dice.choice((1, 1, 2, near(dice, 1))) if is_windowed else 0
        if kind == wire.XMIT_REQ and not is_windowed:
            conn = dice.choice(facts.shorts)
        flags = FRAGMENT if body.headers else 0
        lo = near(dice, dice.choice((1, 2, facts.view)))
        if kind == wire.DATA and (lo == 1 or dice.random() < 0.2):
            flags |= FIRST
        return {
            "magic": wire.MAGIC,
            "version": wire.VERSION,
            "count": body.count,
            "kind": kind,
            "protocol": protocol,
            "transmission": dice.choice((0, 0, 1, 255)),
            "flags": flags | dice.choice((0, 0, 0, dice.getrandbits(8))),
            "cluster": facts.cluster,
            "source": speaker.short,
            "dest": dice.choice((receiver.short, receiver.short, receiver.short, wire.GROUP)),
            "conn": conn,
            "lo": lo,
            "digest": 0,
            "mark": near(dice, 0) if dice.random() < 0.4 else 0,
            "stamp": near(dice, 0) if dice.random() < 0.4 else 0,
            "size": len(body.data),
            "headers": body.headers,
            "width": body.width,
            "seal": 0,
            "check": 0,
        }

    def _value(self, dice: Random, value: int) -> int:
        if dice.random() < 0.3:
            return dice.choice(
                (*self.facts.shorts, self.facts.view, dice.choice(self.others).short)
            )
        return near(dice, value)

    def _broken(self, dice: Random, whole: bytes, front: bytes, body: bytes) -> tuple[bytes, str]:
        """Break what every frame must have: its checks, its length, its cluster."""
        how = dice.choice(("digest", "check", "size", "cluster", "version", "magic", "cut", "more"))
        if how == "cut":
            return whole[: dice.randrange(len(whole))], how
        if how == "more":
            return whole + dice.randbytes(dice.choice((1, 3, 64, 100))), how
        if how == "check":
            return _wrong(dice, whole, wire.span("check")), how
        if how == "digest":
            # Under a check that is right.
            head = bytearray(whole[: wire.HEAD_SIZE])
            head[wire.span("digest")] = dice.randbytes(8)
            return rechecked(bytes(head)) + body, how
        if how == "size":
            size = dice.choice((len(body) + 1, len(body) + 64, 1 << 24, (1 << 24) + 1, 0xFFFFFFFF))
            head = bytearray(whole[: wire.HEAD_SIZE])
            head[wire.span("size")] = size.to_bytes(4, "big")
            return rechecked(bytes(head)) + body, how
        head = bytearray(front)
        at = wire.span(how)
        value = dice.choice((0, 2, 0xFF, dice.getrandbits(32), *EDGES)) & (1 << _BITS[how]) - 1
        head[at] = value.to_bytes(_BITS[how] // 8, "big")
        return sealed(bytes(head), body), how

    def _defused(
        self, dice: Random, data: bytes, recipe: tuple[str, ...]
    ) -> tuple[bytes, tuple[str, ...]]:
        """Take a frame its power: it is a stranger's; or, if that is not enough, not a frame."""
        head = Head._make(wire.HEAD_STRUCT.unpack_from(data))
        body = data[wire.HEAD_SIZE : wire.HEAD_SIZE + head.size]
        source = dice.choice(self.others).short
        made = sealed(wire.HEAD_STRUCT.pack(*head._replace(source=source)), body)
        if power_of(made, self.facts) is Power.NONE:
            return made, (*recipe, "as-stranger")
        return _wrong(dice, data, wire.span("check")), (*recipe, "unsealed")


def _wrong(dice: Random, data: bytes, at: slice) -> bytes:
    """Return bytes with another value at one place."""
    value = int.from_bytes(data[at], "big") ^ dice.randrange(1, 1 << 8 * (at.stop - at.start))
    return data[: at.start] + value.to_bytes(at.stop - at.start, "big") + data[at.stop :]


def _harm(dice: Random, data: bytearray) -> None:
    """Change, cut out, repeat or put in a few bytes."""
    at = dice.randrange(len(data))
    how = dice.randrange(4)
    if how == 0:
        data[at] ^= 1 << dice.randrange(8)
    elif how == 1:
        del data[at : at + dice.randrange(1, 20)]
    elif how == 2:
        data[at:at] = data[at : at + dice.randrange(1, 40)]
    else:
        data[at : at + 4] = dice.choice((b"\xff\xff\xff\xff", b"\0\0\0\0", dice.randbytes(4)))
