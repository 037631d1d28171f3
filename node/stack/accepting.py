"""Taking messages from the application: into the lane of their destination, whole or cut in pieces.

The one place that refuses. What can never be sent is an error; what has no room now is told by
False.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from stormcast.node.core import wire
from stormcast.node.core.errors import require
from stormcast.node.core.model import (
    DONT_BUNDLE,
    MESSAGE_FLAGS,
    NO_FC,
    NO_RELIABILITY,
    Payload,
    as_payload,
)
from stormcast.node.protocols.frag import Fragmenter
from stormcast.node.protocols.unicast import UNLIMITED
from stormcast.node.stack.lane import MAX_MESSAGE, MESSAGE_OVERHEAD, Lane, Run

if TYPE_CHECKING:
    from collections.abc import Mapping

    from stormcast.node.core.codec import Hash64
    from stormcast.node.settings import StackSettings
    from stormcast.node.stack.outbox import Outbox


class Acceptor:
    """Puts one member's messages into its outbox."""

    def __init__(
        self, settings: StackSettings, outbox: Outbox, flow: Mapping[int, Any], hash64: Hash64
    ) -> None:
        self._outbox = outbox
        self._lanes = outbox.lanes
        self._flow = flow
        """Flow control, by the number of its protocol."""
        pieces = settings.fragments
        self._fragmenter = Fragmenter(pieces, hash64) if pieces is not None else None
        self._transport = settings.transport
        self.largest_message = MAX_MESSAGE
        """Bytes; a transport may carry less than a frame could."""
        granted = [flow.max_message for flow in flow.values()]
        most = pieces.frag_size if pieces is not None else min(granted, default=UNLIMITED)
        self.large_from = most + MESSAGE_OVERHEAD
        """Cost of a message from which on it is not simply queued."""

    def limit_messages(self, largest: int) -> None:
        """The transport carries so many bytes at most in one frame."""
        self.largest_message = min(self.largest_message, largest)
        self.large_from = min(self.large_from, self.largest_message + MESSAGE_OVERHEAD)

    def try_send(self, dest: int, payload: Payload, flags: int = 0) -> bool:
        """Accept a message for `dest` (a short id, or GROUP), or return False when its lane is
        full."""
        if payload.__class__ is not bytes:
            # Text has a length, too, and would fail only where batches are packed.
            payload = as_payload(payload)
        try:
            lane = self._lanes[dest]
        except KeyError:
            lane = self._outbox.open(dest)
        cost = len(payload) + MESSAGE_OVERHEAD
        if cost > self.large_from:
            if self._fragmenter is not None and not flags & NO_RELIABILITY:
                return self._try_send_in_pieces(self._fragmenter, lane, payload, flags)
            self._refuse_too_large(dest, payload, flags)
        if cost > lane.room and not self._admits_alone(lane, payload):
            return False
        run = lane.run
        # Both without flags is the rule, and told sooner than what follows.
        if (flags or run.flags) and (flags != run.flags or flags & DONT_BUNDLE):
            run = _begin_run(lane, flags)
        lane.room -= cost
        run.payloads.append(payload)
        if not lane.is_queued:
            self._outbox.queue(lane)
        return True

    def _admits_alone(self, lane: Lane, payload: Payload) -> bool:
        """A message beyond the outbox enters an empty lane, if a frame can carry it."""
        require(
            len(payload) <= MAX_MESSAGE,
            f"a message of {len(payload)} bytes: a frame carries {MAX_MESSAGE}; split it",
        )
        return lane.room >= self._outbox.bound

    def _refuse_too_large(self, dest: int, payload: Payload, flags: int) -> None:
        """Without fragmentation, what no frame carries cannot be sent, and what no receiver ever
        grants would wait for ever."""
        require(
            len(payload) <= self.largest_message,
            f"a message of {len(payload)} bytes: {self._transport} carries "
            f"{self.largest_message}; split it, or add FRAG to the stack",
        )
        flow = self._flow.get(wire.UFC if dest else wire.MFC)
        require(
            flow is None
            or flags & (NO_FC | NO_RELIABILITY) != 0
            or len(payload) <= flow.max_message,
            f"a message of {len(payload)} bytes: max_credits is "
            f"{flow.max_message if flow else 0}; add FRAG to the stack, or raise max_credits",
        )

    def _try_send_in_pieces(
        self, fragmenter: Fragmenter, lane: Lane, payload: Payload, flags: int
    ) -> bool:
        """A large message enters its lane as fragments, whole or not at all."""
        most = fragmenter.config.max_message_size
        require(len(payload) <= most, f"a message of {len(payload)} bytes: the limit is {most}")
        cost = len(payload) + MESSAGE_OVERHEAD
        if cost > lane.room and lane.room < self._outbox.bound:
            return False
        _check_flags(flags)
        cut = fragmenter.cut(payload)
        lane.begin_large(flags, cut).payloads = cut.pieces
        lane.room -= len(payload) + MESSAGE_OVERHEAD * len(cut.pieces)
        self._outbox.queue(lane)
        return True


def _begin_run(lane: Lane, flags: int) -> Run:
    _check_flags(flags)
    return lane.begin(flags)


def _check_flags(flags: int) -> None:
    require(
        not flags & ~MESSAGE_FLAGS,
        f"message flags {flags:#x}: unknown; see stormcast.node.core.model",
    )
