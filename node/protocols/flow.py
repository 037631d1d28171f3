"""UFC and MFC: a fast sender does not overrun a slow receiver. Credits in bytes; keeps G5.

UFC counts unicasts per receiver, MFC multicasts, where the slowest member decides. Every limit is a
total in the sender's own count (see node/core/credits.py). The receiver names it, unasked, when
little is left of the last one, and whenever it is asked.

Why a pair cannot disagree for long. The sender's count never runs backwards: whoever it meets, or
meets again, starts where the count of *all* its bytes stands. So nothing tells meetings apart, and
nothing needs to: a CREDIT from before is below the limit that holds, and changes nothing. The
receiver may have missed the meeting, or the sender; it may know no count, or a smaller one than is
right. It then names too little, or nothing: the sender stops at its limit, and asks. A CREDIT_REQ
says "I have sent `lo` bytes in all, and seqno `mark` was the last of them". When the receiver has
taken that seqno, everything up to `lo` was taken, or will never come: that *is* its count, exactly.
It settles on it and names a full budget above it. So bytes that were lost with a connection,
skipped, or taken while nobody counted cost nothing for longer than one block.

A seqno belongs to a connection, and may be lost with it. So each time that a question leaves, the
sender looks at its stream. While the connection lives the question stays as it is, but for how much
of it is acked: a receiver that dropped its window believes that. Once it has ended, the question is
made anew: all bytes sent so far, and where the stream stands now, or, where no connection followed,
seqno 0 of the first that may. That is reached at once. What a receiver has settled on so holds all
bytes of connections before, and it counts none of those that come late.

Why it is never too much. The receiver's count is at most what it took (until it settles, it counts
nothing; when it settles, all that is counted was taken, or ended with its connection; later it adds
what it takes), and so no more than `max_credits` of one meeting are sent and not taken (P-33). Why
nobody waits for ever: a sender that waits sends nothing more, the seqno it named is delivered,
given up by the window below, or ends with its connection, and question and answer are repeated
until one of each arrives (P-34, P-09).
"""

from __future__ import annotations

from dataclasses import dataclass, field
from math import inf
from typing import TYPE_CHECKING, ClassVar, Final
from typing import Protocol as Interface

from stormcast.node import trace
from stormcast.node.core import wire
from stormcast.node.core.credits import (
    MAX_TOTAL,
    UNLIMITED,
    Allowance,
    Budget,
    Intake,
    Place,
    Question,
    is_reached,
)
from stormcast.node.core.errors import BadFrame, require
from stormcast.node.core.model import DONT_LOOPBACK, FIRST
from stormcast.node.protocols.layer import Layer, MemberContext
from stormcast.node.reading.fields import Share

if TYPE_CHECKING:
    from stormcast.node.core.model import View
    from stormcast.node.core.wire import Head

LONGEST_WAIT: Final = 0.5
"""Seconds between two questions of an adaptive stack, once silence has doubled the wait."""


@dataclass(frozen=True, slots=True, kw_only=True)
class HistoricalFlow:
    """A flaw of an earlier design. Only museum stacks may have it."""

    asks_anew: bool = True
    """False: a sender that waits for credits asks about the same place of its stream for ever,
    though the connection of that place is gone."""


SOUND: Final = HistoricalFlow()


@dataclass(frozen=True, slots=True, kw_only=True)
class FlowConfig:
    """Settings of UFC and of MFC. The credits must be equal on all members."""

    settable: ClassVar[frozenset[str]] = frozenset()
    """What may change while the stack runs."""

    max_credits: int = 5_000_000
    """Bytes of one sender that may be sent and not yet taken by one receiver. More hides a longer
    round trip and costs memory; a larger message can not be sent without FRAG."""

    min_threshold: Share = 0.2
    """Share of the credits at which the receiver names a new limit. Lower saves frames; higher
    keeps a sender far away from running dry."""

    max_block_time: float = 5.0
    """Seconds between two questions of a sender that waits (in `fast` timing their upper bound).
    The first one is asked at once: an answer grants nothing new, so asking is cheap."""

    historical: HistoricalFlow = field(default=SOUND)
    """A flaw to reproduce."""

    def __post_init__(self) -> None:
        require(
            0 < self.max_credits <= 1 << 40,
            f"max_credits is {self.max_credits}: it must be 1..{1 << 40} bytes",
        )
        require(
            0 < self.min_threshold < 1,
            f"min_threshold is {self.min_threshold:g}: it must lie between 0 and 1",
        )
        require(
            self.max_block_time > 0,
            f"max_block_time is {self.max_block_time:g}: it must be positive",
        )

    @property
    def min_credits(self) -> int:
        """What is left of a limit when the next one is named."""
        return int(self.max_credits * self.min_threshold)


class WindowsBelow(Interface):
    """What flow control asks of the windows below; the stack hands it in."""

    def sent(self, peer: int) -> Place:
        """Where the stream to `peer` ends; where no connection is, seqno 0 of the first that may
        come."""

    def taken(self, peer: int) -> tuple[int, int] | None:
        """Connection and seqno up to which `peer`'s messages were delivered, without a gap; None
        when there is no window for them."""


class FlowControl(Layer):
    """What UFC and MFC share: asking, answering, and who is there to do it with."""

    config_type = FlowConfig
    config: FlowConfig

    def __init__(
        self,
        config: FlowConfig,
        context: MemberContext,
    ) -> None:
        super().__init__(config, context)
        self.stream: WindowsBelow | None = None
        """Set by the stack before it starts."""
        self.max_message = config.max_credits
        """Bytes of the largest message that can be sent whole."""
        self._max = config.max_credits
        self._me = context.role.address.short
        self._allowances: dict[int, Allowance] = {}
        self._intakes: dict[int, Intake] = {}
        self._asking: dict[int, None] = {}
        """Receivers that are being asked, in the order in which that began."""
        self._answering: dict[int, None] = {}
        self._view_number = -1

    def start(self, now: float) -> None:
        assert self.stream is not None, "the stack says where its streams are"

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
        """What was sent to `receiver`, in this member's count."""
        raise NotImplementedError

    def _meet(self) -> Allowance:
        """An allowance for somebody new: full credits from here on."""
        raise NotImplementedError

    def _grown(self, receiver: int, allowance: Allowance) -> None:
        """The limit moved up."""
        raise NotImplementedError

    def _answer_stranger(self, head: Head, question: Question, now: float) -> None:
        self._port.drop("credit-not-member")

    # -- Receiving messages -----------------------------------------------------------------------

    def delivered(self, source: int, size: int, conn: int, now: float) -> None:
        """The application took `size` bytes of `source`, sent on `conn`: counted after delivery,
        because it is the application that may be slow."""
        intake = self._intakes.get(source)
        if intake is None:
            return
        if intake.took(size, conn):
            self._announce(source, intake, now)
        if intake.question is not None:
            self._answer_soon(source, now)

    def _announce(self, source: int, intake: Intake, now: float) -> None:
        intake.announce()
        self._name_limit(source, intake, now)

    def _name_limit(self, source: int, intake: Intake, now: float) -> None:
        intake.is_answer_due = False
        heard = intake.settled
        if intake.question is not None:
            heard = intake.question.total
        self._record_named(source, intake.announced, intake.taken, intake.settled, now)
        if source == self._me:
            self._on_credit(source, intake.announced, heard, now)
        else:
            self._port.control(
                source,
                wire.CREDIT,
                self.protocol,
                intake.announced,
                mark=heard,
                transmission=intake.next_answer(),
            )

    def _record_named(self, source: int, limit: int, taken: int, settled: int, now: float) -> None:
        self._port.tracer.record(
            trace.CREDIT,
            now,
            protocol=self.protocol,
            stream=trace.NAMED,
            peer=source,
            lo=settled,
            hi=limit,
            size=taken,
        )

    def _on_question(self, source: int, question: Question, now: float) -> None:
        intake = self._intakes[source]
        intake.question = question
        intake.is_answer_due = True
        self._answer_soon(source, now)

    def _answer_soon(self, source: int, now: float) -> None:
        # In a turn of its own: what was delivered in this one must have been counted, or it would
        # be counted on top of a total that holds it already.
        self._answering[source] = None
        self.wake_by("answer", now)

    def _answer(self, now: float) -> None:
        assert self.stream is not None
        waiting, self._answering = self._answering, {}
        for source in waiting:
            intake = self._intakes.get(source)
            if intake is None or intake.question is None:
                continue
            question = intake.question
            if intake.is_stale(question):
                self._name_limit(source, intake, now)
                intake.question = None
            elif is_reached(question.place, self.stream.taken(source)):
                intake.settle(question.total, question.place.conn)
                self._announce(source, intake, now)
                intake.question = None
            elif intake.is_answer_due:
                # The limit as it was: had it moved enough to matter, it would have been named. A
                # question must not buy credits in crumbs.
                self._name_limit(source, intake, now)

    # -- Sending messages -------------------------------------------------------------------------

    def _ask_of(self, receiver: int, allowance: Allowance, now: float, *, is_intro: bool) -> None:
        """Begin to ask. What is asked stays the same until it is answered, or its connection ends:
        the receiver reaches a place that stands still."""
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
        assert self.stream is not None
        return Question(self._total(receiver), self.stream.sent(receiver), is_intro)

    def _place_of(self, question: Question, receiver: int) -> Place | None:
        assert self.stream is not None
        if not self.config.historical.asks_anew:
            return question.place
        return question.place.as_of(self.stream.sent(receiver))

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
            self._on_question(receiver, question, now)
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
        # Nobody has taken, or heard of, what was not sent.
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
        # An introduction ends when it was heard, a wait when what waits fits.
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
        place = Place(head.conn, head.mark, head.stamp)
        question = Question(head.lo, place, bool(head.flags & FIRST))
        if head.source in self._intakes:
            self._on_question(head.source, question, now)
        else:
            self._answer_stranger(head, question, now)

    def on_timer(self, what: str, now: float) -> None:
        if what == "ask":
            self._ask_again(now)
        else:
            self._answer(now)

    def on_view(self, view: View, now: float) -> None:
        """New members get full credits, who left is forgotten, and who waited for it goes on."""
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
                self._intakes[member] = Intake(self._max, self.config.min_credits)
        if self._me in self._intakes and not self._intakes[self._me].is_known:
            # Nobody needs to tell us our own count.
            self._intakes[self._me].settle(self._allowances[self._me].base)
            self._intakes[self._me].announce()
            self._allowances[self._me].introduce_at = UNLIMITED

    def _part(self, member: int) -> None:
        self._stop_asking(member, self._allowances.pop(member))
        del self._intakes[member]
        self._answering.pop(member, None)


class Ufc(FlowControl):
    """UFC: a budget per receiver. Who is not in the view is sent to without limit."""

    protocol = wire.UFC
    _allowances: dict[int, Budget]  # type: ignore[assignment]  # narrower, and filled by _meet only

    def __init__(
        self,
        config: FlowConfig,
        context: MemberContext,
    ) -> None:
        super().__init__(config, context)
        self._sent = 0
        """All bytes to anyone, in view or not: where the count of a new budget begins, so that it
        is above every count its receiver may remember."""

    def room(self, dest: int) -> int:
        """Bytes that may be sent to `dest` now."""
        budget = self._allowances.get(dest)
        return UNLIMITED if budget is None else max(0, budget.limit - budget.total)

    def spent(self, dest: int, size: int, now: float, flags: int = 0) -> None:
        """A batch of `size` bytes was numbered and is on its way."""
        self._sent += size
        budget = self._allowances.get(dest)
        if budget is None or (dest == self._me and flags & DONT_LOOPBACK):
            return
        budget.total += size
        if budget.total > budget.introduce_at:
            budget.introduce_at = UNLIMITED
            self._ask_of(dest, budget, now, is_intro=True)

    def blocked(self, dest: int, size: int, now: float) -> None:
        """A message of `size` bytes for `dest` waits for room."""
        budget = self._allowances.get(dest)
        if budget is None or size <= budget.limit - budget.total:
            self._port.woken.append(dest)
            return
        budget.need = min(size, self._max)
        self._ask_of(dest, budget, now, is_intro=False)

    def _total(self, receiver: int) -> int:
        return self._allowances[receiver].total

    def _meet(self) -> Budget:
        return Budget(self._sent, self._max)

    def _grown(self, receiver: int, allowance: Allowance) -> None:
        if not allowance.need:
            self._port.woken.append(receiver)

    def _part(self, member: int) -> None:
        super()._part(member)
        self._port.woken.append(member)

    def _answer_stranger(self, head: Head, question: Question, now: float) -> None:
        """Unicasts cross the borders of views: who holds a view with us, and is not in ours, must
        not wait for ever. Its own words are enough for an answer, and nothing is kept of it."""
        assert self.stream is not None
        if is_reached(question.place, self.stream.taken(head.source)):
            limit, total = question.total + self._max, question.total
            self._record_named(head.source, limit, total, total, now)
            self._port.control(
                head.source,
                wire.CREDIT,
                self.protocol,
                limit,
                mark=total,
                transmission=head.transmission,
            )
        else:
            self._port.drop("credit-not-member")


class Mfc(FlowControl):
    """MFC: one count of multicasts, a limit per member; the lowest one holds."""

    protocol = wire.MFC

    def __init__(
        self,
        config: FlowConfig,
        context: MemberContext,
    ) -> None:
        super().__init__(config, context)
        self._sent = 0
        self._lowest = UNLIMITED
        """The lowest limit of any member: what the common case looks at."""
        self._introduce_at = UNLIMITED
        """The lowest total above which a member should hear of the count."""
        self._need = 0

    def room(self, dest: int = wire.GROUP) -> int:
        """Bytes that may be multicast now: what the slowest member takes."""
        return max(0, self._lowest - self._sent)

    def spent(self, dest: int, size: int, now: float, flags: int = 0) -> None:
        """A batch of `size` bytes was numbered and is on its way to all members."""
        self._sent += size
        if flags & DONT_LOOPBACK:
            # It will not come back to be counted.
            self.delivered(self._me, size, 0, now)
        if self._sent > self._introduce_at:
            self._introduce(now)

    def blocked(self, dest: int, size: int, now: float) -> None:
        """A message of `size` bytes waits for room: ask whoever has too little."""
        if size <= self._lowest - self._sent:
            self._port.woken.append(wire.GROUP)
            return
        self._need = min(size, self._max)
        for member, allowance in self._allowances.items():
            allowance.need = self._need
            if allowance.is_short(self._sent):
                self._ask_of(member, allowance, now, is_intro=False)
            else:
                allowance.need = 0

    def _introduce(self, now: float) -> None:
        for member, allowance in self._allowances.items():
            if self._sent > allowance.introduce_at:
                allowance.introduce_at = UNLIMITED
                self._ask_of(member, allowance, now, is_intro=True)
        self._look_for_lowest()

    def _look_for_lowest(self) -> None:
        allowances = self._allowances.values()
        self._lowest = min((each.limit for each in allowances), default=UNLIMITED)
        self._introduce_at = min((each.introduce_at for each in allowances), default=UNLIMITED)
        if self._need and self._need <= self._lowest - self._sent:
            self._need = 0
            self._port.woken.append(wire.GROUP)

    def on_view(self, view: View, now: float) -> None:
        super().on_view(view, now)
        self._look_for_lowest()

    def _total(self, receiver: int) -> int:
        return self._sent

    def _meet(self) -> Allowance:
        return Allowance(self._sent, self._max)

    def _grown(self, receiver: int, allowance: Allowance) -> None:
        self._look_for_lowest()
