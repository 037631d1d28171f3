"""G3, FIFO: within an epoch deliveries ascend, with no step back and no skip; OOB is exempt."""

from __future__ import annotations

from collections.abc import Iterator

from chaos.oracles.coverage import first_gap
from chaos.oracles.evidence import Evidence
from chaos.oracles.history import Epoch, Violation
from node.core.model import DONT_LOOPBACK, OOB
from node.trace import Event


def violations(evidence: Evidence) -> Iterator[Violation]:
    """Deliveries at or behind their predecessor, or beyond a seqno that nothing accounts for."""
    for epoch in evidence.epochs():
        receiver = epoch.connection.receiver
        # The highest delivery in order so far. Where a window starts is for G1 to judge.
        before: Event | None = None
        early: dict[int, Event] = {}
        for event in epoch.delivered:
            if event.flags & OOB:
                early[event.lo] = event
                continue
            if before is not None and (fault := _fault(epoch, before, event, early)):
                yield Violation(event.time, fault, ((receiver, before), (receiver, event)))
            if before is None or event.hi > before.hi:
                before = event


def _fault(epoch: Epoch, before: Event, event: Event, early: dict[int, Event]) -> str:
    """What is wrong with a delivery that is not next, if anything is."""
    if event.lo <= before.hi:
        return f"seqno {event.lo} was delivered after seqno {before.hi}"
    at = before.hi + 1
    while at in early and at < event.lo:
        at = early[at].hi + 1
    if at == event.lo:
        return ""
    parts = [*early.values(), *_accounted(epoch, before.hi + 1, event.lo - 1, event.time)]
    skipped = first_gap(before.hi + 1, event.lo - 1, parts)
    if skipped is None:
        return ""
    return f"seqno {event.lo} was delivered after seqno {before.hi}, and seqno {skipped} was not"


def _accounted(epoch: Epoch, lo: int, hi: int, time: float) -> Iterator[Event]:
    """What explains a hole: seqnos given up aloud, or not meant to be delivered to their sender."""
    # A skip names the seqno up to which it gave up; where it names no first one, that is all below.
    yield from (skip for skip in epoch.skipped if skip.time <= time)
    if epoch.connection.is_to_self:
        for entry in epoch.connection.entries:
            yield from (batch for batch in entry.batches(lo, hi) if batch.flags & DONT_LOOPBACK)
