"""The two halves of a connection, sender entry and receiver entry. They have different lifetimes
and share nothing but the round trip. `Sync` stands in for a receiver entry that is not open yet."""

from __future__ import annotations

from enum import Enum
from math import inf

from stormcast.node.core.acks import AckState
from stormcast.node.core.batch import Arrival, Batch
from stormcast.node.core.gaps import GapLook
from stormcast.node.core.rtt import RoundTrip
from stormcast.node.core.window import ReceiveWindow, SendWindow

__all__ = ["Arrival", "Batch", "Entry", "ReceiverEntry", "SenderEntry", "State", "Sync"]


class State(Enum):
    """The state of an entry: open or closing. A closed entry is removed."""

    OPEN = "open"
    CLOSING = "closing"


class Entry:
    """The base of both halves: a peer, a connection id, a state, and the time of the next look."""

    __slots__ = (
        "conn",
        "last_used",
        "look_due",
        "peer",
        "rtt",
        "state",
    )

    def __init__(self, peer: int, conn: int, now: float, rtt: RoundTrip) -> None:
        self.peer = peer
        self.conn = conn
        self.state = State.OPEN
        self.rtt = rtt
        self.last_used = now
        self.look_due = inf

    def used_at(self) -> float:
        """Return when this half was last used."""
        return self.last_used

    def is_pending(self) -> bool:
        """Whether the peer still owes something."""
        raise NotImplementedError


class SenderEntry(Entry):
    """The half that sends to `peer`."""

    __slots__ = (
        "established",
        "heard_at",
        "last_stamp",
        "last_stamp_at",
        "tail_resent_at",
        "tries",
        "watermark",
        "window",
    )

    def __init__(
        self, peer: int, conn: int, now: float, rtt: RoundTrip, window: SendWindow[Batch]
    ) -> None:
        super().__init__(peer, conn, now, rtt)
        self.window = window
        self.heard_at = -inf
        self.last_stamp = 0
        """Timestamp of the newest ACK, STABLE or SFS believed; 0 before the first."""
        self.last_stamp_at = -inf
        """When that was."""
        self.watermark = (-1, -1)
        """Highest acked and highest sent at the previous look."""
        self.tries = 0
        """Looks in a row that found nothing changed."""
        self.established = False
        """Whether the peer has acked, so that it has a window."""
        self.tail_resent_at = -inf
        """When UNICAST2 last repeated what the receiver had not seen."""

    def used_at(self) -> float:
        """Return the later of last use and last answer, while an ack is missing: a connection that
        is being flushed is in use as long as the peer answers (G1)."""
        if self.is_pending():
            return max(self.last_used, self.heard_at)
        return self.last_used

    def is_pending(self) -> bool:
        """Whether an ack is missing."""
        return self.window.low < self.window.high

    def unanswered_since(self, now: float) -> float:
        """Return since when the peer has not answered; `now` if no ack is missing."""
        oldest = self.window.oldest()
        return now if oldest is None else max(self.heard_at, oldest.item.sent_at)


class ReceiverEntry(Entry):
    """The half that receives from `peer`; its life is one epoch."""

    __slots__ = (
        "ack_due",
        "acks",
        "epoch",
        "fresh_at",
        "gaps",
        "is_refused",
        "is_stranger",
        "report_due",
        "reports",
        "unacked_bytes",
        "window",
    )

    def __init__(
        self,
        peer: int,
        conn: int,
        now: float,
        rtt: RoundTrip,
        window: ReceiveWindow[Arrival],
        epoch: int,
    ) -> None:
        super().__init__(peer, conn, now, rtt)
        self.window = window
        self.epoch = epoch
        self.is_stranger = False
        """Whether the peer is not in the view: what the window holds is then counted with what is
        kept of other strangers."""
        self.is_refused = False
        """Whether the last batch of a stranger was refused for lack of room."""
        self.acks = AckState()
        self.ack_due = inf
        self.gaps = GapLook(rtt)
        # What UNICAST2 needs to report now and then.
        self.unacked_bytes = 0
        self.fresh_at = now
        """When something new last arrived."""
        self.report_due = inf
        """When to look whether to report."""
        self.reports = 0
        """Reports since something arrived."""

    def is_pending(self) -> bool:
        """Whether messages are missing."""
        return self.window.has_gap()

    def is_untaken(self) -> bool:
        """Whether the application has yet to take what is next in order."""
        return self.window.delivered < self.window.deliverable


class Sync:
    """A SEND_FIRST_SEQNO towards one sender, and the frames that wait for its answer."""

    __slots__ = (
        "cached",
        "conn",
        "is_wanted",
        "peer",
        "repeats",
        "sent_at",
        "seqno",
        "size",
        "stamp",
        "used_at",
    )

    def __init__(self, peer: int, conn: int) -> None:
        self.peer = peer
        self.conn = conn
        self.seqno = 0
        self.sent_at = -inf
        self.stamp = 0
        self.repeats = -1
        self.is_wanted = False
        """Whether to send it at the end of this turn, unless the first frame comes before."""
        self.used_at = -inf
        self.cached: list[Arrival] = []
        self.size = 0
        """Bytes of the frames that wait."""
