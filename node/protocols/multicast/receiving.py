"""The receiving half: a window per sender, delivery in order, asking for what is missing (G2, G3).

Without retransmission the windows only restore order; then a window is asked for only until its
sender has said where it begins, and a gap that stays is an alarm, never silence.
"""

from __future__ import annotations

from math import inf
from typing import Final

from node import trace
from node.core import wire
from node.core.batch import Arrival
from node.core.codec import unpack_lengths_untrusted
from node.core.errors import BadFrame
from node.core.gaps import MAX_REQUESTS_PER_LOOK, Ranges, split_ranges
from node.core.model import FIRST, OOB
from node.core.window import ReceiveWindow
from node.core.wire import Head
from node.protocols.handing import hand_up
from node.protocols.multicast.inbound import Inbound
from node.protocols.multicast.sending import Sending
from node.protocols.multicast.state import ACK, ALARM, LOOK, SYNC

MAX_ENDED: Final = 1024
"""Senders that are remembered after their window was removed."""
MAX_AHEAD: Final = 1 << 20
"""Messages that a sender's window holds more than ours, at most, if they are set differently."""


class Receiving(Sending):
    """Windows of other senders."""

    # -- Data ---------------------------------------------------------------------------------

    def _on_data(self, head: Head, body: bytes, now: float) -> None:
        if not 0 < head.lo <= wire.MAX_SEQNO - head.count or head.conn:
            raise BadFrame("seqno")
        start, lengths = unpack_lengths_untrusted(head, body)
        if head.mark >= head.lo + head.count - 1:
            raise BadFrame("mark")
        entry = self._inbound.get(head.source)
        if entry is None:
            self._keep_for_later(head, body, now)
            return
        if self._is_far(entry, head):
            self._doubt(entry, now)
            raise BadFrame("beyond-window")
        if head.mark > entry.window.deliverable:
            self._skip_to(entry, head.mark, now)
        if entry.kept:
            self._drop_kept(entry, head.mark)
        if not entry.is_synced and head.stamp == self.view_tag and self.config.retransmits:
            # Sent in a view with this member: from here on nothing is purged without it. Without
            # retransmission that is not enough: what was sent before may not have been sent here.
            entry.sync_target = max(entry.sync_target, head.lo + head.count - 1)
        self._take(entry, Arrival(head, body, start, lengths), now)

    @staticmethod
    def _is_far(entry: Inbound, head: Head) -> bool:
        """Whether a frame claims what a sender in the same views cannot: it waits for this member,
        so it has dropped nothing, and sent little, that is far ahead of what was taken. A window
        that is not synced may begin anywhere: its sender may not have known this member."""
        if not entry.is_synced:
            return False
        window = entry.window
        near = window.delivered + 2 * window.capacity
        return head.mark > near or head.lo > near + MAX_AHEAD

    def _doubt(self, entry: Inbound, now: float) -> None:
        """A forgery, or views that differed for a while: ask the sender itself. Only the answer to
        this very question is believed."""
        if now >= entry.asked_at + self.config.join_sync_interval:
            self._ask(entry, now)

    def _take(self, entry: Inbound, arrival: Arrival, now: float) -> None:
        """Add a batch to its window and deliver what is next."""
        head = arrival.head
        window = entry.window
        # An application that does not listen hears OOB messages later, in their place.
        oob = bool(head.flags & OOB) and self.is_consuming
        new = window.add(head.lo, head.lo + head.count - 1, len(arrival.body), arrival, oob=oob)
        taken = 0
        if new:
            for piece in new:
                taken += piece.hi - piece.lo + 1
                if oob:
                    settled = window.delivered
                    hand_up(self._port, piece, 0, entry.epoch, self.view_number, settled, now)
            if self.is_consuming:
                self._deliver_ready(entry, now)
        else:
            self._refused(entry, head)
        if head.transmission and entry.gaps.asked:
            entry.gaps.sample(head.lo, now)
        self._after_data(entry, taken, now)
        if not entry.is_synced:
            self._check_synced(entry)
        if window.deliverable < window.seen:
            self._notice_gap(entry, now)

    def _refused(self, entry: Inbound, head: Head) -> None:
        hi = head.lo + head.count - 1
        if hi <= entry.window.deliverable:
            self._port.drop("duplicate")
        elif head.lo > entry.window.delivered + entry.window.capacity:
            self._port.drop("beyond-window")
        else:
            self._port.drop("duplicate-or-no-room")

    def _deliver_ready(self, entry: Inbound, now: float) -> None:
        keeps = self._keeps_delivered()
        for piece in entry.window.take_ready():
            arrival = piece.item
            if arrival is not None:
                settled = piece.lo - 1
                hand_up(self._port, piece, 0, entry.epoch, self.view_number, settled, now)
                if keeps and (not entry.kept or entry.kept[-1] is not arrival):
                    entry.kept.append(arrival)

    def _keeps_delivered(self) -> bool:
        return self.config.xmit_from_random_member or self.config.use_mcast_xmit_req

    def set_consuming(self, consuming: bool, now: float) -> int:  # noqa: FBT001 it is the whole message
        """Whether the application takes deliveries. While it does not, windows fill and senders
        block. Returns how many seqnos waited for it."""
        self.is_consuming = consuming
        if not consuming:
            return 0
        waited = 0
        self._deliver_held_own(now)
        for entry in list(self._inbound.values()):
            before = entry.window.delivered
            self._deliver_ready(entry, now)
            if entry.window.delivered > before:
                waited += entry.window.delivered - before
                self._after_data(entry, entry.window.delivered - before, now)
        return waited

    def _keep_for_later(self, head: Head, body: bytes, now: float) -> None:
        """A message of a sender without a window."""
        raise NotImplementedError

    # -- Gaps ---------------------------------------------------------------------------------

    def _notice_gap(self, entry: Inbound, now: float) -> None:
        """Something is missing: look again when it may no longer be mere reordering."""
        if not self._looks_at(entry):
            if entry.gap_at < 0:
                entry.gap_at = entry.window.deliverable
                self.timers.set((ALARM, entry.peer), now + self.config.gap_alarm)
            return
        if self.timers.due((LOOK, entry.peer)) == inf:
            due = self._pacer_of(entry).first_gap_look(now)
            if due <= now:
                self._look_at_gaps(entry, now)
            else:
                self.timers.set((LOOK, entry.peer), due)

    def _look_at_gaps(self, entry: Inbound, now: float) -> None:
        if not self._looks_at(entry):
            return
        ask, due = entry.gaps.look(entry.window, self._pacer_of(entry), now)
        if ask:
            self._request(entry, ask, now)
        self.timers.set((LOOK, entry.peer), due)

    def _request(self, entry: Inbound, ranges: Ranges, now: float) -> None:
        """Ask for ranges in frames of bounded size; what one look may not ask for waits."""
        config = self.config
        requests = split_ranges(ranges, config.max_xmit_req_size, config.max_xmit_req_ranges)
        transmission = entry.gaps.transmission()
        dest = self._whom_to_ask(entry)
        stream = trace.REPAIR if config.retransmits else trace.JOINING
        for part, number in requests[:MAX_REQUESTS_PER_LOOK]:
            self._tracer.requested(
                now,
                protocol=self.protocol,
                peer=entry.peer,
                epoch=entry.epoch,
                view=self.view_number,
                stream=stream,
                count=number,
                lo=part[0][0],
                hi=part[-1][1],
            )
            frame = self._codec.pack_control(
                wire.XMIT_REQ, self.protocol, dest, entry.peer, part[-1][1],
                transmission=transmission, ranges=part,
            )  # fmt: skip
            self._port.frames.append((dest, frame, b""))

    def _whom_to_ask(self, entry: Inbound) -> int:
        """The sender, everyone, or anyone; each second try goes to the sender."""
        if self.config.use_mcast_xmit_req:
            return wire.GROUP
        if self.config.xmit_from_random_member and not entry.gaps.transmission() % 2:
            return self._dice.choice(sorted(self.members - {self._port.me}) or [entry.peer])
        return entry.peer

    def _sound_alarm(self, entry: Inbound, now: float) -> None:
        """A gap that nobody repairs: somewhere below, something drops what it must not. Say so, and
        ask for it after all."""
        if self._looks_at(entry):
            return
        window = entry.window
        if not window.has_gap():
            entry.gap_at = -1
            return
        if window.deliverable != entry.gap_at:
            entry.gap_at = window.deliverable
            self.timers.set((ALARM, entry.peer), now + self.config.gap_alarm)
            return
        gaps = window.missing(1 << 62)
        self._tracer.record(
            trace.ALARM, now, protocol=self.protocol, peer=entry.peer, epoch=entry.epoch,
            count=sum(hi - lo + 1 for lo, hi in gaps), lo=gaps[0][0], hi=gaps[-1][1],
            text=f"a gap stands for {self.config.gap_alarm:g}s and nothing is retransmitted: "
            "something below drops messages; see xmit_interval",
        )  # fmt: skip
        self._port.drop("gap-alarm")
        entry.gap_at = -1
        self._desync(entry, now)

    # -- Where windows begin -------------------------------------------------------------------

    def _open_window(self, peer: int, offset: int, reason: str, now: float) -> Inbound:
        config = self.config
        self._epochs += 1
        # A digest that was taken before the window ended must not have it all delivered again (G2).
        delivered, places = self._ended.pop(peer, (0, []))
        offset = max(offset, delivered)
        window: ReceiveWindow[Arrival] = ReceiveWindow(
            offset, config.window_messages, config.window_bytes
        )
        for lo, hi in places:
            window.hold_place(lo, hi)
        entry = Inbound(peer, self._epochs, window, self.pacer.round_trip())
        self._inbound[peer] = entry
        self._trace_window(entry, trace.RECEIVER_OPEN, offset, reason, now)
        if not config.retransmits:
            entry.is_synced = not config.completes
            self.timers.set((SYNC, peer), now + config.join_sync_interval)
        if places and self.is_consuming:
            self._deliver_ready(entry, now)
        return entry

    def _remove_window(self, entry: Inbound, reason: str, now: float) -> None:
        del self._inbound[entry.peer]
        if len(self._ended) >= MAX_ENDED:
            del self._ended[next(iter(self._ended))]
        self._ended[entry.peer] = (entry.window.delivered, entry.window.places())
        for what in (LOOK, ALARM, SYNC, ACK):
            self.timers.cancel((what, entry.peer))
        self._trace_window(entry, trace.RECEIVER_REMOVED, entry.window.delivered, reason, now)

    def _trace_window(
        self, entry: Inbound, stream: int, seqno: int, reason: str, now: float
    ) -> None:
        self._tracer.record(
            trace.CONN, now, protocol=self.protocol, stream=stream, peer=entry.peer,
            epoch=entry.epoch, view=self.view_number, lo=seqno, text=reason,
        )  # fmt: skip

    def _desync(self, entry: Inbound, now: float) -> None:
        """What was under way may be lost: ask until the sender has said what there is. What it said
        before, or says in answer to an earlier question, does not count."""
        entry.is_synced = False
        entry.sync_target = -1
        entry.sync_tries = 0
        entry.nonce = 0
        entry.asked_at = -inf
        if not self.config.retransmits:
            self.timers.set_earlier((SYNC, entry.peer), now + self.config.join_sync_interval)
            if entry.window.has_gap():
                self._notice_gap(entry, now)

    def _check_synced(self, entry: Inbound) -> None:
        if 0 <= entry.sync_target <= entry.window.deliverable:
            entry.is_synced = True
            self.timers.cancel((SYNC, entry.peer))

    def _complete(self, entry: Inbound, now: float) -> None:
        """Nothing is retransmitted: ask for what there is until the sender has said it, then for
        what of that is missing."""
        if entry.is_synced or self.config.retransmits:
            return
        if entry.sync_target < 0 and now >= entry.asked_at + self.config.join_sync_interval:
            self._ask(entry, now)
        # A window that an application left full has noted no more than it had room for.
        entry.window.note(entry.sync_target)
        if entry.window.has_gap():
            self._notice_gap(entry, now)
        self.timers.set((SYNC, entry.peer), now + self.config.join_sync_interval)

    def _ask(self, entry: Inbound, now: float) -> None:
        """Ask a sender what there is. A repeat is the same question: any answer to it counts."""
        if not entry.nonce:
            self._questions += 1
            question = self._secret + self._questions.to_bytes(8, "big")
            entry.nonce = (self._codec.hash64(question) & 0x7FFFFFFF) + 1
        self._tracer.record(
            trace.SYNC, now, protocol=self.protocol, peer=entry.peer, lo=entry.window.delivered
        )
        self._port.control(
            entry.peer, wire.BASELINE_REQ, self.protocol, entry.window.delivered,
            stamp=entry.nonce, transmission=entry.sync_tries,
        )  # fmt: skip
        entry.sync_tries += 1
        entry.asked_at = now

    def _on_baseline(self, head: Head, now: float) -> None:
        if head.mark > head.lo or head.lo > wire.MAX_SEQNO:
            raise BadFrame("baseline-order")
        entry = self._inbound.get(head.source)
        if entry is None:
            self._port.drop("baseline-no-window")
            return
        is_answer = entry.nonce != 0 and head.stamp == entry.nonce
        if not is_answer and self._is_far(entry, head):
            self._doubt(entry, now)
            raise BadFrame("baseline-beyond-window")
        if is_answer:
            entry.nonce = 0
        if head.mark > entry.window.deliverable:
            self._skip_to(entry, head.mark, now)
        entry.window.note(head.lo)
        if head.flags & FIRST:
            self._on_final(entry, head, is_answer, now)
        self._announced(entry, now)
        if entry.window.has_gap():
            self._notice_gap(entry, now)
        self._check_synced(entry)

    def _on_final(self, entry: Inbound, head: Head, is_answer: bool, now: float) -> None:  # noqa: FBT001 either word
        """A sender that knows this member says what there is. Unasked it may have said so in an
        earlier view, and purged more since, without this member. Where nothing is retransmitted
        only an answer completes a window: what comes unasked may have left before the last loss."""
        if is_answer or self.config.retransmits:
            is_of_this_view = is_answer or head.stamp == self.view_tag
            if is_of_this_view and not entry.is_synced:
                entry.sync_target = max(entry.sync_target, head.lo)
            return
        if entry.is_synced and entry.window.deliverable < head.lo and self.config.completes:
            # It noticed a loss that this member did not, or not yet.
            self._desync(entry, now)
        self._complete(entry, now)

    def _on_highest(self, head: Head, now: float) -> None:
        if not 0 < head.lo <= wire.MAX_SEQNO or head.mark > head.lo:
            raise BadFrame("highest-order")
        entry = self._inbound.get(head.source)
        if entry is None:
            self._port.drop("highest-no-window")
            return
        if self._is_far(entry, head):
            self._doubt(entry, now)
            raise BadFrame("highest-beyond-window")
        if head.mark > entry.window.deliverable:
            self._skip_to(entry, head.mark, now)
        self._drop_kept(entry, head.mark)
        entry.window.note(head.lo)
        self._announced(entry, now)
        if entry.window.has_gap():
            self._notice_gap(entry, now)

    @staticmethod
    def _drop_kept(entry: Inbound, purged: int) -> None:
        """What its sender has purged, everyone has: nobody will ask for it (G5)."""
        kept = entry.kept
        while kept and kept[0].head.lo + kept[0].head.count - 1 <= purged:
            kept.popleft()

    def _skip_to(self, entry: Inbound, seqno: int, now: float) -> None:
        """What the sender no longer has will never come: deliver what follows.

        Before a window is synced that is as it should be: those messages were sent in views without
        this member. Afterwards messages are lost, and a dead window would be worse (G6 was broken).
        """
        window = entry.window
        before = window.deliverable
        edge = window.delivered + window.capacity
        reached = min(seqno, edge)
        skipped = window.skip_to(reached)
        # What an application has yet to take keeps its window: the rest is skipped later.
        if self.is_consuming:
            self._deliver_ready(entry, now)
            if seqno > edge:
                skipped += seqno - edge
                reached = seqno
                entry.window = ReceiveWindow(seqno, window.capacity, window.capacity_bytes)
        if not skipped:
            return
        # As many as a record can count: a window may begin anywhere.
        skipped = min(skipped, 0xFFFFFFFF)
        text = "messages lost from this sender: it no longer has them"
        if not entry.is_synced:
            text = "not for this member: sent before it was known"
        else:
            self._tracer.record(
                trace.ALARM, now, protocol=self.protocol, peer=entry.peer, epoch=entry.epoch,
                count=skipped, lo=before + 1, hi=reached, text=text,
            )  # fmt: skip
        self._tracer.record(
            trace.SKIPPED, now, protocol=self.protocol, peer=entry.peer, epoch=entry.epoch,
            count=skipped, hi=reached, text=text,
        )  # fmt: skip
