"""Alarms about gaps that nobody repairs: a protocol below drops what it must not."""

from __future__ import annotations

from stormcast.node import trace
from stormcast.node.core.gaps import count_seqnos
from stormcast.node.protocols.multicast.baselines import Baselines
from stormcast.node.protocols.multicast.inbound import Inbound
from stormcast.node.protocols.multicast.state import ALARM, Streams


class Alarms:
    """Sounds an alarm about each gap that stays, where nothing is retransmitted."""

    def __init__(self, state: Streams, baselines: Baselines) -> None:
        self._state = state
        self._baselines = baselines

    def look(self, entry: Inbound, now: float) -> None:
        """Sound an alarm if the gap is where it was, and ask the sender to complete the window."""
        if self._state.looks_at(entry):
            # What is missing is asked for; a gap that is left over then is another one.
            entry.gap_at = -1
            return
        window = entry.window
        if not window.has_gap():
            entry.gap_at = -1
        elif window.deliverable != entry.gap_at:
            entry.gap_at = window.deliverable
            due = now + self._state.config.gap_alarm
            self._state.timers.set((ALARM, entry.peer), due)
        else:
            self._sound(entry, now)
            entry.gap_at = -1
            self._baselines.desync(entry, now)

    def _sound(self, entry: Inbound, now: float) -> None:
        state = self._state
        gaps = entry.window.missing(1 << 62)
        state.port.tracer.record(
            trace.ALARM,
            now,
            protocol=state.generation.protocol,
            peer=entry.peer,
            epoch=entry.epoch,
            count=count_seqnos(gaps),
            lo=gaps[0][0],
            hi=gaps[-1][1],
            text=f"a gap stands for {state.config.gap_alarm:g}s and nothing is retransmitted: "
            "something below drops messages; see xmit_interval",
        )
        state.port.drop("gap-alarm")
