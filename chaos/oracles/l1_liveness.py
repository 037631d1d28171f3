"""L1, liveness: what was received is acked in time, and what is not acked is resent in time."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import zip_longest
from math import inf

from chaos.oracles.evidence import Evidence
from chaos.oracles.history import EPSILON, Entry, Epoch, Member, Violation
from node.core.model import OOB
from node.trace import BLOCKED, PURGED, SENT, UNBLOCKED, Event


def violations(evidence: Evidence) -> Iterator[Violation]:
    """Deliveries without an ack, and senders that fall silent while something is unacked."""
    for epoch in evidence.epochs():
        yield from _unacked(evidence, epoch)
        yield from _unflushed(epoch)
    for member in evidence.members.values():
        yield from _blocked_for_ever(evidence, member)
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


def _unflushed(epoch: Epoch) -> Iterator[Violation]:
    """A window that was removed before what it had delivered was acked (JGRP-1755)."""
    removed = epoch.removed
    if removed is None or not epoch.delivered or epoch.connection.is_to_self:
        return
    if removed.event.lo > max((ack.lo for ack in epoch.acked), default=0):
        receiver = epoch.connection.receiver
        detail = f"the window was removed, and seqno {removed.event.lo} in it never acked"
        witness = ((receiver, epoch.delivered[-1]), (receiver, removed.event))
        yield Violation(removed.event.time, detail, witness)


def _blocked_for_ever(evidence: Evidence, member: Member) -> Iterator[Violation]:
    """Lanes that wait at the end for room that is there (U-12, JGRP-2854)."""
    if not member.lives:
        return
    waiting: dict[int, Event] = {}
    for event in member.events:
        if event.kind == BLOCKED:
            waiting[event.peer] = event
        elif event.kind == UNBLOCKED:
            waiting.pop(event.peer, None)
    for peer, blocked in waiting.items():
        entries = [
            entry
            for connection in evidence.connections.values()
            if connection.sender is member and connection.receiver.short == peer
            for entry in connection.entries
            if entry.removed is None
        ]
        if all(entry.acked_all for entry in entries):
            detail = "a lane still waits for room, and nothing is unacked in its way"
            yield Violation(blocked.time, detail, ((member, blocked),))


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
