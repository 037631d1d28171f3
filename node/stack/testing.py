"""Test protocols in a stack: decides which of them a frame passes, on its way down and up.

A stack is listed top to bottom, and frames are addressed by protocol: a frame passes the test
protocols that stand below its protocol, and a delivery those that stand above it. They can be put
in, set and taken out while the stack runs.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from math import inf
from random import Random
from typing import Any, ClassVar, Final

from stormcast.node.core import wire
from stormcast.node.core.errors import require, suggestion
from stormcast.node.core.model import NO_RELIABILITY, Delivery
from stormcast.node.core.wire import Head
from stormcast.node.protocols.port import Frame, Port
from stormcast.node.protocols.testing import (
    TEST_PROTOCOLS,
    Item,
    Items,
    TestProtocol,
    TestProtocolConfig,
    read_test_protocol,
)
from stormcast.node.settings import DISCOVERIES, StackSettings

ABOVE_ALL: Final = -1
"""The place of messages without a protocol: they pass every test protocol."""


Let = tuple[list[Frame], list[tuple[Head, bytes]]]
"""Released by test protocols: frames to send, and frames that arrive. Deliveries are kept for the
end of the turn."""


@dataclass(slots=True)
class Placed:
    """A test protocol, and where it stands."""

    place: float
    """Index in the stack's list; a test protocol put in later stands half a place above its
    neighbour."""
    name: str
    test_protocol: TestProtocol
    noted: int = 0
    """The number of its strikes that are in the trace."""


class TestProtocols:
    """The test protocols of one member."""

    __test__: ClassVar[bool] = False
    """For pytest: no class of tests, though it is called so."""

    def __init__(
        self,
        settings: StackSettings,
        port: Port,
        dice: Random,
        name_of: Callable[[int], str],
    ) -> None:
        self._port = port
        self._dice = dice
        self._name_of = name_of
        self._names = [name for name, _config in settings.layers]
        self._others = [
            (place, name, config)
            for place, (name, config) in enumerate(settings.layers)
            if name not in TEST_PROTOCOLS
        ]
        """The protocols that are no test protocols: place in the list, name, settings."""
        self._placed = [
            Placed(place, name, TEST_PROTOCOLS[name](config, dice, name_of))
            for place, name, config in settings.test_protocols
        ]
        self.is_on = bool(self._placed)
        """Whether frames and deliveries pass through here; to the end of the turn in which the last
        test protocol was taken out."""
        self._risen: list[Delivery] = []
        """Deliveries that a test protocol has released."""
        self._delivers = (
            wire.PROTOCOL_BY_NAME[settings.unicast],
            wire.PROTOCOL_BY_NAME[settings.multicast or "NONE"],
        )
        """The protocols that deliver unicasts and multicasts."""
        self._places: dict[int, int] = {wire.NONE: ABOVE_ALL}
        for place, (name, _config) in enumerate(settings.layers):
            number = wire.PROTOCOL_BY_NAME.get("DISCOVERY" if name in DISCOVERIES else name)
            if number is not None:
                self._places[number] = place

    # -- Changes ---------------------------------------------------------------------------------

    def put(self, name: str, values: Mapping[str, object] | None, above: str, now: float) -> Let:
        """Put a test protocol in directly above a protocol (by default the transport), or change
        the one that is there, or, without values, take it out. Returns what that one held back."""
        near = suggestion(name, TEST_PROTOCOLS)
        require(name in TEST_PROTOCOLS, f"{name} is no test protocol{near}")
        there = [placed for placed in self._placed if placed.name == name]
        require(
            len(there) <= 1, f"{name} is in the stack {len(there)} times: it cannot be told which"
        )
        if values is None:
            require(bool(there), f"{name} is not in the stack: put it in first")
            let = self._let_go(self._placed.index(there[0]), inf, now)
            self._note()
            self._placed.remove(there[0])
            return let
        if not there:
            self._insert(name, read_test_protocol(name, values), above)
            self.is_on = True
            return [], []
        require(not above, f"{name} is in the stack: take it out before you put it above {above}")
        return self._set(there[0], values, now)

    def _set(self, placed: Placed, values: Mapping[str, object], now: float) -> Let:
        read = read_test_protocol(placed.name, values)
        config = dataclasses.replace(
            placed.test_protocol.config, **{key: getattr(read, key) for key in values}
        )
        let = self._let_go(self._placed.index(placed), inf, now)
        self._note()
        # A new object: what the old one counted and drew belongs to the old settings.
        placed.test_protocol = TEST_PROTOCOLS[placed.name](config, self._dice, self._name_of)
        placed.noted = 0
        return let

    def _insert(self, name: str, config: TestProtocolConfig, above: str) -> None:
        above = above or self._names[-1]
        require(
            above in self._names, f"{above} is not in the stack{suggestion(above, self._names)}"
        )
        place = self._names.index(above) - 0.5
        test_protocol = TEST_PROTOCOLS[name](config, self._dice, self._name_of)
        self._placed.append(Placed(place, name, test_protocol))
        self._placed.sort(key=lambda placed: placed.place)

    def layers(self) -> tuple[tuple[str, Any], ...]:
        """The protocols of the stack, top to bottom, with the test protocols that it has now."""
        test_protocols = [(one.place, one.name, one.test_protocol.config) for one in self._placed]
        placed = sorted((*self._others, *test_protocols), key=lambda one: one[0])
        return tuple((name, config) for _place, name, config in placed)

    def listed(self) -> list[dict[str, object]]:
        """Return all test protocols, top to bottom: for each its name, the protocol below it, how
        often it struck, and its settings."""
        return [
            {
                "name": placed.name,
                "above": self._names[int(placed.place + 1)],
                "struck": placed.test_protocol.count,
                "settings": {
                    key: value
                    for key, value in dataclasses.asdict(placed.test_protocol.config).items()
                    if key != "match"
                },
            }
            for placed in self._placed
        ]

    # -- What passes -----------------------------------------------------------------------------

    def down(self, frames: list[Frame], now: float) -> list[Frame]:
        """Return the frames that leave the member, of those of a turn."""
        left: list[Frame] = []
        for dest, head, body in frames:
            seen = Head._make(wire.HEAD_STRUCT.unpack_from(head))
            items: Items = [Item(dest, seen, head + body)]
            for placed in self._below(seen.protocol):
                items = placed.test_protocol.down(items, now)
            left += [(item.peer, _bytes(item.data), b"") for item in items]
        self._note()
        # This is the end of the turn, in which the last test protocol may have been taken out.
        self.is_on = bool(self._placed)
        return left

    def up(self, head: Head, body: bytes, now: float) -> list[tuple[Head, bytes]]:
        """Pass one frame up; return the frames that reach their protocol."""
        # A frame that is held back must not lie in a buffer that the transport uses again.
        items: Items = [Item(head.source, head, bytes(body))]
        for placed in reversed(self._below(head.protocol)):
            items = placed.test_protocol.up(items, now)
        self._note()
        return [(item.head, _bytes(item.data)) for item in items]

    def deliveries_up(self, deliveries: list[Delivery], now: float) -> list[Delivery]:
        """Return the deliveries that reach the application: of those of the protocols, and of those
        held back before."""
        reached: list[Delivery] = []
        for delivery in deliveries:
            head = _head_of(delivery, self._delivers[delivery.is_multicast])
            items: Items = [Item(delivery.source, head, delivery)]
            for placed in reversed(self._above(delivery)):
                items = placed.test_protocol.up(items, now)
            reached += [item.data for item in items]
        self._note()
        risen, self._risen = self._risen, []
        return reached + risen

    def next_deadline(self) -> float:
        """Return when the next item that is held back is due."""
        return min((placed.test_protocol.next_deadline() for placed in self._placed), default=inf)

    def release(self, now: float) -> Let:
        """Return what was held back and is due."""
        frames: list[Frame] = []
        arrived: list[tuple[Head, bytes]] = []
        for at, placed in enumerate(self._placed):
            if placed.test_protocol.next_deadline() <= now:
                down, up = self._let_go(at, now, now)
                frames += down
                arrived += up
        self._note()
        return frames, arrived

    def _let_go(self, at: int, until: float, now: float) -> Let:
        """Return what one test protocol holds back until a time, after it has passed the others."""
        frames: list[Frame] = []
        arrived: list[tuple[Head, bytes]] = []
        down, up = self._placed[at].test_protocol.release(until)
        for below in self._placed[at + 1 :]:
            down = below.test_protocol.down(down, now)
        frames += [(item.peer, _bytes(item.data), b"") for item in down]
        for item in up:
            items = [item]
            is_delivery = isinstance(item.data, Delivery)
            for above in reversed(self._placed[:at]):
                if is_delivery or above.place > self._places.get(item.head.protocol, 0):
                    items = above.test_protocol.up(items, now)
            if is_delivery:
                self._risen += [one.data for one in items]
            else:
                arrived += [(one.head, one.data) for one in items]
        return frames, arrived

    def _below(self, protocol: int) -> list[Placed]:
        place = self._places.get(protocol, ABOVE_ALL)
        return [placed for placed in self._placed if placed.place > place]

    def _above(self, delivery: Delivery) -> list[Placed]:
        if delivery.flags & NO_RELIABILITY and delivery.source != self._port.me:
            # Its frame has passed all of them.
            return []
        place = self._places[self._delivers[delivery.is_multicast]]
        return [placed for placed in self._placed if placed.place < place]

    def _note(self) -> None:
        """Count strikes as drops, for the trace: a checker must tell a fault from a bug."""
        for placed in self._placed:
            struck = placed.test_protocol.count - placed.noted
            if struck:
                placed.noted = placed.test_protocol.count
                self._port.drop(f"probe-{placed.name.lower()}", struck)


def _bytes(data: Any) -> bytes:  # noqa: ANN401 opaque to a test protocol
    assert isinstance(data, bytes)
    return data


def _head_of(delivery: Delivery, protocol: int) -> Head:
    """Return a head with what a test protocol may ask of a delivery."""
    blank = dict.fromkeys(Head._fields, 0)
    blank |= {
        "kind": wire.DATA,
        "protocol": protocol,
        "source": delivery.source,
        "dest": delivery.dest,
        "conn": delivery.conn,
        "lo": delivery.lo,
        "count": len(delivery),
        "flags": delivery.flags,
    }
    return Head(**blank)
