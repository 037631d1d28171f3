"""`stormcast bench sim`: events per second of the simulator, on one core.

Pairs of members on a lossy network, both directions busy, the trace on. An event is a frame arrival
or a fired timer; the calls that offer traffic are not counted.
"""

from __future__ import annotations

import gc
from dataclasses import dataclass
from time import perf_counter

from xxhash import xxh3_64_intdigest

from bench.rounds import Rounds
from stormcast.chaos.backends.sim.engine import Engine, Host
from stormcast.chaos.backends.sim.network import Network
from stormcast.chaos.faults import Link, Loss
from stormcast.chaos.faults.fate import FATES
from stormcast.chaos.faults.paths import PathMaker
from stormcast.node.core.model import Address, Delivery
from stormcast.node.settings import load_settings
from stormcast.node.stack import Stack
from stormcast.node.trace.tracer import Tracer

BURST = 5
"""Messages per burst and direction."""
SIZE = 100
EVERY = 0.001
"""Virtual seconds between two bursts."""
DELAY = 0.001
LOSS = 0.01
PAIRS = 4


@dataclass(frozen=True, slots=True, kw_only=True)
class SimFigure(Rounds):
    """Several rounds of one configuration."""

    unicast: str
    timing: str
    loss: float
    pairs: int
    events: int
    delivered: int
    trace_bytes: int


class BenchWorld:
    """Engine and network with nothing but pairs of members."""

    def __init__(self, unicast: str, timing: str, loss: float, pairs: int) -> None:
        settings = load_settings(timing=timing, unicast=unicast)
        self.delivered = 0
        self.trace_bytes = 0
        self.engine = Engine(self._send, self._deliver)
        network = self.network = Network(FATES["xxh3"], self.engine.arrive)
        self.hosts: list[Host] = []
        for number in range(1, 2 * pairs + 1):
            address = Address(number << 64 | number, f"n{number}")
            tracer = Tracer(number, 0, xxh3_64_intdigest, self._take_block, 256)
            stack = Stack(address, "bench", settings, xxh3_64_intdigest, tracer, 0.0)
            host = Host(address.name, stack, tracer)
            self.hosts.append(host)
            self.engine.hosts[number] = host
        maker, base, names = PathMaker(), Link(delay=DELAY), tuple(host.name for host in self.hosts)
        acting = {"loss": Loss(sources=names, dests=names, rate=loss)}
        maker.renew(1, acting)
        for one, other in zip(self.hosts[::2], self.hosts[1::2], strict=True):
            for source, dest in ((one, other), (other, one)):
                path = maker.path(source.name, dest.name, base, acting)
                network.set_path(path)
                source.routes[dest.short] = path

    def _take_block(self, block: bytes) -> None:
        self.trace_bytes += len(block)

    def _send(self, host: Host, dest: int, frame: bytes) -> None:
        self.network.send(host.routes[dest], dest, frame, self.engine.now)

    def _deliver(self, _host: Host, deliveries: list[Delivery]) -> None:
        for delivery in deliveries:
            self.delivered += len(delivery)

    def offer(self, until: float) -> None:
        """Offer bursts in both directions of each pair, until a virtual time."""
        payload = bytes(SIZE)
        engine = self.engine

        def burst() -> None:
            for at, host in enumerate(self.hosts):
                dest = self.hosts[at ^ 1].short
                for _ in range(BURST):
                    host.stack.try_send(dest, payload)
                engine.end_turn(host)
            if engine.now < until:
                engine.call(engine.now + EVERY, burst)

        engine.call(0.0, burst)


def measure(
    unicast: str,
    timing: str,
    *,
    loss: float = LOSS,
    pairs: int = PAIRS,
    seconds: float = 5.0,
    rounds: int = 3,
) -> SimFigure:
    """Run the same world several times, after one round to warm up."""
    rates = []
    for _ in range(rounds + 1):
        world = BenchWorld(unicast, timing, loss, pairs)
        world.offer(seconds)
        gc.collect()
        began = perf_counter()
        world.engine.run(seconds + 5.0)
        rates.append(world.engine.events / (perf_counter() - began))
    return SimFigure(
        unicast=unicast,
        timing=timing,
        loss=loss,
        pairs=pairs,
        rounds=tuple(rates[1:]),
        events=world.engine.events,
        delivered=world.delivered,
        trace_bytes=world.trace_bytes,
    )
