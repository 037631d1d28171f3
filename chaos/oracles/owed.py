"""The messages that a run owed: how many had to reach their receivers, and how many did.

A verdict of `holds` says that nothing owed is missing. It is worth as much as was owed: a load that
ran while its sender was alone owed nothing to any other member.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Sequence
from typing import NamedTuple

from stormcast.chaos.oracles import g1_multicast
from stormcast.chaos.oracles.application import SAYS_BOTH_ENDS
from stormcast.chaos.oracles.coverage import between, counted, is_covered, spans
from stormcast.chaos.oracles.evidence import Evidence
from stormcast.chaos.oracles.g1_no_loss import was_given_up
from stormcast.chaos.oracles.groups import MULTICAST, Stream, last_view
from stormcast.chaos.oracles.hand_over import UNSAID_SECONDS
from stormcast.chaos.oracles.history import Member
from stormcast.node.core.model import DONT_LOOPBACK, FRAGMENT
from stormcast.node.core.wire import GROUP
from stormcast.node.trace import HANDED, SENT, Event

Spans = list[tuple[int, int]]
"""Seqnos, as the fewest ranges: a range may be longer than anybody can count one by one."""


class Owed(NamedTuple):
    """Numbers of messages; `owed` and `delivered` count one for each member that it was for."""

    owed: int
    delivered: int
    unicasts: int
    """Unicasts that were owed."""
    multicasts: int
    """Multicasts that were owed: of each stream, those owed to the member that is owed most."""
    members: int
    """The most members that multicasts of one stream were owed to."""

    def __str__(self) -> str:
        parts = []
        if self.multicasts:
            parts.append(f"{self.multicasts} multicasts to {self.members} members")
        if self.unicasts:
            parts.append(f"{self.unicasts} unicasts")
        what = f" ({', '.join(parts)})" if parts else ""
        return f"{self.delivered} of {self.owed} delivered{what}"

    def as_json(self) -> dict[str, int]:
        return self._asdict()


def owed_by(evidence: Evidence, *, is_all_there: bool = False) -> Owed:
    """Count what all members owed each other by G1, and how much of it arrived. With
    `is_all_there` all of it did, and is not searched."""
    unicasts = arrived = 0
    for entry in evidence.unicasts.entries():
        connection = entry.connection
        if not (connection.sender.answers_for_sent and connection.receiver.lives):
            continue
        batches = [sent for sent in entry.sent if not _is_muted(sent, is_own=connection.is_to_self)]
        if not batches:
            continue
        key = connection.sender.short, batches[0].protocol, connection.conn
        if was_given_up(entry):
            # Of what did not arrive the sender was told: only the rest was owed.
            came = _arrived(evidence, connection.receiver, key, entry.delivered)
            count = _messages(batches, came)
            unicasts += count
            arrived += count
            continue
        count = _messages(batches)
        unicasts += count
        arrived += (
            count
            if is_all_there
            else _messages(batches, _arrived(evidence, connection.receiver, key, entry.delivered))
        )
    owed, multicasts, members = unicasts, 0, 0
    for stream in evidence.groups.streams.values():
        if not stream.sender.answers_for_sent or not stream.sent:
            continue
        counts: list[int] = []
        for receiver, batches in _owed_multicasts(evidence, stream):
            if is_all_there and stream.sender.lives:
                counts.append(_messages(batches))
                arrived += counts[-1]
                continue
            key = stream.sender.short, stream.sent[0].protocol, 0
            windows = [(None, event) for event in stream.delivered_to(receiver)]
            came = _arrived(evidence, receiver, key, windows)
            arrived += _messages(batches, came)
            # Of what did not arrive the sender may have been told as it left.
            kept = _not_given_up(stream, batches)
            counts.append(_messages(batches, spans([*came, *kept])))
        owed += sum(counts)
        multicasts += max(counts, default=0)
        members = max(members, sum(map(bool, counts)))
    return Owed(owed, arrived, unicasts, multicasts, members)


def _owed_multicasts(evidence: Evidence, stream: Stream) -> Iterator[tuple[Member, list[Event]]]:
    """Yield each member that a stream was owed to, with the batches owed to it."""
    if stream.sender.lives:
        yield stream.sender, [sent for sent in stream.sent if not _is_muted(sent, is_own=True)]
    for receiver in evidence.members.values():
        if receiver.lives and receiver is not stream.sender:
            lo = stream.owed_from(receiver)
            if lo is not None:
                yield receiver, list(_owed_from(stream, lo))


def _not_given_up(stream: Stream, batches: list[Event]) -> Spans:
    """Return the seqnos of batches that their sender did not say it gave up."""
    told = spans((part.lo, part.hi) for part in g1_multicast.given_up(stream))
    return [part for sent in batches for part in between(sent.lo, sent.hi, told)]


def _owed_from(stream: Stream, lo: int) -> Iterator[Event]:
    """Yield the batches from a seqno on, without the rest of a message that began below it."""
    began = {sent.trim for sent in stream.sent if sent.lo < lo and sent.flags & FRAGMENT}
    for sent in stream.sent:
        if sent.lo >= lo and not (sent.flags & FRAGMENT and sent.trim in began):
            yield sent


def _is_muted(sent: Event, *, is_own: bool) -> bool:
    return is_own and bool(sent.flags & DONT_LOOPBACK)


def _arrived(
    evidence: Evidence,
    receiver: Member,
    key: tuple[int, int, int],
    delivered: Sequence[tuple[object, Event]],
) -> Spans:
    """Return the seqnos of a source, protocol and connection that an application was handed; by
    traces of version 1, those that its window delivered."""
    if receiver.version >= SAYS_BOTH_ENDS:
        incoming = evidence.application.incoming.get((receiver.short, *key))
        events = incoming.events if incoming is not None else ()
        ranges = [(event.lo, event.hi) for event in events if event.kind == HANDED]
        ranges += _unsaid(evidence, receiver, key, delivered)
    else:
        ranges = [(event.lo, event.hi) for _where, event in delivered]
    return spans(ranges)


def _unsaid(
    evidence: Evidence,
    receiver: Member,
    key: tuple[int, int, int],
    delivered: Sequence[tuple[object, Event]],
) -> Iterator[tuple[int, int]]:
    """Yield deliveries of the last moment: they may have been handed over without an event that
    says so. Of a message in pieces all must be there."""
    said_until = evidence.rig.end - UNSAID_SECONDS
    late = [event for _where, event in delivered if event.time > said_until]
    if not late:
        return
    source, protocol, conn = key
    dest = GROUP if protocol in MULTICAST else receiver.short
    outgoing = evidence.application.outgoing.get((source, dest))
    by_piece = outgoing.by_piece if outgoing is not None else {}
    had = spans((event.lo, event.hi) for _where, event in delivered)
    for event in late:
        if not event.flags & FRAGMENT:
            yield event.lo, event.hi
            continue
        for large in by_piece.get((protocol, conn, event.lo), ()):
            if is_covered(large.lo, large.hi, had):
                yield large.lo, large.hi


def _messages(batches: Iterable[Event], arrived: Spans | None = None) -> int:
    """Count the messages of some batches; with `arrived`, those of them that arrived. The pieces of
    one message count once, and arrive together."""
    count = 0
    piece_of = -1
    for sent in batches:
        if sent.flags & FRAGMENT:
            if sent.trim == piece_of:
                continue
            piece_of = sent.trim
            count += arrived is None or is_covered(sent.lo, sent.lo, arrived)
        elif arrived is None:
            count += sent.count
        else:
            count += counted(sent.lo, sent.hi, arrived)
    return count


class Unowed(NamedTuple):
    """A member's multicasts in some time, and living members that were in none of its views."""

    sender: Member
    messages: int
    missing: tuple[Member, ...]
    is_alone: bool
    """Whether all of these multicasts were for the sender alone."""


def unowed_multicasts(
    evidence: Evidence, sender: Member, numbers: Collection[int], before: int
) -> Unowed | None:
    """Return what of a living member's multicasts was for itself alone, or never for some members
    that have lived since it sent the first of them; None if all were for everybody.

    The multicasts have these numbers among those that the member offered to its group, after
    `before` that earlier incarnations of it had offered.
    """
    sent = [
        (batch, count)
        for batch in _numbered(evidence, sender)
        if (count := sum(before + number in numbers for number in batch.numbers))
    ]
    if not sent:
        return None
    meant = {short for batch, _count in sent for short in batch.members}
    missing = tuple(
        member
        for member in evidence.members.values()
        if member.lives
        and member.started <= sent[0][0].time
        and last_view(member) is not None
        and member.short not in meant
    )
    is_alone = meant <= {sender.short}
    if not (missing or is_alone):
        return None
    return Unowed(sender, sum(count for _batch, count in sent), missing, is_alone)


class _Batch(NamedTuple):
    """Multicasts that left together."""

    time: float
    """Of a message in pieces that of its first piece."""
    members: frozenset[int]
    """The members of the sender's view, by short id; of a message in pieces those that were there
    from its first piece to its last."""
    numbers: range
    """As the application's messages to the group are counted."""


def _numbered(evidence: Evidence, sender: Member) -> Iterator[_Batch]:
    """Yield a member's multicasts that have a seqno."""
    stream = evidence.groups.streams.get(sender.short)
    outgoing = evidence.application.outgoing.get((sender.short, GROUP))
    if stream is None or outgoing is None:
        return
    sent = {event.lo: at for at, event in enumerate(stream.sent)}
    for event, first, last in outgoing.numbers():
        if event.kind == SENT and event.protocol in MULTICAST:
            pieces = [
                sent[piece.lo]
                for large in outgoing.by_piece.get((event.protocol, event.conn, event.lo), ())
                for piece in large.pieces
            ]
            places = {stream.sent_in[at] for at in pieces or (sent[event.lo],)}
            members = (sender.views[at].members if at >= 0 else () for at in places)
            began = min((stream.sent[at].time for at in pieces), default=event.time)
            meant = frozenset.intersection(*map(frozenset, members))
            yield _Batch(began, meant, range(first, last + 1))
