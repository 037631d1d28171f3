"""Puts frames for one member together into as few writes as possible: pure, no socket."""

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
    """Join frames to datagrams of up to `limit` bytes; a larger frame is a datagram of its own."""
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
    """Join frames to writes that the kernel cuts into packets again: frames of one length, and at
    most one shorter after them. Each write has the size to cut at, 0 for a single frame."""
    writes: list[tuple[Parts, int]] = []
    parts: Parts = []
    segment = number = total = 0
    is_ended = False
    for head, body in frames:
        length = len(head) + len(body)
        if parts and (
            is_ended
            or length > segment
            or segment > packet  # The kernel does not cut segments that are larger than a packet.
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
