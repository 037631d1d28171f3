"""A sender that falls silent announces its highest seqno, and the seqno up to which its messages
are purged. Otherwise no receiver would notice the loss of the last message, and a new member would
not notice that the group went on without it."""

from __future__ import annotations

from math import inf

from stormcast.node import trace
from stormcast.node.core import wire
from stormcast.node.protocols.multicast.retention import Retention
from stormcast.node.protocols.multicast.state import OWN, Streams


class Announcing:
    """Looks whether anything was sent since the previous look (JGRP-1904)."""

    def __init__(self, state: Streams, retention: Retention) -> None:
        self._state = state
        self._retention = retention
        self._timers = state.timers
        self._times = 0
        """The number of announcements of the same highest seqno."""
        self._seen_high = 0
        """The highest own seqno at the previous look."""

    def schedule(self, now: float) -> None:
        """Set a look after something was sent, in case it was the last message."""
        if not self._times and self._timers.due((OWN, 0)) < inf:
            # The look that is set comes earlier than a new one would.
            return
        config = self._state.config
        if config.resend_last_seqno and config.retransmits:
            self._timers.set_earlier((OWN, 0), self._next_look(now))

    def restart(self, now: float) -> None:
        """Announce the highest seqno as if it were new: someone may not have heard it."""
        self._times = 0
        if self._is_missing():
            self.schedule(now)

    def look(self, now: float) -> None:
        """Announce the highest seqno when nothing was sent since the previous look.

        The highest seqno of the window is stored and sent, never only numbered.
        """
        high = self._state.own.high
        if self._seen_high != high:
            self._seen_high = high
            self._times = 0
        elif self._has_more():
            self._announce(now)
        else:
            return
        if self._has_more():
            self._timers.set((OWN, 0), self._next_look(now, self._times))

    def _has_more(self) -> bool:
        """Whether the highest own seqno should be announced again."""
        return self._is_missing() and self._times < self._state.config.most_announcements()

    def _is_missing(self) -> bool:
        """Whether some member may miss own messages, or may not know that they are gone."""
        own = self._state.own
        return own.low < own.high or bool(self._retention.unheard())

    def _next_look(self, now: float, tries: int = 0) -> float:
        state = self._state
        return state.pacer.next_send_look(now, state.join_pacer.round_trip(), tries)

    def _announce(self, now: float) -> None:
        state, own, protocol = self._state, self._state.own, self._state.generation.protocol
        state.port.tracer.record(trace.SYNC, now, protocol=protocol, peer=wire.GROUP, lo=own.high)
        for dest in [wire.GROUP] if own.low < own.high else self._retention.unheard():
            state.port.control(
                dest,
                wire.HIGHEST_SEQNO,
                protocol,
                own.high,
                mark=own.low,
                stamp=state.view_tag,
                transmission=self._times,
            )
        self._times += 1
