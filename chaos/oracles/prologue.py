"""The prologue of a trace: the past of a run up to a moment of rest, told in a few events.

A run that never ends is judged in parts. Each begins with a prologue, so that checks, which know
only whole runs, need not know of parts: the start of each member, its view, its connections, and
for each of these one batch with all that was sent, delivered and dropped by then. Such a batch is
marked as a piece (FRAGMENT) of no message, and takes no credits (NO_FC): so it is no message to the
application, nor to flow control, whose counts begin anew.

A prologue is true only where all before it was judged, and holds, and nothing is under way
(`rest.py`).
"""

from __future__ import annotations

import json
from collections.abc import Container, Mapping
from dataclasses import dataclass, field
from math import inf
from typing import Any, Final

from stormcast.chaos.oracles.application import last_number
from stormcast.chaos.oracles.evidence import Evidence
from stormcast.chaos.oracles.groups import MULTICAST, Stream
from stormcast.chaos.oracles.history import Member, SenderLife
from stormcast.chaos.oracles.lives import CHANGES_SETTINGS
from stormcast.chaos.oracles.rest import goes_on, is_kept, is_muted, offered_upto
from stormcast.chaos.oracles.rig_record import SLOW_NETWORK
from stormcast.node.core.codec import Hash64
from stormcast.node.core.model import DONT_LOOPBACK, FRAGMENT, NO_FC, OOB
from stormcast.node.trace import (
    ABANDONED,
    ACKED,
    BELIEVED,
    CONN,
    CREDIT,
    DELIVERED,
    EXIT,
    FAULT,
    FREEZE,
    NAMED,
    OFFERED,
    PARTIAL,
    PURGED,
    REQUESTED,
    SENT,
    SKIPPED,
    START,
    STOP,
    SYNC,
    VIEW,
    WHOLE,
    Event,
    pack_block,
    pack_text,
)

REMEMBERED: Final = 300.0
"""Seconds for which the start and the end of a member that is gone are told: for so long others may
still send to it."""
OF_MEMBERS: Final = frozenset(
    {"crash", "restart", "leave", "join", "pause", "resume", "stall", "consume"}
)
"""Faults of a member. One that struck nobody, because the member meant was down, does not stand."""
_BLANK: Final = Event(0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0.0)
_BY_RECEIVER: Final = frozenset({CONN, DELIVERED, ACKED, REQUESTED, SYNC, SKIPPED})
"""What a receiver does about a connection."""
_FLAGS: Final = FRAGMENT | NO_FC


@dataclass(slots=True)
class Told:
    """The events of one trace, in order, with their texts."""

    short: int
    events: list[Event] = field(default_factory=list)
    texts: list[str] = field(default_factory=list)
    view: int = 0
    """The view that the member holds: its number is written into each event that names a view."""

    def note(self, event: Event, text: str = "") -> None:
        """Add an event."""
        if text:
            self.texts.append(text)
        if event.view:
            event = event._replace(view=self.view)
        self.events.append(event._replace(text=len(self.texts) if text else 0))

    def packed(self, wall_ns: int, ahead: float, hash64: Hash64) -> bytes:
        """Return the block of the events. The clock of the rig is `ahead` of the member's own."""
        records = [event._replace(time=event.time - ahead) for event in self.events]
        heap = b"".join(map(pack_text, self.texts))
        return pack_block(self.short, 0, wall_ns, records, heap, hash64)


def prologue(evidence: Evidence, at: float) -> dict[str, Told]:
    """Return the prologue of what follows a moment of rest, by label; the rig's is "rig"."""
    members = [one for one in evidence.members.values() if one.ended >= at - REMEMBERED]
    told = {member.short: _introduce(member, at) for member in members}
    for stream in evidence.groups.streams.values():
        if stream.sender.lives:
            _tell_stream(stream, evidence, told, at)
    for entry in evidence.unicasts.entries():
        if goes_on(entry):
            _tell_entry(entry, told, at)
        elif is_kept(entry) and entry.connection.receiver.short in told:
            _tell_kept(entry, told)
    for member in members:
        if member.lives:
            _tell_offered(evidence, member, told[member.short], at)
        elif member.events[-1].kind == STOP:
            told[member.short].note(member.events[-1])
    _tell_credits(evidence, told, at)
    found = {evidence.members[short].label: one for short, one in told.items()}
    return {**found, "rig": _tell_rig(evidence, set(told))}


def _introduce(member: Member, at: float) -> Told:
    """Begin the prologue of a member with its start, and where it lives with its view."""
    told = Told(member.short)
    first = member.events[0]
    assert first.kind == START, "a trace that does not begin so is a defect"
    told.note(first, member.texts[0])
    if not member.lives:
        return told
    last: dict[int, int] = {}
    """The number of the last event of some kinds."""
    for number, event in enumerate(member.events):
        if event.kind in (VIEW, FREEZE):
            last[event.kind] = number
    if VIEW in last:
        number = last[VIEW]
        told.view = member.events[number].lo & 0xFFFFFFFF
        told.note(member.events[number]._replace(time=at), member.texts.get(number, ""))
    if FREEZE in last and member.events[last[FREEZE]].lo:
        told.note(member.events[last[FREEZE]]._replace(time=at))
    return told


# -- Multicasts ------------------------------------------------------------------------------------


def _tell_stream(stream: Stream, evidence: Evidence, told: dict[int, Told], at: float) -> None:
    """Tell the windows on what a member multicasts; what it has multicast by now, all of it in the
    view that it holds; and who has it."""
    sender = stream.sender
    sent = _batch(stream.sent[-1], stream.high, at) if stream.sent else None
    if sent is not None:
        told[sender.short].note(sent)
    for receiver in evidence.members.values():
        window = stream.current(receiver)
        if not receiver.lives or (window is None and receiver is not sender):
            continue
        if window is not None and window.opened is not None:
            told[receiver.short].note(window.opened.event._replace(time=at), window.opened.text)
            asked = evidence.groups.questions.get((receiver.short, sender.short), ())
            for question in [one for one in asked if one.epoch == window.number][-1:]:
                told[receiver.short].note(question._replace(time=at))
        offset, epoch = (window.offset, window.number) if window is not None else (0, 0)
        delivered = _delivery(sent, sender, epoch, offset + 1) if sent is not None else None
        if delivered is not None:
            told[receiver.short].note(delivered)
        if window is not None and window.acked:
            told[receiver.short].note(window.acked[-1]._replace(time=at))
    if sent is not None:
        purged = max((purge.hi for _place, purge in stream.purged), default=0)
        _tell_purge(told[sender.short], sent, purged)


# -- Unicasts --------------------------------------------------------------------------------------


def _tell_entry(entry: SenderLife, told: dict[int, Told], at: float) -> None:
    """Tell what a member sent to another on a connection that goes on."""
    connection = entry.connection
    ours, theirs = told[connection.sender.short], told[connection.receiver.short]
    for state in entry.states[-1:]:
        ours.note(state.event._replace(time=at), state.text)
    epoch = connection.epochs[-1] if connection.epochs else None
    if epoch is not None and epoch.opened is not None:
        theirs.note(epoch.opened.event._replace(time=at), epoch.opened.text)
    if not entry.sent:
        return
    sent = _batch(entry.sent[-1], entry.sent[-1].hi, at)
    if all(is_muted(entry, one) for one in entry.sent):
        ours.note(sent._replace(flags=sent.flags | DONT_LOOPBACK))
    else:
        ours.note(sent)
        number = epoch.number if epoch is not None else 0
        delivered = _delivery(sent, connection.sender, number, 1)
        assert delivered is not None, "an entry that has sent begins at 1"
        theirs.note(delivered)
    if epoch is not None and epoch.acked:
        theirs.note(epoch.acked[-1]._replace(time=at))
    if epoch is not None and epoch.removed is not None:
        theirs.note(epoch.removed.event._replace(time=at), epoch.removed.text)
    _tell_purge(ours, sent, max((purge.hi for purge in entry.purged), default=0))


def _tell_kept(entry: SenderLife, told: dict[int, Told]) -> None:
    """Tell what a member sent to one that is gone, and what passed between them: in one batch what
    it had sent when last all of that was acked, and all that happened since. It says until when
    what is left may be repeated."""
    connection = entry.connection
    sender, receiver = connection.sender, connection.receiver
    ours, theirs = told[sender.short], told[receiver.short]
    for state in entry.states:
        ours.note(state.event, state.text)
    reached, settled_at, rest = _settled(entry)
    epochs = [epoch for epoch in connection.epochs if epoch.opened_at <= settled_at]
    if epochs and epochs[-1].opened is not None:
        theirs.note(epochs[-1].opened.event, epochs[-1].opened.text)
    if reached:
        # That one may have ended before its last ack was heard.
        sent = _batch(entry.sent[-1], reached, min(settled_at, receiver.ended))
        ours.note(sent)
        number = epochs[-1].number if epochs else 0
        delivered = _delivery(sent, sender, number, 1)
        assert delivered is not None, "something was sent"
        theirs.note(delivered)
        for ack in (epochs[-1].acked if epochs else [])[-1:]:
            theirs.note(ack._replace(lo=reached, time=sent.time))
        ours.note(sent._replace(kind=PURGED, flags=0, digest=0, time=settled_at))
    for event in rest:
        ours.note(_as_piece(event, event) if event.kind == SENT else event)
    since = max(settled_at, entry.sent[0].time)
    for number, event in enumerate(receiver.events):
        is_of_it = (event.peer, event.conn) == (sender.short, connection.conn)
        if is_of_it and event.kind in _BY_RECEIVER and event.protocol not in MULTICAST:
            heard = _since(entry, event, since, reached)
            if heard is not None:
                theirs.note(heard, receiver.texts.get(number, ""))


def _since(entry: SenderLife, event: Event, since: float, reached: int) -> Event | None:
    """Return what a receiver did later than all that is told in one batch; None: it is told."""
    if event.time < since or (event.kind == CONN and event.time == since):
        return None
    upto = {ACKED: event.lo, DELIVERED: event.hi, REQUESTED: event.hi}.get(event.kind)
    if upto is not None and upto <= reached:
        return None
    if event.kind != DELIVERED:
        return event
    batch = entry.batches.origin(event)
    return _as_piece(event, batch) if batch is not None else None


def _settled(entry: SenderLife) -> tuple[int, float, list[Event]]:
    """Return up to which seqno all that had been sent was acked when this was last so, when it was,
    and what the sender did since."""
    high, found = 0, (0, -inf, 0)
    for place, event in enumerate(entry.activity):
        if event.kind == SENT:
            high = event.hi
        elif event.kind == PURGED and event.hi >= high:
            found = (high, event.time, place + 1)
    reached, at, place = found
    return reached, at, entry.activity[place:]


# -- Batches ---------------------------------------------------------------------------------------


def _batch(last: Event, hi: int, at: float) -> Event:
    """Return the one batch in place of all that were sent by `last`. Its digest need only be the
    same at both ends, and another one for each of them."""
    return _BLANK._replace(
        kind=SENT,
        flags=_FLAGS,
        protocol=last.protocol,
        peer=last.peer,
        conn=last.conn,
        view=last.view,
        count=hi,
        lo=1,
        hi=hi,
        digest=last.digest ^ hi,
        time=at,
    )


def _as_piece(event: Event, batch: Event) -> Event:
    """Return a batch, or a delivery of it, as one that is no message to the application."""
    flags = _FLAGS | event.flags & OOB
    return event._replace(flags=flags, digest=batch.digest ^ batch.hi, trim=0)


def _delivery(sent: Event, sender: Member, epoch: int, lo: int) -> Event | None:
    """Return the delivery of such a batch from a seqno on; None: nothing is left of it."""
    if lo > sent.hi:
        return None
    return sent._replace(
        kind=DELIVERED,
        peer=sender.short,
        epoch=epoch,
        lo=lo,
        count=sent.hi - lo + 1,
        stream=WHOLE if lo == sent.lo else PARTIAL,
    )


def _tell_purge(told: Told, sent: Event, upto: int) -> None:
    if upto:
        told.note(sent._replace(kind=PURGED, flags=0, digest=0, count=upto, hi=upto))


# -- Applications and credits ----------------------------------------------------------------------


def _tell_offered(evidence: Evidence, member: Member, told: Told, at: float) -> None:
    """Tell how far the application's messages are counted, and which are done with: at a moment of
    rest none waits but those for members that are gone."""
    for (short, dest), outgoing in evidence.application.outgoing.items():
        if short != member.short:
            continue
        # What left counts, too: a number that was used is not used again.
        done = last_number(outgoing)
        for hi, kind, text in (
            (max(offered_upto(outgoing), done), OFFERED, ""),
            (done, ABANDONED, "told before: all of these left, or were given up"),
        ):
            if hi:
                upto = {"lo": 1, "hi": hi, "count": hi & 0xFFFFFFFF}
                told.note(_BLANK._replace(kind=kind, peer=dest, time=at, **upto), text)


def _tell_credits(evidence: Evidence, told: dict[int, Told], at: float) -> None:
    """Tell the limits that members believe, and those that they may hear of later; all of them were
    named by others."""
    named, believed = list[tuple[Member, Event]](), dict[tuple[int, int, int], Event]()
    living = [member for member in evidence.members.values() if member.lives]
    for member in living:
        for event in member.events:
            if event.kind == CREDIT and event.stream == NAMED:
                named.append((member, event))
            elif event.kind == CREDIT and event.stream == BELIEVED:
                believed[member.short, event.peer, event.protocol] = event
    for member, event in named:
        limit = believed.get((event.peer, member.short, event.protocol))
        if limit is None or event.hi >= limit.hi:
            told[member.short].note(event._replace(time=at))
    shorts = {member.short for member in living}
    for (short, peer, _protocol), limit in believed.items():
        if peer in shorts:
            told[short].note(limit._replace(time=at))


# -- The rig ---------------------------------------------------------------------------------------


def _tell_rig(evidence: Evidence, remembered: set[int]) -> Told:
    """Tell how slow the network is, the faults that stand, the last change of each setting, and who
    was killed lately.

    A death that nobody ordered is a doubt about the chapter in which it was, and no other: from
    then on it is told as a kill.
    """
    told = Told(0)
    trace = evidence.rig.trace
    # What these had acked, and not handed up, may be dropped when that is heard.
    stalled = {
        entry.connection.receiver.short
        for entry in evidence.unicasts.entries()
        if is_kept(entry) and entry.connection.receiver.is_stalled(inf)
    }
    standing = evidence.rig.standing
    kept: dict[tuple[object, ...], int] = {}
    for number, event in enumerate(trace.events):
        if event.kind not in (EXIT, FAULT):
            continue
        said: dict[str, Any] = json.loads(trace.texts.get(number, "{}"))
        key: tuple[object, ...] = ()
        if event.kind == FAULT:
            key = _about(said, remembered, stalled, standing)
        elif said.get("member") in remembered:
            key = ("exit", number) if said["ordered"] else ("end", said["member"])
        if key:
            kept[key] = number
    for number in sorted(set(kept.values())):
        event, text = trace.events[number], trace.texts.get(number, "")
        if event.kind == EXIT and not json.loads(text)["ordered"]:
            member = json.loads(text)["member"]
            kill = {"id": f"died-{member}", "do": "crash", "phase": "on", "member": member}
            event, text = event._replace(kind=FAULT), json.dumps(kill)
        told.note(event, text)
    return told


def _about(
    said: Mapping[str, Any], remembered: set[int], stalled: set[int], standing: Container[str]
) -> tuple[object, ...]:
    """Return what a step of the rig is about, if it is told: the last one about the same is."""
    member, do, begins = said.get("member"), said["do"], said["phase"] == "on"
    if (said["id"], do) == SLOW_NETWORK:
        return ("network",)
    if do == "stall" and member in stalled:
        return ("stall", member) if begins else ()
    if do == CHANGES_SETTINGS:
        return ("setting", member, said.get("attribute")) if member in remembered else ()
    if member is not None:
        return ("end", member) if do in ("crash", "restart") and member in remembered else ()
    is_told = said["id"] in standing and begins and do not in OF_MEMBERS
    return ("standing", said["id"]) if is_told else ()
