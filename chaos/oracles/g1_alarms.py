"""G1, where nothing was done that could lose a message: there nobody has a reason to raise an
alarm, to give a message up, or to miss one that is not repaired."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise
from math import inf
from typing import Any, Final

from stormcast.chaos.oracles.evidence import Evidence
from stormcast.chaos.oracles.groups import MULTICAST, since
from stormcast.chaos.oracles.history import EPSILON, Member, Violation
from stormcast.node.core import wire
from stormcast.node.trace import ALARM, DROPPED, SKIPPED, Event

HARMLESS: Final = frozenset(
    {"delay", "reorder", "duplicate", "pause", "resume", "stall", "consume", "join"}
)
"""What a rig may do, and every message arrives all the same."""
NOT_MEANT: Final = "not for this member"
"""How a member says that it passed over what it was never to have."""
PROBE: Final = "probe-"
"""How a member says what a test protocol in its stack took."""
STREAMS: Final = ("TCP", "TCP_NIO2")
SOUND: Final = {"conn_ids": "every", "queue_overflow": "none", "split_send": False}
"""Historical settings that are no flaw; of all others it is True."""


def violations(evidence: Evidence) -> Iterator[Violation]:
    """Losses, or the word of a member that there are some, without a cause."""
    until = disturbed_at(evidence)
    for member in evidence.members.values():
        yield from _said(evidence, member, until)
    yield from _unnumbered(evidence, until)


def disturbed_at(evidence: Evidence) -> float:
    """When something first happened that could lose a message; `inf` if nothing ever did."""
    members = evidence.members.values()
    if any(map(_loses_by_design, members)):
        return -inf
    times = [inf]
    times += [step.time for step in evidence.rig.steps if step.begins and step.do not in HARMLESS]
    for member in members:
        times.append(member.ended)
        # What was sent to whom a view leaves out may be forgotten.
        times += [
            view.time
            for before, view in pairwise(member.views)
            if not {*before.members} <= {*view.members}
        ]
        times += [
            member.events[number].time
            for number, text in member.texts.items()
            if text.startswith(PROBE) and member.events[number].kind == DROPPED
        ]
    return min(times)


def _loses_by_design(member: Member) -> bool:
    """Whether a member has a flaw on purpose: of history, or no repair over a transport that may
    drop."""
    flaws = (settings.get("historical") or {} for settings in member.protocols.values())
    if not all(map(_is_sound, (member.historical, *flaws))):
        return True
    repairs = [
        member.protocols[name].get("xmit_interval")
        for name in map(wire.PROTOCOLS.__getitem__, MULTICAST)
        if name in member.protocols
    ]
    is_silent = any(interval is not None and interval <= 0 for interval in repairs)
    return is_silent and any(_may_drop(each) for each in member.protocols.values())


def _is_sound(historical: dict[str, Any]) -> bool:
    return all(value == SOUND.get(name, True) for name, value in historical.items())


def _may_drop(settings: dict[str, Any]) -> bool:
    """Whether these are the settings of a transport that has a bound beyond which it drops."""
    return bool(
        settings.get("drop_when_full")
        or settings.get("receive_queue")
        or settings.get("max_send_buffers")
    )


# -- What members say ------------------------------------------------------------------------------


def _said(evidence: Evidence, member: Member, until: float) -> Iterator[Violation]:
    """Alarms about multicasts, and messages given up."""
    for number, text in member.texts.items():
        event = member.events[number]
        if event.time >= until - EPSILON:
            continue
        peer = evidence.find(event.peer).name
        if event.kind == ALARM and event.protocol in MULTICAST:
            detail = f"{member.name} raised an alarm about {peer}"
        elif event.kind == SKIPPED and not text.startswith(NOT_MEANT):
            detail = f"{member.name} gave up {event.count} messages of {peer} up to {event.hi}"
        else:
            continue
        detail += ", and nothing was done that could lose a message"
        yield Violation(event.time, detail, ((member, event),))


# -- Messages without a number ---------------------------------------------------------------------


def _unnumbered(evidence: Evidence, until: float) -> Iterator[Violation]:
    """Messages with NO_RELIABILITY that somebody never got, over connections that lose nothing."""
    steady = [member for member in evidence.members.values() if _is_on_a_stream(member)]
    for sender in steady:
        for receiver in steady:
            if receiver is not sender:
                yield from _unheard(evidence, sender, receiver, until)


def _is_on_a_stream(member: Member) -> bool:
    streams = [member.protocols[name] for name in STREAMS if name in member.protocols]
    return bool(streams) and not any(map(_may_drop, streams))


def _unheard(
    evidence: Evidence, sender: Member, receiver: Member, until: float
) -> Iterator[Violation]:
    """What one member sent to another that had it, and it had, from before to the end."""
    ours, theirs = since(sender, receiver), since(receiver, sender)
    if ours is None or theirs is None:
        return
    heard: dict[int, float] = {}
    for event in evidence.unnumbered.delivered.get((receiver.short, sender.short), ()):
        heard.setdefault(event.digest, event.time)
    batches = list(_sent_between(evidence, sender, receiver))
    limit = evidence.rig.quiet
    if until < inf:
        # Connections keep the order: what was sent before something that came in time was due.
        came = (sent.time for sent in batches if heard.get(sent.digest, inf) < until - EPSILON)
        limit = min(limit, max(came, default=-inf))
    met = max(ours.time, theirs.time)
    for sent in batches:
        if not met + EPSILON < sent.time < limit - EPSILON or sent.digest in heard:
            continue
        if any(each.is_hindered(sent.time, evidence.rig.end) for each in (sender, receiver)):
            continue
        detail = (
            f"an unnumbered batch was never delivered by {receiver.name}, and nothing was done "
            "that could lose a message"
        )
        yield Violation(sent.time, detail, ((sender, sent),))


def _sent_between(evidence: Evidence, sender: Member, receiver: Member) -> Iterator[Event]:
    for dest in (wire.GROUP, receiver.short):
        yield from evidence.unnumbered.sent.get((sender.short, dest), ())
