"""What both halves of reliable multicast share: the own window, the others', and the timers."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections import deque
from random import Random
from typing import ClassVar, Final, NamedTuple

from node import trace
from node.core import wire
from node.core.batch import Batch
from node.core.codec import Body
from node.core.model import Payload, View
from node.core.timers import Timers
from node.core.timing import Pacer, Timing
from node.core.window import SendWindow
from node.core.wire import Head
from node.protocols.multicast.config import MulticastConfig
from node.protocols.multicast.inbound import Inbound
from node.protocols.port import Port

OWN: Final = "own"
LOOK: Final = "look"
ACK: Final = "ack"
SYNC: Final = "sync"
ALARM: Final = "alarm"
THAW: Final = "thaw"
STRANGERS: Final = "strangers"
SLOW: Final = "slow"


class HeldOwn(NamedTuple):
    """An own batch that waits until the application takes deliveries again."""

    lo: int
    body: Body
    payloads: list[Payload]
    flags: int


class State(ABC):
    """The state of one member's multicast protocol."""

    protocol: ClassVar[int]
    config_type: ClassVar[type[MulticastConfig]]

    def __init__(self, config: MulticastConfig, timing: Timing, port: Port, dice: Random) -> None:
        self.config = config
        self.pacer = Pacer(timing, config.xmit_interval)
        self.join_pacer = Pacer(timing, config.join_sync_interval)
        """The clock of windows that are not complete yet while nothing is retransmitted."""
        self.view: View | None = None
        self.members: frozenset[int] = frozenset()
        """Short ids of the view's members."""
        self.coming: frozenset[int] = frozenset()
        """Those of a view that is about to be installed: they may ask already."""
        self.is_server = False
        self.is_stopped = False
        self.is_consuming = True
        """Whether the application takes deliveries."""
        self.is_frozen = False
        """While a digest of this member is in use, what it promises must not be purged anywhere: no
        ack leaves, and none of its own messages goes because it has delivered them itself."""
        self.own: SendWindow[Batch] = SendWindow(config.window_messages, config.window_bytes)
        self.own_delivered = 0
        """The highest own message this member has delivered to itself."""
        self.timers: Timers[tuple[str, int]] = Timers()
        self._port = port
        self._codec = port.codec
        self._tracer = port.tracer
        self._dice = dice
        self._secret = dice.randbytes(16)
        """What makes the questions of this member hard to guess."""
        self._questions = 0
        """How many of them there were: each is another one."""
        self._inbound: dict[int, Inbound] = {}
        self._ended: dict[int, tuple[int, list[tuple[int, int]]]] = {}
        """Of senders whose window was removed, lately: what was delivered of them in order, and
        what out of band beyond that."""
        self._former: deque[int] = deque(maxlen=64)
        """Members that left: what still arrives from them is late, not early."""
        self._held_own: deque[HeldOwn] = deque()
        self._queue: list[tuple[Head, bytes]] = []
        """Frames that came before the first view."""
        self._queued_messages = 0
        self._strangers: dict[int, tuple[float, list[tuple[Head, bytes]]]] = {}
        """Frames of senders that are not in the view yet, and when the first of each came."""
        self._kept_before_bound = 0, 0
        """Messages queued, and frames of senders not in the view, when both became bounded while
        the stack ran: what is there stays."""
        self._epochs = 0
        self.acks_now: list[Inbound] = []
        """Senders to be acked at the end of this turn."""
        self.view_number = 0
        """The number of the view, as the trace has it; 0 before the first."""
        self.view_tag = 0
        """Tells the view from all others, whoever made them; 0 before the first."""

    # -- What a protocol decides -----------------------------------------------------------------

    @abstractmethod
    def _after_data(self, entry: Inbound, new: int, now: float) -> None:
        """New messages (or duplicates, when `new` is 0) came: ack now, later, or not at all."""

    @abstractmethod
    def _own_progress(self, now: float) -> None:
        """Own messages were delivered here, which may be all that was missing to purge them."""

    @abstractmethod
    def _members_changed(self, now: float) -> None:
        """A view was installed: who left need no longer be waited for."""

    @abstractmethod
    def _has_more_to_announce(self) -> bool:
        """Whether the highest own seqno should be told again."""

    @abstractmethod
    def _announced(self, entry: Inbound, now: float) -> None:
        """A sender told its highest seqno."""

    # -- Small things both halves use --------------------------------------------------------------

    def _looks_at(self, entry: Inbound) -> bool:
        """Whether gaps of this window are asked for."""
        return self.config.retransmits or not entry.is_synced

    def _pacer_of(self, entry: Inbound) -> Pacer:
        return self.pacer if self.config.retransmits else self.join_pacer

    def _purge(self, seqno: int, now: float) -> None:
        """Forget own messages that every member has (G6), and let the outbox fill the room."""
        own = self.own
        low = own.low
        seqno = min(seqno, self.own_delivered)
        if seqno <= low:
            return
        own.ack(seqno)
        self._tracer.records.append(
            (trace.PURGED, 0, self.protocol, 0, wire.GROUP, 0, 0, self.view_number,
             seqno - low, low + 1, seqno, 0, 0, 0, 0, now)
        )  # fmt: skip
        self._port.woken.append(wire.GROUP)

    def _gauge(self, stream: int, peer: int, value: int, bound: int, now: float) -> None:
        self._tracer.record(
            trace.GAUGE, now, protocol=self.protocol, stream=stream, peer=peer, lo=value, hi=bound
        )
