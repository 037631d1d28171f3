"""Makes one group of several, or of one group whose members disagree about their view.

The leader asks the coordinators it heard of and, as their answers name the members of their views,
every other member: each for the view it holds and how far its own multicasts are. Then it sends the
merge view to each member itself. Nothing of this needs a multicast window, which may be full
exactly because a merge is needed.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from math import inf
from typing import TYPE_CHECKING, Final

from stormcast.node.core import wire
from stormcast.node.core.digest import Digest
from stormcast.node.core.errors import BadFrame
from stormcast.node.core.model import Address, View, ViewId
from stormcast.node.core.wire import Head
from stormcast.node.protocols.events import Tentative
from stormcast.node.protocols.gms import plan
from stormcast.node.protocols.gms.holds import Holds
from stormcast.node.protocols.gms.inquiry import Inquiry, PastMerges
from stormcast.node.protocols.gms.messages import (
    MergeAnswer,
    MergeId,
    MergePart,
    ViewNotice,
    pack_merge_answer,
    pack_merge_id,
    unpack_merge_answer_untrusted,
    unpack_merge_id_untrusted,
)
from stormcast.node.protocols.gms.newcomers import Newcomers

if TYPE_CHECKING:
    from stormcast.node.protocols.gms.casting import Casting
    from stormcast.node.protocols.gms.coordinator import Coordinator
    from stormcast.node.protocols.gms.state import Membership

_CANCELS: Final = 3
"""Repeat intervals during which a leader says that a merge is off; nobody answers that."""
_ANSWERS: Final = {
    wire.MERGE_REQ: wire.MERGE_RSP,
    wire.GET_DIGEST_REQ: wire.GET_DIGEST_RSP,
}


class Merging:
    """Takes part in one merge at a time. Meanwhile no other view is made, and nothing purged."""

    def __init__(self, state: Membership, casting: Casting, coordinator: Coordinator) -> None:
        self._state = state
        self._casting = casting
        self._coordinator = coordinator
        self._merge: MergeId | None = None
        self._own: MergeAnswer | None = None
        """This member's answer in the current merge: a repeated request gets the same answer."""
        self._past = PastMerges()
        self._count = 0
        self._heard: Mapping[Address, ViewId] = {}
        """By member, the view id that it said it holds, as heard before the merge that this member
        leads, or led last."""
        self._until = inf
        """When all others have given up the current merge."""
        self._newcomers = Newcomers(state)
        self._staged: tuple[Head, ViewNotice] | None = None
        """The view of the current merge, while members of it have yet to prove where they are."""
        self._unproved: set[Address] = set()
        """The members that have yet to prove it."""
        self._inquiry = Inquiry(state, coordinator, self._newcomers)
        self.on_cookie = self._inquiry.on_cookie
        # Nobody waits longer for the outcome of a merge.
        self._holds = Holds(2 * state.config.merge_timeout)

    @property
    def is_active(self) -> bool:
        """Whether a merge is under way, as far as this member knows."""
        return self._merge is not None

    @property
    def is_leading(self) -> bool:
        return self._merge is not None and self._merge.leader == self._state.me

    # -- Leading ------------------------------------------------------------------------------

    def on_disagreement(
        self, views: Mapping[Address, View], heard: Mapping[Address, ViewId], now: float
    ) -> None:
        """Begin a merge, because members hold different views, if this member is to lead it."""
        state = self._state
        held = state.view
        if held is None or state.role.is_leaving or self._casting.is_waiting:
            return
        reported = {
            member: view
            for member, view in views.items()
            if member in view.members and state.is_plausible(view.id)
        }
        if state.me in reported:
            reported[state.me] = held
        if len(set(reported.values())) > 1 and plan.leader_of(reported) == state.me:
            self._make_way(now)
            if not self.is_active:
                self._heard = heard
                self._lead(reported, held, now)

    def _lead(self, reported: Mapping[Address, View], held: View, now: float) -> None:
        state = self._state
        self._count += 1
        own = self._enter(MergeId(state.me, self._count), held, now)
        if own is None:
            return
        # The merge view must have a higher number than every reported view, answered for or not.
        state.ltime = max(state.ltime, *(view.id.number for view in reported.values()))
        self._inquiry.begin(own)
        for speaker in plan.speakers_of(reported):
            self._inquiry.ask(speaker, wire.MERGE_REQ, now)
        for member in held.members:
            self._inquiry.ask(member, wire.GET_DIGEST_REQ, now)
        state.wake_at("merge", now + state.config.merge_timeout)
        self._look(now)

    def on_answer_untrusted(self, head: Head, body: bytes, now: float) -> None:
        """Take a MERGE_RSP or GET_DIGEST_RSP."""
        answer = unpack_merge_answer_untrusted(head.source, body)
        if self._inquiry.take(head, answer, now):
            self._look(now)

    def _look(self, now: float) -> None:
        if self._inquiry.is_complete:
            self._consolidate(now)

    def _consolidate(self, now: float) -> None:
        """Make the merge view of the members that answered. Others may be dead, or merge next
        time."""
        state = self._state
        merge, answers, held = self._merge, self._inquiry.answers, state.view
        assert merge is not None
        assert held is not None
        if now >= self._until:
            # This member was paused. Its view would be its own alone, and its digest is old.
            self.cancel(now)
            return
        groups = plan.groups_of(answers, self._heard)
        # Not without the leader's own group: it may be busy, or hold another view by now.
        if held not in groups or len(groups) < 2:  # noqa: PLR2004 as one group has nobody to merge with
            self.cancel(now)
            return
        members = plan.merged_members(groups)
        # The leader is the creator, and numbers the view, though another member may coordinate: a
        # creator that did not know of the view could give its number to another view.
        view = View(ViewId(state.next_number(), state.me), members)
        digest = plan.merged_digest(members, answers)
        partners = plan.partners_of(groups)
        parts = {member: MergePart(merge, digest, partners[member]) for member in members}
        _call_off(state, merge, set(self._inquiry.asked.values()).difference(members), now)
        state.port.events.append(Tentative(view))
        self._casting.cast_merged(view, parts, now)
        state.install(view, digest, _mutual(held, parts[state.me]))
        self._end(now)

    def cancel(self, now: float) -> None:
        """Give up a merge led by this member."""
        if self._merge is not None and self.is_leading:
            _call_off(self._state, self._merge, self._inquiry.asked.values(), now)
            self._end(now)

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
        if merge in self._past:
            state.port.drop("merge-over")
            return
        is_known = state.port.contacts.trusts(merge.leader)
        if not is_known and not state.believes(merge.leader, head, now):
            return
        answer = self._own if merge == self._merge else None
        if answer is None and self._may_enter(merge, now):
            answer = self._enter(merge, held, now)
        if answer is None:
            answer = MergeAnswer(merge, True, held, Digest())
        state.send(
            head.source,
            _ANSWERS[head.kind],
            pack_merge_answer(answer),
            lo=head.lo,
            again=head.transmission,
        )

    def _may_enter(self, merge: MergeId, now: float) -> bool:
        """Whether this member takes part in a merge that somebody else begins."""
        contacts = self._state.port.contacts
        if merge.leader.short not in contacts.proved:
            self._make_way(now)
            return not self._is_busy()
        if not self._holds.admits(merge.leader, now):
            self._state.port.drop("merge-stranger")
            return False
        if self._is_busy():
            return False
        self._holds.begin(merge.leader, now)
        return True

    def longest_hold(self) -> float:
        """Return the seconds for which merges of strangers may be refused though the network is
        whole, because others came to nothing before."""
        return self._holds.longest()

    def _make_way(self, now: float) -> None:
        """End the merge of a stranger that has led others to nothing, for one of members."""
        if self._holds.gives_way(now):
            self._end(now)

    def _is_busy(self) -> bool:
        """Whether this member takes part in no further merge. A view that is being cast looks like
        a disagreement and is none (JGRP-1009)."""
        return self.is_active or self._state.role.is_leaving or self._casting.is_waiting

    def _enter(self, merge: MergeId, held: View, now: float) -> MergeAnswer | None:
        """Take part, unless this member cannot say how far its multicasts are; return its
        answer."""
        state = self._state
        me = state.me.short
        digest = state.digest_source()
        if me not in set(digest):
            self._holds.finish()
            return None
        self._merge = merge
        state.expects_merge_view = merge.leader != state.me
        self._coordinator.stop("merge")
        timeout = state.config.merge_timeout
        state.suspend("merge", 4 * timeout)
        self._until = now + 2 * timeout
        state.wake_at("killer", self._until)
        self._own = MergeAnswer(merge, False, held, Digest({me: digest[me]}))
        return self._own

    def on_view(self, head: Head, notice: ViewNotice, now: float) -> None:
        """Take a merge view from the leader that this member answered, and from nobody else."""
        state, part, held = self._state, notice.merged, self._state.view
        assert part is not None
        if held is None:
            state.port.drop("no-view")
        elif notice.view.id == held.id:
            state.say_view_id(head.source, wire.VIEW_ACK, head.transmission)
        elif part.merge != self._merge or part.merge.leader.short != head.source:
            state.port.drop("merge-unknown")
        elif obstacle := state.obstacle(notice.view):
            state.port.drop(obstacle)
            self._end(now)
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
        strangers = self._newcomers.among(notice.view.members)
        self._staged, self._unproved = (head, notice), set(strangers)
        size = wire.HEAD_SIZE + head.size
        self._newcomers.ask(strangers, merge, size, head.transmission, now)
        return not strangers

    def on_proof(self, head: Head, now: float) -> None:
        """Take the cookie that a member was sent who would come into the view by the merge."""
        member = self._newcomers.take(head, now)
        if member is None:
            return
        if self.is_leading:
            if self._inquiry.on_proof(member, now):
                self._look(now)
            return
        self._unproved.discard(member)
        if self._staged is not None and not self._unproved:
            self._install(*self._staged, now)

    def _install(self, head: Head, notice: ViewNotice, now: float) -> None:
        """Install the merge view, and say so to the leader."""
        state, part, held = self._state, notice.merged, self._state.view
        assert part is not None
        assert held is not None
        state.install(notice.view, part.digest, _mutual(held, part))
        state.say_view_id(head.source, wire.VIEW_ACK, head.transmission)
        self._holds.finish()
        self._end(now)

    def on_cancel_untrusted(self, head: Head, body: bytes, now: float) -> None:
        """End the merge: the leader gives it up, or goes on without this member."""
        merge = unpack_merge_id_untrusted(body)
        if merge.leader.short != head.source:
            raise BadFrame("merge-source")
        if merge == self._merge:
            self._end(now)
        elif merge in self._past:
            self._state.port.drop("merge-over")
        else:
            # The cancellation may have overtaken the request.
            self._past.add(merge)

    # -- Ends ---------------------------------------------------------------------------------

    def on_installed(self, view: View, now: float) -> None:
        """End the merge if another view was installed meanwhile: the answer for the old view is
        void. With it, windows of members excluded since would begin again at seqnos that were
        delivered before (G2)."""
        if self._own is None or self._own.view == view:
            return
        if self.is_leading:
            self.cancel(now)
        else:
            self._end(now)

    def on_suspected(self, members: Collection[Address], now: float) -> None:
        """End the merge at once if its leader is dead; as leader, do not wait for dead members."""
        if self._merge is None:
            return
        if not self.is_leading:
            if self._merge.leader in members:
                self._end(now)
            return
        self._inquiry.forget(members)
        self._look(now)

    def on_timer(self, what: str, now: float) -> None:
        """Stop waiting: at `merge` for answers, at `killer` for the outcome."""
        if what == "merge" and self.is_leading:
            self._consolidate(now)
        elif what == "killer" and self.is_active:
            self._end(now)

    def _end(self, now: float) -> None:
        state = self._state
        assert self._merge is not None
        self._past.add(self._merge)
        self._holds.end(now)
        self._merge = self._own = None
        state.expects_merge_view = False
        self._inquiry.end()
        self._newcomers.clear()
        self._staged, self._unproved = None, set()
        state.wake_at("merge", inf)
        state.wake_at("killer", inf)
        self._coordinator.resume("merge", now)
        state.resume("merge")


def _mutual(held: View, part: MergePart) -> frozenset[int]:
    """Return the members that were in this member's view, and had this member in theirs."""
    return frozenset(member.short for member in held.members) & part.partners


def _call_off(state: Membership, merge: MergeId, members: Collection[Address], now: float) -> None:
    """Tell members that a merge is off. Nobody answers that; a member that does not hear of it
    waits in vain until `killer` is due."""
    until = now + _CANCELS * state.config.repeat_interval
    for member in plan.by_identity(members):
        if member != state.me:
            key = ("cancel", merge.number, member.short)
            body = pack_merge_id(merge)
            state.repeats.say(key, member.short, wire.CANCEL_MERGE, merge.number, body, now, until)
