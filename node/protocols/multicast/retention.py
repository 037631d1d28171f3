"""How long a sender keeps its own messages: until all have delivered them (G6).

Each event is answered by the seqno up to which everyone has them now; 0 where it changes nothing.
"""

from __future__ import annotations

from typing import Protocol

from stormcast.node.core.ack_table import AckTable
from stormcast.node.core.errors import BadFrame
from stormcast.node.core.wire import Head
from stormcast.node.protocols.multicast.slow_members import SlowMembers
from stormcast.node.protocols.multicast.state import Streams


class Retention(Protocol):
    """How a protocol learns what everyone has."""

    def __init__(self, state: Streams) -> None: ...

    def delivered_here(self) -> int:
        """Own messages were delivered here, which may be all that was missing."""

    def members_changed(self) -> int:
        """A view was installed: who left need no longer be waited for."""

    def members_coming(self) -> None:
        """A view is about to be installed: what its members need must not be purged."""

    def on_ack(self, head: Head) -> int:
        """A member says up to where it has everything."""

    def on_blocked(self, now: float) -> None:
        """The outbox has multicasts that the window does not admit."""

    def look_at_slow(self, now: float) -> None:
        """The window may have been full for too long."""

    def stop(self) -> None:
        """Forget everyone."""


class UntilStable:
    """NAKACK2: stability says it; who is alone needs nobody to."""

    def __init__(self, state: Streams) -> None:
        self._state = state

    def delivered_here(self) -> int:
        """All of them, for who is alone."""
        state = self._state
        is_alone = len(state.members) == 1
        return state.own.high if is_alone and not state.is_frozen else 0

    def members_changed(self) -> int:
        """All of them, for who is alone now."""
        return self.delivered_here()

    def members_coming(self) -> None:
        """Stability is suspended meanwhile."""

    def on_ack(self, head: Head) -> int:
        """Nobody acks."""
        raise BadFrame("kind")

    def on_blocked(self, now: float) -> None:
        """Stability is hurried by others."""

    def look_at_slow(self, now: float) -> None:
        """Nobody holds the window up by itself."""

    def stop(self) -> None:
        """Nobody is known."""


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
        """Wait for who is coming, too."""
        state = self._state
        self.acks.adjust(state.members | state.coming, state.own.low)

    def on_ack(self, head: Head) -> int:
        """Take an ack of a member, which must be of what was sent."""
        if head.lo > self._state.own.high:
            raise BadFrame("ack-beyond-sent")
        rose = self.acks.ack(head.source, head.lo)
        if rose is None:
            # Of someone who left, or is not in yet: an entry for it would never move (JGRP-2904).
            self._state.port.drop("ack-stranger")
        return self.acks.minimum if rose else 0

    def on_blocked(self, now: float) -> None:
        """Watch who holds the window up."""
        self._slow.watch(now)

    def look_at_slow(self, now: float) -> None:
        """Suspect who held it up all the time."""
        self._slow.look(now)

    def stop(self) -> None:
        """Forget everyone."""
        self.acks.clear()
