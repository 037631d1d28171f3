"""Members and connections, as the oracles see them: the parts into which traces are cut.

The parts are those that the guarantees name: a `SenderLife` is one life of a sender's half of a
connection, an `Epoch` one life of a receiver's window. All times are of one clock; the order of
events within one member is the order of its trace.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable
from math import inf
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from stormcast.chaos.oracles.coverage import Range, sent_by_then
from stormcast.node.core import wire
from stormcast.node.trace import SENDER_REMOVED, STOP, Event

if TYPE_CHECKING:
    from stormcast.chaos.oracles.groups import Installed

RIG: Final = 0
"""The short id under which the rig writes faults, their bites and phases."""
SAYS_WHAT_ENDED: Final = 3
"""The first version of a trace that says which messages a member gave up at its end."""
EPSILON: Final = 1e-6
"""Seconds by which two equal times may differ: sums of floats are not exact."""


class Span(NamedTuple):
    """A stretch of time; `inf` where it never ended."""

    start: float
    end: float

    def overlap(self, start: float, end: float) -> float:
        """Return the seconds of `start..end` that lie within the span."""
        return max(0.0, min(self.end, end) - max(self.start, start))


class Noted(NamedTuple):
    """An event with its number in its member's trace, and its text."""

    number: int
    event: Event
    text: str


class Member:
    """One incarnation of a member, and its trace."""

    __slots__ = (
        "bounds",
        "changing",
        "ended",
        "events",
        "historical",
        "intervals",
        "label",
        "name",
        "paused",
        "protocols",
        "short",
        "stalled",
        "started",
        "texts",
        "version",
        "views",
    )

    def __init__(self, label: str, short: int) -> None:
        self.label = label
        self.short = short
        self.name = label
        self.events: list[Event] = []
        """All events, without a gap: an event's number is its index."""
        self.texts: dict[int, str] = {}
        """By event number."""
        self.bounds: dict[str, float | None] = {}
        """The bounds that its settings of unicast promise; None or missing promises nothing."""
        self.protocols: dict[str, dict[str, Any]] = {}
        """The settings of its other protocols by name, with their own bounds."""
        self.historical: dict[str, Any] = {}
        """Settings that bring flaws of older designs back."""
        self.intervals: list[tuple[float, float | None]] = []
        """Times, and the seconds between repairs of its multicast protocol from then on: None where
        the trace does not say; 0 or less: it never repairs."""
        self.changing: list[Span] = []
        """The times in which it changed that interval: nobody knows at which moment of them."""
        self.views: list[Installed] = []
        """The views of its group, in order, without views that a test handed in."""
        self.version = 0
        """The version of its trace: an older one says less, and less is judged."""
        self.started = 0.0
        self.ended = inf
        """The time at which it crashed, stopped or was replaced."""
        self.paused: list[Span] = []
        self.stalled: list[Span] = []
        """The times in which its application took no deliveries."""

    def shift(self, seconds: float) -> None:
        """Make all its times later by so many seconds."""
        self.events = [event._replace(time=event.time + seconds) for event in self.events]
        self.started += seconds
        self.intervals = [(at + seconds, value) for at, value in self.intervals]

    @property
    def lives(self) -> bool:
        """Whether the member ran to the end of the run."""
        return self.ended == inf

    @property
    def has_left(self) -> bool:
        """Whether the member ended in order, in a trace that says what it gave up at its end."""
        return self.version >= SAYS_WHAT_ENDED and self.events[-1].kind == STOP

    @property
    def answers_for_sent(self) -> bool:
        """Whether what it sent must arrive, unless it said that it gave it up."""
        return self.lives or self.has_left

    def bound(self, protocol: int, name: str) -> float | None:
        """Return a bound that its settings of one protocol promise; None: none. For unicasts, and
        for messages without a protocol, these are the settings of unicast."""
        settings = self.protocols.get(wire.PROTOCOLS.get(protocol, ""))
        if settings is None:
            return self.bounds.get(name) if protocol <= wire.UNICAST4 else None
        found: float | None = (settings.get("bounds") or {}).get(name)
        return found

    def repairs(self, time: float) -> bool | None:
        """Whether its multicast protocol repairs at `time`; None where the trace does not say."""
        known: bool | None = None
        for start, interval in self.intervals:
            if start > time:
                break
            known = None if interval is None else interval > 0
        return known

    def repairs_nothing(self, start: float, end: float) -> bool:
        """Whether its multicast protocol repairs at no time of `start..end`."""
        later = (interval for at, interval in self.intervals if start < at < end)
        return self.repairs(start) is False and all(
            interval is not None and interval <= 0 for interval in later
        )

    def is_stalled(self, time: float) -> bool:
        """Whether its application was stalled at `time`, or at its end if that came first."""
        time = min(time, self.ended)
        return any(span.start <= time <= span.end + EPSILON for span in self.stalled)

    def is_hindered(self, start: float, end: float) -> bool:
        """Whether the member was paused, stalled or gone at any time of `start..end`."""
        if self.ended <= end:
            return True
        return any(
            span.start <= end and span.end >= start for span in (*self.paused, *self.stalled)
        )

    def paused_within(self, start: float, end: float) -> float:
        """Return the seconds of `start..end` in which the member was paused."""
        return sum(span.overlap(start, end) for span in self.paused)


def longest(members: Iterable[Member], protocol: int, bound: str) -> float | None:
    """Return the longest of what members promise: where they answer each other, the slowest of them
    sets the pace. None: one of them promises nothing."""
    found = 0.0
    for each in members:
        within = each.bound(protocol, bound)
        if within is None:
            return None
        found = max(found, within)
    return found


class Batches:
    """Events that each hold a range of seqnos of one numbering, found by a seqno."""

    __slots__ = ("events", "lows")

    def __init__(self, events: Iterable[Event] = ()) -> None:
        self.events = list(events)
        """In the order of their first seqnos."""
        self.lows = [event.lo for event in self.events]
        """The first seqno of each of `events`."""

    def add(self, event: Event) -> None:
        """Add the batch after the last one."""
        self.events.append(event)
        self.lows.append(event.lo)

    def at(self, seqno: int) -> Event | None:
        """Return the batch that holds a seqno; None if none does."""
        index = bisect_right(self.lows, seqno) - 1
        if index < 0 or self.events[index].hi < seqno:
            return None
        return self.events[index]

    def between(self, lo: int, hi: int) -> list[Event]:
        """Return the batches that hold any of `lo..hi`."""
        first = max(0, bisect_right(self.lows, lo) - 1)
        return [one for one in self.events[first : bisect_right(self.lows, hi)] if one.hi >= lo]

    def origin(self, delivered: Event) -> Event | None:
        """Return the batch of a delivery: of its digest, sent before, with all its seqnos."""
        batch = self.at(delivered.lo)
        if (
            batch is not None
            and batch.digest == delivered.digest
            and batch.hi >= delivered.hi
            and batch.time <= delivered.time + EPSILON
        ):
            return batch
        return None


class Connection:
    """Everything under one connection id from one member to another.

    Where frames name no connection (`conn` 0) it may hold several entries, each counting from 1.
    """

    __slots__ = ("conn", "entries", "epochs", "receiver", "sender")

    def __init__(self, sender: Member, receiver: Member, conn: int) -> None:
        self.sender = sender
        self.receiver = receiver
        self.conn = conn
        self.entries: list[SenderLife] = []
        self.epochs: list[Epoch] = []

    @property
    def is_to_self(self) -> bool:
        """Whether the member sends to itself: such messages enter no window and are never acked."""
        return self.sender is self.receiver

    def origin(self, delivered: Event) -> SenderLife | None:
        """Return the newest entry that had sent a batch of that digest with those seqnos."""
        for entry in reversed(self.entries):
            if entry.batches.origin(delivered) is not None:
                return entry
        return None


class SenderLife:
    """One life of a sender entry: from its opening to its removal, or to the end of the run."""

    __slots__ = (
        "activity",
        "batches",
        "connection",
        "delivered",
        "opened_at",
        "purged",
        "sent",
        "states",
        "told",
    )

    def __init__(self, connection: Connection, opened_at: float) -> None:
        self.connection = connection
        self.opened_at = opened_at
        self.states: list[Noted] = []
        """The CONN events of the entry; a removal is the last of them."""
        self.batches = Batches()
        self.sent = self.batches.events
        self.purged: list[Event] = []
        self.told: list[Range] = []
        """What the application was told that it was given up, of what had been sent by then."""
        self.activity: list[Event] = []
        """SENT, RETRANSMITTED and PURGED, in order."""
        self.delivered: list[tuple[Epoch, Event]] = []
        """The deliveries of what this entry sent, with the epoch of each, by time."""

    @property
    def removed(self) -> Noted | None:
        """The removal of the entry, if there was one."""
        last = self.states[-1] if self.states else None
        return last if last is not None and last.event.stream == SENDER_REMOVED else None

    @property
    def acked_all(self) -> bool:
        """Whether everything that the entry sent was purged."""
        return not self.sent or (bool(self.purged) and self.purged[-1].hi >= self.sent[-1].hi)

    def tell(self, abandoned: Event) -> None:
        """Note what the application was told that it was given up."""
        self.told += sent_by_then(abandoned, self.sent)


class Epoch:
    """One life of a receive window."""

    __slots__ = (
        "acked",
        "connection",
        "delivered",
        "number",
        "opened",
        "removed",
        "requested",
        "skipped",
        "strange",
    )

    def __init__(self, connection: Connection, number: int) -> None:
        self.connection = connection
        self.number = number
        self.opened: Noted | None = None
        """None for messages to oneself, which enter no window."""
        self.removed: Noted | None = None
        self.delivered: list[Event] = []
        self.acked: list[Event] = []
        self.requested: list[Event] = []
        self.skipped: list[Event] = []
        self.strange: list[Event] = []
        """Deliveries of what was not sent on this connection."""

    @property
    def opened_at(self) -> float:
        """The time at which the window was opened; 0 if no event says so."""
        return self.opened.event.time if self.opened else 0.0

    @property
    def removed_at(self) -> float:
        """The time at which the window was removed; `inf` if it was not."""
        return self.removed.event.time if self.removed else inf


class Violation(NamedTuple):
    """One violation of a guarantee: when, how, and the few events that prove it."""

    time: float
    detail: str
    witness: tuple[tuple[Member, Event], ...]
