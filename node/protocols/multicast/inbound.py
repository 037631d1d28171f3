"""The state kept for one sender's multicasts: one life of a receive window."""

from __future__ import annotations

from collections import deque
from math import inf
from typing import Final

from stormcast.node.core.acks import AckState
from stormcast.node.core.batch import Arrival
from stormcast.node.core.gaps import GapLook
from stormcast.node.core.rtt import RoundTrip
from stormcast.node.core.window import ReceiveWindow
from stormcast.node.core.wire import Head

MAX_AHEAD: Final = 1 << 20
"""Messages that a sender's window holds more than ours, at most, if they are set differently."""


class Inbound:
    """The receive window of one sender, and when to look at it; its life is one epoch."""

    __slots__ = (
        "acks",
        "asked_at",
        "epoch",
        "gap_at",
        "gaps",
        "is_shut",
        "is_synced",
        "kept",
        "nonce",
        "peer",
        "sync_target",
        "sync_tries",
        "unmeant",
        "window",
    )

    def __init__(
        self, peer: int, epoch: int, window: ReceiveWindow[Arrival], rtt: RoundTrip
    ) -> None:
        self.peer = peer
        self.epoch = epoch
        self.window = window
        self.gaps = GapLook(rtt)
        self.acks = AckState()
        self.is_shut = False
        """Whether batches are refused until a stalled application goes on: earlier windows have
        left it as much as a window holds (G5)."""
        self.is_synced = False
        """Whether the window is complete: it has all that the sender said can be had."""
        self.sync_target = -1
        """Seqno up to which a complete window has everything; -1 until the sender has said it."""
        self.sync_tries = 0
        self.nonce = 0
        """The number of the open question; 0: none is open. An answer that repeats the number was
        given after the question, and by the sender."""
        self.asked_at = -inf
        self.unmeant = -1
        """Seqno up to which the sender said that it sent in views without this member."""
        self.gap_at = -1
        """The `deliverable` of the window when the alarm for its gap was set; -1: no alarm is
        set."""
        self.kept: deque[Arrival] = deque()
        """Delivered batches that others may ask for, oldest first."""

    def farthest(self) -> int:
        """The highest seqno that a sender in the same views can have sent."""
        return self.window.delivered + 2 * self.window.capacity + MAX_AHEAD

    def is_far(self, head: Head) -> bool:
        """Whether a frame names seqnos that a sender in the same views cannot have reached. Such a
        sender waits for this member: it has purged nothing, and sent little, far ahead of what was
        delivered here. A window that is not synced may begin anywhere: its sender may not have
        known this member."""
        if not self.is_synced:
            return False
        window = self.window
        near = window.delivered + 2 * window.capacity
        return head.mark > near or head.lo > near + MAX_AHEAD

    def drop_kept(self, purged: int) -> None:
        """Drop kept batches that their sender has purged: every member has them, so nobody will ask
        for them (G5)."""
        kept = self.kept
        while kept and kept[0].head.lo + kept[0].head.count - 1 <= purged:
            kept.popleft()
