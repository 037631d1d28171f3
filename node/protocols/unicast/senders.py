"""The life of sender entries: opened by a message, closed, aged, removed."""

from __future__ import annotations

from stormcast.node import trace
from stormcast.node.core import wire
from stormcast.node.core.window import SendWindow
from stormcast.node.protocols.port import Abandoned
from stormcast.node.protocols.unicast.entries import Batch, SenderEntry, State
from stormcast.node.protocols.unicast.lifetimes import Lifetimes
from stormcast.node.protocols.unicast.state import Connections
from stormcast.node.protocols.windowed import unconfirmed


class Senders:
    """Opens, closes and removes sender entries."""

    def __init__(self, state: Connections, lifetimes: Lifetimes) -> None:
        self._state = state
        self._lifetimes = lifetimes
        self._entries = state.senders
        self._port = state.port
        self._protocol = state.generation.protocol
        self._flushes = state.config.historical.flush_on_close

    def open(self, peer: int, now: float) -> SenderEntry:
        """Open a connection to a peer."""
        state = self._state
        window: SendWindow[Batch] = SendWindow(
            state.config.window_messages, state.config.window_bytes
        )
        entry = SenderEntry(peer, state.next_conn(), now, state.round_trip(peer), window)
        self._entries[peer] = entry
        self._lifetimes.note_state(entry, State.OPEN, trace.SENDER_OPEN, "", now)
        return entry

    def reopen(self, entry: SenderEntry, reason: str, now: float) -> None:
        """Re-open a closing entry that is in use again."""
        self._lifetimes.note_state(entry, State.OPEN, trace.SENDER_OPEN, reason, now)

    def close(self, entry: SenderEntry, reason: str, now: float) -> None:
        """Start closing: what is unacked is still flushed, and a new message re-opens."""
        if not self._flushes:
            self.remove(entry, reason, now)
        elif entry.state is State.OPEN:
            self._lifetimes.note_state(entry, State.CLOSING, trace.SENDER_CLOSING, reason, now)

    def end(self, entry: SenderEntry, reason: str, now: float) -> None:
        """Remove an entry, and tell the peer (CLOSE) to remove its window: whether the peer is a
        member or not, nothing else may ever end that window."""
        self.remove(entry, reason, now)
        frame = self._port.codec.pack_control(wire.CLOSE, self._protocol, entry.peer, entry.conn, 0)
        self._port.frames.append((entry.peer, frame, b""))

    def remove(self, entry: SenderEntry, reason: str, now: float) -> None:
        """Forget a connection, and give up what is unacked."""
        self._lifetimes.end(entry)
        del self._entries[entry.peer]
        # At once: nothing else will ever say so.
        self._port.closed.append(entry.peer)
        self._abandon(entry, reason, now)
        unacked = len(entry.window)
        self._lifetimes.record(entry, trace.SENDER_REMOVED, reason, now, unacked)

    def _abandon(self, entry: SenderEntry, reason: str, now: float) -> None:
        """Report the unacked messages, which are given up with their connection (G1)."""
        window = entry.window
        if window.low == window.high:
            return
        count, last = unconfirmed(window)
        self._port.abandoned.append(Abandoned(entry.peer, count, reason, last))
        self._port.tracer.record(
            trace.ABANDONED,
            now,
            protocol=self._protocol,
            peer=entry.peer,
            conn=entry.conn,
            count=count,
            lo=window.low + 1,
            hi=window.high,
            text=reason,
        )

    def on_view(self, members: frozenset[int], now: float) -> None:
        """Close entries of peers that are not in the view, re-open those of peers that are back."""
        for entry in list(self._entries.values()):
            if entry.peer in members:
                if entry.state is State.CLOSING:
                    self.reopen(entry, "view", now)
            elif self._state.generation.closes_at_once:
                self.end(entry, "view", now)
            else:
                self.close(entry, "view", now)
                # An entry that was closing before ages from now on.
                self._lifetimes.schedule(entry, now)

    def expire(self, entry: SenderEntry, now: float) -> None:
        """Close or end an entry that was unused, or unanswered, for too long."""
        if self._entries.get(entry.peer) is not entry:
            # Its removal had failed half-way.
            return
        lifetimes = self._lifetimes
        if lifetimes.is_aged(entry, now):
            self.end(entry, "aged", now)
        elif lifetimes.is_idle(entry, now):
            self.close(entry, "idle", now)
        elif lifetimes.is_flushed(entry, now):
            self.end(entry, "closed", now)
        if self._entries.get(entry.peer) is entry:
            lifetimes.schedule(entry, now)
