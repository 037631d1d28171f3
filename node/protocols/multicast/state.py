"""State that all parts of one member's multicast share: settings, view, windows, timers."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from stormcast.node import trace
from stormcast.node.core import wire
from stormcast.node.core.batch import Batch
from stormcast.node.core.model import View
from stormcast.node.core.timers import Timers
from stormcast.node.core.timing import Pacer, Timing
from stormcast.node.core.window import SendWindow
from stormcast.node.protocols.multicast.config import MulticastConfig
from stormcast.node.protocols.multicast.inbound import Inbound
from stormcast.node.protocols.port import Port
from stormcast.node.protocols.windowed import gauge_received, gauge_sent

if TYPE_CHECKING:
    from stormcast.node.protocols.multicast.generations import Generation

OWN: Final = "own"
HAND_UP: Final = "hand up"
LOOK: Final = "look"
ACK: Final = "ack"
SYNC: Final = "sync"
ALARM: Final = "alarm"
THAW: Final = "thaw"
STRANGERS: Final = "strangers"
SLOW: Final = "slow"


class Streams:
    """The own multicasts and those of the other members."""

    def __init__(
        self, generation: Generation, config: MulticastConfig, timing: Timing, port: Port
    ) -> None:
        self.generation = generation
        self.config = config
        """The settings. Those in `settable` may change at run time, the others do not."""
        self.pacer = Pacer(timing, config.xmit_interval)
        self.join_pacer = Pacer(timing, config.join_sync_interval)
        """The clock of windows that are not complete yet while nothing is retransmitted."""
        self.port = port
        self.view: View | None = None
        self.view_number = 0
        """The low 32 bits of the view's number, as in the trace; 0 before the first view."""
        self.view_tag = 0
        """Hash of the view's id, which tells it from all other views; 0 before the first."""
        self.members: frozenset[int] = frozenset()
        """Short ids of the view's members."""
        self.coming: frozenset[int] = frozenset()
        """Short ids of members of a view that is about to be installed: they may ask already."""
        self.is_consuming = True
        """Whether the application takes deliveries."""
        self.is_frozen = False
        """Whether a digest of this member is in use. What it promises must then not be purged
        anywhere: no ack is sent, and own messages are not purged for being delivered here."""
        self.own: SendWindow[Batch] = SendWindow(config.window_messages, config.window_bytes)
        self.own_delivered = 0
        """The highest own message this member has delivered to itself."""
        self.inbound: dict[int, Inbound] = {}
        self.timers: Timers[tuple[str, int]] = Timers()
        """Each key: what to do, and about which sender (0: about none)."""

    def may_ask(self, peer: int) -> bool:
        """Whether questions of a peer are answered."""
        return peer in self.members or peer in self.coming

    def looks_at(self, entry: Inbound) -> bool:
        """Whether gaps of this window are asked for."""
        return self.config.retransmits or not entry.is_synced

    def standing_gaps(self) -> int:
        """Return the number of windows with a gap that no member is asked to fill, and that will
        raise an alarm."""
        return sum(
            not self.looks_at(entry) and entry.window.has_gap() for entry in self.inbound.values()
        )

    def gap_pacer(self) -> Pacer:
        """The clock by which gaps are asked for."""
        return self.pacer if self.config.retransmits else self.join_pacer

    def freeze(self, now: float, *, is_frozen: bool) -> None:
        """Hold acks and purges back, or no longer, and record it."""
        self.is_frozen = is_frozen
        protocol = self.generation.protocol
        self.port.tracer.record(trace.FREEZE, now, protocol=protocol, lo=int(is_frozen))

    def gauge(self, now: float) -> None:
        """Record how full the windows are (G5)."""
        protocol = self.generation.protocol
        gauge_sent(self.port, protocol, wire.GROUP, self.own, now)
        for peer, entry in self.inbound.items():
            gauge_received(self.port, protocol, peer, entry.window, now)
