"""Members for which frames were dropped because no connection could be made: they are told to have
lost some once one stands."""

from __future__ import annotations

from collections.abc import Callable

from stormcast.node.transports.peer_places import MAX_LEARNED


class Missed:
    """Short ids, up to a bound."""

    def __init__(self) -> None:
        self.shorts: dict[int, None] = {}
        """By the time when each was noted first."""

    def note(self, peer: int) -> None:
        """Note that a frame for a member was dropped."""
        if len(self.shorts) >= MAX_LEARNED and peer not in self.shorts:
            # Without a group anybody is a peer.
            del self.shorts[next(iter(self.shorts))]
        self.shorts[peer] = None

    def take(self, peer: int) -> bool:
        """Forget a member; return whether frames for it were dropped."""
        is_noted = peer in self.shorts
        self.shorts.pop(peer, None)
        return is_noted

    def forget_others(self, is_peer: Callable[[int], bool]) -> None:
        """Forget who is no member any more."""
        for short in [one for one in self.shorts if not is_peer(one)]:
            del self.shorts[short]
