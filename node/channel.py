"""The public API: a channel is one member of a cluster, in one event loop.

    async with Channel(ChannelConfig(name="a", settings=load_settings("udp", "fast"))) as channel:
        channel.on_message = lambda payload, sender: print(sender, bytes(payload))
        await channel.send(None, b"to everyone")

Messages come as batches (`on_batch`, or `async for`) or one at a time (`on_message`). Callbacks run
in the loop, between two turns of the stack: a slow one makes senders wait, and nothing is lost.
"""

from __future__ import annotations

import asyncio
import os
import socket
from collections import deque
from collections.abc import AsyncIterator, Callable, Sequence
from dataclasses import dataclass, field
from types import TracebackType
from typing import Final, Self

from stormcast.node.callbacks import FAILURES, as_callback, check_result
from stormcast.node.core.errors import ClosedError, ConfigError, NodeError
from stormcast.node.core.model import Address, Delivery, Payload, View
from stormcast.node.core.wire import GROUP
from stormcast.node.protocols.port import Abandoned
from stormcast.node.runtime import Runtime
from stormcast.node.settings import StackSettings, load_settings
from stormcast.node.stack.lane import MESSAGE_OVERHEAD
from stormcast.node.trace.journal import JournalConfig

HELD_BYTES: Final = 8 << 20
"""Bytes that wait for an application that iterates, before senders are made to wait."""


class LeaveTimeoutError(NodeError):
    """The group did not confirm that this member is out; it has closed all the same."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ChannelConfig:
    """Who a member is, and what it is made from."""

    settings: StackSettings = field(default_factory=lambda: load_settings("udp", "fast"))
    """The stack: `stormcast.node.settings.load_settings`."""

    cluster: str = "stormcast"
    """Only members that give the same name find each other."""

    name: str = ""
    """What people call this member; empty: host name and process id."""

    journal: JournalConfig | None = None
    """Where its trace is kept; None: nowhere."""

    on_notice: Callable[[str], None] | None = None
    """Is told, once per change, what who runs the member should know."""


Destination = Address | int | str | None
"""A member, its short id, its name, or None for everyone."""


class Publication:
    """A way to one destination, looked up once: for whoever sends there again and again."""

    __slots__ = ("_channel", "_lane", "_large_from", "dest")

    def __init__(self, channel: Channel, dest: int) -> None:
        self.dest = dest
        self._channel = channel
        self._lane = channel.runtime.stack.outbox.lane(dest)
        self._large_from = channel.runtime.stack.acceptor.large_from

    def offer(self, payload: Payload, flags: int = 0) -> bool:
        """As `Channel.try_send`, at half the cost (bench/micro/sending.py)."""
        if payload.__class__ is bytes and not flags:
            lane = self._lane
            run = lane.run
            cost = len(payload) + MESSAGE_OVERHEAD
            room = lane.room - cost
            if room >= 0 and lane.is_queued and not run.flags and cost <= self._large_from:
                lane.room = room
                run.payloads.append(payload)
                return True
        return self._offer_slowly(payload, flags)

    def _offer_slowly(self, payload: Payload, flags: int) -> bool:
        channel = self._channel
        is_taken = channel.try_send(self.dest, payload, flags)
        # A lane ends with its connection, and the next message opened another.
        self._lane = channel.runtime.stack.outbox.lane(self.dest)
        return is_taken


class Channel:
    """One member."""

    def __init__(self, config: ChannelConfig | None = None) -> None:
        config = config or ChannelConfig()
        self.config = config
        self.name = config.name or f"{socket.gethostname()}-{os.getpid()}"
        self.state = "new"
        """new, joining, connected, leaving, closed."""
        self._on_view: Callable[[View], object] | None = None
        self._on_batch: Callable[[Delivery], object] | None = None
        self._on_message: Callable[[Payload, Address], object] | None = None
        self._on_abandoned: Callable[[Address | None, int, str], object] | None = None
        self._members: dict[int, Address] = {}
        self._on_notice = as_callback("on_notice", config.on_notice)
        self._is_joined = asyncio.Event()
        self._is_out = asyncio.Event()
        self._held: deque[Delivery] = deque()
        self._held_bytes = 0
        self._is_stalled = False
        self._has_held = asyncio.Event()
        self._waiting: dict[int, list[asyncio.Future[None]]] = {}
        self.runtime = Runtime(
            config.settings,
            cluster=config.cluster,
            name=self.name,
            journal=config.journal,
            say=self._say if self._on_notice is not None else None,
        )
        self._turns = self.runtime.turns
        self._try_send = self._refuse
        """The stack's own, while there is one: each lookup on this way is paid per message."""
        self.runtime.turns.on_deliveries = self._hold
        self.runtime.turns.on_view = self._take_view
        self.runtime.turns.on_abandoned = self._note_abandoned
        self.runtime.turns.on_left = self._is_out.set

    # -- Life ----------------------------------------------------------------------------------

    async def connect(self) -> None:
        """Join: returns with the first view, or, in a stack without a group, when bound."""
        if self.state != "new":
            raise ClosedError(f"{self.name} was used before: open a new channel")
        self.state = "joining"
        try:
            await self.runtime.start()
            if self.state == "joining":
                self._try_send = self.runtime.stack.try_send
                if self.runtime.stack.group is not None:
                    await self._is_joined.wait()
        except BaseException:
            await self.close()
            raise
        if self.state == "closed":
            # Whoever ended it while it began could not end what was not there yet.
            await self.runtime.close()
        if self.state != "joining":
            raise ClosedError(f"{self.name} was closed before it had joined")
        self.state = "connected"

    async def leave(self, timeout: float = 10.0) -> None:  # noqa: ASYNC109 the bound is part of the promise
        """Let what was sent leave first, then have the group agree to a view without this member.

        LeaveTimeoutError if that took longer than `timeout`; closed it is in any case.
        """
        if self.state == "new" or (self.state == "joining" and not self.runtime.is_running):
            await self.close()
        if self.state not in ("joining", "connected"):
            return
        self.state = "leaving"
        self._is_joined.set()
        try:
            async with asyncio.timeout(timeout):
                await self._flushed()
                self.runtime.leave()
                if self.runtime.stack.group is not None:
                    await self._is_out.wait()
        except TimeoutError:
            raise LeaveTimeoutError(
                f"{self.name} has left without an answer of its group after {timeout:g} s"
            ) from None
        finally:
            await self.close()

    async def _flushed(self) -> None:
        """Until everything that was accepted is numbered, and, without a group that would see to
        it, also acked."""
        stack = self.runtime.stack
        while self.runtime.is_running:
            senders = stack.unicast.send_connections().values()
            is_acked = stack.group is not None or not any(len(one.window) for one in senders)
            if is_acked and not stack.outbox.has_backlog:
                return
            self.runtime.wake()
            await asyncio.sleep(0.001)

    async def close(self) -> None:
        """End at once: last words are sent, nobody is waited for."""
        if self.state == "closed":
            return
        self.state = "closed"
        self._try_send = self._refuse
        await self.runtime.close()
        self._has_held.set()
        self._is_joined.set()
        self._is_out.set()
        for futures in self._waiting.values():
            for future in futures:
                if not future.done():
                    future.set_exception(ClosedError(f"{self.name} is closed"))
        self._waiting.clear()

    async def __aenter__(self) -> Self:
        await self.connect()
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        await self.leave()

    # -- Who is there --------------------------------------------------------------------------

    @property
    def address(self) -> Address:
        """Who this member is; known from `connect` on, and made anew with each channel."""
        address = self.runtime.known_address
        if address is None:
            raise ClosedError(f"{self.name} has no address yet: connect first")
        return address

    @property
    def view(self) -> View | None:
        """Who is in the group now; None before the first view."""
        return self.runtime.stack.view if self.runtime.is_running else None

    def member(self, name: str) -> Address:
        """A member of the view, or one that was met, by its name: of two the one that came last."""
        for address in reversed(self._members.values()):
            if address.name == name:
                return address
        raise ConfigError(
            f"no member named {name!r} in the view; "
            f"there is {', '.join(sorted(map(str, self._members.values()))) or 'nobody'}"
        )

    # -- Sending -------------------------------------------------------------------------------

    def try_send(self, dest: Destination, payload: Payload, flags: int = 0) -> bool:
        """Accept a message, or return False while the outbox for `dest` is full.

        A message belongs to the stack from here on: do not change what it views.
        """
        if dest is None:
            dest = GROUP
        elif not isinstance(dest, int):
            dest = self._find(dest)
        if self._try_send(dest, payload, flags):
            turns = self._turns
            if not turns.is_wanted:
                turns.wake()
            return True
        return False

    def _find(self, dest: Destination) -> int:
        """The short id of a destination; GROUP for everyone."""
        if dest is None:
            return GROUP
        if isinstance(dest, int):
            return dest
        if isinstance(dest, str):
            self.runtime.check_open()
            return self.member(dest).short
        if not isinstance(dest, Address):
            raise ConfigError(
                f"dest is of type {type(dest).__name__}: write an Address, a short id, a member's "
                "name, or None for everyone"
            )
        if dest.short not in self._members:
            self.meet(dest)
        return dest.short

    def meet(self, dest: Address) -> None:
        """Learn of somebody whom no view has named: the address says where it is."""
        if self.runtime.is_running:
            self._members[dest.short] = dest
            self.runtime.transport.locate(dest)

    def _refuse(self, dest: int, payload: Payload, flags: int = 0) -> bool:
        raise ClosedError(f"{self.name} is {self.state}: nothing can be sent")

    def publication(self, dest: Destination) -> Publication:
        """A way to one destination, for many messages."""
        self.runtime.check_open()
        if isinstance(dest, Address):
            self.meet(dest)
        return Publication(self, self._find(dest))

    async def send(self, dest: Destination, payload: Payload, flags: int = 0) -> None:
        """Have a message accepted, waiting while the outbox is full."""
        while not self.try_send(dest, payload, flags):
            await self._room(dest)

    async def send_many(
        self, dest: Destination, payloads: Sequence[Payload], flags: int = 0
    ) -> None:
        """Have several accepted, in order."""
        for payload in payloads:
            if not self.try_send(dest, payload, flags):
                await self._room(dest)
                await self.send(dest, payload, flags)

    async def _room(self, dest: Destination) -> None:
        """Until half of the outbox for `dest` is free: at its edge, one message would wake us for
        each that left."""
        short = self._find(dest)
        future = asyncio.get_running_loop().create_future()
        if not self._waiting:
            self.runtime.turns.after.append(self._tell_waiting)
        self._waiting.setdefault(short, []).append(future)
        await future

    def _tell_waiting(self) -> None:
        stack = self.runtime.stack
        half = stack.settings.outbox_bytes // 2
        for dest in [dest for dest in self._waiting if stack.outbox.room(dest) >= half]:
            for future in self._waiting.pop(dest):
                if not future.done():
                    future.set_result(None)
        if self._waiting:
            self.runtime.turns.after.append(self._tell_waiting)

    # -- Receiving -----------------------------------------------------------------------------

    @property
    def on_view(self) -> Callable[[View], object] | None:
        """Is called with each view."""
        return self._on_view

    @on_view.setter
    def on_view(self, call: Callable[[View], object] | None) -> None:
        self._on_view = as_callback("on_view", call)

    @property
    def on_batch(self) -> Callable[[Delivery], object] | None:
        """Is called with each batch: the fast way."""
        return self._on_batch

    @on_batch.setter
    def on_batch(self, call: Callable[[Delivery], object] | None) -> None:
        self._on_batch = as_callback("on_batch", call)
        self._choose_receiver()

    @property
    def on_message(self) -> Callable[[Payload, Address], object] | None:
        """Is called with each message and its sender."""
        return self._on_message

    @on_message.setter
    def on_message(self, call: Callable[[Payload, Address], object] | None) -> None:
        self._on_message = as_callback("on_message", call)
        self._choose_receiver()

    def _choose_receiver(self) -> None:
        """Where deliveries go from now on; what has waited goes there first."""
        runtime = self.runtime.turns
        if self._on_batch is not None:
            runtime.on_deliveries = self._hand_batches
        elif self._on_message is not None:
            runtime.on_deliveries = self._hand_messages
        else:
            runtime.on_deliveries = self._hold
            return
        held = list(self._held)
        self._held.clear()
        self._held_bytes = 0
        if held:
            runtime.on_deliveries(held)
        self._consume_again()

    def _hand_batches(self, deliveries: list[Delivery]) -> None:
        call = self._on_batch
        assert call is not None
        for delivery in deliveries:
            try:
                if (result := call(delivery)) is not None:
                    check_result(result)
            except FAILURES as error:  # the application's; the next batch is not to blame
                self._complain(error)

    def _hand_messages(self, deliveries: list[Delivery]) -> None:
        call = self._on_message
        assert call is not None
        for delivery in deliveries:
            sender = self.sender(delivery)
            for payload in delivery:
                try:
                    if (result := call(payload, sender)) is not None:
                        check_result(result)
                except FAILURES as error:
                    self._complain(error)

    def _say(self, line: str) -> None:
        """A notice must not end the turn in which it is given."""
        assert self._on_notice is not None
        try:
            check_result(self._on_notice(line))
        except FAILURES as error:
            self._complain(error)

    def _complain(self, error: BaseException) -> None:
        asyncio.get_running_loop().call_exception_handler(
            {"message": f"{self.name}: a callback failed", "exception": error}
        )

    def sender(self, delivery: Delivery) -> Address:
        """Who sent a batch; one that no view has named is known by its short id only."""
        known = self._members.get(delivery.source)
        return known or Address(delivery.source, f"{delivery.source:08x}")

    def _hold(self, deliveries: list[Delivery]) -> None:
        """Keep them for `async for`; when that is too slow, take no more, and senders wait."""
        for delivery in deliveries:
            self._held.append(delivery)
            self._held_bytes += _cost(delivery)
        self._has_held.set()
        if self._held_bytes > HELD_BYTES and not self._is_stalled:
            self._is_stalled = True
            self.runtime.stack.set_consuming(False, self.runtime.now())

    def _consume_again(self) -> None:
        if self._is_stalled:
            self._is_stalled = False
            self.runtime.stack.set_consuming(True, self.runtime.now())
            self.runtime.wake()

    def __aiter__(self) -> AsyncIterator[Delivery]:
        return self

    async def __anext__(self) -> Delivery:
        """The next batch; ends when the channel has closed and everything was taken."""
        while not self._held:
            if self.state == "closed":
                raise StopAsyncIteration
            self._has_held.clear()
            await self._has_held.wait()
        delivery = self._held.popleft()
        self._held_bytes -= _cost(delivery)
        if self._held_bytes <= HELD_BYTES // 2:
            self._consume_again()
        return delivery

    def _take_view(self, view: View) -> None:
        self._members.update({member.short: member for member in view.members})
        if len(self._members) > 2 * len(view.members):
            self._members = {member.short: member for member in view.members}
        self._is_joined.set()
        if self.on_view is not None:
            try:
                check_result(self.on_view(view))
            except FAILURES as error:
                self._complain(error)

    def _note_abandoned(self, lost: Abandoned) -> None:
        dest = None
        if lost.dest != GROUP:
            dest = self._members.get(lost.dest) or Address(lost.dest, f"{lost.dest:08x}")
        self.runtime.say(
            f"{lost.count} messages to {dest or 'the group'} were given up: {lost.why}; "
            "some may have arrived"
        )
        if self._on_abandoned is not None:
            try:
                check_result(self._on_abandoned(dest, lost.count, lost.why))
            except FAILURES as error:
                self._complain(error)

    @property
    def on_abandoned(self) -> Callable[[Address | None, int, str], object] | None:
        """Is told of messages that were accepted and then given up: the destination (None for the
        group), how many, and why. Some may have arrived; each of all others did."""
        return self._on_abandoned

    @on_abandoned.setter
    def on_abandoned(self, call: Callable[[Address | None, int, str], object] | None) -> None:
        self._on_abandoned = as_callback("on_abandoned", call)

    # -- While it runs -------------------------------------------------------------------------

    def set_attribute(self, name: str, value: object) -> None:
        """Change a setting: `xmit_interval` of unicast, `NAKACK2.xmit_interval` of a protocol."""
        self.runtime.check_open()
        self.runtime.stack.set_attribute(name, value, self.runtime.now())
        self.runtime.wake()

    def set_consuming(self, consuming: bool) -> int:  # noqa: FBT001 it is the whole message
        """Whether the application takes messages; while it does not, senders wait in the end.
        Returns how many messages, or pieces of them, waited for it."""
        self.runtime.check_open()
        waited = self.runtime.stack.set_consuming(consuming, self.runtime.now())
        self.runtime.wake()
        return waited

    def stats(self) -> dict[str, int | float]:
        """Counters and gauges, by name."""
        return self.runtime.stats()


def _cost(delivery: Delivery) -> int:
    """What a batch that waits takes; empty messages take something, too."""
    return delivery.size + MESSAGE_OVERHEAD * len(delivery)
