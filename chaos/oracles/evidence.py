"""The evidence of a run: its traces, read whole or not at all, and indexed once.

A torn, foreign, truncated or empty trace is evidence of nothing, because every check also concludes
from what is not there. The one exception: the last block of a member that the rig killed may be
torn, since a block is written before the frames of its turn leave, and so nobody has seen what it
lost.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping
from functools import cached_property
from math import inf
from typing import Any, Final, NamedTuple

from stormcast.chaos.oracles.application import ApplicationIndex
from stormcast.chaos.oracles.group_index import GroupIndex
from stormcast.chaos.oracles.groups import MULTICAST, Stream
from stormcast.chaos.oracles.hand_over import Fault
from stormcast.chaos.oracles.history import (
    RIG,
    Connection,
    Entry,
    Epoch,
    Member,
    Noted,
    Probe,
    Span,
)
from stormcast.node.core import wire
from stormcast.node.core.codec import Hash64
from stormcast.node.core.errors import BadTrace, NodeError
from stormcast.node.reading.quantities import SETTING_DURATION
from stormcast.node.trace import (
    ABANDONED,
    ACKED,
    CONN,
    CUT,
    DELIVERED,
    FAULT,
    GAUGE,
    HANDED,
    OFFERED,
    PHASE,
    PROBE,
    PURGED,
    RECEIVER_OPEN,
    RECEIVER_REMOVED,
    REQUESTED,
    RETRANSMITTED,
    SENDER_CLOSING,
    SENDER_OPEN,
    SENDER_REMOVED,
    SENT,
    SKIPPED,
    START,
    STOP,
    SYNC,
    TRUNCATED,
    VIEW,
    Block,
    Event,
    describe_loss,
    read_blocks_untrusted,
)

Traces = Mapping[str, bytes] | Iterable[tuple[str, bytes]]
"""A label for each member incarnation (and the rig), and its blocks."""

Payloads = Callable[[str, str, int, int], bytes]
"""The payloads, back to back, of messages number `lo..hi` from one trace label to another. They are
counted from 0 in the order of sending, over all connections."""

UNNUMBERED: Final = 0
"""The protocol of messages that are neither numbered nor repaired (NO_RELIABILITY)."""

_UNDONE_BY: Final = {"pause": "resume", "stall": "consume"}
_KILLS: Final = frozenset({"crash", "restart"})
_CHANGES_SETTINGS: Final = "set-attribute"
_COPIES: Final = frozenset({"duplicate", "rule"})
_MULTICAST_NAMES: Final = tuple(wire.PROTOCOLS[protocol] for protocol in MULTICAST)
_OF_APPLICATION: Final = frozenset({SENT, DELIVERED, OFFERED, CUT, HANDED, ABANDONED})
_OF_NO_STREAM: Final = frozenset({GAUGE, HANDED})
_BY_SENDER: Final = frozenset({SENT, PURGED, RETRANSMITTED})
_BY_RECEIVER: Final = frozenset({DELIVERED, ACKED, REQUESTED, SKIPPED})
_SENDER_STATES: Final = frozenset({SENDER_OPEN, SENDER_CLOSING, SENDER_REMOVED})


APART_SECONDS: Final = 0.5
"""From here on two clocks are two: less is what setting the wall clock makes of one."""


class _Hold(NamedTuple):
    """A pause or a stall that has not ended yet."""

    fault: str
    do: str
    member: Member
    start: float

    def note(self, end: float) -> None:
        spans = self.member.paused if self.do == "pause" else self.member.stalled
        spans.append(Span(self.start, end))


def _add_block(member: Member, block: Block) -> None:
    """The events of the next block of a member's trace; BadTrace if that is not what it is."""
    if block.member != member.short:
        raise BadTrace("block of another member")
    if block.first != len(member.events):
        raise BadTrace(f"events {len(member.events)}..{block.first} are missing")
    for number, event in enumerate(block.events, block.first):
        if event.kind == TRUNCATED:
            raise BadTrace(describe_loss(event, block.text(event)))
        if event.text:
            member.texts[number] = block.text(event)
    member.events += block.events


class Evidence:
    """The indexed traces of a run."""

    def __init__(self, hash64: Hash64) -> None:
        self.hash64 = hash64
        self.defects: list[str] = []
        """Why the traces prove nothing."""
        self.members: dict[int, Member] = {}
        """By short id; the rig apart."""
        self.rig = Member("rig", RIG)
        self.probes: list[Probe] = []
        self.quiet = inf
        """From here on the rig did nothing."""
        self.end = inf
        self.connections: dict[tuple[int, int, int], Connection] = {}
        """By sender, receiver and connection id."""
        self.syncs: dict[tuple[int, int], list[Event]] = {}
        """By asking member and peer."""
        self.gauges: list[tuple[Member, Event]] = []
        self.groups = GroupIndex(self.find)
        self.application = ApplicationIndex()
        """What applications offered and were handed."""
        self.hand_over_faults: list[Fault] | None = None
        """What is wrong between windows and applications; found when first asked for."""
        self.standing: dict[str, str] = {}
        """Faults that nothing ended, by id: what they are."""
        self.most_copies = 2
        """How often one frame may have arrived: a network may always repeat one."""
        self.unnumbered_sent: dict[tuple[int, int], list[Event]] = {}
        """By sender and receiver; 0 is the group."""
        self.unnumbered_delivered: dict[tuple[int, int], list[Event]] = {}
        """By receiver and sender."""
        self._unknown: dict[int, Member] = {}
        self._torn: dict[int, str] = {}
        self._killed: set[int] = set()
        self._walls: dict[int, int] = {}
        """The wall clock in nanoseconds at the zero of each member's own, and the rig's."""
        self._holds: list[_Hold] = []

    @classmethod
    def from_blocks(cls, traces: Traces, hash64: Hash64) -> Evidence:
        """Read and index the traces of a run. What is wrong with them goes to `defects`."""
        evidence = cls(hash64)
        for label, data in traces.items() if isinstance(traces, Mapping) else traces:
            evidence._read(label, data)
        # In whatever order files are read, of two violations at one time the same one is shown.
        evidence.members = dict(sorted(evidence.members.items()))
        evidence._align_clocks()
        evidence._index_rig()
        evidence._end_replaced()
        for member in evidence.members.values():
            evidence._index_member(member)
        evidence._match_deliveries()
        evidence._find_defects()
        return evidence

    @cached_property
    def calm(self) -> float:
        """From here on the rig did nothing, no view changed, and nobody raised an alarm."""
        changes = (member.views[-1].event.time for member in self.members.values() if member.views)
        alarms = (alarms[-1].time for alarms in self.groups.alarms.values())
        return max([self.quiet, *changes, *alarms])

    @property
    def messages_sent(self) -> int:
        """Messages of all members, repeats apart."""
        numbered = sum(event.count for entry in self.entries() for event in entry.sent)
        numbered += sum(event.count for stream in self.streams.values() for event in stream.sent)
        return numbered + sum(
            event.count for events in self.unnumbered_sent.values() for event in events
        )

    def entries(self) -> Iterable[Entry]:
        """All lives of all sender entries."""
        return (entry for connection in self.connections.values() for entry in connection.entries)

    def epochs(self) -> Iterable[Epoch]:
        """All lives of all receive windows."""
        return (epoch for connection in self.connections.values() for epoch in connection.epochs)

    @property
    def streams(self) -> dict[int, Stream]:
        """What each member multicast, by its short id."""
        return self.groups.streams

    @property
    def has_group(self) -> bool:
        """Whether anyone was a member of a group."""
        return any(member.views for member in self.members.values())

    @property
    def begin(self) -> float:
        """When the run began, on the clock of the traces: as the rig says, or with the first
        event."""
        for number, event in enumerate(self.rig.events):
            if event.kind == PHASE and self.rig.texts.get(number) == "begin":
                return event.time
        return min((member.started for member in self.members.values()), default=0.0)

    @property
    def did_anything(self) -> bool:
        """Whether the rig did anything to the network or to a member."""
        return any(event.kind == FAULT for event in self.rig.events)

    def find(self, short: int) -> Member:
        """A member by its short id, or a stand-in for one that left no trace."""
        member = self.members.get(short) or self._unknown.get(short)
        if member is None:
            member = self._unknown[short] = Member(f"{short:x}", short)
            member.ended = -inf
        return member

    def sent_elsewhere(self, epoch: Epoch, delivered: Event) -> tuple[Connection, Event] | None:
        """Another connection of the same pair on which a delivery was sent, and its batch."""
        here = epoch.connection
        for connection in self.connections.values():
            if connection.sender is here.sender and connection.receiver is here.receiver:
                entry = connection.origin(delivered) if connection is not here else None
                batch = entry.batch_at(delivered.lo) if entry else None
                if batch is not None:
                    return connection, batch
        return None

    # -- Reading -----------------------------------------------------------------------------

    def _read(self, label: str, data: bytes) -> None:
        member: Member | None = None
        try:
            for block in read_blocks_untrusted(data, self.hash64):
                if member is None:
                    member = Member(label, block.member)
                    member.version = block.version
                    self._walls.setdefault(block.member, block.wall_ns)
                _add_block(member, block)
        except (BadTrace, IndexError) as error:
            if member is None or not str(error).startswith("torn"):
                self.defects.append(f"{label}: {error}")
                return
            self._torn[member.short] = str(error)
        if member is None:
            self.defects.append(f"{label}: empty trace")
        elif member.short == RIG:
            self.rig = member
        elif member.short in self.members:
            self.defects.append(f"{label}: the same member as {self.members[member.short].label}")
        else:
            self.members[member.short] = member
            self._introduce(member)

    def _align_clocks(self) -> None:
        """Members of other hosts have clocks with other zeros: make all times those of the rig,
        as far as wall clocks agree."""
        if RIG not in self._walls:
            return
        for member in self.members.values():
            apart = (self._walls[member.short] - self._walls[RIG]) / 1e9
            if abs(apart) > APART_SECONDS:
                member.events = [event._replace(time=event.time + apart) for event in member.events]
                member.started += apart
                member.intervals = [(at + apart, value) for at, value in member.intervals]

    def _introduce(self, member: Member) -> None:
        """Who a member is and what it promises, from its first event."""
        first = member.events[0]
        words = member.texts.get(0, "").split(" ", 2)
        if first.kind != START or len(words) != 3:  # noqa: PLR2004 name, identity, settings
            self.defects.append(f"{member.label}: does not begin with its start")
            return
        member.name = words[0]
        member.started = first.time
        self._try(member, words[2], lambda settings: self._settle(member, settings))

    @staticmethod
    def _settle(member: Member, settings: dict[str, Any]) -> None:
        """What a member's settings say."""
        member.bounds.update(settings.get("bounds") or {})
        member.protocols.update(settings.get("protocols") or {})
        for protocol in MULTICAST:
            values = member.protocols.get(wire.PROTOCOLS[protocol])
            if values is not None:
                interval = values.get("xmit_interval")
                member.intervals.append(
                    (member.started, None if interval is None else float(interval))
                )

    def _try(self, member: Member, text: str, use: Callable[[Any], None]) -> None:
        """Use a text that should be a JSON object; one that is not is a defect of its trace."""
        try:
            use(json.loads(text))
        except (ValueError, KeyError, AttributeError) as error:
            self.defects.append(
                f"{member.label}: {text[:40]!r} does not say what it should: {error!r}"
            )

    # -- The rig -----------------------------------------------------------------------------

    def _index_rig(self) -> None:
        for number, event in enumerate(self.rig.events):
            text, time = self.rig.texts.get(number, ""), event.time
            if event.kind == FAULT:
                self._try(self.rig, text, lambda fault, time=time: self._fault(fault, time))  # type: ignore[misc]
            elif event.kind == PROBE:
                self._try(self.rig, text, self._probe)
            elif event.kind == PHASE and text == "quiet":
                self.quiet = time
            elif event.kind == PHASE and text == "end":
                self.end = time

        for hold in self._holds:
            hold.note(inf)

    def _probe(self, probe: dict[str, Any]) -> None:
        self.probes.append(Probe(str(probe["id"]), str(probe["do"]), int(probe["bit"])))

    def _fault(self, fault: dict[str, Any], time: float) -> None:
        """What was done to a member; faults of the network only matter by their effect."""
        do = fault["do"]
        if fault["phase"] == "on":
            self.standing[fault["id"]] = do
            if do in _COPIES:
                self.most_copies += int(fault.get("copies", 1))
        else:
            self.standing.pop(fault["id"], None)
        self._release(fault, time)
        member = self.members.get(fault.get("member", RIG))
        if member is None or fault["phase"] != "on":
            return
        if do in _KILLS:
            self._killed.add(member.short)
            member.ended = min(member.ended, time)
        elif do in _UNDONE_BY:
            self._holds.append(_Hold(fault["id"], do, member, time))
        elif do == _CHANGES_SETTINGS:
            # Its START tells what was promised before; what is promised now is written nowhere.
            member.bounds.clear()
            for settings in member.protocols.values():
                settings.pop("bounds", None)
            self._change(member, fault, time)

    @staticmethod
    def _change(member: Member, fault: dict[str, Any], time: float) -> None:
        """A setting that changed: whether its member still repairs multicasts."""
        protocol, _, name = str(fault.get("attribute", "")).rpartition(".")
        if not member.intervals or (name and name != "xmit_interval"):
            return
        value = fault.get("value")
        if protocol and not protocol.startswith(_MULTICAST_NAMES):
            return
        try:
            interval = SETTING_DURATION.parse(value) if isinstance(value, str) else value
        except (ValueError, NodeError):
            interval = None
        member.intervals.append((time, None if interval is None else float(interval)))

    def _release(self, fault: dict[str, Any], time: float) -> None:
        """End the pauses and stalls that a fault undoes: by their id, or all of a kind."""
        for hold in list(self._holds):
            is_named = fault["phase"] == "off" and fault["id"] == hold.fault
            is_undone = fault["do"] == _UNDONE_BY[hold.do]
            if (is_named or is_undone) and fault.get("member") in (None, hold.member.short):
                self._holds.remove(hold)
                hold.note(time)

    def _end_replaced(self) -> None:
        """A member whose name starts again is gone, whatever the rig knows of it."""
        newest: dict[str, Member] = {}
        # Of two that started at once, the one that the rig killed was the first.
        by_age = sorted(self.members.values(), key=lambda each: (each.started, each.ended))
        for member in by_age:
            if before := newest.get(member.name):
                before.ended = min(before.ended, member.started)
            newest[member.name] = member
        names = [member.name for member in self.members.values()]
        for member in self.members.values():
            if names.count(member.name) > 1:
                member.name = member.label

    # -- Members -----------------------------------------------------------------------------

    def _index_member(self, member: Member) -> None:
        open_entries: dict[tuple[int, int], Entry] = {}
        epochs: dict[tuple[int, int, int], Epoch] = {}
        me = member.short
        for number, event in enumerate(member.events):
            kind = event.kind
            if kind in _OF_APPLICATION:
                self.application.note(member, event)
            if event.protocol in MULTICAST and kind not in _OF_NO_STREAM:
                self.groups.note(member, number, event)
            elif kind in _BY_SENDER:
                if event.protocol == UNNUMBERED:
                    self.unnumbered_sent.setdefault((me, event.peer), []).append(event)
                else:
                    self._note_sending(self._entry(member, open_entries, event), event)
            elif kind in _BY_RECEIVER:
                if event.protocol == UNNUMBERED:
                    self.unnumbered_delivered.setdefault((me, event.peer), []).append(event)
                else:
                    self._note_receiving(self._epoch(member, epochs, event), event)
            elif kind == CONN and event.stream in _SENDER_STATES:
                noted = Noted(number, event, member.texts.get(number, ""))
                self._note_sender_state(member, open_entries, noted)
            elif kind == CONN:
                noted = Noted(number, event, member.texts.get(number, ""))
                self._note_epoch_state(self._epoch(member, epochs, event), noted)
            else:
                self._note_rare(member, number, event)

    def _note_rare(self, member: Member, number: int, event: Event) -> None:
        if event.kind == GAUGE:
            self.gauges.append((member, event))
        elif event.kind == VIEW:
            # A view without a creator was handed in, in place of a membership protocol.
            if event.peer and (defect := self.groups.note_view(member, number, event)):
                self.defects.append(defect)
        elif event.kind == SYNC:
            self.syncs.setdefault((member.short, event.peer), []).append(event)
        elif event.kind == STOP:
            member.ended = min(member.ended, event.time)

    def _connection(self, sender: Member, receiver: Member, conn: int) -> Connection:
        key = sender.short, receiver.short, conn
        connection = self.connections.get(key)
        if connection is None:
            connection = self.connections[key] = Connection(sender, receiver, conn)
        return connection

    def _entry(
        self, member: Member, open_entries: dict[tuple[int, int], Entry], event: Event
    ) -> Entry:
        key = event.peer, event.conn
        entry = open_entries.get(key)
        if entry is None:
            connection = self._connection(member, self.find(event.peer), event.conn)
            entry = open_entries[key] = Entry(connection, event.time)
            connection.entries.append(entry)
        return entry

    def _epoch(
        self, member: Member, epochs: dict[tuple[int, int, int], Epoch], event: Event
    ) -> Epoch:
        key = event.peer, event.conn, event.epoch
        epoch = epochs.get(key)
        if epoch is None:
            connection = self._connection(self.find(event.peer), member, event.conn)
            epoch = epochs[key] = Epoch(connection, event.epoch)
            connection.epochs.append(epoch)
        return epoch

    @staticmethod
    def _note_sending(entry: Entry, event: Event) -> None:
        entry.activity.append(event)
        if event.kind == SENT:
            entry.sent.append(event)
            entry.lows.append(event.lo)
        elif event.kind == PURGED:
            entry.purged.append(event)

    @staticmethod
    def _note_receiving(epoch: Epoch, event: Event) -> None:
        kind = event.kind
        if kind == DELIVERED:
            epoch.delivered.append(event)
        elif kind == ACKED:
            epoch.acked.append(event)
        elif kind == REQUESTED:
            epoch.requested.append(event)
        else:
            epoch.skipped.append(event)

    def _note_sender_state(
        self, member: Member, open_entries: dict[tuple[int, int], Entry], noted: Noted
    ) -> None:
        """An entry that closes and re-opens is the same one; after its removal a new one begins."""
        self._entry(member, open_entries, noted.event).states.append(noted)
        if noted.event.stream == SENDER_REMOVED:
            del open_entries[noted.event.peer, noted.event.conn]

    @staticmethod
    def _note_epoch_state(epoch: Epoch, noted: Noted) -> None:
        if noted.event.stream == RECEIVER_OPEN and epoch.opened is None:
            epoch.opened = noted
        elif noted.event.stream == RECEIVER_REMOVED:
            epoch.removed = noted

    # -- Both sides --------------------------------------------------------------------------

    def _match_deliveries(self) -> None:
        """Say of each delivery which entry sent it; of multicasts, whether anyone did."""
        self.groups.match()
        for connection in self.connections.values():
            for epoch in connection.epochs:
                for event in epoch.delivered:
                    entry = connection.origin(event)
                    if entry is None:
                        epoch.strange.append(event)
                    else:
                        entry.delivered.append((epoch, event))
            for entry in connection.entries:
                entry.delivered.sort(key=lambda pair: pair[1].time)

    def _find_defects(self) -> None:
        if not self.members:
            self.defects.append("no member left a trace")
        if self.end == inf:
            self.defects.append("the rig recorded no end of the run")
        for short, reason in self._torn.items():
            if short not in self._killed:
                label = self.members[short].label if short in self.members else "rig"
                self.defects.append(f"{label}: {reason}")
        if not self.defects:
            self._miss_traces()

    def _miss_traces(self) -> None:
        """Whoever acked or sent was there, and must have left a trace."""
        spoke = {entry.connection.receiver.label for entry in self.entries() if entry.purged}
        spoke |= {epoch.connection.sender.label for epoch in self.epochs() if epoch.delivered}
        spoke |= {self.find(sender).label for _receiver, sender in self.unnumbered_delivered}
        spoke |= {
            window.stream.sender.label for window in self.groups.windows() if window.delivered
        }
        for member in self._unknown.values():
            if member.label in spoke:
                self.defects.append(f"{member.label} was heard and left no trace")
