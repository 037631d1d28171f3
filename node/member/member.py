"""The member process: a channel, its workload, its control endpoint, and how it ends.

One thread, one event loop. The runtime reads the clock; this module only waits for signals, and for
commands.
"""

from __future__ import annotations

import asyncio
import gc
import sys
import traceback
from collections.abc import Callable
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Final

from stormcast.exits import Exit
from stormcast.machine import in_words, is_exhausted
from stormcast.node.channel import Channel, ChannelConfig, LeaveTimeoutError
from stormcast.node.core.errors import ConfigError, NodeError, require
from stormcast.node.core.model import Address, View
from stormcast.node.core.names import printable
from stormcast.node.member.ending import Ending
from stormcast.node.member.hints import Hints
from stormcast.node.member.loads import Load
from stormcast.node.member.settings import MemberSettings
from stormcast.node.member.workload import Driver, Receiver

if TYPE_CHECKING:
    from stormcast.node.control.server import Control

LEFT: Final = 0
CLOSE_SECONDS: Final = 1.0
"""For the last frames of a member that is told twice to leave."""
_SHOWN: Final = 16
"""Members that one line names at most."""


class Member:
    """One member, from its start to its end."""

    def __init__(self, settings: MemberSettings, say: Callable[[str], None] | None = None) -> None:
        self.settings = settings
        self.channel = Channel(
            ChannelConfig(
                cluster=settings.cluster,
                name=settings.name,
                settings=settings.stack,
                journal=settings.journal,
                on_notice=self.say,
                key_file=settings.key_file,
            )
        )
        self.channel.runtime.test_protocols = settings.test_protocols
        self.name = self.channel.name
        self.bound: list[str] = []
        """Lines that say what is bound."""
        self.driver = Driver(self.channel, settings.seed, self.channel.runtime.now)
        self.receiver = Receiver(settings.seed, settings.verify)
        self.channel.on_batch = self.receiver.on_batch
        self.channel.on_view = self._on_view
        self._say = say or self._print
        self._view: View | None = None
        self._ending = Ending(self.say, self._tell_failure)

    # -- For people ------------------------------------------------------------------------------

    def say(self, line: str) -> None:
        """Print a line about something that changed."""
        self._say(printable(f"{self.name}: {line}"))

    @staticmethod
    def _print(line: str) -> None:
        # The reader of stderr may be gone; the member goes on.
        with suppress(OSError, ValueError):
            print(line, file=sys.stderr, flush=True)

    @property
    def labels(self) -> dict[str, str]:
        """The names and values that identify this member in metrics."""
        me, stack = self.me, self.settings.stack
        return {
            "member": self.name,
            "short": f"{me.short:08x}" if me is not None else "",
            "cluster": self.settings.cluster,
            "stack": stack.name,
            "timing": stack.timing.name,
        }

    @property
    def is_connected(self) -> bool:
        """Whether the member is in its group, or bound in a stack without a group."""
        return self.channel.state == "connected"

    @property
    def me(self) -> Address | None:
        """The member's address, while it runs."""
        return self.channel.address if self.channel.runtime.is_running else None

    @property
    def view(self) -> View | None:
        """The view that the member holds."""
        return self.channel.view if self.channel.runtime.is_running else None

    def received_from(self) -> dict[str, int]:
        """Return the number of messages delivered, by their sender's name."""
        return self.receiver.by_name()

    def stats(self) -> dict[str, int | float]:
        """Return counters and gauges by name."""
        return self.channel.stats() | self.driver.stats() | self.receiver.stats()

    # -- Life ----------------------------------------------------------------------------------

    async def run(self) -> int:
        """Join, stay until told to leave, leave; return the exit code. Settings that cannot work
        raise an error before the member joins."""
        self._ending.listen(asyncio.get_running_loop())
        self._check_loads(self.settings.workload)
        controls: list[Control] = []
        if self.settings.control is not None or self.settings.probes is not None:
            # Imported only now: a member without an endpoint pays no memory for it.
            from stormcast.node.member.listeners import open_listeners  # noqa: PLC0415 not every member has one

            controls = await open_listeners(self, self._tell_failure)
        try:
            tune_collector()
            if not await self._join():
                return self._ending.code(LEFT)
            self.add_loads(self.settings.workload)
            watching = asyncio.ensure_future(Hints(self).watch())
            with suppress(TimeoutError):
                async with asyncio.timeout(self.settings.run_for or None):
                    await self._ending.is_told.wait()
            watching.cancel()
            return self._ending.code(await self._leave())
        finally:
            for control in controls:
                await control.close()

    async def _join(self) -> bool:
        """Join. Return whether the member has joined: not if it was told to end before."""
        joining = asyncio.ensure_future(self.channel.connect())
        announcing = asyncio.ensure_future(self._announce())
        told = asyncio.ensure_future(self._ending.is_told.wait())
        try:
            await asyncio.wait((joining, told), return_when=asyncio.FIRST_COMPLETED)
            if not joining.done():
                self.say("is told to end before it has joined")
                joining.cancel()
                await asyncio.wait((joining,), timeout=CLOSE_SECONDS)
                return False
            joining.result()
        finally:
            told.cancel()
            announcing.cancel()
        self._announce_bound()
        self.say("connected")
        return True

    async def _announce(self) -> None:
        """Say what is bound as soon as it is, however long joining takes."""
        while not self.channel.runtime.is_running:  # noqa: ASYNC110 it has no event for this
            await asyncio.sleep(0.01)
        self._announce_bound()
        self.say("joining" if self.channel.runtime.stack.group is not None else "starting")

    def _announce_bound(self) -> None:
        lines = self.channel.runtime.describe()
        if not set(lines) <= set(self.bound):
            self.bound = lines + [line for line in self.bound if line not in lines]
            for line in self.bound:
                self.say(line)

    async def _leave(self) -> int:
        """Leave within `leave_timeout`, or end at once if told again; return the exit code."""
        if self._ending.crash is not None:
            await self._close()
            return Exit.UNKNOWN
        self.say("leaving")
        leave = asyncio.ensure_future(self._leave_in_order())
        self._ending.cancel_when_told_again(leave)
        try:
            await leave
        except LeaveTimeoutError as error:
            self.say(str(error))
            return Exit.UNANSWERED
        except asyncio.CancelledError:
            await self._close()
            return Exit.UNKNOWN
        self.say("left")
        return LEFT

    async def _leave_in_order(self) -> None:
        await self.driver.close()
        await self.channel.leave(self.settings.leave_timeout)

    async def _close(self) -> None:
        with suppress(TimeoutError, NodeError, OSError):
            async with asyncio.timeout(CLOSE_SECONDS):
                await self.channel.close()

    # -- What it is told -------------------------------------------------------------------------

    def leave(self) -> None:
        """Begin to leave."""
        self._ending.is_told.set()

    def set_peers(self, peers: tuple[Address, ...]) -> None:
        """Name the other members, in a stack without a group."""
        stack = self.settings.stack
        require(
            not stack.has_group,
            f"members of stack {stack.name} find each other; only without a group they are told",
        )
        for peer in peers:
            self.channel.meet(peer)
        self.receiver.meet(peers)
        self.driver.set_peers(peers)
        self.say(f"told of {len(peers)}: {_named(peers)}")

    def add_loads(self, loads: tuple[Load, ...]) -> None:
        """Begin to send these loads."""
        self._check_loads(loads)
        self.driver.add(loads)
        self.driver.start()

    def _check_loads(self, loads: tuple[Load, ...]) -> None:
        stack = self.settings.stack
        require(
            stack.has_group or all(load.do == "unicast" for load in loads),
            f"workload: stack {stack.name} forms no group to multicast to; use unicast, or a stack "
            "with GMS",
        )

    def _on_view(self, view: View) -> None:
        before, self._view = self._view, view
        self.receiver.on_view(view)
        parts = [f"view {view.id} of {len(view.members)}: {_named(view.members)}"]
        if before is not None:
            for word, members in (("joined", view.joined(before)), ("left", view.left(before))):
                if members:
                    parts.append(f"{word}: {_named(members)}")
        self.say("; ".join(parts))

    def _tell_failure(self, error: Exception) -> None:
        if is_exhausted(error):
            # No traceback would lead to a bug.
            self._say(in_words(error))
            return
        self._say("".join(traceback.format_exception(error)).rstrip())


def _named(members: tuple[Any, ...]) -> str:
    shown = " ".join(map(str, members[:_SHOWN]))
    return f"{shown} and {len(members) - _SHOWN} more" if len(members) > _SHOWN else shown


def tune_collector() -> None:
    """Make the garbage collector run rarely, and skip the objects that exist already.

    Batches hold no cycles, so reference counts free them; but by default every 700 new objects
    start a search, and every hundredth search walks all objects. Modules and settings live as long
    as the process.
    """
    gc.collect()
    gc.freeze()
    gc.set_threshold(50_000, 20, 100)


def run_member(settings: MemberSettings) -> int:
    """Run one member in this process; return its exit code."""

    async def run() -> int:
        return await Member(settings).run()

    with asyncio.Runner(loop_factory=_loop_factory(settings.loop)) as runner:
        return runner.run(run())


def _loop_factory(name: str) -> Callable[[], asyncio.AbstractEventLoop] | None:
    if name != "uvloop":
        return None
    try:
        import uvloop  # noqa: PLC0415 only who asks for it needs it
    except ImportError:
        raise ConfigError("loop is uvloop, and that is not installed: pip install uvloop") from None
    factory: Callable[[], asyncio.AbstractEventLoop] = uvloop.new_event_loop
    return factory
