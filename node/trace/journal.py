"""The journal: trace blocks on disk, kept through SIGKILL without a system call per turn.

Segments are files that are allocated ahead and written through mapped memory: the kernel keeps what
was written when the process dies. (Not when the machine does: nothing is synchronized.) A member
goes on when its disk is full or its limit is reached, and a TRUNCATED event in the journal says
which events are missing. The layout is docs/trace-format.md.
"""

from __future__ import annotations

import os
import struct
from collections import deque
from contextlib import suppress
from dataclasses import dataclass
from math import inf
from mmap import ALLOCATIONGRANULARITY, MADV_RANDOM, mmap
from pathlib import Path
from typing import Final, NamedTuple

from stormcast.node.core.codec import Hash64
from stormcast.node.core.errors import ClosedError, ConfigError, require, require_type
from stormcast.node.trace import HEADER, MAGIC, RECORD, TRUNCATED, pack_block, pack_text
from stormcast.node.trace.tracer import Tracer

DROP_OLDEST: Final = "drop-oldest"
STOP: Final = "stop"
SUFFIX: Final = ".trace"
RETRY_INTERVAL: Final = 1.0
"""Seconds of the member's clock between two attempts to find room."""

_MIN_SEGMENT: Final = 4096
_WINDOW: Final = 256 << 10
"""Bytes that are allocated and mapped at a time. A whole segment would stall a turn for
milliseconds; this much takes some 0.1 ms, in memory (tmpfs) as on disk."""
_RESERVE: Final = 512
"""Bytes kept free at the end of what is mapped: for two TRUNCATED events about one loss, see
`_lose`."""
_MAX_WHY: Final = 64
_TO_BE_SAID: Final = 0
"""In place of the next event's number, while it is not known how many events are missing."""
_MAX_COUNT: Final = (1 << 32) - 1
_LEAST_SEGMENTS: Final = 4
_TIME: Final = struct.Struct("<d")


_FORGOTTEN: Final = "forgotten, as somebody else has them"


def segment_name(number: int) -> str:
    """Return the file name of a segment."""
    return f"{number:06}{SUFFIX}"


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
class _Segment:
    path: Path
    first: int
    """Number of the first event in it."""
    size: int
    """Bytes allocated."""
    missing: int = 0
    """Events between the first and the next segment's first that it does not hold."""


@dataclass(slots=True)
class _Loss:
    """The events that found no room since the last block was kept."""

    why: str
    front: _Front
    """Facts of the first block that was lost."""
    next: int
    """Number of the first event after them."""
    time: float
    retry_at: float


class _Front(NamedTuple):
    """Facts of a block, for the paths that are not hot."""

    member: int
    count: int  # type: ignore[assignment]  # hides tuple.count
    first: int
    wall_ns: int
    time: float
    """The time of its last event."""

    @property
    def next(self) -> int:
        """Number of the first event after it."""
        return self.first + self.count


class Journal:
    """The segments of one incarnation. Keeps blocks up to a limit, and notes every loss."""

    __slots__ = (
        "_at",
        "_base",
        "_fd",
        "_hash64",
        "_head",
        "_is_open",
        "_loss",
        "_map",
        "_room",
        "_segments",
        "_written",
        "blocks",
        "config",
        "directory",
        "events_lost",
        "segments",
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
        self.events_lost = 0
        """Events that found no room, or were dropped since."""
        self.segments = 0
        """Segments begun, those included that were dropped since."""
        self._hash64 = hash64
        self._head = b""
        """The first block, which identifies the member; kept when its segment is dropped."""
        self._segments: deque[_Segment] = deque()
        """Oldest first; the last one is written. The rest of a dropped first one is not here."""
        self._loss: _Loss | None = None
        self._is_open = True
        self._fd = -1
        self._map: mmap
        """The window: the part of the last segment that is mapped to be written."""
        self._base = 0
        """The offset of the window in the segment."""
        self._at = 0
        """The offset of the next block in the window."""
        self._room = -1
        """The last position in the window at which a block may end; -1 while blocks are lost, and
        before the first."""
        self._written = 0
        """Bytes in finished segments."""
        try:
            self.directory.mkdir(parents=True, exist_ok=True)
            if any(self.directory.iterdir()):
                raise ConfigError(f"{self.directory} holds something already: name another journal")
            self._begin_segment(0, 0)
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
        size = self._base + self._at
        self._finish_segment()
        # A segment that cannot be cut ends in zeros, as after a kill.
        with suppress(OSError):
            os.truncate(self._segments[-1].path, size)

    @property
    def written(self) -> int:
        """Bytes written."""
        return self._written + self._base + self._at

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
        deleted = 0
        while len(self._segments) > 1 and self._segments[1].first <= upto:
            lost = self.events_lost
            self._drop_oldest(_FORGOTTEN)
            self.events_lost = lost
            deleted += 1
        return deleted

    # -- Room --------------------------------------------------------------------------------

    def _write_slowly(self, block: bytes) -> None:
        """Keep a block for which the window has no room, if there is room anywhere."""
        if not self._is_open:
            raise ClosedError("the journal is closed")
        front, loss = _front_of(block), self._loss
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
            self._segments[-1].missing += loss.next - loss.front.first
            self._loss = None
        if not self._head:
            self._head = block
        self._put(block)
        self.blocks += 1

    def _find_room(self, first: int, size: int) -> str:
        """Find room for `size` bytes, which begin with event `first`; return why there is none."""
        position = self._base + self._at
        segment_bytes = self.config.segment_bytes
        is_fitting = position + size + _RESERVE <= segment_bytes
        try:
            if not is_fitting and not self._make_way(max(segment_bytes, size + _RESERVE)):
                return f"limit_bytes {self.config.limit_bytes}"
            # An empty segment takes whatever comes: no block is too large for a segment.
            if is_fitting or not position:
                self._move_window(position, size)
            else:
                self._begin_segment(first, size)
        except OSError as error:
            return _reason(error)
        return ""

    def _lose(self, front: _Front, why: str) -> None:
        """Count a block that is not kept; if it is the first, note the loss in the room reserved.

        The number of lost events is known when a block is kept again, or at the end. But a member
        that is killed before must not leave a journal that looks whole.
        """
        loss = self._loss
        if loss is None:
            loss = self._loss = _Loss(why, front, front.first, front.time, -inf)
            self._room = -1
            self._put(self._notice(front, _TO_BE_SAID, why, front.time))
        loss.next, loss.time = front.next, front.time
        if front.time >= loss.retry_at:
            is_final = self.config.when_full == STOP and why.startswith("limit_bytes")
            loss.retry_at = inf if is_final else front.time + RETRY_INTERVAL
        self.events_lost += front.count

    def _notice_of(self, loss: _Loss) -> bytes:
        """Return the note of a loss, whose number of events is known now."""
        return self._notice(loss.front, loss.next, loss.why, loss.time)

    def _notice(self, front: _Front, next_number: int, why: str, time: float) -> bytes:
        """Return a TRUNCATED block for the events from `front`'s first to before `next_number`."""
        lo = front.first
        count = max(0, next_number - lo)
        hi = lo + count - 1 if count else 0
        # `count` has 32 bits; of a larger loss `lo` and `hi` say how large it is.
        record = (TRUNCATED, 0, 0, 0, 0, 0, 0, 0, min(count, _MAX_COUNT), lo, hi, 0, 0, 0, 1, time)
        return pack_block(
            front.member, lo, front.wall_ns, [record], pack_text(why[:_MAX_WHY]), self._hash64
        )

    def _put(self, block: bytes) -> None:
        """Write a block at the current position, where there is room for it."""
        at = self._at
        self._at = end = at + len(block)
        self._map[at + 4 : end] = block[4:]
        self._map[at : at + 4] = MAGIC

    # -- Files -------------------------------------------------------------------------------

    def _begin_segment(self, first: int, size: int) -> None:
        """Go on in a new segment; if that fails, nothing has changed."""
        path = self.directory / segment_name(self.segments)
        fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o666)
        try:
            window = self._allocate(fd, 0, size)
        except OSError:
            os.close(fd)
            with suppress(OSError):
                path.unlink()
            raise
        if self._segments:
            self._finish_segment()
        self._fd = fd
        self._segments.append(_Segment(path, first, len(window)))
        self.segments += 1
        self._use(window, 0, 0)

    def _finish_segment(self) -> None:
        self._map.close()
        os.close(self._fd)
        self._written += self._base + self._at
        self._base = self._at = 0

    def _move_window(self, position: int, size: int) -> None:
        """Map the part of the segment that begins at `position`, or a little before."""
        base = position // ALLOCATIONGRANULARITY * ALLOCATIONGRANULARITY
        window = self._allocate(self._fd, base, position - base + size)
        self._map.close()
        segment = self._segments[-1]
        segment.size = max(segment.size, base + len(window))
        self._use(window, base, position - base)

    def _use(self, window: mmap, base: int, at: int) -> None:
        self._map, self._base, self._at = window, base, at
        self._room = len(window) - _RESERVE

    def _allocate(self, fd: int, base: int, size: int) -> mmap:
        """Allocate and map a window for `size` bytes, and up to _WINDOW if the segment has them."""
        length = max(size + _RESERVE, min(_WINDOW, self.config.segment_bytes - base))
        # Allocated now, so that a full disk is an error here, and not a signal at some write.
        os.posix_fallocate(fd, base, length)
        window = mmap(fd, length, offset=base)
        # Without this the first write to a window reads ahead, and stalls for up to 1 ms.
        window.madvise(MADV_RANDOM)
        return window

    def _make_way(self, size: int) -> bool:
        """Return whether `size` bytes may be added; `drop-oldest` deletes segments to make room."""
        config = self.config
        held = len(self._head) + sum(segment.size for segment in self._segments)
        while held + size > config.limit_bytes:
            # The last segment stays: a loss is noted in it.
            if config.when_full == STOP or len(self._segments) == 1:
                return False
            held -= self._segments[0].size
            self._drop_oldest(f"limit_bytes {config.limit_bytes}, {DROP_OLDEST}")
        return True

    def _drop_oldest(self, why: str) -> None:
        """Delete the oldest segment, and note in the first one's file which events are gone."""
        oldest = self._segments.popleft()
        head = _front_of(self._head)
        path = self.directory / segment_name(0)
        if oldest.path == path:
            oldest.first = head.next
            os.truncate(path, len(self._head))
        else:
            oldest.path.unlink(missing_ok=True)
        next_number = self._segments[0].first
        self.events_lost += next_number - oldest.first - oldest.missing
        notice = b""
        if next_number > head.next:
            notice = self._notice(head._replace(first=head.next), next_number, why, head.time)
        # Last, and in one call: if the member is killed before, a reader notes missing events.
        fd = os.open(path, os.O_WRONLY | os.O_CREAT, 0o666)
        try:
            os.pwrite(fd, self._head + notice, 0)
        finally:
            os.close(fd)


def _front_of(block: bytes) -> _Front:
    _magic, _version, _size, member, count, first, wall_ns, *_rest = HEADER.unpack_from(block)
    # The time is the last field of a record.
    (time,) = _TIME.unpack_from(block, HEADER.size + count * RECORD.size - _TIME.size)
    return _Front(member, count, first, wall_ns, time)


def _reason(error: OSError) -> str:
    return (error.strerror or str(error)).lower()
