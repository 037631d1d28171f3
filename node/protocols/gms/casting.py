"""Brings a view to its members: to each the whole view, in one frame, repeated until acked.

Not through the multicast window: a window that is full because of a dead member must not hold up
the view that excludes it. The next view waits for the acks, but not for ever; to members that have
not acked the view is repeated, ever more slowly, until another view is installed.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from math import inf
from typing import TYPE_CHECKING, NamedTuple

from stormcast.node.core import wire
from stormcast.node.core.model import Address, View, ViewId
from stormcast.node.core.wire import Head
from stormcast.node.protocols.gms.messages import (
    MergePart,
    pack_join_answer,
    pack_merge_view,
    pack_view,
    unpack_view_id_untrusted,
)
from stormcast.node.protocols.gms.plan import by_identity

if TYPE_CHECKING:
    from stormcast.node.core.digest import Digest
    from stormcast.node.protocols.gms.state import Membership


class _Copy(NamedTuple):
    """The key of a view that is on its way to one member."""

    number: int
    dest: int
    is_merge: bool


class Casting:
    """Sends the view of this member to others, and knows which of them have not acked it."""

    def __init__(self, state: Membership) -> None:
        self._state = state
        self._view: View | None = None
        self._copies: set[_Copy] = set()
        self._missing: set[int] = set()
        self._newcomers: set[Address] = set()
        """Joiners that have acked no view yet: a later view, too, must come with a digest."""
        self._acked: set[Address] = set()
        """Members that have acked a view to this member: they join no more."""

    @property
    def is_waiting(self) -> bool:
        """Whether acks are missing, and still waited for."""
        return bool(self._missing)

    @property
    def newcomers(self) -> frozenset[Address]:
        return frozenset(self._newcomers)

    # -- Sending ------------------------------------------------------------------------------

    def cast(
        self,
        view: View,
        joiners: Collection[Address],
        digest: Digest | None,
        now: float,
    ) -> None:
        """Send a regular view to every member; to joiners also where their windows begin.

        Without a digest, joiners get nothing, and have to ask again.
        """
        self._begin(view, now)
        self._newcomers = {m for m in self._newcomers if m in view.members}.union(joiners)
        notice = pack_view(view)
        welcome = pack_join_answer(view, digest) if digest is not None else b""
        for member in view.members:
            if member == self._state.me:
                continue
            if member not in self._newcomers:
                self._say(_Copy(view.id.number, member.short, False), wire.VIEW, notice, now)
            elif welcome:
                self._say(_Copy(view.id.number, member.short, False), wire.JOIN_RSP, welcome, now)
            else:
                continue
            self._missing.add(member.short)
        self.settle()

    def cast_merged(self, view: View, parts: Mapping[Address, MergePart], now: float) -> None:
        """Send a merge view to every member, each with the part that is meant for it.

        Its repeats go on after a newer view, which members of other groups cannot accept before
        this one. They end when nobody waits for the merge any more.
        """
        self._begin(view, now)
        self._newcomers.clear()
        until = now + 2 * self._state.config.merge_timeout
        for member, part in parts.items():
            if member != self._state.me:
                copy = _Copy(view.id.number, member.short, True)
                self._say(copy, wire.VIEW, pack_merge_view(view, part), now, until)
                self._missing.add(member.short)
        self.settle()

    def welcome_again(self, joiner: Address, digest: Digest, now: float) -> None:
        """Answer a member of the view that asks to join: its answer was lost, or is under way."""
        view = self._state.view
        assert view is not None
        copy = _Copy(view.id.number, joiner.short, False)
        self._newcomers.add(joiner)
        if self._view is not view:
            self._begin(view, now)
        elif not self._missing:
            self._wait(now)
        self._say(copy, wire.JOIN_RSP, pack_join_answer(view, digest), now)
        self._missing.add(joiner.short)

    def is_welcoming(self, joiner: Address) -> bool:
        """Whether a joiner's answer to the current view is being repeated."""
        view = self._state.view
        if view is None or joiner not in self._newcomers:
            return False
        return _Copy(view.id.number, joiner.short, False) in self._copies

    def nudge(self, joiner: Address, now: float) -> None:
        """Repeat a joiner's answer now."""
        view = self._state.view
        assert view is not None
        self._state.repeats.nudge(_Copy(view.id.number, joiner.short, False), now)

    def _begin(self, view: View, now: float) -> None:
        self._drop_copies(view)
        self._view = view
        self._missing = set()
        self._wait(now)

    def _wait(self, now: float) -> None:
        self._state.wake_at("acks", now + self._state.config.view_ack_collection_timeout)

    def _say(self, copy: _Copy, kind: int, body: bytes, now: float, until: float = inf) -> None:
        self._copies.add(copy)
        mark = 0 if copy.is_merge else self._state.merged
        self._state.repeats.say(copy, copy.dest, kind, copy.number, body, now, until, mark=mark)

    def _drop_copies(self, view: View) -> None:
        """Stop repeating older views, except merge views; and all views to former members."""
        members = {member.short for member in view.members}
        for copy in sorted(self._copies):
            is_dead = copy not in self._state.repeats
            is_over = copy.number != view.id.number and not copy.is_merge
            if is_dead or is_over or copy.dest not in members:
                self._stop(copy)

    def _stop(self, copy: _Copy) -> None:
        self._copies.discard(copy)
        self._state.repeats.stop(copy)

    # -- Acks ---------------------------------------------------------------------------------

    def on_ack_untrusted(self, head: Head, body: bytes, now: float) -> None:
        """Take an ack: a member has the view it names, which may not be the one cast last."""
        view_id = unpack_view_id_untrusted(body)
        state = self._state
        member = state.member(head.source)
        if member is None or state.view is None:
            state.port.drop("not-a-member")
            return
        self._on_held(member, view_id)
        number = state.view.id.number
        if view_id.number > number:
            # This member lags behind. The other one knows whether it may catch up without a merge.
            state.say_view_id(head.source, wire.GET_VIEW, head.transmission)
        elif view_id.number < number:
            self._catch_up(member, view_id, head.transmission, now)

    def on_get_view_untrusted(self, head: Head, body: bytes, now: float) -> None:
        """Answer a member that holds an older view than this one, and asks for a newer."""
        view_id = unpack_view_id_untrusted(body)
        member = self._state.member(head.source)
        if member is None:
            self._state.port.drop("not-a-member")
            return
        if self._state.view is not None and view_id.number < self._state.view.id.number:
            self._catch_up(member, view_id, head.transmission, now)

    def _catch_up(self, member: Address, view_id: ViewId, again: int, now: float) -> None:
        """Send the current view to a member that has missed only regular views. Other members have
        windows to replace: the merge view says which, or it takes another merge."""
        state, view = self._state, self._state.view
        assert view is not None
        merge = _Copy(state.merged, member.short, True)
        if state.follows(view_id):
            body, number = pack_view(view), view.id.number
            state.send(member.short, wire.VIEW, body, lo=number, mark=state.merged, again=again)
        elif merge in state.repeats:
            state.repeats.nudge(merge, now)

    def _on_held(self, member: Address, view_id: ViewId) -> None:
        view = self._view
        is_ours = view_id.creator == self._state.me or (view is not None and view_id == view.id)
        for copy in [copy for copy in self._copies if copy.dest == member.short]:
            if copy.number < view_id.number + is_ours:
                self._stop(copy)
        self._newcomers.discard(member)
        self._acked.add(member)
        # A member with a newer view will not take this one any more: waiting is in vain.
        if view is not None and (view_id == view.id or view_id.number > view.id.number):
            self._missing.discard(member.short)
            self.settle()

    def stop_waiting_for(self, members: Collection[Address]) -> None:
        """Stop waiting for members that are dead, and will not ack (JGRP-2556), or are leaving."""
        if self._missing:
            self._missing.difference_update(member.short for member in members)
            self.settle()

    def on_timer(self) -> None:
        """Stop waiting. To members that have not acked, the view is still repeated."""
        self._missing.clear()
        self.settle()

    def on_installed(self, view: View) -> None:
        """Stop casting any other view: the installed one supersedes it."""
        if view is not self._view:
            self._drop_copies(view)
            self._view = None
            self._newcomers.clear()
            self._missing.clear()
            self.settle()

    def take_gone(self, view: View) -> list[Address]:
        """Return the members that have acked a view, and are not in this one; forget them."""
        gone = self._acked.difference(view.members)
        self._acked -= gone
        return by_identity(gone)

    def settle(self) -> None:
        """If no ack is waited for, let stability go on: joiners' digests are no longer in use."""
        if not self._missing:
            self._state.wake_at("acks", inf)
            self._state.resume("join")
