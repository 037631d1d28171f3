"""What unicast and multicast do alike with a receive window: check, refuse, ask for what is
missing."""

from __future__ import annotations

from typing import Any, Protocol

from node import trace
from node.core import wire
from node.core.batch import Arrival
from node.core.codec import unpack_lengths_untrusted
from node.core.errors import BadFrame
from node.core.gaps import MAX_REQUESTS_PER_LOOK, GapLook, Ranges, split_ranges
from node.core.window import ReceiveWindow
from node.core.wire import Head
from node.protocols.port import Port


class RequestSizes(Protocol):
    """The settings that bound a request."""

    @property
    def max_xmit_req_size(self) -> int:
        """Seqnos in one request."""

    @property
    def max_xmit_req_ranges(self) -> int:
        """Ranges in one request."""


def unpack_arrival_untrusted(head: Head, body: bytes) -> Arrival:
    """The batch that a DATA frame brings."""
    if not 0 < head.lo <= wire.MAX_SEQNO - head.count:
        raise BadFrame("seqno")
    start, lengths = unpack_lengths_untrusted(head, body)
    if head.mark >= head.lo + head.count - 1:
        raise BadFrame("mark")
    return Arrival(head, body, start, lengths)


def drop_refused(port: Port, window: ReceiveWindow[Any], head: Head) -> None:
    """Count a frame of which a window took nothing, by the reason."""
    if head.lo + head.count - 1 <= window.deliverable:
        port.drop("duplicate")
    elif head.lo > window.delivered + window.capacity:
        port.drop("beyond-window")
    else:
        port.drop("duplicate-or-no-room")


def request_missing(
    port: Port,
    protocol: int,
    sizes: RequestSizes,
    gaps: GapLook,
    ranges: Ranges,
    now: float,
    *,
    dest: int,
    named: int,
    peer: int,
    conn: int = 0,
    epoch: int,
    view: int = 0,
    stream: int = trace.REPAIR,
) -> None:
    """Ask `dest` for ranges, in as many frames as the size of a request makes of it, but not
    without limit: what one look may not ask for waits. `named` is whose window the frame names."""
    requests = split_ranges(ranges, sizes.max_xmit_req_size, sizes.max_xmit_req_ranges)
    transmission = gaps.transmission()
    for part, count in requests[:MAX_REQUESTS_PER_LOOK]:
        lo, hi = part[0][0], part[-1][1]
        port.tracer.requested(
            now,
            protocol=protocol,
            peer=peer,
            conn=conn,
            epoch=epoch,
            view=view,
            stream=stream,
            count=count,
            lo=lo,
            hi=hi,
        )
        frame = port.codec.pack_control(
            wire.XMIT_REQ, protocol, dest, named, hi, transmission=transmission, ranges=part
        )
        port.frames.append((dest, frame, b""))
