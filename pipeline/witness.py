"""Describes events as text, in the same words as the run's oracles: `n1#123 t=4.500 delivered from
n0 conn 1 seqnos 26..30`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from pyspark.sql import Row

from stormcast.pipeline import words

_VERBS: Final = {
    "sent": "sent to",
    "delivered": "delivered from",
    "retransmitted": "resent to",
    "requested": "requested from",
    "answered": "answered to",
    "purged": "purged for",
    "skipped": "skipped from",
    "overheard": "overheard from",
}
_GROUP_KINDS: Final = frozenset({*_VERBS, "acked", "conn", "sync", "alarm"})
_COUNTED: Final = frozenset({"requested", "answered"})
_OF_APPLICATION: Final = frozenset({"offered", "cut", "handed", "abandoned"})
_PARTIAL: Final = 1

Names = Mapping[int, str]
"""Shown names of a run's members, by short id."""


def describe(event: Row, names: Names) -> str:
    """Return the text of one event of a member's trace, for a witness."""
    peer = _name(names, event.peer) if event.peer != words.RIG else ""
    if event.kind == "view":
        what = _view(event, peer, names)
    elif event.kind in _OF_APPLICATION:
        what = _of_application(event, peer or "the group")
    elif event.protocol in words.MULTICAST and event.kind in _GROUP_KINDS:
        what = _multicast(event, peer or "the group", names)
    else:
        what = _what(event, peer)
    return f"{_name(names, event.short_id)}#{event.number} t={_seconds(event.time)} {what}"


def _name(names: Names, short: int) -> str:
    if short == words.RIG:
        return "rig"
    return names.get(short, f"{short:x}")


def _seconds(time: float) -> str:
    """Format a time to the microsecond, or to the millisecond if the rest is zero."""
    return f"{time:.6f}".removesuffix("000")


def _view(event: Row, creator: str, names: Names) -> str:
    by = f" of {creator}" if creator else ""
    kind = "merged" if event.stream == words.MERGE else "installed"
    members = [_name(names, int(short, 16)) for short in (event.text or "").split(",") if short]
    return f"{kind} view {event.lo}{by}: {', '.join(members)}"


def _multicast(event: Row, peer: str, names: Names) -> str:
    """Return the text of an event of multicasts, or of a window on them."""
    kind = event.kind
    window = f" window {event.epoch}" if event.epoch else ""
    reason = f" ({event.text})" if event.text else ""
    if kind == "acked":
        return f"acked to {peer} up to multicast {event.lo}"
    if kind == "conn":
        return f"{event.stream_word} from {peer}{window} at multicast {event.lo}{reason}"
    if kind == "sync":
        if event.peer == words.GROUP:
            return f"announced multicast {event.lo}"
        return f"asked {peer} from which multicast on there is something"
    if kind == "alarm":
        return f"alarm about {peer}{window} multicasts {event.lo}..{event.hi}{reason}"
    origin = f" of {_name(names, event.conn)}" if event.conn else ""
    upto = f"{event.lo}..{event.hi}" if event.lo else f"up to {event.hi}"
    return f"{_VERBS[kind]} {peer}{window} multicasts {upto}{origin}{_notes(event)}"


def _of_application(event: Row, peer: str) -> str:
    """Return the text of an event of an application: offered, cut, handed over or given up."""
    lo, hi = event.lo, event.hi
    if event.kind == "offered":
        return f"offered {peer} messages {lo}..{hi}"
    if event.kind == "cut":
        return f"cut message {lo} to {peer} into {event['count']} pieces"
    conn = f" conn {event.conn}" if event.conn else ""
    if event.kind == "handed":
        what = "the message of seqnos" if event.stream == words.JOINED else "seqnos"
        return f"handed over from {peer}{conn} {what} {lo}..{hi}"
    what = "seqnos" if event.protocol else "messages"
    return f"gave up {what} {lo}..{hi} to {peer}{conn} ({event.text or ''})"


def _what(event: Row, peer: str) -> str:
    kind = event.kind
    reason = f" ({event.text})" if event.text else ""
    if kind in _VERBS:
        return f"{_VERBS[kind]} {peer} conn {event.conn} {_seqnos(event)}{_notes(event)}"
    if kind == "acked":
        return f"acked to {peer} conn {event.conn} up to seqno {event.lo}"
    if kind == "sync":
        return f"asked {peer} for the first seqno of conn {event.conn}"
    if kind == "conn":
        to = "to" if event.stream <= words.SENDER_REMOVED else "from"
        return f"{event.stream_word} {to} {peer} conn {event.conn}{reason}"
    return _credit(event, peer) if kind == "credit" else _rare(event, peer)


def _rare(event: Row, peer: str) -> str:
    kind = event.kind
    if kind == "start":
        return "start"
    if kind == "gauge":
        bound = f" of {event.hi}" if event.hi else ""
        whose = peer or ("the group" if event.protocol in words.MULTICAST else "")
        return f"{event.stream_word or kind} {whose} {event.lo}{bound}"
    name = event.stream_word or kind
    if kind in {"blocked", "unblocked"}:
        name, peer = f"{name} towards", peer or "the group"
    return " ".join(word for word in (name, peer, event.text) if word)


def _credit(event: Row, peer: str) -> str:
    """Return the text of an event about a limit of credits; byte counts are of the sender."""
    if event.stream == words.NAMED:
        return f"let {peer} send up to byte {event.hi}, with {event.bytes} taken"
    if event.stream == words.BELIEVED:
        return f"heard of {peer} that it may send up to byte {event.hi}, with {event.bytes} sent"
    place = f"conn {event.conn} seqno" if event.conn else "multicast"
    return (
        f"asked {peer} to send more than {event.hi} bytes, with {event.bytes} sent, "
        f"the last {place} {event.lo}"
    )


def _seqnos(event: Row) -> str:
    if not event.lo:
        return f"seqnos up to {event.hi}" if event.hi else "unnumbered"
    return f"seqnos {event.lo}..{event.hi}"


def _notes(event: Row) -> str:
    notes = [_flags(event.flags)] if event.flags else []
    if event.kind == "delivered" and event.stream == _PARTIAL:
        notes.append("a part")
    if event.kind == "requested" and event.stream == words.JOINING:
        notes.append("joining")
    # Not `event.count`: a row is a tuple, which has a method of that name.
    asked = event["count"]
    if event.kind in _COUNTED and asked != event.hi - event.lo + 1:
        notes.append(f"{asked} of them")
    return f" ({', '.join(notes)})" if notes else ""


def _flags(flags: int) -> str:
    return "|".join(name for bit, name in words.FLAGS.items() if flags & bit)
