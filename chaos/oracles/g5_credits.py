"""G5, credits: the bytes that one sender has sent and one receiver not taken stay within the limit.

A sender knows only by the limits that receivers name how much was taken. So each batch is compared
with what its receiver had delivered when it named the limit that the sender believed last. Places
in the receiver's own trace say that, and no clock is compared.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Final, NamedTuple

from stormcast.chaos.oracles.evidence import Evidence
from stormcast.chaos.oracles.groups import MULTICAST, since
from stormcast.chaos.oracles.history import Member, Violation
from stormcast.node.core import wire
from stormcast.node.core.model import FRAGMENT, NO_FC
from stormcast.node.trace import BELIEVED, CREDIT, DELIVERED, NAMED, PARTIAL, SENT, VIEW, Event

LENGTH_BYTES: Final = 4
"""The most that the length of a message takes of a body: credits count payloads."""
FRAGMENT_BYTES: Final = 24
"""The size of the header of a fragment."""
UNICAST: Final = frozenset({wire.UNICAST, wire.UNICAST2, wire.UNICAST3, wire.UNICAST4})

Flow = tuple[int, int]
"""The receiver's short id, and the connection; 0 for multicasts."""


class Sent(NamedTuple):
    """A batch, and what its sender knew when it left."""

    event: Event
    total: int
    """Bytes of its flow, up to and with this batch."""
    believed: Event | None
    """The last limit that the sender believed; None: the one that every sender begins with."""


def violations(evidence: Evidence) -> Iterator[Violation]:
    """Limits that their receiver never named, and bytes beyond the limits."""
    taken = {short: _Taken(member) for short, member in evidence.members.items()}
    for sender in evidence.members.values():
        yield from _never_named(evidence, sender, taken)
        flows = _Flows(evidence, sender)
        for (receiver, conn), batches in flows.sent.items():
            most = flows.most(conn)
            first = flows.first[receiver, conn]
            if most is not None and receiver in taken:
                yield from _beyond(sender, taken[receiver], conn, first, most, batches)


def _never_named(
    evidence: Evidence, sender: Member, taken: dict[int, _Taken]
) -> Iterator[Violation]:
    """Limits that a sender believed of a receiver, and that the receiver never named."""
    for event in sender.events:
        if event.kind != CREDIT or event.stream != BELIEVED or event.peer not in taken:
            continue
        if event.hi not in taken[event.peer].named.get((sender.short, event.protocol), {}):
            name = evidence.find(event.peer).name
            detail = f"a limit of {event.hi} bytes was believed, and {name} never named it"
            yield Violation(event.time, detail, ((sender, event),))


def _beyond(
    sender: Member, taken: _Taken, conn: int, first: int, most: float, batches: list[Sent]
) -> Iterator[Violation]:
    """The first batch of a flow with which more than `most` bytes were not known to be taken."""
    numbers, totals = taken.delivered(sender.short, conn, first)
    named = taken.named.get((sender.short, wire.UFC if conn else wire.MFC), {})
    for batch in batches:
        had, said = 0, None
        if batch.believed is not None:
            if batch.believed.hi not in named:
                return
            number, said = named[batch.believed.hi]
            had = totals[bisect_left(numbers, number)]
        if batch.total - had > most:
            witness = [(taken.member, said)] if said is not None else []
            detail = (
                f"{batch.total - had} bytes were sent and not taken by {taken.member.name}: "
                f"{most:g} are allowed"
            )
            shown = (*witness, (sender, batch.event))
            yield Violation(batch.event.time, detail, shown)
            return


class _Taken:
    """The deliveries of one member, and the limits that it named to senders."""

    def __init__(self, member: Member) -> None:
        self.member = member
        self.named: dict[tuple[int, int], dict[int, tuple[int, Event]]] = {}
        """By sender and protocol: each limit, with the event that named it first and its number."""
        self._delivered: dict[tuple[int, int], list[tuple[int, Event]]] = {}
        for number, event in enumerate(member.events):
            if event.kind == CREDIT and event.stream == NAMED:
                of = self.named.setdefault((event.peer, event.protocol), {})
                of.setdefault(event.hi, (number, event))
            elif event.kind == DELIVERED and is_counted(event):
                self._delivered.setdefault((event.peer, conn_of(event)), []).append((number, event))

    def delivered(self, sender: int, conn: int, first: int) -> tuple[list[int], list[int]]:
        """Return the event numbers of the deliveries of a flow from a seqno on; and the bytes that
        were delivered before each of them, and after the last."""
        numbers, totals = [], [0]
        for number, event in self._delivered.get((sender, conn), ()):
            if event.hi >= first:
                numbers.append(number)
                totals.append(totals[-1] + most_payload(event))
        return numbers, totals


@dataclass
class _Flows:
    """The batches that one member sent to members that it has in its view to the end, from where it
    has them."""

    evidence: Evidence
    sender: Member
    sent: dict[Flow, list[Sent]] = field(default_factory=dict)
    first: dict[Flow, int] = field(default_factory=dict)
    """The first seqno of each flow that counts: earlier ones were sent before the two met, or are
    not expected any more."""

    def __post_init__(self) -> None:
        sender = self.sender
        self._begins = self._given_up()
        meetings: dict[int, list[int]] = {}
        for short, other in self.evidence.members.items():
            view = since(sender, other)
            if view is not None and other is not sender:
                meetings.setdefault(id(view.event), []).append(short)
        met: list[int] = []
        believed: dict[tuple[int, int], Event] = {}
        for event in sender.events:
            if event.kind == VIEW:
                new = meetings.get(id(event), [])
                met += new
                believed = {key: was for key, was in believed.items() if key[0] not in new}
            elif event.kind == CREDIT and event.stream == BELIEVED:
                believed[event.peer, event.protocol] = event
            elif event.kind == SENT and is_counted(event):
                limiter = wire.MFC if event.protocol in MULTICAST else wire.UFC
                for receiver in met:
                    if event.peer in (receiver, wire.GROUP):
                        said = believed.get((receiver, limiter))
                        self._add((receiver, conn_of(event)), event, said)

    def most(self, conn: int) -> float | None:
        """Return the bytes that may be sent and not taken; None where nothing is promised."""
        return self.sender.bound(wire.UFC if conn else wire.MFC, "most_untaken")

    def _given_up(self) -> dict[Flow, int]:
        """Return the seqno of each flow up to which its receiver expects nothing more."""
        found: dict[Flow, int] = {}
        stream = self.evidence.groups.streams.get(self.sender.short)
        for window in stream.all_windows() if stream else ():
            flow = window.receiver.short, 0
            found[flow] = max(found.get(flow, 0), window.given_up)
        for connection in self.evidence.unicasts.connections.values():
            if connection.sender is self.sender:
                flow = connection.receiver.short, connection.conn
                skips = (skip.hi for epoch in connection.epochs for skip in epoch.skipped)
                found[flow] = max(skips, default=0)
        return found

    def _add(self, flow: Flow, event: Event, believed: Event | None) -> None:
        if event.lo <= self._begins.get(flow, 0):
            return
        batches = self.sent.setdefault(flow, [])
        self.first.setdefault(flow, event.lo)
        total = batches[-1].total if batches else 0
        batches.append(Sent(event, total + least_payload(event), believed))


def is_counted(event: Event) -> bool:
    """Whether a batch takes credits, and its record names its flow."""
    is_told = event.protocol in MULTICAST or (event.protocol in UNICAST and event.conn > 0)
    return is_told and not event.flags & NO_FC


def conn_of(event: Event) -> int:
    """Return the connection of a batch; 0 for multicasts."""
    return 0 if event.protocol in MULTICAST else event.conn


def least_payload(event: Event) -> int:
    """Return the fewest bytes of payload that a batch may have, by the bytes of its body."""
    header = FRAGMENT_BYTES if event.flags & FRAGMENT else 0
    return max(0, event.bytes - LENGTH_BYTES * event.count - header)


def most_payload(event: Event) -> int:
    """Return the most that the payloads of a delivery may be; of a whole batch the least, as when
    it was sent."""
    return event.bytes if event.stream == PARTIAL else least_payload(event)
