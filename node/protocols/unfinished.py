"""Messages in pieces, as their receiver keeps them: by sender, until they are whole or given up."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final, NamedTuple

from stormcast.node.core.errors import BadFrame
from stormcast.node.core.model import Payload

REMEMBERED: Final = 4
"""OOB messages of a sender that are remembered once they are over, in multiples of those that it
may have unfinished."""
PIECE_COST: Final = 128
"""Bytes charged for each kept piece besides its own: many tiny pieces must not be free."""
SENDER_COST: Final = 640
"""Bytes charged for a sender of whom no piece is kept."""
REMEMBERED_COST: Final = 96
"""Bytes charged for each remembered id."""


def cost_of(size: int, pieces: int) -> int:
    """Return what `size` bytes in so many pieces cost a receiver."""
    return size + pieces * PIECE_COST


class Fragment(NamedTuple):
    """The header of a piece, unpacked."""

    id: int
    index: int  # type: ignore[assignment]  # hides tuple.index
    count: int  # type: ignore[assignment]  # hides tuple.count
    total: int


class Unfinished:
    """A message of which pieces are missing."""

    __slots__ = ("conn", "count", "id", "lo", "pieces", "size", "total", "touched")

    def __init__(self, first: Fragment, conn: int, lo: int, now: float) -> None:
        self.id = first.id
        self.conn = conn
        self.lo = lo
        """Seqno of its first piece: the others follow it without a gap."""
        self.count = first.count
        self.total = first.total
        self.pieces: dict[int, Payload] = {}
        """By index. Filled as they arrive: a header alone must not take the memory that it
        announces."""
        self.size = 0
        self.touched = now

    @property
    def cost(self) -> int:
        """The cost of the pieces that have arrived."""
        return cost_of(self.size, len(self.pieces))


class Sender:
    """The unfinished messages of one sender, either its unicasts or its multicasts."""

    __slots__ = (
        "_max_bytes",
        "_max_messages",
        "done",
        "early",
        "given_up",
        "kept_of_member",
        "newest",
        "open_bytes",
        "regular",
        "touched",
    )

    def __init__(self, max_messages: int, max_bytes: int, now: float) -> None:
        self._max_messages = max_messages
        self._max_bytes = max_bytes
        """Bounds of its unfinished OOB messages: their number, and their cost."""
        self.given_up = 0
        """Its messages that were thrown away so far."""
        self.regular: Unfinished | None = None
        self.newest = 0
        """The highest id of a regular message seen: older ones were joined, or given up."""
        self.early: dict[int, Unfinished] = {}
        """OOB messages by id, in the order in which they began."""
        self.done: dict[int, None] = {}
        """The last OOB messages that were joined or given up, by id: a new window may bring some
        of their pieces again."""
        self.open_bytes = 0
        """Cost of all unfinished messages."""
        self.kept_of_member = (0, 0)
        """Pieces that were kept when the sender left the view, and their cost: they do not count as
        a stranger's."""
        self.touched = now

    def find_regular(self, fragment: Fragment, conn: int, lo: int, now: float) -> Unfinished:
        """Return the message that a piece is of. Regular messages come one after the other, each
        from its first piece on."""
        message = self.regular
        if message is not None and message.id == fragment.id:
            return message
        if fragment.id <= self.newest:
            # A new window has brought it again; its message was joined, or given up.
            raise BadFrame("fragment-old")
        self.newest = fragment.id
        if message is not None:
            # The sender has given up the older message with a connection, and its application was
            # told so.
            self.give_up(message)
        if fragment.index:
            # The window began within the message: its start was sent before this member was known.
            raise BadFrame("fragment-headless")
        self.regular = message = Unfinished(fragment, conn, lo, now)
        return message

    def find_early(self, fragment: Fragment, conn: int, lo: int, now: float) -> Unfinished:
        """Return the OOB message that a piece is of."""
        message = self.early.get(fragment.id)
        if message is None:
            if fragment.id in self.done:
                raise BadFrame("fragment-old")
            # All pieces of a message travel on one connection: from one that was replaced, nothing
            # more will come.
            for older in [one for one in self.early.values() if one.conn != conn]:
                self.give_up(older)
            message = self.early[fragment.id] = Unfinished(fragment, conn, lo, now)
        return message

    def add(self, message: Unfinished, fragment: Fragment, piece: Payload, now: float) -> None:
        """Keep a piece, unless it is there already."""
        if fragment.count != message.count or fragment.total != message.total:
            raise BadFrame("fragment-inconsistent")
        if fragment.index in message.pieces:
            return
        size = message.size + len(piece)
        missing = message.count - len(message.pieces) - 1
        # Each missing piece brings a byte at least, and the last one exactly what is left.
        if size + missing > message.total or (not missing and size != message.total):
            raise BadFrame("fragment-inconsistent")
        open_bytes = self.open_bytes + len(piece) + PIECE_COST
        message.pieces[fragment.index] = piece
        message.size = size
        message.touched = now
        self.open_bytes = open_bytes

    def end(self, message: Unfinished) -> None:
        """Keep a message no longer: it is whole, or given up."""
        open_bytes = self.open_bytes - message.cost
        if self.regular is message:
            self.regular = None
        elif message.id in self.early:
            # First: where there is no memory for it, nothing has changed.
            self.done[message.id] = None
            del self.early[message.id]
        self.open_bytes = open_bytes
        if not open_bytes:
            self.kept_of_member = 0, 0
        if len(self.done) > REMEMBERED * self._max_messages:
            del self.done[next(iter(self.done))]

    def give_up(self, message: Unfinished) -> None:
        """Throw away what there is of a message."""
        self.end(message)
        self.given_up += 1

    def keep_bounds(self, newest: Unfinished, settled: int) -> None:
        """Give up messages beyond the bounds, and raise BadFrame. A sender with the same settings
        as this member stays within them, counting only messages that can still be completed. One
        that does not loses its first message."""
        if self.regular is not newest and self._is_beyond():
            self._give_up_remainders(settled)
            if newest.id not in self.early:
                raise BadFrame("fragment-headless")
            if self._is_beyond():
                self.give_up(next(iter(self.early.values())))
                raise BadFrame("fragment-beyond-settings")

    def _is_beyond(self) -> bool:
        """Whether there are more unfinished OOB messages than there may be."""
        of_early = self.open_bytes - (self.regular.cost if self.regular else 0)
        return len(self.early) > self._max_messages or of_early > self._max_bytes

    def _give_up_remainders(self, settled: int) -> None:
        """Give up OOB messages of which a piece will not come: a window began within the message,
        or skipped the piece, or handed it up before a view gave up the message. The sender has the
        acks for all of each message, and so does not count it."""
        for message in list(self.early.values()):
            missing = next(index for index in range(message.count) if index not in message.pieces)
            if message.lo + missing <= settled:
                self.give_up(message)

    def kept(self) -> tuple[int, int]:
        """Return how many pieces are kept, and what they cost."""
        return sum(len(message.pieces) for message in self.messages()), self.open_bytes

    def remembered(self) -> tuple[int, int]:
        """Return in how many entries and bytes it is remembered which messages are over."""
        ids = REMEMBERED_COST * len(self.done)
        return (0, ids) if self.open_bytes else (1, SENDER_COST + ids)

    def messages(self) -> Iterator[Unfinished]:
        """Yield all unfinished messages."""
        if self.regular is not None:
            yield self.regular
        yield from self.early.values()
