"""Turning requests into views: one view at a time, everything that waits combined in the next."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from enum import Enum, auto
from typing import TYPE_CHECKING, Final

from stormcast.node.core import wire
from stormcast.node.core.digest import Digest
from stormcast.node.core.errors import BadFrame
from stormcast.node.core.model import Address, View, ViewId
from stormcast.node.core.policy import is_first, next_members
from stormcast.node.core.wire import Head
from stormcast.node.protocols.events import Tentative
from stormcast.node.protocols.gms.messages import (
    pack_address,
    pack_join_refusal,
    unpack_address_untrusted,
)

if TYPE_CHECKING:
    from stormcast.node.protocols.gms.casting import Casting
    from stormcast.node.protocols.gms.state import Membership

_DEPARTED: Final = 50
"""Members that left and are remembered, so that a late JOIN_REQ brings no ghost back."""
_QUEUE: Final = 4096
"""Requests that wait. What is refused beyond comes again: requests are repeated."""


class Request(Enum):
    """What the next view is asked to change."""

    JOIN = auto()
    LEAVE = auto()
    SUSPECT = auto()


class Coordinator:
    """The view handler. Idle at plain members, until the policy makes them first."""

    def __init__(self, state: Membership, casting: Casting) -> None:
        self._state = state
        self._casting = casting
        self._queue: dict[tuple[Request, Address], None] = {}
        self._stops: set[str] = set()
        """Why requests are turned away: a merge, or this member's own leaving. Whoever made them
        repeats them."""
        self._suspects: set[Address] = set()
        self._leavers: set[Address] = set()
        """Who will be out once someone makes a view: known even where it is not us who does."""
        self._departed: dict[Address, None] = {}

    @property
    def is_idle(self) -> bool:
        """Nothing waits, and the last view is settled."""
        return not self._queue and not self._casting.is_waiting

    @property
    def suspects(self) -> frozenset[Address]:
        """Members believed to be dead."""
        return frozenset(self._suspects)

    # -- Requests -----------------------------------------------------------------------------

    def on_join_untrusted(self, head: Head, body: bytes, now: float) -> None:
        """A JOIN_REQ: of a newcomer, or of a member whose answer was lost."""
        joiner = unpack_address_untrusted(body)
        if joiner.short != head.source:
            raise BadFrame("join-source")
        state = self._state
        view = state.view
        if view is None or not state.role.is_coordinator:
            state.port.drop("not-coordinator")
        elif self._stops:
            state.port.drop("join-not-now")
        elif joiner in view.members:
            self._welcome_again(joiner, view, now)
        elif joiner in self._departed:
            state.port.drop("join-after-leave")
        elif self._is_taken(joiner):
            body = pack_join_refusal(joiner, "its short id is taken")
            state.send(head.source, wire.JOIN_RSP, body, lo=head.lo, again=head.transmission)
        else:
            self._add(Request.JOIN, (joiner,))

    def _is_taken(self, joiner: Address) -> bool:
        waiting = (who for request, who in self._queue if request is Request.JOIN)
        taken = self._state.member(joiner.short)
        return taken is not None or any(
            who.short == joiner.short and who != joiner for who in waiting
        )

    def _welcome_again(self, joiner: Address, view: View, now: float) -> None:
        if self._casting.is_welcoming(joiner):
            self._casting.nudge(joiner, now)
            return
        self._state.suspend("join", self._state.config.join_stability_timeout)
        digest = self._digest_for(view, ())
        if digest is None:
            self._casting.settle()
        else:
            self._casting.welcome_again(joiner, digest, now)

    def on_leave_untrusted(self, head: Head, body: bytes, now: float) -> None:
        """A LEAVE_REQ; answered at once where there is nothing to do."""
        leaver = unpack_address_untrusted(body)
        if leaver.short != head.source:
            raise BadFrame("leave-source")
        state = self._state
        if state.view is None:
            state.port.drop("not-coordinator")
        elif leaver not in state.view.members:
            self._queue.pop((Request.JOIN, leaver), None)
            self._remember(leaver)
            self._let_go(leaver, head.transmission)
        else:
            self._leavers.add(leaver)
            self._casting.stop_waiting_for((leaver,))
            self.take_over()

    def on_suspected(self, members: Collection[Address]) -> None:
        """Members were verified to be dead. Everyone remembers; who is first among the others
        acts, and may become so only with the next suspicion."""
        view = self._state.view
        if view is not None:
            self._suspects.update(m for m in members if m in view.members and m != self._state.me)
            self.take_over()

    def on_cleared(self, member: Address) -> None:
        """It is alive. A view that excludes it already cannot be undone: a merge brings it back."""
        self._suspects.discard(member)
        self._queue.pop((Request.SUSPECT, member), None)

    def take_over(self) -> None:
        """Act on who is absent, if that makes this member first: it may be first already."""
        view = self._state.view
        # One snapshot serves the question and the answer (JGRP-2966).
        suspects, leavers = (
            sorted_by_rank(view, self._suspects),
            sorted_by_rank(view, self._leavers),
        )
        if view is not None and is_first(self._state.me, view.members, {*suspects, *leavers}):
            self._add(Request.SUSPECT, suspects)
            self._add(Request.LEAVE, leavers)

    def _add(self, request: Request, members: Iterable[Address]) -> None:
        """Queue requests, each once, unless they are turned away."""
        for member in members:
            if self._stops or len(self._queue) >= _QUEUE:
                self._state.port.drop("view-request")
            else:
                self._queue.setdefault((request, member))

    # -- Turning requests away ----------------------------------------------------------------

    def stop(self, reason: str) -> None:
        """Forget what waits, and turn away what comes."""
        self._stops.add(reason)
        self._queue.clear()

    def resume(self, reason: str) -> None:
        """Accept requests again, and act on what is known to be due."""
        if reason in self._stops:
            self._stops.discard(reason)
            if not self._stops:
                self.take_over()

    def on_installed(self, view: View) -> None:
        """What the view has settled waits no longer. Suspicions start anew: they are repeated."""
        self._suspects.clear()
        self._leavers.intersection_update(view.members)
        for request, member in list(self._queue):
            if (member in view.members) == (request is Request.JOIN):
                del self._queue[request, member]

    # -- Views --------------------------------------------------------------------------------

    def process(self, now: float) -> None:
        """Make one view of all that waits, unless the last one is still under way."""
        view = self._state.view
        if not self._queue or view is None or self._casting.is_waiting or self._stops:
            return
        queue, self._queue = self._queue, {}
        batch: dict[Request, list[Address]] = {request: [] for request in Request}
        for request, member in queue:
            batch[request].append(member)
        self._change(view, batch[Request.JOIN], batch[Request.LEAVE], batch[Request.SUSPECT], now)

    def _change(
        self,
        view: View,
        joiners: Collection[Address],
        leavers: Collection[Address],
        suspects: Collection[Address],
        now: float,
    ) -> None:
        state = self._state
        members = next_members(view.members, joiners, leavers, suspects)
        if members[0] != state.me:
            # Whoever made us responsible turned out to be alive.
            return
        new = View(ViewId(state.next_number(), state.me), members)
        newcomers = {*joiners, *self._casting.newcomers} & {*members}
        digest = None
        if newcomers:
            # Held from before the digest is taken until everybody knows the joiners: whatever the
            # digest promises them is there when they ask for it.
            state.suspend("join", state.config.join_stability_timeout)
            digest = self._digest_for(new, joiners)
        for leaver in leavers:
            # Ahead of the view, which may end the connection to it (JGRP-1814, JGRP-2597).
            self._remember(leaver)
            self._let_go(leaver, 0)
        state.port.events.append(Tentative(new))
        state.install(new)
        self._casting.cast(new, joiners, digest, now)

    def _digest_for(self, view: View, joiners: Collection[Address]) -> Digest | None:
        """Where a joiner's windows begin; None while it cannot be said of every member."""
        known = dict(self._state.digest_source().seqnos)
        known.update((joiner.short, (0, 0)) for joiner in joiners)
        members = {member.short for member in view.members}
        return Digest(known).restricted(frozenset(members)) if members <= known.keys() else None

    def _let_go(self, leaver: Address, again: int) -> None:
        self._state.send(leaver.short, wire.LEAVE_RSP, pack_address(leaver), again=again)

    def _remember(self, leaver: Address) -> None:
        self._departed[leaver] = None
        if len(self._departed) > _DEPARTED:
            del self._departed[next(iter(self._departed))]


def sorted_by_rank(view: View | None, members: Collection[Address]) -> list[Address]:
    """Those in the view, in its order: sets have none that a replay could rely on."""
    return [member for member in view.members if member in members] if view is not None else []
