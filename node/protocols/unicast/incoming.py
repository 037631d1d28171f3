"""Receives: finds the window of a frame, and hands up what is next in order (G2, G3)."""

from __future__ import annotations

from math import inf
from typing import Final

from stormcast.node import trace
from stormcast.node.core.errors import BadFrame
from stormcast.node.core.islands import Piece
from stormcast.node.core.model import FIRST, FRAGMENT, OOB
from stormcast.node.core.serial import is_newer
from stormcast.node.core.timers import AFTER_FAILURE
from stormcast.node.core.wire import Head
from stormcast.node.protocols.deliveries import hand_up
from stormcast.node.protocols.unicast.acks import Acks
from stormcast.node.protocols.unicast.asking import Asking
from stormcast.node.protocols.unicast.entries import Arrival, ReceiverEntry, State
from stormcast.node.protocols.unicast.receivers import Receivers
from stormcast.node.protocols.unicast.reports import Reports
from stormcast.node.protocols.unicast.resync import Resync
from stormcast.node.protocols.unicast.state import Connections
from stormcast.node.protocols.unicast.tombstones import Tombstones
from stormcast.node.protocols.windowed import (
    hand_up_oob,
    is_withholding,
    take_new,
    unpack_arrival_untrusted,
)

MAX_AHEAD: Final = 8
"""Pieces that a stranger's window holds while OOB messages overtake others: their places are
remembered for as long as the window is, and after it. Beyond, they wait for their turn."""


class Incoming:
    """Takes what others send to this member."""

    def __init__(
        self,
        state: Connections,
        receivers: Receivers,
        acks: Acks,
        reports: Reports,
        tombs: Tombstones,
        resync: Resync,
    ) -> None:
        self._state = state
        self._receivers = receivers
        self._deliver_ready = receivers.deliver_ready
        self._acks = acks
        self._reports = reports
        self._after_data = reports.after_data
        self._tombs = tombs
        self._resync = resync
        self._asking = Asking(state)
        self._asks_for_gaps = state.generation.asks_for_gaps
        self._entries = state.receivers
        self._port = state.port
        self._conn_ids = state.config.historical.conn_ids

    # -- Data ---------------------------------------------------------------------------------

    def on_data(self, head: Head, body: bytes, now: float) -> None:
        """Take a batch, unless it has no window."""
        arrival = unpack_arrival_untrusted(head, body)
        entry = self._entries.get(head.source)
        if entry is None or entry.conn != head.conn:
            entry = self._find(entry, arrival, now)
            if entry is None:
                return
        self._take(entry, arrival, now)

    def _take(self, entry: ReceiverEntry, arrival: Arrival, now: float) -> None:
        """Add a batch to its window and deliver what is next."""
        head = arrival.head
        flags = head.flags
        window = entry.window
        size = len(arrival.body)
        is_consuming = self._state.is_consuming
        # While the application takes no deliveries, OOB messages wait like others, in order.
        oob = bool(flags & OOB) and is_consuming
        if entry.is_stranger:
            if self._has_no_room(entry, flags):
                return
            oob = oob and window.pieces() < MAX_AHEAD
        entry.last_used = now
        if entry.state is not State.OPEN:
            self._receivers.reopen(entry, "used", now)
        lo, taken, port = head.lo, head.count, self._port
        hi = lo + taken - 1
        # The first test is the window's own: behind a gap it saves a call for each batch.
        passes = is_consuming and lo == window.deliverable + 1 and window.pass_next(lo, hi)
        try:
            if passes:
                hand_up(port, arrival, lo, hi, entry.conn, entry.epoch, 0, lo - 1, now)
            else:
                taken = take_new(port, window, arrival, entry.conn, entry.epoch, 0, now, oob=oob)
                if taken and is_consuming and window.delivered < window.deliverable:
                    self._deliver_ready(entry, now)
        except BaseException:
            passed = [Piece(lo, hi, size, arrival)] if passes else []
            self._receivers.hand_up_later(entry, passed, now)
            raise
        if head.transmission and entry.gaps.asked:
            entry.gaps.sample(lo, now)
        self._after_data(entry, taken, size, flags, now)
        if window.deliverable < window.seen and entry.look_due == inf and self._asks_for_gaps:
            self._asking.notice(entry, now)
        if entry.is_stranger:
            self._receivers.count_stranger(entry)

    def _has_no_room(self, entry: ReceiverEntry, flags: int) -> bool:
        """Whether a stranger's batch must be refused: it would be acked before the application has
        it, and could not be given up later. What follows a refused piece is refused, too: a gap
        would be asked for, and the sender would take that for an answer for ever."""
        is_consuming = self._state.is_consuming
        is_kept = flags & FRAGMENT or entry.is_refused or not is_consuming
        entry.is_refused = bool(is_kept) and not self._port.strangers.has_room()
        if entry.is_refused:
            self._port.drop("stranger-fragments" if is_consuming else "not-consuming")
        return entry.is_refused

    def set_consuming(self, consuming: bool, now: float) -> int:  # noqa: FBT001 it is the whole message
        """Set whether the application takes deliveries. While it does not, windows fill and senders
        block. Returns how many seqnos waited for the application."""
        self._state.is_consuming = consuming
        if not consuming:
            return 0
        # First: nothing else ever wakes the lane of messages to oneself.
        self._port.woken.append(self._port.me)
        entries = list(self._entries.values())
        try:
            return sum(self._deliver_untaken(entry, now) for entry in entries)
        except BaseException:
            # What could not be handed up of one must not keep the others waiting for good.
            for entry in entries:
                self._state.looks.set_earlier(entry, now + AFTER_FAILURE)
            raise

    def _deliver_untaken(self, entry: ReceiverEntry, now: float) -> int:
        before = entry.window.delivered
        self._deliver_ready(entry, now)
        waited = entry.window.delivered - before
        if waited:
            self._after_data(entry, waited, 0, 0, now)
        waited += self._deliver_early(entry, now)
        if waited and entry.is_stranger:
            self._receivers.count_stranger(entry)
        return waited

    def _deliver_early(self, entry: ReceiverEntry, now: float) -> int:
        """Hand up the OOB messages that came behind a gap, unless they must wait for their turn."""
        window = entry.window
        if entry.is_stranger and window.pieces() >= MAX_AHEAD:
            return 0
        return hand_up_oob(self._port, window, entry.conn, entry.epoch, 0, now)

    def visit(self, entry: ReceiverEntry, now: float) -> None:
        """Ack, ask and report, each if it is time, and set the moment of the next visit."""
        if entry.window.delivered < entry.window.deliverable and self._state.is_consuming:
            # It could not be handed up when it came.
            self._deliver_untaken(entry, now)
        if entry.ack_due <= now:
            self._acks.send_paced(entry, now, self._acks.last_kind)
        if entry.look_due <= now:
            self._asking.look(entry, now)
        report_due = self._reports.look(entry, now)
        due = min(entry.ack_due, entry.look_due, report_due)
        self._state.looks.set_earlier(entry, due)

    def repace(self, entry: ReceiverEntry, soon: float, now: float) -> None:
        """Move timers that are still to come; those that are due stay due."""
        if now < entry.look_due < inf:
            entry.look_due = soon
        self._acks.repace(entry, now)
        if now < entry.report_due < inf:
            entry.report_due = soon
        self._state.looks.set_earlier(entry, min(entry.look_due, entry.report_due))

    # -- Finding the entry --------------------------------------------------------------------

    def _find(
        self, entry: ReceiverEntry | None, arrival: Arrival, now: float
    ) -> ReceiverEntry | None:
        """Decide by the table of docs/protocols/unicast.md: use, create, replace, ask for the first
        seqno, or ignore."""
        head = arrival.head
        if self._conn_ids == "none":
            return entry or self._receivers.open(head.source, 0, 0, now)
        if self._conn_ids == "first" and head.conn == 0 and entry is not None:
            return entry
        if head.conn == 0 and self._conn_ids == "every":
            raise BadFrame("no-conn")
        tomb = self._tombs.conn(head.source, now)
        if (entry is not None and is_newer(entry.conn, head.conn)) or (
            tomb and is_newer(tomb, head.conn)
        ):
            self._port.drop("old-connection")
        elif head.flags & FIRST and (tomb != head.conn or self._is_answer(head)):
            return self._begin(entry, head, now)
        else:
            self._resync.ask(arrival, now)
        return None

    def _is_answer(self, head: Head) -> bool:
        """Whether a first frame answers a SEND_FIRST_SEQNO sent since the removal (R-3)."""
        if not self._state.config.historical.stamps:
            return self._resync.knows(head.source)
        return self._tombs.is_answered(head)

    def _begin(self, entry: ReceiverEntry | None, head: Head, now: float) -> ReceiverEntry | None:
        """Open a window for a first frame, in place of an older window, and add the frames that
        came early."""
        state = self._state
        if not state.is_consuming and is_withholding(
            self._port, head.source, state.config, is_multicast=False
        ):
            self._port.drop("not-consuming")
            return None
        if state.is_stranger(head.source) and not self._port.strangers.windows.admits(now):
            self._port.drop("stranger-windows")
            return None
        if entry is not None:
            self._receivers.remove(entry, "replaced", now)
        # A batch may begin at or below the sender's highest acked seqno (`mark`): that part was
        # delivered before.
        offset = max(head.lo - 1, head.mark)
        entry = self._receivers.open(head.source, head.conn, offset, now)
        for early in self._resync.take_cached(head.source, head.conn):
            self._take(entry, early, now)
        return entry

    def forget_stranger(self, peer: int, now: float) -> None:
        """Give up what is kept of a stranger, and was not acked."""
        self._resync.forget_stranger(peer)
        self._receivers.forget_stranger(peer, now)

    # -- Control frames of senders ------------------------------------------------------------

    def on_close(self, head: Head, now: float) -> None:
        """Remove the entry, because the sender removed its half."""
        entry = self._entries.get(head.source)
        checks_conn = self._state.config.historical.conn_check
        if entry is None or (entry.conn != head.conn and checks_conn):
            self._port.drop("close-other-connection")
            return
        self._receivers.remove(entry, "closed by sender", now)

    def on_reset(self, head: Head, now: float) -> None:
        """Skip what is missing up to a seqno: the sender no longer has it."""
        entry = self._entries.get(head.source)
        if entry is None or entry.conn != head.conn:
            self._port.drop("reset-other-connection")
            return
        if head.lo > entry.window.delivered + entry.window.capacity:
            raise BadFrame("reset-beyond-window")
        skipped = entry.window.skip_to(head.lo)
        if skipped:
            self._note_skipped(entry, skipped, head.lo, now)
            if self._state.is_consuming:
                self._deliver_ready(entry, now)

    def _note_skipped(self, entry: ReceiverEntry, count: int, seqno: int, now: float) -> None:
        self._port.tracer.record(
            trace.SKIPPED,
            now,
            protocol=self._state.generation.protocol,
            peer=entry.peer,
            conn=entry.conn,
            epoch=entry.epoch,
            count=count,
            hi=seqno,
            text="the sender no longer has these messages: G6 was broken",
        )
