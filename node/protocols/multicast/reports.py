"""The reports of a receiver: none, or acks."""

from __future__ import annotations

from math import inf
from typing import Any, Protocol

from stormcast.node.core import wire
from stormcast.node.protocols.multicast.inbound import Inbound
from stormcast.node.protocols.multicast.state import ACK, Streams


class Reports(Protocol):
    """A protocol's rule for the reports of its receivers."""

    wanted: list[Inbound]
    """Senders to be acked at the end of this turn; always the same list."""

    def __init__(self, state: Streams) -> None: ...

    def opened(self, entry: Inbound, offset: int, now: float) -> None:
        """React to a window that was opened above `offset`."""

    def after_data(self, entry: Inbound, new: int, now: float) -> None:
        """Ack new messages (or duplicates, when `new` is 0) now, later, or not at all."""

    def announced(self, entry: Inbound, now: float) -> None:
        """React to a sender that announced its highest seqno."""

    def soon(self, entry: Inbound) -> None:
        """Report at the end of this turn: once for all that arrives in it."""

    def repace(self, entry: Inbound, now: float) -> None:
        """Have an ack that waits leave by the interval that holds now."""

    def finish_turn(self, now: float) -> None:
        """Send the acks that this turn asked for."""

    def bounds(self) -> dict[str, Any]:
        """Return what is promised of acks (C1)."""


class Silence:
    """NAKACK2: nobody acks; STABLE finds out what everyone has."""

    def __init__(self, state: Streams) -> None:
        self.wanted: list[Inbound] = []

    def opened(self, entry: Inbound, offset: int, now: float) -> None:
        """Say nothing."""

    def after_data(self, entry: Inbound, new: int, now: float) -> None:
        """Say nothing."""

    def announced(self, entry: Inbound, now: float) -> None:
        """Say nothing."""

    def soon(self, entry: Inbound) -> None:
        """Say nothing."""

    def repace(self, entry: Inbound, now: float) -> None:
        """No ack waits."""

    def finish_turn(self, now: float) -> None:
        """Nothing is ever wanted."""

    def bounds(self) -> dict[str, Any]:
        """Promise nothing."""
        return {}


class AckDelivered:
    """MCAST: one cumulative ack for many messages, of what was delivered."""

    def __init__(self, state: Streams) -> None:
        self.wanted: list[Inbound] = []
        self._state = state
        self._port = state.port
        self._pacer = state.pacer
        self._timers = state.timers
        self._protocol = state.generation.protocol

    def opened(self, entry: Inbound, offset: int, now: float) -> None:
        """Ack where a window begins: its sender may be blocked, waiting for exactly this member."""
        if offset:
            self._later(entry, now)

    def after_data(self, entry: Inbound, new: int, now: float) -> None:
        """Ack at the end of the turn when enough came, else later."""
        acks = entry.acks
        acks.unacked += new
        if acks.unacked >= self._state.config.threshold():
            self.soon(entry)
        else:
            # Duplicates are acked too: the sender repeats only because it misses our ack.
            self._later(entry, now)

    def announced(self, entry: Inbound, now: float) -> None:
        """Ack, even if no ack is pending: the sender announces because an ack of ours was lost, and
        while it is blocked, no message of it will cause another ack (JGRP-2874)."""
        self._later(entry, now)

    def soon(self, entry: Inbound) -> None:
        """Ack at the end of this turn: one ack for all that arrives in it."""
        if not entry.acks.is_wanted:
            entry.acks.is_wanted = True
            self.wanted.append(entry)

    def _later(self, entry: Inbound, now: float) -> None:
        """Ack at the next tick, or when the spacing of acks allows."""
        acks = entry.acks
        if acks.is_wanted or self._timers.due((ACK, entry.peer)) < inf:
            return
        due = self._pacer.ack_at(now, acks.sent_at)
        if due <= now:
            self.soon(entry)
        else:
            self._timers.set((ACK, entry.peer), due)

    def repace(self, entry: Inbound, now: float) -> None:
        """Have an ack that waits leave by the interval that holds now."""
        if self._timers.due((ACK, entry.peer)) < inf:
            self._timers.cancel((ACK, entry.peer))
            self._later(entry, now)

    def finish_turn(self, now: float) -> None:
        """Send the acks that this turn asked for, unless they are frozen."""
        if self._state.is_frozen:
            return
        for entry in self.wanted:
            if entry.acks.is_wanted:
                entry.acks.is_wanted = False
                if self._state.inbound.get(entry.peer) is entry:
                    self._send(entry, now)
        # Last: where one of them fails, the others leave in the next turn.
        self.wanted.clear()

    def _send(self, entry: Inbound, now: float) -> None:
        value = entry.window.delivered
        transmission = entry.acks.note_sent(value, now)
        self._timers.cancel((ACK, entry.peer))
        self._port.tracer.acked(
            now,
            protocol=self._protocol,
            kind=wire.ACK,
            peer=entry.peer,
            epoch=entry.epoch,
            view=self._state.view_number,
            seqno=value,
        )
        self._port.control(entry.peer, wire.ACK, self._protocol, value, transmission=transmission)

    def bounds(self) -> dict[str, Any]:
        """Return what is promised of acks (C1)."""
        config, timing = self._state.config, self._pacer.timing
        return {
            "ack_within": 2 * config.xmit_interval,
            "ack_spacing": timing.ack_delay if timing.adaptive else config.xmit_interval,
            "ack_threshold": config.threshold(),
        }
