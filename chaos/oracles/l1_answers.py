"""L1, answers: what a request asks for, and its sender still keeps, is resent when it comes."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterator
from typing import Final

from stormcast.chaos.oracles.groups import MULTICAST
from stormcast.chaos.oracles.history import EPSILON, Member, Violation
from stormcast.node.core import wire
from stormcast.node.trace import (
    ANSWERED,
    CONN,
    PURGED,
    RETRANSMITTED,
    SENDER_REMOVED,
    SENT,
    Event,
)

Numbering = tuple[int, int]
"""Peer and connection id; of multicasts both are 0."""
_OF_SENDERS: Final = frozenset({SENT, PURGED, RETRANSMITTED, ANSWERED, CONN})


def violations(member: Member) -> Iterator[Violation]:
    """Answers of one member that leave out what was asked for."""
    if not any(event.kind == ANSWERED for event in member.events):
        return
    sent: dict[Numbering, int] = {}
    purged: dict[Numbering, int] = {}
    resent = _resent(member)
    for event in member.events:
        if event.kind not in _OF_SENDERS:
            continue
        key = _numbering(event)
        if key is None:
            continue
        if event.kind == SENT:
            sent[key] = max(event.hi, sent.get(key, 0))
        elif event.kind == PURGED:
            purged[key] = max(event.hi, purged.get(key, 0))
        elif event.kind == CONN and event.stream == SENDER_REMOVED:
            sent.pop(key, None)
            purged.pop(key, None)
        elif event.kind == ANSWERED:
            kept = range(purged.get(key, 0) + 1, sent.get(key, 0) + 1)
            answers = _answers(member, event, resent.get(key, []))
            if answers is not None and (found := _in_part(member, event, kept, answers)):
                yield found


def _numbering(event: Event) -> Numbering | None:
    """Return of what a sender's event is; None: of what another member multicast."""
    if event.protocol not in MULTICAST:
        return event.peer, event.conn
    return None if event.conn else (wire.GROUP, 0)


def _resent(member: Member) -> dict[Numbering, list[Event]]:
    found: dict[Numbering, list[Event]] = {}
    for event in member.events:
        key = _numbering(event) if event.kind == RETRANSMITTED else None
        if key is not None:
            found.setdefault(key, []).append(event)
    return found


def _answers(member: Member, request: Event, resent: list[Event]) -> list[Event] | None:
    """Return what was resent for a request: in its turn, and of multicasts what was resent to all
    so shortly before that it is not resent again. None: the trace does not say how shortly."""
    since = request.time
    if request.protocol in MULTICAST:
        lasts = member.bound(request.protocol, "answer_lasts")
        if lasts is None:
            return None
        since -= lasts + EPSILON
    first = bisect_left(resent, since, key=lambda event: event.time)
    upto = bisect_right(resent, request.time, key=lambda event: event.time)
    near = (event for event in resent[first:upto] if event.peer in (request.peer, wire.GROUP))
    return list({event.lo: event for event in near}.values())


def _in_part(member: Member, request: Event, kept: range, answers: list[Event]) -> Violation | None:
    """Return the violation where answers lack the first or the last seqno of what a request asks
    for and the sender keeps, or are fewer than it surely asks for."""
    first, last = max(request.lo, kept.start), min(request.hi, kept.stop - 1)
    if first > last:
        return None
    parts = [(max(event.lo, first), min(event.hi, last)) for event in answers]
    number = sum(max(0, hi - lo + 1) for lo, hi in parts)
    wanted = request.count - (first - request.lo) - (request.hi - last)
    ends = [seqno for seqno in (request.lo, request.hi) if first <= seqno <= last]
    if number >= wanted and all(any(lo <= end <= hi for lo, hi in parts) for end in ends):
        return None
    detail = (
        f"{request.count} of {request.lo}..{request.hi} were asked for, {first}..{last} are kept, "
        f"and {number} of these were resent"
    )
    witness = [(member, request), *((member, event) for event in answers[-1:])]
    return Violation(request.time, detail, tuple(witness))
