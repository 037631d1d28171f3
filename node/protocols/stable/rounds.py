"""The coordinator's rounds: it counts the votes of all, and tells everybody what is stable."""

from __future__ import annotations

from collections.abc import Callable
from math import inf

from stormcast.node.core import wire
from stormcast.node.core.digest import Digest
from stormcast.node.core.wire import Head
from stormcast.node.protocols.layer import Layer
from stormcast.node.protocols.port import Port
from stormcast.node.protocols.stable.frames import ASKS, send
from stormcast.node.protocols.stable.known import Known


class Rounds:
    """The latest vote of each member, and the STABILITYs that follow from them."""

    def __init__(
        self,
        layer: Layer,
        port: Port,
        known: Known,
        wait: Callable[[int], float],
        adopt: Callable[[Digest], None],
    ) -> None:
        self._layer = layer
        self._role = layer.role
        self._port = port
        self._known = known
        self._wait = wait
        """Seconds until a repeat, by how many there were."""
        self._adopt = adopt
        """Takes what is stable, at this member as at all others."""
        self.votes: dict[int, tuple[int, Digest]] = {}
        """The number of each member's latest vote, and the vote."""
        self._voted: set[int] = set()
        """The members that voted since the last STABILITY."""
        self._announced_at = -inf
        self._announcements = 0
        """STABILITYs since the last progress."""

    def clear(self) -> None:
        """Forget all votes."""
        self.votes = {}
        self._voted = set()
        self._announced_at = -inf
        self._announcements = 0
        self._layer.cancel("announce")

    def on_vote(self, head: Head, digest: Digest, now: float) -> None:
        """Take a member's vote."""
        known = self._known
        if not self.count(head.source, head.conn, digest):
            return
        if digest.is_beyond(known.stable):
            self.consider(now, is_urgent=bool(head.stamp & ASKS))
        elif head.mark < known.heard:
            # Its vote is stable already, but it missed the STABILITY that says so.
            self._send(head.source, transmission=1 + head.conn % wire.MAX_TRANSMISSION)

    def count(self, source: int, number: int, digest: Digest) -> bool:
        """Take a vote, unless a newer one of the same member is there; whether it was taken."""
        latest = self.votes.get(source)
        if latest is not None and number <= latest[0]:
            return False
        self.votes[source] = (number, digest)
        self._voted.add(source)
        return True

    def count_own(self) -> bool:
        """Renew the coordinator's own vote, which needs no frame; whether there is one."""
        own = self._known.current()
        return own is not None and self.count(self._me(), self._known.vote(own), own)

    def _me(self) -> int:
        return self._role.address.short

    def consider(self, now: float, *, is_urgent: bool) -> None:
        """End the round of a vote that is not covered: now if all have voted, else after a wait."""
        others = self._known.members - {self._me()}
        if self._voted >= others and self.count_own() and self.is_progress():
            self.announce(now, asks=False)
            return
        wait = self._wait(self._announcements)
        # Other votes may be under way. For a blocked member the wait began with the last STABILITY.
        since = self._announced_at if is_urgent else now
        self._layer.wake_by("announce", max(now, since + wait))

    def minimum(self) -> Digest:
        """Return what all members of the view have delivered, by their latest votes."""
        members = self._known.members
        if len(self.votes) < len(members):
            return self._known.stable
        votes = [digest.seqnos for _number, digest in self.votes.values()]
        return Digest(
            {
                member: (
                    min(vote[member][0] for vote in votes),
                    # A member knows best how much it sent; nobody can have received more.
                    min(
                        max(vote[member][1] for vote in votes),
                        self.votes[member][1].seqnos[member][1],
                    ),
                )
                for member in members
            }
        )

    def is_progress(self) -> bool:
        """Whether the votes say more than is known, of what was delivered or received."""
        return self.minimum().says_more(self._known.stable)

    def announce(self, now: float, *, asks: bool) -> None:
        """Tell everybody what is stable; with `asks`, ask them to vote if they have more."""
        self._layer.cancel("announce")
        if not self.count_own():
            return
        known = self._known
        stable = self.minimum()
        # Cleared first: a vote that arrives from now on belongs to the next round (JGRP-1638).
        self._voted = set()
        self._announced_at = now
        self._announcements = 0 if stable.is_beyond(known.stable) else self._announcements + 1
        known.heard += 1
        self._adopt(stable)
        self._send(wire.GROUP, stable, stamp=ASKS * asks)

    def _send(
        self, dest: int, stable: Digest | None = None, *, stamp: int = 0, transmission: int = 0
    ) -> None:
        """Send a STABILITY: of what is known, if nothing else is named."""
        known = self._known
        assert known.view_id is not None
        send(
            self._port,
            known.view_id,
            dest,
            wire.STABILITY,
            known.heard,
            known.stable if stable is None else stable,
            stamp=stamp,
            transmission=transmission,
        )
