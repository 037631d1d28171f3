"""G4, intact: every delivery is of a batch that was sent to this receiver, bit for bit."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from math import inf
from typing import Final

from stormcast.chaos.oracles import hand_over
from stormcast.chaos.oracles.evidence import Evidence
from stormcast.chaos.oracles.groups import Stream, Window
from stormcast.chaos.oracles.history import EPSILON, Connection, Epoch, Violation
from stormcast.node.core.model import DONT_LOOPBACK, FRAGMENT, OOB
from stormcast.node.core.wire import GROUP
from stormcast.node.trace import DROPPED, SENT, WHOLE, Event

Payloads = Callable[[str, str, int, int], bytes]
"""Returns the payloads, back to back, of messages number `lo..hi` from one trace label to another.
They are counted from 0 in the order of sending, over all connections."""

MIXED: Final = "fragment-inconsistent"
DELIVERY_FLAGS: Final = OOB | DONT_LOOPBACK | FRAGMENT
"""The flags that decide how a message is delivered and handed over; others may change."""


def violations(evidence: Evidence, payloads: Payloads | None = None) -> Iterator[Violation]:
    """Deliveries that differ from their batch; also in their bytes, where `payloads` makes them."""
    for epoch in evidence.unicasts.epochs():
        for event in epoch.strange:
            yield _strange(evidence, epoch, event)
    for entry in evidence.unicasts.entries():
        for epoch, event in entry.delivered:
            batch = entry.batches.at(event.lo)
            assert batch is not None, "a delivery is matched to the batch that holds it"
            if difference := _difference(batch, event):
                connection = entry.connection
                witness = ((connection.sender, batch), (epoch.connection.receiver, event))
                yield Violation(event.time, difference, witness)
    for stream in evidence.groups.streams.values():
        for window in stream.all_windows():
            yield from _multicasts(stream, window)
    yield from _unnumbered(evidence)
    yield from _mixed(evidence)
    if payloads is not None:
        yield from _different_bytes(evidence, payloads)
    yield from hand_over.found_in(evidence, "G4")


def _mixed(evidence: Evidence) -> Iterator[Violation]:
    """Messages whose delivered fragments contradict each other: two messages were mixed."""
    for member in evidence.members.values():
        for number, event in enumerate(member.events):
            if event.kind == DROPPED and member.texts.get(number) == MIXED:
                detail = f"{member.name} gave a message up whose pieces contradict each other"
                yield Violation(event.time, detail, ((member, event),))


def _multicasts(stream: Stream, window: Window) -> Iterator[Violation]:
    """Deliveries that differ from what was multicast. A delivery that matches no batch is shown
    beside the batch that has its first seqno, if there is one."""
    for event in window.delivered:
        batch = stream.batches.at(event.lo)
        if batch is not None and stream.batches.origin(event) is batch:
            difference = _difference(batch, event)
            if not difference:
                continue
        else:
            how = _contradiction(batch, event) if batch is not None else "and never sent"
            difference = f"multicasts {event.lo}..{event.hi} were delivered {how}"
        witness = [(window.receiver, event)]
        if batch is not None:
            witness.insert(0, (stream.sender, batch))
        yield Violation(event.time, difference, tuple(witness))


def _difference(batch: Event, event: Event) -> str:
    """Describe how a delivery contradicts the batch that it is of; empty: it does not."""
    if (batch.flags ^ event.flags) & DELIVERY_FLAGS:
        return f"seqnos {event.lo}..{event.hi} were delivered with other flags than they were sent"
    if event.count != event.hi - event.lo + 1:
        return f"{event.count} messages were delivered as seqnos {event.lo}..{event.hi}"
    has_all = (event.lo, event.hi) == (batch.lo, batch.hi)
    if event.stream == WHOLE and not has_all:
        return f"{event.lo}..{event.hi} were delivered as the whole of {batch.lo}..{batch.hi}"
    if has_all and event.bytes != batch.bytes:
        return f"{event.bytes} bytes were delivered of a batch of {batch.bytes}"
    if event.bytes > batch.bytes:
        return f"{event.bytes} bytes were delivered as a part of a batch of {batch.bytes}"
    return ""


def _strange(evidence: Evidence, epoch: Epoch, event: Event) -> Violation:
    """Return the violation by a delivery that was not sent on its connection: beside its batch on
    another connection, or beside the one with its first seqno on this."""
    connection = epoch.connection
    witness = [(connection.receiver, event)]
    what = f"seqnos {event.lo}..{event.hi}"
    if elsewhere := evidence.unicasts.sent_elsewhere(epoch, event):
        other, batch = elsewhere
        witness.insert(0, (other.sender, batch))
        detail = f"{what} were sent on conn {other.conn} and delivered on conn {connection.conn}"
    elif batches := _batches_at(connection, event):
        batch = batches[-1]
        witness.insert(0, (connection.sender, batch))
        detail = f"{what} were delivered {_contradiction(batch, event)}"
    else:
        detail = f"{what} were delivered on conn {connection.conn} and never sent on it"
    return Violation(event.time, detail, tuple(witness))


def _batches_at(connection: Connection, event: Event) -> list[Event]:
    batches = (entry.batches.at(event.lo) for entry in connection.entries)
    return [batch for batch in batches if batch is not None]


def _contradiction(batch: Event, event: Event) -> str:
    if batch.digest != event.digest:
        return (
            f"from a batch with digest {event.digest:016x}, and were sent with {batch.digest:016x}"
        )
    if batch.hi < event.hi:
        return f"from a batch that was sent as {batch.lo}..{batch.hi}"
    return "before they were sent"


def _unnumbered(evidence: Evidence) -> Iterator[Violation]:
    """Unnumbered deliveries whose digest had not been sent: they may be lost and repeated only."""
    for (receiver, sender), delivered in evidence.unnumbered.delivered.items():
        sent: dict[int, float] = {}
        for dest in (receiver, GROUP):
            for batch in evidence.unnumbered.sent.get((sender, dest), ()):
                sent[batch.digest] = min(sent.get(batch.digest, inf), batch.time)
        for event in delivered:
            if sent.get(event.digest, inf) > event.time + EPSILON:
                detail = "an unnumbered batch was delivered that had not been sent"
                yield Violation(event.time, detail, ((evidence.find(receiver), event),))


def _different_bytes(evidence: Evidence, payloads: Payloads) -> Iterator[Violation]:
    """Parts of batches whose bytes are not those of their messages."""
    numbers = _message_numbers(evidence)
    for entry in evidence.unicasts.entries():
        sender, receiver = entry.connection.sender, entry.connection.receiver
        for _epoch, event in entry.delivered:
            batch = entry.batches.at(event.lo)
            if event.stream == WHOLE or batch is None:
                continue
            first = numbers[id(batch)] + event.lo - batch.lo
            part = payloads(sender.label, receiver.label, first, first + event.hi - event.lo)
            if len(part) != event.bytes or evidence.hash64(part) & 0xFFFFFFFF != event.trim:
                detail = (
                    f"seqnos {event.lo}..{event.hi} were cut out of their batch with other bytes"
                )
                yield Violation(event.time, detail, ((sender, batch), (receiver, event)))


def _message_numbers(evidence: Evidence) -> dict[int, int]:
    """Return the number of the first message of each SENT, by the `id` of the event."""
    numbers: dict[int, int] = {}
    for member in evidence.members.values():
        counted: dict[int, int] = {}
        for event in member.events:
            if event.kind == SENT:
                numbers[id(event)] = counted.get(event.peer, 0)
                counted[event.peer] = numbers[id(event)] + event.count
    return numbers
