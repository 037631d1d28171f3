"""Receives: adds what is new of a frame to its window, and hands up what is next in order."""

from __future__ import annotations

from stormcast.node.core import wire
from stormcast.node.core.batch import Arrival
from stormcast.node.core.errors import BadFrame
from stormcast.node.core.islands import Piece
from stormcast.node.core.model import OOB
from stormcast.node.core.wire import Head
from stormcast.node.protocols.deliveries import hand_up
from stormcast.node.protocols.multicast.asking import Asking
from stormcast.node.protocols.multicast.baselines import Baselines
from stormcast.node.protocols.multicast.early import Early
from stormcast.node.protocols.multicast.inbound import Inbound
from stormcast.node.protocols.multicast.reports import Reports
from stormcast.node.protocols.multicast.state import Streams
from stormcast.node.protocols.multicast.windows import Windows
from stormcast.node.protocols.windowed import take_new, unpack_arrival_untrusted


class Incoming:
    """Takes what others send."""

    def __init__(
        self,
        state: Streams,
        windows: Windows,
        asking: Asking,
        baselines: Baselines,
        reports: Reports,
        early: Early,
    ) -> None:
        self._state = state
        self._entries = state.inbound
        self._port = state.port
        self._windows = windows
        self._deliver_ready = windows.deliver_ready
        self._keeps = windows.keeps
        self._asking = asking
        self._baselines = baselines
        self._reports = reports
        self._after_data = reports.after_data
        self._early = early

    def on_data(self, head: Head, body: bytes, now: float) -> None:
        """Take a batch, or keep it for a window that may be opened soon."""
        if head.conn:
            raise BadFrame("seqno")
        arrival = unpack_arrival_untrusted(head, body)
        entry = self._entries.get(head.source)
        if entry is None:
            self._early.keep(head, body, now)
            return
        if entry.is_far(head):
            self._baselines.doubt(entry, now)
            raise BadFrame("beyond-window")
        if head.mark > entry.window.deliverable:
            self._windows.skip_to(entry, head.mark, head.stamp, now)
        if entry.kept:
            entry.drop_kept(head.mark)
        state = self._state
        if not entry.is_synced and head.stamp == state.view_tag and state.config.retransmits:
            # Sent in a view with this member: from this batch on, nothing is purged without it.
            # Without retransmission that is not enough: earlier batches may not have been sent to
            # this member.
            entry.sync_target = max(entry.sync_target, head.lo + head.count - 1)
        if entry.is_shut:
            self._refuse(entry, now)
        else:
            self._take(entry, arrival, now)

    def _refuse(self, entry: Inbound, now: float) -> None:
        """Refuse a batch of a window that is shut: it is asked for when the application goes on."""
        self._port.drop("not-consuming")
        # What the sender said is older than this batch. An answer that is still to come is not: it
        # comes behind the batch on the same connection.
        has_answer = entry.is_synced or entry.sync_target >= 0
        if has_answer and not self._state.config.retransmits:
            self._baselines.desync(entry, now)

    def _take(self, entry: Inbound, arrival: Arrival, now: float) -> None:
        """Add a batch to its window and deliver what is next."""
        state = self._state
        head = arrival.head
        window = entry.window
        is_consuming = state.is_consuming
        # While the application takes no deliveries, OOB messages wait like others, in order.
        oob = bool(head.flags & OOB) and is_consuming
        view = state.view_number
        lo, taken, port = head.lo, head.count, self._port
        hi = lo + taken - 1
        # The first test is the window's own: behind a gap it saves a call for each batch.
        passes = is_consuming and lo == window.deliverable + 1 and window.pass_next(lo, hi)
        try:
            if passes:
                if self._keeps and not oob:
                    entry.kept.append(arrival)
                hand_up(port, arrival, lo, hi, 0, entry.epoch, view, lo - 1, now)
            else:
                taken = take_new(port, window, arrival, 0, entry.epoch, view, now, oob=oob)
                if taken and is_consuming and window.delivered < window.deliverable:
                    self._deliver_ready(entry, now)
        except BaseException:
            passed = [Piece(lo, hi, len(arrival.body), arrival)] if passes else []
            self._windows.hand_up_later(entry, passed, now)
            raise
        if head.transmission and entry.gaps.asked:
            entry.gaps.sample(lo, now)
        self._after_data(entry, taken, now)
        if not entry.is_synced:
            self._baselines.check(entry)
        if window.deliverable < window.seen:
            self._asking.notice(entry, now)

    def on_highest(self, head: Head, now: float) -> None:
        """Take a sender's announcement of its highest seqno."""
        if not 0 < head.lo <= wire.MAX_SEQNO or head.mark > head.lo:
            raise BadFrame("highest-order")
        entry = self._entries.get(head.source)
        if entry is None:
            self._port.drop("highest-no-window")
            return
        if entry.is_far(head):
            self._baselines.doubt(entry, now)
            raise BadFrame("highest-beyond-window")
        if head.mark > entry.window.deliverable:
            self._windows.skip_to(entry, head.mark, head.stamp, now)
        entry.drop_kept(head.mark)
        entry.window.note(head.lo)
        self._reports.announced(entry, now)
        if entry.window.has_gap():
            self._asking.notice(entry, now)

    def deliver_untaken(self, now: float) -> int:
        """Hand up what waited while the application took no deliveries. Returns how many seqnos
        waited."""
        waited = 0
        for entry in list(self._entries.values()):
            entry.is_shut = False
            taken = self._windows.hand_up(entry, now)
            if entry.unmeant > entry.window.deliverable:
                # The window was too full to skip all of it.
                self._windows.skip_to(entry, entry.unmeant, 0, now)
            if taken:
                waited += taken
                self._after_data(entry, taken, now)
        return waited
