"""What a part of the stack is made with, to test it alone: a port, its trace, settings."""

from __future__ import annotations

from typing import Any

from xxhash import xxh3_64_intdigest as hash64

from stormcast.node.core.codec import Codec
from stormcast.node.core.timing import Timing
from stormcast.node.protocols.port import Port
from stormcast.node.protocols.unicast import UNICAST3, Unicast, Unicast3Config
from stormcast.node.settings import StackSettings
from stormcast.node.settings.transports import UdpConfig
from stormcast.node.trace import Event, read_blocks_untrusted
from stormcast.node.trace.tracer import Tracer

ME, PEER = 1, 2


def bare_settings(*upper: tuple[str, Any], **values: Any) -> StackSettings:
    """UNICAST3 over UDP, with what stands above and between."""
    layers = (*upper, ("UNICAST3", Unicast3Config()), ("UDP", UdpConfig()))
    return StackSettings(layers=layers, timing=Timing(), **values)


class Parts:
    """A port of one member, and what was recorded through it."""

    def __init__(self, me: int = ME) -> None:
        self._blocks: list[bytes] = []
        self.tracer = Tracer(me, 0, hash64, self._blocks.append)
        self.port = Port(Codec(7, me, hash64), self.tracer)
        self.unicast = Unicast(UNICAST3, Unicast3Config(), Timing(), self.port)

    def recorded(self, *kinds: int) -> list[Event]:
        """What the trace says so far, of some kinds."""
        self.tracer.turn()
        self.tracer.seal()
        blocks = [one for block in self._blocks for one in read_blocks_untrusted(block, hash64)]
        return [event for one in blocks for event in one.events if event.kind in kinds]
