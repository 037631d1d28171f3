"""FD_ALL3: suspects members that were not heard of for too long. Finds hung and unreachable hosts.

Every frame of a protocol above counts as a sign of life; a member sends a heartbeat only if it
multicast nothing else (JGRP-2451). A member that was silent for n = ceil(timeout / interval) whole
intervals is suspected. At every check while that lasts, the member that would coordinate without
the suspects reports them, and no other member does.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import ceil
from typing import ClassVar

from stormcast.node import trace
from stormcast.node.core import wire
from stormcast.node.core.errors import BadFrame, require
from stormcast.node.core.model import Address, View
from stormcast.node.core.policy import is_first
from stormcast.node.core.wire import Head
from stormcast.node.protocols.events import Cleared, Suspected
from stormcast.node.protocols.layer import Layer, MemberContext


@dataclass(frozen=True, slots=True, kw_only=True)
class FdAll3Config:
    """Settings of FD_ALL3. Durations are seconds."""

    settable: ClassVar[frozenset[str]] = frozenset()

    timeout: float = 40.0
    """Silence after which a member is suspected. Above the longest pause of a busy host, below what
    a blocked sender may wait."""

    interval: float = 8.0
    """Between two heartbeats, and between two checks. Shorter ones survive more losses within
    `timeout` and cost a multicast each."""

    msg_counts_as_heartbeat: bool = True
    """Whether other frames are signs of life, too. False: only heartbeats are."""

    def __post_init__(self) -> None:
        require(
            0 < self.interval < self.timeout,
            f"fd_all3.interval is {self.interval:g}: it must be positive and less than "
            f"fd_all3.timeout, {self.timeout:g}",
        )

    @property
    def patience(self) -> int:
        """Silent intervals after which a member is suspected."""
        return ceil(self.timeout / self.interval)


class FdAll3(Layer):
    """Counts the silent intervals of each other member."""

    protocol = wire.FD_ALL3
    config_type = FdAll3Config
    config: FdAll3Config

    heard: set[int]
    """Sources of frames since the last check. The stack adds them, if they are in `tracked`."""
    tracked: frozenset[int] = frozenset()
    """Short ids of the other members: only their frames count."""
    mcast_sent: bool = False
    """Set by the stack when this member multicast something: the next heartbeat is needless."""
    suspects: dict[int, Address]

    def __init__(
        self,
        config: FdAll3Config,
        context: MemberContext,
    ) -> None:
        super().__init__(config, context)
        self.heard = set()
        self.suspects = {}
        self._beats: set[int] = set()
        self._silent: dict[int, int] = {}
        """Whole intervals without a sign of life, by tracked member."""
        self._beaten = 0

    # -- The verbs ----------------------------------------------------------------------------

    def receive(self, head: Head, body: bytes, now: float) -> None:
        if head.kind != wire.HEARTBEAT or body:
            raise BadFrame("kind")
        if head.source in self.tracked:
            self._beats.add(head.source)
        else:
            self._port.drop("stranger")

    def on_timer(self, what: str, now: float) -> None:
        if what == "beat":
            self._beat(now)
        else:
            self._check(now)

    def on_view(self, view: View, now: float) -> None:
        tracked = frozenset(member.short for member in view.members if member != self.role.address)
        # A new member counts as just heard of: it has a whole timeout.
        self.heard |= tracked - self.tracked
        self.heard &= tracked
        self._beats &= tracked
        self._silent = {short: self._silent.get(short, 0) for short in tracked}
        self.suspects = {
            short: member for short, member in self.suspects.items() if short in tracked
        }
        self.tracked = tracked
        if tracked:
            if not self.is_waiting("beat"):
                self.wake_at("beat", now)
            self.wake_by("check", now + self.config.interval)
        else:
            self._rest()

    def stop(self, now: float) -> None:
        self.tracked = frozenset()
        self._rest()

    def bounds(self) -> dict[str, float]:
        config = self.config
        return {
            "suspect_after": config.patience * config.interval,
            "suspect_within": (config.patience + 1) * config.interval,
            "heartbeat_spacing": config.interval,
        }

    def notice(self, now: float) -> None:
        """Clear suspects that were heard; called at the end of each turn if there are any."""
        signs = self._signs()
        for short in [short for short in self.suspects if short in signs]:
            self._clear(short, now)

    def on_cleared(self, member: Address, now: float) -> None:
        """Clear a member of which another protocol found a sign of life, which counts here, too."""
        if member.short in self.tracked:
            self._beats.add(member.short)
            if self.suspects.pop(member.short, None) is not None:
                self._record(trace.CLEARED, member.short, now)

    # -- Inside -------------------------------------------------------------------------------

    def _rest(self) -> None:
        """Stop heartbeats and checks: without other members there is nobody to hear or tell."""
        self.cancel("beat")
        self.cancel("check")
        self.heard.clear()
        self._beats.clear()
        self._silent.clear()
        self.suspects.clear()

    def _beat(self, now: float) -> None:
        self.wake_at("beat", now + self.config.interval)
        if self.mcast_sent and self.config.msg_counts_as_heartbeat:
            self.mcast_sent = False
            return
        self._beaten += 1
        self._port.control(wire.GROUP, wire.HEARTBEAT, self.protocol, self._beaten)

    def _signs(self) -> set[int]:
        return self._beats | self.heard if self.config.msg_counts_as_heartbeat else self._beats

    def _check(self, now: float) -> None:
        self.wake_at("check", now + self.config.interval)
        self.notice(now)
        signs = self._signs()
        self.heard, self._beats = set(), set()
        view = self.role.view
        assert view is not None
        for member in view.members:
            short = member.short
            if short in signs:
                self._silent[short] = 0
            elif short in self.tracked:
                self._silent[short] += 1
                if self._silent[short] >= self.config.patience and short not in self.suspects:
                    self.suspects[short] = member
                    self._record(trace.SUSPECTED, short, now)
        suspects = tuple(self.suspects.values())
        if suspects and is_first(self.role.address, view.members, suspects):
            self._port.events.append(Suspected(suspects))

    def _clear(self, short: int, now: float) -> None:
        member = self.suspects.pop(short)
        self._record(trace.CLEARED, short, now)
        self._port.events.append(Cleared(member))

    def _record(self, what: int, short: int, now: float) -> None:
        self._port.tracer.record(
            trace.SUSPECT, now, protocol=self.protocol, stream=what, peer=short
        )
