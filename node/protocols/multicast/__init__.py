"""Reliable multicast in two protocols on one machinery. See docs/protocols/."""

from node.protocols.multicast.config import (
    HistoricalMulticast,
    McastConfig,
    MulticastConfig,
    Nakack2Config,
)
from node.protocols.multicast.machinery import Multicast
from node.protocols.multicast.mcast import Mcast
from node.protocols.multicast.nakack2 import Nakack2

__all__ = [
    "HistoricalMulticast",
    "Mcast",
    "McastConfig",
    "Multicast",
    "MulticastConfig",
    "Nakack2",
    "Nakack2Config",
]
