"""G1 for multicasts: all members that stay with the sender deliver what it sent in a view, and all
that it had in its last view, where it left."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator, Sequence

from stormcast.chaos.oracles.coverage import Range, first_gap, gaps, spans
from stormcast.chaos.oracles.evidence import Evidence
from stormcast.chaos.oracles.groups import Stream, covered
from stormcast.chaos.oracles.history import EPSILON, Member, Violation
from stormcast.node.core.model import DONT_LOOPBACK
from stormcast.node.trace import Event


def violations(evidence: Evidence) -> Iterator[Violation]:
    """Multicasts that a member did not deliver, though it and the sender stayed together, or were
    until the sender left."""
    for stream in evidence.groups.streams.values():
        if not stream.sender.answers_for_sent or not stream.sent:
            continue
        holes = list(_holes(stream))
        if stream.sender.lives:
            yield from _own_lost(stream, holes)
        excused: list[Event | Range] = [*holes, *given_up(stream)]
        for receiver in evidence.members.values():
            if receiver.lives and receiver is not stream.sender:
                yield from _lost(evidence, stream, receiver, excused)


def _holes(stream: Stream) -> Iterator[Range]:
    """Seqnos that no batch has: what was never given to a message cannot be lost."""
    reached = 0
    for lo, hi in spans((sent.lo, sent.hi) for sent in stream.sent):
        if lo > reached + 1:
            yield Range(reached + 1, lo - 1)
        reached = hi


def _own_lost(stream: Stream, holes: Sequence[Range]) -> Iterator[Violation]:
    """Multicasts that their sender did not deliver itself: it must, whoever is in its view."""
    sender = stream.sender
    muted = [sent for sent in stream.sent if sent.flags & DONT_LOOPBACK]
    lost = first_gap(1, stream.high, [*stream.delivered_to(sender), *muted, *holes])
    if lost is not None and (sent := stream.batches.at(lost)) is not None:
        detail = f"multicast {lost} was never delivered to its own sender"
        yield Violation(sent.time, detail, ((sender, sent),))


def _lost(
    evidence: Evidence, stream: Stream, receiver: Member, excused: Sequence[Event | Range]
) -> Iterator[Violation]:
    lo = stream.owed_from(receiver)
    if lo is None:
        return
    # What is excused is put among the deliveries, so that what follows it is judged, too.
    parts = [*stream.delivered_to(receiver), *excused]
    lost = first_gap(lo, stream.high, parts)
    if lost is not None and was_told(evidence, stream, receiver, lost):
        missing = (
            gap
            for reach in stream.reaches(receiver)
            for gap in _standstills(stream, receiver, max(lo, reach.lo), reach.hi, parts)
        )
        silent = (gap for gap in missing if not was_told(evidence, stream, receiver, gap))
        lost = min(silent, default=None)
    sent = stream.batches.at(lost) if lost is not None else None
    if lost is not None and sent is not None:
        yield _loss(stream, receiver, sent, lost)


def _standstills(
    stream: Stream, receiver: Member, lo: int, hi: int, parts: Sequence[Event | Range]
) -> Iterator[int]:
    """Yield the first seqno of each gap in a part of a stream. What is missing above it, up to the
    next delivery in order, waits behind that gap, and may not be lost."""
    regular = stream.regular(receiver)
    stood_at = -1
    for gap in gaps(lo, hi, parts):
        stands_at = bisect_left(regular, gap.lo)
        if stands_at != stood_at:
            yield gap.lo
        stood_at = stands_at


def given_up(stream: Stream) -> Sequence[Range]:
    """Multicasts that the sender said it gave up, as it left."""
    return () if stream.sender.lives else stream.told


def was_told(evidence: Evidence, stream: Stream, receiver: Member, lost: int) -> bool:
    """Whether a loss is excused: the receiver repairs nothing, something was done to the run, and
    the receiver raised an alarm about this gap or, in the same window, about one before it, after
    which it never repaired while the sender was there."""
    sent = stream.batches.at(lost)
    if sent is None or not evidence.rig.steps or receiver.repairs(sent.time) is not False:
        return False
    window = stream.window_of(receiver, lost)
    # An alarm without an epoch may be of any window.
    epochs = (0, window.number) if window is not None else (0,)
    alarms = evidence.groups.alarms.get((receiver.short, stream.sender.short), ())
    return any(
        alarm.lo <= lost and (alarm.epoch in epochs or lost <= alarm.hi)
        for alarm in alarms
        if alarm.time >= sent.time - EPSILON
        and receiver.repairs_nothing(alarm.time, stream.sender.ended)
    )


def _loss(stream: Stream, receiver: Member, sent: Event, lost: int) -> Violation:
    """Return the violation: the batch, and how it came to be lost, if that can be seen."""
    sender = stream.sender
    witness = [(sender, sent)]
    detail = f"multicast {lost} was never delivered by {receiver.name}"
    purge = covered(lost, (event for _view, event in stream.purged))
    window = stream.current(receiver)
    if window is None:
        detail += ", which has no window for its sender"
    elif window.opened is not None and window.offset >= lost:
        witness.append((receiver, window.opened.event))
        detail += f": its window begins after {window.offset}"
    if purge is not None:
        witness.append((sender, purge))
        detail += "; the sender dropped it as delivered by all"
    return Violation(sent.time, detail, tuple(witness))
