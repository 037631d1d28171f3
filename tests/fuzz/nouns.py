"""Bodies of frames: what a member would write, and the same with one noun that lies.

The nouns are those of docs/wire-format.md: text, address, addresses, view id, view, digest, merge
id; and the lengths and ranges of batches.
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from random import Random
from typing import Final, NamedTuple

from stormcast.node.core import wire
from stormcast.node.core.codec import pack_ranges
from stormcast.node.core.digest import Digest
from stormcast.node.core.model import Address
from stormcast.node.core.packing import MAX_MEMBERS, Writer
from tests.fuzz.facts import Facts

_BITS: Final = (0, 2, 8, 16, 24, 31, 32, 40, 62, 63)
EDGES: Final = (*sorted({n + (1 << bits) for bits in _BITS for n in (-1, 0, 1)}), (1 << 64) - 1)
"""Numbers at which something may tip over."""
LIE: Final = 0.35
"""Share of bodies in which a noun lies."""
_FRAGMENT: Final = struct.Struct(">QIIQ")


class Body(NamedTuple):
    """A body, and the fields of the head that speak of it."""

    data: bytes = b""
    count: int = 0  # type: ignore[assignment]  # hides tuple.count
    width: int = 0
    headers: int = 0


def near(dice: Random, number: int) -> int:
    """Return a number, one beside it, an edge, or any."""
    how = dice.random()
    if how < 0.4:
        return number
    if how < 0.65:
        return max(0, number + dice.choice((-2, -1, 1, 2, 1000)))
    return dice.choice(EDGES) if how < 0.9 else dice.getrandbits(64)


class Nouns:
    """Writes bodies. `speaker` is who is said to have sent the frame."""

    def __init__(self, facts: Facts, others: tuple[Address, ...]) -> None:
        self._facts = facts
        self._others = others
        gms: dict[int, Callable[[Random, Address], bytes]] = {
            wire.JOIN_REQ: self._speaker,
            wire.COOKIE: _nothing,
            wire.PROVE: _nothing,
            wire.PROOF: _nothing,
            wire.LEAVE_REQ: self._speaker,
            wire.LEAVE_RSP: self._anybody,
            wire.JOIN_RSP: self._join_answer,
            wire.VIEW: self._notice,
            wire.VIEW_ACK: self._view_id,
            wire.GET_VIEW: self._view_id,
            wire.MERGE_REQ: self._merge_id,
            wire.GET_DIGEST_REQ: self._merge_id,
            wire.CANCEL_MERGE: self._merge_id,
            wire.MERGE_RSP: self._merge_answer,
            wire.GET_DIGEST_RSP: self._merge_answer,
        }
        others_: dict[tuple[int, int], Callable[[Random, Address], bytes]] = {
            (wire.STABLE_PROTOCOL, wire.GOSSIP): self._vote,
            (wire.STABLE_PROTOCOL, wire.STABILITY): self._vote,
            (wire.MERGE3, wire.INFO): self._info,
            (wire.MERGE3, wire.COOKIE): _nothing,
            (wire.MERGE3, wire.VIEW_REQ): self._speaker,
            (wire.MERGE3, wire.VIEW_RSP): self._view,
            (wire.FD_ALL3, wire.HEARTBEAT): _nothing,
            (wire.FD_SOCK2, wire.SUSPECT): self._addresses,
            (wire.FD_SOCK2, wire.UNSUSPECT): self._addresses,
            (wire.FD_SOCK2, wire.CLOSE): _nothing,
            (wire.VERIFY_SUSPECT2, wire.ARE_YOU_DEAD): _nothing,
            (wire.VERIFY_SUSPECT2, wire.I_AM_NOT_DEAD): _nothing,
            (wire.DISCOVERY, wire.GET_MBRS_REQ): self._found,
            (wire.DISCOVERY, wire.GET_MBRS_RSP): self._found,
        }
        self._writers = {(wire.GMS, kind): write for kind, write in gms.items()} | others_
        for protocol in (wire.UFC, wire.MFC):
            for kind in (wire.CREDIT, wire.CREDIT_REQ):
                self._writers[protocol, kind] = _nothing

    def pairs(self) -> list[tuple[int, int]]:
        """Return every protocol with each kind that it knows."""
        windows = {
            (protocol, kind)
            for protocol in (wire.UNICAST, wire.UNICAST2, wire.UNICAST3, wire.UNICAST4)
            for kind in range(wire.DATA, wire.RESET_TO + 1)
        }
        multicast = {
            (protocol, kind)
            for protocol in (wire.NAKACK2, wire.MCAST)
            for kind in (
                wire.DATA,
                wire.ACK,
                wire.XMIT_REQ,
                wire.HIGHEST_SEQNO,
                wire.BASELINE,
                wire.BASELINE_REQ,
            )
        }
        return sorted({*self._writers, *windows, *multicast, (wire.NONE, wire.DATA)})

    def write(self, dice: Random, protocol: int, kind: int, speaker: Address) -> Body:
        """Return a body for this kind of frame, true or lying."""
        if kind == wire.DATA:
            return batch(dice)
        if kind == wire.XMIT_REQ:
            return ranges(dice)
        write = self._writers.get((protocol, kind), _nothing)
        return Body(write(dice, speaker))

    # -- One noun after the other ------------------------------------------------------------

    def _somebody(self, dice: Random) -> Address:
        members, others = self._facts.members, self._others
        return dice.choice(members) if dice.random() < 0.6 else dice.choice(others)

    def _put(self, dice: Random, writer: Writer, address: Address) -> Writer:
        """Write an address; at times one that is nearly this one, or none."""
        if dice.random() >= LIE / 3:
            return writer.address(address)
        how = dice.randrange(5)
        if how == 0:
            return writer.u64(0).u64(0).text(address.name).text(address.where)
        if how == 1:
            # The same short id, and another identity.
            return writer.address(Address(address.identity ^ 1 << 70, address.name, address.where))
        if how == 2:
            place = dice.choice(("", "nowhere", "[1]", "198.18.0.2[0]", "198.18.0.2[99999]", "::1"))
            return writer.address(Address(address.identity, address.name, place))
        if how == 3:
            return writer.address(Address(address.identity, "\x1b[2J\0é" * 60, address.where))
        # A text that is longer than what follows.
        return writer.u64(address.identity >> 64).u64(address.identity & (1 << 64) - 1).u8(255)

    def _listed(self, dice: Random, writer: Writer) -> Writer:
        """Write addresses: those of the view, fewer, more, one twice, or a count that lies."""
        members = list(self._facts.members)
        how = dice.random()
        if how < 0.15:
            members.remove(dice.choice(members))
        elif how < 0.3:
            members += dice.sample(self._others, dice.randrange(1, 6))
        elif how < 0.36:
            members.append(dice.choice(members))
        elif how < 0.45:
            dice.shuffle(members)
        elif how < 0.5:
            members = []
        count = len(members)
        if dice.random() < LIE / 4:
            count = dice.choice(
                (0, count + 1, max(0, count - 1), MAX_MEMBERS, MAX_MEMBERS + 1, 65535)
            )
        writer.u16(count)
        for member in members:
            self._put(dice, writer, member)
        return writer

    def _view_id_in(self, dice: Random, writer: Writer) -> Writer:
        creator = self._facts.members[0] if dice.random() < 0.6 else self._somebody(dice)
        return self._put(dice, writer.u64(near(dice, self._facts.view)), creator)

    def _digest_in(self, dice: Random, writer: Writer, members: list[int]) -> Writer:
        """Write a digest of these, ascending; or with an entry twice, upside down or too many."""
        if dice.random() >= LIE:
            entries = {short: _positions(dice) for short in members if short}
            return writer.digest(Digest(entries))
        chosen = sorted(members) + dice.sample(members, min(1, len(members)))
        if dice.random() < 0.5:
            chosen.append(dice.choice(self._others).short)
        count = dice.choice((len(chosen), len(chosen) + 1, 0, MAX_MEMBERS, MAX_MEMBERS + 1, 65535))
        writer.u16(count)
        for short in chosen:
            delivered, received = near(dice, 5), near(dice, 5)
            writer.u32(dice.choice((short, short, 0))).u64(delivered).u64(received)
        return writer

    # -- Bodies --------------------------------------------------------------------------------

    def _speaker(self, dice: Random, speaker: Address) -> bytes:
        return self._put(dice, Writer(), speaker).bytes()

    def _anybody(self, dice: Random, _speaker: Address) -> bytes:
        return self._put(dice, Writer(), self._somebody(dice)).bytes()

    def _addresses(self, dice: Random, _speaker: Address) -> bytes:
        return self._listed(dice, Writer()).bytes()

    def _view_id(self, dice: Random, _speaker: Address) -> bytes:
        return self._view_id_in(dice, Writer()).bytes()

    def _view(self, dice: Random, _speaker: Address) -> bytes:
        return self._listed(dice, self._view_id_in(dice, Writer())).bytes()

    def _digest(self, dice: Random, writer: Writer) -> Writer:
        return self._digest_in(dice, writer, list(self._facts.shorts))

    def _vote(self, dice: Random, _speaker: Address) -> bytes:
        return self._digest(dice, self._view_id_in(dice, Writer())).bytes()

    def _join_answer(self, dice: Random, _speaker: Address) -> bytes:
        yes = dice.choice((1, 1, 0, near(dice, 1) & 255))
        writer = Writer().u8(yes)
        if yes:
            return self._digest(dice, self._listed(dice, self._view_id_in(dice, writer))).bytes()
        return self._put(dice, writer, self._somebody(dice)).text("no\n" * 9).bytes()

    def _merge(self, dice: Random, writer: Writer, speaker: Address) -> Writer:
        leader = speaker if dice.random() < 0.7 else self._somebody(dice)
        return self._put(dice, writer, leader).u64(dice.choice((1, 1, 2, near(dice, 1))))

    def _merge_id(self, dice: Random, speaker: Address) -> bytes:
        return self._merge(dice, Writer(), speaker).bytes()

    def _merge_answer(self, dice: Random, speaker: Address) -> bytes:
        writer = self._merge(dice, Writer(), self._somebody(dice)).u8(dice.choice((0, 0, 1, 7)))
        self._listed(dice, self._view_id_in(dice, writer))
        return self._digest_in(dice, writer, [speaker.short]).bytes()

    def _notice(self, dice: Random, speaker: Address) -> bytes:
        is_merge = dice.choice((0, 1, 1, near(dice, 1) & 255))
        writer = self._listed(dice, self._view_id_in(dice, Writer().u8(is_merge)))
        if not is_merge:
            return writer.bytes()
        self._digest(dice, self._merge(dice, writer, speaker))
        partners = list(self._facts.shorts)
        writer.u16(dice.choice((len(partners), len(partners), 65535, 0)))
        for short in partners:
            writer.u32(short)
        return writer.bytes()

    def _info(self, dice: Random, speaker: Address) -> bytes:
        return self._view_id_in(dice, self._put(dice, Writer(), speaker)).bytes()

    def _found(self, dice: Random, speaker: Address) -> bytes:
        flags = dice.choice((0, 1, 2, 3, 3, 4, 255))
        writer = self._put(dice, Writer(), speaker).u8(flags)
        return (self._put(dice, writer, self._somebody(dice)) if flags & 2 else writer).bytes()


def _nothing(_dice: Random, _speaker: Address) -> bytes:
    return b""


def _positions(dice: Random) -> tuple[int, int]:
    delivered = near(dice, 5) % (1 << 62)
    return delivered, delivered + dice.choice((0, 0, 1, 1000))


# -- Batches and ranges --------------------------------------------------------------------------


def batch(dice: Random) -> Body:
    """Return the body of a DATA frame: messages behind their lengths, which may lie."""
    count = dice.choice((1, 1, 2, 3, 9))
    lengths = [dice.choice((0, 1, 7, 64, 500)) for _ in range(count)]
    width = dice.choice((0, 2, 4))
    if width == 0:
        lengths = lengths[:1] * count
    header = b""
    if dice.random() < 0.2:
        size = near(dice, sum(lengths))
        header = _FRAGMENT.pack(
            near(dice, 1), near(dice, 0) & 0xFFFFFFFF, near(dice, 2) & 0xFFFFFFFF, size
        )
    if dice.random() < LIE:
        at = dice.randrange(count)
        lengths[at] = near(dice, lengths[at]) & ((1 << 16) - 1 if width == 2 else 0xFFFFFFFF)
    payload = dice.randbytes(min(sum(lengths), 1400))
    vector = b"".join(
        length.to_bytes(width or 4, "big") for length in (lengths if width else lengths[:1])
    )
    if dice.random() < LIE / 4:
        count = near(dice, count) & 0xFFFF
    return Body(header + vector + payload, count, width, len(header))


def ranges(dice: Random) -> Body:
    """Return the body of an XMIT_REQ: ascending ranges; or overlapping, empty or endless ones."""
    if dice.random() >= LIE:
        lo = 1 + dice.randrange(2000)
        listed = []
        for _ in range(dice.choice((1, 1, 3, 20))):
            hi = lo + dice.choice((0, 0, 5, 1000))
            listed.append((lo, hi))
            lo = hi + 2
        return Body(pack_ranges(listed), len(listed))
    count = dice.choice((1, 2, 3))
    data = b"".join(
        wire.RANGE_STRUCT.pack(near(dice, 5), near(dice, 1) & 0xFFFFFFFF) for _ in range(count)
    )
    return Body(data, dice.choice((count, count, count + 1, 0, 65535)))
