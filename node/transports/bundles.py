"""Frames for one member, put together into as few writes as may be: pure, no socket."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from stormcast.node.settings.transports import MAX_DATAGRAM

IOV_MAX: Final = 1024
"""Parts of one write."""
LARGE_FROM: Final = 16384
"""A body of so many bytes travels in a datagram of its own, uncopied."""
MAX_SEGMENTS: Final = 64
"""Frames that the kernel cuts out of one write."""

Parts = list[bytes]
"""Heads and bodies, in order."""


def join_frames(frames: Iterable[tuple[bytes, bytes]], limit: int) -> list[Parts]:
    """Datagrams of up to `limit` bytes; a frame above that is one of its own."""
    datagrams: list[Parts] = []
    parts: Parts = []
    size = 0
    for head, body in frames:
        length = len(head) + len(body)
        if parts and (
            size + length > limit
            or len(body) >= LARGE_FROM
            # One write takes no more, and each frame adds two at most.
            or len(parts) > IOV_MAX - 2
        ):
            datagrams.append(parts)
            parts, size = [], 0
        parts += (head, body) if body else (head,)
        size += length
    return [*datagrams, parts]


def line_up_segments(frames: Iterable[tuple[bytes, bytes]], packet: int) -> list[tuple[Parts, int]]:
    """Writes out of which the kernel cuts packets again, each with the size to cut at, 0 for a
    single frame: frames of one length, and at most one shorter after them."""
    writes: list[tuple[Parts, int]] = []
    parts: Parts = []
    segment = number = total = 0
    is_ended = False
    for head, body in frames:
        length = len(head) + len(body)
        if parts and (
            is_ended
            or length > segment
            or segment > packet  # What is larger than a packet, the kernel does not cut.
            or number == MAX_SEGMENTS
            or total + length > MAX_DATAGRAM
        ):
            writes.append((parts, segment if number > 1 else 0))
            parts, segment, number, total, is_ended = [], 0, 0, 0, False
        if not parts:
            segment = length
        is_ended = length < segment
        parts += (head, body) if body else (head,)
        number += 1
        total += length
    return [*writes, (parts, segment if number > 1 else 0)]
