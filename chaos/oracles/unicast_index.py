"""Indexes the events of unicasts: connections, the lives of both their ends, and syncs."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Final

from stormcast.chaos.oracles.history import Connection, Epoch, Member, Noted, SenderLife
from stormcast.node.trace import (
    ABANDONED,
    ACKED,
    CONN,
    DELIVERED,
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
    SYNC,
    Event,
)

_BY_SENDER: Final = frozenset({SENT, PURGED, RETRANSMITTED})
_BY_RECEIVER: Final = frozenset({DELIVERED, ACKED, REQUESTED, SKIPPED})
_SENDER_STATES: Final = frozenset({SENDER_OPEN, SENDER_CLOSING, SENDER_REMOVED})


class UnicastIndex:
    """The index of unicasts. It is fed with the events of one member after another, in order."""

    def __init__(self, find: Callable[[int], Member]) -> None:
        self._find = find
        self.connections: dict[tuple[int, int, int], Connection] = {}
        """By sender, receiver and connection id."""
        self.syncs: dict[tuple[int, int], list[Event]] = {}
        """SEND_FIRST_SEQNO requests, by asking member and peer."""
        self._open: dict[tuple[int, int, int], SenderLife] = {}
        """By sender, receiver and connection id: entries that are not removed yet."""
        self._epochs: dict[tuple[int, int, int, int], Epoch] = {}
        """By receiver, sender, connection id and number."""
        self._listening: dict[tuple[int, int], Epoch] = {}
        """By receiver and sender: the window opened last, while it is there."""

    def open_window(self, member: Member, sender: int) -> Epoch | None:
        """Return the window that a member has for somebody's unicasts, as far as it was read."""
        return self._listening.get((member.short, sender))

    def entries(self) -> Iterator[SenderLife]:
        """Return all lives of all sender entries."""
        return (entry for connection in self.connections.values() for entry in connection.entries)

    def epochs(self) -> Iterator[Epoch]:
        """Return all lives of all receive windows."""
        return (epoch for connection in self.connections.values() for epoch in connection.epochs)

    def sent_elsewhere(self, epoch: Epoch, delivered: Event) -> tuple[Connection, Event] | None:
        """Return another connection of the pair on which a delivery was sent, and the batch."""
        here = epoch.connection
        for connection in self.connections.values():
            if connection.sender is here.sender and connection.receiver is here.receiver:
                entry = connection.origin(delivered) if connection is not here else None
                batch = entry.batches.at(delivered.lo) if entry else None
                if batch is not None:
                    return connection, batch
        return None

    def match(self) -> None:
        """Assign each delivery to the entry that sent it, or to the strange ones of its epoch."""
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

    def note(self, member: Member, number: int, event: Event) -> None:
        """Note an event of unicasts, or of one end of a connection."""
        kind = event.kind
        if kind in _BY_SENDER:
            _note_sending(self._entry(member, event), event)
        elif kind == ABANDONED:
            self._note_abandoned(member, event)
        elif kind in _BY_RECEIVER:
            _note_receiving(self._epoch(member, event), event)
        elif kind == CONN:
            noted = Noted(number, event, member.texts.get(number, ""))
            if event.stream in _SENDER_STATES:
                self._note_sender_state(member, noted)
            else:
                self._note_epoch_state(self._epoch(member, event), noted)
        elif kind == SYNC:
            self.syncs.setdefault((member.short, event.peer), []).append(event)

    def _connection(self, sender: Member, receiver: Member, conn: int) -> Connection:
        key = sender.short, receiver.short, conn
        connection = self.connections.get(key)
        if connection is None:
            connection = self.connections[key] = Connection(sender, receiver, conn)
        return connection

    def _entry(self, member: Member, event: Event) -> SenderLife:
        key = member.short, event.peer, event.conn
        entry = self._open.get(key)
        if entry is None:
            connection = self._connection(member, self._find(event.peer), event.conn)
            entry = self._open[key] = SenderLife(connection, event.time)
            connection.entries.append(entry)
        return entry

    def _epoch(self, member: Member, event: Event) -> Epoch:
        key = member.short, event.peer, event.conn, event.epoch
        epoch = self._epochs.get(key)
        if epoch is None:
            connection = self._connection(self._find(event.peer), member, event.conn)
            epoch = self._epochs[key] = Epoch(connection, event.epoch)
            connection.epochs.append(epoch)
        return epoch

    def _note_abandoned(self, member: Member, event: Event) -> None:
        connection = self.connections.get((member.short, event.peer, event.conn))
        entries = reversed(connection.entries) if connection is not None else ()
        if (entry := next((one for one in entries if one.sent), None)) is not None:
            entry.tell(event)

    def _note_sender_state(self, member: Member, noted: Noted) -> None:
        """Note a state. An entry that closes and re-opens stays the same; a removal ends it."""
        event = noted.event
        self._entry(member, event).states.append(noted)
        if event.stream == SENDER_REMOVED:
            del self._open[member.short, event.peer, event.conn]

    def _note_epoch_state(self, epoch: Epoch, noted: Noted) -> None:
        pair = epoch.connection.receiver.short, epoch.connection.sender.short
        if noted.event.stream == RECEIVER_OPEN:
            self._listening[pair] = epoch
            epoch.opened = epoch.opened or noted
        elif noted.event.stream == RECEIVER_REMOVED:
            self._listening.pop(pair, None)
            epoch.removed = noted


def _note_sending(entry: SenderLife, event: Event) -> None:
    entry.activity.append(event)
    if event.kind == SENT:
        entry.batches.add(event)
    elif event.kind == PURGED:
        entry.purged.append(event)


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
