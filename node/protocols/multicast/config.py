"""Settings of the multicast protocols: what both share, and what each adds."""

from __future__ import annotations

from dataclasses import dataclass, field
from math import inf
from typing import ClassVar, Final

from stormcast.node.core.errors import require
from stormcast.node.core.window import quarter_of
from stormcast.node.core.wire import MAX_RANGES

OVERFLOWS: Final = ("none", "refuse-newest", "drop-oldest")


@dataclass(frozen=True, slots=True, kw_only=True)
class HistoricalMulticast:
    """Flaws of earlier designs, each switched on by itself. Only museum stacks may."""

    queue_overflow: str = "none"
    """The rule for a joiner's full queue while nobody retransmits: `none` gives the queue no bound;
    `refuse-newest` and `drop-oldest` lose messages for ever, as new windows are taken for complete
    as well (JGRP-2675)."""

    split_send: bool = False
    """True: a number is taken in one step and the message sent in a later one, so that another
    sender may come between: 1, 3, 4, 2, 5."""

    def __post_init__(self) -> None:
        require(
            self.queue_overflow in OVERFLOWS,
            f"historical.queue_overflow is {self.queue_overflow!r}: "
            f"choose one of {', '.join(OVERFLOWS)}",
        )


SOUND: Final = HistoricalMulticast()


@dataclass(frozen=True, slots=True, kw_only=True)
class MulticastConfig:
    """Settings that NAKACK2 and MCAST share. Durations are seconds."""

    settable: ClassVar[frozenset[str]] = frozenset({"xmit_interval", "max_xmit_req_size"})
    """Settings that may change while the stack runs."""

    xmit_interval: float = 1.0
    """Pace of repair in `compatible` timing, its upper bound in `fast`. Lower heals loss sooner and
    costs control traffic."""

    use_mcast_xmit: bool = True
    """Whether a request is answered by a multicast: one answer for all who miss the same. False:
    only the member that asked gets it, which is cheaper where losses do not coincide."""

    use_mcast_xmit_req: bool = False
    """Whether everyone is asked for what is missing, so that anyone who kept it can answer."""

    xmit_from_random_member: bool = False
    """Whether a random member is asked instead of the sender, which takes load off it. Members then
    keep what they delivered until it is stable."""

    max_xmit_req_size: int = 1024
    """Seqnos in one retransmission request."""

    max_xmit_req_ranges: int = 512
    """Ranges in one retransmission request: keeps it within one small frame."""

    become_server_queue_size: int = 50
    """Messages kept before the first view is installed; later ones are refused, and asked for
    afterwards. Without retransmission only the budget of strangers bounds them."""

    resend_last_seqno: bool = True
    """Whether a sender that fell silent announces its highest seqno: the loss of the last message
    is seen only by that (JGRP-1904)."""

    join_sync_interval: float = 0.5
    """Pace at which a window opened at a join, a merge or a reconnect is completed while nothing is
    retransmitted otherwise."""

    unknown_sender_timeout: float = 10.0
    """Time for which messages of a sender that is not yet in the view are kept."""

    max_unknown_messages: int = 1000
    """Batches of all such senders together; without retransmission only the budget of strangers
    bounds them."""

    gap_alarm: float = 30.0
    """Without retransmission, a gap this old is reported and repaired all the same: something
    dropped a message where nothing may."""

    window_messages: int = 32768
    """Multicasts of one sender that are not yet known to be delivered by all: what bounds memory.
    The outbox waits beyond it. Equal on all members."""

    window_bytes: int = 4 << 20
    """The same bound in bytes; large messages meet this one first."""

    historical: HistoricalMulticast = field(default=SOUND)
    """Flaws to reproduce."""

    def __post_init__(self) -> None:
        for name in (
            "max_xmit_req_size",
            "max_xmit_req_ranges",
            "become_server_queue_size",
            "join_sync_interval",
            "unknown_sender_timeout",
            "max_unknown_messages",
            "gap_alarm",
            "window_messages",
            "window_bytes",
        ):
            value = getattr(self, name)
            require(value > 0, f"{name} is {value:g}: it must be positive")
        require(
            self.max_xmit_req_ranges <= MAX_RANGES,
            f"max_xmit_req_ranges is {self.max_xmit_req_ranges}: a frame carries {MAX_RANGES}",
        )
        require(
            self.max_xmit_req_ranges <= MAX_RANGES,
            f"max_xmit_req_ranges is {self.max_xmit_req_ranges}: a frame carries {MAX_RANGES}",
        )

    @property
    def retransmits(self) -> bool:
        """Whether missing messages are requested at all times, not only at joins and reconnects."""
        return self.xmit_interval > 0

    def threshold(self) -> int:
        """New messages that cause an ack at once; 0 where nobody acks."""
        return 0

    def most_announcements(self) -> float:
        """Return how often the same highest seqno is announced; infinity: until no member may miss
        it."""
        return inf

    @property
    def completes(self) -> bool:
        """Whether new windows are completed where nothing is retransmitted. The designs whose
        queues overflowed could not do that."""
        return self.historical.queue_overflow == "none"


@dataclass(frozen=True, slots=True, kw_only=True)
class Nakack2Config(MulticastConfig):
    """NAKACK2: silence means all is well."""

    resend_last_seqno_max_times: int = 1
    """The number of times that the same highest seqno is announced; stability finds losses that
    even these did not show."""

    def most_announcements(self) -> float:
        return self.resend_last_seqno_max_times

    def __post_init__(self) -> None:
        # Named, not implied: super() does not know the class that `slots` made anew.
        MulticastConfig.__post_init__(self)
        require(
            self.resend_last_seqno_max_times > 0,
            f"resend_last_seqno_max_times is {self.resend_last_seqno_max_times}: "
            "it must be positive; switch it off with resend_last_seqno: false",
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class McastConfig(MulticastConfig):
    """MCAST: a fixed window, acked by every member."""

    settable: ClassVar[frozenset[str]] = frozenset(
        {"xmit_interval", "max_xmit_req_size", "ack_threshold", "slow_member_timeout"}
    )

    window_messages: int = 16384
    """The capacity: how far a sender may be ahead of its slowest member. Equal on all members."""

    ack_threshold: int = 0
    """Messages after which a member acks at once; 0: a quarter of the capacity, 1,024 at
    most."""

    slow_member_timeout: float = 0.0
    """Time for which the slowest members may hold up a full window before they are suspected; 0 for
    ever. Nothing else finds a member that hears us but cannot be heard. Helps a sender that makes
    the next view; what another one suspects is told to nobody."""

    def threshold(self) -> int:
        return self.ack_threshold or quarter_of(self.window_messages)

    def __post_init__(self) -> None:
        MulticastConfig.__post_init__(self)
        require(
            self.xmit_interval > 0,
            f"xmit_interval is {self.xmit_interval:g}: MCAST needs it positive, "
            "for its acks; only NAKACK2 can do without",
        )
        require(
            0 <= self.ack_threshold < self.window_messages or self.window_messages == 1,
            f"ack_threshold is {self.ack_threshold}: it must be below window_messages "
            f"({self.window_messages}), else a full window is never acked",
        )
        require(
            self.slow_member_timeout >= 0,
            f"slow_member_timeout is {self.slow_member_timeout:g}: it must not be negative",
        )
