"""The journal: trace blocks on disk, kept through SIGKILL without a system call per turn.

Segments are files that are allocated ahead and written through mapped memory: the kernel keeps what
was written when the process dies. (Not when the machine does: nothing is synchronized.) A member
goes on when its disk is full or its limit is reached, and a TRUNCATED event in the journal says
which events are missing. The layout is docs/trace-format.md.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import inf
from mmap import ALLOCATIONGRANULARITY, mmap
from pathlib import Path
from typing import Final

from stormcast.node.core.codec import Hash64
from stormcast.node.core.errors import ClosedError, ConfigError, require, require_type
from stormcast.node.trace import MAGIC
from stormcast.node.trace.segments import DROP_OLDEST, RESERVE, STOP, Segments
from stormcast.node.trace.tracer import Tracer
from stormcast.node.trace.truncation import TO_BE_SAID, Front, front_of, pack_truncated

RETRY_INTERVAL: Final = 1.0
"""Seconds of the member's clock between two attempts to find room."""

_MIN_SEGMENT: Final = 4096
_LEAST_SEGMENTS: Final = 4


@dataclass(frozen=True, slots=True, kw_only=True)
class JournalConfig:
    """Settings of a member's journal: its directory and its bounds."""

    directory: Path
    """Each incarnation of a member makes a directory of its own in it."""

    segment_bytes: int = 4 << 20
    """Bytes of a segment file. Deleting one stalls a turn for up to 0.5 ms per MiB."""

    limit_bytes: int = 1 << 30
    """Bytes on disk of one incarnation, at most."""

    when_full: str = DROP_OLDEST
    """At the limit: `drop-oldest` deletes the oldest segments, `stop` writes nothing more."""

    def __post_init__(self) -> None:
        require_type("journal.directory", self.directory, Path, "a pathlib.Path")
        for name in ("segment_bytes", "limit_bytes"):
            require_type(f"journal.{name}", getattr(self, name), int, "a whole number of bytes")
        require(
            self.segment_bytes >= _MIN_SEGMENT,
            f"journal.segment_bytes is {self.segment_bytes}: write at least {_MIN_SEGMENT}",
        )
        require(
            self.limit_bytes >= _LEAST_SEGMENTS * self.segment_bytes,
            f"journal.limit_bytes is {self.limit_bytes}: write at least "
            f"{_LEAST_SEGMENTS * self.segment_bytes}, {_LEAST_SEGMENTS} segments",
        )
        require(
            self.when_full in (DROP_OLDEST, STOP),
            f"journal.when_full is {self.when_full!r}: write {DROP_OLDEST} or {STOP}",
        )


@dataclass(slots=True)
class _Loss:
    """The events that found no room since the last block was kept."""

    why: str
    front: Front
    """Facts of the first block that was lost."""
    next: int
    """Number of the first event after them."""
    time: float
    retry_at: float


class Journal:
    """The segments of one incarnation. Keeps blocks up to a limit, and notes every loss."""

    __slots__ = (
        "_at",
        "_base",
        "_hash64",
        "_is_open",
        "_loss",
        "_map",
        "_room",
        "_segments",
        "_unkept",
        "blocks",
        "config",
        "directory",
    )

    def __init__(self, config: JournalConfig, label: str, hash64: Hash64) -> None:
        """Make the directory and the first segment; ConfigError if that fails."""
        require(
            bool(label) and "/" not in label and not label.startswith("."),
            f"{label!r} cannot name a journal's directory: name the member with letters and digits",
        )
        self.config = config
        self.directory = config.directory / label
        self.blocks = 0
        """Blocks kept."""
        self._hash64 = hash64
        self._segments = Segments(config, self.directory, hash64)
        self._unkept = 0
        """Events that found no room."""
        self._loss: _Loss | None = None
        self._is_open = True
        self._map: mmap
        """The window: the part of the last segment that is mapped to be written."""
        self._base = 0
        """The offset of the window in the segment."""
        self._at = 0
        """The offset of the next block in the window."""
        self._room = -1
        """The last position in the window at which a block may end; -1 while blocks are lost, and
        before the first."""
        try:
            self.directory.mkdir(parents=True, exist_ok=True)
            if any(self.directory.iterdir()):
                raise ConfigError(f"{self.directory} holds something already: name another journal")
            self._use(self._segments.begin(0, 0, 0), 0, 0)
        except OSError as error:
            raise ConfigError(
                f"journal {self.directory} cannot be written ({_reason(error)}): name a directory "
                "that this user may write to, on a disk with room"
            ) from None
        self._room = -1

    def tracer(self, member: int, wall_ns: int) -> Tracer:
        """Return a tracer for the member, which seals one block per turn."""
        return Tracer(member, wall_ns, self._hash64, self.write)

    def write(self, block: bytes) -> None:
        """Keep a block, or count its events as lost; ClosedError after `close`."""
        at = self._at
        end = at + len(block)
        if end > self._room:
            self._write_slowly(block)
            return
        window = self._map
        # The magic last: no reader takes a block for one that a kill cut short before that.
        window[at + 4 : end] = block[4:]
        window[at : at + 4] = MAGIC
        self._at = end
        self.blocks += 1

    def close(self) -> None:
        """Note a loss that goes on, and cut the last segment to its size. Safe to call twice."""
        if not self._is_open:
            return
        self._is_open = False
        self._room = -1
        if self._loss is not None:
            self._put(self._notice_of(self._loss))
        self._map.close()
        position = self._base + self._at
        self._base = self._at = 0
        self._segments.end(position)

    @property
    def written(self) -> int:
        """Bytes written."""
        return self._segments.written + self._base + self._at

    @property
    def events_lost(self) -> int:
        """Events that found no room, or were dropped since."""
        return self._unkept + self._segments.events_dropped

    @property
    def segments(self) -> int:
        """Segments begun, those included that were dropped since."""
        return self._segments.begun

    @property
    def trouble(self) -> str:
        """The reason why blocks are not kept at present; empty while they are."""
        return self._loss.why if self._loss is not None else ""

    def stats(self) -> dict[str, int]:
        """Return the counters by name."""
        return {
            "bytes": self.written,
            "blocks": self.blocks,
            "events_lost": self.events_lost,
            "segments": self.segments,
        }

    def forget(self, upto: int) -> int:
        """Delete the finished segments that have only events with numbers below `upto`, which
        somebody else has; returns how many. That is no loss, but a reader finds them missing."""
        return self._segments.forget(upto)

    # -- Room --------------------------------------------------------------------------------

    def _write_slowly(self, block: bytes) -> None:
        """Keep a block for which the window has no room, if there is room anywhere."""
        if not self._is_open:
            raise ClosedError("the journal is closed")
        front, loss = front_of(block), self._loss
        if loss is not None and front.time < loss.retry_at:
            self._lose(front, loss.why)
            return
        notice = self._notice_of(loss) if loss is not None else b""
        why = self._find_room(loss.front.first if loss else front.first, len(notice) + len(block))
        if why:
            self._lose(front, why)
            return
        if loss is not None:
            self._put(notice)
            self._segments.note_missing(loss.next - loss.front.first)
            self._loss = None
        if not self._segments.head:
            self._segments.head = block
        self._put(block)
        self.blocks += 1

    def _find_room(self, first: int, size: int) -> str:
        """Find room for `size` bytes, which begin with event `first`; return why there is none."""
        position = self._base + self._at
        segment_bytes = self.config.segment_bytes
        is_fitting = position + size + RESERVE <= segment_bytes
        try:
            if not is_fitting and not self._segments.make_way(max(segment_bytes, size + RESERVE)):
                return f"limit_bytes {self.config.limit_bytes}"
            # An empty segment takes whatever comes: no block is too large for a segment.
            if is_fitting or not position:
                self._move_window(position, size)
            else:
                window = self._segments.begin(first, size, position)
                self._map.close()
                self._use(window, 0, 0)
        except OSError as error:
            return _reason(error)
        return ""

    def _lose(self, front: Front, why: str) -> None:
        """Count a block that is not kept; if it is the first, note the loss in the room reserved.

        The number of lost events is known when a block is kept again, or at the end. But a member
        that is killed before must not leave a journal that looks whole.
        """
        loss = self._loss
        if loss is None:
            loss = self._loss = _Loss(why, front, front.first, front.time, -inf)
            self._room = -1
            self._put(pack_truncated(front, TO_BE_SAID, why, front.time, self._hash64))
        loss.next, loss.time = front.next, front.time
        if front.time >= loss.retry_at:
            is_final = self.config.when_full == STOP and why.startswith("limit_bytes")
            loss.retry_at = inf if is_final else front.time + RETRY_INTERVAL
        self._unkept += front.count

    def _notice_of(self, loss: _Loss) -> bytes:
        """Return the note of a loss, whose number of events is known now."""
        return pack_truncated(loss.front, loss.next, loss.why, loss.time, self._hash64)

    def _put(self, block: bytes) -> None:
        """Write a block at the current position, where there is room for it."""
        at = self._at
        self._at = end = at + len(block)
        self._map[at + 4 : end] = block[4:]
        self._map[at : at + 4] = MAGIC

    def _move_window(self, position: int, size: int) -> None:
        """Map the part of the segment that begins at `position`, or a little before."""
        base = position // ALLOCATIONGRANULARITY * ALLOCATIONGRANULARITY
        window = self._segments.extend(base, position - base + size)
        self._map.close()
        self._use(window, base, position - base)

    def _use(self, window: mmap, base: int, at: int) -> None:
        self._map, self._base, self._at = window, base, at
        self._room = len(window) - RESERVE


def _reason(error: OSError) -> str:
    return (error.strerror or str(error)).lower()
