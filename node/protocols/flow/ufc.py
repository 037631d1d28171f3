"""UFC: credits of unicasts, for each receiver."""

from __future__ import annotations

from stormcast.node.core import wire
from stormcast.node.core.credits import UNLIMITED, Allowance, Budget, Question
from stormcast.node.core.model import DONT_LOOPBACK
from stormcast.node.core.wire import Head
from stormcast.node.protocols.flow.config import FlowConfig
from stormcast.node.protocols.flow.control import FlowControl
from stormcast.node.protocols.layer import MemberContext


class Ufc(FlowControl):
    """UFC: a budget per receiver. For receivers that are not in the view there is no limit."""

    protocol = wire.UFC
    _allowances: dict[int, Budget]  # type: ignore[assignment]  # narrower, and filled by _meet only

    def __init__(
        self,
        config: FlowConfig,
        context: MemberContext,
    ) -> None:
        super().__init__(config, context)
        self._sent = 0
        """Bytes sent to all receivers together, in the view or not. The count of a new budget
        begins there, so that it is above every count its receiver may remember."""

    def room(self, dest: int) -> int:
        """Bytes that may be sent to `dest` now."""
        budget = self._allowances.get(dest)
        return UNLIMITED if budget is None else max(0, budget.limit - budget.total)

    def spent(self, dest: int, size: int, now: float, flags: int = 0) -> None:
        """Count a batch of `size` bytes that was numbered and is on its way."""
        self._sent += size
        budget = self._allowances.get(dest)
        if budget is None or (dest == self._me and flags & DONT_LOOPBACK):
            return
        budget.total += size
        if budget.total > budget.introduce_at:
            budget.introduce_at = UNLIMITED
            self._ask_of(dest, budget, now, is_intro=True)

    def blocked(self, dest: int, size: int, now: float) -> None:
        """Ask for credits, because a message of `size` bytes for `dest` waits for room."""
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
        """Answer a sender that is not in this member's view. It may hold a view with this member,
        and must not wait for ever: unicasts go from view to view. Its question alone is enough for
        an answer, and nothing is kept of it."""
        is_told = self._port.strangers.said.admits_for(head.source, now)
        if not is_told or not self._answering.answer_stranger(head, question, now):
            self._port.drop("credit-not-member")
