"""The nouns of groups: views that members installed, streams of multicasts, windows on them.

A `Stream` is all that one member multicast, in one numbering from 1. A `Window` is one life of
a receiver's window on it; what a member delivers of its own is a window that nothing opens. A view
of a member is one `Installed`, and two members are *together* from the first of the last unbroken
run of views, at each of them, that contains the other.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Iterator
from itertools import chain
from math import inf
from typing import Final, NamedTuple

from stormcast.chaos.oracles.coverage import spans
from stormcast.chaos.oracles.history import EPSILON, Member, Noted
from stormcast.node.core import wire
from stormcast.node.core.model import OOB
from stormcast.node.trace import Event

MULTICAST: Final = frozenset({wire.NAKACK2, wire.MCAST})
"""Protocols whose messages are for the whole group, and whose windows name no connection."""
VIEW_MASK: Final = 0xFFFFFFFF
"""What a record keeps of a view's number."""


class Installed(NamedTuple):
    """A view, as one member installed it."""

    place: int
    """Among the views of this member, from 0."""
    event: Event
    number: int
    creator: int
    members: tuple[int, ...]
    """Short ids, by rank."""

    @property
    def id(self) -> tuple[int, int]:
        return self.number, self.creator

    @property
    def time(self) -> float:
        return self.event.time


def since(member: Member, other: Member) -> Installed | None:
    """The first of the unbroken run of views, up to the last one, in which `member` has `other`."""
    first = None
    for view in reversed(member.views):
        if other.short not in view.members:
            break
        first = view
    return first


def view_at(member: Member, time: float) -> Installed | None:
    """The view that a member holds at the end of a moment."""
    index = bisect_right(member.views, time + EPSILON, key=lambda view: view.event.time) - 1
    return member.views[index] if index >= 0 else None


def last_view(member: Member) -> Installed | None:
    """The view that a member ends with."""
    return member.views[-1] if member.views else None


class Request(NamedTuple):
    """A request, and what its window had delivered in order when it was made."""

    event: Event
    reached: int


class Window:
    """One life of one member's window on a stream."""

    __slots__ = (
        "acked",
        "delivered",
        "genuine",
        "number",
        "opened",
        "reached",
        "receiver",
        "removed",
        "requested",
        "skipped",
        "stream",
    )

    def __init__(self, stream: Stream, receiver: Member, number: int) -> None:
        self.stream = stream
        self.receiver = receiver
        self.number = number
        self.opened: Noted | None = None
        """None of a member's window on its own stream."""
        self.removed: Noted | None = None
        self.delivered: list[Event] = []
        self.genuine = self.delivered
        """Deliveries of what was multicast."""
        self.acked: list[Event] = []
        self.requested: list[Request] = []
        self.skipped: list[Event] = []
        self.reached = 0
        """The highest seqno delivered in order so far; while the traces are being read."""

    @property
    def is_own(self) -> bool:
        return self.receiver is self.stream.sender

    @property
    def offset(self) -> int:
        """The first seqno that may be delivered is one more."""
        return self.opened.event.lo if self.opened else 0

    @property
    def opened_at(self) -> float:
        return self.opened.event.time if self.opened else 0.0

    @property
    def removed_at(self) -> float:
        return self.removed.event.time if self.removed else inf

    @property
    def given_up(self) -> int:
        """The seqno up to which nothing more is expected: it begins there, or said so later."""
        return max((skip.hi for skip in self.skipped), default=self.offset)

    def deliver(self, event: Event) -> None:
        """Note a delivery."""
        self.delivered.append(event)
        if not event.flags & OOB and event.hi > self.reached:
            self.reached = event.hi

    def early_before(self) -> Iterator[Event]:
        """What earlier windows of this receiver delivered out of band: it keeps its place."""
        for past in self.stream.windows_of(self.receiver):
            if past.number < self.number:
                yield from (event for event in past.genuine if event.flags & OOB)

    def spans(self, above: int) -> list[tuple[int, int]]:
        """What was delivered above a seqno, as the fewest ranges."""
        delivered = chain(self.genuine, self.early_before())
        return spans(
            (max(event.lo, above + 1), event.hi) for event in delivered if event.hi > above
        )


class Stream:
    """All that one member multicast."""

    __slots__ = ("lows", "purged", "resent", "sender", "sent", "sent_in", "windows")

    def __init__(self, sender: Member) -> None:
        self.sender = sender
        self.sent: list[Event] = []
        self.lows: list[int] = []
        """The first seqno of each of `sent`."""
        self.sent_in: list[int] = []
        """The place of the sender's view at each of `sent`; -1 before the first."""
        self.purged: list[tuple[int, Event]] = []
        """With the place of the sender's view."""
        self.resent: list[tuple[Member, Event]] = []
        """By whoever answered."""
        self.windows: dict[int, dict[int, Window]] = {}
        """By receiver and number, in the order in which they were first heard of."""

    @property
    def high(self) -> int:
        """The highest seqno that was sent."""
        return self.sent[-1].hi if self.sent else 0

    def window(self, receiver: Member, number: int) -> Window:
        """A window on this stream; made when first heard of."""
        windows = self.windows.setdefault(receiver.short, {})
        window = windows.get(number)
        if window is None:
            window = windows[number] = Window(self, receiver, number)
        return window

    def windows_of(self, receiver: Member) -> list[Window]:
        """All windows that one member had, oldest first."""
        return list(self.windows.get(receiver.short, {}).values())

    def all_windows(self) -> Iterator[Window]:
        """All windows that anyone had."""
        for windows in self.windows.values():
            yield from windows.values()

    def delivered_to(self, receiver: Member) -> Iterator[Event]:
        """What one member delivered of what was sent, in all its windows."""
        return chain.from_iterable(window.genuine for window in self.windows_of(receiver))

    def current(self, receiver: Member) -> Window | None:
        """The window that one member ends with, if it has one."""
        windows = [window for window in self.windows_of(receiver) if window.removed is None]
        return windows[-1] if windows else None

    def batch_at(self, seqno: int) -> Event | None:
        """The SENT that holds a seqno."""
        index = bisect_right(self.lows, seqno) - 1
        if index < 0 or self.sent[index].hi < seqno:
            return None
        return self.sent[index]

    def batches(self, lo: int, hi: int) -> list[Event]:
        """The SENT that hold any of `lo..hi`."""
        first = max(0, bisect_right(self.lows, lo) - 1)
        return [sent for sent in self.sent[first : bisect_right(self.lows, hi)] if sent.hi >= lo]

    def origin(self, delivered: Event) -> Event | None:
        """The batch that a delivery is of: of that digest, holding all of it, sent before."""
        batch = self.batch_at(delivered.lo)
        if (
            batch is not None
            and batch.digest == delivered.digest
            and batch.hi >= delivered.hi
            and batch.time <= delivered.time + EPSILON
        ):
            return batch
        return None

    def owed_from(self, receiver: Member) -> int | None:
        """The first seqno that a member must deliver because both are together; None: not one.

        That is the first sent in a view from which on the sender always had the receiver, except
        what was sent until the receiver had the sender and lies below where its window began.
        """
        begin, met = since(self.sender, receiver), since(receiver, self.sender)
        if begin is None or met is None:
            return None
        first = bisect_left(self.sent_in, begin.place)
        if first >= len(self.sent):
            return None
        # Sent before they met at the receiver, or in that moment: without delay a digest and the
        # view that it leads to have one time. The first window says what of it is its own.
        late = bisect_left(self.sent, met.time + EPSILON, key=lambda sent: sent.time)
        met_at = self.sent[late].lo if late < len(self.sent) else self.high + 1
        opening = self._opening(receiver, met)
        begins = opening.offset + 1 if opening else 1
        return max(self.sent[first].lo, min(begins, met_at))

    def _opening(self, receiver: Member, met: Installed) -> Window | None:
        """The window with which a view that first had the sender began."""
        windows = [window for window in self.windows_of(receiver) if window.opened]
        for window in windows:
            if window.removed_at > met.time + EPSILON:
                return window
        return None


def place_in_views(stream: Stream) -> None:
    """Say of each batch and purge which view of its sender it belongs to: the record names its
    number, and within a turn the view may be recorded after it."""
    views = stream.sender.views
    places = {view.number & VIEW_MASK: view.place for view in views}
    for at, sent in enumerate(stream.sent):
        if sent.view:
            stream.sent_in[at] = places.get(sent.view, stream.sent_in[at])
    stream.purged = [
        (places.get(purge.view, place) if purge.view else place, purge)
        for place, purge in stream.purged
    ]


def covered(seqno: int, events: Iterable[Event]) -> Event | None:
    """The first of some events that holds a seqno."""
    return next((event for event in events if event.lo <= seqno <= event.hi), None)
