"""GMS: group membership. One member turns joins, leaves and suspicions into numbered views."""

from stormcast.node.protocols.gms.config import GmsConfig
from stormcast.node.protocols.gms.layer import Gms

__all__ = ["Gms", "GmsConfig"]
