"""Settings of the unicast generations: what all share, and what each adds."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import ClassVar, Final

from stormcast.node.core.errors import require
from stormcast.node.core.window import quarter_of
from stormcast.node.core.wire import MAX_RANGES

CONN_IDS: Final = ("every", "first", "none")


@dataclass(frozen=True, slots=True, kw_only=True)
class Historical:
    """Flaws of earlier designs, each switched on by itself. Only museum scenarios may."""

    conn_ids: str = "every"
    """`none`: frames name no connection (the original UNICAST). `first`: only message 1 does."""

    conn_check: bool = True
    """False: ACK, STABLE and CLOSE act on whatever connection is there (JGRP-1577)."""

    repair_ends: bool = True
    """False: nothing notices a lost first or last message (JGRP-1563, JGRP-1548)."""

    flush_on_close: bool = True
    """False: closing a connection throws away what is still unacked (JGRP-1586)."""

    stamps: bool = True
    """False: delayed ACKs are believed; receivers wait for what was purged (JGRP-1873, 1875)."""

    sync_spacing: bool = True
    """False: every message without a window asks for the first seqno (JGRP-1874)."""

    waiting_is_use: bool = True
    """False: a sender that waits for credits counts as idle, and is closed with all that waits."""

    remembers_delivered: bool = True
    """False: a window that opens again delivers what the one before it had delivered, too."""

    view_decides: bool = True
    """False: a silent member of the view is given up before failure detection excludes it."""

    def __post_init__(self) -> None:
        require(
            self.conn_ids in CONN_IDS,
            f"historical.conn_ids is {self.conn_ids!r}: choose one of {', '.join(CONN_IDS)}",
        )


FLAWLESS: Final = Historical()


@dataclass(frozen=True, slots=True, kw_only=True)
class UnicastConfig:
    """Settings that all generations share. Durations are seconds."""

    settable: ClassVar[frozenset[str]] = frozenset(
        {
            "xmit_interval",
            "sync_min_interval",
            "conn_expiry_timeout",
            "conn_close_timeout",
            "max_retransmit_time",
            "max_xmit_req_size",
        }
    )
    """Settings that may change while the stack runs."""

    xmit_interval: float = 0.5
    """Pace of repair in `compatible` timing, its upper bound in `fast`. Lower heals loss sooner and
    costs control traffic."""

    conn_expiry_timeout: float = 0.0
    """Idle time after which an open connection starts closing; 0 never."""

    conn_close_timeout: float = 240.0
    """Time a closing connection lingers, flushing, before it is removed; 0 for ever. Longer than
    any frame may be under way."""

    max_retransmit_time: float = 60.0
    """Time after which a connection to a silent non-member is given up; 0 never."""

    sync_min_interval: float = 2.0
    """Least time between two SEND_FIRST_SEQNO to one sender, in either timing. The file of `fast`
    sets less; it then asks every few round trips."""

    max_xmit_req_size: int = 1024
    """Seqnos in one retransmission request."""

    max_xmit_req_ranges: int = 512
    """Ranges in one retransmission request: keeps it within one small frame."""

    window_messages: int = 32768
    """Unacked messages per peer, and undelivered ones at the receiver: what bounds memory. Equal on
    all members."""

    window_bytes: int = 4 << 20
    """The same bound in bytes; large messages meet this one first."""

    max_cached_frames: int = 1000
    """Frames per sender kept while its window is not yet open."""

    historical: Historical = field(default=FLAWLESS)
    """Flaws to reproduce."""

    def threshold(self) -> int:
        """New messages that cause an ack at once; 0 where every frame does."""
        return 0

    def ack_within(self) -> float:
        """Seconds after which a receiver has reported what it has."""
        return self.xmit_interval

    def defers_sync(self) -> bool:
        """Whether SEND_FIRST_SEQNO waits for the next tick, instead of being spaced."""
        return False

    def __post_init__(self) -> None:
        for name in (
            "xmit_interval",
            "sync_min_interval",
            "max_xmit_req_size",
            "max_xmit_req_ranges",
            "window_messages",
            "window_bytes",
        ):
            value = getattr(self, name)
            require(value > 0, f"{name} is {value:g}: it must be positive")
        for name in (
            "conn_expiry_timeout",
            "conn_close_timeout",
            "max_retransmit_time",
            "max_cached_frames",
        ):
            value = getattr(self, name)
            require(value >= 0, f"{name} is {value}: it must not be negative (0 switches it off)")
        require(
            self.max_xmit_req_ranges <= MAX_RANGES,
            f"max_xmit_req_ranges is {self.max_xmit_req_ranges}: a frame carries {MAX_RANGES}",
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Unicast1Config(UnicastConfig):
    """UNICAST: acks after every frame, resends everything unacked."""

    xmit_interval: float = 2.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Unicast2Config(UnicastConfig):
    """UNICAST2: silent receivers that ask for gaps and report now and then."""

    settable: ClassVar[frozenset[str]] = UnicastConfig.settable | {"stable_interval", "max_bytes"}

    xmit_interval: float = 1.0

    stable_interval: float = 60.0
    """Time between STABLE reports of a receiver."""

    max_bytes: int = 10_000_000
    """Bytes from one sender that trigger a STABLE early; a quarter of the window does so too."""

    max_stable_msgs: int = 5
    """STABLE reports for an unchanged highest seqno."""

    def ack_within(self) -> float:
        return self.stable_interval + 2 * self.xmit_interval

    def __post_init__(self) -> None:
        UnicastConfig.__post_init__(self)
        for name in ("stable_interval", "max_bytes", "max_stable_msgs"):
            value = getattr(self, name)
            require(value > 0, f"{name} is {value:g}: it must be positive")


@dataclass(frozen=True, slots=True, kw_only=True)
class Unicast3Config(UnicastConfig):
    """UNICAST3: cumulative delayed acks; the sender repeats its newest message, receivers ask for
    gaps."""

    settable: ClassVar[frozenset[str]] = UnicastConfig.settable | {"ack_threshold"}

    conn_expiry_timeout: float = 120.0

    ack_threshold: int = 100
    """New messages since the last ack that cause one at once; 1 acks every batch."""

    sync: str = "spaced"
    """`spaced`: SEND_FIRST_SEQNO at the end of the turn (UNICAST3 with sync). `deferred`: by the
    next tick (the first UNICAST3). Either keeps `sync_min_interval`."""

    def threshold(self) -> int:
        return self.ack_threshold

    def defers_sync(self) -> bool:
        return self.sync == "deferred"

    def __post_init__(self) -> None:
        UnicastConfig.__post_init__(self)
        require(
            self.ack_threshold > 0, f"ack_threshold is {self.ack_threshold}: it must be positive"
        )
        require(
            self.sync in ("spaced", "deferred"),
            f"sync is {self.sync!r}: choose `spaced` or `deferred`",
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Unicast4Config(UnicastConfig):
    """UNICAST4: UNICAST3 on a window of fixed size, acked as it is delivered: flow control built
    in."""

    settable: ClassVar[frozenset[str]] = UnicastConfig.settable | {"ack_threshold"}

    conn_expiry_timeout: float = 10.0
    conn_close_timeout: float = 10.0

    window_messages: int = 2048

    ack_threshold: int = 0
    """New messages since the last ack that cause one at once; 0 means a quarter of the window,
    1,024 at most."""

    def threshold(self) -> int:
        return self.ack_threshold or quarter_of(self.window_messages)

    def __post_init__(self) -> None:
        UnicastConfig.__post_init__(self)
        require(
            self.ack_threshold >= 0,
            f"ack_threshold is {self.ack_threshold}: it must not be negative",
        )
        require(
            self.ack_threshold <= self.window_messages // 2,
            f"ack_threshold is {self.ack_threshold}: above half of window_messages "
            f"({self.window_messages}) each window would cost an interval; lower it",
        )
        # A sender blocked on a peer that is gone is released only by these two.
        for name in ("conn_expiry_timeout", "conn_close_timeout"):
            require(
                getattr(self, name) > 0,
                f"{name} is 0: UNICAST4 would block a sender for ever; set it",
            )
