"""FRAG: a message larger than a frame, or than the credits, travels in pieces. Keeps G1 to G5.

It sits above the reliable protocols and above flow control: pieces are messages like others, so
none is lost, and each is small compared to the credits. The sender cuts a message, the receiver
joins it when the last piece is there.

What a receiver holds unfinished is bounded without refusing anything that was acked. Regular
messages come one after the other, so of each sender and kind (unicast or multicast) one is
unfinished. OOB messages come in any order, and there the *sender* keeps the bound: it begins
another OOB message only while those that are not acked to their last piece are fewer than
`max_open_messages`, and cost less than `max_open_bytes` together. All members have the same
settings, as with credits.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from math import inf
from typing import ClassVar, Final, NamedTuple

from stormcast.node.core import wire
from stormcast.node.core.codec import Hash64
from stormcast.node.core.errors import BadFrame, require
from stormcast.node.core.model import Payload
from stormcast.node.protocols.unfinished import Fragment, Sender, cost_of

HEADER: Final = struct.Struct(">QIIQ")
"""Id, index, count, bytes of the whole message."""
MAX_PIECES: Final = (1 << 32) - 1
"""Pieces that the header can count."""
LEAST_EXPIRY: Final = 60.0
"""Seconds without a new piece after which a message of a stranger is given up, at least."""
MEMBERS_EXPIRY: Final = 3600.0
"""The same for a message that began while its sender was a member, as long as `max_open_bytes` hold
all that is left of strangers. Its pieces were acked, and the sender may live and have this member
in its view all the time: nobody hears it, or a command installed the view."""


@dataclass(frozen=True, slots=True, kw_only=True)
class HistoricalFrag:
    """A flaw of an earlier design. Only museum stacks may have it."""

    sender_keeps_bound: bool = True
    """False: a sender begins any number of OOB messages, and its receivers throw away pieces beyond
    their bounds though the windows below have acked them."""


SOUND: Final = HistoricalFrag()


@dataclass(frozen=True, slots=True, kw_only=True)
class FragConfig:
    """Settings of FRAG. They must be equal on all members."""

    settable: ClassVar[frozenset[str]] = frozenset()
    """Settings that may change while the stack runs."""

    frag_size: int = 60_000
    """Bytes of the largest piece; what is longer is cut. A piece and its headers fit a datagram,
    and it must be smaller than what flow control keeps in hand."""

    max_message_size: int = 64 << 20
    """Bytes of the largest message that is sent, and that is taken from others."""

    max_open_bytes: int = 128 << 20
    """Bytes of one sender's unfinished OOB messages at a receiver, each piece costing 128 more. A
    sender waits with the next one until there is room, so it must hold the largest message."""

    max_open_messages: int = 64
    """Unfinished OOB messages of one sender at a receiver. A sender waits with the next one until
    one of those is acked. Of regular messages there is one per sender and kind."""

    historical: HistoricalFrag = field(default=SOUND)
    """A flaw to reproduce."""

    def __post_init__(self) -> None:
        require(
            0 < self.frag_size <= wire.MAX_BODY - 64,
            f"frag_size is {self.frag_size}: it must be 1..{wire.MAX_BODY - 64}, "
            "what a frame carries",
        )
        require(
            self.frag_size <= self.max_message_size,
            f"max_message_size is {self.max_message_size}: "
            f"it must be at least frag_size ({self.frag_size})",
        )
        pieces = -(-self.max_message_size // self.frag_size)
        require(
            pieces <= MAX_PIECES,
            f"max_message_size is {self.max_message_size}: that makes {pieces} pieces; "
            "raise frag_size",
        )
        least = cost_of(self.max_message_size, pieces)
        require(
            self.max_open_bytes >= least,
            f"max_open_bytes is {self.max_open_bytes}: the largest message needs {least}",
        )
        require(
            self.max_open_messages > 0,
            f"max_open_messages is {self.max_open_messages}: it must be positive",
        )


def unpack_fragment_untrusted(header: bytes, size: int, max_message_size: int) -> Fragment:
    """Unpack the header of a piece of `size` bytes, and check what can be checked of it alone."""
    if len(header) != HEADER.size:
        raise BadFrame("fragment-header")
    fragment = Fragment._make(HEADER.unpack(header))
    if fragment.index >= fragment.count:
        raise BadFrame("fragment-index")
    if fragment.total > max_message_size:
        raise BadFrame("fragment-total")
    # Every piece has a byte at least: so the total bounds the number of pieces, and each size.
    if not size or fragment.count > fragment.total or size + fragment.count - 1 > fragment.total:
        raise BadFrame("fragment-size")
    return fragment


class CutMessage(NamedTuple):
    """A large message, cut."""

    id: int
    pieces: list[Payload]
    total: int
    digest: int
    """Digest of the whole message: by it a trace shows that the message was joined as it was
    cut."""

    def header(self, index: int) -> bytes:
        """Pack the header of a piece."""
        return HEADER.pack(self.id, index, len(self.pieces), self.total)

    @property
    def cost(self) -> int:
        """The cost of the whole message at a receiver."""
        return cost_of(self.total, len(self.pieces))


class Fragmenter:
    """Cuts the large messages that one member sends."""

    def __init__(self, config: FragConfig, hash64: Hash64) -> None:
        self.config = config
        self._hash64 = hash64
        self._next_id = 1

    def count(self, size: int) -> int:
        """Return into how many pieces a message of so many bytes is cut."""
        return -(-size // self.config.frag_size)

    def cut(self, payload: Payload) -> CutMessage:
        """Cut a message above `frag_size` into pieces."""
        total, size = len(payload), self.config.frag_size
        require(
            total <= self.config.max_message_size,
            f"a message of {total} bytes: max_message_size is {self.config.max_message_size}",
        )
        assert total > size, "what fits one frame is not cut"
        message = self._next_id
        self._next_id += 1
        source = memoryview(payload)
        pieces: list[Payload] = [source[at : at + size] for at in range(0, total, size)]
        return CutMessage(message, pieces, total, self._hash64(payload))


class Joined(NamedTuple):
    """A message that is whole, and the seqnos of its pieces."""

    payload: bytes
    lo: int
    hi: int


class Reassembler:
    """Joins the messages that others, and this member itself, sent in pieces."""

    def __init__(
        self, config: FragConfig, longest_life: Callable[[], float] = lambda: LEAST_EXPIRY
    ) -> None:
        """Make one. `longest_life` says for how many seconds a sender outside the view goes on
        sending without an answer; settings may change it."""
        self.config = config
        self._longest_life = longest_life
        self._senders: dict[tuple[int, bool], Sender] = {}
        """By short id and whether it was multicast."""
        self._given_up = 0
        """Unfinished messages that were thrown away of senders of which nothing is kept."""
        self._members: frozenset[int] | None = None
        self.next_expiry = inf

    @property
    def _expiry(self) -> float:
        """Seconds without a new piece after which a message of a stranger is given up."""
        life = max(self._longest_life(), LEAST_EXPIRY)
        return life if life < inf else MEMBERS_EXPIRY

    @property
    def _long_expiry(self) -> float:
        """The same where what is kept of strangers is little: of those that were members, and of
        all where senders never give up."""
        return max(self._longest_life(), MEMBERS_EXPIRY)

    @property
    def open_bytes(self) -> int:
        """The cost of all unfinished messages."""
        return sum(sender.open_bytes for sender in self._senders.values())

    def bound(self) -> int:
        """Return the bound of `open_bytes`: for each sender and kind, that of one regular message
        and that of its OOB messages."""
        return 2 * self.config.max_open_bytes * len(self._senders)

    @property
    def given_up(self) -> int:
        """Unfinished messages that were thrown away so far."""
        return self._given_up + sum(sender.given_up for sender in self._senders.values())

    def open_messages(self) -> int:
        """Return how many messages are unfinished."""
        return sum(1 for sender in self._senders.values() for _ in sender.messages())

    # -- Pieces -----------------------------------------------------------------------------------

    def take(
        self,
        source: int,
        is_group: bool,  # noqa: FBT001 part of the key, and asked for per piece
        is_oob: bool,  # noqa: FBT001 the same
        conn: int,
        seqno: int,
        header: bytes,
        piece: Payload,
        settled: int,
        now: float,
    ) -> Joined | None:
        """Keep a piece; return the whole message if this was its last missing piece. A piece that
        contradicts those before it raises BadFrame, and its message is given up. Pieces that are
        missing up to the seqno `settled` will not come."""
        fragment = unpack_fragment_untrusted(header, len(piece), self.config.max_message_size)
        key = source, is_group
        sender = self._senders.get(key)
        if sender is None:
            config = self.config
            sender = Sender(config.max_open_messages, config.max_open_bytes, now)
            self._senders[key] = sender
        sender.touched = now
        if self._is_stranger(source):
            self._expire_by(now + self._expiry)
        find = sender.find_early if is_oob else sender.find_regular
        message = find(fragment, conn, seqno - fragment.index, now)
        try:
            sender.add(message, fragment, piece, now)
        except BadFrame:
            sender.give_up(message)
            raise
        if len(message.pieces) < message.count:
            sender.keep_bounds(message, settled)
            return None
        payload = b"".join([message.pieces[index] for index in range(message.count)])
        joined = Joined(payload, message.lo, message.lo + message.count - 1)
        # Last: where there is no memory to join them, the pieces stay.
        sender.end(message)
        return joined

    # -- Strangers --------------------------------------------------------------------------------

    def kept_of_stranger(self, source: int) -> tuple[int, int]:
        """Return how many pieces of a sender are kept that came while it was in no view with this
        member, and what they cost."""
        sender = self._senders.get((source, False))
        if sender is None:
            return 0, 0
        pieces, cost = sender.kept()
        of_member = sender.kept_of_member
        return max(0, pieces - of_member[0]), max(0, cost - of_member[1])

    def remembered(self, source: int) -> tuple[int, int]:
        """Return what can be forgotten of a sender's unicasts: in how many entries and bytes."""
        sender = self._senders.get((source, False))
        return sender.remembered() if sender is not None else (0, 0)

    def forget_remembered(self, source: int) -> None:
        """Forget which messages of a stranger are over, but no piece that is kept."""
        sender = self._senders[source, False]
        sender.done = {}
        if not sender.open_bytes:
            self._forget((source, False))

    def strangers(self) -> list[int]:
        """Return the senders of unicasts that are not in the view."""
        return [
            source
            for source, is_group in self._senders
            if not is_group and self._is_stranger(source)
        ]

    def _is_stranger(self, source: int) -> bool:
        """Whether a sender is not in the view; without views nobody is a stranger."""
        return self._members is not None and source not in self._members

    # -- Time and views ---------------------------------------------------------------------------

    def _expire_by(self, when: float) -> None:
        self.next_expiry = min(self.next_expiry, when)

    def expire(self, now: float) -> int:
        """Give up messages of strangers that sent no piece for as long as a connection may be idle;
        returns how many messages. Messages of members are completed by the repair of windows."""
        before = self.given_up
        soonest = inf
        strangers = [(key, one) for key, one in self._senders.items() if self._is_stranger(key[0])]
        kept = sum(sender.open_bytes for _key, sender in strangers)
        for key, sender in sorted(strangers, key=lambda one: one[1].touched):
            may_stay = sender.kept_of_member[0] > 0 or self._long_expiry == inf
            is_long = may_stay and kept <= self.config.max_open_bytes
            due = sender.touched + (self._long_expiry if is_long else self._expiry)
            if due <= now:
                kept -= sender.open_bytes
                self._forget(key)
            else:
                soonest = min(soonest, due)
        self.next_expiry = soonest
        return self.given_up - before

    def on_view(self, members: Iterable[int], now: float) -> None:
        """Give up what members that left had multicast in part (P-35). Their unicasts may go on:
        connections are not bound to a view."""
        before = self._members or frozenset()
        self._members = frozenset(members)
        for gone in sorted(before - self._members):
            self._forget((gone, True))
            if sender := self._senders.get((gone, False)):
                sender.kept_of_member = sender.kept()
                sender.touched = now
        # Messages of senders that are strangers from now on expire in time.
        if any(self._is_stranger(source) for source, _ in self._senders):
            self._expire_by(now + self._expiry)

    def _forget(self, key: tuple[int, bool]) -> None:
        """Give up all that one sender had begun."""
        sender = self._senders.pop(key, None)
        if sender is not None:
            self._given_up += sender.given_up + sum(1 for _ in sender.messages())
