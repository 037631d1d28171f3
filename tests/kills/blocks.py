"""What members wrote, block by block, and what it must have in it by what others wrote.

A member hands its blocks over before the frames of the same turn leave (docs/trace-format.md). So a
member that is killed loses nothing that a peer has seen: of what a peer delivered it has the
sending, and of what a peer purged because it was acked it has the delivery.
"""

from __future__ import annotations

import os
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

from xxhash import xxh3_64_intdigest

from stormcast.node import trace
from stormcast.node.core.errors import BadTrace
from stormcast.node.trace import HEADER, MAGIC, RECORD, Event, read_block_untrusted
from stormcast.node.trace.files import Source, find_sources

Key = tuple[int, int, int]
"""Of a stream of messages: sender, receiver (0: the group), connection (0: the group's)."""
RIG = "rig"


def raw_blocks(data: bytes) -> list[bytes]:
    """Cut a trace into its blocks; what a kill cut short is no block."""
    found, at = [], 0
    while len(data) - at >= HEADER.size and data.startswith(MAGIC, at):
        _magic, _version, _size, _member, count, _first, _wall, texts, *_ = HEADER.unpack_from(
            data, at
        )
        end = at + HEADER.size + count * RECORD.size + texts
        if end > len(data):
            break
        found.append(data[at:end])
        at = end
    return found


def journals_below(folder: Path) -> dict[str, Path]:
    """Return the journals below a folder, by label; they may go meanwhile."""
    places = [Path(place) for place, _folders, _files in os.walk(folder)]
    return {path.name: path for path in sorted(places) if path.parent.name == "journal"}


def kept(folder: Path) -> dict[str, bytes]:
    """Return what is there of each member, by label: in journals below a folder, or, where those
    are gone, in the traces of the run directory that the folder is."""
    found = {}
    for label, path in journals_below(folder).items():
        with suppress(OSError):
            found[label] = Source(label, path).read()
    # They are there before the journals go.
    if (folder / "trace").is_dir():
        found |= {source.label: source.read() for source in find_sources(folder)}
    return found


def snapshot(folder: Path) -> dict[str, list[bytes]]:
    """Return the blocks of each member that are on disk now."""
    return {label: raw_blocks(data) for label, data in kept(folder).items()}


def lost_blocks(before: Mapping[str, list[bytes]], after: Mapping[str, bytes]) -> list[str]:
    """Return a line for each block of a snapshot that is not there any more, as it was."""
    lines = []
    for label, blocks in before.items():
        now = raw_blocks(after.get(label, b""))
        for number, block in enumerate(blocks):
            if number >= len(now) or now[number] != block:
                missing = len(blocks) - number
                lines.append(f"{label}: {missing} of {len(blocks)} blocks on disk are lost")
                break
    return lines


# -- What one trace says of another ----------------------------------------------------------------


@dataclass(slots=True)
class Life:
    """What one incarnation wrote."""

    label: str
    short: int
    events: list[Event]
    texts: dict[int, str]
    """Of VIEW events: their text, by the event's number."""

    def of(self, *kinds: int) -> Iterator[Event]:
        return (event for event in self.events if event.kind in kinds)


def read_lives(traces: Mapping[str, bytes]) -> dict[int, Life]:
    """Read the traces of members, by short id; BadTrace where a whole block is not sound."""
    lives = {}
    for label, data in traces.items():
        if label == RIG:
            continue
        life = Life(label, 0, [], {})
        for raw in raw_blocks(data):
            block, _end = read_block_untrusted(raw, 0, xxh3_64_intdigest)
            life.short = block.member
            for event in block.events:
                if event.kind == trace.VIEW:
                    life.texts[len(life.events)] = block.text(event)
                life.events.append(event)
        if life.events:
            lives[life.short] = life
    return lives


@dataclass(slots=True)
class Ranges:
    """Seqnos of one stream, and the digests of the batches that they came in."""

    seqnos: set[int] = field(default_factory=set)
    digests: set[int] = field(default_factory=set)

    def add(self, event: Event) -> None:
        self.seqnos.update(range(event.lo, event.hi + 1))
        self.digests.add(event.digest)


def sent_of(lives: Iterable[Life]) -> dict[Key, Ranges]:
    """Return what each member says that it sent."""
    found: defaultdict[Key, Ranges] = defaultdict(Ranges)
    for life in lives:
        for event in life.of(trace.SENT):
            if event.lo:
                found[life.short, event.peer, event.conn].add(event)
    return found


def delivered_of(lives: Iterable[Life]) -> dict[tuple[int, Key], Ranges]:
    """Return what each member says that it delivered, by the member and the stream."""
    found: defaultdict[tuple[int, Key], Ranges] = defaultdict(Ranges)
    for life in lives:
        for event in life.of(trace.DELIVERED):
            if event.lo:
                found[life.short, _stream_of(event, life.short)].add(event)
    return found


def _stream_of(event: Event, mine: int) -> Key:
    return (event.peer, mine if event.conn else 0, event.conn)


def unknown_to_their_makers(traces: Mapping[str, bytes]) -> list[str]:
    """Return a line for each stream of which others have what its maker's trace lacks."""
    try:
        lives = read_lives(traces)
    except BadTrace as bad:
        return [f"a block is not sound: {bad.reason}"]
    sent, delivered = sent_of(lives.values()), delivered_of(lives.values())
    lines = []
    for (receiver, key), ranges in delivered.items():
        if key[0] not in lives:
            continue
        mine = sent.get(key, Ranges())
        lacking = sorted(ranges.seqnos - mine.seqnos)
        who = f"{lives[key[0]].label}, which {lives[receiver].label} delivered of it"
        if lacking:
            lines.append(f"{len(lacking)} messages from {lacking[0]} on are not in {who}")
        elif ranges.digests - mine.digests:
            lines.append(f"the bytes of a batch are not in {who}")
    for life in lives.values():
        for event in life.of(trace.PURGED):
            other = lives.get(event.peer)
            if other is None or not event.conn:
                continue
            has = delivered.get((other.short, (life.short, other.short, event.conn)), Ranges())
            lacking = sorted(set(range(event.lo, event.hi + 1)) - has.seqnos)
            if lacking:
                lines.append(
                    f"{len(lacking)} messages from {lacking[0]} on, which {other.label} acked to "
                    f"{life.label}, are not in {other.label}"
                )
    return lines
