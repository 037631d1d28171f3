"""G6 for multicasts: a sender purges none before every member of its view has it (M-3, P-16)."""

from __future__ import annotations

from collections.abc import Iterator
from heapq import heappop, heappush
from typing import NamedTuple

from stormcast.chaos.oracles.evidence import Evidence
from stormcast.chaos.oracles.groups import Stream, Window, covered
from stormcast.chaos.oracles.history import EPSILON, Member, Violation
from stormcast.node.core.model import DONT_LOOPBACK
from stormcast.node.trace import Event


class Step(NamedTuple):
    """A range of a stream that a member has from a time on, or wants no more; `lo` 0: all below."""

    time: float
    lo: int
    hi: int


def violations(evidence: Evidence) -> Iterator[Violation]:
    """Multicasts that were purged while a member of the sender's view did not have them."""
    for stream in evidence.groups.streams.values():
        views = stream.sender.views
        places = {place for place, _purge in stream.purged if place >= 0}
        for short in {short for place in places for short in views[place].members}:
            yield from _early(stream, evidence.find(short))


def _early(stream: Stream, receiver: Member) -> Iterator[Violation]:
    """The first purge that was too early for one member: play its deliveries and the purges by
    time; it has everything up to `reached`."""
    views = stream.sender.views
    steps = _steps(stream, receiver)
    reached, taken = 0, 0
    islands: list[tuple[int, int]] = []
    for place, purge in stream.purged:
        while taken < len(steps) and steps[taken].time <= purge.time + EPSILON:
            heappush(islands, steps[taken][1:])
            taken += 1
        while islands and islands[0][0] <= reached + 1:
            reached = max(reached, heappop(islands)[1])
        if purge.hi <= reached or place < 0 or receiver.short not in views[place].members:
            continue
        # A member that has had no window yet wants nothing below where its first one will begin.
        wants = max(reached, _begins(stream, receiver))
        if purge.hi > wants:
            yield _violation(stream, receiver, purge, wants + 1)
            return


def _steps(stream: Stream, receiver: Member) -> list[Step]:
    """Return, by time, the ranges that a member delivered, skipped, or need not expect."""
    steps = []
    for window in stream.windows_of(receiver):
        steps.append(Step(window.opened_at, 0, window.offset))
        steps += [Step(event.time, event.lo, event.hi) for event in window.genuine]
        # A skip names the seqno up to which it gave up: nothing below it is expected.
        steps += [Step(event.time, 0, event.hi) for event in window.skipped]
    if receiver is stream.sender:
        muted = (sent for sent in stream.sent if sent.flags & DONT_LOOPBACK)
        steps += [Step(event.time, event.lo, event.hi) for event in muted]
    return sorted(steps)


def _begins(stream: Stream, receiver: Member) -> int:
    """Return the seqno after which a member's first window begins; 0 if it has no window."""
    windows: list[Window] = stream.windows_of(receiver)
    return windows[0].offset if windows else 0


def _violation(stream: Stream, receiver: Member, purge: Event, seqno: int) -> Violation:
    sender = stream.sender
    witness = [(sender, purge)]
    if (sent := stream.batches.at(seqno)) is not None:
        witness.insert(0, (sender, sent))
    late = covered(seqno, (e for e in stream.delivered_to(receiver) if e.time > purge.time))
    detail = f"multicast {seqno} was purged and never delivered by {receiver.name}"
    if late is not None:
        ahead = late.time - purge.time
        detail = f"multicast {seqno} was purged {ahead:.6f}s before {receiver.name} delivered it"
        witness.append((receiver, late))
    return Violation(purge.time, detail, tuple(witness))
