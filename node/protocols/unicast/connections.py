"""What both halves of a connection need: tables, timers, ids, and the life of an entry."""

from __future__ import annotations

from abc import ABC, abstractmethod
from math import inf, nextafter
from typing import ClassVar, Final

from node import trace
from node.core.rtt import RoundTrip
from node.core.serial import next_serial
from node.core.timers import Timers
from node.core.timing import Pacer, Timing
from node.protocols.port import Port
from node.protocols.unicast.config import UnicastConfig
from node.protocols.unicast.entries import (
    Entry,
    ReceiverEntry,
    SenderEntry,
    State,
)
from node.protocols.unicast.resync import Resync, Sync

UNLIMITED: Final = 1 << 62


class Connections(ABC):
    """The state of one member's unicast protocol, and when to look at which part of it."""

    protocol: ClassVar[int]
    config_type: ClassVar[type[UnicastConfig]]

    def __init__(
        self, config: UnicastConfig, timing: Timing, port: Port, first_conn: int = 1
    ) -> None:
        self.config = config
        self.pacer = Pacer(timing, config.xmit_interval)
        self.members: frozenset[int] | None = None
        """Short ids of the view's members; None while no view was ever installed."""
        self.is_grouped = False
        """Whether a group says who is there. Then only a view gives a member up. Without one nobody
        else would notice that a peer is dead."""
        self._looks: Timers[Entry | Sync] = Timers()
        self._expiries: Timers[Entry | Sync] = Timers()
        """When an entry may be unused, or unanswered, for too long. Apart from the looks: these are
        far away, and set once, not after every visit."""
        self.resync = Resync(config, self._looks, self._expiries)
        self._port = port
        self._codec = port.codec
        self._tracer = port.tracer
        self._senders: dict[int, SenderEntry] = {}
        self._receivers: dict[int, ReceiverEntry] = {}
        self._last_conn = first_conn - 1
        # Both are serials that wrap; a run that begins near the wrap meets it with both.
        self._last_stamp = first_conn - 1
        self._epochs = 0
        self._self_seqno = 0
        self._self_conn = 0
        self.is_consuming = True
        """Whether the application takes deliveries."""
        self.acks_now: list[ReceiverEntry] = []
        """What is to be acked at the end of this turn."""
        self.syncs_now: list[Sync] = []
        """Whose first frame is to be asked for at the end of this turn, unless it came in it."""

    # -- Time ---------------------------------------------------------------------------------

    def next_deadline(self) -> float:
        """When `tick` has something to do."""
        looks, expiries = self._looks, self._expiries
        look = looks.next_deadline() if looks.is_moved else looks.earliest
        expiry = expiries.next_deadline() if expiries.is_moved else expiries.earliest
        return look if look < expiry else expiry

    def tick(self, now: float) -> None:
        """Visit every entry whose moment has come, each once, whatever the visits ask for."""
        for entry in self._looks.take_due(now):
            self._visit(entry, now)
        for entry in self._expiries.take_due(now):
            self._expire(entry, now)

    @abstractmethod
    def _visit(self, entry: Entry | Sync, now: float) -> None:
        """Do what is due at an entry, and say when to come back."""

    @abstractmethod
    def _expire(self, entry: Entry | Sync, now: float) -> None:
        """The entry may have been unused, or unanswered, for too long."""

    # -- Names of things -----------------------------------------------------------------------

    def _next_conn(self) -> int:
        if self.config.historical.conn_ids == "none":
            return 0
        self._last_conn = next_serial(self._last_conn)
        return self._last_conn

    def _next_stamp(self) -> int:
        self._last_stamp = next_serial(self._last_stamp)
        return self._last_stamp

    def _round_trip(self, peer: int) -> RoundTrip:
        """The estimate that both halves of a pair share."""
        other = self._senders.get(peer) or self._receivers.get(peer)
        return other.rtt if other else self.pacer.round_trip()

    # -- Life of an entry ----------------------------------------------------------------------

    def _set_state(self, entry: Entry, state: State, stream: int, reason: str, now: float) -> None:
        entry.state = state
        entry.last_used = now
        self._trace_conn(entry, stream, reason, now)
        self._schedule_expiry(entry, now)

    def _schedule_expiry(self, entry: Entry, now: float) -> None:
        """Come back when the entry may be idle, to be removed, or talking to nobody."""
        config = self.config
        idle = (
            config.conn_expiry_timeout if entry.state is State.OPEN else config.conn_close_timeout
        )
        due = self._used_at(entry, now) + idle if idle > 0 else inf
        if isinstance(entry, SenderEntry) and self._is_ageing(entry):
            due = min(due, entry.unanswered_since(now) + config.max_retransmit_time)
        # Strictly later, so that what is due for ever cannot keep a tick from ending.
        self._expiries.set(entry, max(due, nextafter(now, inf)))

    def _stop_timers(self, entry: Entry) -> None:
        self._looks.cancel(entry)
        self._expiries.cancel(entry)

    def _is_ageing(self, entry: SenderEntry) -> bool:
        is_member = self.members is not None and entry.peer in self.members
        return self.config.max_retransmit_time > 0 and not is_member

    def _used_at(self, entry: Entry, now: float) -> float:
        """When an entry was last of use; an entry that must not go is of use now.

        What the application has yet to take stays for it. What a member of the group has yet to ack
        or to send, or to give credits for, waits until a view drops it, however silent it is (G1).
        """
        if isinstance(entry, ReceiverEntry) and entry.is_untaken():
            return now
        historical = self.config.historical
        is_owed = (entry.is_pending() and historical.view_decides) or (
            isinstance(entry, SenderEntry)
            and entry.peer in self._port.waiting
            and historical.waiting_is_use
        )
        if is_owed and self.is_grouped and self.members is not None and entry.peer in self.members:
            return now
        return entry.used_at()

    def _has_passed(self, entry: Entry, timeout: float, now: float) -> bool:
        """Whether the entry was unused for `timeout`; 0 is never."""
        return timeout > 0 and now >= self._used_at(entry, now) + timeout

    def _trace_conn(
        self, entry: Entry, stream: int, reason: str, now: float, number: int = 0
    ) -> None:
        epoch = entry.epoch if isinstance(entry, ReceiverEntry) else 0
        self._tracer.record(
            trace.CONN,
            now,
            protocol=self.protocol,
            stream=stream,
            peer=entry.peer,
            conn=entry.conn,
            epoch=epoch,
            lo=number,
            text=reason,
        )
