"""Hands messages to the application: whole ones, counted by flow control, and recorded.

What the windows delivered waits in the port. The application takes all of it at once, and what it
took is recorded as ranges: G1 is judged from what was offered to what was handed. A range grows for
as long as neighbours follow, but for no longer than `FLUSH_INTERVAL`: an event for each message
would make traces twice as long.
"""

from __future__ import annotations

from math import inf
from typing import TYPE_CHECKING, Any, Final

from stormcast.node import trace
from stormcast.node.core import wire
from stormcast.node.core.model import FRAGMENT, NO_FC, NO_RELIABILITY, Delivery
from stormcast.node.stack.pieces import Pieces

if TYPE_CHECKING:
    from collections.abc import Mapping

    from stormcast.node.protocols.flow import Mfc, Ufc
    from stormcast.node.protocols.frag import Joined
    from stormcast.node.protocols.multicast import Multicast
    from stormcast.node.protocols.port import Port
    from stormcast.node.protocols.unicast import Unicast
    from stormcast.node.settings import StackSettings

FLUSH_INTERVAL: Final = 0.25
"""Seconds after which a trace says at the latest what an application offered or was handed."""
_UNCOUNTED: Final = NO_FC | NO_RELIABILITY
"""Flags of messages that flow control counts neither at their sender nor here."""


class HandOver:
    """Makes what the application is given of what the windows delivered."""

    def __init__(
        self,
        settings: StackSettings,
        port: Port,
        unicast: Unicast,
        multicast: Multicast | None,
        flow: Mapping[int, Any],
    ) -> None:
        self.flush_at = inf
        """When to record, at the latest, what was handed over."""
        self._port = port
        self._unicast = unicast
        self._unicasts = unicast.protocol
        """Number of the protocol that numbers unicasts."""
        self._multicasts = multicast.protocol if multicast is not None else 0
        """Number of the protocol that numbers multicasts; 0 without one."""
        self._ufc: Ufc | None = flow.get(wire.UFC)
        self._mfc: Mfc | None = flow.get(wire.MFC)
        self._counts = bool(flow)
        self.pieces = Pieces(settings, port, unicast)
        self.ready: list[Delivery] = []
        """What the application has to be given now."""
        self._growing: dict[tuple[int, int, int], list[int]] = {}
        """First and last seqno of the range that was handed over and is not recorded yet, by
        source, connection and protocol."""
        self._views: list[tuple[Delivery, frozenset[int]]] = []
        """Views that came while deliveries waited: the last of these deliveries, and the view's
        members."""

    def on_view(self, members: frozenset[int], now: float) -> None:
        """Have pieces given up because of a view, but not before deliveries are joined that came
        before the view and wait."""
        if self.pieces.reassembler is None:
            return
        waiting = self._port.deliveries or self._port.withheld
        if waiting:
            self._views.append((waiting[-1], members))
        else:
            self.pieces.on_view(members, now)

    def take(self) -> list[Delivery]:
        """Return what the application has to be given now, which then is given."""
        ready, self.ready = self.ready, []
        return ready

    def run(self, now: float) -> None:
        """Hand over what was delivered, unless the application takes nothing now."""
        port = self._port
        is_consuming = self._unicast.is_consuming
        if port.withheld or not is_consuming:
            port.withheld += port.deliveries
            port.deliveries.clear()
            if not is_consuming:
                return
            deliveries, port.withheld = port.withheld, []
        else:
            deliveries, port.deliveries = port.deliveries, []
        try:
            if self._views:
                self._move_up_to_views(deliveries, now)
            self._move(deliveries, now)
        except BaseException:
            # A bug, or no memory: all of it was acked, so it is handed over in the next turn.
            port.withheld[:0] = deliveries
            raise
        if self.flush_at == inf:
            self.flush_at = now + FLUSH_INTERVAL

    def _move_up_to_views(self, deliveries: list[Delivery], now: float) -> None:
        """Join what was delivered before each view, and then give pieces up because of it."""
        while self._views:
            last, members = self._views[0]
            # A delivery that a test protocol holds back, or dropped, is not waited for.
            end = next((at for at, one in enumerate(deliveries, 1) if one is last), 0)
            before = deliveries[:end]
            try:
                self._move(before, now)
            except BaseException:
                deliveries[:end] = before
                raise
            del deliveries[:end]
            self.pieces.on_view(members, now)
            del self._views[0]

    def _move(self, deliveries: list[Delivery], now: float) -> None:
        """Hand over deliveries. Where that fails, those that were not handed over are left in the
        list, and no others."""
        ready = self.ready
        counts = self._counts
        growing, pieces = self._growing, self.pieces
        rest = iter(deliveries)
        delivery = None
        try:
            for delivery in rest:
                flags = delivery.flags
                if flags & FRAGMENT:
                    joined = pieces.join(delivery, now)
                    if joined is not None:
                        self._hand_whole(delivery, joined, now)
                else:
                    ready.append(delivery)
                    by = self._unicasts if delivery.dest else self._multicasts
                    numbers = wire.NONE if flags & NO_RELIABILITY else by
                    key = delivery.source, delivery.conn, numbers
                    span = growing.get(key)
                    if span is not None and delivery.lo == span[1] + 1:
                        span[1] = delivery.hi
                    else:
                        if span is not None:
                            self._record(key, span, now)
                        growing[key] = [delivery.lo, delivery.hi]
                # After what may fail: a delivery is counted once.
                if counts and not flags & _UNCOUNTED:
                    flow: Ufc | Mfc | None = self._ufc if delivery.dest else self._mfc
                    if flow is not None:
                        flow.delivered(delivery.source, delivery.size, delivery.conn, now)
        except BaseException:
            is_handed = bool(ready) and ready[-1] is delivery
            # A piece may be taken again: the second time it changes nothing.
            deliveries[:] = [*rest] if is_handed or delivery is None else [delivery, *rest]
            raise

    def flush(self, now: float) -> None:
        """Record all that is not recorded yet."""
        self.flush_at = inf
        for key in list(self._growing):
            self._record(key, self._growing.pop(key), now)

    def _record(self, key: tuple[int, int, int], span: list[int], now: float) -> None:
        source, conn, protocol = key
        lo, hi = span
        self._port.tracer.handed(now, protocol=protocol, peer=source, conn=conn, lo=lo, hi=hi)

    def _hand_whole(self, piece: Delivery, joined: Joined, now: float) -> None:
        """Hand over the message of which `piece` was the last piece, and record it."""
        payload, _lo, hi = joined
        # It takes the place of its last piece.
        self.ready.append(
            Delivery(
                piece.source,
                piece.conn,
                hi,
                hi,
                piece.flags & ~FRAGMENT,
                payload,
                0,
                len(payload),
                piece.dest,
            )
        )
        try:
            self._record_whole(piece, joined, now)
        except BaseException:
            # The piece comes again in the next turn.
            self.ready.pop()
            raise
        pieces = self.pieces
        pieces.joined = pieces.last_piece = None

    def _record_whole(self, piece: Delivery, joined: Joined, now: float) -> None:
        payload, lo, hi = joined
        by = self._unicasts if piece.dest else self._multicasts
        key = piece.source, piece.conn, by
        before = self._growing.get(key)
        if before is not None:
            self._record(key, before, now)
            del self._growing[key]
        self._port.tracer.record(
            trace.HANDED,
            now,
            flags=piece.flags,
            stream=trace.JOINED,
            peer=piece.source,
            protocol=by,
            conn=piece.conn,
            count=1,
            lo=lo,
            hi=hi,
            size=len(payload),
            digest=self._port.codec.hash64(payload),
        )
