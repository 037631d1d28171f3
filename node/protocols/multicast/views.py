"""Decides, at each view, which windows there are, and where they begin.

A digest is applied before the view that came with it, as one step: the view alone would open
windows at 0. Keeps A1 (members that stay together deliver the same) across every change.
"""

from __future__ import annotations

from stormcast.node.core.digest import Digest
from stormcast.node.core.model import View
from stormcast.node.protocols.multicast.announcing import Announcing
from stormcast.node.protocols.multicast.asking import Asking
from stormcast.node.protocols.multicast.early import Early
from stormcast.node.protocols.multicast.inbound import Inbound
from stormcast.node.protocols.multicast.outgoing import Outgoing
from stormcast.node.protocols.multicast.retention import Retention
from stormcast.node.protocols.multicast.state import Streams
from stormcast.node.protocols.multicast.windows import Windows


class Views:
    """Everything that a change of membership does to the windows."""

    def __init__(
        self,
        state: Streams,
        outgoing: Outgoing,
        announcing: Announcing,
        retention: Retention,
        windows: Windows,
        early: Early,
        asking: Asking,
    ) -> None:
        self._state = state
        self._asking = asking
        self._me = state.port.me
        self._outgoing = outgoing
        self._announcing = announcing
        self._retention = retention
        self._windows = windows
        self._early = early

    def on_tentative(self, view: View) -> None:
        """Prepare for a coming view: its members may ask, and nothing they need may be purged."""
        self._state.coming = frozenset(member.short for member in view.members)
        self._retention.members_coming()

    def hand_up_ending(
        self, view: View, digest: Digest | None, mutual: frozenset[int] | None, now: float
    ) -> None:
        """Hand up what a stalled application has yet to take of the windows that end with a view,
        as of the view before it: pieces of messages are given up with that."""
        members = {member.short for member in view.members}
        for peer, entry in self._state.inbound.items():
            if peer not in members or self._is_replaced(entry, digest, mutual):
                self._windows.hand_up(entry, now)

    def install(
        self, view: View, digest: Digest | None, mutual: frozenset[int] | None, now: float
    ) -> None:
        """Adopt digest and view: windows for exactly the members, begun where the digest says, else
        at 0."""
        state = self._state
        before = state.members
        self._adopt_view(view)
        self._early.forget_of(sorted(before - state.members))
        for peer in [peer for peer in state.inbound if peer not in state.members]:
            self._windows.remove(state.inbound[peer], "view", now)
        if digest is not None:
            self._adopt_digest(digest, mutual, now)
        others = [member.short for member in view.members if member.short != self._me]
        for peer in others:
            if peer not in state.inbound:
                self._windows.open(peer, 0, "view", now)
        self._outgoing.purge(self._retention.members_changed(), now)
        for peer in others:
            if peer not in before:
                self._welcome(peer, now)
        for entry in state.inbound.values():
            if entry.window.has_gap():
                # A window that was opened with places of OOB messages has gaps from the start.
                self._asking.notice(entry, now)

    def _adopt_view(self, view: View) -> None:
        state = self._state
        state.view = view
        state.view_number = view.id.number & 0xFFFFFFFF
        state.view_tag = self._tag_of(view)
        state.members = frozenset(member.short for member in view.members)
        state.coming = frozenset()

    def _tag_of(self, view: View) -> int:
        """Return the hash of a view's id, which DATA carries. Groups that were apart may give views
        the same number, but never with the same creator."""
        name = view.id.number.to_bytes(8, "big") + view.id.creator.identity.to_bytes(16, "big")
        return self._state.port.codec.hash64(name) & 0xFFFFFFFF

    def _adopt_digest(self, digest: Digest, mutual: frozenset[int] | None, now: float) -> None:
        """Open windows where the digest says, and replace those that are behind it."""
        for peer in sorted(self._state.members & set(digest)):
            if peer == self._me:
                continue
            offset = digest[peer][0]
            entry = self._state.inbound.get(peer)
            if entry is None:
                self._windows.open(peer, offset, "digest" if mutual is None else "merge", now)
            elif self._is_replaced(entry, digest, mutual):
                self._windows.remove(entry, "merge", now)
                self._windows.open(peer, offset, "merge", now)

    def _is_replaced(
        self, entry: Inbound, digest: Digest | None, mutual: frozenset[int] | None
    ) -> bool:
        """Whether a merge replaces a window: it is behind. Not if its sender and this member were
        connected all the time: such a window has lost nothing, it is merely slower (JGRP-948). What
        is there for a stalled application is not behind."""
        if digest is None or mutual is None or entry.peer in mutual or entry.peer not in digest:
            return False
        return entry.window.deliverable < digest[entry.peer][0]

    def _welcome(self, peer: int, now: float) -> None:
        """Tell a new member what can be had, take what it sent before it was known, and have the
        highest seqno announced to it as well."""
        if self._state.own.high or not self._state.config.retransmits:
            self._outgoing.send_baseline(peer)
        self._announcing.restart(now)
        self._early.replay_of(peer, now)

    def digest(self) -> Digest:
        """Per member what is delivered and received here; own messages included."""
        state = self._state
        seqnos = {
            peer: (entry.window.delivered, max(entry.window.seen, entry.window.delivered))
            for peer, entry in state.inbound.items()
        }
        seqnos[self._me] = (state.own_delivered, state.own.high)
        return Digest(seqnos)
