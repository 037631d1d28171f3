"""Acks say what a receiver has: sent at the end of a turn, or when the spacing of acks allows."""

from __future__ import annotations

from math import inf

from stormcast.node.core import wire
from stormcast.node.core.strangers import BEGUN_SECONDS
from stormcast.node.protocols.unicast.entries import ReceiverEntry
from stormcast.node.protocols.unicast.state import Connections


class Acks:
    """Sends the acks of all receiver entries; a generation's reports say when."""

    def __init__(self, state: Connections) -> None:
        self.wanted: list[ReceiverEntry] = []
        """The entries to ack at the end of this turn; always the same list."""
        self._state = state
        self._protocol = state.generation.protocol
        self._asks_for_gaps = state.generation.asks_for_gaps
        self._of_delivered = state.generation.acks_delivered
        self.last_kind = state.generation.last_ack
        """The frame kind of an ack that is sent late, or as the last one."""
        self._names_conn = state.config.historical.conn_ids != "first"
        self._port = state.port
        self._pacer = state.pacer
        self._looks = state.looks

    def value(self, entry: ReceiverEntry) -> int:
        """Return the seqno that an ack reports: the highest received in order (JGRP-1664), consumed
        or not; in generations that ack what was delivered, the highest delivered."""
        return entry.window.delivered if self._of_delivered else entry.window.deliverable

    def soon(self, entry: ReceiverEntry) -> None:
        """Ack at the end of this turn: one ack for all that arrives in it."""
        if not entry.acks.is_wanted:
            entry.acks.is_wanted = True
            self.wanted.append(entry)

    def later(self, entry: ReceiverEntry, now: float) -> None:
        """Ack at the next tick, or when the spacing of acks allows."""
        acks = entry.acks
        if entry.ack_due == inf and not acks.is_wanted:
            due = self._pacer.ack_at(now, acks.sent_at)
            if due <= now:
                self.soon(entry)
            else:
                entry.ack_due = due
                self._looks.set_earlier(entry, due)

    def send(self, entry: ReceiverEntry, now: float, kind: int = wire.ACK) -> None:
        """Send an ack now, or a STABLE, which says the same."""
        value = self.value(entry)
        transmission = entry.acks.note_sent(value, now)
        entry.unacked_bytes = 0
        entry.ack_due = inf
        port, peer = self._port, entry.peer
        port.tracer.acked(
            now,
            protocol=self._protocol,
            kind=kind,
            peer=peer,
            conn=entry.conn,
            epoch=entry.epoch,
            seqno=value,
        )
        frame = port.codec.pack_control(
            kind,
            self._protocol,
            peer,
            entry.conn if self._names_conn else 0,
            value,
            transmission=transmission,
            mark=entry.window.seen,
            stamp=self._state.next_stamp(),
        )
        port.frames.append((peer, frame, b""))

    def flush(self, entry: ReceiverEntry, now: float) -> None:
        """Send the pending ack of an entry that is removed: none will be sent for it later."""
        acks = entry.acks
        # A stalled receiver may have acked, so that nothing counts as unacked, and then handed up
        # the rest.
        is_late = self.value(entry) > max(acks.value, 0)
        if is_late or acks.unacked or entry.ack_due != inf or acks.is_wanted:
            self.send(entry, now, self.last_kind)
        acks.is_wanted = False

    def finish_turn(self, now: float) -> None:
        """Send the acks that this turn asked for."""
        for entry in self.wanted:
            if entry.acks.is_wanted:
                entry.acks.is_wanted = False
                self.send_paced(entry, now)
        # Last: where one of them fails, the others leave in the next turn.
        self.wanted.clear()

    def repace(self, entry: ReceiverEntry, now: float) -> None:
        """Move an ack that waits to when the spacing of acks allows it: it may wait for longer, by
        an interval that was changed, or because its sender was a stranger."""
        if now < entry.ack_due < inf:
            entry.ack_due = self._pacer.ack_at(now, entry.acks.sent_at)
            self._looks.set_earlier(entry, entry.ack_due)

    def send_paced(self, entry: ReceiverEntry, now: float, kind: int = wire.ACK) -> None:
        """Send an ack now; to a stranger later, if strangers were told too much lately."""
        if entry.is_stranger and self._is_asked_instead(entry):
            entry.ack_due = inf
            return
        said = self._port.strangers.said
        if not entry.is_stranger or said.admits_for(entry.peer, now):
            self.send(entry, now, kind)
        else:
            entry.ack_due = said.since + BEGUN_SECONDS
            self._looks.set_earlier(entry, entry.ack_due)

    def _is_asked_instead(self, entry: ReceiverEntry) -> bool:
        """Whether a stranger needs no ack, because it is asked for what is missing and the ack
        would say what the last one said. It may be sent no more frames than it sends: each frame
        that repeats an ack would take the place of a request."""
        is_known = self.value(entry) == entry.acks.value
        return is_known and self._asks_for_gaps and entry.window.has_gap()
