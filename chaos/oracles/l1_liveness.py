"""L1, liveness: what was received is acked in time, and what is not acked is resent in time."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import zip_longest
from math import inf

from chaos.oracles.evidence import Evidence
from chaos.oracles.history import EPSILON, Entry, Epoch, Violation
from node.core.model import OOB
from node.trace import PURGED, SENT, Event


def violations(evidence: Evidence) -> Iterator[Violation]:
    """Deliveries without an ack, and senders that fall silent while something is unacked."""
    for epoch in evidence.epochs():
        yield from _unacked(evidence, epoch)
    for entry in evidence.entries():
        yield from _unrepeated(evidence, entry)


def _unacked(evidence: Evidence, epoch: Epoch) -> Iterator[Violation]:
    """Deliveries in order that no ack of their window covers in time, with nothing in its way."""
    receiver = epoch.connection.receiver
    within = receiver.bounds.get("ack_within")
    if within is None or epoch.connection.is_to_self:
        return
    acks = iter(epoch.acked)
    ack = next(acks, None)
    last = min(evidence.end, epoch.removed_at)
    for event in epoch.delivered:
        if event.flags & OOB:
            continue
        while ack is not None and ack.lo < event.hi:
            ack = next(acks, None)
        due = event.time + within + EPSILON
        if ack is not None and ack.time <= due:
            continue
        if due < last and not receiver.is_hindered(event.time, due):
            witness = [(receiver, event)]
            if ack is not None:
                witness.append((receiver, ack))
            detail = f"seqno {event.hi} was not acked within {within:g}s"
            yield Violation(due, detail, tuple(witness))
            return


def _unrepeated(evidence: Evidence, entry: Entry) -> Iterator[Violation]:
    """Stretches without a sign of life from an entry that waits for an ack."""
    sender = entry.connection.sender
    within = sender.bounds.get("resend_within")
    if within is None or entry.connection.is_to_self:
        return
    removed = entry.removed
    last = min(evidence.end, sender.ended, removed.event.time if removed else inf)
    for event, following in _waits(entry):
        until = min(following.time, last) if following else last
        silent = until - event.time - sender.paused_within(event.time, until)
        if silent > within + EPSILON:
            witness = [(sender, event)]
            if following is not None:
                witness.append((sender, following))
            detail = f"unacked, and nothing sent for {silent:.6f}s: the bound is {within:g}s"
            yield Violation(event.time + within, detail, tuple(witness))
            return


def _waits(entry: Entry) -> Iterator[tuple[Event, Event | None]]:
    """Each event after which something is unacked, and the next one of the entry."""
    high = low = 0
    for event, following in zip_longest(entry.activity, entry.activity[1:]):
        if event.kind == SENT:
            high = max(high, event.hi)
        elif event.kind == PURGED:
            low = max(low, event.hi)
        if low < high:
            yield event, following
