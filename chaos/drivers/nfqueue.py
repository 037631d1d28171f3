"""Delays, copies, flipped bits and rules: packets wait in a queue of the kernel until it is said
here what becomes of each.

Packets stay in the kernel; what waits here is but their numbers, and the moment at which each is
let go. So a delayed packet goes on exactly as it came, whatever it is. A copy is put into the
network of the member by a raw socket. All sites of an agent share one loop and one heap.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Mapping, Sequence
from itertools import count
from pathlib import Path as FilePath
from typing import Final, NamedTuple, Protocol

from stormcast.chaos.drivers import netlink, packets, paths
from stormcast.chaos.drivers.base import (
    DECIDE,
    NFQUEUE,
    Bites,
    DriverError,
    Handle,
    Loop,
    Run,
    Site,
)
from stormcast.chaos.drivers.injection import Injector, RawSockets
from stormcast.chaos.drivers.netlink import NetlinkError, Take
from stormcast.chaos.drivers.packets import Offsets
from stormcast.chaos.drivers.paths import Ways
from stormcast.chaos.drivers.queue_rule import QUEUE, QueueRule
from stormcast.chaos.faults.fate import jhash_fate
from stormcast.chaos.faults.outcome import DROP, HOLD, PASS, Decider, FrameOutcome
from stormcast.chaos.faults.paths import PathMaker
from stormcast.chaos.language.network_state import NetworkState
from stormcast.node.core.errors import NodeError

BURST: Final = 128
"""Packets of one site that are taken before another one has its turn."""
EARLY: Final = 0.0002
"""Seconds by which a packet may go before its time, so as not to wake up twice for two."""
AT_ONCE: Final = FrameOutcome(PASS)
FEATURES: Final = ("loss-model", "delay", "duplicate", "reorder", "corrupt", "rule")
"""Of stormcast.chaos.language.features, those that take a queue."""


class Queued(Protocol):
    """A queue of the kernel: netlink.Queue, or what stands for it."""

    def fileno(self) -> int: ...
    def receive(self, take: Take, limit: int) -> int: ...
    def accept(self, packet: int, payload: bytes = b"") -> None: ...
    def drop(self, packet: int) -> None: ...
    def accept_up_to(self, packet: int) -> None: ...
    def flush(self) -> None: ...
    def close(self) -> None: ...


def _netns(site: Site) -> FilePath | None:
    return FilePath(site.netns) if site.netns else None


def _refusal(attempt: Callable[[], object]) -> str | None:
    """Why something cannot be had; None if it can."""
    try:
        attempt()
    except NodeError as error:
        return str(error)
    except ImportError:
        return "corrupting frames takes scapy: pip install scapy"
    return None


def open_queue(site: Site, *, max_waiting: int = netlink.MAX_WAITING) -> Queued:
    """The queue of a site."""
    try:
        return netlink.Queue(QUEUE, _netns(site), max_waiting=max_waiting)
    except NetlinkError as error:
        raise DriverError(f"{site.name}: {error}") from None


class Due(NamedTuple):
    """What is to be done at a time; of two at one time, what was decided first."""

    at: float
    order: int
    port: Port
    packet: int | None
    """The number of the packet that is let go; None: `payload` is a copy."""
    payload: bytes


class HeldPacket(NamedTuple):
    """A packet that a rule holds."""

    port: Port
    place: Offsets
    packet: int


class Port:
    """One site: its queue, and the paths that end there."""

    def __init__(self, driver: NfqueueDriver, site: Site, rule: QueueRule) -> None:
        self.site = site
        self.rule = rule
        self.own = tuple(packets.packed(address) for address in site.addresses)
        self.ways: Mapping[bytes, Ways] = {}
        """By the address that a packet comes from."""
        self.queue: Queued | None = None
        self.injector: Injector | None = None
        self.newest: int | None = None
        """The number of the packet that came last."""
        self.waiting = 0
        """Packets of which nothing was said yet."""
        self._driver = driver

    def take(self, packet: int, mark: int, view: memoryview) -> None:
        """Decide what becomes of a packet, and when."""
        queue = self.queue
        assert queue is not None
        self.newest = packet
        place = packets.locate(view)
        ways = self.ways.get(place.source) if place is not None else None
        if place is None or ways is None:
            queue.accept(packet)
            return
        outcome = self._driver.decide(ways, mark, view, place)
        if outcome.does == DROP:
            queue.drop(packet)
        elif outcome.does == HOLD:
            self.waiting += 1
            self._driver.hold(outcome.held_by, HeldPacket(self, place, packet))
        else:
            self._pass_on(packet, outcome, view, place)

    def _pass_on(
        self, packet: int, outcome: FrameOutcome, view: memoryview, place: Offsets
    ) -> None:
        driver = self._driver
        payload = b""
        if outcome.flips:
            payload = packets.corrupted(bytes(view), place, outcome.flips)
        self.waiting += 1
        driver.schedule(outcome.at, self, packet, payload)
        if outcome.copies:
            copied = packets.for_member(bytes(view), place, self.own)
            for at in outcome.copies:
                driver.schedule(at, self, None, copied)

    def release(self, place: Offsets, packet: int) -> None:
        """Let go a packet that was held, onto what its path has become."""
        if self.queue is None:
            return
        outcome = self._driver.let_go(self.ways.get(place.source), place)
        if outcome.does == DROP:
            self.waiting -= 1
            self.queue.drop(packet)
        else:
            self._driver.schedule(outcome.at, self, packet, b"")

    def do(self, due: Due) -> None:
        """Let a packet go, or a copy."""
        assert self.queue is not None
        if due.packet is None:
            if self.injector is None:
                self.injector = self._driver.open_injector(self.site)
            self.injector.send(due.payload)
        else:
            self.waiting -= 1
            self.queue.accept(due.packet, due.payload)

    def let_go(self) -> None:
        """Let go all that waits."""
        if self.queue is not None and self.newest is not None and self.waiting:
            self.queue.accept_up_to(self.newest)
            self.queue.flush()
        self.waiting = 0

    def close(self) -> None:
        """End with what there is."""
        if self.queue is not None:
            # Packets that came before the rule was gone, and that nobody has looked at yet.
            while self.queue.receive(self.take, BURST):
                self.queue.flush()
            self.queue.close()
            self.queue = None
        if self.injector is not None:
            self.injector.close()
            self.injector = None


class NfqueueDriver:
    """The driver for all sites of an agent."""

    name = NFQUEUE

    def __init__(
        self,
        sites: Sequence[Site],
        run: str,
        do: Run,
        loop: Loop,
        *,
        open_queue: Callable[[Site], Queued] = open_queue,
        open_injector: Callable[[Site], Injector] = RawSockets,
    ) -> None:
        self.open_injector = open_injector
        self._open_queue = open_queue
        self._loop = loop
        self._ports = [Port(self, site, QueueRule(site, run, do)) for site in sites]
        self._maker = PathMaker()
        self._decider = Decider(jhash_fate)
        self._heap: list[Due] = []
        self._order = count()
        self._held: dict[str, list[HeldPacket]] = {}
        self._timer: Handle | None = None
        self._timer_at = 0.0
        self._now = 0.0
        """When the packets came that are being looked at."""
        self._lease_timer: Handle | None = None

    async def features(self) -> Mapping[str, str | None]:
        """Serve a queue of the first site for a moment, and see whether copies may be made."""
        port = self._ports[0]
        why: str | None = None
        try:
            if port.queue is None:
                self._open_queue(port.site).close()
                await port.rule.install()
                await port.rule.remove()
        except NodeError as error:
            why = str(error)
        found: dict[str, str | None] = dict.fromkeys(FEATURES, why)
        found["duplicate"] = found["rule"] = why or _refusal(
            lambda: self.open_injector(port.site).close()
        )
        if found["corrupt"] is None:
            found["corrupt"] = _refusal(packets.layers)
        return found

    # -- Verbs -------------------------------------------------------------------------------------

    async def apply(self, state: NetworkState, lease: float) -> None:
        """Have packets treated so from the next one on; what waits keeps its time, unless the rule
        that holds it has ended."""
        self._loan(lease)
        ports = [port for port in self._ports if port.site.name in state.members]
        for port in ports:
            pairs = [(name, port.site.name) for name in state.members if name != port.site.name]
            if any(paths.asks(state, *ends) for ends in pairs):
                await self._serve(port)
        if paths.may_corrupt(state):
            # Now, rather than while packets wait for it.
            packets.layers()
        # From here on nothing waits for anything: all sites change at one moment.
        ended = self._maker.renew(state.seed, state.faults)
        places = {
            packets.packed(address): name
            for name, addresses in state.places.items()
            for address in addresses
        }
        for port in ports:
            known = paths.ways_to(state, port.site.name, self._maker)
            port.ways = {address: known[name] for address, name in places.items() if name in known}
        for fault in ended:
            self._release(fault)

    async def renew(self, lease: float) -> None:
        """Have it go on."""
        self._loan(lease)

    async def clear(self) -> None:
        """Let everything go, and remove what was put there."""
        self._lapse()
        if self._lease_timer is not None:
            self._lease_timer.cancel()
            self._lease_timer = None
        errors = []
        for port in self._ports:
            try:
                # With its namespace the rule went, too.
                if netlink.is_there(port.site.netns):
                    await port.rule.remove()
            except DriverError as error:
                errors.append(error)
            if port.queue is not None:
                self._loop.remove_reader(port.queue.fileno())
            port.close()
        if errors:
            raise errors[0]

    async def release(self, fault: str | None) -> None:
        """Let go what rules hold."""
        for rule in self._maker.rules_named(fault):
            self._release(rule)

    async def bites(self) -> Bites:
        """What was done so far."""
        return self._decider.counted()

    # -- Packets -----------------------------------------------------------------------------------

    def decide(self, ways: Ways, mark: int, view: memoryview, place: Offsets) -> FrameOutcome:
        """What becomes of a packet."""
        path, size = ways.path(place), len(view)
        if mark == DECIDE and place.frame:
            frame = packets.preamble(view, place)
            return self._decider.decide(path, frame, size, self._now)
        known = packets.identity(view, place)
        return self._decider.after_losses(path, known, size, self._now)

    def let_go(self, ways: Ways | None, place: Offsets) -> FrameOutcome:
        """What becomes of a packet that was held."""
        return AT_ONCE if ways is None else self._decider.let_go(ways.path(place), self._now)

    def hold(self, fault: str, held: HeldPacket) -> None:
        """Keep a packet until its rule lets it go."""
        self._held.setdefault(fault, []).append(held)

    def schedule(self, at: float, port: Port, packet: int | None, payload: bytes) -> None:
        """Let something go at a time."""
        due = Due(at, next(self._order), port, packet, payload)
        if at <= self._now:
            port.do(due)
            return
        heapq.heappush(self._heap, due)

    async def _serve(self, port: Port) -> None:
        if port.queue is None:
            port.queue = self._open_queue(port.site)
            port.newest, port.waiting = None, 0
            self._loop.add_reader(port.queue.fileno(), self._on_packets, port)
        await port.rule.install()

    def _on_packets(self, port: Port) -> None:
        if port.queue is None:
            return
        self._now = self._loop.time()
        port.queue.receive(port.take, BURST)
        port.queue.flush()
        self._arm()

    def _on_time(self) -> None:
        self._timer = None
        self._now = self._loop.time()
        heap, until = self._heap, self._now + EARLY
        ports = set()
        while heap and heap[0].at <= until:
            due = heapq.heappop(heap)
            if due.port.queue is not None:
                due.port.do(due)
                ports.add(due.port)
        for port in ports:
            if port.queue is not None:
                port.queue.flush()
        self._arm()

    def _arm(self) -> None:
        """Have the first of what waits wake us."""
        if not self._heap:
            return
        at = self._heap[0].at
        if self._timer is not None:
            if self._timer_at <= at:
                return
            self._timer.cancel()
        self._timer, self._timer_at = self._loop.call_at(at, self._on_time), at

    def _release(self, fault: str) -> None:
        """Let go what a rule holds, in order, onto what the paths have become."""
        self._now = self._loop.time()
        held = self._held.pop(fault, [])
        for port, place, packet in held:
            port.release(place, packet)
        for port in {one.port for one in held}:
            if port.queue is not None:
                port.queue.flush()
        self._arm()

    # -- The lease ---------------------------------------------------------------------------------

    def _loan(self, lease: float) -> None:
        if self._lease_timer is not None:
            self._lease_timer.cancel()
        self._lease_timer = self._loop.call_at(self._loop.time() + lease, self._lapse)

    def _lapse(self) -> None:
        """Nobody wants anything any more: let go all that waits, and treat nothing that comes."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        self._heap.clear()
        self._held.clear()
        for port in self._ports:
            port.ways = {}
            port.let_go()
