"""A member that keeps a journal, and what a reader finds in it."""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

from xxhash import xxh3_64_intdigest as hash64

from stormcast.node import trace
from stormcast.node.trace import Event
from stormcast.node.trace.files import Source
from stormcast.node.trace.journal import Journal, JournalConfig

SHORT = 0x5C0FFEE5
WALL_NS = 1_700_000_000_000_000_000
LABEL = "n1-5c0ffee5"
SEGMENT = 4096
"""The smallest: a few turns fill it."""


class Member:
    """Turns with events that are told apart by `lo`, counted from 0."""

    def __init__(
        self,
        folder: Path,
        label: str = LABEL,
        *,
        segment_bytes: int = SEGMENT,
        limit_bytes: int = 1 << 30,
        when_full: str = "drop-oldest",
    ) -> None:
        config = JournalConfig(
            directory=folder,
            segment_bytes=segment_bytes,
            limit_bytes=limit_bytes,
            when_full=when_full,
        )
        self.now = 0.0
        self.events = 0
        self.journal = Journal(config, label, hash64)
        self.folder = self.journal.directory
        self._tracer = self.journal.tracer(SHORT, WALL_NS)
        name, _, _ = label.partition("-")
        self._tracer.record(trace.START, 0.0, text=f"{name} {SHORT:032x} {{}}")
        self._end_turn(1)

    def turn(self, events: int = 1, *, text: str = "") -> None:
        """One turn at the present time; a text is said by its first event."""
        for number in range(self.events, self.events + events):
            self._tracer.record(
                trace.SENT, self.now, peer=7, count=1, lo=number, size=10, text=text
            )
            text = ""
        self._end_turn(events)

    def turns(self, number: int, *, step: float = 0.0) -> None:
        """Turns of one event, so many seconds apart."""
        for _ in range(number):
            self.now += step
            self.turn()

    def _end_turn(self, events: int) -> None:
        self.events += events
        self._tracer.turn()


class Found(NamedTuple):
    """What a reader finds."""

    numbers: list[int]
    """Of the events of the member; they agree with what the events say."""
    losses: list[tuple[int, int, int, str]]
    """Of TRUNCATED events: count, lo, hi, text."""
    notes: list[str]


def find(folder: Path) -> Found:
    """Read a journal as it is on disk now."""
    notes: list[str] = []
    numbers: list[int] = []
    losses = []
    for block in Source(folder.name, folder).blocks(notes):
        assert (block.member, block.wall_ns) == (SHORT, WALL_NS)
        for number, event in enumerate(block.events, block.first):
            if event.kind == trace.TRUNCATED:
                assert number == event.lo
                losses.append((event.count, event.lo, event.hi, block.text(event)))
            else:
                assert number == said_number(event)
                numbers.append(number)
    return Found(numbers, losses, notes)


def said_number(event: Event) -> int:
    """The number that a member gave its event."""
    return 0 if event.kind == trace.START else event.lo


def files(folder: Path) -> list[str]:
    """The names of the segments."""
    return sorted(path.name for path in folder.iterdir())


def size_on_disk(folder: Path) -> int:
    """Bytes of all segments."""
    return sum(path.stat().st_size for path in folder.iterdir())
