"""L1, liveness: deliveries are acked in time, and senders repeat unacked messages in time."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from itertools import zip_longest
from math import inf

from stormcast.chaos.oracles import l1_answers
from stormcast.chaos.oracles.coverage import first_gap
from stormcast.chaos.oracles.evidence import Evidence
from stormcast.chaos.oracles.groups import Stream, last_view, was_outside
from stormcast.chaos.oracles.history import (
    EPSILON,
    Epoch,
    Member,
    SenderLife,
    Span,
    Violation,
    longest,
)
from stormcast.chaos.oracles.lives import freezes
from stormcast.node.core import wire
from stormcast.node.core.model import OOB
from stormcast.node.trace import BLOCKED, PURGED, SENT, UNBLOCKED, Event


def violations(evidence: Evidence) -> Iterator[Violation]:
    """Deliveries without an ack, senders that fall silent with messages unacked, lanes that wait
    for room that is there, requests answered in part, and multicasts that a sender keeps although
    all members have them."""
    for epoch in evidence.unicasts.epochs():
        yield from _unacked(evidence, epoch)
        yield from _unflushed(epoch)
    for member in evidence.members.values():
        yield from _multicasts_unacked(evidence, member)
        yield from _blocked_for_ever(evidence, member)
        yield from l1_answers.violations(member)
    for entry in evidence.unicasts.entries():
        yield from _unrepeated(evidence, entry)
    for stream in evidence.groups.streams.values():
        yield from _kept_for_ever(evidence, stream)


def _unacked(evidence: Evidence, epoch: Epoch) -> Iterator[Violation]:
    """Unicasts delivered in order that no ack of their window covers in time."""
    receiver = epoch.connection.receiver
    within = receiver.bounds.get("ack_within")
    if within is None or epoch.connection.is_to_self:
        return
    last = min(evidence.rig.end, epoch.removed_at)
    sender = epoch.connection.sender
    more = (receiver.bounds.get("stranger_ack_within") or within) - within

    def added(start: float, end: float) -> float:
        return more if more and was_outside(receiver, sender, start, end) else 0.0

    yield from _acked_late(receiver, epoch.delivered, epoch.acked, within, last, added)


def _multicasts_unacked(evidence: Evidence, receiver: Member) -> Iterator[Violation]:
    """Multicasts of MCAST that a receiver does not ack in time, unless its acks are frozen."""
    within = receiver.bound(wire.MCAST, "ack_within")
    if within is None:
        return
    windows = [
        window
        for stream in evidence.groups.streams.values()
        for window in stream.windows_of(receiver)
        if not window.is_own
    ]
    frozen = _freezes(receiver, within)

    def added(start: float, end: float) -> float:
        held = (span.end for span in frozen if span.overlap(start, end))
        return max(0.0, max(held, default=end) - end)

    for window in windows:
        last = min(evidence.rig.end, window.removed_at)
        yield from _acked_late(receiver, window.delivered, window.acked, within, last, added)


def _freezes(receiver: Member, within: float) -> list[Span]:
    """Return the times in which a member's acks were frozen, each with the time to catch up; those
    of which one begins in another are one."""
    spans: list[Span] = []
    for span in freezes(receiver):
        end = span.end + within
        if spans and span.start <= spans[-1].end + EPSILON:
            spans[-1] = spans[-1]._replace(end=end)
        else:
            spans.append(Span(span.start, end))
    return spans


def _acked_late(
    receiver: Member,
    delivered: Sequence[Event],
    acked: Sequence[Event],
    within: float,
    last: float,
    added: Callable[[float, float], float],
) -> Iterator[Violation]:
    """The first delivery of a window that was not acked in time; `added` returns the seconds that
    an ack may take besides, for what happened between two moments."""
    acks = iter(acked)
    ack = next(acks, None)
    for event in delivered:
        if event.flags & OOB:
            continue
        while ack is not None and ack.lo < event.hi:
            ack = next(acks, None)
        due = event.time + within + EPSILON
        if ack is not None and ack.time <= due:
            continue
        more = added(event.time, due)
        due += more
        if (ack is not None and ack.time <= due) or due >= last:
            continue
        if receiver.is_hindered(event.time, due):
            continue
        witness = [(receiver, event)]
        if ack is not None:
            witness.append((receiver, ack))
        detail = f"seqno {event.hi} was not acked within {within + more:g}s"
        yield Violation(due, detail, tuple(witness))
        return


def _unflushed(epoch: Epoch) -> Iterator[Violation]:
    """A window that was removed before all that it had delivered was acked (JGRP-1755)."""
    removed = epoch.removed
    if removed is None or not epoch.delivered or epoch.connection.is_to_self:
        return
    if removed.event.lo > max((ack.lo for ack in epoch.acked), default=0):
        receiver = epoch.connection.receiver
        detail = f"the window was removed, and seqno {removed.event.lo} in it never acked"
        witness = ((receiver, epoch.delivered[-1]), (receiver, removed.event))
        yield Violation(removed.event.time, detail, witness)


def _blocked_for_ever(evidence: Evidence, member: Member) -> Iterator[Violation]:
    """Lanes that wait at the end for room in a window, though there is room (U-12, JGRP-2854)."""
    if not member.lives:
        return
    waiting: dict[int, Event] = {}
    for event in member.events:
        if event.kind == BLOCKED:
            waiting[event.peer] = event
        elif event.kind == UNBLOCKED:
            waiting.pop(event.peer, None)
    for peer, blocked in waiting.items():
        if peer == wire.GROUP:
            if _everyone_has_all(evidence, evidence.groups.stream(member)):
                detail = "a lane to the group still waits for room, and every member has everything"
                yield Violation(evidence.rig.end, detail, ((member, blocked),))
            continue
        entries = [
            entry
            for connection in evidence.unicasts.connections.values()
            if connection.sender is member and connection.receiver.short == peer
            for entry in connection.entries
            if entry.removed is None
        ]
        if all(entry.acked_all for entry in entries):
            detail = "a lane still waits for room, and nothing is unacked in its way"
            yield Violation(evidence.rig.end, detail, ((member, blocked),))


def _everyone_has_all(evidence: Evidence, stream: Stream) -> bool:
    """Whether every member of the sender's last view has delivered all that its window expects."""
    view = last_view(stream.sender)
    if view is None:
        return False
    for short in view.members:
        receiver = evidence.find(short)
        if receiver is stream.sender:
            continue
        window = stream.current(receiver)
        if window is None:
            return False
        begins = window.given_up + 1
        if first_gap(begins, stream.high, stream.delivered_to(receiver)) is not None:
            return False
    return True


def _kept_for_ever(evidence: Evidence, stream: Stream) -> Iterator[Violation]:
    """Multicasts that every member has, and that were not purged within `purge_within` (P-16)."""
    sender = stream.sender
    if not stream.sent or not sender.lives:
        return
    last = stream.sent[-1]
    view = last_view(sender)
    others = map(evidence.find, view.members) if view is not None else ()
    within = longest([sender, *others], last.protocol, "purge_within")
    if within is None:
        return
    due = evidence.rest + within + evidence.long_travel
    if evidence.rig.end < due:
        return
    purged = max((purge.hi for _place, purge in stream.purged), default=0)
    if purged < stream.high and _everyone_has_all(evidence, stream):
        detail = f"multicasts {purged + 1}..{stream.high} were not dropped within {within:g}s"
        yield Violation(due, detail, ((sender, last),))


def _unrepeated(evidence: Evidence, entry: SenderLife) -> Iterator[Violation]:
    """The first time in which an entry with unacked messages sends and purges nothing too long."""
    sender = entry.connection.sender
    within = sender.bounds.get("resend_within")
    if within is None or entry.connection.is_to_self:
        return
    removed = entry.removed
    last = min(evidence.rig.end, sender.ended, removed.event.time if removed else inf)
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


def _waits(entry: SenderLife) -> Iterator[tuple[Event, Event | None]]:
    """Yield each event after which messages are unacked, with the next event of the entry."""
    high = low = 0
    for event, following in zip_longest(entry.activity, entry.activity[1:]):
        if event.kind == SENT:
            high = max(high, event.hi)
        elif event.kind == PURGED:
            low = max(low, event.hi)
        if low < high:
            yield event, following
