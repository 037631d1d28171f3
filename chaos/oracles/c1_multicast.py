"""C1 for multicasts: bounds on the requests and acks of windows, and on needless alarms."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator
from functools import partial
from typing import Final

from stormcast.chaos.oracles.c1_requests import (
    Early,
    hasty_requests,
    impatience,
    is_impatient,
    large_requests,
    many_acks,
)
from stormcast.chaos.oracles.evidence import Evidence
from stormcast.chaos.oracles.groups import Stream, Window
from stormcast.chaos.oracles.history import EPSILON, Member, Violation
from stormcast.node.core import wire
from stormcast.node.trace import JOINING, REPAIR, Event

SPACINGS: Final = {REPAIR: "request_spacing", JOINING: "join_spacing"}
"""The bound of each kind of request."""


def violations(evidence: Evidence) -> Iterator[Violation]:
    """Requests, acks, announcements and alarms of multicast windows beyond the promised bounds."""
    for window in evidence.groups.windows():
        yield from _unjustified(window)
        yield from _unasked_for(window)
        yield from _too_much(evidence, window)
    for short, announced in evidence.groups.announced.items():
        member = evidence.find(short)
        for event in announced:
            if _is_silent(member, event.time):
                detail = "the highest seqno was announced, though nothing is repaired"
                yield Violation(event.time, detail, ((member, event),))
    for (short, peer), alarms in evidence.groups.alarms.items():
        stream = evidence.groups.streams.get(peer)
        if stream is not None:
            receiver, questions = evidence.find(short), evidence.groups.questions
            yield from _needless_alarms(receiver, stream, alarms)
            yield from _hasty_alarms(receiver, stream, alarms, questions.get((short, peer), []))


def _needless_alarms(receiver: Member, stream: Stream, alarms: list[Event]) -> Iterator[Violation]:
    """Alarms about multicasts that no network lost: they were sent before the window opened, in a
    view without the receiver. A window that begins below them asks for them by itself.

    A sender that has excluded the receiver since, in a later view than that in which the window was
    opened, keeps nothing for it: the receiver left, or does not know it yet.
    """
    windows = stream.windows.get(receiver.short, {})
    for alarm in alarms:
        window = windows.get(alarm.epoch)
        at = bisect_right(stream.batches.lows, alarm.lo) - 1
        if window is None or at < 0 or stream.sent[at].hi < alarm.lo or stream.sent_in[at] < 0:
            continue
        view = stream.sender.views[stream.sent_in[at]]
        is_older = stream.sent[at].time <= window.opened_at + EPSILON
        if (
            is_older
            and receiver.short not in view.members
            and not _is_excluded(stream.sender, receiver, window, alarm.time)
        ):
            detail = (
                f"an alarm about multicast {alarm.lo}, which was sent in view {view.number}, "
                f"without {receiver.name}: its window was never completed"
            )
            witness = ((stream.sender, stream.sent[at]), (receiver, alarm))
            yield Violation(alarm.time, detail, witness)


def _hasty_alarms(
    receiver: Member, stream: Stream, alarms: list[Event], questions: list[Event]
) -> Iterator[Violation]:
    """Alarms about multicasts that the receiver had to ask for, as its window was not complete:
    without retransmission only the answer to a question completes a window, and what was sent
    before the question must be there by then."""
    windows = stream.windows.get(receiver.short, {})
    if any(not question.conn for question in questions):
        # An older trace: it does not say which questions are one.
        return
    for alarm in alarms:
        window = windows.get(alarm.epoch)
        sent = stream.batches.at(alarm.lo)
        if window is None or window.opened is None or sent is None:
            continue
        if not _is_silent(receiver, alarm.time) or _is_excluded(
            stream.sender, receiver, window, alarm.time
        ):
            continue
        begun = _last_begun(questions, alarm)
        detail = f"an alarm about multicast {alarm.lo}, and {receiver.name} never asked what there"
        if begun is not None:
            if sent.time >= begun - EPSILON:
                continue
            detail = (
                f"an alarm about multicast {alarm.lo}, which was sent before {receiver.name} asked "
                f"at {begun:.3f}s what there"
            )
        detail += " is: its window was never completed"
        yield Violation(alarm.time, detail, ((stream.sender, sent), (receiver, alarm)))


def _last_begun(questions: list[Event], alarm: Event) -> float | None:
    """Return when the last question began that was to complete the window of an alarm: at its first
    asking, as any answer to it counts."""
    asked = [question for question in questions if question.time <= alarm.time + EPSILON]
    numbers = {question.conn for question in asked if question.epoch == alarm.epoch}
    first: dict[int, float] = {}
    for question in asked:
        if question.conn in numbers:
            first.setdefault(question.conn, question.time)
    return max(first.values(), default=None)


def _is_excluded(sender: Member, receiver: Member, window: Window, time: float) -> bool:
    """Whether by this time the sender had a view without the receiver that is later than the one in
    which the window was opened."""
    opened_in = window.opened.event.view if window.opened else 0
    return any(
        0 < opened_in < view.number
        and view.time <= time + EPSILON
        and receiver.short not in view.members
        for view in sender.views
    )


def _is_silent(member: Member, time: float) -> bool:
    """Whether a member surely repairs nothing: it did not change that setting in this moment."""
    if abs(member.started - time) <= EPSILON:
        return False
    if any(span.start - EPSILON <= time <= span.end + EPSILON for span in member.changing):
        return False
    return member.repairs(time) is False


def _unjustified(window: Window) -> Iterator[Violation]:
    """Requests for multicasts that were delivered, or never sent (M-7, P-15)."""
    stream, receiver = window.stream, window.receiver
    if not window.requested:
        return
    early = Early(window.delivered)
    for request, reached in window.requested:
        if request.lo <= reached:
            detail = f"multicast {request.lo} was requested after {reached} was delivered"
            had = [e for e in window.delivered if e.lo <= request.lo <= e.hi]
            witness = [(receiver, event) for event in had[:1]]
            yield Violation(request.time, detail, (*witness, (receiver, request)))
            continue
        if found := early.asked_for(request):
            seqno, came = found
            detail = f"multicast {seqno} was requested after it was delivered out of band"
            yield Violation(request.time, detail, ((receiver, came), (receiver, request)))
            continue
        at = bisect_right(stream.sent, request.time + EPSILON, key=lambda sent: sent.time)
        high = stream.sent[at - 1].hi if at else 0
        if request.hi > high:
            detail = f"multicast {request.hi} was requested, and {high} was the last one sent"
            yield Violation(request.time, detail, ((receiver, request),))


def _unasked_for(window: Window) -> Iterator[Violation]:
    """The first repair where the settings forbid repairs; completing a new window is no repair."""
    receiver = window.receiver
    for request, _reached in window.requested:
        if request.stream == REPAIR and _is_silent(receiver, request.time):
            detail = "a repair was requested, though nothing is repaired"
            yield Violation(request.time, detail, ((receiver, request),))
            return


def _too_much(evidence: Evidence, window: Window) -> Iterator[Violation]:
    """Requests and acks beyond the receiver's bounds."""
    receiver, stream = window.receiver, window.stream
    protocol = _protocol(window)
    if protocol is None:
        return
    bound = partial(receiver.bound, protocol)
    requested = [request.event for request in window.requested]
    yield from large_requests(receiver, requested, bound)
    for kind, name in SPACINGS.items():
        same = [request for request in requested if request.stream == kind]
        yield from hasty_requests(receiver, same, bound(name))
    if patience := bound("request_patience"):
        for request in requested:
            sent = stream.batches.at(request.hi)
            if request.stream != REPAIR or sent is None:
                continue
            if is_impatient(receiver, request, sent, patience):
                yield impatience(receiver, request, stream.sender, sent, patience)
                break
    if window.acked:
        life = min(window.removed_at, receiver.ended, evidence.over) - window.opened_at
        delivered = sum(event.count for event in window.delivered)
        sent_to = sum(e.count for e in stream.sent if e.time <= window.removed_at)
        messages = max(delivered, sent_to)
        yield from many_acks(receiver, window.acked, delivered, messages, life, bound)


def _protocol(window: Window) -> int | None:
    """Return the protocol of a window, as its requests or acks name it."""
    events: list[Event] = [
        *(request.event for request in window.requested[:1]),
        *window.acked[:1],
    ]
    return next((event.protocol for event in events if event.protocol in wire.PROTOCOLS), None)
