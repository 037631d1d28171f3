"""Joins, views and merges: where windows begin, and what comes before its window is there.

A digest is applied before the view that came with it, as one step: the view alone would open
windows at 0. Keeps A1 (members that stay together deliver the same) across every change.
"""

from __future__ import annotations

from math import inf

from node.core.digest import Digest
from node.core.errors import BadFrame
from node.core.model import View
from node.core.wire import Head
from node.protocols.multicast.receiving import Receiving
from node.protocols.multicast.state import STRANGERS


class Joining(Receiving):
    """Everything that a change of membership does to the windows."""

    # -- Views ----------------------------------------------------------------------------------

    def on_tentative(self, view: View, now: float) -> None:
        """A view is about to come: its members may ask, and nothing they need may be purged."""
        self.coming = frozenset(member.short for member in view.members)

    def _tag_of(self, view: View) -> int:
        """What DATA carries of a view. Two groups that were apart may give views the same number,
        but never by the same creator."""
        name = view.id.number.to_bytes(8, "big") + view.id.creator.identity.to_bytes(16, "big")
        return self._codec.hash64(name) & 0xFFFFFFFF

    def install(
        self, view: View, digest: Digest | None, mutual: frozenset[int] | None, now: float
    ) -> None:
        """Adopt digest and view: windows for exactly the members, begun where it is truthful."""
        before = self.members
        self.view = view
        self.view_number = view.id.number & 0xFFFFFFFF
        self.view_tag = self._tag_of(view)
        self.members = frozenset(member.short for member in view.members)
        self.coming = frozenset()
        self._former.extend(sorted(before - self.members))
        for peer in [peer for peer in self._inbound if peer not in self.members]:
            self._remove_window(self._inbound[peer], "view", now)
        if digest is not None:
            self._adopt_digest(digest, mutual, now)
        for member in view.members:
            if member.short != self._port.me and member.short not in self._inbound:
                self._open_window(member.short, 0, "view", now)
        self._members_changed(now)
        for member in view.members:
            if member.short not in before and member.short != self._port.me:
                self._welcome(member.short, now)

    def _adopt_digest(self, digest: Digest, mutual: frozenset[int] | None, now: float) -> None:
        """Open windows where the digest says. At a merge, one that is behind is replaced, unless
        its sender and this member were connected all the time: then nothing is lost to it, it is
        merely slower (JGRP-948)."""
        for peer in sorted(self.members & set(digest)):
            if peer == self._port.me:
                continue
            offset = digest[peer][0]
            entry = self._inbound.get(peer)
            if entry is None:
                self._open_window(peer, offset, "digest" if mutual is None else "merge", now)
            elif mutual is not None and peer not in mutual and entry.window.delivered < offset:
                self._remove_window(entry, "merge", now)
                self._open_window(peer, offset, "merge", now)

    def _welcome(self, peer: int, now: float) -> None:
        """Tell a new member what can be had, take what it sent before it was known, and have the
        highest seqno announced to it as well."""
        if self.own.high or not self.config.retransmits:
            self._send_baseline(peer)
        self._announcements = 0
        if self.own.low < self.own.high:
            self._schedule_own_look(now)
        kept = self._strangers.pop(peer, None)
        if kept is not None:
            self._replay(kept[1], now)

    def digest(self) -> Digest:
        """Per member what is delivered and received here; own messages included."""
        seqnos = {
            peer: (entry.window.delivered, max(entry.window.seen, entry.window.delivered))
            for peer, entry in self._inbound.items()
        }
        seqnos[self._port.me] = (self.own_delivered, self.own.high)
        return Digest(seqnos)

    # -- Before the first view -----------------------------------------------------------------

    def _queue_frame(self, head: Head, body: bytes) -> None:
        """A frame that comes before the first view is replayed after it."""
        config = self.config
        bounded = config.retransmits or not config.completes
        # A control frame counts too: a stranger must not fill memory with them (G5).
        cost = max(head.count, 1)
        if bounded and self._queued_messages + cost > config.become_server_queue_size:
            if config.historical.queue_overflow != "drop-oldest" or not self._queue:
                self._port.drop("become-server-queue-full", cost)
                return
            oldest, _body = self._queue.pop(0)
            self._queued_messages -= max(oldest.count, 1)
            self._port.drop("become-server-queue-full", max(oldest.count, 1))
        self._queued_messages += cost
        self._queue.append((head, body))

    def become_server(self, now: float) -> None:
        """The first view is there: what was queued is as if it arrived now (JGRP-1509)."""
        if self.is_server:
            return
        self.is_server = True
        queue, self._queue = self._queue, []
        self._queued_messages = 0
        self._replay(queue, now)

    def _replay(self, frames: list[tuple[Head, bytes]], now: float) -> None:
        """Take kept frames as if they came now. One that is no good must not cost the others."""
        for head, body in frames:
            try:
                self._dispatch(head, body, now)
            except BadFrame as bad:
                self._port.drop(bad.reason)

    def _dispatch(self, head: Head, body: bytes, now: float) -> None:
        raise NotImplementedError

    def _keep_for_later(self, head: Head, body: bytes, now: float) -> None:
        """A sender that is not in the view: it may be, soon. One that left is late, not early."""
        config = self.config
        peer = head.source
        if peer in self._former:
            self._port.drop("former-member")
            return
        if config.retransmits and self._strangers_kept() >= config.max_unknown_messages:
            self._port.drop("unknown-sender")
            return
        since, kept = self._strangers.setdefault(peer, (now, []))
        kept.append((head, body))
        self.timers.set_earlier((STRANGERS, 0), since + config.unknown_sender_timeout)

    def _strangers_kept(self) -> int:
        return sum(len(frames) for _since, frames in self._strangers.values())

    def _forget_strangers(self, now: float) -> None:
        """Senders that no view has added in time."""
        timeout = self.config.unknown_sender_timeout
        for peer, (since, kept) in list(self._strangers.items()):
            if now >= since + timeout:
                self._port.drop("unknown-sender", len(kept))
                del self._strangers[peer]
        oldest = min((since for since, _kept in self._strangers.values()), default=inf)
        self.timers.set((STRANGERS, 0), oldest + timeout)

    # -- The transport ---------------------------------------------------------------------------

    def on_link_lost(self, peer: int, now: float) -> None:
        """The connection to a member ended or was replaced: bytes it took may never be read. Say
        what there is, and ask for what there is."""
        if peer in self.members:
            self._send_baseline(peer)
        if entry := self._inbound.get(peer):
            self._desync(entry, now)
