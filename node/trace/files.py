"""Finds and reads traces: trace files, and the journals of real members.

A label names one incarnation of a member, or the rig. A journal is read segment by segment, so
memory does not grow with its length. Damage to a trace is noted, not raised: a reader shows what
there is, and says that some is missing.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from xxhash import xxh3_64_intdigest

from stormcast.node.core.errors import BadTrace
from stormcast.node.trace import (
    DAMAGED,
    HEADER,
    MAGIC,
    RECORD,
    START,
    TORN,
    TRUNCATED,
    Block,
    describe_loss,
    read_blocks_untrusted,
)

_FIRST, _WALL = 5, 6
"""Indexes in the header of a block: of the number of its first event, and of the wall clock."""
_CHECK_AT: Final = HEADER.size - 8
_SEGMENT: Final = re.compile(r"\d{6,}\.trace")


@dataclass(frozen=True, slots=True)
class Source:
    """The trace of one member incarnation, or of the rig."""

    label: str
    path: Path
    """A trace file, or the directory of a journal."""

    def segments(self) -> list[Path]:
        """Return the files of the trace, oldest first; those of a journal as they are now."""
        return journal_segments(self.path) if self.path.is_dir() else [self.path]

    def blocks(self, notes: list[str] | None = None) -> Iterator[Block]:
        """Yield the blocks up to the first that is torn; add what is wrong to `notes`."""
        notes = [] if notes is None else notes
        # A segment of a journal, read alone, may begin with any event number.
        is_part = self.path.is_file() and _SEGMENT.fullmatch(self.path.name) is not None
        order = Numbering(None if is_part else 0)
        paths = self.segments()
        for path in paths:
            try:
                for block in _blocks_of(path):
                    notes += (f"{path}: {note}" for note in order.check(block))
                    yield block
            except BadTrace as bad:
                reason = bad.reason
                if reason.startswith(TORN) and path != paths[-1]:
                    # A member goes on to the next segment only after a whole block.
                    reason = f"{DAMAGED}: segments follow"
                notes.append(f"{path}: {reason}; everything before it was read")
                break
        notes += (f"{self.path}: {note}" for note in order.end())

    def read(self) -> bytes:
        """Return all blocks, back to back, and at the end the rest of a torn one."""
        if not self.path.is_dir():
            return self.path.read_bytes()
        paths = self.segments()
        return b"".join(_until_end(_read(path), is_last=path == paths[-1]) for path in paths)


@dataclass(slots=True)
class Numbering:
    """Checks that event numbers go on from block to block; a TRUNCATED event may explain a gap."""

    next: int | None
    """Number of the next event; None: any number is right."""
    _unsaid: str = field(default="", init=False)
    """The note on events that were not kept, as long as no event counts them."""

    def check(self, block: Block) -> list[str]:
        """Return notes on what is wrong between the blocks so far and this one."""
        notes = []
        first = block.first
        if self.next is not None and first != self.next:
            gap = f"events {self.next}..{first - 1} are missing"
            notes.append(f"torn: {gap if first > self.next else f'events {first}.. come again'}")
        self.next = first + len(block.events)
        self._unsaid = ""
        event = block.events[0] if block.events else None
        if event is not None and event.kind == TRUNCATED:
            note = f"truncated: {describe_loss(event, block.text(event))}"
            if event.count:
                self.next = event.hi + 1
                notes.append(note)
            else:
                # The next block may count them; if not, `end` returns this note.
                self.next = event.lo
                self._unsaid = note
        return notes

    def end(self) -> list[str]:
        """Return notes on what is wrong at the end of the trace."""
        return [self._unsaid] if self._unsaid else []


def find_sources(run: Path) -> list[Source]:
    """Find the traces of a run directory, a journal, or a single file."""
    if run.is_file():
        is_part = _SEGMENT.fullmatch(run.name) is not None
        return [Source(run.resolve().parent.name if is_part else run.stem, run)]
    if journal_segments(run):
        return [Source(run.resolve().name, run)]
    files = sorted(run.glob("trace/*.trace")) or sorted(run.glob("*.trace"))
    found = [Source(path.stem, path) for path in files]
    found += [
        Source(path.name, path)
        for pattern in ("trace/*/", "*/")
        for path in sorted(run.glob(pattern))
        if journal_segments(path)
    ]
    return sorted(found, key=lambda source: source.label)


def read_traces(run: Path) -> dict[str, bytes]:
    """Read the traces of a run for the oracles: the blocks of each, by label. Of a trace that is
    there twice all blocks are in one, so its events come again, which is no whole trace."""
    found: dict[str, bytes] = {}
    for source in find_sources(run):
        found[source.label] = found.get(source.label, b"") + source.read()
    return found


def journal_segments(directory: Path) -> list[Path]:
    """Return the segments of a journal, oldest first; none if the directory is no journal."""
    if not directory.is_dir():
        return []
    # While files are added, a listing may have a new one and lack one that is a little older. A
    # second listing has the older one.
    newest = max(map(_number, _list_segments(directory)), default=-1)
    paths = sorted(_list_segments(directory), key=_number)
    return [path for path in paths if _number(path) <= newest]


def _list_segments(directory: Path) -> list[Path]:
    return [path for path in directory.iterdir() if _SEGMENT.fullmatch(path.name)]


def _number(path: Path) -> int:
    return int(path.stem)


def count_events(blocks: bytes) -> int:
    """Count the events of a trace by the headers of its blocks, without reading the events."""
    return sum(count for _at, count in _headers(blocks))


def wall_of(blocks: bytes) -> int:
    """Return the wall clock, in nanoseconds, when the clock of a trace showed 0."""
    return int(HEADER.unpack_from(blocks)[_WALL])


def shifted(blocks: bytes, by: int) -> bytes:
    """Return whole blocks with the numbers of all their events higher by `by`. A damaged block
    stays as it is: with a check that fits, nobody would see the damage."""
    parts: list[bytes] = []
    start = 0
    for end, _count in _headers(blocks):
        parts.append(_renumbered(blocks[start:end], by))
        start = end
    return b"".join(parts)


def _renumbered(block: bytes, by: int) -> bytes:
    front, body = [*HEADER.unpack_from(block)], block[HEADER.size :]
    check = block[_CHECK_AT : HEADER.size]
    if check != _check(block[:_CHECK_AT] + body):
        return block
    front[_FIRST] += by
    head = HEADER.pack(*front)[:_CHECK_AT]
    return head + _check(head + body) + body


def _check(rest: bytes) -> bytes:
    """Return the check of a block: over all that comes before it, and after it."""
    return xxh3_64_intdigest(rest).to_bytes(8, "little")


def split_rest(blocks: bytes) -> tuple[bytes, bytes]:
    """Return the whole blocks, and what follows them: a torn block, or damage."""
    ends = [end for end, _count in _headers(blocks) if end <= len(blocks)]
    at = max(ends, default=0)
    return blocks[:at], blocks[at:]


def blocks_from(blocks: bytes, first: int) -> bytes:
    """Return the blocks whose events have the number `first` or a higher one."""
    start = 0
    for end, _count in _headers(blocks):
        if HEADER.unpack_from(blocks, start)[_FIRST] >= first:
            return blocks[start:]
        start = end
    return blocks[start:]


def next_number(blocks: bytes) -> int:
    """Return the number after that of the last event."""
    start = number = 0
    for end, count in _headers(blocks):
        number = HEADER.unpack_from(blocks, start)[_FIRST] + count
        start = end
    return int(number)


def member_names(sources: list[Source]) -> dict[int, str]:
    """Return labels by short id, from the members' START events."""
    names = {0: "rig"}
    for source in sources:
        block = next(source.blocks(), None)
        if block is not None and block.events and block.events[0].kind == START:
            names[block.member] = source.label
    return names


def _blocks_of(path: Path) -> Iterator[Block]:
    return read_blocks_untrusted(_read(path), xxh3_64_intdigest)


def _read(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except FileNotFoundError:
        # The member has dropped this segment meanwhile; the gap in event numbers is noted.
        return b""


def _until_end(data: bytes, *, is_last: bool) -> bytes:
    """Return a segment without the part that was allocated and not written."""
    at = max((end for end, _count in _headers(data)), default=0)
    # A member goes on to the next segment only after a whole block. The rest of a block that a kill
    # cut short stays, so that the oracles learn of it.
    return data[:at] + (data[at:].rstrip(b"\0") if is_last else b"")


def _headers(data: bytes) -> Iterator[tuple[int, int]]:
    """Yield for each block where it ends, by its header, and how many events it has."""
    at = 0
    while len(data) - at >= HEADER.size and data.startswith(MAGIC, at):
        _magic, _version, _size, _member, count, _first, _wall, texts, *_ = HEADER.unpack_from(
            data, at
        )
        at += HEADER.size + count * RECORD.size + texts
        yield at, count
