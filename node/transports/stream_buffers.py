"""The two buffers of a connection: frames that wait to leave, and bytes that have come."""

from __future__ import annotations

from collections import deque
from typing import Final

READ_BYTES: Final = 256 << 10
"""Bytes that are read at once, and the least size of the buffer for them."""
STRANGERS_BYTES: Final = 4 << 10
"""The same for a connection of a stranger: the memory is not given before it is known who writes.
"""
FRAME_COST: Final = 160
"""Bytes that a frame in a queue costs beside its own, for Python's objects: 123 were measured, and
each of its parts is rounded up."""


class OutQueue:
    """Frames in order; a part of the first one may have left already."""

    __slots__ = ("frames", "parts", "size")

    def __init__(self) -> None:
        self.size = 0
        """Bytes that wait."""
        self.frames: deque[int] = deque()
        """Bytes that are left of each frame."""
        self.parts: deque[bytes | memoryview] = deque()
        """The frames themselves, each in one part or two."""

    @property
    def cost(self) -> int:
        """Bytes of memory that what waits takes."""
        return self.size + FRAME_COST * len(self.frames)

    def put(self, parts: tuple[bytes, ...]) -> None:
        """Append a frame."""
        self.parts += parts
        size = sum(map(len, parts))
        self.frames.append(size)
        self.size += size

    def put_first(self, part: bytes) -> None:
        """Put a frame before all others, of which nothing has left yet."""
        self.put((part,))
        self.parts.rotate(1)
        self.frames.rotate(1)

    def take_over(self, other: OutQueue) -> None:
        """Append all that waits in another queue, of which nothing has left yet."""
        self.parts += other.parts
        self.frames += other.frames
        self.size += other.size
        other.parts.clear()
        other.frames.clear()
        other.size = 0

    def drop_rest(self) -> int:
        """Throw all frames away but the first, of which a part may have left; return how many."""
        dropped = max(0, len(self.frames) - 1)
        if dropped:
            self.size = left = self.frames[0]
            first: deque[bytes | memoryview] = deque()
            while left:
                first.append(self.parts.popleft())
                left -= len(first[-1])
            self.parts, self.frames = first, deque([self.size])
        return dropped

    def take(self, sent: int) -> None:
        """Remove `sent` bytes from the front: they have left."""
        self.size -= sent
        parts, frames = self.parts, self.frames
        left = sent
        while left:
            part = parts[0]
            if len(part) > left:
                parts[0] = memoryview(part)[left:]
                break
            left -= len(part)
            parts.popleft()
        while sent:
            if frames[0] > sent:
                frames[0] -= sent
                break
            sent -= frames.popleft()


class InBuffer:
    """Bytes that have come and are not taken yet: `view[start:end]`."""

    __slots__ = ("end", "size", "start", "view")

    def __init__(self, size: int = READ_BYTES) -> None:
        self.size = size
        self.view = memoryview(bytearray(size))
        self.start = self.end = 0

    def need(self, size: int) -> None:
        """Make room for a frame of `size` bytes from `start` on, if there is none."""
        if self.size - self.start < size:
            self.make_room(size)

    def shrink(self, size: int) -> None:
        """Give memory back but for `size` bytes, into which what is left must fit."""
        left = self.end - self.start
        fresh = memoryview(bytearray(size))
        fresh[:left] = self.view[self.start : self.end]
        self.view, self.size = fresh, size
        self.start, self.end = 0, left

    def make_room(self, size: int = 0) -> None:
        """Move the bytes that are left to the front; of a larger buffer, if `size` needs it."""
        left = self.end - self.start
        if size > self.size:
            fresh = memoryview(bytearray(size))
            fresh[:left] = self.view[self.start : self.end]
            self.view, self.size = fresh, size
        else:
            self.view[:left] = bytes(self.view[self.start : self.end])
        self.start, self.end = 0, left
