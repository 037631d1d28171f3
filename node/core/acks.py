"""What a receiver has reported of one window, and whether it has to report again."""

from __future__ import annotations

from math import inf


class AckState:
    """The acks of one receive window."""

    __slots__ = ("is_wanted", "repeats", "sent_at", "unacked", "value")

    def __init__(self) -> None:
        self.unacked = 0
        """Messages taken since the last ack."""
        self.is_wanted = False
        """An ack leaves at the end of this turn."""
        self.sent_at = -inf
        self.value = -1
        """What the last ack said; -1 before the first."""
        self.repeats = 0
        """How often the same value was sent before."""

    def note_sent(self, value: int, now: float) -> int:
        """An ack leaves; returns its transmission number. The fate of a frame is drawn from its
        preamble: a repeated ack must not share the lost one's."""
        self.repeats = min(self.repeats + 1, 255) if value == self.value else 0
        self.value = value
        self.unacked = 0
        self.sent_at = now
        return self.repeats
