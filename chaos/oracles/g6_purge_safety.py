"""G6, purge safety: a sender purges no seqno before its receiver has it."""

from __future__ import annotations

from collections.abc import Iterator
from heapq import heappop, heappush
from math import inf
from typing import Final, NamedTuple

from stormcast.chaos.oracles import g6_multicast
from stormcast.chaos.oracles.coverage import is_covered, spans
from stormcast.chaos.oracles.evidence import Evidence
from stormcast.chaos.oracles.history import EPSILON, SenderLife, Violation
from stormcast.node.core import wire
from stormcast.node.trace import Event

ACK_DELIVERED: Final = frozenset({wire.UNICAST2, wire.UNICAST4})
"""Protocols whose receivers ack what they delivered, not what they received (D-12)."""


class EarlyPurge(NamedTuple):
    """A purge of a seqno that its receiver did not have."""

    entry: SenderLife
    purge: Event
    seqno: int
    late: Event | None
    """The delivery of the seqno after the purge, if there was one."""


def violations(evidence: Evidence) -> Iterator[Violation]:
    """Seqnos that were purged and delivered later, or never."""
    for entry, purge, seqno, late in early_purges(evidence):
        sender, receiver = entry.connection.sender, entry.connection.receiver
        witness = [(sender, purge)]
        sent = entry.batches.at(seqno)
        if sent is not None:
            witness.insert(0, (sender, sent))
        if late is None:
            detail = f"seqno {seqno} was purged and never delivered"
        else:
            detail = (
                f"seqno {seqno} was purged {late.time - purge.time:.6f}s before it was delivered"
            )
            witness.append((receiver, late))
        yield Violation(purge.time, detail, tuple(witness))
    yield from g6_multicast.violations(evidence)


def early_purges(evidence: Evidence) -> Iterator[EarlyPurge]:
    """Yield the first early purge of each sender entry."""
    for entry in evidence.unicasts.entries():
        if entry.purged:
            yield from _first_early(entry)


def _first_early(entry: SenderLife) -> Iterator[EarlyPurge]:
    """Play deliveries and purges by time; up to `reached` everything was delivered."""
    delivered = entry.delivered
    held = _Held(entry)
    reached, taken = 0, 0
    islands: list[tuple[int, int]] = []
    for purge in entry.purged:
        while taken < len(delivered) and delivered[taken][1].time <= purge.time + EPSILON:
            event = delivered[taken][1]
            taken += 1
            heappush(islands, (event.lo, event.hi))
        while islands and islands[0][0] <= reached + 1:
            reached = max(reached, heappop(islands)[1])
        if purge.hi > reached and not held.may_be(purge, reached + 1):
            late = (event for _epoch, event in delivered if event.lo <= reached + 1 <= event.hi)
            yield EarlyPurge(entry, purge, reached + 1, next(late, None))
            return


class _Held:
    """The seqnos that a receiver may have had without having delivered them.

    Only a stalled receiver acks before it delivers. It delivers later, unless it ends, removes
    its window, or the run breaks off in the stall.
    """

    def __init__(self, entry: SenderLife) -> None:
        self._entry = entry
        self._in_the_end: list[tuple[int, int]] | None = None

    def may_be(self, purge: Event, lo: int) -> bool:
        """Whether the receiver may have held the purged seqnos, from `lo` on."""
        entry = self._entry
        receiver = entry.connection.receiver
        if purge.protocol in ACK_DELIVERED or not receiver.is_stalled(purge.time):
            return False
        if any(stall.start <= purge.time and stall.end == inf for stall in receiver.stalled):
            return True
        epochs = entry.connection.epochs
        if not receiver.lives or any(purge.time < epoch.removed_at < inf for epoch in epochs):
            return True
        if self._in_the_end is None:
            self._in_the_end = spans((event.lo, event.hi) for _epoch, event in entry.delivered)
        return is_covered(lo, purge.hi, self._in_the_end)
