"""The facts of a run, from its traces alone: the lives and views of members, what was sent to whom,
and when it had arrived.

They are counted in the same way for the simulator and for real members: a multicast is meant for
the members of its sender's view that are in one view with it, and messages that had not arrived
when two members parted need not arrive any more. A message in pieces is one message: if all of them
leave it is sent with its first piece, because who comes later can never have it whole, and it has
arrived when all of them have.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import chain
from math import inf
from operator import attrgetter, itemgetter
from typing import Final, NamedTuple

from stormcast.chaos.oracles.application import Large, Outgoing
from stormcast.chaos.oracles.evidence import Evidence
from stormcast.chaos.oracles.groups import MULTICAST, Installed, view_at
from stormcast.chaos.oracles.history import Member
from stormcast.chaos.oracles.records import VIEW_MASK
from stormcast.chaos.oracles.unnumbered_index import UNNUMBERED
from stormcast.chaos.session.ledger import Ledger, Messages
from stormcast.chaos.session.record import Life, Pair, Reached, ResyncTimes, ViewSeen
from stormcast.node.core import wire
from stormcast.node.core.model import DONT_LOOPBACK, FRAGMENT
from stormcast.node.trace import DELIVERED, SENT, VIEW, Event

_TOLD: Final = frozenset({SENT, DELIVERED, VIEW})


@dataclass(slots=True, kw_only=True)
class Facts:
    """The facts of a run that a verdict needs besides the guarantees. Seconds from its start."""

    lives: dict[str, Life] = field(default_factory=dict)
    views: dict[str, list[ViewSeen]] = field(default_factory=dict)
    sent_by_pair: dict[Pair, int] = field(default_factory=dict)
    """The messages that had to arrive."""
    reached: Reached = field(default_factory=dict)
    """The messages that had arrived, each counted once."""
    reached_of_sent: Reached = field(default_factory=dict)
    """The same, of messages that had to arrive: others do not stand in for them."""
    sent: int = 0
    """Messages that left."""
    delivered: int = 0
    last_arrival: float = 0.0
    """Time of the last delivery, of a message or of a piece."""
    events: int = 0


class _MemberEvent(NamedTuple):
    """One event of one member; `event` None: the member's end."""

    time: float
    member: Member
    event: Event | None


class _Span(NamedTuple):
    """A message that left in pieces."""

    first: int
    last: int
    """The seqnos of its first and last piece."""


class _Pieces:
    """The messages that left in pieces, and what has arrived of them."""

    def __init__(self, evidence: Evidence) -> None:
        self._large: dict[tuple[int, int, int, int, int], _Span] = {}
        """By sender, destination, connection, seqno and digest of a piece."""
        for outgoing in evidence.application.outgoing.values():
            for large in outgoing.large:
                self._note(outgoing, large)
        self._arrived: dict[tuple[int, int, int, int, int, int], set[int]] = {}
        """The pieces that have arrived, by receiver, sender, destination, connection, window and
        message."""

    def _note(self, outgoing: Outgoing, large: Large) -> None:
        if large.is_whole:
            span = _Span(large.lo, large.hi)
            for piece in large.pieces:
                key = outgoing.sender.short, outgoing.dest, piece.conn, piece.lo
                self._large[(*key, piece.digest)] = span

    def left(self, sender: int, piece: Event) -> tuple[int, int]:
        """Return how many messages left with a piece, one with the first, and the seqno of its last
        piece."""
        large = self._large.get((sender, piece.peer, piece.conn, piece.lo, piece.digest))
        if large is None or piece.lo != large.first:
            return 0, 0
        return 1, large.last

    def arrived(self, receiver: int, piece: Event) -> tuple[int, int]:
        """Return how many messages arrived with a piece, one with the last that was missing, and
        the seqno of its last piece."""
        dest = wire.GROUP if piece.protocol in MULTICAST else receiver
        large = self._large.get((piece.peer, dest, piece.conn, piece.lo, piece.digest))
        if large is None:
            return 0, 0
        # The pieces of a multicast are joined within one window; those of a unicast on one
        # connection, whose window may be opened anew among them.
        epoch = piece.epoch if dest == wire.GROUP else 0
        key = receiver, piece.peer, dest, piece.conn, epoch, large.first
        arrived = self._arrived.setdefault(key, set())
        arrived.add(piece.lo)
        if len(arrived) <= large.last - large.first:
            return 0, 0
        del self._arrived[key]
        return 1, large.last


def facts_of(evidence: Evidence, start: float = 0.0) -> Facts:
    """Return the facts of a run whose clock showed `start` when its scenario began."""
    return _Reading(evidence, start).facts


def resync_of(evidence: Evidence, healed: float, start: float = 0.0) -> ResyncTimes:
    """Return the times from a heal, by the clock of the traces, until all was well again."""
    late, firsts = 0.0, _awaited(evidence, healed)
    for pair, sent_at, arrived in _arrivals(evidence):
        if arrived <= healed:
            continue
        if sent_at < healed:
            late = max(late, arrived - healed)
        # The wait begins with the sending: before it nothing can have arrived.
        waited = arrived - max(healed, sent_at)
        before = firsts.get(pair)
        firsts[pair] = waited if before is None else min(before, waited)
    # Members go on for a moment after the end, and may part in it.
    lasts = (view_at(member, evidence.rig.end) for member in evidence.members.values())
    views = [last.time for last in lasts if last is not None]
    waits = [waited for waited in firsts.values() if waited is not None]
    return ResyncTimes(
        after=healed - start,
        first_delivery=max(waits, default=0.0) if len(waits) == len(firsts) else None,
        repaired=late,
        one_view=max(0.0, max(views) - healed) if views else None,
    )


class _Reading:
    """Walks the events of all members in order of time."""

    def __init__(self, evidence: Evidence, start: float) -> None:
        self.facts = Facts(events=sum(len(m.events) for m in evidence.members.values()))
        self._evidence = evidence
        self._start = start
        self._now: dict[int, Installed] = {}
        """The view that each member holds, by its short id."""
        self._gone: set[int] = set()
        self._pieces = _Pieces(evidence)
        self._ledger = Ledger()
        self._names = {m.short: name_of(m) for m in evidence.members.values()}
        self._views = {
            m.short: {view.number & VIEW_MASK: view for view in m.views}
            for m in evidence.members.values()
        }
        for member in evidence.members.values():
            self._introduce(member)
        for told in _in_order(evidence):
            self._take(told)
        self._settle()

    def _since(self, time: float) -> float:
        """Return the seconds from the start: a difference of times is exact to a nanosecond."""
        return round(time - self._start, 9)

    def _introduce(self, member: Member) -> None:
        facts = self.facts
        end = self._since(member.ended) if member.ended < inf else inf
        facts.lives[member.label] = Life(
            self._names[member.short], self._since(member.started), end
        )
        if member.views:
            facts.views[member.label] = [self._seen(view) for view in member.views]

    def _seen(self, view: Installed) -> ViewSeen:
        labels = tuple(self._evidence.find(short).label for short in view.members)
        creator = self._evidence.find(view.creator).label
        return ViewSeen(self._since(view.time), view.number, creator, labels)

    def _take(self, told: _MemberEvent) -> None:
        member, event = told.member, told.event
        if event is None:
            self._end(member)
        elif event.kind == VIEW:
            self._change_view(member, event)
        elif event.kind == SENT:
            self._send(member, event)
        else:
            self._arrive(member, event)

    def _send(self, member: Member, event: Event) -> None:
        count = event.count
        last = event.hi
        if event.flags & FRAGMENT:
            count, last = self._pieces.left(member.short, event)
        self.facts.sent += count
        self._ledger.leave(member.short, _messages(event, last), count)
        for short in self._audience(member, event):
            if short in self._names:
                pair = self._names[member.short], self._names[short]
                self.facts.sent_by_pair.setdefault(pair, 0)
                # Nobody wants what is sent to one that has ended: its sender did not know.
                if count and short not in self._gone:
                    self._ledger.send(member.short, short, _messages(event, last))

    def _audience(self, member: Member, event: Event) -> Iterator[int]:
        """Yield the members that a batch is for. Multicasts are for the members of the sender's
        view that have not ended, and whose own view, if they have one, has the sender."""
        if event.protocol not in MULTICAST and event.peer != wire.GROUP:
            if event.peer != member.short or not event.flags & DONT_LOOPBACK:
                yield event.peer
            return
        # Within a turn the view may be written after what was sent in it.
        view = self._views[member.short].get(event.view) or self._now.get(member.short)
        for short in view.members if view is not None else ():
            if short == member.short:
                if not event.flags & DONT_LOOPBACK:
                    yield short
            elif short not in self._gone:
                theirs = self._now.get(short)
                if theirs is None or member.short in theirs.members:
                    yield short

    def _arrive(self, member: Member, event: Event) -> None:
        count = event.count
        last = event.hi
        if event.flags & FRAGMENT:
            count, last = self._pieces.arrived(member.short, event)
        self.facts.delivered += count
        source = self._names.get(event.peer)
        if source is None:
            return
        now = self._since(event.time)
        self.facts.last_arrival = max(self.facts.last_arrival, now)
        if not count:
            return
        self._ledger.arrive(now, event.peer, member.short, _messages(event, last))

    def _change_view(self, member: Member, event: Event) -> None:
        views = self._views[member.short]
        view = views.get(event.lo & VIEW_MASK)
        if view is None or view.event is not event:
            # It was handed in by a test: there is no membership.
            return
        before = self._now.get(member.short)
        self._now[member.short] = view
        for short in set(before.members if before else ()).difference(view.members):
            self._ledger.part(member.short, short)

    def _end(self, member: Member) -> None:
        self._gone.add(member.short)
        for other in self._names:
            self._ledger.part(member.short, other)

    def _settle(self) -> None:
        """Count what had to arrive, and when it did."""
        facts = self.facts
        for (sender, receiver), owed in self._ledger.owed():
            if owed:
                facts.sent_by_pair[self._names[sender], self._names[receiver]] += owed
        for time, (sender, receiver), new, owed in self._ledger.arrivals():
            pair = self._names[sender], self._names[receiver]
            _count_on(facts.reached.setdefault(pair, []), time, new)
            _count_on(facts.reached_of_sent.setdefault(pair, []), time, owed)


def _count_on(reached: list[tuple[float, int]], time: float, count: int) -> None:
    reached.append((time, (reached[-1][1] if reached else 0) + count))


def _messages(event: Event, last: int) -> Messages:
    """Return the messages of a batch; `last` is the seqno of the last piece of one in pieces."""
    if event.protocol == UNNUMBERED:
        return Messages(("digest", event.digest), 0, event.count)
    numbering = ("stream", 0) if event.protocol in MULTICAST else ("conn", event.conn)
    return Messages(numbering, last if event.flags & FRAGMENT else event.lo, last)


def name_of(member: Member) -> str:
    """Return the name of a member, which all its incarnations share."""
    return member.texts.get(0, member.label).split(" ", 1)[0]


def _in_order(evidence: Evidence) -> list[_MemberEvent]:
    """Return the events that facts are made from, of all members, by time, then by label; those of
    one member stay in the order of its trace."""
    # Sorting keeps the order of equal times: that of labels, and within a member of its trace.
    by_label = sorted(evidence.members.values(), key=attrgetter("label"))
    return sorted(chain.from_iterable(map(_told_by, by_label)), key=itemgetter(0))


def _told_by(member: Member) -> Iterator[_MemberEvent]:
    for event in member.events:
        if event.kind in _TOLD:
            yield _MemberEvent(event.time, member, event)
    if member.ended < inf:
        last = member.events[-1].time if member.events else member.ended
        yield _MemberEvent(max(member.ended, last), member, None)


def _arrivals(evidence: Evidence) -> Iterator[tuple[tuple[int, int], float, float]]:
    """Yield for each delivery: sender and receiver, when it was sent, when it was delivered."""
    for entry in evidence.unicasts.entries():
        connection = entry.connection
        pair = connection.sender.short, connection.receiver.short
        for _epoch, event in entry.delivered:
            batch = entry.batches.at(event.lo)
            if batch is not None:
                yield pair, batch.time, event.time
    for window in evidence.groups.windows():
        pair = window.stream.sender.short, window.receiver.short
        for event in window.genuine:
            batch = window.stream.batches.at(event.lo)
            if batch is not None:
                yield pair, batch.time, event.time


def _awaited(evidence: Evidence, healed: float) -> dict[tuple[int, int], float | None]:
    """Return each living sender and living receiver with a unicast that was sent after a heal."""
    return {
        (entry.connection.sender.short, entry.connection.receiver.short): None
        for entry in evidence.unicasts.entries()
        if entry.connection.sender.lives
        and entry.connection.receiver.lives
        and any(sent.time > healed for sent in entry.sent)
    }
