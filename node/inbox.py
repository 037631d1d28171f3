"""Messages on their way to the application: to a callback, or held until it iterates."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from typing import Final

from stormcast.node.callbacks import FAILURES, Callback, check_result
from stormcast.node.core.model import Address, Delivery, Payload
from stormcast.node.known_members import KnownMembers
from stormcast.node.stack.lane import MESSAGE_OVERHEAD
from stormcast.node.turns import Turns

HELD_BYTES: Final = 8 << 20
"""Bytes that are held for an application that iterates; beyond, senders have to wait."""
BATCH_OVERHEAD: Final = 256
"""Bytes that a held batch takes besides its messages."""


class Inbox:
    """Takes the deliveries of all turns."""

    def __init__(
        self,
        turns: Turns,
        members: KnownMembers,
        complain: Callable[[BaseException], None],
        set_consuming: Callable[[bool], object],
    ) -> None:
        self.on_batch: Callback[[Delivery]] = Callback("on_batch", complain, self._choose_receiver)
        self.on_message: Callback[[Payload, Address]] = Callback(
            "on_message", complain, self._choose_receiver
        )
        self.is_stalled = False
        """Whether so much is held that senders wait."""
        self.held_bytes = 0
        self._turns = turns
        self._members = members
        self._complain = complain
        self._set_consuming = set_consuming
        self._held: deque[Delivery] = deque()
        self._has_held = asyncio.Event()
        self._is_closed = False
        turns.on_deliveries = self._hold

    def __len__(self) -> int:
        """The number of held batches."""
        return len(self._held)

    def _choose_receiver(self) -> None:
        """Choose where deliveries go from now on; the held ones go there first."""
        turns = self._turns
        if self.on_batch.call is not None:
            turns.on_deliveries = self._hand_batches
        elif self.on_message.call is not None:
            turns.on_deliveries = self._hand_messages
        else:
            turns.on_deliveries = self._hold
            return
        held = list(self._held)
        self._held.clear()
        self.held_bytes = 0
        if held:
            turns.on_deliveries(held)
        self._consume_again()

    # -- To a callback -------------------------------------------------------------------------

    def _hand_batches(self, deliveries: list[Delivery]) -> None:
        call = self.on_batch.call
        assert call is not None
        for delivery in deliveries:
            try:
                if (result := call(delivery)) is not None:
                    check_result(result)
            except FAILURES as error:  # the application's; the next batch is not to blame
                self._complain(error)

    def _hand_messages(self, deliveries: list[Delivery]) -> None:
        call = self.on_message.call
        assert call is not None
        for delivery in deliveries:
            sender = self._members.of(delivery.source)
            for payload in delivery:
                try:
                    if (result := call(payload, sender)) is not None:
                        check_result(result)
                except FAILURES as error:
                    self._complain(error)

    # -- To one that iterates ------------------------------------------------------------------

    def _hold(self, deliveries: list[Delivery]) -> None:
        """Keep deliveries for `next`; beyond HELD_BYTES take no more, so that senders wait."""
        self._held += deliveries
        self.held_bytes += sum(map(_cost, deliveries))
        self._has_held.set()
        if self.held_bytes > HELD_BYTES and not self.is_stalled:
            self.is_stalled = True
            self._set_consuming(False)

    def _consume_again(self) -> None:
        if self.is_stalled:
            self.is_stalled = False
            self._set_consuming(True)

    async def next(self) -> Delivery | None:
        """Return the next batch; None when closed and every batch was taken."""
        while not self._held:
            if self._is_closed:
                return None
            self._has_held.clear()
            await self._has_held.wait()
        delivery = self._held.popleft()
        self.held_bytes -= _cost(delivery)
        if self.held_bytes <= HELD_BYTES // 2:
            self._consume_again()
        return delivery

    def close(self) -> None:
        """Let `next` end once the held batches are taken."""
        self._is_closed = True
        self._has_held.set()


def _cost(delivery: Delivery) -> int:
    """Return the bytes that a held batch counts for; an empty message counts for some, too."""
    return BATCH_OVERHEAD + delivery.size + MESSAGE_OVERHEAD * len(delivery)
