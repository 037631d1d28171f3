"""Joins a group: looks for a coordinator, asks it, and founds a group where there is none."""

from __future__ import annotations

from collections.abc import Sequence
from enum import Enum, auto
from math import inf
from typing import TYPE_CHECKING, Final

from stormcast.node import trace
from stormcast.node.core import wire
from stormcast.node.core.digest import Digest
from stormcast.node.core.model import Address, View, ViewId
from stormcast.node.core.wire import Head
from stormcast.node.protocols.events import Discover, Found
from stormcast.node.protocols.gms.messages import (
    TAKEN,
    JoinRefusal,
    pack_address,
    unpack_join_answer_untrusted,
)

if TYPE_CHECKING:
    from stormcast.node.protocols.gms.state import Membership

_QUESTION: Final = "join"
_NUMBER_BITS: Final = 62
"""Of the number that the attempts at a coordinator are counted from: who has not seen a question
cannot guess it."""


class Stage(Enum):
    """The stages of a join."""

    IDLE = auto()
    LOOKING = auto()
    ASKING = auto()
    PAUSING = auto()
    MEMBER = auto()
    REFUSED = auto()


class Client:
    """Joins, in rounds of discovery and asking. Ends as a member, or refused for good."""

    def __init__(self, state: Membership) -> None:
        self._state = state
        self.stage = Stage.IDLE
        self._round = 0
        self._to_ask: list[Address] = []
        self._target: Address | None = None
        """The coordinator that was asked last."""
        self._asked: dict[int, int] = {}
        """By short id of everyone asked in any round, as an answer may come late (JGRP-687): the
        number that its attempts are counted from. Each has its own, which the others do not know.
        """

    def start(self, now: float) -> None:
        """Begin the first round, unless this member has begun already, or is in a group: it would
        then end in a group of its own."""
        if self.stage is not Stage.IDLE or self._state.is_gone:
            return
        self._round = 1
        self._look()

    def _look(self) -> None:
        self.stage = Stage.LOOKING
        self._state.port.events.append(Discover(self._state.config.join_timeout))

    def on_discovered(self, found: Sequence[Found], now: float) -> None:
        """Ask a coordinator, found a group, or pause, by what a round of discovery found."""
        if self.stage is not Stage.LOOKING:
            return
        me = self._state.me
        others = [member for member in found if member.address != me]
        # A joiner that is said to coordinate before it has a view would wait for itself
        # (JGRP-2395).
        if not others or any(member.coordinator == me for member in others):
            self._found_group()
            return
        coordinators = self._coordinators(others)
        clients = [member.address for member in others if not member.is_server]
        if coordinators:
            self._to_ask = coordinators
            self._ask_next(now)
        elif len(clients) == len(others) and me.identity < min(c.identity for c in clients):
            self._found_group()
        else:
            # Another joiner founds the group; or members answered, but do not know a coordinator:
            # a second group beside theirs would only have to be merged again.
            self.stage = Stage.PAUSING
            self._state.wake_at("join", now + self._state.config.all_clients_retry_timeout)

    def _coordinators(self, others: Sequence[Found]) -> list[Address]:
        """Return the coordinators to ask: first those that answered themselves, then those that
        others named, which may be gone. Shuffled, so that not all joiners lose time with the same
        wrong one."""
        servers = [member for member in others if member.is_server]
        present = [member.address for member in servers if member.coordinator == member.address]
        named = [member.coordinator for member in servers if member.coordinator is not None]
        first = sorted(set(present), key=lambda address: address.identity)
        second = sorted(set(named) - set(present), key=lambda address: address.identity)
        self._state.dice.shuffle(first)
        self._state.dice.shuffle(second)
        return first + second

    def _ask_next(self, now: float) -> None:
        state = self._state
        if not self._to_ask:
            self._next_round()
            return
        self.stage = Stage.ASKING
        self._target = target = self._to_ask.pop(0)
        if target.short not in self._asked:
            self._asked[target.short] = state.dice.getrandbits(_NUMBER_BITS)
        self._ask(now)
        state.wake_at("join", now + state.config.join_timeout)

    def _ask(self, now: float, cookie: int = 0) -> None:
        """Ask the coordinator whose turn it is, and repeat that until it answers."""
        assert self._target is not None
        state = self._state
        body = pack_address(state.me)
        dest = self._target.short
        number = self._asked[dest] + self._round
        state.repeats.say(_QUESTION, dest, wire.JOIN_REQ, number, body, now, mark=cookie)

    def on_cookie(self, head: Head, now: float) -> None:
        """Ask again, with the cookie of the coordinator that was asked."""
        is_asked = self._target is not None and head.source == self._target.short
        is_answer = is_asked and head.lo == self._asked[head.source] + self._round
        if self.stage is Stage.ASKING and is_answer and head.mark:
            self._ask(now, head.mark)
        else:
            self._state.port.drop("join-unasked")

    def on_timer(self, now: float) -> None:
        """Go on, because an answer is overdue or a pause is over."""
        if self.stage is Stage.ASKING:
            self._state.repeats.stop(_QUESTION)
            self._ask_next(now)
        elif self.stage is Stage.PAUSING:
            self._next_round()

    def _next_round(self) -> None:
        limit = self._state.config.max_join_attempts
        self._round += 1
        if self._round > limit > 0:
            self._found_group()
        else:
            self._look()

    def _found_group(self) -> None:
        state = self._state
        view = View(ViewId(state.next_number(), state.me), (state.me,))
        state.install(view, Digest({state.me.short: (0, 0)}))

    def on_answer_untrusted(self, head: Head, body: bytes, now: float) -> None:
        """Take a JOIN_RSP, also one of an earlier round, or one that comes after this member has
        joined."""
        answer = unpack_join_answer_untrusted(body)
        state = self._state
        if head.source not in self._asked and state.member(head.source) is None:
            state.port.drop("join-unasked")
        elif isinstance(answer, JoinRefusal):
            self._on_refused(answer, head, now)
        elif state.view is not None and answer.view.id == state.view.id:
            state.say_view_id(head.source, wire.VIEW_ACK, head.transmission)
        elif state.member(head.source) is not None:
            # To a member this is a view like others: with windows that begin where the coordinator
            # is by now, it would miss what newcomers sent since.
            state.take_regular(answer.view, head)
        elif state.view is not None:
            # This member has founded a group, or was let in elsewhere: only a merge can join the
            # two. Whoever merely went over would forget what others of its group still miss.
            state.port.drop("join-late")
        elif obstacle := state.obstacle(answer.view):
            state.port.drop(obstacle)
        else:
            state.note_merged(answer.view, head)
            state.install(answer.view, answer.digest)
            state.say_view_id(head.source, wire.VIEW_ACK, head.transmission)

    def _on_refused(self, refusal: JoinRefusal, head: Head, now: float) -> None:
        state = self._state
        if refusal.joiner != state.me or self.stage in {Stage.IDLE, Stage.MEMBER, Stage.REFUSED}:
            state.port.drop("join-late")
            return
        if not 0 < head.lo - self._asked.get(head.source, head.lo) <= self._round:
            # Anybody can say so in the coordinator's name, but who has not seen the question does
            # not know its number.
            state.port.drop("join-unasked")
            return
        self._end(Stage.REFUSED)
        remedy = "with a new address" if refusal.reason == TAKEN else "when there is room"
        text = f"cannot join: {refusal.reason}; start again {remedy}"
        state.port.tracer.record(trace.ALARM, now, protocol=wire.GMS, peer=head.source, text=text)

    def on_installed(self) -> None:
        """End the join: this member is in a view."""
        if self.stage is not Stage.MEMBER:
            self._end(Stage.MEMBER)

    def give_up(self) -> None:
        """Stop joining, and tell all coordinators that were asked to forget this member."""
        state = self._state
        for short in self._asked:
            state.send(short, wire.LEAVE_REQ, pack_address(state.me))
        self._end(Stage.IDLE)

    def _end(self, stage: Stage) -> None:
        self.stage = stage
        self._to_ask.clear()
        self._state.repeats.stop(_QUESTION)
        self._state.wake_at("join", inf)
