"""The segments of a journal: files that are allocated ahead, within a bound on the bytes of all."""

from __future__ import annotations

import os
from collections import deque
from contextlib import suppress
from dataclasses import dataclass
from mmap import MADV_RANDOM, mmap
from pathlib import Path
from typing import TYPE_CHECKING, Final

from stormcast.node.core.codec import Hash64
from stormcast.node.trace.truncation import front_of, pack_truncated

if TYPE_CHECKING:
    from stormcast.node.trace.journal import JournalConfig

DROP_OLDEST: Final = "drop-oldest"
STOP: Final = "stop"
SUFFIX: Final = ".trace"
RESERVE: Final = 512
"""Bytes kept free at the end of what is mapped: for two TRUNCATED events about one loss, when it
begins, and when its end is known."""
_WINDOW: Final = 256 << 10
"""Bytes that are allocated and mapped at a time. A whole segment would stall a turn for
milliseconds; this much takes some 0.1 ms, in memory (tmpfs) as on disk."""
_FORGOTTEN: Final = "forgotten, as somebody else has them"


def segment_name(number: int) -> str:
    """Return the file name of a segment."""
    return f"{number:06}{SUFFIX}"


@dataclass(slots=True)
class _Segment:
    path: Path
    first: int
    """Number of the first event in it."""
    size: int
    """Bytes allocated."""
    missing: int = 0
    """Events between the first and the next segment's first that it does not hold."""


class Segments:
    """The files of one incarnation, of which the last is written, and the oldest are deleted."""

    def __init__(self, config: JournalConfig, directory: Path, hash64: Hash64) -> None:
        self.head = b""
        """The first block, which identifies the member; kept when its segment is dropped."""
        self.begun = 0
        """Segments begun, those included that were dropped since."""
        self.written = 0
        """Bytes in finished segments."""
        self.events_dropped = 0
        """Events in segments that were dropped at the limit."""
        self._config = config
        self._directory = directory
        self._hash64 = hash64
        self._held: deque[_Segment] = deque()
        """Oldest first; the last one is written. The rest of a dropped first one is not here."""
        self._fd = -1

    def begin(self, first: int, size: int, position: int) -> mmap:
        """Go on in a new segment, with event `first`; the one before ends at `position`. Return a
        window with room for `size` bytes. If that fails, nothing has changed."""
        path = self._directory / segment_name(self.begun)
        fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o666)
        try:
            window = self._allocate(fd, 0, size)
        except OSError:
            os.close(fd)
            with suppress(OSError):
                path.unlink()
            raise
        if self._held:
            self._finish(position)
        self._fd = fd
        self._held.append(_Segment(path, first, len(window)))
        self.begun += 1
        return window

    def _finish(self, position: int) -> None:
        os.close(self._fd)
        self.written += position

    def end(self, position: int) -> None:
        """Close the last segment, and cut it there."""
        self._finish(position)
        # A segment that cannot be cut ends in zeros, as after a kill.
        with suppress(OSError):
            os.truncate(self._held[-1].path, position)

    def extend(self, base: int, size: int) -> mmap:
        """Return a window at `base` of the last segment, with room for `size` bytes."""
        window = self._allocate(self._fd, base, size)
        segment = self._held[-1]
        segment.size = max(segment.size, base + len(window))
        return window

    def _allocate(self, fd: int, base: int, size: int) -> mmap:
        """Allocate and map a window for `size` bytes, and up to _WINDOW if the segment has them."""
        length = max(size + RESERVE, min(_WINDOW, self._config.segment_bytes - base))
        # Allocated now, so that a full disk is an error here, and not a signal at some write.
        os.posix_fallocate(fd, base, length)
        window = mmap(fd, length, offset=base)
        # Without this the first write to a window reads ahead, and stalls for up to 1 ms.
        window.madvise(MADV_RANDOM)
        return window

    def note_missing(self, count: int) -> None:
        """Note that the last segment does not hold so many events after its first."""
        self._held[-1].missing += count

    def make_way(self, size: int) -> bool:
        """Return whether `size` bytes may be added; `drop-oldest` deletes segments to make room."""
        config = self._config
        held = len(self.head) + sum(segment.size for segment in self._held)
        while held + size > config.limit_bytes:
            # The last segment stays: a loss is noted in it.
            if config.when_full == STOP or len(self._held) == 1:
                return False
            held -= self._held[0].size
            self._drop_oldest(f"limit_bytes {config.limit_bytes}, {DROP_OLDEST}")
        return True

    def forget(self, upto: int) -> int:
        """Delete the finished segments that have only events with numbers below `upto`; return how
        many. Their events are not counted as dropped."""
        deleted = 0
        while len(self._held) > 1 and self._held[1].first <= upto:
            dropped = self.events_dropped
            self._drop_oldest(_FORGOTTEN)
            self.events_dropped = dropped
            deleted += 1
        return deleted

    def _drop_oldest(self, why: str) -> None:
        """Delete the oldest segment, and note in the first one's file which events are gone."""
        oldest = self._held.popleft()
        head = front_of(self.head)
        path = self._directory / segment_name(0)
        if oldest.path == path:
            oldest.first = head.next
            os.truncate(path, len(self.head))
        else:
            oldest.path.unlink(missing_ok=True)
        next_number = self._held[0].first
        self.events_dropped += next_number - oldest.first - oldest.missing
        notice = b""
        if next_number > head.next:
            front = head._replace(first=head.next)
            notice = pack_truncated(front, next_number, why, head.time, self._hash64)
        # Last, and in one call: if the member is killed before, a reader notes missing events.
        fd = os.open(path, os.O_WRONLY | os.O_CREAT, 0o666)
        try:
            os.pwrite(fd, self.head + notice, 0)
        finally:
            os.close(fd)
