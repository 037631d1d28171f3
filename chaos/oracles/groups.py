"""Groups as the oracles see them: views that members installed, streams, and windows on them.

A `Stream` is all that one member multicast, in one numbering from 1. A `Window` is one life of a
receiver's window on it; deliveries of a member's own multicasts are in a window that nothing opens.
An `Installed` is one view at one member. Two members are *together* from the first view, at each of
them, of the run of views up to its last one that all contain the other.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Iterator
from itertools import chain, takewhile
from math import inf
from typing import Final, NamedTuple

from stormcast.chaos.oracles.coverage import Range, sent_by_then, spans
from stormcast.chaos.oracles.history import EPSILON, Batches, Member, Noted
from stormcast.chaos.oracles.records import VIEW_MASK
from stormcast.node.core import wire
from stormcast.node.core.model import OOB
from stormcast.node.trace import Event

MULTICAST: Final = frozenset({wire.NAKACK2, wire.MCAST})
"""Protocols whose messages are for the whole group, and whose windows name no connection."""


class Installed(NamedTuple):
    """A view, as one member installed it."""

    place: int
    """Its index among the views of this member."""
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
    """Return the view from which on all views of `member` have `other`; None: the last has not."""
    first = None
    for view in reversed(member.views):
        if other.short not in view.members:
            break
        first = view
    return first


def met(member: Member, other: Member) -> Installed | None:
    """Return the view since which `member` has `other` without a break: to its last view, or, where
    the other one has left, to the last one that has it. None: there is no such view."""
    if not other.has_left:
        return since(member, other)
    first = None
    for view in reversed(member.views):
        if other.short in view.members:
            first = view
        elif first is not None:
            break
    return first


def view_at(member: Member, time: float) -> Installed | None:
    """Return the view that a member holds at the end of a moment; None before the first."""
    index = bisect_right(member.views, time + EPSILON, key=lambda view: view.event.time) - 1
    return member.views[index] if index >= 0 else None


def was_outside(member: Member, other: Member, start: float, end: float) -> bool:
    """Whether a member had no view with another one at some moment of a time, its ends included."""
    views = member.views
    first = bisect_left(views, start - EPSILON, key=lambda view: view.event.time) - 1
    if first < 0:
        return True
    held = takewhile(lambda view: view.event.time <= end + EPSILON, views[first:])
    return any(other.short not in view.members for view in held)


def last_view(member: Member) -> Installed | None:
    """Return the view that a member ends with; None if it had none."""
    return member.views[-1] if member.views else None


class Request(NamedTuple):
    """A request, and the highest seqno that its window had then delivered in order."""

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
        """The deliveries that match a batch of the stream."""
        self.acked: list[Event] = []
        self.requested: list[Request] = []
        self.skipped: list[Event] = []
        self.reached = 0
        """The highest seqno delivered in order so far; used while the traces are read."""

    @property
    def is_own(self) -> bool:
        return self.receiver is self.stream.sender

    @property
    def offset(self) -> int:
        """The seqno after which the window begins: only higher ones may be delivered."""
        return self.opened.event.lo if self.opened else 0

    @property
    def opened_at(self) -> float:
        return self.opened.event.time if self.opened else 0.0

    @property
    def removed_at(self) -> float:
        return self.removed.event.time if self.removed else inf

    @property
    def given_up(self) -> int:
        """The seqno up to which nothing more is expected: it begins after it, or gave it up."""
        return max((skip.hi for skip in self.skipped), default=self.offset)

    def deliver(self, event: Event) -> None:
        """Note a delivery."""
        self.delivered.append(event)
        if not event.flags & OOB and event.hi > self.reached:
            self.reached = event.hi

    def early_before(self) -> Iterator[Event]:
        """Yield the OOB deliveries of earlier windows of this receiver: they still count."""
        for past in self.stream.windows_of(self.receiver):
            if past.number < self.number:
                yield from (event for event in past.genuine if event.flags & OOB)

    def spans(self, above: int) -> list[tuple[int, int]]:
        """Return the seqnos above `above` that were delivered, as the fewest ranges."""
        delivered = chain(self.genuine, self.early_before())
        return spans(
            (max(event.lo, above + 1), event.hi) for event in delivered if event.hi > above
        )


class Stream:
    """All that one member multicast."""

    __slots__ = ("batches", "purged", "resent", "sender", "sent", "sent_in", "told", "windows")

    def __init__(self, sender: Member) -> None:
        self.sender = sender
        self.batches = Batches()
        self.sent = self.batches.events
        self.sent_in: list[int] = []
        """The place of the sender's view at each of `sent`; -1 before the first."""
        self.purged: list[tuple[int, Event]] = []
        """The purges, each with the place of the sender's view."""
        self.told: list[Range] = []
        """What the application was told that it was given up, of what had been sent by then."""
        self.resent: list[tuple[Member, Event]] = []
        """The repeats, each with the member that sent it."""
        self.windows: dict[int, dict[int, Window]] = {}
        """By receiver and number, in the order in which they were first heard of."""

    @property
    def high(self) -> int:
        """The highest seqno that was sent."""
        return self.sent[-1].hi if self.sent else 0

    def window(self, receiver: Member, number: int) -> Window:
        """Return a window on this stream; it is made when first asked for."""
        windows = self.windows.setdefault(receiver.short, {})
        window = windows.get(number)
        if window is None:
            window = windows[number] = Window(self, receiver, number)
        return window

    def tell(self, abandoned: Event) -> None:
        """Note what the application was told that it was given up."""
        self.told += sent_by_then(abandoned, self.sent)

    def windows_of(self, receiver: Member) -> list[Window]:
        """Return all windows that one member had, oldest first."""
        return list(self.windows.get(receiver.short, {}).values())

    def all_windows(self) -> Iterator[Window]:
        """Yield all windows of all members."""
        for windows in self.windows.values():
            yield from windows.values()

    def delivered_to(self, receiver: Member) -> Iterator[Event]:
        """Return the deliveries of one member that match a batch, in all its windows."""
        return chain.from_iterable(window.genuine for window in self.windows_of(receiver))

    def current(self, receiver: Member) -> Window | None:
        """Return the window that one member ends with, if it has one."""
        windows = [window for window in self.windows_of(receiver) if window.removed is None]
        return windows[-1] if windows else None

    def window_of(self, receiver: Member, seqno: int) -> Window | None:
        """Return the last window of a member that begins below a seqno."""
        windows = [each for each in self.windows_of(receiver) if each.offset < seqno]
        return windows[-1] if windows else None

    def reaches(self, receiver: Member) -> Iterator[Range]:
        """Yield for each window of a member the seqnos that no later one took over."""
        upto = self.high
        for window in reversed(self.windows_of(receiver)):
            yield Range(window.offset + 1, upto)
            upto = min(upto, window.offset)

    def regular(self, receiver: Member) -> list[int]:
        """Return the first seqnos of what a member delivered in order, ascending."""
        return sorted(each.lo for each in self.delivered_to(receiver) if not each.flags & OOB)

    def owed_from(self, receiver: Member) -> int | None:
        """Return the first seqno that a member must deliver, since both are together; None: none.

        It is the first seqno sent in a view from which on the sender always had the receiver.
        Seqnos that were sent before the receiver had the sender are owed only above where the
        receiver's window then begins.
        """
        begin, view = since(self.sender, receiver), met(receiver, self.sender)
        if begin is None or view is None:
            return None
        first = bisect_left(self.sent_in, begin.place)
        if first >= len(self.sent):
            return None
        # Of what was sent until the receiver had the sender, its first window says where it begins.
        # "Until" includes that moment: without delay a digest and the view that it leads to have
        # one time.
        late = bisect_left(self.sent, view.time + EPSILON, key=lambda sent: sent.time)
        met_at = self.sent[late].lo if late < len(self.sent) else self.high + 1
        opening = self._opening(receiver, view)
        begins = opening.offset + 1 if opening else 1
        return max(self.sent[first].lo, min(begins, met_at))

    def _opening(self, receiver: Member, view: Installed) -> Window | None:
        """Return the first window that outlived the first view with the sender."""
        windows = [window for window in self.windows_of(receiver) if window.opened]
        for window in windows:
            if window.removed_at > view.time + EPSILON:
                return window
        return None


def place_in_views(stream: Stream) -> None:
    """Correct the view of each batch and purge by the number in its record: within a turn the view
    may be recorded after them."""
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
    """Return the first of some events that holds a seqno."""
    return next((event for event in events if event.lo <= seqno <= event.hi), None)
