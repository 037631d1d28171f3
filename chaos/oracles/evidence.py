"""The evidence of a run: its traces, each read whole or not at all, and indexed once."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import cached_property
from itertools import chain
from math import inf
from typing import Final

from stormcast.chaos.oracles import hand_over
from stormcast.chaos.oracles.application import ApplicationIndex
from stormcast.chaos.oracles.g1_held import Held, held
from stormcast.chaos.oracles.group_index import GroupIndex
from stormcast.chaos.oracles.groups import MULTICAST
from stormcast.chaos.oracles.history import Member
from stormcast.chaos.oracles.lives import end_replaced, freezes, strike
from stormcast.chaos.oracles.reading import TraceReader, Traces
from stormcast.chaos.oracles.rig_record import RigRecord
from stormcast.chaos.oracles.unicast_index import UnicastIndex
from stormcast.chaos.oracles.unnumbered_index import UNNUMBERED, UnnumberedIndex
from stormcast.node.core.codec import Hash64
from stormcast.node.core.wire import GROUP
from stormcast.node.trace import (
    ABANDONED,
    ACKED,
    CONN,
    CUT,
    DELIVERED,
    GAUGE,
    HANDED,
    OFFERED,
    PURGED,
    RECEIVE_MESSAGES,
    REQUESTED,
    RETRANSMITTED,
    SENT,
    SKIPPED,
    STOP,
    SYNC,
    VIEW,
    Event,
)

_OF_APPLICATION: Final = frozenset({SENT, DELIVERED, OFFERED, CUT, HANDED, ABANDONED})
_OF_NO_STREAM: Final = frozenset({GAUGE, HANDED})
_OF_MESSAGES: Final = frozenset({SENT, PURGED, RETRANSMITTED, DELIVERED, ACKED, REQUESTED, SKIPPED})
_OF_CONNECTIONS: Final = frozenset({CONN, SYNC, ABANDONED})
TRAVELS: Final = 3
"""The number of times that an exchange crosses the network: a message, its answer, and what was
resent until the answer came, which is answered again."""
REPEATER: Final = "DUPLICATE"
"""The test protocol that passes on copies."""


class Evidence:
    """The indexed traces of a run."""

    def __init__(self, reader: TraceReader, hash64: Hash64) -> None:
        self.hash64 = hash64
        self.defects = reader.defects
        """The reasons why the traces prove nothing."""
        self.members = reader.members
        """By short id; the rig is not among them."""
        self.rig = RigRecord(reader.rig, self.defects)
        self.unicasts = UnicastIndex(self.find)
        self.groups = GroupIndex(self.find)
        self.unnumbered = UnnumberedIndex()
        self.application = ApplicationIndex()
        """The messages that applications offered and were handed."""
        self.gauges: list[tuple[Member, Event]] = []
        self.held: list[Held] = []
        """What receive windows held, by their gauges."""
        self._strangers: dict[int, Member] = {}
        """Members that others name, and that left no trace."""

    @classmethod
    def from_blocks(cls, traces: Traces, hash64: Hash64) -> Evidence:
        """Read and index the traces of a run. Faults of the traces are listed in `defects`."""
        reader = TraceReader(hash64)
        reader.read_all(traces)
        evidence = cls(reader, hash64)
        strike(evidence.members, evidence.rig.steps)
        end_replaced(evidence.members.values())
        for member in evidence.members.values():
            evidence._index(member)
        evidence.groups.match()
        evidence.unicasts.match()
        evidence._find_defects(reader.torn)
        return evidence

    @cached_property
    def calm(self) -> float:
        """The time after which the rig did nothing, what faults kept under way had arrived, nobody
        sent, no view changed, and nobody raised an alarm."""
        sends = (sent[-1].time for sent in self._batches() if sent)
        changes = (member.views[-1].event.time for member in self.members.values() if member.views)
        alarms = (alarms[-1].time for alarms in self.groups.alarms.values())
        return max([self.rig.quiet, self.rig.under_way.landed, *sends, *changes, *alarms])

    @property
    def long_travel(self) -> float:
        """Seconds for which a network that delays may make an exchange last longer."""
        return TRAVELS * self.rig.under_way.travel

    @cached_property
    def rest(self) -> float:
        """The time after which the run was calm, and no member that stays was paused or stalled, or
        had a digest in use."""
        living = [member for member in self.members.values() if member.lives]
        spans = (span for each in living for span in (*each.paused, *each.stalled, *freezes(each)))
        return max([self.calm, *(span.end for span in spans)])

    @cached_property
    def most_copies(self) -> int:
        """The most often that one frame may have arrived. A test protocol that repeats frames does
        so at both ends."""
        settings = (member.protocols.get(REPEATER) or {} for member in self.members.values())
        extra = max((int(each.get("copies") or 0) for each in settings), default=0)
        return self.rig.most_copies * (1 + extra) ** 2

    @cached_property
    def over(self) -> float:
        """The time of the last event: members work on for a moment after the end of the run, and
        what they do then takes time, too."""
        traces = [*self.members.values(), self.rig.trace]
        return max([self.rig.end, *(trace.events[-1].time for trace in traces if trace.events)])

    @cached_property
    def hand_over_breaches(self) -> list[hand_over.Breach]:
        """The breaches of guarantees between windows and applications."""
        return [*hand_over.breaches(self)]

    @property
    def messages_sent(self) -> int:
        """The number of messages that all members sent, without repeats."""
        return sum(event.count for event in chain.from_iterable(self._batches()))

    def _batches(self) -> Iterator[list[Event]]:
        """Yield all that was sent, by sender entry, stream, or pair of who sent it without a
        seqno."""
        yield from (entry.sent for entry in self.unicasts.entries())
        yield from (stream.sent for stream in self.groups.streams.values())
        yield from self.unnumbered.sent.values()

    @property
    def has_group(self) -> bool:
        """Whether anyone was a member of a group."""
        return any(member.views for member in self.members.values())

    @property
    def begin(self) -> float:
        """The time at which the run began, on the clock of the traces: as the rig says, or else
        when the first member started."""
        if self.rig.begin is not None:
            return self.rig.begin
        return min((member.started for member in self.members.values()), default=0.0)

    def find(self, short: int) -> Member:
        """Return the member of a short id, or a stand-in for one that left no trace."""
        member = self.members.get(short) or self._strangers.get(short)
        if member is None:
            member = self._strangers[short] = Member(f"{short:x}", short)
            member.ended = -inf
        return member

    def _index(self, member: Member) -> None:
        for number, event in enumerate(member.events):
            kind = event.kind
            if kind in _OF_APPLICATION:
                self.application.note(member, event)
            if event.protocol in MULTICAST and kind not in _OF_NO_STREAM:
                self.groups.note(member, number, event)
            elif kind in _OF_MESSAGES and event.protocol == UNNUMBERED:
                self.unnumbered.note(member, event)
            elif kind == ABANDONED and event.protocol == UNNUMBERED:
                continue  # of messages that had not left
            elif kind in _OF_MESSAGES or kind in _OF_CONNECTIONS:
                self.unicasts.note(member, number, event)
            elif kind == GAUGE:
                self._note_gauge(member, event)
            elif kind == VIEW:
                self._note_view(member, number, event)
            elif kind == STOP:
                member.ended = min(member.ended, event.time)

    def _note_gauge(self, member: Member, event: Event) -> None:
        self.gauges.append((member, event))
        if event.stream == RECEIVE_MESSAGES:
            index = self.groups if event.protocol in MULTICAST else self.unicasts
            one = held(event, index.open_window(member, event.peer))
            if one is not None:
                self.held.append(one)

    def _note_view(self, member: Member, number: int, event: Event) -> None:
        # A view without a creator was handed in, in place of a membership protocol.
        if event.peer and (defect := self.groups.note_view(member, number, event)):
            self.defects.append(defect)

    def _find_defects(self, torn: Mapping[int, str]) -> None:
        if not self.members:
            self.defects.append("no member left a trace")
        if self.rig.end == inf:
            self.defects.append("the rig recorded no end of the run")
        for short, reason in torn.items():
            if short not in self.rig.killed:
                label = self.members[short].label if short in self.members else "rig"
                self.defects.append(f"{label}: {reason}")
        if not self.defects:
            self._miss_traces()

    def _miss_traces(self) -> None:
        """Note a defect for each member that was heard, or was in a view, and left no trace."""
        members = self.members.values()
        heard = {short for member in members for short in _heard_by(member)}
        seen = {short for member in members for view in member.views for short in view.members}
        for short in sorted((heard | seen) - self.members.keys() - {GROUP}):
            how = "was heard" if short in heard else "was in a view"
            self.defects.append(f"{self.find(short).label} {how} and left no trace")


def _heard_by(member: Member) -> Iterator[int]:
    """Yield the short ids of the members that a member heard, and maybe that of the group."""
    for event in member.events:
        # A purge of unicasts follows an ack; of multicasts it names nobody. What a member says to
        # whom it has delivered nothing of, as acks and requests, any stranger can bring about.
        if event.kind == DELIVERED or (event.kind == PURGED and event.protocol not in MULTICAST):
            yield event.peer
