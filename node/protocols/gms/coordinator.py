"""Turns requests into views, one view at a time: the next one combines all requests that wait."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from enum import Enum, auto
from typing import TYPE_CHECKING, Final

from stormcast.node.core import wire
from stormcast.node.core.digest import Digest
from stormcast.node.core.errors import BadFrame
from stormcast.node.core.model import Address, View, ViewId
from stormcast.node.core.packing import MAX_MEMBERS
from stormcast.node.core.policy import is_first, next_members
from stormcast.node.core.strangers import BEGUN_SECONDS, Pace
from stormcast.node.core.wire import Head
from stormcast.node.protocols.events import Doubted, Tentative
from stormcast.node.protocols.gms.messages import (
    TAKEN,
    pack_address,
    pack_join_refusal,
    unpack_address_untrusted,
)
from stormcast.node.protocols.gms.suspects import Suspects
from stormcast.node.protocols.gms.view_room import ViewRoom

if TYPE_CHECKING:
    from stormcast.node.protocols.gms.casting import Casting
    from stormcast.node.protocols.gms.state import Membership

_DEPARTED: Final = MAX_MEMBERS
"""Members that are remembered after they left or were excluded, so that a late JOIN_REQ does not
bring them back. As many as a view has: a cut may exclude almost all at once."""
_JOINERS: Final = 64
"""Joiners that one view adds; the others wait for the next view."""
JOINERS_PER_SECOND: Final = 256
"""Joiners that views add in a second; the others wait. One host may prove any number of addresses,
and every member is told of each. As many members as start at once are not held up."""
JOIN_PACE: Final = "join-pace"
_QUEUE: Final = 4096
"""Requests that wait, at most. Those that are refused come again: requests are repeated."""


class Request(Enum):
    """The changes that a request may ask of the next view."""

    JOIN = auto()
    LEAVE = auto()
    SUSPECT = auto()


class Coordinator:
    """Handles requests for views. Idle at a plain member, until the policy makes it first."""

    def __init__(self, state: Membership, casting: Casting, suspicion_life: float) -> None:
        self._state = state
        self._casting = casting
        self._queue: dict[tuple[Request, Address], None] = {}
        self._stops: set[str] = set()
        """The reasons why requests are turned away: a merge, or this member's own leaving. Their
        senders repeat them."""
        self._suspects = Suspects(suspicion_life)
        self._leavers: set[Address] = set()
        """Members that asked to leave, also where another member will make the view."""
        self._departed: dict[Address, None] = {}
        self._pace = Pace(JOINERS_PER_SECOND)
        self._room = ViewRoom(state.largest_body)

    @property
    def is_idle(self) -> bool:
        """Whether no request waits, and the last view is settled."""
        return not self._queue and not self._casting.is_waiting

    def suspects(self, now: float) -> frozenset[Address]:
        """Return the members believed to be dead."""
        return self._suspects.believed(now)

    # -- Requests -----------------------------------------------------------------------------

    def on_join_untrusted(self, head: Head, body: bytes, now: float) -> None:
        """Take a JOIN_REQ of a newcomer, or of a member whose answer was lost."""
        joiner = unpack_address_untrusted(body)
        if joiner.short != head.source:
            raise BadFrame("join-source")
        state = self._state
        view = state.view
        if view is None or not state.role.is_coordinator:
            state.port.drop("not-coordinator")
            return
        if not state.believes(joiner, head, now):
            return
        if self._stops:
            state.port.drop("join-not-now")
        elif joiner in view.members:
            self._welcome_again(joiner, view, now)
        elif joiner in self._departed:
            state.port.drop("join-after-leave")
        elif self._is_taken(joiner):
            self._refuse(joiner, TAKEN, head)
        elif reason := self._room.shortage(view, (joiner,)):
            self._refuse(joiner, reason, head)
        elif state.role.is_leaving:
            state.port.drop("join-not-now")
        else:
            self._add(Request.JOIN, (joiner,))

    def _refuse(self, joiner: Address, reason: str, head: Head) -> None:
        body = pack_join_refusal(joiner, reason)
        self._state.send(head.source, wire.JOIN_RSP, body, lo=head.lo, again=head.transmission)

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
        """Take a LEAVE_REQ; answer at once if the leaver is not in the view."""
        leaver = unpack_address_untrusted(body)
        if leaver.short != head.source:
            raise BadFrame("leave-source")
        state = self._state
        if state.view is None:
            state.port.drop("not-coordinator")
        elif leaver not in state.view.members:
            # A joiner that waits has proved where it is. Of others nothing is kept: anybody can say
            # that they leave, and they may be about to join.
            if (Request.JOIN, leaver) in self._queue:
                del self._queue[Request.JOIN, leaver]
                self._remember(leaver)
            self._let_go(leaver, head.transmission)
        else:
            self._leavers.add(leaver)
            self._casting.stop_waiting_for((leaver,))
            self.take_over(now)

    def on_suspected(self, members: Collection[Address], now: float) -> None:
        """Note members that were verified to be dead. All members do; only the first of the
        others acts, and a later suspicion may make another member first."""
        view = self._state.view
        if view is not None:
            dead = [m for m in members if m in view.members and m != self._state.me]
            self._suspects.add(dead, now)
            self.take_over(now)

    def on_cleared(self, member: Address) -> None:
        """Keep a member that is alive. A view that excludes it already cannot be undone: a merge
        brings the member back."""
        self._suspects.discard(member)
        self._queue.pop((Request.SUSPECT, member), None)

    def take_over(self, now: float) -> None:
        """Queue suspects and leavers for exclusion, if this member is first without them."""
        view = self._state.view
        self._doubt_old(now)
        # The same snapshot decides who is first, and whom to exclude (JGRP-2966).
        suspects, leavers = (
            sorted_by_rank(view, self._suspects.all),
            sorted_by_rank(view, self._leavers),
        )
        if view is not None and is_first(self._state.me, view.members, {*suspects, *leavers}):
            self._add(Request.SUSPECT, suspects)
            self._add(Request.LEAVE, leavers)

    def _doubt_old(self, now: float) -> None:
        """Have suspects asked again that were confirmed long ago. Another member was to exclude
        them, and did not, or the last view is long under way: they may have answered, and the news
        of that may be lost."""
        old = self._suspects.take_old(now)
        for member in old:
            self._queue.pop((Request.SUSPECT, member), None)
        if old:
            self._state.port.events.append(Doubted(old))

    def _add(self, request: Request, members: Iterable[Address]) -> None:
        """Queue requests, each once, unless they are turned away."""
        for member in members:
            if self._stops or len(self._queue) >= _QUEUE:
                self._state.port.drop("view-request")
            else:
                self._queue.setdefault((request, member))

    # -- Turning requests away ----------------------------------------------------------------

    def stop(self, reason: str) -> None:
        """Forget the requests that wait, and turn away those that come."""
        self._stops.add(reason)
        self._queue.clear()

    def resume(self, reason: str, now: float) -> None:
        """Drop a reason of `stop`; once none is left, accept requests, and act on suspects and
        leavers."""
        if reason in self._stops:
            self._stops.discard(reason)
            if not self._stops:
                self.take_over(now)

    def on_installed(self, view: View) -> None:
        """Drop the requests that the view has settled. Suspicions start anew, also those that were
        queued meanwhile, as at the end of a merge: they are repeated."""
        self._suspects.clear()
        self._leavers.intersection_update(view.members)
        for member in self._casting.take_gone(view):
            # It is alive in a view that it had, or dead. Let in again as one who has sent nothing
            # yet, it would miss what was sent meanwhile: it comes back by a merge.
            self._remember(member)
        for request, member in list(self._queue):
            is_settled = (member in view.members) == (request is Request.JOIN)
            if is_settled or request is Request.SUSPECT:
                del self._queue[request, member]

    # -- Views --------------------------------------------------------------------------------

    def process(self, now: float) -> None:
        """Make one view of all requests that wait, unless the last view is still under way."""
        view = self._state.view
        if not self._queue or view is None or self._casting.is_waiting or self._stops:
            return
        self._doubt_old(now)
        queue, self._queue = self._queue, {}
        batch: dict[Request, list[Address]] = {request: [] for request in Request}
        joiners = batch[Request.JOIN]
        for request, member in queue:
            if request is not Request.JOIN:
                batch[request].append(member)
            elif len(joiners) < _JOINERS and self._room.shortage(view, [*joiners, member]):
                # It asks again, and is told why if that is still so.
                self._state.port.drop("join-full")
            elif len(joiners) < _JOINERS and self._pace.admits(now):
                joiners.append(member)
            else:
                self._queue[request, member] = None
        if any(batch.values()):
            self._change(view, joiners, batch[Request.LEAVE], batch[Request.SUSPECT], now)
        elif self._queue:
            self._state.wake_at(JOIN_PACE, self._pace.since + BEGUN_SECONDS)

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
            # A member before this one, suspected until now, turned out to be alive.
            return
        new = View(ViewId(state.next_number(), state.me), members)
        newcomers = {*joiners, *self._casting.newcomers} & {*members}
        digest = None
        if newcomers:
            # Suspended from before the digest is taken until everybody knows the joiners: whatever
            # the digest promises them is there when they ask for it.
            state.suspend("join", state.config.join_stability_timeout)
            digest = self._digest_for(new, joiners)
        for leaver in leavers:
            # Before the view, which may end the connection to the leaver (JGRP-1814, JGRP-2597).
            self._remember(leaver)
            self._let_go(leaver, 0)
        state.port.events.append(Tentative(new))
        state.install(new)
        self._casting.cast(new, joiners, digest, now)

    def _digest_for(self, view: View, joiners: Collection[Address]) -> Digest | None:
        """Return where a joiner's windows begin; None while that is not known of every member."""
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
    """Return the members that are in the view, in its order: the order of a set is not the same in
    a replay."""
    return [member for member in view.members if member in members] if view is not None else []
