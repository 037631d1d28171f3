"""nfqueue: delays, copies, flipped bits and rules. Packets wait in a queue of the kernel until this
driver gives its verdict on each.

Packets stay in the kernel; only their numbers wait here, each with the time at which it is let go.
So a delayed packet of any kind goes on exactly as it came. A copy is put into the network of the
member by a raw socket. All sites of an agent share one loop and one heap.
"""

from __future__ import annotations

import asyncio
import heapq
from collections import Counter
from collections.abc import Callable, Collection, Mapping, Sequence
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
from stormcast.chaos.drivers.packet_faults import PacketFaults, PacketOutcome, check_contents
from stormcast.chaos.drivers.packets import Offsets
from stormcast.chaos.drivers.paths import Ways
from stormcast.chaos.drivers.queue_rule import QUEUE, QueueRule
from stormcast.chaos.drivers.running import at_once
from stormcast.chaos.faults.fate import jhash_fate
from stormcast.chaos.faults.outcome import DROP, HOLD, PASS, Decider, FrameOutcome
from stormcast.chaos.faults.paths import Path, PathMaker
from stormcast.chaos.language.network_state import FRAMES, PACKETS, NetworkState
from stormcast.node.core.errors import NodeError

BURST: Final = 128
"""The most packets of one site that are taken before another site has its turn."""
EARLY: Final = 0.0002
"""Seconds by which a packet may go early, so that two packets do not take two wake-ups."""
MAX_WAITING: Final = 16_384
"""The most packets of a site that wait for a verdict, held ones included; further packets pass, and
the run is over. Ten seconds of 1,600 frames a second."""
ROOM: Final = MAX_WAITING + netlink.MAX_UNREAD
"""The most packets that the kernel keeps: with room for more than can wait here and to be read, it
lets none pass without this driver noticing."""
_IDS: Final = 0xFFFFFFFF
AT_ONCE: Final = FrameOutcome(PASS)
FEATURES: Final = ("loss-model", "delay", "duplicate", "reorder", "corrupt", "rule")
"""The features of stormcast.chaos.language.features that need a queue."""


class Queued(Protocol):
    """A queue of the kernel: netlink.Queue, or a fake of it."""

    @property
    def refused(self) -> Counter[str]: ...
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
    """Return why an attempt fails; None if it succeeds."""
    try:
        attempt()
    except NodeError as error:
        return str(error)
    except ImportError:
        return "corrupting frames takes scapy: pip install scapy"
    return None


def open_queue(site: Site) -> Queued:
    """Open the queue of a site."""
    try:
        return netlink.Queue(QUEUE, _netns(site), max_waiting=ROOM)
    except NetlinkError as error:
        raise DriverError(f"{site.name}: {error}") from None


class Due(NamedTuple):
    """A packet or copy that leaves at a time; at equal times, in the order of decisions."""

    at: float
    order: int
    port: Port
    packet: int | None
    """The number of the packet to let go; None: `payload` is a copy to send."""
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
        """By the source address of a packet: its paths to this site."""
        self.queue: Queued | None = None
        self.injector: Injector | None = None
        self.newest: int | None = None
        """The number of the packet that came last."""
        self.waiting = 0
        """The number of packets that have no verdict yet."""
        self.missed = 0
        """The number of packets that passed undecided, because there was no room for them."""
        self._driver = driver

    def take(self, packet: int, mark: int, view: memoryview) -> None:
        """Decide what becomes of a packet, and when."""
        queue = self.queue
        assert queue is not None
        if self.newest is not None and packet != self.newest + 1:
            # The kernel had numbered a packet before it found no room for its message.
            self.missed += (packet - self.newest - 1) & _IDS
        self.newest = packet
        if self.waiting >= self._driver.max_waiting:
            self.missed += 1
            queue.accept(packet)
            return
        place = packets.locate(view)
        ways = self.ways.get(place.source) if place is not None else None
        if place is None or ways is None:
            queue.accept(packet)
            return
        if mark == DECIDE and self._driver.packet_faults:
            struck = self._driver.strike(ways.path(place), view, place)
            if struck is not None:
                self._treat(packet, struck, place)
                return
        outcome = self._driver.decide(ways, mark, view, place, packet)
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

    def _treat(self, packet: int, struck: PacketOutcome, place: Offsets) -> None:
        """Do what a fault of packets makes of one."""
        assert self.queue is not None
        if struck.is_lost:
            self.queue.drop(packet)
            return
        # Of equal times the first one scheduled goes first: a forged copy.
        for at, copy in struck.copies:
            self._driver.schedule(at, self, None, packets.for_member(copy, place, self.own))
        self.waiting += 1
        self._driver.schedule(struck.at, self, packet, struck.payload)

    def release(self, place: Offsets, packet: int) -> None:
        """Let go a packet that was held, over its path as it is now."""
        if self.queue is None:
            return
        outcome = self._driver.let_go(self.ways.get(place.source), place)
        if outcome.does == DROP:
            self.waiting -= 1
            self.queue.drop(packet)
        else:
            self._driver.schedule(outcome.at, self, packet, b"")

    def do(self, due: Due) -> None:
        """Let go a packet, or send a copy, that is due."""
        assert self.queue is not None
        if due.packet is None:
            if self.injector is None:
                self.injector = self._driver.open_injector(self.site)
            self.injector.send(due.payload)
        else:
            self.waiting -= 1
            self.queue.accept(due.packet, due.payload)

    def let_go(self) -> None:
        """Let go all waiting packets."""
        if self.queue is not None and self.newest is not None and self.waiting:
            self.queue.accept_up_to(self.newest)
            self.queue.flush()
        self.waiting = 0

    def read_on(self) -> None:
        """Take the packets that came and were not read yet."""
        if self.queue is not None:
            while self.queue.receive(self.take, BURST):
                self.queue.flush()

    def close(self) -> None:
        """Take the packets that are left, and close the queue and the injector."""
        # Packets that came before the NFQUEUE rule was removed.
        self.read_on()
        if self.queue is not None:
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
        max_waiting: int = MAX_WAITING,
    ) -> None:
        self.max_waiting = max_waiting
        self.open_injector = open_injector
        self._open_queue = open_queue
        self._loop = loop
        self._ports = [Port(self, site, QueueRule(site, run, do)) for site in sites]
        self._maker = PathMaker()
        self._decider = Decider(jhash_fate)
        self.packet_faults = PacketFaults(self._decider)
        self._heap: list[Due] = []
        self._order = count()
        self._held: dict[str, list[HeldPacket]] = {}
        self._dice = FRAMES
        self._timer: Handle | None = None
        self._timer_at = 0.0
        self._now = 0.0
        """The time at which the current packets were read, or timers fired."""
        self._lease_timer: Handle | None = None

    async def features(self) -> Mapping[str, str | None]:
        """Try a queue at the first site, raw sockets, and scapy; returns the features."""
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
            found["corrupt"] = await asyncio.to_thread(_refusal, packets.layers)
        found["packet-contents"] = found["duplicate"] or found["corrupt"]
        return found

    # -- Verbs -------------------------------------------------------------------------------------

    async def apply(self, state: NetworkState, lease: float) -> None:
        """Treat packets by `state` from the next one on. Waiting packets keep their time; those
        held by a rule that has ended are let go."""
        self._check()
        self._loan(lease)
        if paths.may_corrupt(state):
            # In a thread, as packets may wait already for what acts until now.
            await asyncio.to_thread(packets.layers)
        await check_contents(state)
        ports = [port for port in self._ports if port.site.name in state.members]
        await at_once(self._serve(port) for port in ports if self._is_needed(state, port))
        # From here on there is no `await`: all sites change at one moment.
        self._dice = state.dice
        self.packet_faults.renew(state.faults)
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
        """Extend the lease."""
        self._check()
        self._loan(lease)

    async def end(self) -> None:
        """Let go all packets, those that were not read yet, too."""
        self._lapse()
        for port in self._ports:
            port.read_on()

    async def clear(self) -> None:
        """Let go all packets, and remove rules, queues and sockets."""
        self._lapse()
        # Another run may come, which is to have the dice of a new agent.
        self._maker = PathMaker()
        if self._lease_timer is not None:
            self._lease_timer.cancel()
            self._lease_timer = None
        errors: list[Exception] = []
        for port in self._ports:
            try:
                # Without its namespace, the rule is gone, too.
                if netlink.is_there(port.site.netns):
                    await port.rule.remove()
            except (DriverError, OSError) as error:
                errors.append(error)
            if port.queue is not None:
                self._loop.remove_reader(port.queue.fileno())
            port.close()
        try:
            self._check()
        except DriverError as error:
            errors.append(error)
        for port in self._ports:
            port.missed = 0
        self.packet_faults = PacketFaults(self._decider)
        if errors:
            raise errors[0]

    def _check(self) -> None:
        """DriverError if packets have passed that a fault may have had to strike, or were lost for
        which no fault asks."""
        self.packet_faults.check()
        for port in self._ports:
            if port.queue is not None and (gone := port.queue.refused.total()):
                raise DriverError(
                    f"{gone} packets to {port.site.name} that waited are gone: somebody else "
                    "changed the firewall or the device there"
                )
            if port.missed:
                raise DriverError(
                    f"{port.missed} packets to {port.site.name} passed without the faults that "
                    "were to strike them, because more came than can wait: hold or delay fewer"
                )

    async def release(self, fault: str | None) -> None:
        """Release the packets that `hold` rules keep."""
        for rule in self._maker.rules_named(fault):
            self._release(rule)

    async def bites(self) -> Bites:
        """Return the bites so far."""
        self._check()
        return self._decider.counted()

    async def forget(self, acting: Collection[str]) -> None:
        """Forget the bites of faults that are not among these."""
        self._decider.forget(acting)

    # -- Packets -----------------------------------------------------------------------------------

    def decide(
        self, ways: Ways, mark: int, view: memoryview, place: Offsets, packet: int
    ) -> FrameOutcome:
        """Decide the outcome of a packet, by its mark: with or without rules and losses."""
        path, size = ways.path(place), len(view)
        if mark == DECIDE and place.frame:
            frame = packets.preamble(view, place)
            return self._decider.decide(path, frame, size, self._now)
        known = packets.identity(view, place)
        if known is None and self._dice == PACKETS:
            known = packets.numbered(packet, place)
        go_on = self._decider.after_cuts if mark == DECIDE else self._decider.after_losses
        return go_on(path, known, size, self._now)

    def strike(self, path: Path, view: memoryview, place: Offsets) -> PacketOutcome | None:
        """Return what the first fault of packets makes of one; None if none takes it."""
        return self.packet_faults.strike(path, view, place, self._now)

    def let_go(self, ways: Ways | None, place: Offsets) -> FrameOutcome:
        """Decide the outcome of a packet that was held."""
        return AT_ONCE if ways is None else self._decider.let_go(ways.path(place), self._now)

    def hold(self, fault: str, held: HeldPacket) -> None:
        """Keep a packet until its rule is released or ends."""
        self._held.setdefault(fault, []).append(held)

    def schedule(self, at: float, port: Port, packet: int | None, payload: bytes) -> None:
        """Let a packet go, or send a copy (`packet` is None), at a time."""
        due = Due(at, next(self._order), port, packet, payload)
        if at <= self._now:
            port.do(due)
            return
        heapq.heappush(self._heap, due)

    def _is_needed(self, state: NetworkState, port: Port) -> bool:
        """Whether a path to a site is one on which this driver decides."""
        others = [name for name in state.members if name != port.site.name]
        return any(paths.asks(state, name, port.site.name) for name in others)

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
        """Set the timer for the first entry of the heap."""
        if not self._heap:
            return
        at = self._heap[0].at
        if self._timer is not None:
            if self._timer_at <= at:
                return
            self._timer.cancel()
        self._timer, self._timer_at = self._loop.call_at(at, self._on_time), at

    def _release(self, fault: str) -> None:
        """Let go the packets that a rule holds, in order, over the paths as they are now."""
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
        """End all faults: let go all waiting packets, and let new ones pass."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        self._heap.clear()
        self._held.clear()
        for port in self._ports:
            port.ways = {}
            port.let_go()
