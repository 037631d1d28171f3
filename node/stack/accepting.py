"""Takes messages from the application into the lane of their destination, whole or cut in pieces.

The only place that refuses messages: with an error if a message can never be sent, with False if
there is no room for it now.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from stormcast.node.core import wire
from stormcast.node.core.credits import UNLIMITED
from stormcast.node.core.errors import require
from stormcast.node.core.model import (
    DONT_BUNDLE,
    FRAGMENT,
    MESSAGE_FLAGS,
    NO_FC,
    NO_RELIABILITY,
    Payload,
    as_payload,
)
from stormcast.node.protocols.frag import Fragmenter
from stormcast.node.stack.lane import MAX_MESSAGE, MESSAGE_OVERHEAD, Lane, Run

if TYPE_CHECKING:
    from collections.abc import Mapping

    from stormcast.node.core.codec import Hash64
    from stormcast.node.settings import StackSettings
    from stormcast.node.stack.outbox import Outbox


_ALONE: Final = DONT_BUNDLE | FRAGMENT
"""Flags of messages that never join a run: of a piece, the flag is no caller's to set."""


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
        """Bytes of the largest message in one frame; a transport may carry less than a frame."""
        granted = [flow.max_message for flow in flow.values()]
        most = pieces.frag_size if pieces is not None else min(granted, default=UNLIMITED)
        self.large_from = most + MESSAGE_OVERHEAD
        """Cost above which a message is not simply queued."""

    def limit_messages(self, largest: int) -> None:
        """Note how many bytes the transport carries in one frame, at most."""
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
        # Usually neither has flags, and the first test alone is cheaper than the whole condition.
        if (flags or run.flags) and (flags != run.flags or flags & _ALONE):
            run = _begin_run(lane, flags)
        lane.room -= cost
        run.payloads.append(payload)
        if not lane.is_queued:
            self._outbox.queue(lane)
        return True

    def _admits_alone(self, lane: Lane, payload: Payload) -> bool:
        """Whether the lane is empty: then a message of any size that a frame carries may enter."""
        require(
            len(payload) <= MAX_MESSAGE,
            f"a message of {len(payload)} bytes: a frame carries {MAX_MESSAGE}; split it",
        )
        return self._enters_alone(lane, len(payload) + MESSAGE_OVERHEAD)

    def _enters_alone(self, lane: Lane, cost: int) -> bool:
        """Whether a message that is larger than the outbox may enter: nothing else waits."""
        if lane.room < self._outbox.bound:
            return False
        lane.alone = cost
        return True

    def _refuse_too_large(self, dest: int, payload: Payload, flags: int) -> None:
        """Raise ConfigError for a message that cannot be sent without fragmentation: no frame
        carries it, or it would wait for ever, as no receiver grants so many credits."""
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
        """Put a large message into its lane as fragments, all of them or none."""
        most = fragmenter.config.max_message_size
        require(len(payload) <= most, f"a message of {len(payload)} bytes: the limit is {most}")
        cost = len(payload) + MESSAGE_OVERHEAD * fragmenter.count(len(payload))
        _check_flags(flags)
        if cost > lane.room and not self._enters_alone(lane, cost):
            return False
        cut = fragmenter.cut(payload)
        lane.begin_large(flags, cut).payloads = cut.pieces
        lane.room -= cost
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
