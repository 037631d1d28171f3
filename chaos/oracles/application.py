"""The messages that applications offered and were handed, compared with the windows (G1 to G4).

Windows deliver seqnos. Before a window a message waits in a lane, and may be cut into pieces;
behind it pieces are joined, and deliveries wait for their application. This module compares both
ends with the events of the windows. Traces of version 1 have no events of either end.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import Counter
from collections.abc import Iterator, Sequence
from functools import cached_property
from typing import TYPE_CHECKING, Final, NamedTuple

from stormcast.chaos.oracles.coverage import Range
from stormcast.chaos.oracles.history import EPSILON, Member, Violation
from stormcast.node.core.model import FRAGMENT
from stormcast.node.core.wire import GROUP
from stormcast.node.trace import ABANDONED, CUT, DELIVERED, HANDED, JOINED, OFFERED, SENT, Event

if TYPE_CHECKING:
    from stormcast.chaos.oracles.evidence import Evidence
    from stormcast.chaos.oracles.groups import Stream
    from stormcast.chaos.oracles.history import SenderLife

SAYS_BOTH_ENDS: Final = 2
"""The first version of traces that says what applications offered and were handed."""
_OF_INCOMING: Final = frozenset({DELIVERED, HANDED})
OFFER_SECONDS: Final = 0.25
"""Seconds within which a member records what was offered to it."""
LOW: Final = 0xFFFFFFFF
"""The bits of a message's number that a record keeps."""


class Large(NamedTuple):
    """A message that was cut, and the pieces of it that left on one connection."""

    cut: Event
    pieces: list[Event]

    @property
    def lo(self) -> int:
        """The seqno of its first piece."""
        return min(piece.lo for piece in self.pieces)

    @property
    def hi(self) -> int:
        """The seqno of its last piece."""
        return max(piece.hi for piece in self.pieces)

    @property
    def is_whole(self) -> bool:
        """Whether all of its pieces left on this connection, each once and without a gap."""
        return self.hi - self.lo + 1 == len(self.pieces) == self.cut.count


class Outgoing:
    """The messages that one member offered to one destination, and the batches that left for it."""

    def __init__(self, sender: Member, dest: int) -> None:
        self.sender = sender
        self.dest = dest
        self.events: list[Event] = []
        """SENT, and ABANDONED of messages that had not left, in order."""
        self.offers: list[Event] = []
        """OFFERED, in order."""
        self.cuts: dict[int, Event] = {}
        """CUT by the low half of the message's number."""

    @property
    def offered(self) -> Event | None:
        """The last OFFERED."""
        return self.offers[-1] if self.offers else None

    def given_up(self, abandoned: Event) -> Range:
        """Return what is said to be given up of the messages that were offered by then."""
        until = abandoned.time + OFFER_SECONDS + EPSILON
        count = bisect_right(self.offers, until, key=lambda offered: offered.time)
        offered = self.offers[count - 1].hi if count else 0
        return Range(abandoned.lo, min(abandoned.hi, offered))

    @cached_property
    def large(self) -> list[Large]:
        """The messages that left in pieces, by message and connection."""
        found: dict[tuple[int, int, int], Large] = {}
        for event in self.events:
            cut = self.cuts.get(event.trim)
            if cut is None or not event.protocol or not _is_piece(event):
                continue
            key = event.trim, event.protocol, event.conn
            found.setdefault(key, Large(cut, [])).pieces.append(event)
        return [*found.values()]

    @cached_property
    def by_piece(self) -> dict[tuple[int, int, int], list[Large]]:
        """The messages in pieces, by protocol, connection and the seqno of each piece."""
        found: dict[tuple[int, int, int], list[Large]] = {}
        for large in self.large:
            for piece in large.pieces:
                found.setdefault((piece.protocol, piece.conn, piece.lo), []).append(large)
        return found

    def numbers(self) -> Iterator[tuple[Event, int, int]]:
        """Yield the events by which messages left or were given up, each with the numbers of its
        first and last message. A message in pieces is yielded with its last piece, and once more
        with the piece that follows it."""
        at = 0
        """The number of the last message that was yielded."""
        pieces: Counter[int] = Counter()
        """The pieces that have left of each message since messages were given up, by its number."""
        for event in self.events:
            if event.kind == ABANDONED:
                pieces.clear()
                yield event, event.lo, event.hi
                at = event.hi
                continue
            # A record keeps the low half of a number: of those that fit, the nearest to `at` is
            # meant.
            first = at + 1 + _signed(event.trim - (at + 1))
            if not event.flags & FRAGMENT:
                at = first + event.count - 1
                yield event, first, at
                continue
            pieces[event.trim] += 1
            cut = self.cuts.get(event.trim)
            # One piece more than there are is the message again.
            if cut is not None and pieces[event.trim] in (cut.count, cut.count + 1):
                at = first
                yield event, first, first


class Incoming:
    """The deliveries of one member's windows on one connection, and what its application was
    handed, in order."""

    def __init__(self, receiver: Member) -> None:
        self.receiver = receiver
        self.events: list[Event] = []
        """DELIVERED and HANDED, in the order of the trace."""

    @cached_property
    def pieces(self) -> dict[int, dict[int, Event]]:
        """The delivered pieces of messages, by the epoch of their window and by seqno."""
        found: dict[int, dict[int, Event]] = {}
        for event in self.events:
            if event.kind == DELIVERED and event.flags & FRAGMENT:
                found.setdefault(event.epoch, {})[event.lo] = event
        return found

    @cached_property
    def joined(self) -> dict[int, list[Event]]:
        """The messages that were joined, by the seqno of their first piece."""
        found: dict[int, list[Event]] = {}
        for event in self.events:
            if event.kind == HANDED and event.stream == JOINED:
                found.setdefault(event.lo, []).append(event)
        return found


class ApplicationIndex:
    """The index of offered and handed messages of all members."""

    def __init__(self) -> None:
        self.outgoing: dict[tuple[int, int], Outgoing] = {}
        """By sender and destination."""
        self.incoming: dict[tuple[int, int, int, int], Incoming] = {}
        """By receiver, source, protocol and connection."""

    def note(self, member: Member, event: Event) -> None:
        """Note an event about offered or handed messages."""
        kind = event.kind
        if kind in _OF_INCOMING:
            key = member.short, event.peer, event.protocol, event.conn
            incoming = self.incoming.get(key)
            if incoming is None:
                incoming = self.incoming[key] = Incoming(member)
            incoming.events.append(event)
            return
        if kind == ABANDONED and event.protocol:
            return  # of messages that had left: those are seqnos, and noted with their connection
        outgoing = self.outgoing.get((member.short, event.peer))
        if outgoing is None:
            outgoing = Outgoing(member, event.peer)
            self.outgoing[member.short, event.peer] = outgoing
        if kind == OFFERED:
            outgoing.offers.append(event)
        elif kind == CUT:
            outgoing.cuts[event.lo & LOW] = event
        else:
            outgoing.events.append(event)


# -- From the application to the window ----------------------------------------------------------


def not_sent(evidence: Evidence) -> Iterator[Violation]:
    """Messages that were accepted, did not leave, and were not given up aloud either (G1)."""
    for outgoing in evidence.application.outgoing.values():
        if outgoing.sender.version < SAYS_BOTH_ENDS:
            continue
        reached = 0
        for event, first, last in outgoing.numbers():
            if first > reached + 1:
                yield _skipped(outgoing, reached + 1, first - 1, event)
            settled = outgoing.given_up(event).hi if event.kind == ABANDONED else last
            reached = max(reached, settled)
        offered = outgoing.offered
        if offered is not None and offered.hi > reached and _should_leave(evidence, outgoing):
            count = offered.hi - reached
            detail = (
                f"{count} messages to {_dest(evidence, outgoing.dest)} were accepted and wait in "
                "the outbox at the end"
            )
            yield Violation(evidence.rig.end, detail, ((outgoing.sender, offered),))


def sent_again(evidence: Evidence) -> Iterator[Violation]:
    """Messages that left twice, under two seqnos (G2)."""
    for outgoing in evidence.application.outgoing.values():
        if outgoing.sender.version < SAYS_BOTH_ENDS:
            continue
        reached = 0
        for event, first, last in outgoing.numbers():
            if first <= reached:
                detail = f"message {first} to {_dest(evidence, outgoing.dest)} left a second time"
                yield Violation(event.time, detail, ((outgoing.sender, event),))
            reached = max(reached, last)


def split(evidence: Evidence) -> Iterator[Violation]:
    """Messages whose pieces left in such a way that nobody can join them, as on two connections,
    and that were not given up aloud (G1)."""
    for outgoing in evidence.application.outgoing.values():
        sender = outgoing.sender
        if sender.version < SAYS_BOTH_ENDS or not _should_leave(evidence, outgoing):
            continue
        for cut, parts in _by_message(outgoing):
            pieces = [piece for part in parts for piece in part.pieces]
            if len(pieces) < cut.count or any(part.is_whole for part in parts):
                continue
            if not _is_told(evidence, outgoing, cut, pieces):
                detail = (
                    f"the pieces of message {cut.lo} to {_dest(evidence, outgoing.dest)} did not "
                    "leave one after the other on one connection: nobody can join them"
                )
                last = max(pieces, key=outgoing.events.index)
                yield Violation(cut.time, detail, ((sender, cut), (sender, last)))


def _by_message(outgoing: Outgoing) -> Iterator[tuple[Event, list[Large]]]:
    """Yield each message in pieces, with what of it left on each connection."""
    found: dict[int, list[Large]] = {}
    for large in outgoing.large:
        found.setdefault(large.cut.lo, []).append(large)
    for parts in found.values():
        yield parts[0].cut, parts


def _is_told(evidence: Evidence, outgoing: Outgoing, cut: Event, pieces: list[Event]) -> bool:
    """Whether a message was given up aloud: by its number, or by the seqno of one of its pieces."""
    told = (outgoing.given_up(event) for event in outgoing.events if event.kind == ABANDONED)
    if any(messages.lo <= cut.lo <= messages.hi for messages in told):
        return True
    return any(
        given_up.lo <= piece.lo <= given_up.hi
        for piece in pieces
        for numbering in _numberings(evidence, outgoing, piece)
        if piece in numbering.sent
        for given_up in numbering.told
    )


def _numberings(
    evidence: Evidence, outgoing: Outgoing, piece: Event
) -> Sequence[SenderLife | Stream]:
    """Return what may have numbered a piece: the lives of its connection, or the stream."""
    short = outgoing.sender.short
    if outgoing.dest == GROUP:
        stream = evidence.groups.streams.get(short)
        return [stream] if stream is not None else []
    connection = evidence.unicasts.connections.get((short, outgoing.dest, piece.conn))
    return connection.entries if connection is not None else []


def last_number(outgoing: Outgoing) -> int:
    """Return the highest number of a message that left or was given up; 0: none did."""
    return max((last for _event, _first, last in outgoing.numbers()), default=0)


def _signed(difference: int) -> int:
    """Return the number of smallest size with the low 32 bits of a difference."""
    return ((difference + 0x80000000) & LOW) - 0x80000000


def _skipped(outgoing: Outgoing, lo: int, hi: int, after: Event) -> Violation:
    detail = f"messages {lo}..{hi} were accepted, never left, and nobody was told"
    return Violation(after.time, detail, ((outgoing.sender, after),))


def _should_leave(evidence: Evidence, outgoing: Outgoing) -> bool:
    """Whether messages that wait in a lane at the end of a run have a living dest, or a group."""
    sender = outgoing.sender
    if not sender.answers_for_sent:
        return False
    if outgoing.dest == GROUP:
        return bool(sender.views) or not evidence.has_group
    dest = evidence.members.get(outgoing.dest)
    return dest is not None and dest.lives


def _is_piece(event: Event) -> bool:
    return event.kind == SENT and bool(event.flags & FRAGMENT)


def _dest(evidence: Evidence, dest: int) -> str:
    return "the group" if dest == GROUP else evidence.find(dest).name
