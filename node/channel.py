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
from collections.abc import AsyncIterator, Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from types import TracebackType
from typing import Self

from stormcast.node.callbacks import Callback, CallbackAttribute, complain
from stormcast.node.core.errors import ClosedError, NodeError, require, require_type
from stormcast.node.core.model import Address, Delivery, Payload, View
from stormcast.node.core.names import MAX_NAME, as_name, check_name
from stormcast.node.core.wire import GROUP
from stormcast.node.destinations import Destination, Destinations
from stormcast.node.inbox import Inbox
from stormcast.node.known_members import KnownMembers
from stormcast.node.notices import Notices
from stormcast.node.runtime import Runtime
from stormcast.node.settings import StackSettings, load_settings
from stormcast.node.stack.lane import MESSAGE_OVERHEAD
from stormcast.node.trace.journal import JournalConfig
from stormcast.node.waiting_senders import WaitingSenders


class LeaveTimeoutError(NodeError):
    """The group did not confirm that this member is out; it has closed all the same."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ChannelConfig:
    """The name of a member, and the settings of its parts."""

    settings: StackSettings = field(default_factory=lambda: load_settings("udp", "fast"))
    """The stack, as `stormcast.node.settings.load_settings` makes it."""

    cluster: str = "stormcast"
    """Only members that give the same name find each other: letters, digits, dots and dashes."""

    name: str = ""
    """The member's name, for people: letters, digits, dots and dashes. Empty: host name and process
    id."""

    journal: JournalConfig | None = None
    """The settings of the journal that holds the member's trace; None: no trace is kept."""

    on_notice: Callable[[str], None] | None = None
    """Called with a line for the person who runs the member, once per change."""

    key_file: str | Path = ""
    """File with the keys of the cluster, as `stormcast key new` makes it: frames are sealed, and
    members without the key are not heard. Empty: nothing is sealed."""

    def __post_init__(self) -> None:
        require_type("settings", self.settings, StackSettings, "what load_settings(…) returns")
        for name in ("cluster", "name"):
            require_type(name, getattr(self, name), str, "a str")
        require_type("key_file", self.key_file, (str, Path), "the path of a file, a str")
        if self.journal is not None:
            require_type("journal", self.journal, JournalConfig, "a JournalConfig, or None")
        notice: object = self.on_notice
        require(
            notice is None or callable(notice),
            f"on_notice is of type {type(notice).__name__}: write a function, or None",
        )
        check_name("cluster", self.cluster)
        if self.name:
            check_name("name", self.name)


class Publication:
    """One destination, looked up once: for an application that sends there often."""

    __slots__ = ("_channel", "_lane", "_large_from", "dest")

    def __init__(self, channel: Channel, dest: int) -> None:
        self.dest = dest
        self._channel = channel
        self._lane = channel.runtime.stack.outbox.lane(dest)
        self._large_from = channel.runtime.stack.acceptor.large_from

    def offer(self, payload: Payload, flags: int = 0) -> bool:
        """Do what `Channel.try_send` does, at half the cost (bench/micro/sending.py)."""
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
        # A lane ends with its connection; then this message has opened another lane.
        self._lane = channel.runtime.stack.outbox.lane(self.dest)
        return is_taken


def _default_name() -> str:
    """Return a name of host and process; a host's name may be as long as a member's alone."""
    ending = f"-{os.getpid()}"
    return as_name(socket.gethostname(), MAX_NAME - len(ending)) + ending


class Channel:
    """One member."""

    on_view: CallbackAttribute[[View]] = CallbackAttribute("_on_view", "Is called with each view.")
    on_batch: CallbackAttribute[[Delivery]] = CallbackAttribute(
        "_inbox.on_batch", "Is called with each batch: the fast way."
    )
    on_message: CallbackAttribute[[Payload, Address]] = CallbackAttribute(
        "_inbox.on_message", "Is called with each message and its sender."
    )
    on_abandoned: CallbackAttribute[[Address | None, int, str]] = CallbackAttribute(
        "_notices.on_abandoned",
        """Is told of messages that were accepted and then given up: the destination (None for the
        group), how many, and why. Some may have arrived; each of all others did.""",
    )

    def __init__(self, config: ChannelConfig | None = None) -> None:
        config = ChannelConfig() if config is None else config
        require_type("config", config, ChannelConfig, "a ChannelConfig")
        self.config = config
        self.name = config.name or _default_name()
        self.state = "new"
        """new, joining, connected, leaving, closed."""
        tell_loop = partial(complain, self.name)
        self._on_view: Callback[[View]] = Callback("on_view", tell_loop)
        self._members = KnownMembers()
        self._notices = Notices(self.name, config.on_notice, self._members, tell_loop)
        self.runtime = Runtime(
            config.settings,
            cluster=config.cluster,
            name=self.name,
            journal=config.journal,
            say=self._notices.say,
            key_file=str(config.key_file),
        )
        self._is_joined = asyncio.Event()
        self._is_out = asyncio.Event()
        self._ending: asyncio.Task[None] | None = None
        """The task that closes everything, once: callers that wait for it may be cancelled."""
        self._is_over = asyncio.Event()
        self._waiting = WaitingSenders(self.runtime)
        self._destinations = Destinations(self.runtime, self._members)
        self._find = self._destinations.find
        """Kept here for messages to an address: see `_try_send`."""
        self._turns = self.runtime.turns
        application = self._turns.application
        self._inbox = Inbox(
            application,
            self._members,
            tell_loop,
            self.runtime.set_consuming,
            self._notices.warn,
        )
        self._try_send = self._refuse
        """The stack's `try_send` while it runs: each lookup on this path is paid per message."""
        application.on_view = self._take_view
        application.on_abandoned = self._notices.tell_abandoned
        application.on_left = self._is_out.set

    # -- Life ----------------------------------------------------------------------------------

    async def connect(self) -> None:
        """Join the group, and return with the first view; without a group, return when bound."""
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
            # `close` was called during `start`, and could not close what did not exist yet.
            await self.runtime.close()
        if self.state != "joining":
            raise ClosedError(f"{self.name} was closed before it had joined")
        self.state = "connected"

    async def leave(self, timeout: float = 10.0) -> None:  # noqa: ASYNC109 the bound is part of the promise
        """Let what was sent leave first, then have the group agree to a view without this member.

        Nothing more can be sent meanwhile. LeaveTimeoutError if that took longer than `timeout`;
        the channel is closed in any case. Whoever calls this while it leaves waits for its end.
        """
        require_type("timeout", timeout, (int, float), "a number of seconds, such as 2.5")
        require(timeout >= 0, f"timeout is {timeout}: write 0 or more seconds")
        if self.state == "new" or (self.state == "joining" and not self.runtime.is_running):
            await self.close()
        if self.state not in ("joining", "connected"):
            await self._is_over.wait()
            return
        self.state = "leaving"
        self._try_send = self._refuse
        self._waiting.fail(ClosedError(f"{self.name} is leaving"))
        self._is_joined.set()
        self._inbox.take_all()
        try:
            async with asyncio.timeout(timeout):
                self.runtime.leave()
                await self._is_out.wait()
        except TimeoutError:
            raise LeaveTimeoutError(
                f"{self.name} has left without an answer of its group after {timeout:g} s"
            ) from None
        finally:
            await self.close()

    async def close(self) -> None:
        """Close without leaving the group: send the last frames, and wait for connections only.
        Where the caller is cancelled, the channel is closed all the same."""
        if self._ending is None:
            self.state = "closed"
            self._try_send = self._refuse
            self._ending = asyncio.create_task(self._end())
        await asyncio.shield(self._ending)

    async def _end(self) -> None:
        if self.runtime.is_running:
            self._inbox.take_all()
        try:
            await self.runtime.close()
        finally:
            self._inbox.close()
            self._is_joined.set()
            self._is_out.set()
            self._waiting.fail(ClosedError(f"{self.name} is closed"))
            self._is_over.set()

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
        """The address of this member: known once `connect` has bound it, new with each channel."""
        address = self.runtime.known_address
        if address is None:
            raise ClosedError(f"{self.name} has no address yet: connect first")
        return address

    @property
    def view(self) -> View | None:
        """The current view of the group; None before the first, and when closed."""
        return self.runtime.stack.view if self.runtime.is_running else None

    def member(self, name: str) -> Address:
        """Look up a known member by its name; of two with one name, the one that came last."""
        return self._members.named(name)

    # -- Sending -------------------------------------------------------------------------------

    def try_send(self, dest: Destination, payload: Payload, flags: int = 0) -> bool:
        """Accept a message, or return False while the outbox for `dest` is full.

        The stack keeps the payload from here on: do not change the buffer under a memoryview.
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

    def meet(self, dest: Address) -> None:
        """Make a member known that no view has named: its address says where it is."""
        self._destinations.meet(dest)

    def _refuse(self, dest: int, payload: Payload, flags: int = 0) -> bool:
        raise ClosedError(f"{self.name} is {self.state}: nothing can be sent")

    def publication(self, dest: Destination) -> Publication:
        """Return a `Publication`, for many messages to one destination."""
        self.runtime.check_open()
        if isinstance(dest, Address):
            self.meet(dest)
        return Publication(self, self._find(dest))

    async def send(self, dest: Destination, payload: Payload, flags: int = 0) -> None:
        """Put a message into the outbox, waiting while it is full."""
        while not self.try_send(dest, payload, flags):
            await self._waiting.wait(self._find(dest))

    async def send_many(
        self, dest: Destination, payloads: Sequence[Payload], flags: int = 0
    ) -> None:
        """Put several messages into the outbox, in order, waiting while it is full."""
        for payload in payloads:
            if not self.try_send(dest, payload, flags):
                await self.send(dest, payload, flags)

    # -- Receiving -----------------------------------------------------------------------------

    def sender(self, delivery: Delivery) -> Address:
        """Return the sender of a batch; an unknown one has its short id for a name."""
        return self._members.of(delivery.source)

    def __aiter__(self) -> AsyncIterator[Delivery]:
        return self

    async def __anext__(self) -> Delivery:
        """Return the next batch; stop when the channel is closed and every batch was taken."""
        delivery = await self._inbox.next()
        if delivery is None:
            raise StopAsyncIteration
        return delivery

    def _take_view(self, view: View) -> None:
        self._members.on_view(view)
        self._is_joined.set()
        self._on_view.tell(view)

    # -- While it runs -------------------------------------------------------------------------

    def set_attribute(self, name: str, value: object) -> None:
        """Change a setting: `xmit_interval` of unicast, `NAKACK2.xmit_interval` of a protocol."""
        self.runtime.check_open()
        require_type("name", name, str, "the name of a setting, a str")
        self.runtime.stack.set_attribute(name, value, self.runtime.now())
        self.runtime.wake()

    def set_consuming(self, consuming: bool) -> int:  # noqa: FBT001 it is the whole message
        """Say whether the application takes messages; while it does not, senders wait sooner or
        later. Return how many messages, or pieces of them, waited for it."""
        self.runtime.check_open()
        return self._inbox.set_consuming(consuming)

    def stats(self) -> dict[str, int | float]:
        """Return counters and gauges by name."""
        return self.runtime.stats()
