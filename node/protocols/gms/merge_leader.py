"""Leads merges: asks for views, makes one of them, and has its members install it."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import TYPE_CHECKING, Final

from stormcast.node.core import wire
from stormcast.node.core.model import Address, View, ViewId
from stormcast.node.core.wire import Head
from stormcast.node.protocols.events import Tentative
from stormcast.node.protocols.gms import plan
from stormcast.node.protocols.gms.messages import (
    MergeId,
    MergePart,
    pack_merge_id,
    unpack_merge_answer_untrusted,
)

if TYPE_CHECKING:
    from stormcast.node.protocols.gms.casting import Casting
    from stormcast.node.protocols.gms.current_merge import CurrentMerge
    from stormcast.node.protocols.gms.state import Membership

_CANCELS: Final = 3
"""Repeat intervals during which a leader says that a merge is off; nobody answers that."""


class MergeLeader:
    """Leads a merge, if it is this member's to lead."""

    def __init__(self, state: Membership, casting: Casting, current: CurrentMerge) -> None:
        self._state = state
        self._casting = casting
        self._current = current
        self._inquiry = current.inquiry
        self._count = 0
        self._heard: Mapping[Address, ViewId] = {}
        """By member, the view id that it said it holds, as heard before the merge that this member
        leads, or led last."""

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
            self._current.make_way(now)
            if self._current.id is None:
                self._heard = heard
                self._lead(reported, held, now)

    def _lead(self, reported: Mapping[Address, View], held: View, now: float) -> None:
        state = self._state
        self._count += 1
        own = self._current.enter(MergeId(state.me, self._count), held, now)
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

    def on_proof(self, member: Address, now: float) -> None:
        """Count the answer of a member that has proved where it is."""
        if self._inquiry.on_proof(member, now):
            self._look(now)

    def on_suspected(self, members: Collection[Address], now: float) -> None:
        """Wait for dead members no longer."""
        self._inquiry.forget(members)
        self._look(now)

    def _look(self, now: float) -> None:
        if self._inquiry.is_complete:
            self.consolidate(now)

    def consolidate(self, now: float) -> None:
        """Make the merge view of the members that answered. Others may be dead, or merge next
        time."""
        state = self._state
        merge, answers, held = self._current.id, self._inquiry.answers, state.view
        assert merge is not None
        assert held is not None
        if now >= self._current.until:
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
        state.install(view, digest, parts[state.me].mutual(held))
        self._current.end(now)

    def cancel(self, now: float) -> None:
        """Give up a merge led by this member."""
        current = self._current
        if current.id is not None and current.is_led_here:
            _call_off(self._state, current.id, self._inquiry.asked.values(), now)
            current.end(now)


def _call_off(state: Membership, merge: MergeId, members: Collection[Address], now: float) -> None:
    """Tell members that a merge is off. Nobody answers that; a member that does not hear of it
    waits in vain until `killer` is due."""
    until = now + _CANCELS * state.config.repeat_interval
    for member in plan.by_identity(members):
        if member != state.me:
            key = ("cancel", merge.number, member.short)
            body = pack_merge_id(merge)
            state.repeats.say(key, member.short, wire.CANCEL_MERGE, merge.number, body, now, until)
