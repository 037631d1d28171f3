"""Requests what is missing; where nothing is retransmitted, sets when a gap becomes an alarm."""

from __future__ import annotations

from math import inf
from random import Random

from stormcast.node import trace
from stormcast.node.core import wire
from stormcast.node.core.gaps import Ranges
from stormcast.node.protocols.multicast.inbound import Inbound
from stormcast.node.protocols.multicast.state import ALARM, LOOK, Streams
from stormcast.node.protocols.windowed import request_missing


class Asking:
    """Looks at the gaps of receive windows."""

    def __init__(self, state: Streams, dice: Random) -> None:
        self._state = state
        self._timers = state.timers
        self._dice = dice

    def notice(self, entry: Inbound, now: float) -> None:
        """Look at a gap that appeared: now in `fast`, else at the next tick; or set its alarm."""
        state = self._state
        if not state.looks_at(entry):
            if entry.gap_at < 0:
                entry.gap_at = entry.window.deliverable
                self._timers.set((ALARM, entry.peer), now + state.config.gap_alarm)
            return
        if self._timers.due((LOOK, entry.peer)) == inf:
            due = state.gap_pacer().first_gap_look(now)
            if due <= now:
                self.look(entry, now)
            else:
                self._timers.set((LOOK, entry.peer), due)

    def look(self, entry: Inbound, now: float) -> None:
        """Request what was missing at the previous look already, and set the next look."""
        if not self._state.looks_at(entry):
            # The window was completed since; a gap above what completed it gets an alarm.
            if entry.window.has_gap():
                self.notice(entry, now)
            return
        if entry.is_shut:
            # What it asked for would be refused.
            config = self._state.config
            due = now + max(config.xmit_interval, config.join_sync_interval)
            self._timers.set((LOOK, entry.peer), due)
            return
        ask, due = entry.gaps.look(entry.window, self._state.gap_pacer(), now)
        if ask:
            self.request(entry, ask, now)
        self._timers.set((LOOK, entry.peer), due)

    def request(self, entry: Inbound, ranges: Ranges, now: float) -> None:
        """Ask for ranges now."""
        state = self._state
        request_missing(
            state.port,
            state.generation.protocol,
            state.config,
            entry.gaps,
            ranges,
            now,
            dest=self._whom(entry),
            named=entry.peer,
            peer=entry.peer,
            epoch=entry.epoch,
            view=state.view_number,
            stream=trace.REPAIR if state.config.retransmits else trace.JOINING,
        )

    def _whom(self, entry: Inbound) -> int:
        """Return whom to ask: the sender, the group, or a random member. Of tries with random
        members, each second goes to the sender."""
        config = self._state.config
        if config.use_mcast_xmit_req:
            return wire.GROUP
        if config.xmit_from_random_member and not entry.gaps.transmission() % 2:
            others = sorted(self._state.members - {self._state.port.me})
            return self._dice.choice(others or [entry.peer])
        return entry.peer
