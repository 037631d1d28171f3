"""Members that hold up a full window: after a while they are suspected."""

from __future__ import annotations

from math import inf

from stormcast.node import trace
from stormcast.node.core.ack_table import AckTable
from stormcast.node.core.wire import GROUP
from stormcast.node.protocols.events import Suspected
from stormcast.node.protocols.multicast.config import McastConfig
from stormcast.node.protocols.multicast.state import SLOW, Streams


class SlowMembers:
    """Watches the window from the moment at which it does not admit a message."""

    def __init__(self, state: Streams, acks: AckTable) -> None:
        self._state = state
        self._acks = acks
        self._low_before = 0

    def watch(self, now: float) -> None:
        """Set a look after `slow_member_timeout`, unless one is set already."""
        config, timers = self._state.config, self._state.timers
        assert isinstance(config, McastConfig)
        timeout = config.slow_member_timeout
        if timeout and timers.due((SLOW, 0)) == inf:
            self._low_before = self._state.own.low
            timers.set((SLOW, 0), now + timeout)

    def look(self, now: float) -> None:
        """Suspect the slowest members, if messages still wait for the window and its low end did
        not move: VERIFY_SUSPECT2 then asks whether they can hear and be heard."""
        own = self._state.own
        if GROUP not in self._state.port.waiting:
            return
        if own.low == self._low_before:
            self._suspect(now)
        self.watch(now)

    def _suspect(self, now: float) -> None:
        state, port = self._state, self._state.port
        slow = set(self._acks.slowest()) - {port.me}
        members = tuple(
            member for member in (state.view.members if state.view else ()) if member.short in slow
        )
        for member in members:
            port.tracer.record(
                trace.SUSPECT,
                now,
                protocol=state.generation.protocol,
                stream=trace.SUSPECTED,
                peer=member.short,
            )
        if members:
            port.events.append(Suspected(members))
