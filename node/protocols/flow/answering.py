"""The receiving side of flow control: what was taken of each sender, which limits it is told."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from stormcast.node import trace
from stormcast.node.core import wire
from stormcast.node.core.credits import Intake, Question, is_reached

if TYPE_CHECKING:
    from stormcast.node.core.wire import Head
    from stormcast.node.protocols.flow.config import FlowConfig
    from stormcast.node.protocols.flow.windows_below import WindowsBelow
    from stormcast.node.protocols.port import Port


class Answering:
    """Counts what the application took of each member, and names limits, unasked or asked."""

    def __init__(
        self,
        protocol: int,
        config: FlowConfig,
        port: Port,
        me: int,
        believe: Callable[[int, int, int, float], None],
        wake_by: Callable[[str, float], None],
    ) -> None:
        self.intakes: dict[int, Intake] = {}
        """By sender, for all members of the view."""
        self.windows: WindowsBelow | None = None
        self._protocol = protocol
        self._max = config.max_credits
        self._low = config.min_credits
        self._port = port
        self._me = me
        self._believe = believe
        """Tells the sending side of this member a limit: that needs no frame."""
        self._wake_by = wake_by
        self._waiting: dict[int, None] = {}
        """Senders that asked, or whose count moved since they did."""

    # -- Members ----------------------------------------------------------------------------------

    def meet(self, member: int) -> None:
        """Add a new member, of which nothing is counted until its count is known."""
        self.intakes[member] = Intake(self._max, self._low)

    def know_own(self, base: int) -> bool:
        """Settle on this member's own count, which needs no question; whether it was unknown
        before."""
        intake = self.intakes.get(self._me)
        if intake is None or intake.is_known:
            return False
        intake.settle(base)
        intake.announce()
        return True

    def part(self, member: int) -> None:
        """Forget a member."""
        del self.intakes[member]
        self._waiting.pop(member, None)

    # -- Counting, and naming limits ---------------------------------------------------------------

    def delivered(self, source: int, size: int, conn: int, now: float) -> None:
        """The application took `size` bytes of `source`, sent on `conn`: counted after delivery,
        because it is the application that may be slow."""
        intake = self.intakes.get(source)
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
            self._believe(source, intake.announced, heard, now)
        else:
            self._port.control(
                source,
                wire.CREDIT,
                self._protocol,
                intake.announced,
                mark=heard,
                transmission=intake.next_answer(),
            )

    def _record_named(self, source: int, limit: int, taken: int, settled: int, now: float) -> None:
        self._port.tracer.record(
            trace.CREDIT,
            now,
            protocol=self._protocol,
            stream=trace.NAMED,
            peer=source,
            lo=settled,
            hi=limit,
            size=taken,
        )

    # -- Questions --------------------------------------------------------------------------------

    def on_question(self, source: int, question: Question, now: float) -> None:
        """Take a member's question for its limit."""
        intake = self.intakes[source]
        intake.question = question
        intake.is_answer_due = True
        self._answer_soon(source, now)

    def _answer_soon(self, source: int, now: float) -> None:
        # In the next turn: by then all that was delivered in this one is counted. Else it would be
        # counted on top of a total that includes it already.
        self._waiting[source] = None
        self._wake_by("answer", now)

    def answer(self, now: float) -> None:
        """Answer the senders that wait, if what they ask about was taken, or has no answer yet."""
        assert self.windows is not None
        waiting, self._waiting = self._waiting, {}
        for source in waiting:
            intake = self.intakes.get(source)
            if intake is None or intake.question is None:
                continue
            question = intake.question
            if intake.is_stale(question):
                self._name_limit(source, intake, now)
                intake.question = None
            elif is_reached(question.place, self.windows.taken(source)):
                intake.settle(question.total, question.place.conn)
                self._announce(source, intake, now)
                intake.question = None
            elif intake.is_answer_due:
                # Name the old limit: had it grown enough to matter, it would have been named. With
                # many questions a sender must not get many small grants.
                self._name_limit(source, intake, now)

    def answer_stranger(self, head: Head, question: Question, now: float) -> bool:
        """Answer a sender that is not in the view by the total that it says, and keep nothing of
        it; whether all that it asks about was taken."""
        assert self.windows is not None
        if not is_reached(question.place, self.windows.taken(head.source)):
            return False
        limit, total = question.total + self._max, question.total
        self._record_named(head.source, limit, total, total, now)
        self._port.control(
            head.source,
            wire.CREDIT,
            self._protocol,
            limit,
            mark=total,
            transmission=head.transmission,
        )
        return True
