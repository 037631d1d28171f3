"""Control frames from receivers: acks, reports, requests, and SEND_FIRST_SEQNO."""

from __future__ import annotations

from typing import Final

from stormcast.node.core import wire
from stormcast.node.core.codec import unpack_ranges_untrusted
from stormcast.node.core.errors import BadFrame
from stormcast.node.core.gaps import count_seqnos
from stormcast.node.core.serial import is_newer
from stormcast.node.core.wire import Head
from stormcast.node.protocols.unicast.entries import SenderEntry
from stormcast.node.protocols.unicast.outgoing import Outgoing
from stormcast.node.protocols.unicast.repairs import Repairs
from stormcast.node.protocols.unicast.state import Connections

LEAST_LONGEST_WAY: Final = 60.0
"""Seconds for which a frame may be under way, at least."""


class Feedback:
    """Purges what is acked (G6), and resends what is requested."""

    def __init__(self, state: Connections, outgoing: Outgoing, repairs: Repairs) -> None:
        historical = state.config.historical
        self._state = state
        self._entries = state.senders
        self._port = state.port
        self._protocol = state.generation.protocol
        self._takes_reports = state.generation.last_ack == wire.STABLE
        self._resend = outgoing.resend
        self._repairs = repairs
        self._every_conn = historical.conn_ids == "every"
        self._checks_conn = historical.conn_check and self._every_conn
        self._has_stamps = historical.stamps

    def on_ack(self, head: Head, now: float) -> None:
        """Purge what is acked."""
        self._take_ack(head, "ack", now)

    def on_stable(self, head: Head, now: float) -> None:
        """Purge what is acked, and repeat what the receiver has not seen at all."""
        if not self._takes_reports:
            raise BadFrame("kind")
        if head.lo > head.mark:
            raise BadFrame("stable-order")
        entry = self._take_ack(head, "stable", now)
        if entry is not None and entry.window.high > head.mark:
            self._repairs.on_report(entry, head.mark, now)

    def _take_ack(self, head: Head, what: str, now: float) -> SenderEntry | None:
        entry = self._sender_for(head, what)
        if entry is None:
            return None
        seqno = self._acked_by(entry, head)
        if self._is_stale(entry, head, what, now):
            return None
        self._purge(entry, seqno, now)
        entry.established = True
        return entry

    def on_sfs(self, head: Head, now: float) -> None:
        """Send a batch at which the receiver, which has no window, can open one."""
        entry = self._sender_for(head, "sfs")
        if entry is None:
            return
        if head.lo > entry.window.high and self._every_conn:
            raise BadFrame("sfs-beyond-sent")
        if self._is_stale(entry, head, "sfs", now):
            return
        entry.heard_at = now
        self._repairs.answer_sfs(entry, head, now)

    def on_request(self, head: Head, body: bytes, now: float) -> None:
        """Resend the batches that the receiver misses."""
        ranges = unpack_ranges_untrusted(head, body)
        entry = self._sender_for(head, "request")
        if entry is None:
            self._disown(head)
            return
        window = entry.window
        if ranges[-1][1] > window.low + window.capacity and self._every_conn:
            raise BadFrame("request-beyond-window")
        entry.heard_at = now
        self._port.tracer.answered(
            now,
            protocol=self._protocol,
            peer=entry.peer,
            conn=entry.conn,
            count=count_seqnos(ranges),
            lo=ranges[0][0],
            hi=ranges[-1][1],
        )
        for stored in window.covering(ranges):
            self._resend(entry, stored, now)
        if ranges[0][0] <= window.low and self._has_stamps:
            self._reset(entry, head)

    # -- Whether to believe it ----------------------------------------------------------------

    def _sender_for(self, head: Head, what: str) -> SenderEntry | None:
        """Return the entry of the connection that a control frame names; else count a drop."""
        entry = self._entries.get(head.source)
        if entry is None:
            self._port.drop(f"{what}-no-connection")
            return None
        if head.conn != entry.conn and self._checks_conn:
            self._port.drop(f"{what}-other-connection")
            return None
        return entry

    def _is_stale(self, entry: SenderEntry, head: Head, what: str, now: float) -> bool:
        """Whether a frame with a newer timestamp was accepted before (JGRP-1873)."""
        if not self._has_stamps:
            return False
        if (
            entry.last_stamp
            and not is_newer(head.stamp, entry.last_stamp)
            and now - entry.last_stamp_at <= self._longest_way()
        ):
            self._port.drop(f"{what}-old-stamp")
            return True
        entry.last_stamp = head.stamp
        entry.last_stamp_at = now
        return False

    def _longest_way(self) -> float:
        """Return for how many seconds a frame may be under way. A member counts its timestamps for
        all peers together: after a longer silence, one that looks old may be half the circle
        ahead."""
        return max(self._state.config.conn_close_timeout, LEAST_LONGEST_WAY)

    def _acked_by(self, entry: SenderEntry, head: Head) -> int:
        """Return the acked seqno of a control frame; BadFrame if it was never sent."""
        if head.lo > entry.window.high:
            if self._checks_conn:
                raise BadFrame("ack-beyond-sent")
            return entry.window.high
        return head.lo

    # -- What follows -------------------------------------------------------------------------

    def _purge(self, entry: SenderEntry, seqno: int, now: float) -> None:
        """Remove what the receiver has from the window, and let the outbox fill the room."""
        window = entry.window
        entry.heard_at = now
        low = window.low
        if seqno <= low:
            return
        newest = window.ack(seqno)
        port, peer = self._port, entry.peer
        # At once: nothing else says so where this was all.
        port.woken.append(peer)
        port.tracer.purged(
            now, protocol=self._protocol, peer=peer, conn=entry.conn, lo=low + 1, hi=seqno
        )
        if newest is not None and newest.item.transmission == 0:
            entry.rtt.sample(now - newest.item.sent_at)

    def _reset(self, entry: SenderEntry, head: Head) -> None:
        """Tell the receiver (RESET_TO) that messages below the window can no longer be sent: unless
        its request is old, it would repeat the request for ever (R-5)."""
        frame = self._port.codec.pack_control(
            wire.RESET_TO,
            self._protocol,
            entry.peer,
            entry.conn,
            entry.window.low,
            transmission=head.transmission,
        )
        self._port.frames.append((entry.peer, frame, b""))

    def _disown(self, head: Head) -> None:
        """Tell the receiver (CLOSE) to remove a window whose requests nobody can answer (R-5)."""
        if self._has_stamps and self._every_conn:
            frame = self._port.codec.pack_control(
                wire.CLOSE, self._protocol, head.source, head.conn, 0, head.transmission
            )
            self._port.frames.append((head.source, frame, b""))
