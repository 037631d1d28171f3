"""Keeps what a member knows of the merge that it takes part in, and begins and ends that part.

Meanwhile no other view is made, and nothing purged.
"""

from __future__ import annotations

from math import inf
from typing import TYPE_CHECKING, Final

from stormcast.node.core.digest import Digest
from stormcast.node.protocols.gms.holds import Holds
from stormcast.node.protocols.gms.inquiry import Inquiry
from stormcast.node.protocols.gms.messages import MergeAnswer, MergeId, ViewNotice
from stormcast.node.protocols.gms.newcomers import Newcomers

if TYPE_CHECKING:
    from stormcast.node.core.model import Address, View
    from stormcast.node.core.wire import Head
    from stormcast.node.protocols.gms.casting import Casting
    from stormcast.node.protocols.gms.coordinator import Coordinator
    from stormcast.node.protocols.gms.state import Membership


_PAST: Final = 20
"""Finished merges that are remembered, so that a late request does not begin one again."""


class CurrentMerge:
    """The merge that one member takes part in, if any: one at a time."""

    def __init__(self, state: Membership, casting: Casting, coordinator: Coordinator) -> None:
        self.id: MergeId | None = None
        self.own: MergeAnswer | None = None
        """This member's answer in it: a repeated request gets the same answer."""
        self.until = inf
        """When all others have given it up."""
        self.past = PastMerges()
        self.newcomers = Newcomers(state)
        self.inquiry = Inquiry(state, coordinator, self.newcomers)
        self.staged: tuple[Head, ViewNotice] | None = None
        """Its view, while members of that have yet to prove where they are."""
        self.unproved: set[Address] = set()
        """The members that have yet to prove it."""
        self._state = state
        self._casting = casting
        self._coordinator = coordinator
        # Nobody waits longer for the outcome of a merge.
        self._holds = Holds(2 * state.config.merge_timeout)

    @property
    def is_led_here(self) -> bool:
        """Whether this member leads it."""
        return self.id is not None and self.id.leader == self._state.me

    def longest_hold(self) -> float:
        """Return the seconds for which merges of strangers may be refused though the network is
        whole, because others came to nothing before."""
        return self._holds.longest()

    def may_enter(self, merge: MergeId, now: float) -> bool:
        """Whether this member takes part in a merge that somebody else begins."""
        if merge.leader.short not in self._state.port.contacts.proved:
            self.make_way(now)
            return not self._is_busy()
        if not self._holds.admits(merge.leader, now):
            self._state.port.drop("merge-stranger")
            return False
        if self._is_busy():
            return False
        self._holds.begin(merge.leader, now)
        return True

    def make_way(self, now: float) -> None:
        """End the merge of a stranger that has led others to nothing, for one of members."""
        if self._holds.gives_way(now):
            self.end(now)

    def _is_busy(self) -> bool:
        """Whether this member takes part in no further merge. A view that is being cast looks like
        a disagreement and is none (JGRP-1009)."""
        return self.id is not None or self._state.role.is_leaving or self._casting.is_waiting

    def enter(self, merge: MergeId, held: View, now: float) -> MergeAnswer | None:
        """Take part, unless this member cannot say how far its multicasts are; return its
        answer."""
        state = self._state
        me = state.me.short
        digest = state.digest_source()
        if me not in set(digest):
            self._holds.finish()
            return None
        self.id = merge
        state.expects_merge_view = merge.leader != state.me
        self._coordinator.stop("merge")
        timeout = state.config.merge_timeout
        state.suspend("merge", 4 * timeout)
        self.until = now + 2 * timeout
        state.wake_at("killer", self.until)
        self.own = MergeAnswer(merge, False, held, Digest({me: digest[me]}))
        return self.own

    def finish(self, now: float) -> None:
        """End a merge that has led to its view."""
        self._holds.finish()
        self.end(now)

    def end(self, now: float) -> None:
        """Take part no longer, and forget all of the merge but that it is over."""
        state = self._state
        assert self.id is not None
        self.past.add(self.id)
        self._holds.end(now)
        self.id = self.own = None
        state.expects_merge_view = False
        self.inquiry.end()
        self.newcomers.clear()
        self.staged, self.unproved = None, set()
        state.wake_at("merge", inf)
        state.wake_at("killer", inf)
        self._coordinator.resume("merge", now)
        state.resume("merge")


class PastMerges:
    """The merges that are over, the latest of them."""

    def __init__(self) -> None:
        self._merges: dict[MergeId, None] = {}

    def __contains__(self, merge: MergeId) -> bool:
        return merge in self._merges

    def add(self, merge: MergeId) -> None:
        """Note that a merge is over."""
        self._merges[merge] = None
        if len(self._merges) > _PAST:
            del self._merges[next(iter(self._merges))]
