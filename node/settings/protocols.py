"""Every protocol that a stack may list, by its name."""

from __future__ import annotations

from typing import Any, Final

from stormcast.node.protocols.discovery import DnsPing, Ping, Static
from stormcast.node.protocols.fd_all3 import FdAll3
from stormcast.node.protocols.fd_sock2 import FdSock2
from stormcast.node.protocols.flow import Mfc, Ufc
from stormcast.node.protocols.frag import FragConfig
from stormcast.node.protocols.gms import Gms
from stormcast.node.protocols.merge3 import Merge3
from stormcast.node.protocols.multicast import MCAST, NAKACK2
from stormcast.node.protocols.multicast import Generation as MulticastGeneration
from stormcast.node.protocols.stable import Stable
from stormcast.node.protocols.unicast import UNICAST1, UNICAST2, UNICAST3, UNICAST4, Generation
from stormcast.node.protocols.verify_suspect2 import VerifySuspect2
from stormcast.node.settings.transports import TRANSPORTS

RELIABLE_UNICAST: Final[dict[str, Generation]] = {
    "UNICAST": UNICAST1,
    "UNICAST2": UNICAST2,
    "UNICAST3": UNICAST3,
    "UNICAST4": UNICAST4,
}
RELIABLE_MULTICAST: Final[dict[str, MulticastGeneration]] = {"NAKACK2": NAKACK2, "MCAST": MCAST}
DISCOVERIES: Final[dict[str, type[Any]]] = {
    "STATIC": Static,
    "PING": Ping,
    "DNS_PING": DnsPing,
}
CONFIGS: Final[dict[str, type[Any]]] = {
    "FRAG": FragConfig,
    "MFC": Mfc.config_type,
    "UFC": Ufc.config_type,
    "GMS": Gms.config_type,
    "STABLE": Stable.config_type,
    **{name: protocol.config_type for name, protocol in RELIABLE_UNICAST.items()},
    **{name: protocol.config_type for name, protocol in RELIABLE_MULTICAST.items()},
    "VERIFY_SUSPECT2": VerifySuspect2.config_type,
    "FD_ALL3": FdAll3.config_type,
    "FD_SOCK2": FdSock2.config_type,
    "MERGE3": Merge3.config_type,
    **{name: protocol.config_type for name, protocol in DISCOVERIES.items()},
    **TRANSPORTS,
}
"""All protocols, in the order in which a stack may list them, each with the dataclass of its
settings."""

GENERATIONS: Final[dict[str, tuple[str, dict[str, Any]]]] = {
    "UNICAST": ("UNICAST", {}),
    "UNICAST2": ("UNICAST2", {}),
    # The first UNICAST3 knew no least interval: it asks at each tick.
    "UNICAST3": ("UNICAST3", {"sync": "deferred", "sync_min_interval": 0.001}),
    "UNICAST3-SYNC": ("UNICAST3", {"sync": "spaced"}),
    "UNICAST4": ("UNICAST4", {}),
}
"""The five unicast protocols of the design notes: each is a protocol with some settings."""
