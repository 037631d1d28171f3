"""FRAG: a message larger than a frame, or than the credits, travels in pieces. Keeps G3, G4, G5.

It sits above the reliable protocols and above flow control: pieces are messages like others, so
none is lost, and each is small compared to the credits. The sender cuts, the receiver joins when
the last piece is there. What never completes is thrown away: pieces of a message are lost where a
window is made anew in the middle of it, and only a limit on each count stands between a receiver
and a sender that never finishes.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable
from dataclasses import dataclass
from math import inf
from typing import ClassVar, Final, NamedTuple

from node.core import wire
from node.core.errors import BadFrame, require
from node.core.model import Payload

HEADER: Final = struct.Struct(">QIIQ")
"""Id, index, count, bytes of the whole message."""
MAX_PIECES: Final = (1 << 32) - 1
"""What the header can count."""
PIECE_COST: Final = 128
"""What a piece that is kept costs besides its bytes: many tiny ones must not be free."""
EXPIRY: Final = 60.0
"""Seconds without a new piece after which an OOB message is given up, or one of a stranger."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FragConfig:
    """Settings of FRAG."""

    settable: ClassVar[frozenset[str]] = frozenset()
    """What may change while the stack runs."""

    frag_size: int = 60_000
    """Bytes of the largest piece; what is longer is cut. A piece and its headers fit a datagram,
    and it must be smaller than what flow control keeps in hand."""

    max_message_size: int = 64 << 20
    """Bytes of the largest message that is sent, and that is taken from others."""

    max_open_bytes: int = 256 << 20
    """Bytes of all unfinished messages, each piece costing 128 more. Whatever would go beyond it is
    given up, so it should hold the largest message of everybody who sends such at the same time."""

    max_open_messages: int = 64
    """Unfinished OOB messages of one sender; of others there is one per sender and kind."""

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
        least = self.max_message_size + pieces * PIECE_COST
        require(
            self.max_open_bytes >= least,
            f"max_open_bytes is {self.max_open_bytes}: the largest message needs {least}",
        )
        require(
            self.max_open_messages > 0,
            f"max_open_messages is {self.max_open_messages}: it must be positive",
        )


class Fragment(NamedTuple):
    """What the header of a piece says."""

    id: int
    index: int  # type: ignore[assignment]  # hides tuple.index
    count: int  # type: ignore[assignment]  # hides tuple.count
    total: int


def unpack_fragment_untrusted(header: bytes, size: int, max_message_size: int) -> Fragment:
    """The header of a piece of `size` bytes, as far as it can be checked alone."""
    if len(header) != HEADER.size:
        raise BadFrame("fragment-header")
    fragment = Fragment._make(HEADER.unpack(header))
    if fragment.index >= fragment.count:
        raise BadFrame("fragment-index")
    if fragment.total > max_message_size:
        raise BadFrame("fragment-total")
    # Every piece has a byte at least: so the total bounds the count, and what is left to come.
    if not size or fragment.count > fragment.total or size + fragment.count - 1 > fragment.total:
        raise BadFrame("fragment-size")
    return fragment


class Fragmenter:
    """Cuts what one member sends."""

    def __init__(self, config: FragConfig) -> None:
        self.config = config
        self._next_id = 1

    def split(self, payload: Payload, flags: int = 0) -> list[tuple[bytes, Payload]]:
        """Header and piece of each fragment, in order; all of them travel with `flags`."""
        total, size = len(payload), self.config.frag_size
        require(
            total <= self.config.max_message_size,
            f"a message of {total} bytes: max_message_size is {self.config.max_message_size}",
        )
        assert total > size, "what fits one frame is not cut"
        message = self._next_id
        self._next_id += 1
        count = -(-total // size)
        source = memoryview(payload)
        pack = HEADER.pack
        return [
            (pack(message, index, count, total), source[index * size : (index + 1) * size])
            for index in range(count)
        ]


class Unfinished:
    """A message of which pieces are missing."""

    __slots__ = ("cost", "count", "pieces", "size", "total", "touched")

    def __init__(self, first: Fragment, now: float) -> None:
        self.count = first.count
        self.total = first.total
        self.pieces: dict[int, Payload] = {}
        """By index. Filled as they arrive: a header alone must not cost what it announces."""
        self.size = 0
        self.cost = 0
        self.touched = now


class Line:
    """The regular messages of one sender and kind: they come one after the other."""

    __slots__ = ("message", "newest", "touched")

    def __init__(self) -> None:
        self.newest = 0
        """The highest id seen: what is older was finished, or will never be."""
        self.message: Unfinished | None = None
        """The newest message, while it is unfinished."""
        self.touched = 0.0


class Reassembler:
    """Joins what all others sent. Every unfinished message counts in `open_bytes`."""

    def __init__(self, config: FragConfig) -> None:
        self.config = config
        self.open_bytes = 0
        self.given_up = 0
        """Unfinished messages that were thrown away so far."""
        self._lines: dict[tuple[int, bool], Line] = {}
        self._early: dict[int, dict[tuple[bool, int], Unfinished]] = {}
        """OOB messages by sender, then by kind and id: any number may be open, in any order."""
        self._members: frozenset[int] | None = None
        self._next_expiry = inf

    def open_messages(self) -> int:
        """How many messages are unfinished."""
        regular = sum(1 for line in self._lines.values() if line.message is not None)
        return regular + sum(map(len, self._early.values()))

    # -- Pieces -----------------------------------------------------------------------------------

    def take(
        self,
        source: int,
        is_group: bool,  # noqa: FBT001 part of the key, and asked for per piece
        is_oob: bool,  # noqa: FBT001 the same
        header: bytes,
        piece: Payload,
        now: float,
    ) -> Payload | None:
        """The whole message, if this was its last missing piece. A piece that contradicts those
        before it, or a limit, raises BadFrame, and its message is given up."""
        fragment = unpack_fragment_untrusted(header, len(piece), self.config.max_message_size)
        if self._next_expiry <= now:
            self.expire(now)
        if is_oob:
            return self._take_early(source, (is_group, fragment.id), fragment, piece, now)
        return self._take_in_order((source, is_group), fragment, piece, now)

    def _take_in_order(
        self, key: tuple[int, bool], fragment: Fragment, piece: Payload, now: float
    ) -> Payload | None:
        line = self._lines.get(key)
        if line is None:
            line = Line()
        if fragment.id < line.newest or (fragment.id == line.newest and line.message is None):
            # Repeated through a new window; its message was delivered, or overtaken. And ids begin
            # with 1.
            raise BadFrame("fragment-old")
        self._lines[key] = line
        line.touched = now
        self._expire_by(now + EXPIRY)
        if fragment.id > line.newest:
            # Regular messages come in order: of the one before nothing is to come any more.
            if line.message is not None:
                self._give_up(line.message)
            line.newest = fragment.id
            line.message = Unfinished(fragment, now)
        message = line.message
        assert message is not None
        try:
            is_complete = self._add(message, fragment, piece, now)
        except BadFrame:
            line.message = None
            self._give_up(message)
            raise
        if not is_complete:
            return None
        line.message = None
        return self._join(message)

    def _take_early(
        self, source: int, key: tuple[bool, int], fragment: Fragment, piece: Payload, now: float
    ) -> Payload | None:
        messages = self._early.setdefault(source, {})
        message = messages.get(key)
        if message is None:
            if len(messages) >= self.config.max_open_messages:
                raise BadFrame("fragment-messages")
            message = messages[key] = Unfinished(fragment, now)
        self._expire_by(now + EXPIRY)
        try:
            is_complete = self._add(message, fragment, piece, now)
        except BadFrame:
            self._remove_early(source, key)
            self._give_up(message)
            raise
        if not is_complete:
            return None
        self._remove_early(source, key)
        return self._join(message)

    def _add(self, message: Unfinished, fragment: Fragment, piece: Payload, now: float) -> bool:
        """Keep a piece, unless it is there; whether it was the last one missing."""
        if fragment.count != message.count or fragment.total != message.total:
            raise BadFrame("fragment-inconsistent")
        if fragment.index in message.pieces:
            return False
        size = message.size + len(piece)
        missing = message.count - len(message.pieces) - 1
        # Each missing piece brings a byte at least, and the last one exactly what is left.
        if size + missing > message.total or (not missing and size != message.total):
            raise BadFrame("fragment-inconsistent")
        cost = len(piece) + PIECE_COST
        if self.open_bytes + cost > self.config.max_open_bytes:
            raise BadFrame("fragment-bytes")
        message.pieces[fragment.index] = piece
        message.size = size
        message.cost += cost
        message.touched = now
        self.open_bytes += cost
        return not missing

    def _join(self, message: Unfinished) -> bytes:
        self.open_bytes -= message.cost
        return b"".join([message.pieces[index] for index in range(message.count)])

    def _give_up(self, message: Unfinished) -> None:
        self.open_bytes -= message.cost
        self.given_up += 1

    def _remove_early(self, source: int, key: tuple[bool, int]) -> None:
        messages = self._early[source]
        del messages[key]
        if not messages:
            del self._early[source]

    # -- Time and views ---------------------------------------------------------------------------

    def next_deadline(self) -> float:
        """When `expire` is wanted next; infinity when nothing waits for time."""
        return self._next_expiry

    def _expire_by(self, when: float) -> None:
        self._next_expiry = min(self._next_expiry, when)

    def expire(self, now: float) -> int:
        """Give up OOB messages, and all of strangers, that had no new piece for a minute; returns
        how many. A regular message of a member waits: its window repairs what is missing."""
        before = self.given_up
        soonest = inf
        for source, messages in list(self._early.items()):
            for key, message in list(messages.items()):
                if message.touched + EXPIRY <= now:
                    self._remove_early(source, key)
                    self._give_up(message)
                else:
                    soonest = min(soonest, message.touched + EXPIRY)
        for line_key, line in list(self._lines.items()):
            if not self._is_stranger(line_key[0]):
                continue
            if line.touched + EXPIRY <= now:
                self._remove_line(line_key)
            else:
                soonest = min(soonest, line.touched + EXPIRY)
        self._next_expiry = soonest
        return self.given_up - before

    def _is_stranger(self, source: int) -> bool:
        """Without views nobody is one."""
        return self._members is not None and source not in self._members

    def _remove_line(self, key: tuple[int, bool]) -> None:
        line = self._lines.pop(key)
        if line.message is not None:
            self._give_up(line.message)

    def on_view(self, members: Iterable[int], now: float) -> None:
        """Give up what members that left had begun (P-35)."""
        before = self._members or frozenset()
        self._members = frozenset(members)
        for gone in sorted(before - self._members):
            self.forget(gone)
        # Who is a stranger from now on, is so on time.
        if any(self._is_stranger(source) for source, _ in self._lines):
            self._expire_by(now)

    def forget(self, source: int) -> None:
        """Give up all that `source` had begun."""
        for message in self._early.pop(source, {}).values():
            self._give_up(message)
        for key in [(source, False), (source, True)]:
            if key in self._lines:
                self._remove_line(key)
