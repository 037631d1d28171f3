"""STABLE: finds out which multicasts every member has delivered, so that they can be purged (G6).

Members tell the coordinator what they have delivered (GOSSIP), the coordinator tells everybody what
all of them have (STABILITY). Both can be lost. A vote counts for one view, number and creator, and
stability is the minimum over the latest votes of exactly its members, so nothing is stable that a
member of the view has not delivered, and a member refuses a stability beyond its own votes.

A round begins with a vote that stability does not cover. It ends at once when all have voted, else
after a repeat interval, with a STABILITY that also asks who has more to report. A member repeats
its vote until it is covered, and is silent when all it knows of is stable.

Differences from JGroups, where rounds depend on timers of 20 s and a lost frame costs one of those:
votes outlive their round, since what was delivered stays delivered; votes are repeated; the
coordinator asks for votes.
"""

from stormcast.node.protocols.stable.config import StableConfig
from stormcast.node.protocols.stable.known import DigestSource
from stormcast.node.protocols.stable.stable import MAX_SUSPEND, Stable

__all__ = ["MAX_SUSPEND", "DigestSource", "Stable", "StableConfig"]
