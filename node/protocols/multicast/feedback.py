"""Handles what receivers send back: acks, stability, and requests for multicasts that they miss."""

from __future__ import annotations

from stormcast.node.core.codec import unpack_ranges_untrusted
from stormcast.node.core.digest import Digest
from stormcast.node.core.errors import BadFrame
from stormcast.node.core.gaps import Ranges, count_seqnos
from stormcast.node.core.wire import Head, told_apart
from stormcast.node.protocols.multicast.asking import Asking
from stormcast.node.protocols.multicast.baselines import Baselines
from stormcast.node.protocols.multicast.inbound import Inbound
from stormcast.node.protocols.multicast.outgoing import Outgoing
from stormcast.node.protocols.multicast.retention import Retention
from stormcast.node.protocols.multicast.state import Streams


class Feedback:
    """Purges what every member has (G6), and answers requests."""

    def __init__(
        self,
        state: Streams,
        outgoing: Outgoing,
        retention: Retention,
        asking: Asking,
        baselines: Baselines,
    ) -> None:
        self._state = state
        self._port = state.port
        self._outgoing = outgoing
        self._retention = retention
        self._asking = asking
        self._baselines = baselines

    def on_ack(self, head: Head, now: float) -> None:
        """Take an ack, and purge what every member has."""
        self._outgoing.purge(self._retention.on_ack(head), now)

    def on_stability(self, digest: Digest, now: float) -> None:
        """Purge what everyone has delivered, and ask for what others have received and this member
        has not: so the loss of a last message is noticed even if all announcements were lost."""
        for peer in digest:
            delivered, received = digest[peer]
            entry = self._state.inbound.get(peer)
            if peer == self._port.me:
                # Never beyond what was sent: a vote for more would be false.
                self._outgoing.purge(min(delivered, self._state.own.high), now)
            elif entry is not None:
                entry.drop_kept(delivered)
                self._note_received(entry, received, now)

    def _note_received(self, entry: Inbound, received: int, now: float) -> None:
        if received > entry.farthest():
            self._port.drop("stability-beyond-window")
        elif self._state.looks_at(entry):
            # A message that is merely under way will be here at the second look (JGRP-2678).
            entry.window.note(received)
            if entry.window.has_gap():
                self._asking.notice(entry, now)
        elif entry.window.seen < received:
            # Nothing is lost below: it is under way, for however long, and no gap.
            self._baselines.hear_of_more(entry, now)

    # -- Questions ----------------------------------------------------------------------------

    def on_request(self, head: Head, body: bytes, now: float) -> None:
        """Resend the batches that a receiver misses."""
        ranges = unpack_ranges_untrusted(head, body)
        if not self._state.may_ask(head.source):
            self._port.drop("request-stranger")
            return
        if head.conn != self._port.me:
            self._answer_for(head, ranges, now)
            return
        own = self._state.own
        if ranges[-1][1] > own.high:
            raise BadFrame("request-beyond-sent")
        self._port.tracer.answered(
            now,
            protocol=self._state.generation.protocol,
            peer=head.source,
            conn=0,
            count=count_seqnos(ranges),
            lo=ranges[0][0],
            hi=ranges[-1][1],
        )
        for stored in own.covering(ranges):
            self._outgoing.resend(stored, head.source, now)
        if ranges[0][0] <= own.low:
            # These can no longer be sent: tell the receiver which messages can.
            self._outgoing.send_baseline(head.source, head.transmission)

    def _answer_for(self, head: Head, ranges: Ranges, now: float) -> None:
        """Resend what another member sent and this member kept."""
        entry = self._state.inbound.get(head.conn)
        if entry is None:
            self._port.drop("request-unknown-sender")
            return
        last = ranges[-1][1]
        for arrival in entry.kept:
            first = arrival.head.lo
            if first > last:
                break
            high = first + arrival.head.count - 1
            if not any(lo <= high and first <= hi for lo, hi in ranges):
                continue
            transmission = told_apart(arrival.head.transmission + 1 + head.transmission)
            again = self._port.codec.readdress(arrival.head, head.source, transmission)
            self._port.tracer.retransmitted(
                now,
                protocol=self._state.generation.protocol,
                peer=head.source,
                conn=entry.peer,
                view=self._state.view_number,
                flags=arrival.head.flags,
                transmission=transmission,
                lo=first,
                hi=high,
                size=len(arrival.body),
                digest=arrival.head.digest,
            )
            self._port.frames.append((head.source, again, arrival.body))

    def on_baseline_request(self, head: Head) -> None:
        """Tell a receiver which own messages can be had."""
        if not self._state.may_ask(head.source):
            self._port.drop("request-stranger")
            return
        self._outgoing.send_baseline(head.source, head.transmission, head.stamp)
