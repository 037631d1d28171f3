"""What a protocol sees of its member: lists to enqueue into, and nothing that calls back."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from node.core.codec import Codec
    from node.core.model import Delivery
    from node.trace import Tracer

Frame = tuple[int, bytes, bytes]
"""Destination short id, head, body: two parts, so that a transport may gather instead of copy."""


class Port:
    """The seam between a protocol and the stack. Everything on it only enqueues."""

    __slots__ = ("closed", "codec", "deliveries", "drops", "frames", "me", "tracer", "woken")

    def __init__(self, codec: Codec, tracer: Tracer) -> None:
        self.codec = codec
        self.me = codec.source
        self.tracer = tracer
        self.frames: list[Frame] = []
        self.deliveries: list[Delivery] = []
        self.woken: list[int] = []
        """Peers whose window has room again."""
        self.closed: list[int] = []
        """Peers whose sender entry was removed."""
        self.drops: dict[str, int] = {}
        """What was refused in this turn, by reason; the stack records and counts it."""

    def drop(self, reason: str, count: int = 1) -> None:
        """Count something refused or thrown away."""
        self.drops[reason] = self.drops.get(reason, 0) + count
