"""A running member: its stack, its sockets, its journal, and the clock that all of them use."""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from math import inf
from random import SystemRandom
from secrets import randbits
from typing import TYPE_CHECKING, Any, Final

from xxhash import xxh3_64_intdigest

from stormcast.node.application import ignore
from stormcast.node.core import wire
from stormcast.node.core.errors import UNKEYED, ClosedError, require
from stormcast.node.core.model import Address
from stormcast.node.descriptors import Shares, own_shares
from stormcast.node.figures import Figures, collect_figures
from stormcast.node.keys.key_file import KeyFile
from stormcast.node.refusals import RefusalLines
from stormcast.node.settings import StackSettings
from stormcast.node.settings.transports import UdpConfig
from stormcast.node.stack import Stack
from stormcast.node.stack.lane import LENGTH_COST
from stormcast.node.trace import WALL_VARIABLE
from stormcast.node.trace.journal import Journal, JournalConfig
from stormcast.node.trace.tracer import Tracer
from stormcast.node.transports.base import Transport
from stormcast.node.transports.hosts import HostBook
from stormcast.node.transports.interfaces import Interface, SocketAddress, choose
from stormcast.node.transports.monitors import Monitors
from stormcast.node.transports.tcp import TcpTransport
from stormcast.node.transports.udp import UdpTransport
from stormcast.node.turns import Turns

if TYPE_CHECKING:
    from stormcast.node.keys.seals import Seals

LATENESS: Final = 0.2
"""Seconds by which a turn may be late because other processes have the processor. The bounds that a
member promises allow for it; the rig notes a longer delay as a pause of the member."""
ASK_INTERVAL: Final = 2.0
"""Least seconds between two questions for the address of a peer."""
TELL_INTERVAL: Final = 1.0
"""Least seconds between two answers to frames that were not sealed by a known key."""
_WALL_DIGITS: Final = 19
"""The most digits that the variable with the wall clock may have: a trace has room for no more."""
HEADERS: Final = 64
"""Bytes left for what upper protocols and lengths add to a batch."""


class Runtime:
    """Makes and ends the parts of a member, and answers its transport."""

    def __init__(
        self,
        settings: StackSettings,
        *,
        cluster: str,
        name: str,
        journal: JournalConfig | None = None,
        clock: Callable[[], float] = time.monotonic,
        say: Callable[[str], None] | None = None,
        key_file: str = "",
    ) -> None:
        self.settings = settings
        self.cluster = cluster
        self.name = name
        self.now = clock
        self.say = say or ignore
        self.turns = Turns(clock)
        self.turn = self.turns.turn
        self.wake = self.turns.wake
        self.loop: asyncio.AbstractEventLoop
        self.address: Address
        self.stack: Stack
        self.receive: Callable[[memoryview, float], int]
        self.destinations: Callable[[], tuple[int, ...]]
        """Like `receive`, a method of the stack, bound here because each datagram uses it."""
        self.is_peer: Callable[[int], bool]
        self.transport: Transport
        self.journal: Journal | None = None
        self._journal_config = journal
        self._hosts: HostBook
        self._monitors: Monitors | None = None
        self._asked_at = -inf
        self._told_keys_at = -inf
        self.test_protocols: Mapping[str, Mapping[str, Any]] = {}
        """Test protocols, with their settings, that are in the stack from its first frame."""
        self._is_open = False
        """Whether sockets and journal are open: a little longer than the stack runs."""
        self._figures: Figures = {"runtime.turns": 0}
        """The last figures: those that stay when the member has ended."""
        self._key_file = KeyFile(key_file, self.say) if key_file else None
        self._refusals = RefusalLines(self.say, self.stats)

    # -- Life ----------------------------------------------------------------------------------

    async def start(self) -> None:
        """Bind the sockets, make the stack, and begin to join. Settings that cannot work are
        refused here."""
        self.loop = asyncio.get_running_loop()
        shares = own_shares()
        if self._key_file is not None:
            self._key_file.read()
        config = self.settings.transport_config
        transport: UdpTransport | TcpTransport
        if isinstance(config, UdpConfig):
            transport = UdpTransport(config, self)
        else:
            transport = TcpTransport(config, self, shares)  # type: ignore[arg-type]  # one of the two
        interface = choose(config.bind_addr)
        transport.open(interface)
        self.transport = transport
        try:
            await self._start(interface, shares)
        except BaseException:
            self.turns.is_running = False
            self._is_open = False
            await self._close_parts()
            raise

    async def _start(self, interface: Interface, shares: Shares) -> None:
        transport = self.transport
        _check_multicast(self.settings, transport)
        self.address = Address(randbits(128) | 1, self.name, transport.where)
        cluster = xxh3_64_intdigest(self.cluster.encode()) & 0xFFFFFFFF
        seals = None
        if self._key_file is not None:
            seals = self._key_file.start(cluster, self.address.short, self.loop)
        overhead = seals.overhead if seals is not None else 0
        settings = self.settings = _fitted(self.settings, transport.frame_limit() - overhead)
        self._make_stack(seals)
        discovery = self.stack.group.discovery if self.stack.group is not None else None
        # Other members use the port that was asked for; this one may have found it taken.
        port = settings.transport_config.bind_port or transport.port
        self._hosts = HostBook(discovery, interface.family, port, self.say)
        await self._hosts.open()
        self._refusals.start(self.loop)
        watching = settings.of("FD_SOCK2")
        if watching is not None:
            self._monitors = Monitors(
                watching,
                self.address,
                cluster,
                interface,
                self._on_link,
                shares.watchers,
                seals,
            )
            await self._monitors.open(transport.port)
        transport.start(self.address, cluster, seals)
        self._is_open = True
        self.turns.start(self.stack, transport, self._monitors)

    def _make_stack(self, seals: Seals | None) -> None:
        settings = self.settings
        tracer = self._open_journal(self.address.short)
        self.stack = Stack(
            self.address, self.cluster, settings, xxh3_64_intdigest, tracer, self.now(),
            # Nobody may guess what is drawn: by questions and cookies members prove who they are.
            dice=SystemRandom(), lateness=LATENESS, seals=seals,
        )  # fmt: skip  # what is passed by place stays in one line
        overhead = seals.overhead if seals is not None else 0
        largest = settings.transport_config.largest_frame - overhead
        self.stack.acceptor.limit_messages(largest - HEADERS - LENGTH_COST)
        for test_protocol, given in self.test_protocols.items():
            values = dict(given)
            above = str(values.pop("above", ""))
            self.stack.set_test_protocol(test_protocol, values, self.now(), above)
        self.receive = self.stack.receive
        self.destinations = self.stack.destinations
        self.is_peer = self.stack.is_peer

    def _open_journal(self, short: int) -> Tracer:
        wall_ns = _wall_at_zero()
        if self._journal_config is None:
            return Tracer(short, wall_ns, xxh3_64_intdigest, ignore)
        self.journal = Journal(self._journal_config, f"{self.name}-{short:08x}", xxh3_64_intdigest)
        return self.journal.tracer(short, wall_ns)

    def set_consuming(self, consuming: bool) -> int:  # noqa: FBT001 it is the whole message
        """Say whether the application takes messages; return how many waited."""
        waited = self.stack.set_consuming(consuming, self.now())
        self.wake()
        return waited

    def leave(self) -> None:
        """Begin to leave; `on_left` of its application is called when that is done."""
        if self.is_running:
            self.stack.leave(self.now())
            self.wake()

    async def close(self) -> None:
        """Send the last frames, then close sockets and journal."""
        if not self.is_running:
            return
        try:
            self.turns.stop()
            self._hosts.close()
            await self.transport.drain()
        finally:
            # Notes the last figures.
            self.stats()
            self._is_open = False
            await self._close_parts()

    async def _close_parts(self) -> None:
        self.transport.close()
        self._refusals.close()
        if self._key_file is not None:
            self._key_file.close()
        try:
            if self._monitors is not None:
                await self._monitors.close()
        finally:
            if self.journal is not None:
                self.journal.close()

    @property
    def known_address(self) -> Address | None:
        """The address of this member; None before it is bound."""
        return getattr(self, "address", None)

    @property
    def is_running(self) -> bool:
        return self.turns.is_running

    # -- The transport's side --------------------------------------------------------------------

    def on_connection_lost(self, peer: int) -> None:
        """Note that a connection ended or was replaced: frames in it may be lost."""
        if self.is_running:
            self.stack.on_connection_lost(peer, self.now())
            self.wake()

    def on_refused(self, at: SocketAddress, kind: int, size: int) -> None:
        """Tell one who sends without the key of this member that there is one: with no more bytes
        than it sent, as its address is not proved, and not as an answer to the same news."""
        transport = self.transport
        if self._key_file is None or not isinstance(transport, UdpTransport):
            return
        if kind == wire.KEYS or self.stack.refusal not in UNKEYED:
            return
        now = self.now()
        if now >= self._told_keys_at + TELL_INTERVAL:
            answer = self.stack.tell_keys()
            if len(answer) <= size:
                self._told_keys_at = now
                transport.answer(at, answer)

    def _on_link(self, peer: int, is_up: bool) -> None:  # noqa: FBT001 the two ends of a link
        if self.is_running:
            self.stack.on_link(peer, is_up, self.now())
            self.turn()

    def hosts(self) -> Iterable[SocketAddress]:
        """Return the addresses at which discovery expects members."""
        return self._hosts.hosts(self.now(), self.loop)

    def want_address(self, peer: int) -> None:
        """Ask who is there, at most once in ASK_INTERVAL: a frame was dropped because it is not
        known where its peer is."""
        now = self.now()
        if now >= self._asked_at + ASK_INTERVAL:
            self._asked_at = now
            self.stack.ask_around(now)
            self.wake()

    # -- For people ------------------------------------------------------------------------------

    def describe(self) -> list[str]:
        """Return what is bound, and the journal's directory, as lines of text. Before a member is
        bound, and when it has ended, nothing is."""
        lines = self.transport.describe() if self._is_open else []
        if self._is_open and self._monitors is not None:
            lines.append(f"FD_SOCK2 listens on port {self._monitors.port}")
        if self.journal is not None:
            lines.append(f"journal {self.journal.directory}")
        if self._key_file is not None and self.known_address is not None:
            lines.append(self._key_file.describe())
        return lines

    def stats(self) -> Figures:
        """Return counters and gauges by name; of a member that has ended, the last ones."""
        if self._is_open:
            self._figures = collect_figures(
                self.turns.number, self.transport, self._monitors, self.stack, self.journal
            )
        return dict(self._figures)

    def check_open(self) -> None:
        """Raise ClosedError before this member runs, and once it has ended."""
        if not self.is_running:
            state = "not connected yet" if self.known_address is None else "closed"
            raise ClosedError(f"{self.name} is {state}")


def _check_multicast(settings: StackSettings, transport: Transport) -> None:
    """Refuse settings that need multicast where no multicast leaves: the member would find
    nobody."""
    if not transport.no_multicast:
        return
    require(
        settings.of("PING") is None,
        f"PING finds members by multicast, and nobody is reached by it here: "
        f"{transport.no_multicast}, bind another address, or use STATIC or DNS_PING",
    )
    require(
        getattr(settings.transport_config, "ip_mcast", "") != "always",
        f"ip_mcast is always, and nobody is reached by multicast here: {transport.no_multicast}, "
        "bind another address, or write auto",
    )


def _fitted(settings: StackSettings, frame: int) -> StackSettings:
    """Return the settings with batches as large as a frame of the transport has room for, and
    pieces (FRAG) that are no larger."""
    room = frame - HEADERS
    layers: list[tuple[str, Any]] = []
    for name, config in settings.layers:
        fitted = (
            replace(config, frag_size=min(config.frag_size, room)) if name == "FRAG" else config
        )
        layers.append((name, fitted))
    return replace(settings, max_frame=room, layers=tuple(layers))


def _wall_at_zero() -> int:
    """Return the wall clock, in nanoseconds, at the zero of the monotonic clock.

    All members of one machine share the monotonic clock, so their traces can be compared. But a
    reader of traces takes another zero for another machine, and the wall clock may be set between
    the starts of two members: so a rig gives all of them the same value.
    """
    told = os.environ.get(WALL_VARIABLE, "")
    if told.isdecimal() and len(told) <= _WALL_DIGITS:
        return int(told)
    return max(0, time.time_ns() - time.monotonic_ns())
