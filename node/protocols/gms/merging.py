"""Makes one group of several, or of one group whose members disagree about their view.

The leader asks the coordinators it heard of and, as their answers name the members of their views,
every other member: each for the view it holds and how far its own multicasts are. Then it sends the
merge view to each member itself. Nothing of this needs a multicast window, which may be full
exactly because a merge is needed.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import TYPE_CHECKING, Final

from stormcast.node.core import wire
from stormcast.node.core.digest import Digest
from stormcast.node.core.errors import BadFrame
from stormcast.node.core.model import Address, View
from stormcast.node.core.wire import Head
from stormcast.node.protocols.gms.current_merge import CurrentMerge
from stormcast.node.protocols.gms.merge_leader import MergeLeader
from stormcast.node.protocols.gms.messages import (
    MergeAnswer,
    ViewNotice,
    pack_merge_answer,
    unpack_merge_id_untrusted,
)

if TYPE_CHECKING:
    from stormcast.node.protocols.gms.casting import Casting
    from stormcast.node.protocols.gms.coordinator import Coordinator
    from stormcast.node.protocols.gms.state import Membership

_ANSWERS: Final = {
    wire.MERGE_REQ: wire.MERGE_RSP,
    wire.GET_DIGEST_REQ: wire.GET_DIGEST_RSP,
}


class Merging:
    """Takes part in merges that others lead, and has those led that are this member's to lead."""

    def __init__(self, state: Membership, casting: Casting, coordinator: Coordinator) -> None:
        self._state = state
        self._current = CurrentMerge(state, casting, coordinator)
        self._leader = MergeLeader(state, casting, self._current)
        self.on_disagreement = self._leader.on_disagreement
        self.on_answer_untrusted = self._leader.on_answer_untrusted
        self.cancel = self._leader.cancel
        self.on_cookie = self._current.inquiry.on_cookie
        self.longest_hold = self._current.longest_hold

    @property
    def is_active(self) -> bool:
        """Whether a merge is under way, as far as this member knows."""
        return self._current.id is not None

    @property
    def is_leading(self) -> bool:
        """Whether this member leads it."""
        return self._current.is_led_here

    # -- Taking part --------------------------------------------------------------------------

    def on_request_untrusted(self, head: Head, body: bytes, now: float) -> None:
        """Answer a MERGE_REQ or GET_DIGEST_REQ of anybody who is where it says, as the groups do
        not know each other."""
        merge = unpack_merge_id_untrusted(body)
        if merge.leader.short != head.source:
            raise BadFrame("merge-source")
        state = self._state
        held = state.view
        if held is None:
            state.port.drop("no-view")
            return
        if merge in self._current.past:
            state.port.drop("merge-over")
            return
        is_known = state.port.contacts.trusts(merge.leader)
        if not is_known and not state.believes(merge.leader, head, now):
            return
        current = self._current
        answer = current.own if merge == current.id else None
        if answer is None and current.may_enter(merge, now):
            answer = current.enter(merge, held, now)
        if answer is None:
            answer = MergeAnswer(merge, True, held, Digest())
        state.send(
            head.source,
            _ANSWERS[head.kind],
            pack_merge_answer(answer),
            lo=head.lo,
            again=head.transmission,
        )

    def on_view(self, head: Head, notice: ViewNotice, now: float) -> None:
        """Take a merge view from the leader that this member answered, and from nobody else."""
        state, part, held = self._state, notice.merged, self._state.view
        assert part is not None
        if held is None:
            state.port.drop("no-view")
        elif notice.view.id == held.id:
            state.say_view_id(head.source, wire.VIEW_ACK, head.transmission)
        elif part.merge != self._current.id or part.merge.leader.short != head.source:
            state.port.drop("merge-unknown")
        elif obstacle := state.obstacle(notice.view):
            state.port.drop(obstacle)
            self._current.end(now)
        elif self._are_there(head, notice, held, now):
            self._install(head, notice, now)

    def _are_there(self, head: Head, notice: ViewNotice, held: View, now: float) -> bool:
        """Whether all members of a merge view are where it says. Those that this member does not
        know are asked; what comes of it decides whether the view is installed. A leader of this
        member's own view has asked them itself."""
        assert notice.merged is not None
        merge = notice.merged.merge
        if merge.leader in held.members:
            return True
        current = self._current
        strangers = current.newcomers.among(notice.view.members)
        current.staged, current.unproved = (head, notice), set(strangers)
        size = wire.HEAD_SIZE + head.size
        current.newcomers.ask(strangers, merge, size, head.transmission, now)
        return not strangers

    def on_proof(self, head: Head, now: float) -> None:
        """Take the cookie that a member was sent who would come into the view by the merge."""
        current = self._current
        member = current.newcomers.take(head, now)
        if member is None:
            return
        if self.is_leading:
            self._leader.on_proof(member, now)
            return
        current.unproved.discard(member)
        if current.staged is not None and not current.unproved:
            self._install(*current.staged, now)

    def _install(self, head: Head, notice: ViewNotice, now: float) -> None:
        """Install the merge view, and say so to the leader."""
        state, part, held = self._state, notice.merged, self._state.view
        assert part is not None
        assert held is not None
        state.install(notice.view, part.digest, part.mutual(held))
        state.say_view_id(head.source, wire.VIEW_ACK, head.transmission)
        self._current.finish(now)

    def on_cancel_untrusted(self, head: Head, body: bytes, now: float) -> None:
        """End the merge: the leader gives it up, or goes on without this member."""
        merge = unpack_merge_id_untrusted(body)
        if merge.leader.short != head.source:
            raise BadFrame("merge-source")
        if merge == self._current.id:
            self._current.end(now)
        elif merge in self._current.past:
            self._state.port.drop("merge-over")
        else:
            # The cancellation may have overtaken the request.
            self._current.past.add(merge)

    # -- Ends ---------------------------------------------------------------------------------

    def on_installed(self, view: View, now: float) -> None:
        """End the merge if another view was installed meanwhile: the answer for the old view is
        void. With it, windows of members excluded since would begin again at seqnos that were
        delivered before (G2)."""
        own = self._current.own
        if own is None or own.view == view:
            return
        if self.is_leading:
            self.cancel(now)
        else:
            self._current.end(now)

    def on_suspected(self, members: Collection[Address], now: float) -> None:
        """End the merge at once if its leader is dead; as leader, do not wait for dead members."""
        merge = self._current.id
        if merge is None:
            return
        if self.is_leading:
            self._leader.on_suspected(members, now)
        elif merge.leader in members:
            self._current.end(now)

    def on_timer(self, what: str, now: float) -> None:
        """Stop waiting: at `merge` for answers, at `killer` for the outcome."""
        if what == "merge" and self.is_leading:
            self._leader.consolidate(now)
        elif what == "killer" and self.is_active:
            self._current.end(now)
