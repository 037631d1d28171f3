"""MFC: credits of multicasts, where the slowest member decides."""

from __future__ import annotations

from typing import TYPE_CHECKING

from stormcast.node.core import wire
from stormcast.node.core.credits import UNLIMITED, Allowance
from stormcast.node.core.model import DONT_LOOPBACK
from stormcast.node.protocols.flow.config import FlowConfig
from stormcast.node.protocols.flow.control import FlowControl
from stormcast.node.protocols.layer import MemberContext

if TYPE_CHECKING:
    from stormcast.node.core.model import View


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
        """The lowest limit of any member: most calls need to look at no other."""
        self._introduce_at = UNLIMITED
        """The lowest total above which a member should hear of the count."""
        self._need = 0

    def room(self, dest: int = wire.GROUP) -> int:
        """Bytes that may be multicast now: what the slowest member takes."""
        return max(0, self._lowest - self._sent)

    def spent(self, dest: int, size: int, now: float, flags: int = 0) -> None:
        """Count a batch of `size` bytes that was numbered and is on its way to all members."""
        self._sent += size
        if flags & DONT_LOOPBACK:
            # This member will not deliver it, and so counts it as taken now.
            self.delivered(self._me, size, 0, now)
        if self._sent > self._introduce_at:
            self._introduce(now)

    def blocked(self, dest: int, size: int, now: float) -> None:
        """Ask each member whose limit is too low for a message of `size` bytes that waits."""
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
