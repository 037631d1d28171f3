"""Reliable unicast in four generations, which share all but a few choices. See docs/protocols/."""

from stormcast.node.protocols.unicast.config import (
    Historical,
    Unicast1Config,
    Unicast2Config,
    Unicast3Config,
    Unicast4Config,
    UnicastConfig,
)
from stormcast.node.protocols.unicast.generations import (
    UNICAST1,
    UNICAST2,
    UNICAST3,
    UNICAST4,
    Generation,
)
from stormcast.node.protocols.unicast.unicast import Unicast

__all__ = [
    "UNICAST1",
    "UNICAST2",
    "UNICAST3",
    "UNICAST4",
    "Generation",
    "Historical",
    "Unicast",
    "Unicast1Config",
    "Unicast2Config",
    "Unicast3Config",
    "Unicast4Config",
    "UnicastConfig",
]
