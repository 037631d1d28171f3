"""The TRUNCATED event of a journal, which says that events are missing, and which."""

from __future__ import annotations

import struct
from typing import Final, NamedTuple

from stormcast.node.core.codec import Hash64
from stormcast.node.trace import HEADER, RECORD, TRUNCATED, pack_block, pack_text

TO_BE_SAID: Final = 0
"""In place of the next event's number, while it is not known how many events are missing."""
_MAX_WHY: Final = 64
_MAX_COUNT: Final = (1 << 32) - 1
_TIME: Final = struct.Struct("<d")


class Front(NamedTuple):
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


def front_of(block: bytes) -> Front:
    """Return the facts of a block of this member."""
    _magic, _version, _size, member, count, first, wall_ns, *_rest = HEADER.unpack_from(block)
    # The time is the last field of a record.
    (time,) = _TIME.unpack_from(block, HEADER.size + count * RECORD.size - _TIME.size)
    return Front(member, count, first, wall_ns, time)


def pack_truncated(front: Front, next_number: int, why: str, time: float, hash64: Hash64) -> bytes:
    """Return a TRUNCATED block for the events from `front`'s first to before `next_number`."""
    lo = front.first
    count = max(0, next_number - lo)
    hi = lo + count - 1 if count else 0
    # `count` has 32 bits; of a larger loss `lo` and `hi` say how large it is.
    record = (TRUNCATED, 0, 0, 0, 0, 0, 0, 0, min(count, _MAX_COUNT), lo, hi, 0, 0, 0, 1, time)
    return pack_block(front.member, lo, front.wall_ns, [record], pack_text(why[:_MAX_WHY]), hash64)
