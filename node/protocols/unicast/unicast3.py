"""UNICAST3: cumulative delayed acks; the sender repeats only its newest message.

One newest message is enough to make every hole visible to the receiver, which then asks for just
what
it misses. See docs/protocols/unicast3.md.
"""

from __future__ import annotations

from typing import ClassVar

from node.core import wire
from node.protocols.unicast.config import Unicast3Config, Unicast4Config, UnicastConfig
from node.protocols.unicast.entries import ReceiverEntry
from node.protocols.unicast.machinery import Unicast


class Unicast3(Unicast):
    """The third generation; its `sync` setting says how a lost window is found again."""

    protocol = wire.UNICAST3
    config_type: ClassVar[type[UnicastConfig]] = Unicast3Config
    config: Unicast3Config | Unicast4Config

    def _after_data(
        self, entry: ReceiverEntry, new: int, size: int, flags: int, now: float
    ) -> None:
        entry.unacked += new
        if entry.unacked >= self._ack_threshold():
            self._ack_soon(entry)
        else:
            # Duplicates are acked too: the sender repeats only because it misses our ack.
            self._ack_later(entry, now)

    def _ack_threshold(self) -> int:
        return self.config.ack_threshold

    def _defers_sync(self) -> bool:
        return isinstance(self.config, Unicast3Config) and self.config.sync == "deferred"

    def _sync_spacing(self) -> float:
        if self._defers_sync():
            timing = self.pacer.timing
            pace = timing.reorder_tolerance if timing.adaptive else self.config.xmit_interval
            return max(self.config.sync_min_interval, pace)
        return super()._sync_spacing()
