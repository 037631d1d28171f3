"""G3, FIFO: within an epoch deliveries ascend without a step back and without a skip; OOB is exempt."""

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
        previous: Event | None = None
        for index, event in enumerate(epoch.delivered):
            if event.flags & OOB:
                continue
            if previous is None or event.lo == previous.hi + 1:
                pass
            elif event.lo <= previous.hi:
                detail = f"seqno {event.lo} was delivered after seqno {previous.hi}"
                yield Violation(event.time, detail, ((receiver, previous), (receiver, event)))
            else:
                skipped = _unaccounted(epoch, previous.hi + 1, event, index)
                if skipped is not None:
                    detail = f"seqno {event.lo} was delivered after seqno {previous.hi}: seqno {skipped} was skipped"
                    yield Violation(event.time, detail, ((receiver, previous), (receiver, event)))
            if previous is None or event.hi > previous.hi:
                previous = event


def _unaccounted(epoch: Epoch, lo: int, event: Event, index: int) -> int | None:
    """The first seqno of `lo` to the delivery that was neither delivered out of band nor given up aloud."""
    hi = event.lo - 1
    parts = [early for early in epoch.delivered[:index] if early.flags & OOB and early.hi >= lo]
    # A skip names the seqno up to which it gave up; where it names no first one, that is all below.
    parts += [skip for skip in epoch.skipped if skip.time <= event.time]
    if epoch.connection.is_to_self:
        sent = (batch for entry in epoch.connection.entries for batch in entry.sent)
        parts += [batch for batch in sent if batch.flags & DONT_LOOPBACK]
    return first_gap(lo, hi, parts)
