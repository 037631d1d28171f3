"""Asking a peer for what is missing."""

from __future__ import annotations

from node.core import wire
from node.core.gaps import MAX_REQUESTS_PER_LOOK, Ranges, split_ranges
from node.protocols.unicast.connections import Connections
from node.protocols.unicast.entries import ReceiverEntry


class Asking(Connections):
    """Looks at the gaps of receiver entries."""

    def _look_at_gaps(self, entry: ReceiverEntry, now: float) -> None:
        ask, entry.look_due = entry.gaps.look(entry.window, self.pacer, now)
        if ask:
            self._request(entry, ask, now)

    def _request(self, entry: ReceiverEntry, ranges: Ranges, now: float) -> None:
        """Ask, in as many frames as the size of a request makes of it, but not without limit."""
        config = self.config
        requests = split_ranges(ranges, config.max_xmit_req_size, config.max_xmit_req_ranges)
        transmission = entry.gaps.transmission()
        for part, number in requests[:MAX_REQUESTS_PER_LOOK]:
            self._tracer.requested(
                now,
                protocol=self.protocol,
                peer=entry.peer,
                conn=entry.conn,
                epoch=entry.epoch,
                count=number,
                lo=part[0][0],
                hi=part[-1][1],
            )
            frame = self._codec.pack_control(
                wire.XMIT_REQ, self.protocol, entry.peer, entry.conn, part[-1][1],
                transmission=transmission, ranges=part,
            )  # fmt: skip
            self._port.frames.append((entry.peer, frame, b""))
