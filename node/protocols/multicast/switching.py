"""A new `xmit_interval` while the stack runs: repair begins, ends, or changes its pace."""

from __future__ import annotations

from stormcast.node.protocols.multicast.announcing import Announcing
from stormcast.node.protocols.multicast.asking import Asking
from stormcast.node.protocols.multicast.baselines import Baselines
from stormcast.node.protocols.multicast.config import MulticastConfig
from stormcast.node.protocols.multicast.early import Early
from stormcast.node.protocols.multicast.reports import Reports
from stormcast.node.protocols.multicast.state import ALARM, LOOK, OWN, SYNC, Streams


class Switching:
    """Changes the interval, and leaves no window incomplete."""

    def __init__(
        self,
        state: Streams,
        asking: Asking,
        baselines: Baselines,
        announcing: Announcing,
        early: Early,
        reports: Reports,
    ) -> None:
        self._state = state
        self._asking = asking
        self._baselines = baselines
        self._announcing = announcing
        self._early = early
        self._reports = reports

    def adopt(self, config: MulticastConfig, now: float) -> None:
        """Adopt settings with another interval."""
        state = self._state
        if config.retransmits:
            if not state.config.retransmits:
                self._early.become_bounded()
            state.pacer.interval = config.xmit_interval
        elif state.config.retransmits:
            self._end_repair(now)
        state.config = config
        self._restart_looks(now)

    def _end_repair(self, now: float) -> None:
        """Request every gap once more; then have every window completed as at a join, because the
        loss of a last message leaves no gap."""
        for entry in self._state.inbound.values():
            if entry.window.has_gap():
                self._asking.request(entry, entry.window.missing(1 << 62), now)
            self._baselines.desync(entry, now)

    def _restart_looks(self, now: float) -> None:
        """Set all looks and alarms anew, by the new interval."""
        state, timers = self._state, self._state.timers
        for entry in state.inbound.values():
            timers.cancel((LOOK, entry.peer))
            timers.cancel((ALARM, entry.peer))
            entry.gap_at = -1
            self._reports.repace(entry, now)
            if not entry.is_synced and not state.config.retransmits:
                timers.set_earlier((SYNC, entry.peer), now + state.config.join_sync_interval)
            if entry.window.has_gap():
                self._asking.notice(entry, now)
        timers.cancel((OWN, 0))
        self._announcing.restart(now)
