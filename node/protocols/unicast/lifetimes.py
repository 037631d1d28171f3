"""Decides whether an entry is used, and when to check that again."""

from __future__ import annotations

from math import inf, nextafter

from stormcast.node import trace
from stormcast.node.protocols.unicast.entries import Entry, ReceiverEntry, SenderEntry, State
from stormcast.node.protocols.unicast.state import Connections


class Lifetimes:
    """The life of an entry of either half: open, closing, idle, removed."""

    def __init__(self, state: Connections) -> None:
        self._state = state
        self._historical = state.config.historical
        self._waiting = state.port.waiting

    def note_state(self, entry: Entry, state: State, stream: int, reason: str, now: float) -> None:
        """Set the state of an entry that was opened, begins to close, or is in use again."""
        entry.state = state
        entry.last_used = now
        self.record(entry, stream, reason, now)
        self.schedule(entry, now)

    def end(self, entry: Entry) -> None:
        """Cancel the timers of an entry that is removed."""
        self._state.looks.cancel(entry)
        self._state.expiries.cancel(entry)

    def schedule(self, entry: Entry, now: float) -> None:
        """Set when to check whether the entry is idle, flushed, or without an answer."""
        config = self._state.config
        idle = (
            config.conn_expiry_timeout if entry.state is State.OPEN else config.conn_close_timeout
        )
        due = self._used_at(entry, now) + idle if idle > 0 else inf
        if isinstance(entry, SenderEntry) and self._is_ageing(entry):
            due = min(due, entry.unanswered_since(now) + config.max_retransmit_time)
        # Strictly later, so that an entry that stays due cannot keep a tick from ending.
        self._state.expiries.set(entry, max(due, nextafter(now, inf)))

    def is_aged(self, entry: SenderEntry, now: float) -> bool:
        """Whether the peer did not answer for too long, and is not a member of the view."""
        # Sums, not differences: the same rounding as the moment that was scheduled.
        until = entry.unanswered_since(now) + self._state.config.max_retransmit_time
        return self._is_ageing(entry) and now >= until

    def is_idle(self, entry: Entry, now: float) -> bool:
        """Whether an open entry was unused for so long that it has to close."""
        timeout = self._state.config.conn_expiry_timeout
        return entry.state is State.OPEN and self._has_passed(entry, timeout, now)

    def is_flushed(self, entry: Entry, now: float) -> bool:
        """Whether a closing entry was unused for so long that it has to go."""
        timeout = self._state.config.conn_close_timeout
        return entry.state is State.CLOSING and self._has_passed(entry, timeout, now)

    def _has_passed(self, entry: Entry, timeout: float, now: float) -> bool:
        """Whether the entry was unused for `timeout`; 0 is never."""
        return timeout > 0 and now >= self._used_at(entry, now) + timeout

    def _is_ageing(self, entry: SenderEntry) -> bool:
        return self._state.config.max_retransmit_time > 0 and not self._state.is_member(entry.peer)

    def _used_at(self, entry: Entry, now: float) -> float:
        """Return when an entry was last used; `now` for an entry that must not be removed.

        An entry stays while the application has yet to take messages of it, and while messages wait
        for it and all that was sent is acked: they leave at the end of this turn, or when there are
        credits. While a member of the group has yet to ack or send messages, or to give credits for
        them, the entry stays until a view drops the member, however silent that is (G1).
        """
        if isinstance(entry, ReceiverEntry) and entry.is_untaken():
            return now
        is_pending, is_waited_for = entry.is_pending(), self._is_waited_for(entry)
        if is_waited_for and not is_pending:
            return now
        is_owed = is_waited_for or (is_pending and self._historical.view_decides)
        if is_owed and self._state.is_grouped and self._state.is_member(entry.peer):
            return now
        return entry.used_at()

    def _is_waited_for(self, entry: Entry) -> bool:
        is_waited_for = isinstance(entry, SenderEntry) and entry.peer in self._waiting
        return is_waited_for and self._historical.waiting_is_use

    def record(self, entry: Entry, stream: int, reason: str, now: float, number: int = 0) -> None:
        """Record a change of an entry's state."""
        self._state.port.tracer.record(
            trace.CONN,
            now,
            protocol=self._state.generation.protocol,
            stream=stream,
            peer=entry.peer,
            conn=entry.conn,
            epoch=entry.epoch if isinstance(entry, ReceiverEntry) else 0,
            lo=number,
            text=reason,
        )
