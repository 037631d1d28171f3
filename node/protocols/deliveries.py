"""Hands messages up: records a delivery and enqueues it, for all protocols with windows."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from stormcast.node import trace
from stormcast.node.core import wire
from stormcast.node.core.batch import Arrival
from stormcast.node.core.codec import Body
from stormcast.node.core.model import Delivery, Payload
from stormcast.node.protocols.port import Port

MULTICASTS: Final = frozenset({wire.NAKACK2, wire.MCAST})


def hand_up(
    port: Port,
    arrival: Arrival,
    lo: int,
    hi: int,
    conn: int,
    epoch: int,
    view: int,
    settled: int,
    now: float,
) -> None:
    """Hand seqnos `lo..hi` of a received batch to the application, cut out if they are not all of
    it. All seqnos up to `settled` were handed up before, or never will be.

    The delivery is made before it is recorded: where there is no memory for it, it can be handed up
    again.
    """
    head, body, start, lengths = arrival
    size, stream, trim = len(body), trace.WHOLE, 0
    if hi - lo + 1 != head.count:
        start, lengths, size = arrival.part(lo, hi)
        stream = trace.PARTIAL
        trim = port.codec.hash64(body[start : start + size]) & 0xFFFFFFFF
    # A repair travels to one member, and yet it is a message to the group.
    dest = wire.GROUP if head.protocol in MULTICASTS else head.dest
    delivery = Delivery(
        head.source, conn, lo, hi, head.flags, body, start, lengths, dest, head.headers
    )
    delivery.settled = settled
    port.tracer.delivered(
        now,
        head.protocol,
        head.source,
        conn,
        epoch,
        view,
        head.flags,
        lo,
        hi,
        size,
        head.digest,
        stream,
        trim,
    )
    port.deliveries.append(delivery)


def hand_to_self(
    port: Port,
    protocol: int,
    dest: int,
    conn: int,
    view: int,
    lo: int,
    body: Body,
    payloads: Sequence[Payload],
    flags: int,
    now: float,
) -> None:
    """Hand a member its own batch: it crosses no network, so nothing of it can be missing."""
    data = body.data
    hi = lo + body.count - 1
    start = body.headers + (body.width * body.count or 4)
    lengths = list(map(len, payloads)) if body.width else len(payloads[0])
    delivery = Delivery(port.me, conn, lo, hi, flags, data, start, lengths, dest, body.headers)
    # The payloads need not be cut out of the frame again.
    delivery.have(payloads)
    port.tracer.delivered(
        now,
        protocol,
        port.me,
        conn,
        0,
        view,
        flags,
        lo,
        hi,
        len(data),
        body.digest,
        trace.WHOLE,
        0,
    )
    port.deliveries.append(delivery)
