"""The acks of one receive window: what the last one reported, and whether another one is due."""

from __future__ import annotations

from math import inf

from stormcast.node.core.wire import told_apart


class AckState:
    """The acks of one receive window."""

    __slots__ = ("is_wanted", "repeats", "sent_at", "unacked", "value")

    def __init__(self) -> None:
        self.unacked = 0
        """Messages taken since the last ack."""
        self.is_wanted = False
        """Whether an ack is to be sent at the end of this turn."""
        self.sent_at = -inf
        self.value = -1
        """The seqno that the last ack reported; -1 before the first."""
        self.repeats = 0
        """The transmission number of the last ack: 0 for a new value, then one more for each
        repeat."""

    def note_sent(self, value: int, now: float) -> int:
        """Note that an ack is sent; return its transmission number. The fate of a frame is drawn
        from its preamble: a repeat with the number of a lost ack would be lost, too."""
        self.repeats = told_apart(self.repeats + 1) if value == self.value else 0
        self.value = value
        self.unacked = 0
        self.sent_at = now
        return self.repeats
