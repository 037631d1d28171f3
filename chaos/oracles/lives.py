"""Notes at members what the rig did to them: kills, pauses, stalls, changes of settings."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from itertools import pairwise
from math import inf
from typing import Any, Final, NamedTuple

from stormcast.chaos.oracles.groups import MULTICAST
from stormcast.chaos.oracles.history import Member, Span
from stormcast.chaos.oracles.rig_record import UNCONFIRMED, FaultStep
from stormcast.node.core import wire
from stormcast.node.core.errors import NodeError
from stormcast.node.reading.quantities import SETTING_DURATION
from stormcast.node.trace import FREEZE

_UNDONE_BY: Final = {"pause": "resume", "stall": "consume"}
CHANGES_SETTINGS: Final = "set-attribute"
_NUMBER: Final = re.compile(r"-?[0-9.]+")
_MULTICAST_NAMES: Final = tuple(wire.PROTOCOLS[protocol] for protocol in MULTICAST)


class _Hold(NamedTuple):
    """A pause or a stall that has not ended yet."""

    begun: FaultStep
    member: Member

    def is_ended_by(self, step: FaultStep) -> bool:
        """Whether a step ends it: by the id of the fault, or as a `resume` or `consume`."""
        is_named = not step.begins and step.id == self.begun.id
        is_undone = step.do == _UNDONE_BY[self.begun.do]
        return (is_named or is_undone) and step.member in (None, self.member.short)

    def note(self, end: float) -> None:
        spans = self.member.paused if self.begun.do == "pause" else self.member.stalled
        spans.append(Span(self.begun.time, end))


def strike(members: Mapping[int, Member], steps: Iterable[FaultStep]) -> None:
    """Note at each member what was done to it. Faults of the network are not noted: their effects
    are in the traces."""
    holds: list[_Hold] = []
    for step in steps:
        for hold in [hold for hold in holds if hold.is_ended_by(step)]:
            holds.remove(hold)
            hold.note(step.time)
        member = members.get(step.member) if step.member is not None else None
        if member is None or not step.begins:
            continue
        if step.kills:
            member.ended = min(member.ended, step.time)
        elif step.do in _UNDONE_BY:
            holds.append(_Hold(step, member))
        elif step.do == CHANGES_SETTINGS:
            _change_settings(member, step)
    for hold in holds:
        hold.note(inf)


def end_replaced(members: Iterable[Member]) -> None:
    """End each incarnation when the next one of its name starts, whatever the rig says of it; and
    name incarnations by their labels where a name has several."""
    by_name: dict[str, list[Member]] = {}
    # Of two that started at the same time, the one that ended earlier was the first.
    for member in sorted(members, key=lambda each: (each.started, each.ended)):
        by_name.setdefault(member.name, []).append(member)
    for lives in by_name.values():
        for before, after in pairwise(lives):
            before.ended = min(before.ended, after.started)
        if len(lives) > 1:
            for member in lives:
                member.name = member.label


def _change_settings(member: Member, step: FaultStep) -> None:
    # Its START tells its promises before the change; those after it are written nowhere.
    member.bounds.clear()
    for settings in member.protocols.values():
        settings.pop("bounds", None)
    protocol, _, name = step.attribute.rpartition(".")
    # Without a protocol an attribute is one of unicast; without an attribute it may be any.
    if step.attribute and not protocol.startswith(_MULTICAST_NAMES):
        return
    if member.intervals and name in ("", "xmit_interval"):
        seconds = _seconds(step.value)
        # A change that nobody confirmed may not have been made: it blames nobody, and so only
        # counts if it is an excuse.
        if step.within < UNCONFIRMED or (seconds is not None and seconds <= 0):
            member.intervals.append((step.time, seconds))
        member.changing.append(Span(step.time, step.time + step.within))


def _seconds(value: Any) -> float | None:  # noqa: ANN401 whatever a trace may say
    """Return an interval in seconds; None where the value is none. A number may be text: on Spark
    it always is."""
    if value is None or isinstance(value, bool):
        return None
    try:
        if isinstance(value, str) and not _NUMBER.fullmatch(value.strip()):
            return SETTING_DURATION.parse(value)
        return float(value)
    except (TypeError, ValueError, NodeError):
        return None


def freezes(member: Member) -> list[Span]:
    """Return the times in which a digest of a member was in use, and it held acks back."""
    spans, start = [], None
    for event in member.events:
        if event.kind != FREEZE:
            continue
        if event.lo and start is None:
            start = event.time
        elif not event.lo and start is not None:
            spans.append(Span(start, event.time))
            start = None
    if start is not None:
        spans.append(Span(start, inf))
    return spans
