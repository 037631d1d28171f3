"""Reliable multicast: passes frames, timers, views and commands to the part that handles them.

A protocol decides what a receiver reports, and until when a sender keeps its messages; everything
else is shared. Keeps G1, G2, G3, G6 and A1 within views. See docs/protocols/multicast.md.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from math import inf
from random import Random
from typing import Any, Final

from stormcast.node.core import wire
from stormcast.node.core.digest import Digest
from stormcast.node.core.errors import BadFrame
from stormcast.node.core.model import View
from stormcast.node.core.timers import AFTER_FAILURE
from stormcast.node.core.timing import Timing
from stormcast.node.core.wire import Head
from stormcast.node.protocols.multicast.alarms import Alarms
from stormcast.node.protocols.multicast.announcing import Announcing
from stormcast.node.protocols.multicast.asking import Asking
from stormcast.node.protocols.multicast.baselines import Baselines
from stormcast.node.protocols.multicast.config import MulticastConfig
from stormcast.node.protocols.multicast.early import Early
from stormcast.node.protocols.multicast.feedback import Feedback
from stormcast.node.protocols.multicast.generations import Generation
from stormcast.node.protocols.multicast.inbound import Inbound
from stormcast.node.protocols.multicast.incoming import Incoming
from stormcast.node.protocols.multicast.outgoing import Outgoing, answer_lasts
from stormcast.node.protocols.multicast.state import (
    ACK,
    ALARM,
    HAND_UP,
    LOOK,
    OWN,
    SLOW,
    STRANGERS,
    SYNC,
    THAW,
    Streams,
)
from stormcast.node.protocols.multicast.switching import Switching
from stormcast.node.protocols.multicast.views import Views
from stormcast.node.protocols.multicast.windows import Windows
from stormcast.node.protocols.port import Port
from stormcast.node.protocols.windowed import changed, request_bounds

FREEZE_SLACK: Final = 1.1
"""Factor by which a digest counts as in use for longer than asked, if nobody calls `resume`."""


class Multicast:
    """One member's reliable multicast: windows per sender, no clock and no socket."""

    def __init__(
        self,
        generation: Generation,
        config: MulticastConfig,
        timing: Timing,
        port: Port,
        dice: Random,
    ) -> None:
        self._state = state = Streams(generation, config, timing, port)
        self._port = port
        self._is_server = False
        """Whether there was a view, and this member has not left since."""
        self._is_stopped = False
        self.retention = generation.retention(state)
        announcing = Announcing(state, self.retention)
        self._outgoing = outgoing = Outgoing(state, self.retention, announcing)
        self._reports = reports = generation.reports(state)
        self._windows = windows = Windows(state, reports)
        asking = Asking(state, dice)
        self._baselines = baselines = Baselines(state, windows, asking, reports, dice)
        self._alarms = Alarms(state, baselines)
        self._feedback = Feedback(state, outgoing, self.retention, asking, baselines)
        self._early = early = Early(state, self._take)
        self._incoming = Incoming(state, windows, asking, baselines, reports, early)
        self._views = Views(state, outgoing, announcing, self.retention, windows, early, asking)
        self._switching = Switching(state, asking, baselines, announcing, early, reports)
        self._looks: dict[str, Callable[[Inbound, float], None]] = {
            LOOK: asking.look,
            SYNC: baselines.look,
            ALARM: self._alarms.look,
            ACK: lambda entry, _now: reports.soon(entry),
        }
        """By name of a sender's timer: the function to call when it is due."""
        self._tasks: dict[str, Callable[[float], object]] = {
            OWN: announcing.look,
            HAND_UP: lambda now: self.set_consuming(state.is_consuming, now),
            STRANGERS: early.expire,
            THAW: self.resume,
            SLOW: self.retention.look_at_slow,
        }
        """By name of a timer that is about no sender: the function to call when it is due."""
        # Methods that are called for each batch or turn are called on their part directly.
        self._on_data = self._incoming.on_data
        self.room = outgoing.room
        self.send = outgoing.send
        self.finish_turn = reports.finish_turn
        self.protocol = generation.protocol
        self.own = state.own
        self.timers = state.timers
        self.acks_now = reports.wanted
        self.standing_gaps = state.standing_gaps

    # -- Frames -------------------------------------------------------------------------------

    def receive(self, head: Head, body: bytes, now: float) -> None:
        """Take one checked frame. Whatever contradicts the windows raises BadFrame and changes
        nothing."""
        if self._is_server:
            if head.kind == wire.DATA:
                self._on_data(head, body, now)
            else:
                self._take(head, body, now)
        elif self._is_stopped:
            self._port.drop("left")
        else:
            self._early.queue(head, body)

    def _take(self, head: Head, body: bytes, now: float) -> None:
        kind = head.kind
        if kind == wire.DATA:
            self._on_data(head, body, now)
        elif kind == wire.ACK:
            self._feedback.on_ack(head, now)
        elif kind == wire.XMIT_REQ:
            self._feedback.on_request(head, body, now)
        elif kind == wire.HIGHEST_SEQNO:
            self._incoming.on_highest(head, now)
        elif kind == wire.BASELINE:
            self._baselines.on_baseline(head, now)
        elif kind == wire.BASELINE_REQ:
            self._feedback.on_baseline_request(head)
        else:
            raise BadFrame("kind")

    # -- Time ---------------------------------------------------------------------------------

    def tick(self, now: float) -> None:
        """Do what is due; `timers` says when that is."""
        for what, peer in self.timers.take_due(now):
            if what in self._tasks:
                self._tasks[what](now)
            elif (entry := self._state.inbound.get(peer)) is not None:
                self._looks[what](entry, now)

    # -- Membership ---------------------------------------------------------------------------

    def on_tentative(self, view: View) -> None:
        """Prepare for a coming view: its members may ask, and nothing they need may be purged."""
        self._views.on_tentative(view)

    def hand_up_ending(
        self, view: View, digest: Digest | None, mutual: frozenset[int] | None, now: float
    ) -> None:
        """Hand up what windows hold that end with a view, just before it is installed."""
        self._views.hand_up_ending(view, digest, mutual, now)

    def install(
        self, view: View, digest: Digest | None, mutual: frozenset[int] | None, now: float
    ) -> None:
        """Adopt digest and view: windows for exactly the members, begun where the digest says."""
        self._views.install(view, digest, mutual, now)

    def become_server(self, now: float) -> None:
        """Take the frames that came before the first view, which is installed now."""
        if not self._is_server:
            self._is_server = True
            self._early.replay_queue(now)

    def on_stability(self, digest: Digest, now: float) -> None:
        """Take what every member has delivered, and what others have received."""
        self._feedback.on_stability(digest, now)

    def suspend(self, seconds: float, now: float) -> None:
        """Freeze acks and purges, because a digest of this member is in use for so many seconds."""
        if not self._state.is_frozen:
            self._state.freeze(now, is_frozen=True)
        self.timers.set((THAW, 0), now + FREEZE_SLACK * seconds)

    def resume(self, now: float) -> None:
        """Allow acks and purges again: the digest is no longer in use."""
        self.timers.cancel((THAW, 0))
        if self._state.is_frozen:
            self._state.freeze(now, is_frozen=False)
            self._outgoing.purge(self.retention.delivered_here(), now)

    def forget_stranger(self, peer: int) -> None:
        """Give up what is kept of a sender that is not in the view."""
        self._early.forget_stranger(peer)

    def on_link_lost(self, peer: int, now: float) -> None:
        """Recover from a connection that ended or was replaced, since bytes it took may never be
        read: tell the member which messages can be had, and ask the same of it."""
        if peer in self._state.members:
            self._outgoing.send_baseline(peer)
        if entry := self._state.inbound.get(peer):
            self._baselines.desync(entry, now)

    def stop(self, now: float) -> None:
        """Forget everything: a member that left answers no requests."""
        for entry in list(self._state.inbound.values()):
            self._windows.remove(entry, "stop", now)
        self._outgoing.stop(now)
        self._early.clear()
        self.retention.stop()
        self.acks_now.clear()
        self.timers.clear()
        self._is_server = False
        self._is_stopped = True

    # -- The application's side ---------------------------------------------------------------

    def on_blocked(self, now: float) -> None:
        """React to multicasts in the outbox that the window does not admit."""
        self.retention.on_blocked(now)

    def set_consuming(self, consuming: bool, now: float) -> int:  # noqa: FBT001 it is the whole message
        """Set whether the application takes deliveries. While it does not, windows fill and senders
        block. Returns how many seqnos waited for the application."""
        self._state.is_consuming = consuming
        if not consuming:
            return 0
        try:
            return self._outgoing.deliver_held(now) + self._incoming.deliver_untaken(now)
        except BaseException:
            # What could not be handed up of one must not keep the others waiting for good.
            self.timers.set_earlier((HAND_UP, 0), now + AFTER_FAILURE)
            raise

    # -- Settings and promises ----------------------------------------------------------------

    def set_attribute(self, name: str, value: object, now: float) -> None:
        """Change a setting that may change at run time."""
        config = changed(self._state.config, name, value)
        if name == "xmit_interval":
            self._switching.adopt(config, now)
        else:
            self._state.config = config
        if name == "slow_member_timeout":
            # It holds for members that hold up a window now, too.
            self.timers.cancel((SLOW, 0))
            if wire.GROUP in self._port.waiting:
                self.retention.on_blocked(now)

    def bounds(self) -> dict[str, Any]:
        """Return what this configuration promises a checker: C1 in seconds and counts (`inf`:
        nothing)."""
        config, timing = self._state.config, self._state.pacer.timing
        joining = request_bounds(config, timing, config.join_sync_interval)
        requests = request_bounds(config, timing, config.xmit_interval)
        promised = requests if config.retransmits else joining
        acks = self._reports.bounds()
        # Announcements are repeated until all has been acked, so a lost ack is noticed.
        is_purged = acks and config.resend_last_seqno and config.retransmits
        more = {
            "join_spacing": joining["request_spacing"],
            "tail_repeats": 0.0,
            "answer_lasts": answer_lasts(config, timing),
            "purge_within": promised["quiet_within"] if is_purged else inf,
        }
        return promised | more | acks

    # -- What others may know -----------------------------------------------------------------

    @property
    def config(self) -> MulticastConfig:
        return self._state.config

    @property
    def members(self) -> frozenset[int]:
        """Short ids of the view's members."""
        return self._state.members

    @property
    def coming(self) -> frozenset[int]:
        """Short ids of members of a view that is about to be installed."""
        return self._state.coming

    @property
    def own_delivered(self) -> int:
        """The highest own message this member has delivered to itself."""
        return self._state.own_delivered

    def inbound(self) -> Mapping[int, Inbound]:
        """Return the receive windows by sender."""
        return self._state.inbound

    def digest(self) -> Digest:
        """Return what is delivered and received here, by sender; own messages included."""
        return self._views.digest()

    def gauge(self, now: float) -> None:
        """Record how full everything bounded is (G5)."""
        self._state.gauge(now)
        self._early.gauge(now)
