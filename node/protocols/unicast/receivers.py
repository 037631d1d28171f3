"""The life of receiver entries, each an epoch: opened by a first frame, closed, removed."""

from __future__ import annotations

from typing import Final

from stormcast.node import trace
from stormcast.node.core.islands import Piece
from stormcast.node.core.timers import AFTER_FAILURE
from stormcast.node.core.window import ReceiveWindow
from stormcast.node.protocols.deliveries import hand_up
from stormcast.node.protocols.unicast.acks import Acks
from stormcast.node.protocols.unicast.entries import Arrival, ReceiverEntry, State
from stormcast.node.protocols.unicast.lifetimes import Lifetimes
from stormcast.node.protocols.unicast.resync import Resync
from stormcast.node.protocols.unicast.state import Connections
from stormcast.node.protocols.unicast.tombstones import Tombstones

WINDOW_ENTRIES: Final = 4
"""Entries that the window of a stranger counts for, besides the batches that it holds."""

_KEEPER: Final = "unicast windows"


class Receivers:
    """Opens, closes and removes receiver entries."""

    def __init__(
        self,
        state: Connections,
        lifetimes: Lifetimes,
        acks: Acks,
        tombs: Tombstones,
        resync: Resync,
    ) -> None:
        self._state = state
        self._lifetimes = lifetimes
        self._acks = acks
        self._tombs = tombs
        self._resync = resync
        self._entries = state.receivers
        self._port = state.port
        self._flushes = state.config.historical.flush_on_close
        self._epochs = 0

    def open(self, peer: int, conn: int, offset: int, now: float) -> ReceiverEntry:
        """Open a window above `offset`, and above what earlier windows of the connection
        delivered."""
        state = self._state
        delivered, places = self._tombs.delivered(peer, conn)
        window: ReceiveWindow[Arrival] = ReceiveWindow(
            max(offset, delivered), state.config.window_messages, state.config.window_bytes
        )
        for lo, hi in places:
            window.hold_place(lo, hi)
        self._epochs += 1
        entry = ReceiverEntry(peer, conn, now, state.round_trip(peer), window, self._epochs)
        entry.is_stranger = state.is_stranger(peer)
        self._entries[peer] = entry
        self._resync.opened(peer)
        self._lifetimes.note_state(entry, State.OPEN, trace.RECEIVER_OPEN, "", now)
        if places and state.is_consuming:
            self.deliver_ready(entry, now)
        if entry.is_stranger:
            self.count_stranger(entry)
        return entry

    def count_stranger(self, entry: ReceiverEntry) -> None:
        """Count what the window of a stranger holds."""
        window = entry.window
        entries = WINDOW_ENTRIES + window.pieces()
        self._port.strangers.keep(entry.peer, _KEEPER, entries, window.bytes)

    def deliver_ready(self, entry: ReceiverEntry, now: float) -> None:
        """Hand up what is next in order."""
        port, lo = self._port, 0
        pieces: list[Piece[Arrival]] = []
        try:
            pieces = entry.window.take_ready()
            for lo, hi, _size, arrival in pieces:
                if arrival is not None:
                    hand_up(port, arrival, lo, hi, entry.conn, entry.epoch, 0, lo - 1, now)
        except BaseException:
            self.hand_up_later(entry, [piece for piece in pieces if piece.lo >= lo], now)
            raise

    def hand_up_later(self, entry: ReceiverEntry, pieces: list[Piece[Arrival]], now: float) -> None:
        """Put back what could not be handed up, for a bug or for want of memory, and try again
        later: its sender may not have it any more."""
        entry.window.put_back(pieces)
        self._state.looks.set_earlier(entry, now + AFTER_FAILURE)

    def reopen(self, entry: ReceiverEntry, reason: str, now: float) -> None:
        """Re-open a closing entry that is in use again."""
        self._lifetimes.note_state(entry, State.OPEN, trace.RECEIVER_OPEN, reason, now)

    def close(self, entry: ReceiverEntry, reason: str, now: float) -> None:
        """Start closing: what is missing is still asked for, and a new message re-opens."""
        if not self._flushes:
            self.remove(entry, reason, now)
        elif entry.state is State.OPEN:
            self._lifetimes.note_state(entry, State.CLOSING, trace.RECEIVER_CLOSING, reason, now)

    def remove(self, entry: ReceiverEntry, reason: str, now: float) -> None:
        """Remove an entry, after handing up what is in order, and acking it (JGRP-1755)."""
        self.deliver_ready(entry, now)
        self._acks.flush(entry, now)
        self._lifetimes.end(entry)
        self._tombs.bury(entry, now)
        del self._entries[entry.peer]
        if entry.is_stranger:
            self._port.strangers.keep(entry.peer, _KEEPER, 0, 0)
        delivered = entry.window.delivered
        self._lifetimes.record(entry, trace.RECEIVER_REMOVED, reason, now, delivered)

    def forget_stranger(self, peer: int, now: float) -> None:
        """Give up the window of a stranger: its sender still has all of it that was not acked. What
        the application has yet to take was acked, and stays."""
        entry = self._entries.get(peer)
        if entry is not None and entry.is_stranger and not entry.is_untaken():
            self._port.drop("stranger-window")
            self.remove(entry, "too much of strangers", now)

    def on_view(self, members: frozenset[int], now: float) -> None:
        """Close entries of peers that are not in the view, re-open those of peers that are back."""
        for entry in list(self._entries.values()):
            was_stranger = entry.is_stranger
            entry.is_stranger = self._state.is_stranger(entry.peer)
            if entry.is_stranger:
                self.count_stranger(entry)
            elif was_stranger:
                self._acks.repace(entry, now)
            if entry.peer in members:
                if entry.state is State.CLOSING:
                    self.reopen(entry, "view", now)
            elif self._state.generation.closes_at_once:
                self.remove(entry, "view", now)
            else:
                self.close(entry, "view", now)

    def expire(self, entry: ReceiverEntry, now: float) -> None:
        """Close or remove an entry that was unused for too long."""
        if self._entries.get(entry.peer) is not entry:
            # Its removal had failed half-way.
            return
        lifetimes = self._lifetimes
        if lifetimes.is_idle(entry, now):
            self.close(entry, "idle", now)
        elif lifetimes.is_flushed(entry, now):
            self.remove(entry, "closed", now)
        if self._entries.get(entry.peer) is entry:
            lifetimes.schedule(entry, now)
