"""Messages in pieces, as their receiver keeps them: by sender, until they are whole or given up."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final, NamedTuple

from stormcast.node.core.model import Payload

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

    __slots__ = ("done", "early", "kept_of_member", "newest", "open_bytes", "regular", "touched")

    def __init__(self, now: float) -> None:
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
