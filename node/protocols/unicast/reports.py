"""Decides when a receiver reports what it has: after every frame, late, or now and then."""

from __future__ import annotations

from math import inf
from typing import Protocol

from stormcast.node.core import wire
from stormcast.node.core.model import FIRST
from stormcast.node.protocols.unicast.acks import Acks
from stormcast.node.protocols.unicast.config import Unicast2Config
from stormcast.node.protocols.unicast.entries import ReceiverEntry
from stormcast.node.protocols.unicast.state import Connections


class Reports(Protocol):
    """A generation's rule for the reports of its receivers."""

    def __init__(self, state: Connections, acks: Acks) -> None: ...

    def after_data(self, entry: ReceiverEntry, new: int, size: int, flags: int, now: float) -> None:
        """Ack new messages (or duplicates, when `new` is 0) now, later, or not at all."""

    def look(self, entry: ReceiverEntry, now: float) -> float:
        """Report if a timer of the generation's own is due; returns when to come back."""


class AckEach:
    """UNICAST: an ack for all that comes in a turn."""

    def __init__(self, state: Connections, acks: Acks) -> None:
        self._acks = acks
        self._at_once = state.config.historical.conn_ids == "first"

    def after_data(self, entry: ReceiverEntry, new: int, size: int, flags: int, now: float) -> None:
        """Ack at the end of the turn."""
        entry.acks.unacked += new
        if self._at_once:
            # The flaw of scenario #6 needs an ack at once, for what was just seen.
            self._acks.send(entry, now)
        else:
            self._acks.soon(entry)

    def look(self, entry: ReceiverEntry, now: float) -> float:
        """Nothing is ever due."""
        return inf


class AckLate:
    """UNICAST3 and UNICAST4: one cumulative ack for many messages."""

    def __init__(self, state: Connections, acks: Acks) -> None:
        self._state = state
        self._acks = acks

    def after_data(self, entry: ReceiverEntry, new: int, size: int, flags: int, now: float) -> None:
        """Ack at the end of the turn when enough came, else later."""
        entry.acks.unacked += new
        if entry.acks.unacked >= self._state.config.threshold():
            self._acks.soon(entry)
        else:
            # Duplicates are acked too: the sender repeats only because it misses our ack.
            self._acks.later(entry, now)

    def look(self, entry: ReceiverEntry, now: float) -> float:
        """Nothing is ever due."""
        return inf


class ReportNowAndThen:
    """UNICAST2: silent while all is well. A STABLE reports what was received when the stream went
    quiet, when the interval passed, and when much has come."""

    def __init__(self, state: Connections, acks: Acks) -> None:
        self._state = state
        self._acks = acks
        self._pacer = state.pacer
        self._repairs_ends = state.config.historical.repair_ends

    def after_data(self, entry: ReceiverEntry, new: int, size: int, flags: int, now: float) -> None:
        """Ack a first message, report after many messages, else look later whether to report."""
        if flags & FIRST:
            self._acks.send_paced(entry, now)
        entry.reports = 0
        if new:
            entry.fresh_at = now
            entry.acks.unacked += new
            # Duplicates do not count: a repeated tail would bring reports that repeat it again.
            entry.unacked_bytes += size
        if self._is_much(entry):
            self._report(entry, now)
        if entry.report_due == inf:
            entry.report_due = self._next_look(entry, now)
            self._state.looks.set_earlier(entry, entry.report_due)

    def look(self, entry: ReceiverEntry, now: float) -> float:
        """Report when the stream went quiet or the interval passed; then fall silent until
        something arrives."""
        if entry.report_due > now:
            return entry.report_due
        # Duplicates are not traffic: the sender repeats because it waits for this report.
        is_quiet = now - entry.fresh_at >= self._pacer.settled_after(entry.rtt) / 2
        is_due = now - entry.acks.sent_at >= self._config.stable_interval
        if is_due or (is_quiet and self._repairs_ends):
            self._report(entry, now)
        # A repeat covers the loss of a report; the sender's own look covers the loss of all of
        # them.
        is_complete = entry.window.deliverable == entry.window.seen
        enough = 1 if is_complete else self._config.max_stable_msgs
        entry.report_due = inf if entry.reports >= enough else self._next_look(entry, now)
        return entry.report_due

    @property
    def _config(self) -> Unicast2Config:
        config = self._state.config
        assert isinstance(config, Unicast2Config)
        return config

    def _is_much(self, entry: ReceiverEntry) -> bool:
        config = self._config
        return (
            entry.unacked_bytes >= min(config.max_bytes, config.window_bytes // 4)
            or entry.acks.unacked >= config.window_messages // 4
        )

    def _next_look(self, entry: ReceiverEntry, now: float) -> float:
        if self._repairs_ends:
            return self._pacer.next_send_look(now, entry.rtt, entry.reports)
        return now + self._config.stable_interval

    def _report(self, entry: ReceiverEntry, now: float) -> None:
        entry.reports += 1
        self._acks.send_paced(entry, now, wire.STABLE)
