"""G5, bounded memory: no gauge is above its bound, no message is kept for ever behind a gap, and no
more bytes are under way than credits allow."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from stormcast.chaos.oracles import g5_credits
from stormcast.chaos.oracles.evidence import Evidence
from stormcast.chaos.oracles.groups import MULTICAST, since
from stormcast.chaos.oracles.history import Connection, Member, Violation
from stormcast.node.core.wire import GROUP
from stormcast.node.trace import GAUGES, OUTBOX_BYTES, RECEIVE_BYTES, RECEIVE_MESSAGES, Event

RECEIVE_WINDOW: Final = frozenset({RECEIVE_MESSAGES, RECEIVE_BYTES})


def violations(evidence: Evidence) -> Iterator[Violation]:
    """Gauges above their bound at any time, receive windows that are not empty at the end (unless
    the run was over before all had left its sender), and bytes beyond the credits."""
    waiting = {
        (member.short, gauge.peer)
        for member, gauge in evidence.gauges
        if gauge.stream == OUTBOX_BYTES and gauge.lo > 0 and gauge.time >= evidence.rig.end
    }
    for member, gauge in evidence.gauges:
        if 0 < gauge.hi < gauge.lo:
            detail = f"{GAUGES.get(gauge.stream, 'gauge')}: {gauge.lo}, and the bound is {gauge.hi}"
            yield Violation(gauge.time, detail, ((member, gauge),))
        elif gauge.stream in RECEIVE_WINDOW and gauge.lo > 0 and gauge.time >= evidence.rig.end:
            dest = GROUP if gauge.protocol in MULTICAST else member.short
            if (gauge.peer, dest) not in waiting:
                yield from _stuck(evidence, member, gauge)
    yield from g5_credits.violations(evidence)


def _stuck(evidence: Evidence, member: Member, gauge: Event) -> Iterator[Violation]:
    """A receive window that holds messages at the end, though its sender could fill the gap."""
    if not evidence.find(gauge.peer).lives:
        return
    if gauge.protocol in MULTICAST:
        yield from _stuck_multicasts(evidence, member, gauge)
        return
    for connection in evidence.unicasts.connections.values():
        if (
            connection.sender.short == gauge.peer
            and connection.receiver is member
            and _is_current(connection)
        ):
            detail = f"{GAUGES[gauge.stream]}: {gauge.lo} at the end of the run, behind a gap"
            behind = connection.epochs[-1].delivered[-1:]
            yield Violation(
                gauge.time, detail, (*((member, event) for event in behind), (member, gauge))
            )
            return


def _stuck_multicasts(evidence: Evidence, member: Member, gauge: Event) -> Iterator[Violation]:
    """A window on multicasts that holds messages at the end, if its sender and the member are
    together, and unless the member repairs nothing."""
    stream = evidence.groups.streams.get(gauge.peer)
    window = stream.current(member) if stream else None
    if stream is None or window is None or member.repairs(gauge.time) is False:
        return
    if since(stream.sender, member) and since(member, stream.sender):
        detail = f"{GAUGES[gauge.stream]}: {gauge.lo} at the end of the run, behind a gap"
        behind = [(member, event) for event in window.delivered[-1:]]
        yield Violation(gauge.time, detail, (*behind, (member, gauge)))


def _is_current(connection: Connection) -> bool:
    """Whether both ends still hold a connection: a sender that removed it sends nothing more."""
    entries, epochs = connection.entries, connection.epochs
    return bool(entries and epochs) and entries[-1].removed is None and epochs[-1].removed is None
