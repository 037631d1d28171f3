"""The parts of multicast, each alone: over a state and a port, without a stack."""

from __future__ import annotations

from collections.abc import Sequence
from random import Random

from xxhash import xxh3_64_intdigest as hash64

from stormcast.node.core import wire
from stormcast.node.core.codec import Codec, pack_body
from stormcast.node.core.model import Address, View, ViewId
from stormcast.node.core.timing import Timing
from stormcast.node.core.wire import Head
from stormcast.node.protocols.multicast import NAKACK2, Generation, HistoricalMulticast
from stormcast.node.protocols.multicast.announcing import Announcing
from stormcast.node.protocols.multicast.asking import Asking
from stormcast.node.protocols.multicast.baselines import Baselines
from stormcast.node.protocols.multicast.outgoing import Outgoing
from stormcast.node.protocols.multicast.state import Streams
from stormcast.node.protocols.multicast.windows import Windows
from stormcast.node.protocols.port import Port
from stormcast.node.trace import read_blocks_untrusted
from stormcast.node.trace.tracer import Tracer

CLUSTER = 0xC1
ME, PEER, OTHER, STRANGER = 1, 2, 3, 9
Frame = tuple[Head, bytes]
Blocks = list[bytes]


class Parts:
    """The state of a member in a view with PEER and OTHER, and parts over it as they are asked
    for."""

    def __init__(
        self,
        generation: Generation = NAKACK2,
        *,
        fast: bool = False,
        alone: bool = False,
        **settings: float | bool | HistoricalMulticast,
    ) -> None:
        self._blocks: Blocks = []
        self._tracer = Tracer(ME, 0, hash64, self._blocks.append)
        self.port = Port(Codec(CLUSTER, ME, hash64), self._tracer)
        config = generation.config_type(**settings)  # type: ignore[arg-type]
        self.state = Streams(generation, config, Timing(adaptive=fast), self.port)
        self.state.members = frozenset({ME} if alone else {ME, PEER, OTHER})
        self.state.view = view(1, *sorted(self.state.members))
        self.state.view_number, self.state.view_tag = 1, 77
        self.reports = generation.reports(self.state)
        self.retention = generation.retention(self.state)
        self.announcing = Announcing(self.state, self.retention)
        self.outgoing = Outgoing(self.state, self.retention, self.announcing)
        self.windows = Windows(self.state, self.reports)
        self.asking = Asking(self.state, Random(1))
        self.baselines = Baselines(self.state, self.windows, self.asking, self.reports, Random(1))

    def send(self, *payloads: bytes, flags: int = 0, now: float = 0.0) -> None:
        self.outgoing.send(wire.GROUP, payloads, flags, now)

    def sent(self, *kinds: int) -> list[Head]:
        """The heads of the frames of these kinds (of all, without one) since the last time."""
        frames, self.port.frames = self.port.frames, []
        heads = [Head._make(wire.HEAD_STRUCT.unpack_from(head)) for _dest, head, _body in frames]
        return [head for head in heads if not kinds or head.kind in kinds]

    def recorded(self) -> list[str]:
        """The names of the events so far."""
        self._tracer.seal()
        return [
            event.name
            for data in self._blocks
            for block in read_blocks_untrusted(data, hash64)
            for event in block.events
        ]

    def delivered(self) -> list[tuple[int, int]]:
        """Ranges that were handed up since the last time."""
        deliveries, self.port.deliveries = self.port.deliveries, []
        return [(delivery.lo, delivery.hi) for delivery in deliveries]

    def data(self, lo: int, *payloads: bytes, source: int = PEER, **fields: int) -> Frame:
        """A batch of a peer, as the stack hands it over: head and body."""
        body = pack_body(payloads, hash64)
        head = Codec(CLUSTER, source, hash64).pack_data(
            self.state.generation.protocol,
            wire.GROUP,
            fields.get("conn", 0),
            lo,
            body,
            fields.get("flags", 0),
            fields.get("transmission", 0),
            fields.get("mark", 0),
            fields.get("stamp", self.state.view_tag),
        )
        return self.port.codec.unpack_untrusted(head + body.data)

    def control(
        self,
        kind: int,
        lo: int = 0,
        *,
        source: int = PEER,
        conn: int = 0,
        ranges: Sequence[tuple[int, int]] = (),
        **fields: int,
    ) -> Frame:
        """A control frame of a peer: head and body."""
        frame = Codec(CLUSTER, source, hash64).pack_control(
            kind, self.state.generation.protocol, ME, conn, lo, ranges=ranges, **fields
        )
        return self.port.codec.unpack_untrusted(frame)


def view(number: int, *members: int) -> View:
    """A view, made by its first member."""
    addresses = tuple(Address(short, f"n{short}") for short in members)
    return View(ViewId(number, addresses[0]), addresses)
