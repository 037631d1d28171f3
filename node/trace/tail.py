"""The end of traces that may still be written: the last events, then those that come.

The member is not asked: its journal is read like any file. A block whose magic or check is not
there yet is being written, and is read later.
"""

from __future__ import annotations

from pathlib import Path
from typing import Final

from xxhash import xxh3_64_intdigest

from stormcast.node.core.errors import BadTrace
from stormcast.node.trace import NO_MAGIC, START, Block, read_block_untrusted
from stormcast.node.trace.files import Numbering, Source, find_sources, member_names
from stormcast.node.trace.words import NamedEvent, tell

PATIENCE: Final = 25
"""Looks at a block that is not whole, after which it is reported as torn."""


class Tail:
    """The ends of all traces of a run, merged by time."""

    def __init__(self, run: Path, member: str | None = None) -> None:
        self.names: dict[int, str] = {}
        """Labels by short id, as far as they are known."""
        self._run = run
        self._member = member
        self._followers: dict[str, _Follower] = {}

    def last(self, events: int, notes: list[str]) -> list[NamedEvent]:
        """Return the last events; `more` goes on after them."""
        self.names = member_names(self._look())
        told = sorted(
            one
            for label, follower in self._followers.items()
            for block in follower.last(events, notes)
            for one in tell(label, block)
        )
        return told[-events:] if events else []

    def more(self, notes: list[str]) -> list[NamedEvent]:
        """Return the events that were written since; also those of new members."""
        self._look()
        told: list[NamedEvent] = []
        for label, follower in self._followers.items():
            for block in follower.more(notes):
                if block.events and block.events[0].kind == START:
                    self.names[block.member] = label
                told += tell(label, block)
        return sorted(told)

    def _look(self) -> list[Source]:
        """Find the traces that there are by now, and follow the new ones."""
        sources = find_sources(self._run)
        for source in sources:
            if self._member in (None, source.label) and source.label not in self._followers:
                self._followers[source.label] = _Follower(source)
        return sources


class _Follower:
    """Reads one trace, each time from where it stopped."""

    def __init__(self, source: Source) -> None:
        self.source = source
        self._path: Path | None = None
        self._at = 0
        self._order = Numbering(None)
        self._looks = 0

    def last(self, events: int, notes: list[str]) -> list[Block]:
        """Return the last blocks with `events` events; read no more segments than that takes."""
        found: list[Block] = []
        for path in reversed(self.source.segments()):
            self._at = 0
            blocks = self._read_on(path)
            if self._path is None:
                self._path, end = path, self._at
            found = blocks + found
            if sum(len(block.events) for block in found) >= events:
                break
        if self._path is not None:
            self._at = end
        self._check(found, notes)
        return found

    def more(self, notes: list[str]) -> list[Block]:
        """Return the blocks that were written since."""
        # Listed before reading: a segment that has a later one is not written to any more.
        paths = self.source.segments()
        if self._path is None:
            if not paths:
                return []
            self._path = paths[0]
        blocks = self._read_on(self._path)
        for path in paths:
            if _number(path) > _number(self._path):
                self._path, self._at = path, 0
                blocks += self._read_on(path)
        self._check(blocks, notes)
        return blocks

    def _check(self, blocks: list[Block], notes: list[str]) -> None:
        for block in blocks:
            notes += (f"{self._path}: {note}" for note in self._order.check(block))
        if blocks:
            self._looks = 0
        elif self._looks == PATIENCE:
            notes.append(f"{self._path}: torn at byte {self._at}; everything before it was read")

    def _read_on(self, path: Path) -> list[Block]:
        """Return the whole blocks of a segment from the current position on."""
        try:
            with path.open("rb") as file:
                file.seek(self._at)
                data = file.read()
        except FileNotFoundError:
            return []  # Dropped meanwhile; the gap in event numbers is noted.
        blocks, at = [], 0
        try:
            while at < len(data) and not data.startswith(NO_MAGIC, at):
                block, at = read_block_untrusted(data, at, xxh3_64_intdigest)
                blocks.append(block)
        except BadTrace:
            self._looks += 1
        self._at += at
        return blocks


def _number(path: Path) -> int:
    return int(path.stem) if path.stem.isdecimal() else 0
