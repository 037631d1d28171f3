"""Rest: whether anything is under way at the end of a run. A chapter of a soak ends only where
nothing is."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import chain
from math import inf
from typing import Final

from stormcast.chaos.oracles.application import Outgoing, last_number
from stormcast.chaos.oracles.coverage import first_gap
from stormcast.chaos.oracles.evidence import Evidence
from stormcast.chaos.oracles.hand_over import Walk, never_joined
from stormcast.chaos.oracles.history import SenderLife
from stormcast.chaos.oracles.v_views import KEEPS_APART
from stormcast.node.core.model import DONT_LOOPBACK
from stormcast.node.core.wire import GROUP
from stormcast.node.trace import ABANDONED, Event

STOPPING: Final = "stop"
"""The reason why a member that stops removes a connection."""


def unrest(evidence: Evidence) -> str:
    """Return what is under way at the end of a run; empty: nothing is."""
    held_up, under_way = _what_holds_up(evidence), _what_is_under_way(evidence)
    return next(chain(held_up, _what_waits(evidence), under_way), "")


def _what_holds_up(evidence: Evidence) -> Iterator[str]:
    """Yield faults that stand, and members that are paused, stalled or stopping."""
    for fault, kind in evidence.rig.standing.items():
        if kind in KEEPS_APART:
            yield f"{kind} {fault} stands"
    for member in evidence.members.values():
        held = (*member.paused, *member.stalled)
        if member.lives and any(span.end == inf for span in held):
            yield f"{member.name} is paused or stalled"
    for entry in evidence.unicasts.entries():
        sender, removed = entry.connection.sender, entry.removed
        if sender.lives and removed is not None and removed.text == STOPPING:
            yield f"{sender.name} is stopping"


def _what_waits(evidence: Evidence) -> Iterator[str]:
    """Yield who has messages that have not left, or were not handed to its application, or heard
    of the end of some that it has not offered."""
    for outgoing in evidence.application.outgoing.values():
        if _waits(evidence, outgoing):
            yield f"messages of {outgoing.sender.name} wait in its outbox"
        if _is_ahead(outgoing):
            yield f"messages of {outgoing.sender.name} were given up that it has yet to offer"
    for incoming in evidence.application.incoming.values():
        if incoming.receiver.lives and any(Walk(incoming, inf).breaches()):
            yield f"what {incoming.receiver.name} delivered was not handed over yet"
    for breach in never_joined(evidence, inf):
        yield f"{breach.violation.detail} yet"


def _what_is_under_way(evidence: Evidence) -> Iterator[str]:
    """Yield who has sent what not all have delivered who should."""
    for entry in evidence.unicasts.entries():
        if goes_on(entry) and entry.sent and delivered_upto(entry) < entry.sent[-1].hi:
            yield f"unicasts of {entry.connection.sender.name} are under way"
    for stream in evidence.groups.streams.values():
        for window in stream.all_windows() if stream.sender.lives else ():
            if not window.receiver.lives or window.is_own or window.removed is not None:
                continue
            delivered = stream.delivered_to(window.receiver)
            if first_gap(window.given_up + 1, stream.high, delivered) is not None:
                yield f"multicasts of {stream.sender.name} are under way"


def offered_upto(outgoing: Outgoing) -> int:
    """Return the number of the last message that was offered; 0: none was."""
    return outgoing.offered.hi if outgoing.offered is not None else 0


def _is_ahead(outgoing: Outgoing) -> bool:
    """Whether a living member gave messages up that it has not offered."""
    if not outgoing.sender.lives:
        return False
    offered = offered_upto(outgoing)
    return any(event.kind == ABANDONED and event.hi > offered for event in outgoing.events)


def _waits(evidence: Evidence, outgoing: Outgoing) -> bool:
    """Whether messages were accepted that did not leave, but still may: to a group also where the
    sender has no view yet."""
    offered, dest = outgoing.offered, evidence.members.get(outgoing.dest)
    if offered is None or not outgoing.sender.lives:
        return False
    may_leave = outgoing.dest == GROUP or (dest is not None and dest.lives)
    return may_leave and offered.hi > last_number(outgoing)


# -- Connections -----------------------------------------------------------------------------------


def goes_on(entry: SenderLife) -> bool:
    """Whether a sender entry is there at the end, and so are both members."""
    connection = entry.connection
    return connection.sender.lives and connection.receiver.lives and entry.removed is None


def is_kept(entry: SenderLife) -> bool:
    """Whether a sender still keeps messages for a receiver that is gone: it repeats them until it
    gives them up."""
    connection = entry.connection
    is_there = connection.sender.lives and entry.removed is None
    return is_there and not connection.receiver.lives and not entry.acked_all


def is_muted(entry: SenderLife, sent: Event) -> bool:
    """Whether a batch is for nobody: to oneself, with DONT_LOOPBACK."""
    return entry.connection.is_to_self and bool(sent.flags & DONT_LOOPBACK)


def delivered_upto(entry: SenderLife) -> int:
    """Return the seqno up to which all was delivered, of what was for anybody."""
    reached = entry.sent[0].lo - 1
    delivered = [event for _epoch, event in entry.delivered]
    delivered += [sent for sent in entry.sent if is_muted(entry, sent)]
    for lo, hi in sorted((event.lo, event.hi) for event in delivered):
        if lo > reached + 1:
            break
        reached = max(reached, hi)
    return reached
