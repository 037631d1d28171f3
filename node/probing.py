"""Test protocols in a stack: which of them a frame passes, on its way down and up.

A stack is listed top to bottom, and frames are addressed by protocol: a frame passes the probes
that stand below its protocol, and a delivery those that stand above it.
"""

from __future__ import annotations

from collections.abc import Callable
from random import Random
from typing import Any, Final, NamedTuple

from node.core import wire
from node.core.match import Item, Items
from node.core.model import Delivery
from node.core.wire import Head
from node.protocols.port import Frame, Port
from node.protocols.probes import PROBES, Probe
from node.settings import StackSettings

ABOVE_ALL: Final = -1
"""The place of messages without a protocol: they pass every probe."""


class Placed(NamedTuple):
    """A probe, and where it stands."""

    place: int
    name: str
    probe: Probe


class Probing:
    """The probes of one member."""

    def __init__(
        self,
        settings: StackSettings,
        port: Port,
        dice: Random,
        name_of: Callable[[int], str],
    ) -> None:
        self._port = port
        self._placed = [
            Placed(place, name, PROBES[name](config, dice, name_of))
            for place, name, config in settings.probes
        ]
        self._places: dict[int, int] = {wire.NONE: ABOVE_ALL}
        for place, (name, _config) in enumerate(settings.layers):
            number = wire.PROTOCOL_BY_NAME.get("DISCOVERY" if name in ("STATIC", "PING") else name)
            if number is not None:
                self._places[number] = place
        self._counts: dict[int, int] = {}

    def down(self, frames: list[Frame], now: float) -> list[Frame]:
        """What leaves the member, of the frames of its turn."""
        left: list[Frame] = []
        for dest, head, body in frames:
            seen = Head._make(wire.HEAD_STRUCT.unpack_from(head))
            items: Items = [Item(dest, seen, head + body)]
            for placed in self._below(seen.protocol):
                items = placed.probe.down(items, now)
            left += [(item.peer, _bytes(item.data), b"") for item in items]
        self._note()
        return left

    def up(self, head: Head, body: bytes, now: float) -> list[tuple[Head, bytes]]:
        """What arrives at its protocol, of one frame."""
        items: Items = [Item(head.source, head, body)]
        for placed in reversed(self._below(head.protocol)):
            items = placed.probe.up(items, now)
        self._note()
        return [(item.head, _bytes(item.data)) for item in items]

    def deliveries_up(self, deliveries: list[Delivery], now: float) -> list[Delivery]:
        """What reaches the application, of what the protocols delivered."""
        reached: list[Delivery] = []
        for delivery in deliveries:
            items: Items = [Item(delivery.source, _head_of(delivery), delivery)]
            for placed in reversed(self._above(delivery)):
                items = placed.probe.up(items, now)
            reached += [item.data for item in items]
        self._note()
        return reached

    def next_deadline(self) -> float:
        """When something that is held back is due."""
        return min(placed.probe.next_deadline() for placed in self._placed)

    def release(self, now: float) -> tuple[list[Frame], list[tuple[Head, Any]]]:
        """What was held back and is due: frames to send, and what arrives (a frame's head and
        body, or a delivery)."""
        frames: list[Frame] = []
        arrived: list[tuple[Head, Any]] = []
        for at, placed in enumerate(self._placed):
            if placed.probe.next_deadline() > now:
                continue
            down, up = placed.probe.release(now)
            for below in self._placed[at + 1 :]:
                down = below.probe.down(down, now)
            frames += [(item.peer, _bytes(item.data), b"") for item in down]
            for item in up:
                items = [item]
                is_delivery = isinstance(item.data, Delivery)
                for above in reversed(self._placed[:at]):
                    if is_delivery or above.place > self._places.get(item.head.protocol, 0):
                        items = above.probe.up(items, now)
                arrived += [(one.head, one.data) for one in items]
        self._note()
        return frames, arrived

    def _below(self, protocol: int) -> list[Placed]:
        place = self._places.get(protocol, ABOVE_ALL)
        return [placed for placed in self._placed if placed.place > place]

    def _above(self, delivery: Delivery) -> list[Placed]:
        protocols = (
            (wire.NAKACK2, wire.MCAST)
            if delivery.is_multicast
            else (wire.UNICAST, wire.UNICAST2, wire.UNICAST3, wire.UNICAST4)
        )
        place = max(self._places.get(protocol, ABOVE_ALL) for protocol in protocols)
        return [placed for placed in self._placed if placed.place < place]

    def _note(self) -> None:
        """Have the trace say what was done on purpose: a checker must tell a fault from a bug."""
        for placed in self._placed:
            struck = placed.probe.count - self._counts.get(placed.place, 0)
            if struck:
                self._counts[placed.place] = placed.probe.count
                self._port.drop(f"probe-{placed.name.lower()}", struck)


def _bytes(data: Any) -> bytes:  # noqa: ANN401 opaque to a probe
    assert isinstance(data, bytes)
    return data


def _head_of(delivery: Delivery) -> Head:
    """What a probe may ask of a delivery."""
    blank = dict.fromkeys(Head._fields, 0)
    blank |= {
        "kind": wire.DATA,
        "protocol": wire.NAKACK2 if delivery.is_multicast else wire.UNICAST3,
        "source": delivery.source,
        "dest": delivery.dest,
        "conn": delivery.conn,
        "lo": delivery.lo,
        "count": len(delivery),
        "flags": delivery.flags,
    }
    return Head(**blank)
