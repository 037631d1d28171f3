"""One member that runs: its stack, its sockets, its journal. The only place that reads a clock.

Everything happens in turns, on one thread. A turn begins when something arrived, a deadline came,
or the application sent; it ends the stack's turn, hands frames to the transport and messages to
the application, and sets one timer.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterable
from dataclasses import replace
from math import inf
from secrets import randbits
from typing import Any, Final

from xxhash import xxh3_64_intdigest

from stormcast.node.core.errors import ClosedError
from stormcast.node.core.model import Address, Delivery, View
from stormcast.node.protocols.discovery import Discovery
from stormcast.node.protocols.port import Abandoned
from stormcast.node.settings import StackSettings
from stormcast.node.settings.transports import UdpConfig
from stormcast.node.stack import News, Stack
from stormcast.node.stack.lane import LENGTH_COST
from stormcast.node.trace.journal import Journal, JournalConfig
from stormcast.node.trace.tracer import Tracer
from stormcast.node.transports.base import Transport
from stormcast.node.transports.hosts import HostBook
from stormcast.node.transports.interfaces import Interface, SocketAddress, choose
from stormcast.node.transports.monitors import Monitors
from stormcast.node.transports.places import MAX_LEARNED
from stormcast.node.transports.tcp import TcpTransport
from stormcast.node.transports.udp import UdpTransport

TURNS_AT_ONCE: Final = 4
"""Turns in a row for an application that answers what it gets, before others have theirs."""
LONGEST_DRAIN: Final = 0.05
"""Seconds for which timers may wait while the sockets are never empty."""
LATENESS: Final = 0.2
"""Seconds by which a turn may be late and nobody says so, because others have the processor: what a
member promises allows for it. A rig notes what is longer, as a pause of the member."""
AFTER_A_BUG: Final = 0.1
ASK_INTERVAL: Final = 2.0
"""Seconds between two questions where somebody is."""
HEADERS: Final = 64
"""Bytes left for what upper protocols and lengths add to a batch."""


class Runtime:
    """Drives one stack."""

    def __init__(
        self,
        settings: StackSettings,
        *,
        cluster: str,
        name: str,
        journal: JournalConfig | None = None,
        clock: Callable[[], float] = time.monotonic,
        say: Callable[[str], None] | None = None,
    ) -> None:
        self.settings = settings
        self.cluster = cluster
        self.name = name
        self.now = clock
        self.say = say or _ignore
        self.loop: asyncio.AbstractEventLoop
        self.address: Address
        self.stack: Stack
        self.transport: Transport
        self.journal: Journal | None = None
        self.on_deliveries: Callable[[list[Delivery]], None] = _ignore
        self.on_view: Callable[[View], None] = _ignore
        self.on_left: Callable[..., None] = _ignore
        self.on_abandoned: Callable[[Abandoned], None] = _ignore
        self.after_turn: list[Callable[[], None]] = []
        """Called once at the end of the next turn."""
        self.turns = 0
        self._journal_config = journal
        self._hosts: HostBook
        self._monitors: Monitors | None = None
        self._members: dict[int, Address] = {}
        """Where to find whom: everybody that a view named."""
        self._timer: asyncio.TimerHandle | None = None
        self._timer_at = inf
        self._due = inf
        self.is_wanted = False
        """Whether a turn will come anyway."""
        self._in_turn = False
        self._is_running = False
        self._has_left = False
        self._asked_at = -inf

    # -- Life ----------------------------------------------------------------------------------

    async def start(self) -> None:
        """Bind, say who this is, and begin to join. What cannot work is refused here."""
        self.loop = asyncio.get_running_loop()
        config = self.settings.transport_config
        transport: UdpTransport | TcpTransport
        if isinstance(config, UdpConfig):
            transport = UdpTransport(config, self)
        else:
            transport = TcpTransport(config, self)  # type: ignore[arg-type]  # one of the two
        interface = choose(config.bind_addr)
        transport.open(interface)
        self.transport = transport
        try:
            await self._start(interface)
        except BaseException:
            self._is_running = False
            transport.close()
            if self._monitors is not None:
                await self._monitors.close()
            if self.journal is not None:
                self.journal.close()
            raise

    async def _start(self, interface: Interface) -> None:
        transport = self.transport
        settings = _fitted(self.settings, transport.frame_limit())
        self.settings = settings
        self.address = Address(randbits(128) | 1, self.name, transport.where)
        short = self.address.short
        tracer = self._open_journal(short)
        now = self.now()
        self.stack = Stack(
            self.address, self.cluster, settings, xxh3_64_intdigest, tracer, now, lateness=LATENESS
        )
        largest = settings.transport_config.largest_frame
        self.stack.acceptor.limit_messages(largest - HEADERS - LENGTH_COST)
        cluster = xxh3_64_intdigest(self.cluster.encode()) & 0xFFFFFFFF
        discovery: Discovery | None = None
        if self.stack.group is not None:
            discovery = self.stack.group.discovery
        # Others are bound as this one was meant to be; it may have found its first port taken.
        port = settings.transport_config.bind_port or transport.port
        self._hosts = HostBook(discovery, interface.family, port, self.say)
        await self._hosts.open()
        watching = settings.of("FD_SOCK2")
        if watching is not None:
            self._monitors = Monitors(watching, self.address, cluster, interface, self._on_link)
            await self._monitors.open(transport.port)
        transport.start(self.address, cluster)
        self._is_running = True
        self.stack.start(now)
        self.turn()

    def _open_journal(self, short: int) -> Tracer:
        # All members of one machine share the monotonic clock, and so their traces can be laid
        # side by side; the wall clock at its zero is for people.
        wall_ns = max(0, time.time_ns() - time.monotonic_ns())
        if self._journal_config is None:
            return Tracer(short, wall_ns, xxh3_64_intdigest, _ignore)
        self.journal = Journal(self._journal_config, f"{self.name}-{short:08x}", xxh3_64_intdigest)
        return self.journal.tracer(short, wall_ns)

    def leave(self) -> None:
        """Begin to leave; `on_left` says when that is done."""
        if self._is_running:
            self.stack.leave(self.now())
            self.wake()

    async def close(self) -> None:
        """End: last words leave, then sockets and journal close."""
        if not self._is_running:
            return
        self._is_running = False
        frames = self.stack.stop(self.now())
        news = self.stack.take_news()
        self._locate(news)
        self.transport.send(frames)
        # The end of a receive window hands up what waited in it, and it was acked.
        deliveries = self.stack.take_deliveries()
        if deliveries:
            self.on_deliveries(deliveries)
        self._tell_abandoned(news)
        if self._timer is not None:
            self._timer.cancel()
        self._hosts.close()
        await self.transport.drain()
        self.transport.close()
        if self._monitors is not None:
            await self._monitors.close()
        if self.journal is not None:
            self.journal.close()

    @property
    def known_address(self) -> Address | None:
        """Who this member is; None before it is bound."""
        return getattr(self, "address", None)

    @property
    def is_running(self) -> bool:
        return self._is_running

    # -- Turns ---------------------------------------------------------------------------------

    def wake(self) -> None:
        """Have a turn soon: something was put into the stack."""
        if not self.is_wanted:
            self.is_wanted = True
            if not self._in_turn and self._is_running:
                self.loop.call_soon(self.turn)

    def turn(self, *, has_more: bool = False) -> None:
        """Let everything that came in since the last turn take effect.

        While more has arrived than was taken yet, timers wait, for a while: they would ask for
        what is there.
        """
        if self._in_turn:
            self.is_wanted = True
            return
        if not self._is_running:
            return
        self._in_turn = True
        try:
            for _ in range(TURNS_AT_ONCE):
                self.is_wanted = False
                self._one_turn(LONGEST_DRAIN if has_more else 0.0)
                if not self.is_wanted:
                    break
        except BaseException:
            # A bug, which whoever runs the loop hears of. What else waits must not stand still.
            self.is_wanted = False
            self.loop.call_later(AFTER_A_BUG, self.turn)
            raise
        finally:
            self._in_turn = False
        if self.is_wanted:
            self.loop.call_soon(self.turn)
        elif self._due < self._timer_at:
            self._arm()

    def _one_turn(self, patience: float) -> None:
        stack = self.stack
        transport = self.transport
        now = self.now()
        self.turns += 1
        if self._due + patience <= now:
            stack.tick(now)
            patience = 0.0
        stack.is_held = transport.room.is_full
        # Before the turn ends, so that an answer leaves in it.
        deliveries = stack.take_deliveries()
        if deliveries:
            self.on_deliveries(deliveries)
            self.is_wanted = False
        frames = stack.end_turn(now)
        news = stack.take_news() if stack.has_news() else None
        if news is not None:
            self._locate(news)
        if frames:
            # Before the transport forgets who has left: the answer to a leave is among them.
            transport.send(frames)
        if news is not None:
            self._act_on(news)
        # Own messages, which are handed over as they leave: after the view that they belong to.
        deliveries = stack.take_deliveries()
        if deliveries:
            self.on_deliveries(deliveries)
        if self.after_turn:
            called, self.after_turn = self.after_turn, []
            for call in called:
                call()
        self._due = due = stack.next_deadline()
        if due <= now and not patience:
            self.is_wanted = True

    def _act_on(self, news: News) -> None:
        """Do what a group's stack says besides frames and messages."""
        if self._monitors is not None:
            for peer, is_wanted in news.links:
                self._monitors.change(self._members.get(peer, peer), is_wanted=is_wanted)
        for view in news.views:
            self._members = {member.short: member for member in view.members}
            self.transport.on_view(view.members)
            self.on_view(view)
        self._tell_abandoned(news)
        if self.stack.has_left and not self._has_left:
            self._has_left = True
            self.on_left()

    def _tell_abandoned(self, news: News) -> None:
        for one in news.abandoned:
            self.on_abandoned(one)

    def _locate(self, news: News) -> None:
        for address in news.located:
            if len(self._members) < MAX_LEARNED:
                self._members.setdefault(address.short, address)
            self.transport.locate(address)

    def _arm(self) -> None:
        """Set the one timer; one that comes too early sets itself again."""
        if self._timer is not None:
            self._timer.cancel()
        self._timer_at = self._due
        delay = max(0.0, self._due - self.now())
        self._timer = self.loop.call_later(delay, self._on_timer)

    def _on_timer(self) -> None:
        self._timer = None
        self._timer_at = inf
        if self._due <= self.now():
            # What has arrived may be what a timer would ask for.
            self.transport.poll()
        elif self._due < inf:
            self._arm()

    # -- The transport's side --------------------------------------------------------------------

    def receive(self, datagram: memoryview, now: float, /) -> int:
        """Take the frames of a datagram."""
        return self.stack.receive(datagram, now)

    def on_connection_lost(self, peer: int) -> None:
        """A connection ended, or was replaced: what it held may be lost."""
        if self._is_running:
            self.stack.on_connection_lost(peer, self.now())
            self.wake()

    def _on_link(self, peer: int, is_up: bool) -> None:  # noqa: FBT001 the two ends of a link
        if self._is_running:
            self.stack.on_link(peer, is_up, self.now())
            self.turn()

    def hosts(self) -> Iterable[SocketAddress]:
        """Where discovery says that members may be."""
        return self._hosts.hosts(self.now(), self.loop)

    def destinations(self) -> tuple[int, ...]:
        """Who is meant by the group."""
        return self.stack.destinations()

    def want_address(self, peer: int) -> None:
        """A frame had to be thrown away, because nobody said where a peer is: ask, now and then."""
        now = self.now()
        if now >= self._asked_at + ASK_INTERVAL:
            self._asked_at = now
            self.stack.ask_around(now)
            self.wake()

    # -- For people ------------------------------------------------------------------------------

    def describe(self) -> list[str]:
        """What is bound, and how."""
        lines = self.transport.describe()
        if self._monitors is not None:
            lines.append(f"FD_SOCK2 listens on port {self._monitors.port}")
        if self.journal is not None:
            lines.append(f"journal {self.journal.directory}")
        return lines

    def stats(self) -> dict[str, int | float]:
        """Counters and gauges, by name."""
        figures: dict[str, int | float] = {"runtime.turns": self.turns}
        if not self._is_running:
            return figures
        figures |= {f"transport.{name}": value for name, value in self.transport.stats().items()}
        figures |= {
            f"stack.refused.{why}": number for why, number in self.stack.record.refused.items()
        }
        given_up = self.stack.outbox.abandoned.items()
        figures |= {f"stack.abandoned.{why}": number for why, number in given_up}
        if self.journal is not None:
            figures |= {f"journal.{name}": value for name, value in self.journal.stats().items()}
        return figures

    def check_open(self) -> None:
        """ClosedError once this member has ended."""
        if not self._is_running:
            state = "not connected yet" if self.known_address is None else "closed"
            raise ClosedError(f"{self.name} is {state}")


def _ignore(*_what: object) -> None:
    """Nobody listens."""


def _fitted(settings: StackSettings, frame: int) -> StackSettings:
    """Settings whose batches fill what the transport carries whole, and fit it."""
    room = frame - HEADERS
    layers: list[tuple[str, Any]] = []
    for name, config in settings.layers:
        fitted = (
            replace(config, frag_size=min(config.frag_size, room)) if name == "FRAG" else config
        )
        layers.append((name, fitted))
    return replace(settings, max_frame=room, layers=tuple(layers))
