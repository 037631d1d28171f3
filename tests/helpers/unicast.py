"""The parts of unicast, each alone: over a state and a port, without a stack."""

from __future__ import annotations

from xxhash import xxh3_64_intdigest as hash64

from stormcast.node.core import wire
from stormcast.node.core.codec import Codec, pack_body
from stormcast.node.core.model import FIRST
from stormcast.node.core.timing import Timing
from stormcast.node.core.wire import Head
from stormcast.node.protocols.port import Port
from stormcast.node.protocols.unicast import UNICAST3, Generation, Historical, UnicastConfig
from stormcast.node.protocols.unicast.state import Connections
from stormcast.node.trace import read_blocks_untrusted
from stormcast.node.trace.tracer import Tracer

CLUSTER = 0xC1
ME = 1
PEER = 2
Frame = tuple[Head, bytes]


def connections(
    generation: Generation = UNICAST3,
    config: UnicastConfig | None = None,
    *,
    fast: bool = False,
    **settings: float | str | Historical,
) -> Connections:
    """The state of a member that has no connection yet."""
    blocks: list[bytes] = []
    tracer = Tracer(ME, 0, hash64, blocks.append)
    port = Port(Codec(CLUSTER, ME, hash64), tracer)
    config = config or generation.config_type(**settings)
    return Connections(generation, config, Timing(adaptive=fast), port)


def sent(state: Connections) -> list[Head]:
    """The heads of the frames that were sent since the last time."""
    frames, state.port.frames = state.port.frames, []
    return [Head._make(wire.HEAD_STRUCT.unpack_from(head)) for _dest, head, _body in frames]


def recorded(state: Connections) -> list[str]:
    """The names of the events that were recorded since the last time."""
    blocks: list[bytes] = []
    tracer = state.port.tracer
    tracer._sink = blocks.append
    tracer.seal()
    return [
        event.name
        for data in blocks
        for block in read_blocks_untrusted(data, hash64)
        for event in block.events
    ]


def data(state: Connections, lo: int, *payloads: bytes, conn: int = 7, **fields: int) -> Frame:
    """A batch of the peer, as the stack hands it over: head and body."""
    body = pack_body(payloads, hash64)
    flags = fields.get("flags", FIRST if lo == 1 else 0)
    head = Codec(CLUSTER, PEER, hash64).pack_data(
        state.generation.protocol,
        ME,
        conn,
        lo,
        body,
        flags,
        fields.get("transmission", 0),
        fields.get("mark", 0),
        fields.get("stamp", 0),
    )
    return state.port.codec.unpack_untrusted(head + body.data)


def control(state: Connections, kind: int, lo: int, *, conn: int = 1, **fields: int) -> Frame:
    """A control frame of the peer: head and body."""
    frame = Codec(CLUSTER, PEER, hash64).pack_control(
        kind, state.generation.protocol, ME, conn, lo, **fields
    )
    return state.port.codec.unpack_untrusted(frame)
