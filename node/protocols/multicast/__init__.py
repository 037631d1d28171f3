"""Reliable multicast in two protocols, which share all but a few choices. See docs/protocols/."""

from stormcast.node.protocols.multicast.config import (
    HistoricalMulticast,
    McastConfig,
    MulticastConfig,
    Nakack2Config,
)
from stormcast.node.protocols.multicast.generations import MCAST, NAKACK2, Generation
from stormcast.node.protocols.multicast.multicast import Multicast

__all__ = [
    "MCAST",
    "NAKACK2",
    "Generation",
    "HistoricalMulticast",
    "McastConfig",
    "Multicast",
    "MulticastConfig",
    "Nakack2Config",
]
