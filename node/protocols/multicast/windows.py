"""Opens receive windows, delivers from them in order (G2, G3), moves them up, and removes them."""

from __future__ import annotations

from typing import Final

from stormcast.node import trace
from stormcast.node.core.batch import Arrival
from stormcast.node.core.gaps import Ranges
from stormcast.node.core.islands import Piece
from stormcast.node.core.timers import AFTER_FAILURE
from stormcast.node.core.window import ReceiveWindow
from stormcast.node.protocols.deliveries import hand_up
from stormcast.node.protocols.multicast.inbound import Inbound
from stormcast.node.protocols.multicast.reports import Reports
from stormcast.node.protocols.multicast.state import ACK, ALARM, HAND_UP, LOOK, SYNC, Streams
from stormcast.node.protocols.windowed import hand_up_oob, is_withholding

MAX_ENDED: Final = 1024
"""Senders that are remembered after their window was removed."""


class Windows:
    """The windows of all other senders, each an epoch."""

    def __init__(self, state: Streams, reports: Reports) -> None:
        self._state = state
        self._reports = reports
        self._entries = state.inbound
        self._port = state.port
        self._timers = state.timers
        self._protocol = state.generation.protocol
        config = state.config
        self.keeps = config.xmit_from_random_member or config.use_mcast_xmit_req
        """Whether delivered batches are kept, as others may ask for them."""
        self._ended: dict[int, tuple[int, Ranges]] = {}
        """For senders whose window was removed lately: the highest seqno delivered in order, and
        the ranges delivered out of band above it."""
        self._epochs = 0

    def open(self, peer: int, offset: int, reason: str, now: float) -> Inbound:
        """Open a window above `offset`, and above what earlier windows of the sender delivered."""
        state, config = self._state, self._state.config
        self._epochs += 1
        # A digest may be older than the end of an earlier window: what that delivered must not be
        # delivered again (G2).
        delivered, places = self._ended.pop(peer, (0, []))
        begin = max(offset, delivered)
        window: ReceiveWindow[Arrival] = ReceiveWindow(
            begin, config.window_messages, config.window_bytes
        )
        for lo, hi in places:
            window.hold_place(lo, hi)
        entry = Inbound(peer, self._epochs, window, state.pacer.round_trip())
        self._entries[peer] = entry
        self._record(entry, trace.RECEIVER_OPEN, begin, reason, now)
        if not config.retransmits:
            entry.is_synced = not config.completes
            self._timers.set((SYNC, peer), now + config.join_sync_interval)
        if state.is_consuming:
            if places:
                self.deliver_ready(entry, now)
        else:
            entry.is_shut = is_withholding(self._port, peer, config, is_multicast=True)
        self._reports.opened(entry, offset, now)
        return entry

    def deliver_ready(self, entry: Inbound, now: float) -> None:
        """Hand up what is next in order."""
        port, view, keeps = self._port, self._state.view_number, self.keeps
        lo = 0
        pieces: list[Piece[Arrival]] = []
        try:
            pieces = entry.window.take_ready()
            for lo, hi, _size, arrival in pieces:
                if arrival is not None:
                    if keeps and (not entry.kept or entry.kept[-1] is not arrival):
                        entry.kept.append(arrival)
                    hand_up(port, arrival, lo, hi, 0, entry.epoch, view, lo - 1, now)
        except BaseException:
            self.hand_up_later(entry, [piece for piece in pieces if piece.lo >= lo], now)
            raise

    def hand_up_later(self, entry: Inbound, pieces: list[Piece[Arrival]], now: float) -> None:
        """Put back what could not be handed up, for a bug or for want of memory, and try again
        later: its sender may not have it any more."""
        entry.window.put_back(pieces)
        self._timers.set_earlier((HAND_UP, 0), now + AFTER_FAILURE)

    def hand_up(self, entry: Inbound, now: float) -> int:
        """Hand up all that a stalled application has yet to take of a window. Returns how many
        messages that is."""
        before, window = entry.window.delivered, entry.window
        self.deliver_ready(entry, now)
        view = self._state.view_number
        early = hand_up_oob(self._port, window, 0, entry.epoch, view, now)
        return window.delivered - before + early

    def remove(self, entry: Inbound, reason: str, now: float) -> None:
        """Forget a window, but not how far it delivered. What it has for a stalled application is
        kept for that: its sender may have purged it."""
        self.hand_up(entry, now)
        peer, window = entry.peer, entry.window
        del self._entries[peer]
        if len(self._ended) >= MAX_ENDED:
            del self._ended[next(iter(self._ended))]
        self._ended[peer] = (window.delivered, window.places())
        for what in (LOOK, ALARM, SYNC, ACK):
            self._timers.cancel((what, peer))
        self._record(entry, trace.RECEIVER_REMOVED, window.delivered, reason, now)

    def _record(self, entry: Inbound, stream: int, seqno: int, reason: str, now: float) -> None:
        self._port.tracer.record(
            trace.CONN,
            now,
            protocol=self._protocol,
            stream=stream,
            peer=entry.peer,
            epoch=entry.epoch,
            view=self._state.view_number,
            lo=seqno,
            text=reason,
        )

    # -- What the sender no longer has --------------------------------------------------------

    def skip_to(self, entry: Inbound, seqno: int, view_tag: int, now: float) -> None:
        """Skip what the sender no longer has, as it said in the view of `view_tag` (0: it did not
        say in which), and deliver what follows.

        Before a window is synced this is no loss: those messages were sent in views without this
        member. The same if the sender holds another view: a view without this member may have come
        before it. Else messages are lost (G6 was broken), but a dead window would be worse.
        """
        is_loss = entry.is_synced and view_tag in (0, self._state.view_tag)
        if not is_loss:
            entry.unmeant = max(entry.unmeant, seqno)
        window = entry.window
        before = window.deliverable
        edge = window.delivered + window.capacity
        reached = min(seqno, edge)
        skipped = window.skip_to(reached)
        # A window that has messages for the application is not replaced: the rest is skipped later.
        if self._state.is_consuming:
            self.deliver_ready(entry, now)
            if seqno > edge:
                skipped += seqno - edge
                reached = seqno
                entry.window = ReceiveWindow(seqno, window.capacity, window.capacity_bytes)
        if skipped:
            # As many as a record can count: a window may begin anywhere.
            count = min(skipped, 0xFFFFFFFF)
            # A window that was full skipped less than it was told then: the rest is no loss either.
            is_loss = is_loss and reached > entry.unmeant
            self._note_skipped(entry, count, before + 1, reached, now, is_loss=is_loss)

    def _note_skipped(
        self, entry: Inbound, count: int, lo: int, hi: int, now: float, *, is_loss: bool
    ) -> None:
        tracer, protocol = self._port.tracer, self._protocol
        text = "not for this member: sent before it was known"
        if is_loss:
            text = "messages lost from this sender: it no longer has them"
            tracer.record(
                trace.ALARM,
                now,
                protocol=protocol,
                peer=entry.peer,
                epoch=entry.epoch,
                count=count,
                lo=lo,
                hi=hi,
                text=text,
            )
        tracer.record(
            trace.SKIPPED,
            now,
            protocol=protocol,
            peer=entry.peer,
            epoch=entry.epoch,
            count=count,
            hi=hi,
            text=text,
        )
