"""Handing messages to the application: pieces become messages, credits follow, the trace says so.

What the windows delivered waits in the port. The application takes all of it at once, and what it
took is recorded as ranges, the other end of what it means that a message is delivered (G1). A range
grows for as long as neighbours follow, but for no longer than `FLUSH_INTERVAL`: an event for each
message would make traces twice as long.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple

from node import trace
from node.core import wire
from node.core.errors import BadFrame
from node.core.model import FRAGMENT, NO_FC, NO_RELIABILITY, OOB, Delivery

if TYPE_CHECKING:
    from node.protocols.flow import Mfc, Ufc
    from node.protocols.frag import Reassembler
    from node.protocols.port import Port

FLUSH_INTERVAL: Final = 0.25
"""Seconds after which a trace says at the latest what an application offered or was handed."""
_UNCOUNTED: Final = NO_FC | NO_RELIABILITY
"""Flags of messages that no flow control counted where they were sent."""


class Numbering(NamedTuple):
    """Who numbers messages."""

    unicast: int
    multicast: int


class HandOver:
    """From what was delivered to what the application is given."""

    def __init__(
        self,
        port: Port,
        numbering: Numbering,
        ufc: Ufc | None,
        mfc: Mfc | None,
        reassembler: Reassembler | None,
    ) -> None:
        self._port = port
        self._numbering = numbering
        self._ufc = ufc
        self._mfc = mfc
        self._counts = ufc is not None or mfc is not None
        self._reassembler = reassembler
        self._ready: list[Delivery] = []
        self._growing: dict[tuple[int, int, int], list[int]] = {}
        """First and last seqno of what was handed over and is not recorded yet, by source,
        connection and protocol."""
        self._views: list[tuple[Delivery, frozenset[int]]] = []
        """Members of views that came while something waited, each with the last that did."""

    def on_view(self, members: frozenset[int], now: float) -> None:
        """A view is in force. What was delivered before it, and waits, is joined before pieces are
        given up because of it."""
        if self._reassembler is None:
            return
        waiting = self._port.deliveries or self._port.withheld
        if waiting:
            self._views.append((waiting[-1], members))
        else:
            self._reassembler.on_view(members, now)

    def take(self) -> list[Delivery]:
        """What the application has to be given now."""
        ready = self._ready
        if ready:
            self._ready = []
        return ready

    def run(self, now: float) -> None:
        """Move what was delivered to what is handed over."""
        port = self._port
        deliveries, port.deliveries = port.deliveries, []
        for last, members in self._views:
            # One that a test protocol keeps back, or dropped, is waited for no longer.
            end = next((at for at, one in enumerate(deliveries, 1) if one is last), 0)
            self._move(deliveries[:end], now)
            del deliveries[:end]
            assert self._reassembler is not None
            self._reassembler.on_view(members, now)
        self._views.clear()
        self._move(deliveries, now)

    def _move(self, deliveries: list[Delivery], now: float) -> None:
        ready = self._ready
        numbered_by = self._numbering
        counts = self._counts
        growing = self._growing
        for delivery in deliveries:
            flags = delivery.flags
            if counts and not flags & _UNCOUNTED:
                flow: Ufc | Mfc | None = self._ufc if delivery.dest else self._mfc
                if flow is not None:
                    flow.delivered(delivery.source, delivery.size, delivery.conn, now)
            if flags & FRAGMENT:
                joined = self._join(delivery, now)
                if joined is not None:
                    ready.append(joined)
                continue
            ready.append(delivery)
            by = numbered_by.unicast if delivery.dest else numbered_by.multicast
            key = delivery.source, delivery.conn, wire.NONE if flags & NO_RELIABILITY else by
            span = growing.get(key)
            if span is not None and delivery.lo == span[1] + 1:
                span[1] = delivery.hi
                continue
            if span is not None:
                self._record(key, span, now)
            growing[key] = [delivery.lo, delivery.hi]

    def flush(self, now: float) -> None:
        """Record all that is not recorded yet."""
        growing, self._growing = self._growing, {}
        for key, span in growing.items():
            self._record(key, span, now)

    def _record(self, key: tuple[int, int, int], span: list[int], now: float) -> None:
        source, conn, protocol = key
        lo, hi = span
        self._port.tracer.records.append(
            (trace.HANDED, 0, protocol, trace.AS_DELIVERED, source, conn, 0, 0,
             hi - lo + 1, lo, hi, 0, 0, 0, 0, now)
        )  # fmt: skip

    def _join(self, piece: Delivery, now: float) -> Delivery | None:
        """The whole message, when this was the last piece of it."""
        if self._reassembler is None:
            self._port.drop("fragment")
            return None
        try:
            joined = self._reassembler.take(
                piece.source, piece.is_multicast, bool(piece.flags & OOB), piece.conn, piece.lo,
                piece.header, piece.messages[0], piece.settled, now,
            )  # fmt: skip
        except BadFrame as bad:
            self._port.drop(bad.reason)
            return None
        if joined is None:
            return None
        payload, lo, hi = joined
        by = self._numbering.unicast if piece.dest else self._numbering.multicast
        key = piece.source, piece.conn, by
        before = self._growing.pop(key, None)
        if before is not None:
            self._record(key, before, now)
        self._port.tracer.record(
            trace.HANDED, now, flags=piece.flags, stream=trace.JOINED, peer=piece.source,
            protocol=by,
            conn=piece.conn, count=1, lo=lo, hi=hi, size=len(payload),
            digest=self._port.codec.hash64(payload),
        )  # fmt: skip
        # It stands where its last piece stood.
        return Delivery(
            piece.source, piece.conn, hi, hi, piece.flags & ~FRAGMENT, payload, 0, len(payload),
            piece.dest,
        )  # fmt: skip
