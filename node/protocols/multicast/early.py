"""Frames that come too early: before the first view, or of senders that no view has added yet."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable
from itertools import islice
from math import inf
from typing import Final

from stormcast.node import trace
from stormcast.node.core.errors import BadFrame
from stormcast.node.core.strangers import MAX_GAUGED
from stormcast.node.core.wire import Head
from stormcast.node.protocols.multicast.state import STRANGERS, Streams
from stormcast.node.protocols.windowed import gauge

KeptFrame = tuple[Head, bytes]
_KEEPER: Final = "multicast early frames"


class Early:
    """Keeps early frames, and takes them as if they arrived when their window is opened."""

    def __init__(self, state: Streams, take: Callable[[Head, bytes, float], None]) -> None:
        self._state = state
        self._port = state.port
        self._take = take
        self._queue: deque[KeptFrame] = deque()
        """Frames that came before the first view."""
        self._queued_messages = 0
        self._strangers: dict[int, tuple[float, list[KeptFrame]]] = {}
        """Frames of senders that are not in the view yet, and when the first of each came."""
        self._kept: dict[int, tuple[int, int]] = {}
        """Number and bytes of all frames kept, by sender."""
        self._former: deque[int] = deque(maxlen=64)
        """Members that left: what still arrives from them is late, not early."""
        self._kept_before_bound = 0, 0
        """Messages queued, and frames kept of senders not in the view, when both became bounded at
        run time: what was kept by then stays."""

    # -- Before the first view ----------------------------------------------------------------

    def queue(self, head: Head, body: bytes) -> None:
        """Keep a frame until the first view."""
        config = self._state.config
        # Where nothing is retransmitted, but windows are completed, the budget of strangers is the
        # only bound: what it refuses is asked for when the window is opened.
        bounded = config.retransmits or not config.completes
        # A control frame counts too: a stranger must not fill memory with them (G5).
        cost = max(head.count, 1)
        if bounded and self._queued_messages + cost > config.become_server_queue_size:
            if config.historical.queue_overflow != "drop-oldest" or not self._queue:
                self._port.drop("become-server-queue-full", cost)
                return
            oldest, past = self._queue.popleft()
            self._queued_messages -= max(oldest.count, 1)
            self._count(oldest.source, -1, -len(past))
            self._port.drop("become-server-queue-full", max(oldest.count, 1))
        self._queued_messages += cost
        self._queue.append((head, body))
        self._count(head.source, 1, len(body))

    def _count(self, sender: int, frames: int, size: int) -> None:
        """Count frames of a sender that are kept from now on, or not any more."""
        before = self._kept.get(sender, (0, 0))
        kept = before[0] + frames, before[1] + size
        if kept[0]:
            self._kept[sender] = kept
        else:
            self._kept.pop(sender, None)
        self._port.strangers.keep(sender, _KEEPER, *kept)

    def _uncount(self, sender: int, frames: Iterable[KeptFrame]) -> None:
        sizes = [len(body) for _head, body in frames]
        if sizes:
            self._count(sender, -len(sizes), -sum(sizes))

    def forget_stranger(self, sender: int) -> None:
        """Give up all frames of a sender, as too much is kept of strangers."""
        if sender not in self._kept:
            return
        frames = self._kept[sender][0]
        queued = [one for one in self._queue if one[0].source == sender]
        if queued:
            self._queue = deque(one for one in self._queue if one[0].source != sender)
            self._queued_messages -= sum(max(head.count, 1) for head, _body in queued)
        self._strangers.pop(sender, None)
        del self._kept[sender]
        self._port.strangers.keep(sender, _KEEPER, 0, 0)
        self._port.drop("stranger-early", frames)

    def replay_queue(self, now: float) -> None:
        """Take what was queued as if it arrived now: the first view is installed (JGRP-1509)."""
        queue, self._queue = self._queue, deque()
        self._queued_messages = 0
        for head, body in queue:
            self._count(head.source, -1, -len(body))
        self._replay(queue, now)

    def _replay(self, frames: Iterable[KeptFrame], now: float) -> None:
        """Take kept frames as if they came now. A bad frame must not stop the others."""
        for head, body in frames:
            try:
                self._take(head, body, now)
            except BadFrame as bad:
                self._port.drop(bad.reason)

    # -- Senders that are not in the view -----------------------------------------------------

    def keep(self, head: Head, body: bytes, now: float) -> None:
        """Keep a frame of a sender that may soon be in the view. Drop it if the sender has left."""
        config = self._state.config
        peer = head.source
        if peer in self._former:
            self._port.drop("former-member")
            return
        if config.retransmits and self._strangers_kept() >= config.max_unknown_messages:
            self._port.drop("unknown-sender")
            return
        since, kept = self._strangers.setdefault(peer, (now, []))
        kept.append((head, body))
        self._count(peer, 1, len(body))
        self._state.timers.set_earlier((STRANGERS, 0), since + config.unknown_sender_timeout)

    def _strangers_kept(self) -> int:
        return sum(len(frames) for _since, frames in self._strangers.values())

    def replay_of(self, peer: int, now: float) -> None:
        """Take what a sender sent before it was in the view."""
        _since, kept = self._strangers.pop(peer, (now, []))
        self._uncount(peer, kept)
        self._replay(kept, now)

    def forget_of(self, peers: Iterable[int]) -> None:
        """Note members that left: later frames of theirs are dropped."""
        self._former.extend(peers)

    def expire(self, now: float) -> None:
        """Forget senders that no view has added in time."""
        timeout = self._state.config.unknown_sender_timeout
        for peer, (since, kept) in list(self._strangers.items()):
            if now >= since + timeout:
                self._port.drop("unknown-sender", len(kept))
                del self._strangers[peer]
                self._uncount(peer, kept)
        oldest = min((since for since, _kept in self._strangers.values()), default=inf)
        self._state.timers.set((STRANGERS, 0), oldest + timeout)

    # -- Bounds -------------------------------------------------------------------------------

    def become_bounded(self) -> None:
        """Bound queue and kept frames from now on; what is there stays."""
        self._kept_before_bound = self._queued_messages, self._strangers_kept()

    def clear(self) -> None:
        """Forget everything."""
        for sender in list(self._kept):
            self._port.strangers.keep(sender, _KEEPER, 0, 0)
        self._kept.clear()
        self._queue.clear()
        self._strangers.clear()

    def gauge(self, now: float) -> None:
        """Record how much is queued and kept (G5)."""
        config, protocol = self._state.config, self._state.generation.protocol
        queue_bound = strangers_bound = 0
        if config.retransmits:
            messages, frames = self._kept_before_bound
            queue_bound = max(config.become_server_queue_size, messages)
            strangers_bound = max(config.max_unknown_messages, frames)
        if self._queue:
            queued = self._queued_messages
            gauge(self._port, protocol, trace.QUEUED_MESSAGES, 0, queued, queue_bound, now)
        for peer, (_since, kept) in islice(self._strangers.items(), MAX_GAUGED):
            kept_of = len(kept)
            gauge(self._port, protocol, trace.CACHED_FRAMES, peer, kept_of, strangers_bound, now)
