"""Reliable unicast: passes frames, timers, views and commands to the part that handles them.

A generation says when a receiver acks and what a sender repeats; everything else is shared.
Keeps G1 (no loss), G2 (once), G3 (FIFO), G6, G7. See docs/protocols/unicast.md.
"""

from __future__ import annotations

from collections.abc import Mapping
from math import inf
from typing import Any

from stormcast.node.core import wire
from stormcast.node.core.errors import BadFrame
from stormcast.node.core.strangers import BEGUN_SECONDS
from stormcast.node.core.timing import Timing
from stormcast.node.core.wire import Head
from stormcast.node.protocols.port import Port
from stormcast.node.protocols.unicast.acks import Acks
from stormcast.node.protocols.unicast.config import UnicastConfig
from stormcast.node.protocols.unicast.entries import ReceiverEntry, SenderEntry, Sync
from stormcast.node.protocols.unicast.feedback import Feedback
from stormcast.node.protocols.unicast.generations import Generation
from stormcast.node.protocols.unicast.incoming import Incoming
from stormcast.node.protocols.unicast.lifetimes import Lifetimes
from stormcast.node.protocols.unicast.outgoing import Outgoing
from stormcast.node.protocols.unicast.receivers import Receivers
from stormcast.node.protocols.unicast.repairs import Repairs
from stormcast.node.protocols.unicast.resync import Resync
from stormcast.node.protocols.unicast.senders import Senders
from stormcast.node.protocols.unicast.state import Connections, Timed
from stormcast.node.protocols.unicast.tombstones import Tombstones
from stormcast.node.protocols.windowed import changed, request_bounds


class Unicast:
    """One member's reliable unicast: entries per peer, no clock and no socket."""

    def __init__(
        self,
        generation: Generation,
        config: UnicastConfig,
        timing: Timing,
        port: Port,
        first_conn: int = 1,
    ) -> None:
        state = Connections(generation, config, timing, port, first_conn)
        self.protocol = generation.protocol
        self._state = state
        self._looks = state.looks
        self._expiries = state.expiries
        self._lifetimes = lifetimes = Lifetimes(state)
        self._senders = senders = Senders(state, lifetimes)
        self._outgoing = outgoing = Outgoing(state, senders)
        self._repairs = repairs = Repairs(state, outgoing)
        self._feedback = Feedback(state, outgoing, repairs)
        self._acks = acks = Acks(state)
        self._resync = resync = Resync(state)
        tombs = Tombstones(state)
        self._receivers = receivers = Receivers(state, lifetimes, acks, tombs, resync)
        reports = generation.reports(state, acks)
        self._incoming = incoming = Incoming(state, receivers, acks, reports, tombs, resync)
        # Methods that are called for each batch are called on their part directly.
        self._on_data = incoming.on_data
        self._on_ack = self._feedback.on_ack
        self.room = outgoing.room
        self.send = outgoing.send
        self.is_stranger = state.is_stranger
        self.acks_now = acks.wanted
        self.syncs_now = resync.wanted

    # -- Frames and time ----------------------------------------------------------------------

    def receive(self, head: Head, body: bytes, now: float) -> None:
        """Take one checked frame. Whatever contradicts the connection raises BadFrame and changes
        nothing."""
        kind = head.kind
        if kind == wire.DATA:
            self._on_data(head, body, now)
        elif kind == wire.ACK:
            self._on_ack(head, now)
        elif kind == wire.XMIT_REQ:
            self._feedback.on_request(head, body, now)
        elif kind == wire.SFS:
            self._feedback.on_sfs(head, now)
        elif kind == wire.CLOSE:
            self._incoming.on_close(head, now)
        elif kind == wire.STABLE:
            self._feedback.on_stable(head, now)
        elif kind == wire.RESET_TO:
            self._incoming.on_reset(head, now)
        else:
            raise BadFrame("kind")

    def next_deadline(self) -> float:
        """Return when `tick` has something to do."""
        looks, expiries = self._looks, self._expiries
        look = looks.next_deadline() if looks.is_moved else looks.earliest
        expiry = expiries.next_deadline() if expiries.is_moved else expiries.earliest
        return look if look < expiry else expiry

    def tick(self, now: float) -> None:
        """Visit every entry whose moment has come, each once, whatever the visits ask for."""
        if self._looks.earliest <= now:
            for one in self._looks.take_due(now):
                self._visit(one, now)
        if self._expiries.earliest <= now:
            for one in self._expiries.take_due(now):
                self._expire(one, now)

    def _visit(self, one: Timed, now: float) -> None:
        if isinstance(one, SenderEntry):
            self._repairs.visit(one, now)
        elif isinstance(one, ReceiverEntry):
            self._incoming.visit(one, now)
        elif isinstance(one, Sync):
            self._resync.visit(one, now)

    def _expire(self, one: Timed, now: float) -> None:
        if isinstance(one, SenderEntry):
            self._senders.expire(one, now)
        elif isinstance(one, ReceiverEntry):
            self._receivers.expire(one, now)
        elif isinstance(one, Sync):
            self._resync.expire(one, now)

    def finish_turn(self, now: float) -> None:
        """Send the acks of this turn, and SEND_FIRST_SEQNO to senders whose first frame is still
        missing."""
        if self.syncs_now:
            self._resync.finish_turn(now)
        self._acks.finish_turn(now)

    # -- Membership and commands --------------------------------------------------------------

    def on_view(self, members: frozenset[int], now: float) -> None:
        """Close entries of peers that are not in the view, re-open those of peers that are back."""
        self._state.members = members
        self._senders.on_view(members, now)
        self._receivers.on_view(members, now)
        self._resync.retain(members)

    def close(self, peer: int, now: float) -> None:
        """Close both halves towards `peer`, flushing what is unacked."""
        if sender := self._state.senders.get(peer):
            self._senders.close(sender, "close", now)
        if receiver := self._state.receivers.get(peer):
            self._receivers.close(receiver, "close", now)

    def forget(self, peer: int, now: float, *, sender: bool = True, receiver: bool = True) -> None:
        """Remove the state towards `peer` at once, as a one-sided close of earlier designs did."""
        if sender and (sending := self._state.senders.get(peer)):
            self._senders.remove(sending, "forgot", now)
        if receiver and (receiving := self._state.receivers.get(peer)):
            self._receivers.remove(receiving, "forgot", now)

    def forget_stranger(self, peer: int, now: float) -> None:
        """Give up what is kept of a sender that is not in the view, and was not acked."""
        self._incoming.forget_stranger(peer, now)

    def stop(self, now: float) -> None:
        """Ack what is pending, and forget everything."""
        for receiver in list(self._state.receivers.values()):
            self._receivers.remove(receiver, "stop", now)
        for sender in list(self._state.senders.values()):
            self._senders.remove(sender, "stop", now)
        self._looks.clear()
        self._expiries.clear()

    def set_consuming(self, consuming: bool, now: float) -> int:  # noqa: FBT001 it is the whole message
        """Set whether the application takes deliveries. While it does not, windows fill and senders
        block. Returns how many seqnos waited for the application."""
        return self._incoming.set_consuming(consuming, now)

    def set_grouped(self) -> None:
        """Note that a group says who is a member: then only a view gives a member up."""
        self._state.is_grouped = True

    # -- Settings and promises ----------------------------------------------------------------

    def set_attribute(self, name: str, value: object, now: float) -> None:
        """Change a setting that may change at run time, and move timers accordingly."""
        state = self._state
        state.config = changed(state.config, name, value)
        state.pacer.interval = state.config.xmit_interval
        self._repace(now)

    def _repace(self, now: float) -> None:
        """Move timers that are still to come to the new interval; those that are due stay due."""
        pacer = self._state.pacer
        soon = pacer.next_send_look(now, pacer.round_trip(), 0)
        for sender in self._state.senders.values():
            self._repairs.repace(sender, soon, now)
            self._lifetimes.schedule(sender, now)
        for receiver in self._state.receivers.values():
            self._incoming.repace(receiver, soon, now)
            self._lifetimes.schedule(receiver, now)
        self._resync.repace(soon, now)

    def bounds(self) -> dict[str, Any]:
        """Return what this configuration promises a checker: C1 and L1 in seconds and counts
        (`inf`: nothing)."""
        config, timing = self._state.config, self._state.pacer.timing
        interval = config.xmit_interval
        promised: dict[str, Any] = {
            "ack_within": config.ack_within(),
            "ack_spacing": timing.ack_delay if timing.adaptive else interval,
            "ack_threshold": config.threshold(),
            "age_within": config.max_retransmit_time or inf,
            "resend_interval": interval,
            "resend_within": 2 * interval,
            "sync_spacing": self._resync.least_spacing(),
        }
        if self._state.is_grouped:
            # What strangers are told in this time is bounded; the rest is said when it is over.
            promised["stranger_ack_within"] = config.ack_within() + BEGUN_SECONDS
        return request_bounds(config, timing, interval) | promised

    # -- What others may know -----------------------------------------------------------------

    @property
    def config(self) -> UnicastConfig:
        return self._state.config

    @property
    def is_consuming(self) -> bool:
        return self._state.is_consuming

    def send_connections(self) -> Mapping[int, SenderEntry]:
        """Return the sender entries by peer."""
        return self._state.senders

    def receive_connections(self) -> Mapping[int, ReceiverEntry]:
        """Return the receiver entries by peer."""
        return self._state.receivers

    def sent_to_self(self) -> tuple[int, int]:
        """Return connection and last seqno of what this member sent to itself."""
        return self._outgoing.sent_to_self()

    def coming_conn(self) -> int:
        """Return the id of the connection opened next; all opened before have older ids."""
        return self._state.coming_conn()

    def early_frames(self) -> dict[int, int]:
        """Return how many frames wait for a window, by sender."""
        return dict(self._resync.cached_counts())

    def gauge(self, now: float) -> None:
        """Record how full everything bounded is (G5)."""
        self._state.gauge(now)
        self._resync.gauge(now)
