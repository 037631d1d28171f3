"""Where streams stand, as flow control asks: how far they were sent, and how far they were taken.

Taken is what the application has: a message that was delivered and still waits for the application
is not taken.
"""

from __future__ import annotations

from node.core.credits import Place
from node.protocols.multicast import Multicast
from node.protocols.port import Port
from node.protocols.unicast import Unicast


def _taken(port: Port, peer: int, delivered: int, *, is_multicast: bool) -> int:
    """The seqno before the first one that waits for the application."""
    return min(
        (
            waiting.lo - 1
            for waiting in port.deliveries
            if waiting.source == peer and waiting.is_multicast == is_multicast
        ),
        default=delivered,
    )


class UnicastPlaces:
    """Of unicasts."""

    def __init__(self, unicast: Unicast, port: Port) -> None:
        self._unicast = unicast
        self._port = port

    def sent(self, peer: int) -> Place:
        """Where the stream to a peer ends."""
        entry = self._unicast.send_connections().get(peer)
        if entry is None:
            return Place(0, 0, 0)
        return Place(entry.conn, entry.window.high, len(entry.window))

    def taken(self, peer: int) -> tuple[int, int] | None:
        """How far a peer's stream was taken."""
        entry = self._unicast.receive_connections().get(peer)
        if entry is None:
            return None
        return entry.conn, _taken(self._port, peer, entry.window.delivered, is_multicast=False)


class MulticastPlaces:
    """Of multicasts."""

    def __init__(self, multicast: Multicast, port: Port) -> None:
        self._multicast = multicast
        self._port = port

    def sent(self, peer: int) -> Place:
        """Where the own stream ends; it is the same for every peer."""
        own = self._multicast.own
        return Place(0, own.high, own.high - own.low)

    def taken(self, peer: int) -> tuple[int, int] | None:
        """How far a peer's stream was taken."""
        if peer == self._port.me:
            delivered = self._multicast.own_delivered
        else:
            entry = self._multicast.inbound().get(peer)
            if entry is None:
                return None
            delivered = entry.window.delivered
        return 0, _taken(self._port, peer, delivered, is_multicast=True)
