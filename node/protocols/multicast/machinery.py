"""Reliable multicast, whole: frames to the right half, timers, run-time settings, promises.

A protocol decides when own messages are purged and who says so; everything else is shared:
numbering, windows, asking, answering, joins and merges. Keeps G1, G2, G3, G6 and A1 within views.
See docs/protocols/multicast.md.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any, Final

from node import trace
from node.core import wire
from node.core.digest import Digest
from node.core.errors import BadFrame, ConfigError
from node.core.gaps import MAX_REQUESTS_PER_LOOK
from node.core.wire import Head
from node.protocols.multicast.joining import Joining
from node.protocols.multicast.state import ALARM, LOOK, OWN, STRANGERS, SYNC, THAW

__all__ = ["Multicast"]

FREEZE_SLACK: Final = 1.1
"""How much longer than asked for a digest counts as in use when nobody says otherwise."""


class Multicast(Joining):
    """One member's reliable multicast: windows per sender, no clock and no socket."""

    def receive(self, head: Head, body: bytes, now: float) -> None:
        """Take one checked frame. Whatever contradicts the windows raises BadFrame and changes
        nothing."""
        if self.is_server:
            if head.kind == wire.DATA:
                self._on_data(head, body, now)
            else:
                self._dispatch(head, body, now)
        elif self.is_stopped:
            self._port.drop("left")
        else:
            self._queue_frame(head, body)

    def _dispatch(self, head: Head, body: bytes, now: float) -> None:
        kind = head.kind
        if kind == wire.DATA:
            self._on_data(head, body, now)
        elif kind == wire.XMIT_REQ:
            self._on_request(head, body, now)
        elif kind == wire.HIGHEST_SEQNO:
            self._on_highest(head, now)
        elif kind == wire.BASELINE:
            self._on_baseline(head, now)
        elif kind == wire.BASELINE_REQ:
            self._on_baseline_request(head, now)
        elif kind == wire.ACK:
            self._on_ack(head, now)
        else:
            raise BadFrame("kind")

    def _on_ack(self, head: Head, now: float) -> None:
        raise BadFrame("kind")

    # -- Time ---------------------------------------------------------------------------------

    def tick(self, now: float) -> None:
        """Do what is due; `timers` says when that is."""
        for what, peer in self.timers.take_due(now):
            self._on_timer(what, peer, now)

    def _on_timer(self, what: str, peer: int, now: float) -> None:
        if what == OWN:
            self._look_at_own(now)
            return
        if what == STRANGERS:
            self._forget_strangers(now)
            return
        if what == THAW:
            self.resume(now)
            return
        entry = self._inbound.get(peer)
        if entry is None:
            return
        if what == LOOK:
            self._look_at_gaps(entry, now)
        elif what == SYNC:
            self._complete(entry, now)
        elif what == ALARM:
            self._sound_alarm(entry, now)

    def finish_turn(self, now: float) -> None:
        """Send what this turn asked for."""

    def on_stability(self, digest: Digest, now: float) -> None:
        """What every member has delivered is known."""

    def suspend(self, seconds: float, now: float) -> None:
        """A digest of this member is in use for so long, or a little longer."""
        self.is_frozen = True
        self.timers.set((THAW, 0), now + FREEZE_SLACK * seconds)

    def resume(self, now: float) -> None:
        """It is no longer."""
        self.is_frozen = False
        self.timers.cancel((THAW, 0))
        self._own_progress(now)

    def on_blocked(self, now: float) -> None:
        """The outbox has multicasts that the window does not admit."""

    def stop(self, now: float) -> None:
        """Forget everything: nothing can be asked of who is gone."""
        for entry in list(self._inbound.values()):
            self._remove_window(entry, "stop", now)
        self._stop_sending()
        self._queue.clear()
        self._strangers.clear()
        self.timers.clear()
        self.is_server = False
        self.is_stopped = True

    # -- Run-time settings -----------------------------------------------------------------------

    def set_attribute(self, name: str, value: object, now: float) -> None:
        """Change a setting that may change at run time."""
        if name not in self.config.settable:
            raise ConfigError(
                f"{name} can not change at run time; "
                f"what can: {', '.join(sorted(self.config.settable))}"
            )
        change: dict[str, Any] = {name: value}
        config = replace(self.config, **change)
        if name == "xmit_interval":
            self._change_interval(config.xmit_interval, now)
        self.config = config
        if name == "xmit_interval":
            self._restart_looks(now)

    def _change_interval(self, interval: float, now: float) -> None:
        """Before retransmission ends: one last round for every gap; then every window is completed
        as at a join, because the loss of a last message shows as no gap."""
        if interval > 0:
            if not self.config.retransmits:
                self._kept_before_bound = self._queued_messages, self._strangers_kept()
            self.pacer.interval = interval
            return
        for entry in self._inbound.values() if self.config.retransmits else ():
            if entry.window.has_gap():
                self._request(entry, entry.window.missing(1 << 62), now)
            self._desync(entry, now)

    def _restart_looks(self, now: float) -> None:
        """Start at once what the new interval allows."""
        for entry in self._inbound.values():
            self.timers.cancel((LOOK, entry.peer))
            self.timers.cancel((ALARM, entry.peer))
            entry.gap_at = -1
            if not entry.is_synced and not self.config.retransmits:
                self.timers.set_earlier((SYNC, entry.peer), now + self.config.join_sync_interval)
            if entry.window.has_gap():
                self._notice_gap(entry, now)
        self.timers.cancel((OWN, 0))
        if self.own.low < self.own.high:
            self._announcements = 0
            self._schedule_own_look(now)

    # -- Promises and gauges ---------------------------------------------------------------------

    def bounds(self) -> dict[str, float]:
        """What this configuration promises a checker: C1 in seconds and counts (`inf`: nothing)."""
        config, timing = self.config, self.pacer.timing
        interval = config.xmit_interval if config.retransmits else config.join_sync_interval
        looks = config.window_messages / (MAX_REQUESTS_PER_LOOK * config.max_xmit_req_size)
        return {
            "request_spacing": timing.min_wait if timing.adaptive else interval,
            "request_patience": 0.0 if timing.adaptive else interval,
            "request_size": config.max_xmit_req_size,
            "quiet_within": (12 + looks) * interval,
        }

    def inbound(self) -> dict[int, Any]:
        """Senders, and the state of their windows. To be read, not changed."""
        return self._inbound

    def gauge(self, now: float) -> None:
        """Record how full everything bounded is (G5)."""
        own = self.own
        if own.low < own.high:
            self._gauge(trace.SEND_MESSAGES, wire.GROUP, len(own), own.capacity, now)
            self._gauge(trace.SEND_BYTES, wire.GROUP, own.bytes, own.bytes_bound(), now)
        for entry in self._inbound.values():
            held = entry.window
            if held.bytes:
                self._gauge(trace.RECEIVE_MESSAGES, entry.peer, len(held), held.capacity, now)
                self._gauge(trace.RECEIVE_BYTES, entry.peer, held.bytes, held.bytes_bound(), now)
        queue_bound = strangers_bound = 0
        if self.config.retransmits:
            queued, strangers = self._kept_before_bound
            queue_bound = max(self.config.become_server_queue_size, queued)
            strangers_bound = max(self.config.max_unknown_messages, strangers)
        if self._queue:
            self._gauge(trace.QUEUED_MESSAGES, 0, self._queued_messages, queue_bound, now)
        for peer, (_since, kept) in self._strangers.items():
            self._gauge(trace.CACHED_FRAMES, peer, len(kept), strangers_bound, now)
