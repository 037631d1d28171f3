"""The windows against naive ones that keep one dictionary entry per seqno (P-12, P-22; G2, G3, G5)."""

from __future__ import annotations

from dataclasses import dataclass, field
from itertools import pairwise

from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from node.core.window import Piece, ReceiveWindow, SendWindow, Stored

EVERYTHING = 1 << 40
OFFSETS = st.sampled_from([0, 2, 20, 300_000, (1 << 31) - 7, (1 << 63) - 40])
COUNTS = st.integers(1, 8)
OOB = st.sampled_from([False, False, False, True])
SIZES = st.integers(1, 40)
LONG = settings(max_examples=2 * settings.default.max_examples, stateful_step_count=60)


@dataclass(frozen=True)
class Batch:
    """What a batch carries here is only its name."""

    name: int
    lo: int
    hi: int
    size: int
    oob: bool


def as_ranges(seqnos: list[int]) -> list[tuple[int, int]]:
    """Ascending seqnos as ranges, both ends included."""
    ranges: list[tuple[int, int]] = []
    for seqno in seqnos:
        if ranges and ranges[-1][1] == seqno - 1:
            ranges[-1] = (ranges[-1][0], seqno)
        else:
            ranges.append((seqno, seqno))
    return ranges


def single_seqnos(pieces: list[Piece[Batch]]) -> list[tuple[int, Batch | None]]:
    return [(seqno, piece.item) for piece in pieces for seqno in range(piece.lo, piece.hi + 1)]


@dataclass
class Held:
    """One seqno of the naive window: the batch it came with, and the piece it is charged to."""

    batch: Batch | None
    piece: int


@dataclass
class NaiveReceiver:
    """A receive window as its specification reads: a dictionary, and loops over every seqno."""

    capacity: int
    delivered: int
    seen: int
    held: dict[int, Held] = field(default_factory=dict)
    sizes: dict[int, int] = field(default_factory=dict)

    @property
    def deliverable(self) -> int:
        seqno = self.delivered
        while seqno + 1 in self.held:
            seqno += 1
        return seqno

    @property
    def high(self) -> int:
        return max(self.held, default=self.delivered)

    @property
    def bytes(self) -> int:
        return sum(self.sizes[piece] for piece in {held.piece for held in self.held.values()})

    def absent(self) -> list[int]:
        return [
            seqno for seqno in range(self.delivered + 1, self.seen + 1) if seqno not in self.held
        ]

    def missing(self, limit: int, ranges_limit: int) -> list[tuple[int, int]]:
        ranges = as_ranges(self.absent())[:ranges_limit]
        return as_ranges([s for lo, hi in ranges for s in range(lo, hi + 1)][:limit])

    def add(self, batch: Batch) -> list[int]:
        """Take what is new and within the window, however many bytes that is."""
        top = min(batch.hi, self.delivered + self.capacity)
        self.seen = max(self.seen, top)
        new = [
            seqno
            for seqno in range(max(batch.lo, self.delivered + 1), top + 1)
            if seqno not in self.held
        ]
        for lo, hi in as_ranges(new):
            self.hold(Piece(lo, hi, batch.size, batch))
        return new

    def hold(self, piece: Piece[Batch]) -> None:
        assert piece.item is not None
        number = len(self.sizes)
        self.sizes[number] = 0 if piece.item.oob else piece.size
        for seqno in range(piece.lo, piece.hi + 1):
            assert seqno not in self.held
            self.held[seqno] = Held(None if piece.item.oob else piece.item, number)

    def take_ready(self) -> list[tuple[int, Batch | None]]:
        taken = []
        for seqno in range(self.delivered + 1, self.deliverable + 1):
            held = self.held.pop(seqno)
            if held.piece != SKIPPED:
                taken.append((seqno, held.batch))
        self.delivered += len(taken) and 0
        return taken

    def skip_to(self, seqno: int) -> int:
        raise NotImplementedError


SKIPPED = -1
