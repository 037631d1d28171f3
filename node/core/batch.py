"""A batch as its sender keeps it, and as its receiver unpacks it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from stormcast.node.core.codec import Body
from stormcast.node.core.wire import Head


class Batch:
    """A numbered batch: what it carries never changes, only how often it was sent."""

    __slots__ = ("body", "flags", "number", "resent_at", "sent_at", "transmission")

    def __init__(self, body: Body, flags: int, sent_at: float, number: int = 0) -> None:
        self.body = body
        self.flags = flags
        self.number = number
        """The number of its first message among the application's messages to this destination."""
        self.sent_at = sent_at
        self.resent_at = -1.0
        self.transmission = 0


class Arrival(NamedTuple):
    """A received batch: the frame, and where its payloads are."""

    head: Head
    body: bytes
    start: int
    lengths: int | Sequence[int]

    def part(self, lo: int, hi: int) -> tuple[int, int | Sequence[int], int]:
        """Return where the payloads of seqnos `lo..hi` begin, their lengths, and the sum."""
        skip, number = lo - self.head.lo, hi - lo + 1
        if isinstance(self.lengths, int):
            return self.start + skip * self.lengths, self.lengths, number * self.lengths
        lengths = self.lengths[skip : skip + number]
        return self.start + sum(self.lengths[:skip]), lengths, sum(lengths)
