"""VERIFY_SUSPECT2: asks a suspected member whether it is alive before membership excludes it.

Suspicions wait at least `timeout`. Those that are due are confirmed together, on a grid of
`timeout`: so members that fail at nearly the same time are excluded by one view (JGRP-2558,
JGRP-2971). Each suspicion has one fixed deadline, which a repeated one does not move (JGRP-2943).
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from math import inf
from typing import ClassVar, Final

from stormcast.node import trace
from stormcast.node.core import wire
from stormcast.node.core.errors import BadFrame, require
from stormcast.node.core.model import Address, View
from stormcast.node.core.timing import next_on_grid
from stormcast.node.core.wire import Head
from stormcast.node.protocols.events import Cleared, Confirmed
from stormcast.node.protocols.layer import Layer, MemberContext

MAX_MESSAGES: Final = 16


@dataclass(frozen=True, slots=True, kw_only=True)
class VerifySuspect2Config:
    """Settings of VERIFY_SUSPECT2. Durations are seconds."""

    settable: ClassVar[frozenset[str]] = frozenset()

    timeout: float = 1.0
    """Time that a suspected member has to answer; without an answer the suspicion is passed on
    within twice that. Choose it above any round trip of a network that is not broken."""

    num_msgs: int = 3
    """Questions per suspicion, spread over `timeout`. With one question, a single lost frame puts
    out a member that is heard all the time."""

    def __post_init__(self) -> None:
        require(
            self.timeout > 0, f"verify_suspect2.timeout is {self.timeout:g}: it must be positive"
        )
        require(
            0 < self.num_msgs <= MAX_MESSAGES,
            f"verify_suspect2.num_msgs is {self.num_msgs}: it must be 1..{MAX_MESSAGES}",
        )


@dataclass(slots=True)
class _Doubt:
    """One member that is being asked."""

    member: Address
    number: int
    """Number of the verification: it tells repeated suspicions of one member apart."""
    ask_at: float
    due: float
    asked: int = 0


class VerifySuspect2(Layer):
    """Asks suspected members, waits, and confirms those that did not answer."""

    protocol = wire.VERIFY_SUSPECT2
    config_type = VerifySuspect2Config
    config: VerifySuspect2Config

    def __init__(
        self,
        config: VerifySuspect2Config,
        context: MemberContext,
    ) -> None:
        super().__init__(config, context)
        self._doubts: dict[int, _Doubt] = {}
        self._started = 0
        self._origin = 0.0
        """A moment on the grid."""

    @property
    def pending(self) -> tuple[Address, ...]:
        """The members that are being asked."""
        return tuple(doubt.member for doubt in self._doubts.values())

    # -- The verbs ----------------------------------------------------------------------------

    def start(self, now: float) -> None:
        self._origin = now

    def receive(self, head: Head, body: bytes, now: float) -> None:
        if body:
            raise BadFrame("body-long")
        if head.kind == wire.ARE_YOU_DEAD:
            # Answer anyone: the asker may hold a view with this member that has not come here.
            self._port.control(
                head.source,
                wire.I_AM_NOT_DEAD,
                self.protocol,
                head.lo,
                transmission=head.transmission,
            )
        elif head.kind == wire.I_AM_NOT_DEAD:
            doubt = self._doubts.get(head.source)
            # The answer to an earlier question may have been under way for long: the member may be
            # dead by now.
            if doubt is None or head.lo != doubt.number:
                self._refuse(head.source)
            else:
                del self._doubts[head.source]
                self._record(trace.CLEARED, doubt.member, now)
                self._port.events.append(Cleared(doubt.member))
                self._set_timer()
        else:
            raise BadFrame("kind")

    def on_timer(self, what: str, now: float) -> None:
        for doubt in self._doubts.values():
            if doubt.ask_at <= now:
                self._ask(doubt)
        due = [doubt.member for doubt in self._doubts.values() if doubt.due <= now]
        for member in due:
            del self._doubts[member.short]
            self._record(trace.CONFIRMED, member, now)
        if due:
            self._port.events.append(Confirmed(tuple(due)))
        self._set_timer()

    def on_view(self, view: View, now: float) -> None:
        members = {member.short for member in view.members}
        self._doubts = {short: doubt for short, doubt in self._doubts.items() if short in members}
        self._set_timer()

    def stop(self, now: float) -> None:
        self._doubts.clear()
        self._set_timer()

    def bounds(self) -> dict[str, float]:
        return {"verify_after": self.config.timeout, "verify_within": 2 * self.config.timeout}

    def on_suspected(self, members: Iterable[Address], now: float) -> None:
        """Ask these members, unless they are being asked already."""
        for member in members:
            short = member.short
            if (
                member == self.role.address
                or short in self._doubts
                or member not in self.role.members
            ):
                continue
            self._started += 1
            due = now + self.config.timeout
            doubt = _Doubt(member, self._started, now, self._next_window(due))
            self._doubts[short] = doubt
            self._ask(doubt)
        self._set_timer()

    def on_cleared(self, member: Address, now: float) -> None:
        """Stop asking a member of which another protocol found a sign of life."""
        if self._doubts.pop(member.short, None) is not None:
            self._record(trace.CLEARED, member, now)
            self._set_timer()

    # -- Inside -------------------------------------------------------------------------------

    def _next_window(self, due: float) -> float:
        """The first moment of the grid at or after `due`."""
        timeout = self.config.timeout
        since = due - self._origin
        # A little less, so that a moment on the grid itself does not wait for the next point.
        return max(due, self._origin + next_on_grid(since - 1e-6 * timeout, timeout))

    def _ask(self, doubt: _Doubt) -> None:
        self._port.control(
            doubt.member.short,
            wire.ARE_YOU_DEAD,
            self.protocol,
            doubt.number,
            transmission=doubt.asked,
        )
        doubt.asked += 1
        if doubt.asked < self.config.num_msgs:
            doubt.ask_at += self.config.timeout / self.config.num_msgs
        else:
            doubt.ask_at = inf

    def _refuse(self, source: int) -> None:
        """Count an answer that nobody waits for. That of a member is none to count: it answers a
        second question, and the first was answered already, or a question of an earlier doubt."""
        if all(member.short != source for member in self.role.members):
            self._port.drop("stranger")

    def _set_timer(self) -> None:
        self.wake_at(
            "look",
            min((min(doubt.ask_at, doubt.due) for doubt in self._doubts.values()), default=inf),
        )

    def _record(self, what: int, member: Address, now: float) -> None:
        self._port.tracer.record(
            trace.SUSPECT, now, protocol=self.protocol, stream=what, peer=member.short
        )
