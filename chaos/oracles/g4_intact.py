"""G4, intact: only what was sent, bit for bit, to whom it was sent."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from chaos.oracles.evidence import Evidence, Payloads
from chaos.oracles.history import EPSILON, Connection, Entry, Epoch, Violation
from node.core.model import DONT_LOOPBACK, OOB
from node.trace import WHOLE, Event

DELIVERY_FLAGS: Final = OOB | DONT_LOOPBACK
"""The flags that decide how a message is delivered; others may change on the way."""


def violations(evidence: Evidence, payloads: Payloads | None = None) -> Iterator[Violation]:
    """Deliveries that differ from the batch they name; their bytes too, where they can be made again."""
    for epoch in evidence.epochs():
        for event in epoch.strange:
            yield _strange(evidence, epoch, event)
    for entry in evidence.entries():
        for epoch, event in entry.delivered:
            batch = entry.batch_at(event.lo)
            assert batch is not None, "a delivery is matched to the batch that holds it"
            if difference := _difference(batch, event):
                connection = entry.connection
                witness = ((connection.sender, batch), (epoch.connection.receiver, event))
                yield Violation(event.time, difference, witness)
    yield from _unnumbered(evidence)
    if payloads is not None:
        yield from _different_bytes(evidence, payloads)


def _difference(batch: Event, event: Event) -> str:
    """How a delivery of the right batch contradicts it."""
    if (batch.flags ^ event.flags) & DELIVERY_FLAGS:
        return f"seqnos {event.lo}..{event.hi} were delivered with other flags than they were sent"
    if event.count != event.hi - event.lo + 1:
        return f"{event.count} messages were delivered as seqnos {event.lo}..{event.hi}"
    if event.stream == WHOLE:
        if (event.lo, event.hi) != (batch.lo, batch.hi):
            return f"seqnos {event.lo}..{event.hi} were delivered as the whole of {batch.lo}..{batch.hi}"
        if event.bytes != batch.bytes:
            return f"{event.bytes} bytes were delivered of a batch of {batch.bytes}"
    elif event.bytes > batch.bytes:
        return f"{event.bytes} bytes were delivered as a part of a batch of {batch.bytes}"
    return ""
