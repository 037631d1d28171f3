"""MERGE3: finds out that members hold different views, and tells membership which view each holds.

Each member sends now and then the id of its view (INFO) to all members that it can reach. A member
that hears of different views asks their creators, and the first member that holds each, for the
whole view. Asking a holder of each view also finds members that kept a view whose creator is gone
or has another view by now.

A member of the view that merely missed it needs no merge: its coordinator is told that it lags.

Differences from JGroups: only members that could lead a merge ask, because findings of others would
be ignored. These are the members that coordinate or created one of the views, or all members where
no creator is heard of. A pause for a view that never comes ends by itself.
"""

from stormcast.node.protocols.merge3.config import Merge3Config
from stormcast.node.protocols.merge3.heard import MAX_STRANGERS
from stormcast.node.protocols.merge3.merge3 import Merge3

__all__ = ["MAX_STRANGERS", "Merge3", "Merge3Config"]
