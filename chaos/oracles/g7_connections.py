"""G7, connections stay apart: none delivers messages of another, or is purged by its acks."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import accumulate, pairwise

from stormcast.chaos.oracles.evidence import Evidence
from stormcast.chaos.oracles.g6_purge_safety import EarlyPurge, early_purges
from stormcast.chaos.oracles.groups import MULTICAST, Window
from stormcast.chaos.oracles.history import (
    EPSILON,
    Connection,
    Member,
    Noted,
    SenderLife,
    Violation,
)
from stormcast.chaos.oracles.unnumbered_index import UNNUMBERED
from stormcast.node.core.serial import is_newer
from stormcast.node.trace import CONN, DELIVERED, RECEIVER_OPEN, Event


def violations(evidence: Evidence) -> Iterator[Violation]:
    """Deliveries and purges that took effect on another connection than their own."""
    for member in evidence.members.values():
        yield from _went_back(member)
    for connection in evidence.unicasts.connections.values():
        yield from _entries_went_back(connection)
    for epoch in evidence.unicasts.epochs():
        ends = [epoch.removed] if epoch.removed else []
        yield from _late(epoch.connection.receiver, "unicast", ends, epoch.delivered)
        for event in epoch.strange:
            if elsewhere := evidence.unicasts.sent_elsewhere(epoch, event):
                other, batch = elsewhere
                detail = (
                    f"messages of conn {other.conn} were delivered on conn {epoch.connection.conn}"
                )
                yield Violation(
                    event.time, detail, ((other.sender, batch), (epoch.connection.receiver, event))
                )
    for early in early_purges(evidence):
        yield from _purged_by_other(evidence, early)
    for stream in evidence.groups.streams.values():
        for windows in stream.windows.values():
            for window, following in pairwise([*windows.values(), None]):
                assert window is not None, "only the last has nothing after it"
                yield from _outlived(window, following)
                yield from _delivered_of_a_stranger(window)


def _outlived(window: Window, following: Window | None) -> Iterator[Violation]:
    """Multicasts delivered in a window after it was removed, or after the next one opened."""
    ends = [window.removed, following.opened if following else None]
    yield from _late(window.receiver, "multicast", filter(None, ends), window.delivered)


def _late(
    receiver: Member, what: str, ends: Iterable[Noted], delivered: Iterable[Event]
) -> Iterator[Violation]:
    """The first delivery in a window after the first of the events that ended it."""
    end = min(ends, key=lambda noted: noted.number, default=None)
    if end is None:
        return
    # Within one turn the order of the records proves nothing: a window that ends delivers its rest.
    late = next((e for e in delivered if e.time > end.event.time + EPSILON), None)
    if late is not None:
        detail = f"{what} {late.lo} was delivered in a window that had ended"
        yield Violation(late.time, detail, ((receiver, end.event), (receiver, late)))


def _delivered_of_a_stranger(window: Window) -> Iterator[Violation]:
    """Multicasts of a sender that is not in the receiver's view: its window must end with that."""
    receiver, sender = window.receiver, window.stream.sender
    if not receiver.views or window.is_own:
        return
    # A view is over when a later one is there, also where its own time is later still.
    times = [*accumulate((view.time for view in reversed(receiver.views)), min)][::-1]
    at = 0
    for event in window.delivered:
        while at + 1 < len(times) and times[at + 1] <= event.time + EPSILON:
            at += 1
        view = receiver.views[at]
        # Before its first view a member has nobody.
        is_early = event.time < times[0] - EPSILON
        had_it = sender.short in view.members or _had_it_just_now(window, view.place, event.time)
        if had_it and not is_early:
            continue
        detail = f"multicast {event.lo} was delivered of a member that is not in the view"
        yield Violation(event.time, detail, ((receiver, view.event), (receiver, event)))
        return


def _had_it_just_now(window: Window, place: int, time: float) -> bool:
    """Whether a view with the sender was replaced at this very time, within one turn."""
    receiver, sender = window.receiver, window.stream.sender
    views = receiver.views
    # After a pause, a member may install several views in one turn.
    while place > 1 and views[place - 1].time >= time - EPSILON:
        if sender.short in views[place - 1].members:
            return True
        place -= 1
    return (
        place > 0
        and views[place].time >= time - EPSILON
        and sender.short in views[place - 1].members
    )


def _went_back(member: Member) -> Iterator[Violation]:
    """Deliveries of one member on a connection after a newer one of the same sender was opened."""
    newest: dict[int, Event] = {}
    for event in member.events:
        if event.protocol in MULTICAST:
            continue
        if event.kind == CONN and event.stream == RECEIVER_OPEN:
            opened = newest.setdefault(event.peer, event)
            if is_newer(event.conn, opened.conn):
                newest[event.peer] = event
        elif event.kind == DELIVERED:
            opened = newest.get(event.peer, event)
            if is_newer(opened.conn, event.conn) and event.protocol != UNNUMBERED:
                detail = (
                    f"conn {event.conn} delivered after the newer conn {opened.conn} was opened"
                )
                yield Violation(event.time, detail, ((member, opened), (member, event)))


def _entries_went_back(connection: Connection) -> Iterator[Violation]:
    """Deliveries of an entry after one of a later entry, where frames name no connection."""
    for older, newer in pairwise(connection.entries):
        if not newer.delivered:
            continue
        _epoch, first = newer.delivered[0]
        for _epoch, event in older.delivered:
            if event.time > first.time + EPSILON:
                receiver = connection.receiver
                detail = "a message of an earlier connection was delivered after one of the next"
                yield Violation(event.time, detail, ((receiver, first), (receiver, event)))
                break


def _purged_by_other(evidence: Evidence, early: EarlyPurge) -> Iterator[Violation]:
    """An early purge of a seqno that the receiver had, and acked, only on an older connection."""
    entry, purge, seqno, _late = early
    sender, receiver = entry.connection.sender, entry.connection.receiver
    for older in _older_entries(evidence, entry):
        had = next(
            (event for _epoch, event in older.delivered if event.lo <= seqno <= event.hi), None
        )
        if had is None:
            continue
        acks = (ack for epoch in older.connection.epochs for ack in epoch.acked)
        covering = [ack for ack in acks if ack.lo >= seqno and ack.time <= purge.time]
        proof = max(covering, key=lambda ack: ack.time, default=had)
        detail = (
            f"seqno {seqno} of conn {purge.conn} was purged: the receiver had only an older one"
        )
        yield Violation(purge.time, detail, ((receiver, proof), (sender, purge)))
        return


def _older_entries(evidence: Evidence, entry: SenderLife) -> Iterator[SenderLife]:
    """Yield the entries of the pair on older connection ids, and earlier ones on the same id."""
    here = entry.connection
    for connection in evidence.unicasts.connections.values():
        if connection.sender is not here.sender or connection.receiver is not here.receiver:
            continue
        if is_newer(here.conn, connection.conn):
            yield from connection.entries
    yield from here.entries[: here.entries.index(entry)]
