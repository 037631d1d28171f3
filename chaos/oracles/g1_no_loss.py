"""G1, no loss: a message that was accepted for a member that stays is handed to its application, or
its sender is told."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final, NamedTuple

from stormcast.chaos.oracles import application, g1_alarms, g1_held, g1_multicast, hand_over
from stormcast.chaos.oracles.coverage import Range, first_gap
from stormcast.chaos.oracles.evidence import Evidence
from stormcast.chaos.oracles.groups import view_at, was_outside
from stormcast.chaos.oracles.history import EPSILON, Member, Noted, SenderLife, Violation
from stormcast.node.core import wire
from stormcast.node.core.model import DONT_LOOPBACK
from stormcast.node.trace import ABANDONED, SENDER_CLOSING, Event

CLOSE_AT_ONCE: Final = frozenset({wire.UNICAST, wire.UNICAST2})
"""Protocols that remove a connection with the view that lacks the peer; later ones flush it."""
GIVEN_UP: Final = frozenset({"aged", "forgot"})
"""Reasons for which a connection may be removed at once, with all that it still held."""
FLUSHED: Final = frozenset({"idle", "close", "closed", "view"})
"""Reasons for which a connection may be removed only after it was closing, with time to repeat."""


def violations(evidence: Evidence) -> Iterator[Violation]:
    """Messages that were lost on their way from one application to the other."""
    yield from application.not_sent(evidence)
    yield from application.split(evidence)
    for entry in evidence.unicasts.entries():
        connection = entry.connection
        if connection.sender.answers_for_sent and connection.receiver.lives:
            if was_given_up(entry):
                yield from _untold(entry)
            else:
                yield from _lost(entry)
    yield from _thrown_away(evidence)
    yield from g1_multicast.violations(evidence)
    yield from g1_held.violations(evidence.held)
    yield from g1_alarms.violations(evidence)
    yield from hand_over.found_in(evidence, "G1")


def was_given_up(entry: SenderLife) -> bool:
    """Whether the sender rightly removed the connection, with undelivered messages in it."""
    removed = entry.removed
    if removed is None:
        return False
    if removed.text == "stop":
        return _was_stopping(entry, removed)
    if removed.text == "view" and removed.event.protocol in CLOSE_AT_ONCE:
        connection, at = entry.connection, removed.event.time
        # In one moment several views may follow each other.
        if was_outside(connection.sender, connection.receiver, at, at):
            return True
    if is_held_to(entry):
        return False
    return removed.text in GIVEN_UP or (removed.text in FLUSHED and closed_as(entry) != "")


def _was_stopping(entry: SenderLife, removed: Noted) -> bool:
    """Whether the trace of the sender says nothing after a removal, but what its last turn does."""
    return entry.connection.sender.events[-1].time <= removed.event.time + EPSILON


def closed_as(entry: SenderLife) -> str:
    """Return why a removed connection was closing before; empty where it was not."""
    if len(entry.states) > 1 and entry.states[-2].event.stream == SENDER_CLOSING:
        return entry.states[-2].text
    return ""


def was_idle(entry: SenderLife) -> bool:
    """Whether a connection was removed because it was idle: it was closing as idle until then."""
    removed = entry.removed
    return removed is not None and removed.text == "closed" and closed_as(entry) == "idle"


def is_held_to(entry: SenderLife) -> bool:
    """Whether a connection was removed as aged or idle while its peer was in the view of the
    sender: a member may not be given up before the view gives it up."""
    removed = entry.removed
    if removed is None or not (removed.text == "aged" or was_idle(entry)):
        return False
    view = view_at(entry.connection.sender, removed.event.time)
    return view is not None and entry.connection.receiver.short in view.members


def _untold(entry: SenderLife) -> Iterator[Violation]:
    """Messages that were rightly given up, and whose application was not told."""
    sender, removed = entry.connection.sender, entry.removed
    assert removed is not None
    if sender.version < application.SAYS_BOTH_ENDS:
        return
    for loss in _gaps(entry, entry.told):
        detail = (
            f"seqno {loss.seqno} was given up with its connection ({removed.text}), and its "
            "application was not told"
        )
        witness = ((sender, loss.sent), (sender, removed.event))
        yield Violation(loss.sent.time, detail, witness)


def _thrown_away(evidence: Evidence) -> Iterator[Violation]:
    """Messages that waited for a connection which was wrongly closed: as idle, though all that was
    sent was acked (messages waited, so it was not idle), or though its peer was in the view."""
    for outgoing in evidence.application.outgoing.values():
        dest = evidence.members.get(outgoing.dest)
        if dest is None or not (dest.lives and outgoing.sender.answers_for_sent):
            continue
        for event in outgoing.events:
            if event.kind != ABANDONED:
                continue
            entry = _last_removed(evidence, outgoing.sender, dest, event)
            if entry is None or entry.removed is None:
                continue
            has_waited = was_idle(entry) and not entry.removed.event.lo
            if has_waited or is_held_to(entry):
                detail = (
                    f"{event.count} messages that waited for {dest.name} were given up, because "
                    "the connection was idle"
                )
                witness = ((outgoing.sender, entry.removed.event), (outgoing.sender, event))
                yield Violation(event.time, detail, witness)


def _last_removed(
    evidence: Evidence, sender: Member, dest: Member, event: Event
) -> SenderLife | None:
    """Return the sender entry whose removal, in the moment of an ABANDONED, gave up what waited for
    its connection. What waits while there is no connection is given up without a removal."""
    found: SenderLife | None = None
    for entry in evidence.unicasts.entries():
        connection, removed = entry.connection, entry.removed
        if connection.sender is not sender or connection.receiver is not dest or removed is None:
            continue
        if abs(removed.event.time - event.time) <= EPSILON and (
            found is None or found.removed is None or found.removed.number < removed.number
        ):
            found = entry
    return found


class Gap(NamedTuple):
    """A batch that is not wholly covered, and its first seqno that is not."""

    sent: Event
    seqno: int


def _lost(entry: SenderLife) -> Iterator[Violation]:
    """Batches of a connection that nobody rightly gave up, and that were not wholly delivered."""
    for sent, seqno in _gaps(entry):
        yield _loss(entry, sent, seqno)


def _gaps(entry: SenderLife, told: Sequence[Range] = ()) -> Iterator[Gap]:
    """Batches that neither deliveries nor what the application was told of cover."""
    parts: dict[int, list[Event | Range]] = {}
    for _epoch, delivered in entry.delivered:
        batch = entry.batches.at(delivered.lo)
        assert batch is not None, "a delivery is matched to the batch that holds it"
        parts.setdefault(batch.lo, []).append(delivered)
    for sent in entry.sent:
        lost = first_gap(sent.lo, sent.hi, [*parts.get(sent.lo, ()), *told])
        if lost is not None and not (entry.connection.is_to_self and sent.flags & DONT_LOOPBACK):
            yield Gap(sent, lost)


def _loss(entry: SenderLife, sent: Event, lost: int) -> Violation:
    """Return the violation: the batch, and how the sender came to forget it, if it did."""
    sender = entry.connection.sender
    witness = [(sender, sent)]
    detail = f"seqno {lost} was sent and never delivered"
    purge = next((event for event in entry.purged if event.lo <= lost <= event.hi), None)
    if purge is not None:
        witness.append((sender, purge))
        detail += "; the sender dropped it as acked"
    elif entry.removed is not None:
        witness.append((sender, entry.removed.event))
        detail += f"; the sender removed the connection ({entry.removed.text}) without flushing it"
    return Violation(sent.time, detail, tuple(witness))
