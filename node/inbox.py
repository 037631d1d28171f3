"""Messages on their way to the application: to a callback, or held until it iterates."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from math import inf
from typing import Final

from stormcast.node.application import Application
from stormcast.node.callbacks import EXITS, Callback, check_result
from stormcast.node.core.model import Address, Delivery, Payload
from stormcast.node.known_members import KnownMembers
from stormcast.node.stack.lane import MESSAGE_OVERHEAD

HELD_BYTES: Final = 8 << 20
"""Bytes that are held for an application that iterates; beyond, senders have to wait."""
BATCH_OVERHEAD: Final = 256
"""Bytes that a held batch takes besides its messages."""
UNREAD: Final = (
    f"{HELD_BYTES >> 20} MiB of messages have come and nobody takes them, so senders wait: iterate "
    "over the channel, set on_message, or drop them all, by channel.on_batch = lambda batch: None"
)


class Inbox:
    """Takes the deliveries of all turns."""

    def __init__(
        self,
        application: Application,
        members: KnownMembers,
        complain: Callable[[BaseException], None],
        set_consuming: Callable[[bool], int],
        say: Callable[[str], None],
    ) -> None:
        self.on_batch: Callback[[Delivery]] = Callback("on_batch", complain, self._choose_receiver)
        self.on_message: Callback[[Payload, Address]] = Callback(
            "on_message", complain, self._choose_receiver
        )
        self.is_stalled = False
        """Whether so much is held that senders wait."""
        self.held_bytes = 0
        self._application = application
        self._members = members
        self._complain = complain
        self._set_consuming = set_consuming
        self._say = say
        self._is_wanted = True
        """Whether the application wants messages; it may say otherwise by hand."""
        self._is_read = False
        """Whether the application has iterated, or was told that it should."""
        self._most: float = HELD_BYTES
        """Held bytes beyond which senders wait."""
        self._held: deque[Delivery] = deque()
        self._handed: Sequence[Delivery] = ()
        """Deliveries that are handed to a callback now."""
        self._left: Iterator[Delivery] = iter(())
        """Those of them that are still to come, and the messages to come of the present one: who
        exhausts both takes what is left away from the callback."""
        self._messages_left: Iterator[Payload] = iter(())
        self._is_handing_held = False
        self._has_held = asyncio.Event()
        self._is_closed = False
        application.on_deliveries = self._hold

    def __len__(self) -> int:
        """The number of held batches."""
        return len(self._held)

    def _choose_receiver(self) -> None:
        """Choose where deliveries go from now on; the held ones go there first."""
        if self._handed:
            # A callback has replaced or cleared itself. The rest is handed over when it returns.
            self._hold(self._take_rest())
        application = self._application
        if self.on_batch.call is not None:
            application.on_deliveries = self._hand_batches
        elif self.on_message.call is not None:
            application.on_deliveries = self._hand_messages
        else:
            application.on_deliveries = self._hold
        if not self._handed:
            self._hand_held()

    def _take_rest(self) -> list[Delivery]:
        """Take what the present callback was not called with yet."""
        rest = list(self._left)
        if self._application.on_deliveries == self._hand_messages and (
            messages := list(self._messages_left)
        ):
            present = self._handed[len(self._handed) - len(rest) - 1]
            rest.insert(0, _last_of(present, messages))
        return rest

    def _hand_held(self) -> None:
        """Hand what is held to the callback, or callbacks: each may set the next one."""
        application = self._application
        if self._is_handing_held or application.on_deliveries == self._hold:
            return
        self._is_handing_held = True
        try:
            while self._held and application.on_deliveries != self._hold:
                held = list(self._held)
                self._held.clear()
                self.held_bytes = 0
                application.on_deliveries(held)
        finally:
            self._is_handing_held = False
        if not self._held:
            self._consume_again()

    # -- Whether it takes messages -----------------------------------------------------------------

    def set_consuming(self, consuming: bool) -> int:  # noqa: FBT001 it is the whole message
        """Set whether the application wants messages; return how many waited. While too much is
        held, it is given none in any case."""
        self._is_wanted = consuming
        return self._set_consuming(consuming and not self.is_stalled)

    def take_all(self) -> None:
        """Hold, from now on, whatever comes: the member is about to end, and what waits has been
        acked, or holds up its own multicasts. `Channel.leave` bounds how long that lasts."""
        self._most = inf
        self._consume_again()

    def _stall(self) -> None:
        self.is_stalled = True
        self._set_consuming(False)
        is_taken = self.on_batch.call is not None or self.on_message.call is not None
        if not self._is_read and not is_taken:
            self._is_read = True
            self._say(UNREAD)

    def _consume_again(self) -> None:
        if self.is_stalled:
            self.is_stalled = False
            self._set_consuming(self._is_wanted)

    # -- To a callback -------------------------------------------------------------------------

    def _hand_batches(self, deliveries: list[Delivery]) -> None:
        call = self.on_batch.call
        assert call is not None
        if self._comes_after_held(deliveries):
            return
        self._handed, self._left = deliveries, iter(deliveries)
        try:
            for delivery in self._left:
                try:
                    if (result := call(delivery)) is not None:
                        check_result(result)
                except EXITS:
                    raise
                except BaseException as error:  # noqa: BLE001 the next batch is not to blame
                    self._complain(error)
        finally:
            self._keep_rest()
        if self._held:
            self._hand_held()

    def _hand_messages(self, deliveries: list[Delivery]) -> None:
        call = self.on_message.call
        assert call is not None
        if self._comes_after_held(deliveries):
            return
        self._handed, self._left = deliveries, iter(deliveries)
        try:
            for delivery in self._left:
                sender = self._members.of(delivery.source)
                self._messages_left = messages = iter(delivery)
                for payload in messages:
                    try:
                        if (result := call(payload, sender)) is not None:
                            check_result(result)
                    except EXITS:
                        raise
                    except BaseException as error:  # noqa: BLE001 the next message is not to blame
                        self._complain(error)
        finally:
            self._keep_rest()
        if self._held:
            self._hand_held()

    def _comes_after_held(self, deliveries: list[Delivery]) -> bool:
        """Whether an exit of the program had left messages, and these were handed over after
        them."""
        if not self._held or self._is_handing_held:
            return False
        self._hold(deliveries)
        self._hand_held()
        return True

    def _keep_rest(self) -> None:
        """Hold what the callback was not called with, as the program exits: whoever goes on with
        the member gets it, and the journal says that the application has it."""
        rest = self._take_rest()
        self._handed = ()
        if rest:
            self._hold(rest)

    # -- To one that iterates ------------------------------------------------------------------

    def _hold(self, deliveries: list[Delivery]) -> None:
        """Keep deliveries for `next`; beyond HELD_BYTES take no more, so that senders wait."""
        self._held += deliveries
        self.held_bytes += sum(map(_cost, deliveries))
        self._has_held.set()
        if self.held_bytes > self._most and not self.is_stalled:
            self._stall()

    async def next(self) -> Delivery | None:
        """Return the next batch; None when closed and every batch was taken."""
        self._is_read = True
        while not self._held:
            if self._is_closed:
                return None
            self._has_held.clear()
            await self._has_held.wait()
        cost = _cost(self._held[0])
        if self.held_bytes - cost <= HELD_BYTES // 2:
            # Before the batch is taken: where this fails, it is still there.
            self._consume_again()
        self.held_bytes -= cost
        return self._held.popleft()

    def close(self) -> None:
        """Let `next` end once the held batches are taken."""
        self._is_closed = True
        self._has_held.set()


def _cost(delivery: Delivery) -> int:
    """Return the bytes that a held batch counts for; an empty message counts for some, too."""
    return BATCH_OVERHEAD + delivery.size + MESSAGE_OVERHEAD * len(delivery)


def _last_of(delivery: Delivery, messages: list[Payload]) -> Delivery:
    """Return the last messages of a batch as a batch of their own."""
    last = Delivery(
        delivery.source,
        delivery.conn,
        delivery.hi - len(messages) + 1,
        delivery.hi,
        delivery.flags,
        b"",
        0,
        [len(message) for message in messages],
        delivery.dest,
    )
    last.have(messages)
    return last
