"""Whether too much waits to be sent, until enough of it has left."""

from __future__ import annotations

from collections.abc import Iterable

from stormcast.node.settings.transports import TransportConfig
from stormcast.node.transports.owner import TransportOwner


class Room:
    """Closes a member's outbox when a queue is full, until all queues are half empty."""

    __slots__ = ("_owner", "drops", "frames", "is_full", "size")

    def __init__(self, config: TransportConfig, owner: TransportOwner) -> None:
        self.frames = config.queue_frames
        self.size = config.queue_bytes
        self.drops = config.drop_when_full
        """Whether frames beyond these bounds are dropped."""
        self.is_full = False
        self._owner = owner

    def reopen(self, queues: Iterable[tuple[int, int]]) -> None:
        """Open the outbox again if each queue, in frames and in bytes, is half empty."""
        frames, size = self.frames // 2, self.size // 2
        if self.is_full and all(waiting <= frames and left <= size for waiting, left in queues):
            self.is_full = False
            self._owner.turn()
