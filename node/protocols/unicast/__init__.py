"""Reliable unicast in four generations on one connection machinery. See docs/protocols/."""

from node.protocols.unicast.config import (
    Historical,
    Unicast1Config,
    Unicast2Config,
    Unicast3Config,
    Unicast4Config,
    UnicastConfig,
)
from node.protocols.unicast.machinery import UNLIMITED, Unicast
from node.protocols.unicast.unicast1 import Unicast1
from node.protocols.unicast.unicast2 import Unicast2
from node.protocols.unicast.unicast3 import Unicast3
from node.protocols.unicast.unicast4 import Unicast4

__all__ = [
    "UNLIMITED",
    "Historical",
    "Unicast",
    "Unicast1",
    "Unicast1Config",
    "Unicast2",
    "Unicast2Config",
    "Unicast3",
    "Unicast3Config",
    "Unicast4",
    "Unicast4Config",
    "UnicastConfig",
]
