"""State that all parts of one member's unicast share: settings, tables, timers, numbers."""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeAlias

from stormcast.node.core.rtt import RoundTrip
from stormcast.node.core.serial import next_serial
from stormcast.node.core.strangers import MAX_GAUGED
from stormcast.node.core.timers import Timers
from stormcast.node.core.timing import Pacer, Timing
from stormcast.node.protocols.port import Port
from stormcast.node.protocols.unicast.config import UnicastConfig
from stormcast.node.protocols.unicast.entries import Entry, ReceiverEntry, SenderEntry, Sync
from stormcast.node.protocols.windowed import gauge_received, gauge_sent

if TYPE_CHECKING:
    from stormcast.node.protocols.unicast.generations import Generation

Timed: TypeAlias = Entry | Sync
"""The keys of the timers."""


class Connections:
    """The sender entries and receiver entries of one member, and their settings and timers."""

    def __init__(
        self,
        generation: Generation,
        config: UnicastConfig,
        timing: Timing,
        port: Port,
        first_conn: int = 1,
    ) -> None:
        self.generation = generation
        self.config = config
        """Replaced when a setting changes at run time. `historical` never does: parts bind it."""
        self.pacer = Pacer(timing, config.xmit_interval)
        self.port = port
        self.senders: dict[int, SenderEntry] = {}
        self.receivers: dict[int, ReceiverEntry] = {}
        self.members: frozenset[int] | None = None
        """Short ids of the view's members; None while no view was ever installed."""
        self.is_grouped = False
        """Whether a group says who is a member: then only a view gives a member up. Without a group
        nothing but silence shows that a peer is dead."""
        self.is_consuming = True
        """Whether the application takes deliveries."""
        self.looks: Timers[Timed] = Timers(in_turn=True)
        """When to look at an entry or a sync. In turn: what is repeated for a dead member, first
        each time, could fill a narrow path, and keep all others' out for ever."""
        self.expiries: Timers[Timed] = Timers()
        """When an entry or a sync may have been unused, or unanswered, for too long. Apart from the
        looks: these moments are far away, and set once, not after every visit."""
        # Both are serials that wrap: a run that begins near the wrap has both of them wrap.
        self._last_conn = first_conn - 1
        self.last_stamp = first_conn - 1

    def is_member(self, peer: int) -> bool:
        """Whether the peer is in the view, if there is one."""
        return self.members is not None and peer in self.members

    def is_stranger(self, peer: int) -> bool:
        """Whether the peer is outside of the view, or there is no view yet. Without a group nobody
        is: nothing says who belongs together."""
        return self.is_grouped and not self.is_member(peer)

    # -- Numbers ------------------------------------------------------------------------------

    def coming_conn(self) -> int:
        """Return the id of the connection opened next; all opened before have older ids."""
        if self.config.historical.conn_ids == "none":
            return 0
        return next_serial(self._last_conn)

    def next_conn(self) -> int:
        """Return the id for a connection that is opened now."""
        conn = self.coming_conn()
        if conn:
            self._last_conn = conn
        return conn

    def next_stamp(self) -> int:
        """Return a new timestamp for a report or a question."""
        self.last_stamp = next_serial(self.last_stamp)
        return self.last_stamp

    def round_trip(self, peer: int) -> RoundTrip:
        """Return the estimate that both halves of a connection share."""
        other = self.senders.get(peer) or self.receivers.get(peer)
        return other.rtt if other else self.pacer.round_trip()

    # -- Gauges -------------------------------------------------------------------------------

    def gauge(self, now: float) -> None:
        """Record how full the windows are (G5)."""
        protocol = self.generation.protocol
        for sender in self.senders.values():
            gauge_sent(self.port, protocol, sender.peer, sender.window, now)
        strangers = 0
        for receiver in self.receivers.values():
            strangers += receiver.is_stranger
            if receiver.is_stranger and strangers > MAX_GAUGED:
                continue
            gauge_received(self.port, protocol, receiver.peer, receiver.window, now)
