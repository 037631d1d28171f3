"""G1 where nothing was done that could lose a message: there no member has a reason to raise an
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
    {"delay", "reorder", "duplicate", "pause", "resume", "stall", "consume", "join", "listen"}
)
"""Actions of the rig that lose no message."""
NOT_MEANT: Final = "not for this member"
"""The text with which a member passes over a message that was not meant for it."""
PROBE: Final = "probe-"
"""The beginning of the reason with which a test protocol drops a frame."""
_REPORTS: Final = frozenset({ALARM, SKIPPED})
STREAMS: Final = ("TCP", "TCP_NIO2")
SOUND: Final = {"conn_ids": "every", "queue_overflow": "none", "split_send": False}
"""Values of historical settings that are no flaw; of every other setting it is True."""


def violations(evidence: Evidence) -> Iterator[Violation]:
    """Losses without a cause, and alarms and skips of members that report one."""
    until = disturbed_at(evidence)
    for member in evidence.members.values():
        yield from _said(evidence, member, until)
    yield from _unnumbered(evidence, until)


def disturbed_at(evidence: Evidence) -> float:
    """Return the time of the first event that could lose a message; `inf` if there was none."""
    members = evidence.members.values()
    if any(map(_loses_by_design, members)):
        return -inf
    times = [inf]
    times += [step.time for step in evidence.rig.steps if step.begins and step.do not in HARMLESS]
    times += _long_delays(evidence)
    for member in members:
        times.append(member.ended)
        # Messages to a member that a view leaves out may be forgotten.
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


def _long_delays(evidence: Evidence) -> list[float]:
    """Return the times at which delays began that together may outlast the alarm about a gap: what
    is late is then as good as lost."""
    late = [step for step in evidence.rig.noted if step.begins and step.late]
    alarms = [
        float(member.protocols[name].get("gap_alarm", inf))
        for member in evidence.members.values()
        for name in map(wire.PROTOCOLS.__getitem__, MULTICAST)
        if name in member.protocols
    ]
    is_long = sum(step.late for step in late) >= min(alarms, default=inf)
    return [step.time for step in late] if is_long else []


def _loses_by_design(member: Member) -> bool:
    """Whether the settings of a member lose messages: by a historical flaw, or because it repairs
    nothing over a transport that may drop."""
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
    """Whether these are settings of a transport that drops beyond a bound."""
    return bool(
        settings.get("drop_when_full")
        or settings.get("receive_queue")
        or settings.get("max_send_buffers")
    )


# -- Alarms and skips ------------------------------------------------------------------------------


def _said(evidence: Evidence, member: Member, until: float) -> Iterator[Violation]:
    """Alarms of a member about multicasts, and messages that it gave up, before `until`."""
    # Over all events, as one without a text is a report, too.
    for number, event in enumerate(member.events):
        if event.kind not in _REPORTS or event.time >= until - EPSILON:
            continue
        peer = evidence.find(event.peer).name
        if event.kind == SKIPPED and not member.texts.get(number, "").startswith(NOT_MEANT):
            detail = f"{member.name} gave up {event.count} messages of {peer} up to {event.hi}"
        elif event.kind == ALARM and event.protocol in MULTICAST:
            detail = f"{member.name} raised an alarm about {peer}"
        else:
            continue
        detail += ", and nothing was done that could lose a message"
        yield Violation(event.time, detail, ((member, event),))


# -- Messages without a number ---------------------------------------------------------------------


def _unnumbered(evidence: Evidence, until: float) -> Iterator[Violation]:
    """Messages with NO_RELIABILITY that somebody never got, over connections that lose nothing."""
    living = [member for member in evidence.members.values() if member.lives]
    steady = [member for member in living if _is_on_a_stream(member)]
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
    """Unnumbered messages that never came, between two members that stay, and had each other in
    their views from before the sending to the end."""
    ours, theirs = since(sender, receiver), since(receiver, sender)
    if ours is None or theirs is None:
        return
    heard: dict[int, list[float]] = {}
    for event in evidence.unnumbered.delivered.get((receiver.short, sender.short), ()):
        heard.setdefault(event.digest, []).append(event.time)
    batches = sorted(_sent_between(evidence, sender, receiver), key=lambda sent: sent.time)
    limit = min(evidence.rig.quiet, until)
    if until < inf:
        # Connections keep the order: a batch is due if a later one came in time. Of equal ones
        # the first may be the one that came.
        first: dict[int, float] = {}
        for sent in batches:
            first[sent.digest] = min(sent.time, first.get(sent.digest, inf))
        came = (time for one, time in first.items() if heard.get(one, [inf])[0] < until - EPSILON)
        limit = min(limit, max(came, default=-inf))
    met = max(ours.time, theirs.time)
    due: dict[int, list[Event]] = {}
    for sent in batches:
        is_due = met + EPSILON < sent.time < limit - EPSILON
        if is_due and not any(
            each.is_hindered(sent.time, evidence.rig.end) for each in (sender, receiver)
        ):
            due.setdefault(sent.digest, []).append(sent)
    # Of equal batches as many must have come as are due.
    lost = [sent for one, equal in due.items() for sent in equal[len(heard.get(one, ())) :]]
    for sent in sorted(lost, key=lambda event: event.time):
        detail = (
            f"an unnumbered batch was never delivered by {receiver.name}, and nothing was done "
            "that could lose a message"
        )
        yield Violation(sent.time, detail, ((sender, sent),))


def _sent_between(evidence: Evidence, sender: Member, receiver: Member) -> Iterator[Event]:
    for dest in (wire.GROUP, receiver.short):
        yield from evidence.unnumbered.sent.get((sender.short, dest), ())
