"""Tells flow control where streams stand: how far they were sent, and how far they were taken.

Taken is what the application has: a message that was delivered and still waits for the application
is not taken.
"""

from __future__ import annotations

from stormcast.node.core.credits import StreamEnd
from stormcast.node.core.model import NO_RELIABILITY
from stormcast.node.protocols.multicast import Multicast
from stormcast.node.protocols.port import Port
from stormcast.node.protocols.unicast import Unicast


def _taken(
    port: Port, peer: int, window: tuple[int, int] | None, *, is_multicast: bool
) -> tuple[int, int] | None:
    """Return connection and seqno up to which the application has everything: those of `window`
    (connection, seqno delivered), less what still waits for the application. Deliveries of a window
    that was removed or replaced may wait, too."""
    waiting = [
        delivery
        for delivery in (*port.withheld, *port.deliveries)
        if delivery.source == peer
        and delivery.is_multicast == is_multicast
        # These have no number, and are of no connection.
        and not delivery.flags & NO_RELIABILITY
    ]
    if not waiting:
        return window
    conn = waiting[0].conn
    before = min(delivery.lo - 1 for delivery in waiting if delivery.conn == conn)
    # Messages that were delivered out of band may wait above a gap.
    if window is not None and window[0] == conn:
        before = min(before, window[1])
    return conn, before


class UnicastPositions:
    """The positions of unicast streams."""

    def __init__(self, unicast: Unicast, port: Port) -> None:
        self._unicast = unicast
        self._port = port

    def sent(self, peer: int) -> StreamEnd:
        """Return where the stream to a peer ends."""
        unicast = self._unicast
        if peer == self._port.me:
            return StreamEnd(*unicast.sent_to_self(), 0)
        entry = unicast.send_connections().get(peer)
        if entry is None:
            return StreamEnd(unicast.coming_conn(), 0, 0)
        return StreamEnd(entry.conn, entry.window.high, len(entry.window))

    def taken(self, peer: int) -> tuple[int, int] | None:
        """Return how far a peer's stream was taken."""
        window = None
        if peer == self._port.me:
            window = self._unicast.sent_to_self()
        elif (entry := self._unicast.receive_connections().get(peer)) is not None:
            window = entry.conn, entry.window.delivered
        return _taken(self._port, peer, window, is_multicast=False)


class MulticastPositions:
    """The positions of multicast streams."""

    def __init__(self, multicast: Multicast, port: Port) -> None:
        self._multicast = multicast
        self._port = port

    def sent(self, peer: int) -> StreamEnd:
        """Return where the own stream ends; it is the same for every peer."""
        own = self._multicast.own
        return StreamEnd(0, own.high, own.high - own.low)

    def taken(self, peer: int) -> tuple[int, int] | None:
        """Return how far a peer's stream was taken."""
        window = None
        if peer == self._port.me:
            window = 0, self._multicast.own_delivered
        elif (entry := self._multicast.inbound().get(peer)) is not None:
            window = 0, entry.window.delivered
        return _taken(self._port, peer, window, is_multicast=True)
