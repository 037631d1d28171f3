"""G1, no loss: what was sent on an open connection to a member that stays is delivered."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from chaos.oracles import g1_multicast
from chaos.oracles.coverage import first_gap
from chaos.oracles.evidence import Evidence
from chaos.oracles.history import Entry, Violation
from node.core import wire
from node.core.model import DONT_LOOPBACK
from node.trace import SENDER_CLOSING, Event

CLOSE_AT_ONCE: Final = frozenset({wire.UNICAST, wire.UNICAST2})
"""Protocols that remove a connection with the view that lacks the peer; later ones flush it."""
GIVEN_UP: Final = frozenset({"aged", "forgot", "stop"})
"""Reasons for which a connection may be removed at once, with all that it still held."""
FLUSHED: Final = frozenset({"idle", "close", "closed", "view"})
"""Reasons for which it may be removed only after it was closing, and so had time to repeat it."""


def violations(evidence: Evidence) -> Iterator[Violation]:
    """Batches not wholly delivered, though both ends live and nobody gave the connection up."""
    for entry in evidence.entries():
        connection = entry.connection
        if connection.sender.lives and connection.receiver.lives and not was_given_up(entry):
            yield from _lost(entry)
    yield from g1_multicast.violations(evidence)


def was_given_up(entry: Entry) -> bool:
    """Whether the sender was right to remove the connection with undelivered messages in it."""
    removed = entry.removed
    if removed is None:
        return False
    if removed.text == "view" and removed.event.protocol in CLOSE_AT_ONCE:
        return True
    was_closing = len(entry.states) > 1 and entry.states[-2].event.stream == SENDER_CLOSING
    return removed.text in GIVEN_UP or (removed.text in FLUSHED and was_closing)


def _lost(entry: Entry) -> Iterator[Violation]:
    parts: dict[int, list[Event]] = {}
    for _epoch, delivered in entry.delivered:
        batch = entry.batch_at(delivered.lo)
        assert batch is not None, "a delivery is matched to the batch that holds it"
        parts.setdefault(batch.lo, []).append(delivered)
    for sent in entry.sent:
        lost = first_gap(sent.lo, sent.hi, parts.get(sent.lo, ()))
        if lost is not None and not (entry.connection.is_to_self and sent.flags & DONT_LOOPBACK):
            yield _loss(entry, sent, lost)


def _loss(entry: Entry, sent: Event, lost: int) -> Violation:
    """The batch, and how the sender came to forget it, if it did."""
    sender = entry.connection.sender
    witness = [(sender, sent)]
    detail = f"seqno {lost} was sent and never delivered"
    purge = next((event for event in entry.purged if event.lo <= lost <= event.hi), None)
    if purge is not None:
        witness.append((sender, purge))
        detail += "; the sender dropped it as acked"
    elif entry.removed is not None:
        witness.append((sender, entry.removed.event))
        detail += f"; the sender removed the connection ({entry.removed.text}) without flushing it"
    return Violation(sent.time, detail, tuple(witness))
