"""Events in words: `n1#123 t=4.500 delivered from n0 conn 1 seqnos 26..30`."""

from __future__ import annotations

from chaos.oracles.evidence import Evidence
from chaos.oracles.history import RIG, Member
from node.core.model import flag_names
from node.trace import (
    ACKED,
    CONN,
    CONN_STATES,
    DELIVERED,
    GAUGE,
    GAUGES,
    PARTIAL,
    PURGED,
    REQUESTED,
    RETRANSMITTED,
    SENDER_REMOVED,
    SENT,
    SKIPPED,
    SYNC,
    Event,
)

_VERBS = {
    SENT: "sent to",
    DELIVERED: "delivered from",
    RETRANSMITTED: "resent to",
    REQUESTED: "requested from",
    PURGED: "purged for",
    SKIPPED: "skipped from",
}


def describe(evidence: Evidence, member: Member, event: Event) -> str:
    """One event of a member's trace, as a witness shows it."""
    number = next(number for number, other in enumerate(member.events) if other is event)
    text = member.texts.get(number, "")
    peer = evidence.find(event.peer).name if event.peer != RIG else ""
    return f"{member.name}#{number} t={_seconds(event.time)} {_what(event, peer, text)}"


def _seconds(time: float) -> str:
    """To the microsecond where that says more than the millisecond."""
    digits = f"{time:.6f}"
    return digits.removesuffix("000")


def _what(event: Event, peer: str, text: str) -> str:
    kind = event.kind
    if kind in _VERBS:
        return f"{_VERBS[kind]} {peer} conn {event.conn} {_seqnos(event)}{_notes(event)}"
    if kind == ACKED:
        return f"acked to {peer} conn {event.conn} up to seqno {event.lo}"
    if kind == SYNC:
        return f"asked {peer} for the first seqno of conn {event.conn}"
    if kind == CONN:
        to = "to" if event.stream <= SENDER_REMOVED else "from"
        reason = f" ({text})" if text else ""
        return f"{CONN_STATES.get(event.stream, event.name)} {to} {peer} conn {event.conn}{reason}"
    if kind == GAUGE:
        bound = f" of {event.hi}" if event.hi else ""
        return f"{GAUGES.get(event.stream, event.name)} {peer} {event.lo}{bound}"
    return " ".join(word for word in (event.name, peer, text) if word)


def _seqnos(event: Event) -> str:
    if not event.lo:
        return f"seqnos up to {event.hi}" if event.hi else "unnumbered"
    # One form for one seqno and for many: witnesses are searched by it.
    return f"seqnos {event.lo}..{event.hi}"


def _notes(event: Event) -> str:
    notes = [flag_names(event.flags)] if event.flags else []
    if event.kind == DELIVERED and event.stream == PARTIAL:
        notes.append("a part")
    if event.kind == REQUESTED and event.count != event.hi - event.lo + 1:
        notes.append(f"{event.count} of them")
    return f" ({', '.join(notes)})" if notes else ""
