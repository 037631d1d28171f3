"""What one without the key can send to a group that has one, besides frames and hellos without a
seal: seals of a key of its own, seals that were heard, around other words, and seals harmed.

Everything is drawn from `dice`, so a frame is the same each time for the same facts.
"""

from __future__ import annotations

from collections.abc import Sequence
from hashlib import sha256
from random import Random
from typing import Final, TypeVar

from xxhash import xxh3_64_intdigest as hash64

from stormcast.node.core import wire
from stormcast.node.core.codec import Codec
from stormcast.node.core.model import Address
from stormcast.node.core.packing import Writer
from stormcast.node.core.wire import Head
from stormcast.node.keys.cluster_keys import ClusterKey
from stormcast.node.keys.seals import Seals
from stormcast.node.transports.handshake import (
    ACCEPT,
    COOKIE,
    DIAL,
    KEYS,
    NONCE_SIZE,
    PROVE,
    SEALED_COOKIE,
    WATCH,
    WATCHED,
    Hello,
    pack_hello,
)
from tests.fuzz.facts import Facts, rechecked

MARK: Final = wire.SEAL_STRUCT.size
OVERHEAD: Final = MARK + wire.SEAL_TAG
"""Bytes that a seal adds to a frame."""
ROLES: Final = (DIAL, DIAL, DIAL, ACCEPT, PROVE, WATCH, WATCH, WATCHED, KEYS, 0, 255)
_KEY_ID: Final = 4
_CUT: Final = (0, 1, MARK, OVERHEAD - 1, OVERHEAD)
"""Sizes of what stands where a seal is: below that of a seal, and just that."""
T = TypeVar("T")


def pick(dice: Random, things: Sequence[T]) -> T:
    """Return one of these by one draw, however many there are: another group has as many other
    things, and the draws after this one stay the same."""
    return things[int(dice.random() * len(things))]


class Forger:
    """Makes frames and hellos with seals that no member takes, for one seed and group."""

    def __init__(self, facts: Facts, seed: int) -> None:
        self._facts = facts
        self._key = ClusterKey(sha256(f"a stranger's key {seed}".encode()).digest())

    # -- Frames --------------------------------------------------------------------------------

    def frame(self, dice: Random, data: bytes) -> tuple[bytes, str]:
        """Return a frame in a seal of some kind, and which."""
        ways = [self._other_key, self._seal_byte]
        if self._facts.corpus and self._facts.keys:
            ways += [
                self._claimed_key, self._in_its_seal, self._harmed_head, self._harmed_seal,
                self._two_seals, self._short_seal,
            ]  # fmt: skip  # they would be a column
        way = pick(dice, ways)
        return way(dice, data), way.__name__.lstrip("_").replace("_", "-")

    def _genuine(self, dice: Random) -> bytes:
        return pick(dice, self._facts.corpus)

    def _seals(self, dice: Random, short: int) -> Seals:
        return Seals((self._key,), self._facts.cluster, short, dice.randbytes)

    def _other_key(self, dice: Random, data: bytes) -> bytes:
        """The seal of another key: right in itself."""
        head, body = data[: wire.HEAD_SIZE], data[wire.HEAD_SIZE :]
        source = int.from_bytes(head[wire.span("source")], "big")
        codec = Codec(self._facts.cluster, source, hash64)
        ((_dest, front, rest),) = self._seals(dice, source).seal([(0, head, body)], codec)
        return front + rest

    def _claimed_key(self, dice: Random, data: bytes) -> bytes:
        """The same, and it says to be of the group's key."""
        made = bytearray(self._other_key(dice, data))
        at = wire.HEAD_SIZE
        made[at : at + _KEY_ID] = pick(dice, self._facts.keys).to_bytes(_KEY_ID, "big")
        return bytes(made)

    def _seal_byte(self, dice: Random, data: bytes) -> bytes:
        """No seal, and a head that says there is one, or something else."""
        return _with(data, seal=dice.choice((1, 2, 255)))

    def _in_its_seal(self, dice: Random, data: bytes) -> bytes:
        """A forged frame with the mark and the tag of a genuine one, and a number near its own."""
        genuine = self._genuine(dice)
        number = _head(genuine).digest + dice.choice((0, 1, 1, 2, 9000))
        body = data[wire.HEAD_SIZE :]
        mark = genuine[wire.HEAD_SIZE : wire.HEAD_SIZE + MARK]
        whole = data[: wire.HEAD_SIZE] + mark + body + genuine[-wire.SEAL_TAG :]
        return _with(whole, seal=1, digest=number, size=len(body) + OVERHEAD)

    def _harmed_head(self, dice: Random, _data: bytes) -> bytes:
        """A genuine frame of which the head says something else, under a check that is right."""
        genuine = self._genuine(dice)
        head = _head(genuine)
        name = dice.choice(("source", "dest", "kind", "protocol", "lo", "mark", "digest", "flags"))
        value = getattr(head, name) ^ 1 << dice.randrange(8)
        if name in {"source", "dest"} and dice.random() < 0.7:
            value = dice.choice(self._facts.shorts)
        return _with(genuine, **{name: value})

    def _harmed_seal(self, dice: Random, _data: bytes) -> bytes:
        """A genuine frame with a bit turned over in its mark, its words or its tag."""
        whole = bytearray(self._genuine(dice))
        at = dice.choice((0, _KEY_ID, MARK - 1, -1, -wire.SEAL_TAG, MARK))
        whole[at if at < 0 else wire.HEAD_SIZE + at] ^= 1 << dice.randrange(8)
        return bytes(whole)

    def _two_seals(self, dice: Random, _data: bytes) -> bytes:
        """The head of one genuine frame with the words of another."""
        one, other = self._genuine(dice), self._genuine(dice)
        body = other[wire.HEAD_SIZE :]
        return _with(one[: wire.HEAD_SIZE] + body, size=len(body))

    def _short_seal(self, dice: Random, _data: bytes) -> bytes:
        """A genuine head, and less than a seal behind it, or more than a frame may have."""
        genuine = self._genuine(dice)
        if dice.random() < 0.2:
            return _with(genuine, size=wire.MAX_BODY + OVERHEAD + dice.choice((0, 1)))
        size = dice.choice(_CUT)
        return _with(genuine[: wire.HEAD_SIZE + size], size=size)

    # -- Hellos --------------------------------------------------------------------------------

    def hello(self, dice: Random, stranger: Address) -> tuple[bytes, str]:
        """Return a hello with its length in front, and of which kind it is."""
        facts = self._facts
        serial = dice.choice((0, 1, 1 << 40, (1 << 64) - 1))
        who = pick(dice, facts.members) if dice.random() < 0.5 else stranger
        how = dice.random()
        if how < 0.3:
            is_member = who in facts.members
            said = pack_hello(Hello(facts.cluster, serial, who))
            return said, "member" if is_member else "not-sealed"
        if how < 0.5:
            return self._sealed(dice, serial, who), "other-key"
        if how < 0.62:
            said = self._sealed(dice, serial, who)
            if facts.keys:
                said = said[:-48] + pick(dice, facts.keys).to_bytes(_KEY_ID, "big") + said[-44:]
            return said, "claimed-key"
        if how < 0.85 and facts.hellos:
            said = pick(dice, facts.hellos)
            if dice.random() < 0.5:
                return said, "recorded"
            return _harmed(dice, said), "recorded-harmed"
        return self._malformed(dice, serial, who), "malformed"

    def _sealed(self, dice: Random, serial: int, who: Address) -> bytes:
        nonce, echo = dice.randbytes(NONCE_SIZE), dice.choice((bytes(16), dice.randbytes(16)))
        hello = Hello(self._facts.cluster, serial, who, dice.choice(ROLES), nonce, echo)
        return pack_hello(hello, self._seals(dice, who.short))

    def _malformed(self, dice: Random, serial: int, who: Address) -> bytes:
        cookie = dice.choice((COOKIE, SEALED_COOKIE, SEALED_COOKIE, b"SCmp", b"GET "))
        version = dice.choice((1, 1, 1, 0, 2, 65535)).to_bytes(2, "big")
        cluster = dice.choice((self._facts.cluster, 0)).to_bytes(4, "big")
        body = cookie + version + cluster + serial.to_bytes(8, "big")
        body += dice.randbytes(33) + Writer().address(who).bytes() + dice.randbytes(48)
        body = dice.choice((body, body[: dice.randrange(len(body))], body[:40], body[:70]))
        size = dice.choice((len(body), len(body), len(body), 1025, 17, 0, 0xFFFFFFFF))
        return size.to_bytes(4, "big") + body


def _harmed(dice: Random, hello: bytes) -> bytes:
    """Return a hello with another role, serial, cluster, echo, seal, or one bit turned over."""
    whole = bytearray(hello)
    how = dice.randrange(3)
    if how == 0:
        whole[4 + 18] = dice.choice(ROLES)
    elif how == 1:
        at = dice.choice((10, 14, 23, 39))
        whole[at : at + 4] = dice.randbytes(4)
    else:
        whole[4 + dice.randrange(len(whole) - 4)] ^= 1 << dice.randrange(8)
    return bytes(whole)


def _head(frame: bytes) -> Head:
    return Head._make(wire.HEAD_STRUCT.unpack_from(frame))


def _with(frame: bytes, **fields: int) -> bytes:
    """Return a frame of which these fields are other ones, under a check that is right."""
    head = _head(frame)._replace(**fields)
    return rechecked(wire.HEAD_STRUCT.pack(*head)) + frame[wire.HEAD_SIZE :]
