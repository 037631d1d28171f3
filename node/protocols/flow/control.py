"""The base that UFC and MFC share: the sending side, and the members of the view."""

from __future__ import annotations

from math import inf
from typing import TYPE_CHECKING, Final

from stormcast.node import trace
from stormcast.node.core import wire
from stormcast.node.core.credits import MAX_TOTAL, UNLIMITED, Allowance, Question, StreamEnd
from stormcast.node.core.errors import BadFrame
from stormcast.node.core.model import FIRST
from stormcast.node.protocols.flow.answering import Answering
from stormcast.node.protocols.flow.config import FlowConfig
from stormcast.node.protocols.flow.windows_below import WindowsBelow
from stormcast.node.protocols.layer import Layer, MemberContext

if TYPE_CHECKING:
    from stormcast.node.core.model import View
    from stormcast.node.core.wire import Head

LONGEST_WAIT: Final = 0.5
"""Seconds between two questions of an adaptive stack, once silence has doubled the wait."""


class FlowControl(Layer):
    """The base of UFC and MFC: the limits that hold, questions for higher ones, and the members."""

    config_type = FlowConfig
    config: FlowConfig

    def __init__(
        self,
        config: FlowConfig,
        context: MemberContext,
    ) -> None:
        super().__init__(config, context)
        self.max_message = config.max_credits
        """Bytes of the largest message that can be sent whole."""
        self._windows: WindowsBelow | None = None
        self._max = config.max_credits
        self._me = context.role.address.short
        self._allowances: dict[int, Allowance] = {}
        self._asking: dict[int, None] = {}
        """Receivers that are being asked, in the order in which that began."""
        self._answering = Answering(
            self.protocol, config, context.port, self._me, self._on_credit, self.wake_by
        )
        self.delivered = self._answering.delivered
        self._view_number = -1

    def stand_on(self, windows: WindowsBelow) -> None:
        """Set the windows that send and deliver what is counted here; the stack does so before it
        starts."""
        self._windows = self._answering.windows = windows

    def start(self, now: float) -> None:
        assert self._windows is not None, "the stack says what is below"

    def stop(self, now: float) -> None:
        self.cancel("ask")
        self.cancel("answer")

    def bounds(self) -> dict[str, float]:
        return {
            "max_credits": self._max,
            "ask_within": self.config.max_block_time,
            "most_untaken": self._max,
        }

    def _total(self, receiver: int) -> int:
        """Return what was sent to `receiver`, in this member's count."""
        raise NotImplementedError

    def _meet(self) -> Allowance:
        """Return an allowance for a new member: full credits from here on."""
        raise NotImplementedError

    def _grown(self, receiver: int, allowance: Allowance) -> None:
        """React to a limit that has grown."""
        raise NotImplementedError

    def _answer_stranger(self, head: Head, question: Question, now: float) -> None:
        self._port.drop("credit-not-member")

    # -- Sending messages -------------------------------------------------------------------------

    def _ask_of(self, receiver: int, allowance: Allowance, now: float, *, is_intro: bool) -> None:
        """Begin to ask. The question stays the same until it is answered, or its connection ends:
        the receiver could not reach a place that moves on."""
        question = allowance.question
        if (
            question is None
            or question.total != self._total(receiver)
            or (question.is_introduction and not is_intro)
            or self._place_of(question, receiver) is None
        ):
            allowance.question = self._question_now(receiver, is_intro=is_intro)
            allowance.wait = self._first_wait()
            allowance.ask_at = now
        self._asking[receiver] = None
        if allowance.ask_at <= now:
            self._send_question(receiver, allowance, now)
        self.wake_by("ask", allowance.ask_at)

    def _question_now(self, receiver: int, *, is_intro: bool) -> Question:
        assert self._windows is not None
        return Question(self._total(receiver), self._windows.sent(receiver), is_intro)

    def _place_of(self, question: Question, receiver: int) -> StreamEnd | None:
        assert self._windows is not None
        if not self.config.historical.asks_anew:
            return question.place
        return question.place.as_of(self._windows.sent(receiver))

    def _first_wait(self) -> float:
        most = self.config.max_block_time
        return min(most, 2 * self.timing.initial_rtt) if self.timing.adaptive else most

    def _send_question(self, receiver: int, allowance: Allowance, now: float) -> None:
        question = allowance.question
        assert question is not None
        place = self._place_of(question, receiver)
        if place is None:
            question = self._question_now(receiver, is_intro=question.is_introduction)
        else:
            question = question._replace(place=place)
        allowance.question = question
        allowance.ask_at = now + allowance.wait
        allowance.wait = min(
            2 * allowance.wait, self.config.max_block_time, max(LONGEST_WAIT, allowance.wait)
        )
        number = allowance.next_ask()
        conn, seqno, unacked = question.place
        self._port.tracer.record(
            trace.CREDIT,
            now,
            protocol=self.protocol,
            stream=trace.ASKED,
            peer=receiver,
            conn=conn,
            count=unacked,
            lo=seqno,
            hi=allowance.limit,
            size=question.total,
        )
        if receiver == self._me:
            self._answering.on_question(receiver, question, now)
            return
        self._port.control(
            receiver,
            wire.CREDIT_REQ,
            self.protocol,
            question.total,
            conn=conn,
            mark=seqno,
            stamp=min(unacked, 0xFFFFFFFF),
            flags=FIRST if question.is_introduction else 0,
            transmission=number,
        )

    def _ask_again(self, now: float) -> None:
        soonest = inf
        for receiver in self._asking:
            allowance = self._allowances[receiver]
            if allowance.ask_at <= now:
                self._send_question(receiver, allowance, now)
            soonest = min(soonest, allowance.ask_at)
        self.wake_at("ask", soonest)

    def _stop_asking(self, receiver: int, allowance: Allowance) -> None:
        allowance.need = 0
        allowance.question = None
        self._asking.pop(receiver, None)
        if not self._asking:
            self.cancel("ask")

    def _on_credit(self, source: int, limit: int, heard: int, now: float) -> None:
        allowance = self._allowances.get(source)
        if allowance is None:
            self._port.drop("credit-not-member")
            return
        total = self._total(source)
        # Nobody can have taken, or heard of, more than was sent.
        if limit > total + self._max or heard > total:
            self._port.drop("credit-beyond-limit")
            return
        if heard > allowance.base:
            allowance.introduce_at = UNLIMITED
        has_grown = limit > allowance.limit
        if has_grown:
            allowance.limit = limit
            self._port.tracer.record(
                trace.CREDIT,
                now,
                protocol=self.protocol,
                stream=trace.BELIEVED,
                peer=source,
                hi=limit,
                size=total,
            )
        question = allowance.question
        # An introduction is repeated until the receiver knows the count; other questions until the
        # message that waits fits the limit.
        is_heard = has_grown or (heard > allowance.base and not allowance.need)
        if question is not None and is_heard and not allowance.is_short(total):
            self._stop_asking(source, allowance)
        if has_grown:
            self._grown(source, allowance)

    # -- The verbs --------------------------------------------------------------------------------

    def receive(self, head: Head, body: bytes, now: float) -> None:
        if body:
            raise BadFrame("body-long")
        if head.kind == wire.CREDIT:
            self._on_credit(head.source, head.lo, head.mark, now)
        elif head.kind == wire.CREDIT_REQ:
            self._on_request_untrusted(head, now)
        else:
            raise BadFrame("kind")

    def _on_request_untrusted(self, head: Head, now: float) -> None:
        if head.lo > MAX_TOTAL or head.mark > wire.MAX_SEQNO:
            raise BadFrame("credit-beyond-limit")
        place = StreamEnd(head.conn, head.mark, head.stamp)
        question = Question(head.lo, place, bool(head.flags & FIRST))
        if head.source in self._allowances:
            self._answering.on_question(head.source, question, now)
        else:
            self._answer_stranger(head, question, now)

    def on_timer(self, what: str, now: float) -> None:
        if what == "ask":
            self._ask_again(now)
        else:
            self._answering.answer(now)

    def on_view(self, view: View, now: float) -> None:
        """Give new members full credits, forget those that left, and end the waits for them."""
        # An older view that comes late must not evict members that are alive (JGRP-3036).
        if view.id.number < self._view_number:
            return
        self._view_number = view.id.number
        members = [member.short for member in view.members]
        for gone in [member for member in self._allowances if member not in members]:
            self._part(gone)
        for member in members:
            if member not in self._allowances:
                self._allowances[member] = self._meet()
                self._answering.meet(member)
        if self._me in self._allowances and self._answering.know_own(
            self._allowances[self._me].base
        ):
            self._allowances[self._me].introduce_at = UNLIMITED

    def _part(self, member: int) -> None:
        self._stop_asking(member, self._allowances.pop(member))
        self._answering.part(member)
