"""Events in words: `n1#123 t=4.500 delivered from n0 conn 1 seqnos 26..30`.

Multicasts name a window in place of a connection: `delivered from n0 window 2 multicasts 26..30`.
"""

from __future__ import annotations

from stormcast.chaos.oracles.evidence import Evidence
from stormcast.chaos.oracles.groups import MULTICAST
from stormcast.chaos.oracles.history import RIG, Member
from stormcast.node.core.model import flag_names
from stormcast.node.trace import (
    ABANDONED,
    ACKED,
    ALARM,
    ANSWERED,
    BELIEVED,
    BLOCKED,
    CONN,
    CONN_STATES,
    CREDIT,
    CUT,
    DELIVERED,
    GAUGE,
    GAUGES,
    HANDED,
    JOINED,
    JOINING,
    MERGE,
    NAMED,
    OFFERED,
    OVERHEARD,
    PARTIAL,
    PURGED,
    REQUESTED,
    RETRANSMITTED,
    SENDER_REMOVED,
    SENT,
    SKIPPED,
    SUSPECT,
    SUSPICIONS,
    SYNC,
    UNBLOCKED,
    VIEW,
    Event,
)

_VERBS = {
    SENT: "sent to",
    DELIVERED: "delivered from",
    RETRANSMITTED: "resent to",
    REQUESTED: "requested from",
    ANSWERED: "answered to",
    PURGED: "purged for",
    SKIPPED: "skipped from",
    OVERHEARD: "overheard from",
}
_COUNTED = frozenset({REQUESTED, ANSWERED})
_OF_APPLICATION = frozenset({OFFERED, CUT, HANDED, ABANDONED})
_GROUP_KINDS = frozenset({*_VERBS, ACKED, CONN, SYNC, ALARM})


def describe(evidence: Evidence, member: Member, event: Event) -> str:
    """Return one event of a member's trace as a witness shows it."""
    number = next(number for number, other in enumerate(member.events) if other is event)
    text = member.texts.get(number, "")
    peer = evidence.find(event.peer).name if event.peer != RIG else ""
    if event.kind == VIEW:
        what = _view(evidence, event, peer, text)
    elif event.kind in _OF_APPLICATION:
        what = _of_application(event, peer or "the group", text)
    elif event.protocol in MULTICAST and event.kind in _GROUP_KINDS:
        what = _multicast(evidence, event, peer or "the group", text)
    else:
        what = _what(event, peer, text)
    return f"{member.name}#{number} t={_seconds(event.time)} {what}"


def _seconds(time: float) -> str:
    """Write a time with milliseconds, or with microseconds where those are not 0."""
    digits = f"{time:.6f}"
    return digits.removesuffix("000")


def _view(evidence: Evidence, event: Event, creator: str, text: str) -> str:
    """Describe a view by its number and creator, and its members by name."""
    by = f" of {creator}" if creator else ""
    kind = "merged" if event.stream == MERGE else "installed"
    try:
        members = [evidence.find(int(short, 16)).name for short in text.split(",") if short]
    except ValueError:
        members = [text]
    return f"{kind} view {event.lo}{by}: {', '.join(members)}"


def _multicast(evidence: Evidence, event: Event, peer: str, text: str) -> str:
    """Describe an event of multicasts, or of a window on them."""
    kind = event.kind
    window = f" window {event.epoch}" if event.epoch else ""
    origin = f" of {evidence.find(event.conn).name}" if event.conn else ""
    reason = f" ({text})" if text else ""
    if kind == ACKED:
        return f"acked to {peer} up to multicast {event.lo}"
    if kind == CONN:
        state = CONN_STATES.get(event.stream, event.name)
        return f"{state} from {peer}{window} at multicast {event.lo}{reason}"
    if kind == SYNC:
        if event.peer == RIG:
            return f"announced multicast {event.lo}"
        return f"asked {peer} from which multicast on there is something"
    if kind == ALARM:
        return f"alarm about {peer}{window} multicasts {event.lo}..{event.hi}{reason}"
    upto = f"up to {event.hi}" if not event.lo else f"{event.lo}..{event.hi}"
    return f"{_VERBS[kind]} {peer}{window} multicasts {upto}{origin}{_notes(event)}"


def _of_application(event: Event, peer: str, text: str) -> str:
    """Describe an event of messages that were offered, cut, handed over or given up."""
    kind, lo, hi = event.kind, event.lo, event.hi
    if kind == OFFERED:
        return f"offered {peer} messages {lo}..{hi}"
    if kind == CUT:
        return f"cut message {lo} to {peer} into {event.count} pieces"
    conn = f" conn {event.conn}" if event.conn else ""
    if kind == HANDED:
        what = "the message of seqnos" if event.stream == JOINED else "seqnos"
        return f"handed over from {peer}{conn} {what} {lo}..{hi}"
    what = "seqnos" if event.protocol else "messages"
    return f"gave up {what} {lo}..{hi} to {peer}{conn} ({text})"


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
    return _credit(event, peer) if kind == CREDIT else _rare(event, peer, text)


def _rare(event: Event, peer: str, text: str) -> str:
    kind = event.kind
    if kind == GAUGE:
        bound = f" of {event.hi}" if event.hi else ""
        whose = peer or ("the group" if event.protocol in MULTICAST else "")
        return f"{GAUGES.get(event.stream, event.name)} {whose} {event.lo}{bound}"
    name = event.name
    if kind == SUSPECT:
        name = SUSPICIONS.get(event.stream, name)
    elif kind in {BLOCKED, UNBLOCKED}:
        name, peer = f"{name} towards", peer or "the group"
    return " ".join(word for word in (name, peer, text) if word)


def _credit(event: Event, peer: str) -> str:
    """Describe an event about a limit of credits, in bytes as the sender counts them."""
    if event.stream == NAMED:
        return f"let {peer} send up to byte {event.hi}, with {event.bytes} taken"
    if event.stream == BELIEVED:
        return f"heard of {peer} that it may send up to byte {event.hi}, with {event.bytes} sent"
    place = f"conn {event.conn} seqno" if event.conn else "multicast"
    return (
        f"asked {peer} to send more than {event.hi} bytes, with {event.bytes} sent, "
        f"the last {place} {event.lo}"
    )


def _seqnos(event: Event) -> str:
    if not event.lo:
        return f"seqnos up to {event.hi}" if event.hi else "unnumbered"
    # One form for one seqno and for many: witnesses are searched by it.
    return f"seqnos {event.lo}..{event.hi}"


def _notes(event: Event) -> str:
    notes = [flag_names(event.flags)] if event.flags else []
    if event.kind == DELIVERED and event.stream == PARTIAL:
        notes.append("a part")
    if event.kind == REQUESTED and event.stream == JOINING:
        notes.append("joining")
    if event.kind in _COUNTED and event.count != event.hi - event.lo + 1:
        notes.append(f"{event.count} of them")
    return f" ({', '.join(notes)})" if notes else ""
