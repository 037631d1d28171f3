"""The end of traces that may still be written: the last events, then those that come.

A member is not asked: what it wrote through memory is read as from any file. A block whose magic or
check is not there yet is being written, and is waited for.
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
"""Looks at a block that is not whole before it is said to be torn."""


class Tail:
    """The ends of all traces of a run, merged by time."""

    def __init__(self, run: Path, member: str | None = None) -> None:
        self.names: dict[int, str] = {}
        """Short ids to labels, as far as they are known."""
        self._run = run
        self._member = member
        self._followers: dict[str, _Follower] = {}

    def last(self, events: int, notes: list[str]) -> list[NamedEvent]:
        """The last events; `more` goes on after them."""
        self.names = member_names(self._look())
        told = sorted(
            one
            for label, follower in self._followers.items()
            for block in follower.last(events, notes)
            for one in tell(label, block)
        )
        return told[-events:] if events else []

    def more(self, notes: list[str]) -> list[NamedEvent]:
        """The events that were written since; those of members that are new, too."""
        self._look()
        told: list[NamedEvent] = []
        for label, follower in self._followers.items():
            for block in follower.more(notes):
                if block.events and block.events[0].kind == START:
                    self.names[block.member] = label
                told += tell(label, block)
        return sorted(told)

    def _look(self) -> list[Source]:
        """See who is there by now."""
        sources = find_sources(self._run)
        for source in sources:
            if self._member in (None, source.label) and source.label not in self._followers:
                self._followers[source.label] = _Follower(source)
        return sources


class _Follower:
    """Reads on in one trace, from where it was."""

    def __init__(self, source: Source) -> None:
        self.source = source
        self._path: Path | None = None
        self._at = 0
        self._order = Numbering(None)
        self._looks = 0

    def last(self, events: int, notes: list[str]) -> list[Block]:
        """Blocks with so many events, and no more segments than that takes."""
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
        """The blocks that were written since."""
        # Listed before reading: what ends before a segment that is there has ended for good.
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
        """The whole blocks from here on in a segment."""
        try:
            with path.open("rb") as file:
                file.seek(self._at)
                data = file.read()
        except FileNotFoundError:
            return []  # Dropped meanwhile; the numbers of events tell.
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
