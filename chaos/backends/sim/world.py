"""A scenario, run: members as hosts of the engine, the nemesis on their network, traffic."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Final

from xxhash import xxh3_64_intdigest, xxh3_128_intdigest

from chaos import faults
from chaos.backends.sim.engine import Engine, Host
from chaos.backends.sim.nemesis import FLAG_BITS, Nemesis
from chaos.backends.sim.network import Network
from chaos.fate import FATES
from chaos.scenario import Scenario
from chaos.schedule import schedule
from chaos.traffic import INDEX_BYTES, Stream
from chaos.workload import Load
from node import trace
from node.core.errors import NodeError
from node.core.model import OOB, Address, Delivery
from node.protocols.unicast import Unicast
from node.settings import StackSettings, load_settings
from node.stack import Stack
from node.trace import Tracer

WALL_NS: Final = 1_600_000_000_000_000_000
"""The wall clock at virtual time zero: fixed, so that equal runs are equal to the byte."""
SEAL_AT: Final = 256
"""Events in a block. The simulator's disk survives its crashes, so a block may span turns."""
RETRY_SECONDS: Final = 0.01
"""How often a refused sender tries again."""
RIG: Final = 0
"""The short id under which the rig itself writes events."""


class TraceLimitError(NodeError):
    """A run recorded more than its scenario allows."""


Pair = tuple[str, str]
"""Sender and receiver, by name."""


@dataclass(slots=True, kw_only=True)
class SimulatedRun:
    """What a simulation leaves behind."""

    traces: dict[str, bytes]
    """Per member incarnation (and the rig), its blocks."""
    events: int
    seconds: float
    """Virtual seconds."""
    sent: int
    """Messages accepted from the workload."""
    delivered: int
    bites: dict[str, int]
    """How often each fault had an effect, by id."""
    kinds: dict[str, str]
    """What each fault is, by id."""
    mismatches: list[str]
    """Deliveries whose payload is not what its sender made."""
    sent_by_pair: dict[Pair, int]
    reached: dict[Pair, list[tuple[float, int]]]
    """When how many messages of a pair had been delivered."""
    complete: bool
    """Whether the workload ended within the limits."""
    stalled_for: float
    """Seconds without any delivery before the limit, where it did not."""


@dataclass(slots=True)
class Sending:
    """One load between one pair, in progress."""

    load: Load
    source: str
    dest: str
    offered: int = 0
    owed: int = 0
    """Offered, and not yet accepted by the outbox."""
    next_burst: float = 0.0


def simulate(
    scenario: Scenario,
    seed: int,
    *,
    make_unicast: Callable[..., Unicast] | None = None,
    fate: str = "xxh3",
) -> SimulatedRun:
    """Run a scenario to its end."""
    return World(scenario, seed, make_unicast, fate).run()


def settings_of(scenario: Scenario) -> StackSettings:
    """The stack that a scenario asks for."""
    cluster = scenario.cluster
    return load_settings(
        cluster.stack,
        cluster.timing,
        unicast=cluster.unicast,
        overrides=dict(cluster.settings),
        historical=dict(cluster.historical),
        max_batch=cluster.max_batch,
    )


class World:
    """One run in progress."""

    def __init__(
        self,
        scenario: Scenario,
        seed: int,
        make_unicast: Callable[..., Unicast] | None = None,
        fate: str = "xxh3",
    ) -> None:
        self.scenario = scenario
        self.seed = seed
        self.settings = settings_of(scenario)
        self.members: dict[str, Host] = {}
        self.sent = 0
        self.delivered = 0
        self.mismatches: list[str] = []
        self.sent_by_pair: dict[Pair, int] = {}
        self.reached: dict[Pair, list[tuple[float, int]]] = {}
        self._make_unicast = make_unicast
        self._incarnations: dict[str, int] = {}
        self._names: dict[int, str] = {}
        self._streams: dict[tuple[int, int], Stream] = {}
        self._blocks: dict[str, list[bytes]] = {}
        self._places: dict[tuple[int, int, int], int] = {}
        self._is_unordered = scenario.cluster.historical != () or any(
            "NO_RELIABILITY" in load.flags or load.size[0] < INDEX_BYTES
            for load in scenario.workload
        )
        self._open_loads = 0
        self._last_start: dict[str, float] = {}
        """When the schedule starts a member for the last time."""
        self._trace_bytes = 0
        self._last_delivery = 0.0
        self.engine = Engine(self._send, self._deliver)
        self.network = Network(FATES[fate], seed, self.engine.arrive)
        if any(
            isinstance(step.action, faults.Rule) and step.action.match.connection
            for step in scenario.timeline
        ):
            self.network.connections = {}
        self.rig = self._tracer(RIG, "rig")
        self.nemesis = Nemesis(self)
        for name in scenario.cluster.members:
            self.start(name)
        self.nemesis.rebuild_paths()

    def run(self) -> SimulatedRun:
        """Workload and timeline to their ends, then quiet until everything had time to settle."""
        engine, limit = self.engine, self.scenario.limits.run
        steps = schedule(self.scenario, self.seed)
        for step in steps:
            if isinstance(step.action, faults.Restart):
                self._last_start[step.action.member] = step.at
            engine.call(step.at, partial(self.nemesis.do, step))
        for load in self.scenario.workload:
            self._begin_load(load)
        engine.run(max([step.at for step in steps], default=0.0))
        while (self._open_loads or self._has_backlog()) and engine.now < limit:
            engine.run(min(limit, engine.now + 0.5))
        complete = not self._open_loads and not self._has_backlog()
        stalled_for = engine.now - self._last_delivery
        self.rig.record(trace.PHASE, engine.now, text="quiet")
        engine.run(engine.now + self._settle_seconds())
        return self._finish(complete=complete, stalled_for=0.0 if complete else stalled_for)

    def _has_backlog(self) -> bool:
        """Whether a living member still holds unnumbered messages for another."""
        living = [host for host in self.members.values() if host.is_alive]
        return any(host.stack.pending(peer.short) for host in living for peer in living)

    def _settle_seconds(self) -> float:
        """Longer than the bound of quiescence, so that silence after it can be seen."""
        quiet = max(host.stack.unicast.bounds()["quiet_within"] for host in self.members.values())
        return max(self.scenario.limits.settle, 1.5 * quiet)

    def _finish(self, *, complete: bool, stalled_for: float) -> SimulatedRun:
        now = self.engine.now
        self.rig.record(trace.PHASE, now, text="end")
        for fault, kind in self.nemesis.kinds.items():
            bit = self.network.bites.get(fault, 0)
            self.rig.record(
                trace.PROBE, now, text=json.dumps({"id": fault, "do": kind, "bit": bit})
            )
        self.rig.seal()
        for host in self.members.values():
            if host.is_alive:
                host.stack.unicast.gauge(now)
            host.tracer.seal()
        return SimulatedRun(
            traces={label: b"".join(blocks) for label, blocks in self._blocks.items()},
            events=self.engine.events,
            seconds=now,
            sent=self.sent,
            delivered=self.delivered,
            bites={fault: self.network.bites.get(fault, 0) for fault in self.nemesis.kinds},
            kinds=dict(self.nemesis.kinds),
            mismatches=self.mismatches,
            sent_by_pair=self.sent_by_pair,
            reached=self.reached,
            complete=complete,
            stalled_for=stalled_for,
        )

    # -- Members -----------------------------------------------------------------------------

    def start(self, name: str) -> None:
        """Bring a member up as a new incarnation: nobody will mistake it for an earlier one."""
        incarnation = self._incarnations[name] = self._incarnations.get(name, 0) + 1
        identity = xxh3_128_intdigest(f"{self.seed}/{name}/{incarnation}".encode()) or 1
        address = Address(identity, name)
        tracer = self._tracer(address.short, f"{name}-{incarnation}")
        stack = Stack(
            address,
            "sim",
            self.settings,
            xxh3_64_intdigest,
            tracer,
            self.engine.now,
            first_conn=self.scenario.cluster.unicast_first_conn or 1,
            make_unicast=self._make_unicast,
        )
        host = Host(name, stack, tracer)
        self.members[name] = host
        self.engine.hosts[address.short] = host
        self._names[address.short] = name

    def _tracer(self, member: int, label: str) -> Tracer:
        """A journal in memory, within the scenario's limit for all of them together."""
        blocks = self._blocks[label] = []
        limit = self.scenario.limits.trace

        def keep(block: bytes) -> None:
            self._trace_bytes += len(block)
            if self._trace_bytes > limit:
                raise TraceLimitError(f"the traces passed limits.trace ({limit} B): raise it")
            blocks.append(block)

        return Tracer(member, WALL_NS, xxh3_64_intdigest, keep, SEAL_AT)

    def crash(self, host: Host) -> None:
        """End a member as a kill does: no goodbye, nothing flushed but what its journal already
        has."""
        host.is_alive = False
        host.tracer.seal()

    def _send(self, host: Host, dest: int, frame: bytes) -> None:
        path = host.routes.get(dest)
        if path is None:
            name = self._names.get(dest)
            if name is None or name == host.name:
                return
            path = host.routes[dest] = self.network.path(host.name, name)
        self.network.send(path, dest, frame, self.engine.now)

    def _deliver(self, host: Host, deliveries: list[Delivery]) -> None:
        """The application: recognises every message, and keeps count."""
        self._last_delivery = self.engine.now
        for delivery in deliveries:
            stream = self._streams.get((delivery.source, host.short))
            number = len(delivery)
            self._check_place(host, delivery)
            self.delivered += number
            if stream is None or not all(map(stream.recognises, delivery.messages)):
                self.mismatches.append(
                    f"{host.name} t={self.engine.now:.6f} "
                    f"got from {self._names.get(delivery.source)} "
                    f"conn {delivery.conn} seqnos {delivery.lo}..{delivery.hi}: not what was sent"
                )
            reached = self.reached.setdefault((self._names[delivery.source], host.name), [])
            reached.append((self.engine.now, (reached[-1][1] if reached else 0) + number))

    def _check_place(self, host: Host, delivery: Delivery) -> None:
        """A connection carries a stretch of the stream: its n-th message is always as far along."""
        if not delivery.conn or self._is_unordered:
            return
        key = delivery.source, host.short, delivery.conn
        for seqno, payload in zip(
            range(delivery.lo, delivery.hi + 1), delivery.messages, strict=True
        ):
            place = int.from_bytes(payload[:INDEX_BYTES], "big") - seqno
            if self._places.setdefault(key, place) != place:
                self.mismatches.append(
                    f"{host.name} t={self.engine.now:.6f} got message {place + seqno} of "
                    f"{self._names.get(delivery.source)} as conn {delivery.conn} seqno {seqno}"
                )
                return

    # -- Traffic -----------------------------------------------------------------------------

    def _begin_load(self, load: Load) -> None:
        for source in load.sources:
            for dest in load.dests:
                if dest == source and load.excludes_self:
                    continue
                self._open_loads += 1
                sending = Sending(load, source, dest)
                self.engine.call(load.start, partial(self._offer, sending))

    def _offer(self, sending: Sending) -> None:
        """One tick of a load: a burst, and whatever was refused before."""
        load, now = sending.load, self.engine.now
        host = self.members[sending.source]
        if sending.offered < load.count and now >= sending.next_burst:
            number = min(load.burst, load.count - sending.offered)
            sending.offered += number
            sending.owed += number
            sending.next_burst = now + load.burst / load.rate
        if host.is_alive and not host.is_paused:
            self._send_owed(sending, host)
        if self._is_gone(host) or (sending.offered >= load.count and not sending.owed):
            self._open_loads -= 1
            return
        wait = RETRY_SECONDS if sending.offered >= load.count else sending.next_burst - now
        if sending.owed:
            wait = min(wait, RETRY_SECONDS)
        self.engine.call(now + max(wait, 1e-6), partial(self._offer, sending))

    def _send_owed(self, sending: Sending, host: Host) -> None:
        dest = self.members[sending.dest].short
        stream = self._stream(host, dest)
        load, pair = sending.load, (sending.source, sending.dest)
        flags = sum(FLAG_BITS[name] for name in load.flags)
        while sending.owed:
            index = stream.sent
            bits = flags | OOB if load.oob_every and (index + 1) % load.oob_every == 0 else flags
            if not host.stack.try_send(dest, stream.payload(index, load.size), bits):
                break
            stream.sent += 1
            sending.owed -= 1
            self.sent += 1
            self.sent_by_pair[pair] = self.sent_by_pair.get(pair, 0) + 1
        self.engine.end_turn(host)

    def _stream(self, host: Host, dest: int) -> Stream:
        stream = self._streams.get((host.short, dest))
        if stream is None:
            stream = Stream(self.seed, f"{host.name}:{host.short:x}", f"{dest:x}")
            self._streams[host.short, dest] = stream
        return stream

    def _is_gone(self, host: Host) -> bool:
        """Whether a member is down, and no step of the schedule will start it again."""
        return not host.is_alive and self.engine.now >= self._last_start.get(host.name, 0.0)
