"""Reliable unicast, whole: both halves, frames to the right one, views and commands to both.

A generation decides when a receiver acks and what a sender repeats; everything else is shared:
numbering, windows, connection ids, finding each other again (SEND_FIRST_SEQNO), gap requests,
closing and ageing. Keeps G1 (no loss), G2 (once), G3 (FIFO), G6, G7. See docs/protocols/unicast.md.
"""

from __future__ import annotations

from dataclasses import replace
from math import inf
from typing import Any, ClassVar

from node import trace
from node.core import wire
from node.core.errors import BadFrame, ConfigError
from node.core.gaps import MAX_REQUESTS_PER_LOOK
from node.core.serial import next_serial
from node.core.wire import Head
from node.protocols.unicast.connections import UNLIMITED
from node.protocols.unicast.entries import (
    Entry,
    ReceiverEntry,
    SenderEntry,
    State,
)
from node.protocols.unicast.receiving import Receiving
from node.protocols.unicast.resync import Sync
from node.protocols.unicast.sending import Sending

__all__ = ["UNLIMITED", "Unicast"]


class Unicast(Sending, Receiving):
    """One member's reliable unicast: entries per peer, no clock and no socket."""

    closes_at_once: ClassVar[bool] = False
    """Whether a view without the peer removes its connections at once instead of letting them
    flush."""

    def receive(self, head: Head, body: bytes, now: float) -> None:
        """Take one checked frame. Whatever contradicts the connection raises BadFrame and changes
        nothing."""
        kind = head.kind
        if kind == wire.DATA:
            self._on_data(head, body, now)
        elif kind == wire.ACK:
            self._on_ack(head, now)
        elif kind == wire.XMIT_REQ:
            self._on_request(head, body, now)
        elif kind == wire.SFS:
            self._on_sfs(head, now)
        elif kind == wire.CLOSE:
            self._on_close(head, now)
        elif kind == wire.STABLE:
            self._on_stable(head, now)
        elif kind == wire.RESET_TO:
            self._on_reset(head, now)
        else:
            raise BadFrame("kind")

    def _visit(self, entry: Entry | Sync, now: float) -> None:
        if isinstance(entry, SenderEntry):
            self._visit_sender(entry, now)
        elif isinstance(entry, ReceiverEntry):
            self._visit_receiver(entry, now)
        elif isinstance(entry, Sync):
            self._visit_sync(entry, now)

    def _expire(self, entry: Entry | Sync, now: float) -> None:
        if isinstance(entry, SenderEntry):
            self._expire_sender(entry, now)
        elif isinstance(entry, ReceiverEntry):
            self._expire_receiver(entry, now)
        elif isinstance(entry, Sync):
            self._expire_sync(entry, now)

    # -- Membership and commands -----------------------------------------------------------------

    def on_view(self, members: frozenset[int], now: float) -> None:
        """Close towards who is gone, re-open towards who is back."""
        self.members = members
        for sender in list(self._senders.values()):
            if sender.peer in members:
                if sender.state is State.CLOSING:
                    self._set_sender_state(sender, State.OPEN, "view", now)
            elif self.closes_at_once:
                self._end_sender(sender, "view", now)
            else:
                self._close_sender(sender, "view", now)
                # What was closing already ages from now on.
                self._schedule_expiry(sender, now)
        for receiver in list(self._receivers.values()):
            if receiver.peer in members:
                if receiver.state is State.CLOSING:
                    self._set_receiver_state(receiver, State.OPEN, "view", now)
            elif self.closes_at_once:
                self._remove_receiver(receiver, "view", now)
            else:
                self._close_receiver(receiver, "view", now)
        self.resync.retain(members)

    def close(self, peer: int, now: float) -> None:
        """Close both halves towards `peer`, flushing what is unacked."""
        if sender := self._senders.get(peer):
            self._close_sender(sender, "close", now)
        if receiver := self._receivers.get(peer):
            self._close_receiver(receiver, "close", now)

    def forget(self, peer: int, now: float, *, sender: bool = True, receiver: bool = True) -> None:
        """Lose the state towards `peer` at once, as a one-sided close of old did."""
        if sender and (sending := self._senders.get(peer)):
            self._remove_sender(sending, "forgot", now)
        if receiver and (receiving := self._receivers.get(peer)):
            self._remove_receiver(receiving, "forgot", now)

    def stop(self, now: float) -> None:
        """Ack what is pending, and forget everything."""
        for receiver in list(self._receivers.values()):
            self._remove_receiver(receiver, "stop", now)
        for sender in list(self._senders.values()):
            self._remove_sender(sender, "stop", now)
        self._looks.clear()
        self._expiries.clear()

    def set_attribute(self, name: str, value: object, now: float) -> None:
        """Change a setting that may change at run time, and look at everything in its light."""
        if name not in self.config.settable:
            raise ConfigError(
                f"{name} can not change at run time; "
                f"what can: {', '.join(sorted(self.config.settable))}"
            )
        change: dict[str, Any] = {name: value}
        self.config = replace(self.config, **change)
        self.resync.config = self.config
        self.pacer.interval = self.config.xmit_interval
        self._repace(now)

    def _repace(self, now: float) -> None:
        """Move what is still to come to the new interval; what is due stays due."""
        soon = self.pacer.next_send_look(now, self.pacer.round_trip(), 0)
        for sender in self._senders.values():
            if now < sender.look_due < inf:
                sender.look_due = soon
            self._looks.set_earlier(sender, sender.look_due)
            self._schedule_expiry(sender, now)
        for receiver in self._receivers.values():
            if now < receiver.look_due < inf:
                receiver.look_due = soon
            if now < receiver.ack_due < inf:
                receiver.ack_due = self.pacer.ack_at(now, receiver.last_ack)
            if now < receiver.report_due < inf:
                receiver.report_due = soon
            due = min(receiver.look_due, receiver.ack_due, receiver.report_due)
            self._looks.set_earlier(receiver, due)
            self._schedule_expiry(receiver, now)
        for sync in self.resync.waiting():
            if now < self._looks.due(sync):
                self._looks.set(sync, max(soon, sync.sent_at + self.config.sync_min_interval))

    # -- Promises -----------------------------------------------------------------------------

    def bounds(self) -> dict[str, float]:
        """What this configuration promises a checker: C1 and L1 in seconds and counts (`inf`:
        nothing)."""
        config, timing = self.config, self.pacer.timing
        least = timing.min_wait if timing.adaptive else config.xmit_interval
        return {
            "ack_within": self._ack_within(),
            "ack_spacing": timing.ack_delay if timing.adaptive else config.xmit_interval,
            "ack_threshold": self._ack_threshold(),
            "age_within": config.max_retransmit_time or inf,
            "resend_within": 2 * config.xmit_interval,
            "request_spacing": least,
            "request_patience": 0.0 if timing.adaptive else config.xmit_interval,
            "request_size": config.max_xmit_req_size,
            "sync_spacing": self._sync_spacing(),
            "quiet_within": self._quiet_within(),
        }

    def _quiet_within(self) -> float:
        """A dozen intervals, and one more for each look that the gaps of a whole window may take to
        ask for."""
        looks = self.config.window_messages / (
            MAX_REQUESTS_PER_LOOK * self.config.max_xmit_req_size
        )
        return (12 + looks) * self.config.xmit_interval

    def _ack_within(self) -> float:
        return self.config.xmit_interval

    def _ack_threshold(self) -> int:
        """New messages that cause an ack at once; 0 where every frame does."""
        return 0

    def _sync_spacing(self) -> float:
        return self.pacer.spaced(self.config.sync_min_interval, self.pacer.floor())

    # -- What others may know --------------------------------------------------------------------

    def send_connections(self) -> dict[int, SenderEntry]:
        """Peers that are sent to, and the state towards them. To be read, not changed."""
        return self._senders

    def receive_connections(self) -> dict[int, ReceiverEntry]:
        """Peers that were received from, and the state towards them. To be read, not changed."""
        return self._receivers

    def sent_to_self(self) -> tuple[int, int]:
        """Connection and last seqno of what this member sent to itself."""
        return self._self_conn, self._self_seqno

    def coming_conn(self) -> int:
        """The connection that would be opened next: whatever is not open now and was, is older."""
        if self.config.historical.conn_ids == "none":
            return 0
        return next_serial(self._last_conn)

    def gauge(self, now: float) -> None:
        """Record how full everything bounded is (G5)."""
        for sender in self._senders.values():
            window = sender.window
            if window.low < window.high:
                self._gauge(trace.SEND_MESSAGES, sender.peer, len(window), window.capacity, now)
                self._gauge(trace.SEND_BYTES, sender.peer, window.bytes, window.bytes_bound(), now)
        for receiver in self._receivers.values():
            held = receiver.window
            if held.bytes:
                self._gauge(trace.RECEIVE_MESSAGES, receiver.peer, len(held), held.capacity, now)
                self._gauge(trace.RECEIVE_BYTES, receiver.peer, held.bytes, held.bytes_bound(), now)
        for peer, cached in self.resync.cached_counts():
            self._gauge(trace.CACHED_FRAMES, peer, cached, self.config.max_cached_frames, now)

    def _gauge(self, stream: int, peer: int, value: int, bound: int, now: float) -> None:
        self._tracer.record(
            trace.GAUGE, now, protocol=self.protocol, stream=stream, peer=peer, lo=value, hi=bound
        )
