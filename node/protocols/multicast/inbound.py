"""What is known of one sender's multicasts: one life of a receive window."""

from __future__ import annotations

from collections import deque
from math import inf

from node.core.batch import Arrival
from node.core.gaps import GapLook
from node.core.rtt import RoundTrip
from node.core.window import ReceiveWindow


class Inbound:
    """The receive window of one sender, and when to look at it; its life is one epoch."""

    __slots__ = (
        "ack_repeats",
        "ack_wanted",
        "acked",
        "asked_at",
        "epoch",
        "gap_at",
        "gaps",
        "is_synced",
        "kept",
        "last_ack",
        "nonce",
        "peer",
        "sync_target",
        "sync_tries",
        "unacked",
        "window",
    )

    def __init__(
        self, peer: int, epoch: int, window: ReceiveWindow[Arrival], rtt: RoundTrip
    ) -> None:
        self.peer = peer
        self.epoch = epoch
        self.window = window
        self.gaps = GapLook(rtt)
        self.is_synced = False
        """Whether the sender has said, once and for good, from where on everything can be had."""
        self.sync_target = -1
        """What must be delivered to be complete; -1 until the sender has said it."""
        self.sync_tries = 0
        self.nonce = 0
        """What the answer to the open question repeats: it was given after the question, and by the
        sender; 0: no question is open."""
        self.asked_at = -inf
        self.gap_at = -1
        """Where the gap stood that an alarm was set for."""
        self.kept: deque[Arrival] = deque()
        """Delivered batches that others may ask for, oldest first."""
        self.unacked = 0
        """Messages taken since the last ack."""
        self.ack_wanted = False
        """An ack leaves at the end of this turn."""
        self.last_ack = -inf
        self.acked = -1
        """Value of the last ack, and how often that value was sent before."""
        self.ack_repeats = 0
