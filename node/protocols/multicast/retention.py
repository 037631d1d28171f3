"""Decides how long a sender keeps its own messages: until all have delivered them (G6).

Methods that react to an event return the seqno up to which every member has them now; 0 where the
event changes nothing.
"""

from __future__ import annotations

from typing import Protocol

from stormcast.node.core.ack_table import AckTable
from stormcast.node.core.errors import BadFrame
from stormcast.node.core.wire import Head
from stormcast.node.protocols.multicast.slow_members import SlowMembers
from stormcast.node.protocols.multicast.state import Streams


class Retention(Protocol):
    """A protocol's way to learn what every member has."""

    def __init__(self, state: Streams) -> None: ...

    def delivered_here(self) -> int:
        """React to own messages delivered here, which may have been the last deliveries missing."""

    def members_changed(self) -> int:
        """React to an installed view: members that left are no longer waited for."""

    def members_coming(self) -> None:
        """Prepare for a coming view: what its members need must not be purged."""

    def unheard(self) -> list[int]:
        """Return the members that may not know which messages can no longer be had."""

    def on_ack(self, head: Head) -> int:
        """Take an ack of a member."""

    def on_blocked(self, now: float) -> None:
        """React to multicasts in the outbox that the window does not admit."""

    def look_at_slow(self, now: float) -> None:
        """Check whether the window was full for too long."""

    def stop(self) -> None:
        """Forget everyone."""


class UntilStable:
    """NAKACK2: stability says what every member has; a member alone in its view needs none."""

    def __init__(self, state: Streams) -> None:
        self._state = state

    def delivered_here(self) -> int:
        """Return the highest own seqno if this member is alone in its view, else 0."""
        state = self._state
        is_alone = len(state.members) == 1
        return state.own.high if is_alone and not state.is_frozen else 0

    def members_changed(self) -> int:
        """Return the highest own seqno if this member is alone in the new view, else 0."""
        return self.delivered_here()

    def members_coming(self) -> None:
        """Do nothing: stability is suspended meanwhile."""

    def unheard(self) -> list[int]:
        """Return nobody: by the votes of stability each member learns what the others have."""
        return []

    def on_ack(self, head: Head) -> int:
        """Refuse the frame: nobody acks."""
        raise BadFrame("kind")

    def on_blocked(self, now: float) -> None:
        """Do nothing: the stack hurries stability."""

    def look_at_slow(self, now: float) -> None:
        """Do nothing: nobody is suspected for a full window."""

    def stop(self) -> None:
        """Do nothing: no acks are kept."""


class UntilAcked:
    """MCAST: every member acks, this one included."""

    def __init__(self, state: Streams) -> None:
        self.acks = AckTable()
        self._state = state
        self._me = state.port.me
        self._slow = SlowMembers(state, self.acks)

    def delivered_here(self) -> int:
        """Ack for this member. Own messages never cross the network, so neither does the ack for
        them; without it a window of DONT_LOOPBACK messages would never empty (JGRP-2829)."""
        if self._state.is_frozen:
            return 0
        rose = self.acks.ack(self._me, self._state.own_delivered)
        return self.acks.minimum if rose else 0

    def members_changed(self) -> int:
        """Keep exactly the members of the view."""
        self.acks.adjust(self._state.members, self._state.own.low)
        self.delivered_here()
        return self.acks.minimum

    def members_coming(self) -> None:
        """Wait for the acks of coming members, too."""
        state = self._state
        self.acks.adjust(state.members | state.coming, state.own.low)

    def unheard(self) -> list[int]:
        """Return the members that came into the view and have not acked since. The frame that told
        them what can be had may have been lost, and where nothing is sent, nothing else tells it.
        """
        return sorted(self.acks.unheard - {self._me})

    def on_ack(self, head: Head) -> int:
        """Take an ack of a member, which must be of what was sent."""
        if head.lo > self._state.own.high:
            raise BadFrame("ack-beyond-sent")
        rose = self.acks.ack(head.source, head.lo)
        if rose is None:
            # It left, or is not in the view yet: an entry for it would never move (JGRP-2904).
            self._state.port.drop("ack-stranger")
        return self.acks.minimum if rose else 0

    def on_blocked(self, now: float) -> None:
        """Watch which members hold the window up."""
        self._slow.watch(now)

    def look_at_slow(self, now: float) -> None:
        """Suspect the members that held the window up all the time."""
        self._slow.look(now)

    def stop(self) -> None:
        """Forget everyone."""
        self.acks.clear()
