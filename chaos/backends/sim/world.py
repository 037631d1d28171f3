"""A scenario, run: members as hosts of the engine, the nemesis on their network, traffic."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from math import inf
from random import Random
from typing import Any, Final

from xxhash import xxh3_64_intdigest, xxh3_128_intdigest

from chaos import faults
from chaos.backends.sim.engine import Engine, Host
from chaos.backends.sim.frames import LastFrame, SharingCodec
from chaos.backends.sim.links import Links, Notices
from chaos.backends.sim.nemesis import FLAG_BITS, Nemesis
from chaos.backends.sim.network import Network
from chaos.backends.sim.streams import StreamNetwork
from chaos.faults.fate import FATES, Fate
from chaos.language.scenario import Scenario
from chaos.language.schedule import schedule
from chaos.language.stacks import STREAM_TRANSPORTS, settings_of
from chaos.language.workload import Load
from chaos.records.rig_trace import base_text
from chaos.records.run import Life, Pair, RunRecord, ViewSeen
from node import trace
from node.core import wire
from node.core.errors import NodeError
from node.core.model import DONT_LOOPBACK, OOB, Address, Delivery, View
from node.payloads import INDEX_BYTES, Stream, stream_of
from node.protocols.unicast import Unicast
from node.settings import StackSettings
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
UNBOUNDED: Final = 1 << 60
REGROUPING: Final = ("suspect_within", "verify_within", "info_within", "check_within", "merge")
"""The bounds, one after the other, of what lies between a heal and one view of all who live."""
JOIN_POLL_SECONDS: Final = 0.05
"""How often one who joins after another looks whether that one is in."""


class TraceLimitError(NodeError):
    """A run recorded more than its scenario allows."""


@dataclass(slots=True)
class Multicasts:
    """How far the multicasts of one member are that the workload made."""

    accepted: int = 0
    counted: int = 0
    """Those that are numbered, and so wanted by the members of the view of that moment."""
    looped: bool = True
    """Whether its own are delivered to it, too."""


SimulatedRun = RunRecord


@dataclass(slots=True)
class Sending:
    """One load between one pair, in progress."""

    load: Load
    source: str
    dest: str | None
    """None: the group."""
    flags: int
    """Of all its messages."""
    offered: int = 0
    owed: int = 0
    """Offered, and not yet accepted by the outbox."""
    next_burst: float = 0.0


def _finite(promised: dict[str, dict[str, float]], name: str) -> float:
    """The longest time of this name that a protocol promises; 0 where none does."""
    bounds = (bounds.get(name, 0.0) for bounds in promised.values())
    return max((bound for bound in bounds if bound < inf), default=0.0)


def simulate(
    scenario: Scenario,
    seed: int,
    *,
    make_unicast: Callable[..., Unicast] | None = None,
    make_multicast: Callable[..., Any] | None = None,
    fate: str = "xxh3",
) -> SimulatedRun:
    """Run a scenario to its end."""
    return World(scenario, seed, make_unicast, fate, make_multicast).run()


class World:
    """One run in progress."""

    def __init__(
        self,
        scenario: Scenario,
        seed: int,
        make_unicast: Callable[..., Unicast] | None = None,
        fate: str = "xxh3",
        make_multicast: Callable[..., Any] | None = None,
        settings: Mapping[str, StackSettings] | None = None,
    ) -> None:
        self.scenario = scenario
        self.seed = seed
        self._own_settings = settings or {}
        """Of members that were told what to run, and not by the scenario."""
        self.settings = next(iter(self._own_settings.values()), None) or settings_of(scenario)
        self.members: dict[str, Host] = {}
        self.sent = 0
        self.delivered = 0
        self.mismatches: list[str] = []
        self.sent_by_pair: dict[Pair, int] = {}
        self.reached: dict[Pair, list[tuple[float, int]]] = {}
        self.views: dict[str, list[ViewSeen]] = {}
        self.lives: dict[str, Life] = {}
        self._make_unicast = make_unicast
        self._make_multicast = make_multicast
        self._has_group = self.settings.has_group
        self._last_frame = LastFrame()
        self._labels: dict[int, str] = {}
        self._leaving: set[int] = set()
        self._multicasts: dict[int, Multicasts] = {}
        self._control: dict[int, dict[bytes, int]] = {}
        self._incarnations: dict[str, int] = {}
        self._names: dict[int, str] = {}
        self._streams: dict[tuple[int, int], Stream] = {}
        self._blocks: dict[str, list[bytes]] = {}
        self._places: dict[tuple[int, int, int], int] = {}
        self._is_unordered = scenario.cluster.historical != () or any(
            "NO_RELIABILITY" in load.flags or load.size[0] < INDEX_BYTES or self._is_cut(load)
            for load in scenario.workload
        )
        self._open_loads = 0
        self._last_start: dict[str, float] = {}
        """When the schedule starts a member for the last time."""
        self._trace_bytes = 0
        self._last_delivery = 0.0
        self._is_stream = self.settings.transport in STREAM_TRANSPORTS
        send = self._send_on_streams if self._is_stream else self._send
        self.engine = Engine(send, self._deliver, self._after_turn)
        self.network = self._make_network(FATES[fate])
        self.notices = Notices(self.engine, self.network)
        self.links = Links(self.engine, self.network, self.notices)
        if any(
            isinstance(step.action, faults.Rule) and step.action.match.connection
            for step in scenario.timeline
        ):
            self.network.connections = {}
        self.rig = self._tracer(RIG, "rig")
        self.nemesis = Nemesis(self)
        self.nemesis.rebuild_paths()
        self._start_all()

    def _make_network(self, fate: Fate) -> Network:
        if not self._is_stream:
            return Network(fate, self.seed, self.engine.arrive)
        return StreamNetwork(
            fate,
            self.seed,
            self.engine.arrive,
            self.engine.call,
            self._lose_connection,
            self._transport_setting("max_send_buffers"),
        )

    def _is_cut(self, load: Load) -> bool:
        """Whether messages of a load take more than one seqno."""
        frag = self.settings.fragments
        return frag is not None and load.size[1] > frag.frag_size

    def _transport_setting(self, name: str) -> int:
        """A bound that only some transports have; 0 is none."""
        return int(getattr(self.settings.transport_config, name, 0))

    def run(self) -> SimulatedRun:
        """Workload and timeline to their ends, then quiet until everything had time to settle."""
        engine, limit = self.engine, self.scenario.limits.run
        base = base_text(self.scenario.network)
        if base is not None:
            self.rig.record(trace.FAULT, engine.now, text=json.dumps(base))
        steps = schedule(self.scenario, self.seed)
        names = self.scenario.cluster.members
        for step in steps:
            if isinstance(step.action, faults.Restart | faults.Join):
                who = step.action.member
                # Whom a role stands for is not known yet: it may be anyone.
                for name in [who] if who in names else names:
                    self._last_start[name] = step.at
            engine.call(step.at, partial(self.nemesis.do, step))
        for load in self.scenario.workload:
            self._begin_load(load)
        engine.run(max([step.at for step in steps], default=0.0))
        while (self._open_loads or self._has_backlog()) and engine.now < limit:
            engine.run(min(limit, engine.now + 0.5))
        has_backlog = self._has_backlog()
        complete = not self._open_loads and not has_backlog
        stalled_for = engine.now - self._last_delivery if has_backlog else 0.0
        self.rig.record(trace.PHASE, engine.now, text="quiet")
        engine.run(engine.now + self._settle_seconds())
        return self._finish(complete=complete, stalled_for=stalled_for)

    def _has_backlog(self) -> bool:
        """Whether a living member still holds unnumbered messages for another, or for its group."""
        living = [host for host in self.members.values() if host.is_alive]
        dests = [host.short for host in living]
        if self._has_group:
            dests.append(wire.GROUP)
        return any(host.stack.pending(dest) for host in living for dest in dests)

    def _settle_seconds(self) -> float:
        """Longer than the bounds of what may still go on, so that its end can be seen: of quiet,
        and of a group that has yet to expel the dead and to find who was cut off."""
        promised = [host.stack.bounds() for host in self.members.values()]
        quiet = max((_finite(one, "quiet_within") for one in promised), default=0.0)
        regroup = max(
            (sum(map(partial(_finite, one), REGROUPING)) for one in promised), default=0.0
        )
        return max(self.scenario.limits.settle, regroup + 1.5 * quiet)

    def _finish(self, *, complete: bool, stalled_for: float) -> SimulatedRun:
        now = self.engine.now
        bites = self.network.bites
        self.rig.record(trace.PHASE, now, text="end")
        for fault, kind in self.nemesis.kinds.items():
            bit = bites.get(fault, 0)
            self.rig.record(
                trace.PROBE, now, text=json.dumps({"id": fault, "do": kind, "bit": bit})
            )
        self.rig.seal()
        for host in self.members.values():
            if host.is_alive:
                host.stack.unicast.gauge(now)
                host.stack.flush(now)
            host.tracer.seal()
        return SimulatedRun(
            traces={label: b"".join(blocks) for label, blocks in self._blocks.items()},
            events=self.engine.events,
            seconds=now,
            sent=self.sent,
            delivered=self.delivered,
            bites={fault: bites.get(fault, 0) for fault in self.nemesis.kinds},
            kinds=dict(self.nemesis.kinds),
            mismatches=self.mismatches,
            sent_by_pair=self.sent_by_pair,
            reached=self.reached,
            complete=complete,
            stalled_for=stalled_for,
            views=self.views,
            lives=self.lives,
            control=self._control_totals(sum),
            control_most=self._control_totals(max),
        )

    def _control_totals(self, of: Callable[[list[int]], int]) -> dict[str, int]:
        """Control frames of all incarnations, by protocol and kind."""
        counts: dict[bytes, list[int]] = {}
        for sent in self._control.values():
            for key, number in sent.items():
                if key[0] != wire.DATA:
                    counts.setdefault(key, []).append(number)
        return {
            f"{wire.PROTOCOLS[key[1]]}/{wire.KINDS[key[0]][0]}": of(numbers)
            for key, numbers in sorted(counts.items())
        }

    # -- Members -----------------------------------------------------------------------------

    def _start_all(self) -> None:
        """Bring up everyone who does not come later: all at once, or each when the last one is
        in."""
        cluster = self.scenario.cluster
        early = [name for name in cluster.members if name not in cluster.late]
        if cluster.joins == "one-by-one":
            self.engine.call(0.0, partial(self._start_in_turn, early))
        else:
            for name in early:
                self.start(name)

    def _start_in_turn(self, waiting: list[str]) -> None:
        """Start the first who waits, and the next once that one has a view, or is gone."""
        name, *rest = waiting
        if name not in self.members:
            self.start(name)
        host = self.members[name]
        if host.is_alive and host.is_grouped and host.stack.view is None:
            rest = waiting
        if rest:
            again = self.engine.now + JOIN_POLL_SECONDS
            self.engine.call(again, partial(self._start_in_turn, rest))

    def start(self, name: str) -> None:
        """Bring a member up as a new incarnation: nobody will mistake it for an earlier one."""
        incarnation = self._incarnations[name] = self._incarnations.get(name, 0) + 1
        label = f"{name}-{incarnation}"
        identity = xxh3_128_intdigest(f"{self.seed}/{name}/{incarnation}".encode()) or 1
        address = Address(identity, name)
        tracer = self._tracer(address.short, label)
        now = self.engine.now
        stack = Stack(
            address,
            "sim",
            self._own_settings.get(name, self.settings),
            xxh3_64_intdigest,
            tracer,
            now,
            dice=Random(f"{self.seed}/{label}"),
            first_conn=self.scenario.cluster.unicast_first_conn or 1,
            make_unicast=self._make_unicast,
            make_multicast=self._make_multicast,
            make_codec=partial(SharingCodec, last=self._last_frame),
        )
        host = Host(name, stack, tracer)
        host.label = label
        if self._is_stream:
            # A full receiver stops its senders; nothing is thrown away on the way to it.
            host.held_limit = UNBOUNDED
        host.held_limit = self._transport_setting("receive_queue") or host.held_limit
        self.members[name] = host
        self.engine.hosts[address.short] = host
        self._names[address.short] = name
        self._labels[address.short] = label
        self.lives[label] = Life(name, now, inf)
        self._forget_routes()
        if host.is_grouped:
            self.engine.call(now, partial(self._begin, host))

    def _begin(self, host: Host) -> None:
        """Have a member join its group."""
        if host.is_alive:
            host.stack.start(self.engine.now)
            self.engine.end_turn(host)

    def _forget_routes(self) -> None:
        """Where multicast datagrams go changes with every member that comes or goes."""
        for host in self.members.values():
            host.group = None

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
        if not host.is_alive:
            return
        host.is_alive = False
        host.tracer.seal()
        self._end_process(host)

    def is_leaving(self, host: Host) -> bool:
        """Whether a member was told to leave."""
        return host.short in self._leaving

    def leave(self, host: Host) -> None:
        """Have a member leave; its process ends when the protocol is through with it."""
        if host.short in self._leaving:
            return
        self._leaving.add(host.short)
        if host.is_grouped:
            host.stack.leave(self.engine.now)
        else:
            self._stop(host)

    def _stop(self, host: Host) -> None:
        """A process that is through with its work says its last words, and ends."""
        send = self._send_on_streams if self._is_stream else self._send
        for dest, head, body in host.stack.stop(self.engine.now):
            send(host, dest, head + body)
        self.crash(host)

    def stall(self, host: Host) -> None:
        """Have the application take nothing more; with a receive queue, it blocks the receiver."""
        host.stack.set_consuming(False, self.engine.now)
        host.is_clogged = self._transport_setting("receive_queue") > 0

    def consume(self, host: Host) -> int:
        """Have the application take what waits for it; returns how many frames did."""
        host.stack.set_consuming(True, self.engine.now)
        if host.is_clogged:
            return self.engine.unclog(host)
        return 0

    def _end_process(self, host: Host) -> None:
        """What its operating system does for a process that ended."""
        label = host.label
        self.lives[label] = self.lives[label]._replace(end=self.engine.now)
        self._forget_routes()
        self.links.end_process(host)
        if isinstance(self.network, StreamNetwork):
            for peer in self.network.end_process(host.short):
                other = self.engine.hosts.get(peer)
                if other is not None and other.is_alive:
                    told = partial(self._tell_connection_lost, other, host.short)
                    self.notices.send(host.name, other.name, told)
        if host.is_grouped:
            for name in self.members:
                self._write_off((host.name, name))
                self._write_off((name, host.name))

    def _lose_connection(self, source: int, dest: int) -> None:
        """A kernel gave a connection up: it says so here, and there as soon as word can pass."""
        here, there = self.engine.hosts[source], self.engine.hosts[dest]
        self._tell_connection_lost(here, dest)
        told = partial(self._tell_connection_lost, there, source)
        self.notices.send(here.name, there.name, told)

    def _tell_connection_lost(self, host: Host, peer: int) -> None:
        engine = self.engine
        engine.tell(host, lambda: host.stack.on_connection_lost(peer, engine.now))

    # -- The group -------------------------------------------------------------------------------

    def coordinator(self) -> Host | None:
        """Whom most members hold for the coordinator; where nobody has a view, the first member."""
        living = [host for host in self.members.values() if host.is_alive]
        votes = Counter(
            host.stack.view.coordinator.short for host in living if host.stack.view is not None
        )
        hosts = self.engine.hosts
        for short, _number in votes.most_common():
            if short in hosts and hosts[short].is_alive:
                return hosts[short]
        return living[0] if living else None

    def participant(self, fault: str) -> Host | None:
        """A living member that does not coordinate."""
        first = self.coordinator()
        fitting = [host for host in self.members.values() if host.is_alive and host is not first]
        return Random(f"{self.seed}:{fault}").choice(fitting) if fitting else None

    def _after_turn(self, host: Host) -> None:
        """What a group's stack has to say besides frames and messages."""
        stack = host.stack
        links = stack.take_links()
        if links:
            self.links.change(host, links)
        for view in stack.take_views():
            self._note_view(host, view)
        stack.take_abandoned()
        if host.is_counting:
            self._count_numbered(host, self._multicasts[host.short])
        if stack.has_left and host.is_alive:
            self._stop(host)

    def _note_view(self, host: Host, view: View) -> None:
        seen = self.views.setdefault(host.label, [])
        labels = tuple(self._labels.get(member.short, str(member)) for member in view.members)
        creator = self._labels.get(view.id.creator.short, str(view.id.creator))
        before = seen[-1].members if seen else ()
        seen.append(ViewSeen(self.engine.now, view.id.number, creator, labels))
        for label in set(before).difference(labels):
            name = self.lives[label].name
            self._write_off((host.name, name))
            self._write_off((name, host.name))

    def _count_numbered(self, host: Host, multicasts: Multicasts) -> None:
        """Messages that were numbered in this turn are for the members of the view at its end."""
        numbered = multicasts.accepted - host.stack.pending(wire.GROUP)
        number = numbered - multicasts.counted
        if number <= 0:
            return
        multicasts.counted = numbered
        host.is_counting = multicasts.accepted > numbered
        members = host.stack.view.members if host.stack.view is not None else ()
        for member in members:
            other = self.engine.hosts.get(member.short)
            if other is None or not self._takes_from(other, host):
                continue
            if other is not host or multicasts.looped:
                pair = host.name, other.name
                self.sent_by_pair[pair] = self.sent_by_pair.get(pair, 0) + number

    @staticmethod
    def _takes_from(host: Host, sender: Host) -> bool:
        """Whether a member is in a view with a sender, as far as it knows, or about to be."""
        stack = host.stack
        if stack.view is None or stack.multicast is None:
            return host.is_alive
        return host.is_alive and sender.short in stack.multicast.members

    def _write_off(self, pair: Pair) -> None:
        """Two members parted: what has not arrived between them need not arrive any more."""
        sent = self.sent_by_pair.get(pair)
        if sent is not None:
            reached = self.reached.get(pair)
            self.sent_by_pair[pair] = min(sent, reached[-1][1] if reached else 0)

    # -- Frames and messages ---------------------------------------------------------------------

    def _send(self, host: Host, dest: int, frame: bytes) -> None:
        if host.is_grouped:
            self._count_control(host, frame)
        path = host.routes.get(dest)
        if path is None:
            if dest <= 0:
                self._send_to_group(host, frame)
                return
            name = self._names.get(dest)
            if name is None or name == host.name:
                return
            path = host.routes[dest] = self.network.path(host.name, name)
        self.network.send(path, dest, frame, self.engine.now)

    def _send_to_group(self, host: Host, frame: bytes) -> None:
        """A multicast datagram: every station hears it, each on its own path."""
        group = host.group
        if group is None:
            group = host.group = [
                (self.network.path(host.name, other.name), other.short)
                for other in self.members.values()
                if other.is_alive and other is not host and other.name != host.name
            ]
        engine = self.engine
        self.network.send_to_each(group, frame, engine.now, engine.arrive_at_each)

    def _send_on_streams(self, host: Host, dest: int, frame: bytes) -> None:
        """Over connections, what is for a group goes to each of its members."""
        dests: tuple[int, ...] = (dest,)
        if dest == wire.GROUP:
            dests = host.stack.destinations()
        elif dest < 0:
            dests = tuple(other.short for other in self.members.values() if other is not host)
        hosts, now = self.engine.hosts, self.engine.now
        network, name, routes = self.network, host.name, host.routes
        sent = 0
        for short in dests:
            other = hosts.get(short)
            # To a process that is gone there is no connection: it is refused, and nothing sent.
            if other is not None and other.is_alive and other.name != name:
                path = routes.get(short)
                if path is None:
                    path = routes[short] = network.path(name, other.name)
                network.send(path, short, frame, now)
                sent += 1
        if sent and host.is_grouped:
            self._count_control(host, frame, sent)

    def _count_control(self, host: Host, frame: bytes, sent: int = 1) -> None:
        counts = self._control.get(host.short)
        if counts is None:
            counts = self._control[host.short] = {}
        what = frame[4:6]
        counts[what] = counts.get(what, 0) + sent

    def _deliver(self, host: Host, deliveries: list[Delivery]) -> None:
        """The application: recognises every message, and keeps count."""
        now = self._last_delivery = self.engine.now
        for delivery in deliveries:
            source = delivery.source
            stream = self._streams.get((source, delivery.dest))
            number = delivery.hi - delivery.lo + 1
            if delivery.conn and not self._is_unordered:
                self._check_place(host, delivery)
            self.delivered += number
            if stream is None or not stream.recognises_all(delivery.messages):
                self.mismatches.append(
                    f"{host.name} t={now:.6f} "
                    f"got from {self._names.get(source)} "
                    f"conn {delivery.conn} seqnos {delivery.lo}..{delivery.hi}: not what was sent"
                )
            pair = self._names[source], host.name
            reached = self.reached.get(pair)
            if reached is None:
                self.reached[pair] = [(now, number)]
            else:
                reached.append((now, reached[-1][1] + number))

    def _check_place(self, host: Host, delivery: Delivery) -> None:
        """A connection carries a stretch of the stream: its n-th message is always as far along."""
        key = delivery.source, host.short, delivery.conn
        expected = self._places.get(key)
        for seqno, payload in enumerate(delivery.messages, delivery.lo):
            place = int.from_bytes(payload[:INDEX_BYTES], "big") - seqno
            if expected is None:
                expected = self._places[key] = place
            elif place != expected:
                self.mismatches.append(
                    f"{host.name} t={self.engine.now:.6f} got message {place + seqno} of "
                    f"{self._names.get(delivery.source)} as conn {delivery.conn} seqno {seqno}"
                )
                return

    # -- Traffic -----------------------------------------------------------------------------

    def _begin_load(self, load: Load) -> None:
        flags = sum(FLAG_BITS[name] for name in load.flags)
        for source, dest in self._lanes(load):
            self._open_loads += 1
            sending = Sending(load, source, dest, flags)
            self.engine.call(load.start, partial(self._offer, sending))

    @staticmethod
    def _lanes(load: Load) -> list[tuple[str, str | None]]:
        """Who sends to whom; a multicast is one message to all."""
        if load.do == "multicast":
            return [(source, None) for source in load.sources]
        return list(load.pairs())

    def _offer(self, sending: Sending) -> None:
        """One tick of a load: a burst, and whatever was refused before."""
        load, now = sending.load, self.engine.now
        if sending.offered < load.count and now >= sending.next_burst:
            number = min(load.burst, load.count - sending.offered)
            sending.offered += number
            sending.owed += number
            sending.next_burst = now + load.burst / load.rate
        host = self.members.get(sending.source)
        if host is not None and host.is_alive and not host.is_paused:
            self._send_owed(sending, host)
        is_over = self._is_gone(sending.source) or (self._has_group and self._is_gone(sending.dest))
        if is_over or (sending.offered >= load.count and not sending.owed):
            self._open_loads -= 1
            return
        wait = RETRY_SECONDS if sending.offered >= load.count else sending.next_burst - now
        if sending.owed:
            wait = min(wait, RETRY_SECONDS)
        self.engine.call(now + max(wait, 1e-6), partial(self._offer, sending))

    def _send_owed(self, sending: Sending, host: Host) -> None:
        dest = self._dest_now(sending, host)
        if dest is None:
            return
        stream = self._stream(host, dest)
        load = sending.load
        flags = sending.flags
        accepted = 0
        while sending.owed:
            index = stream.sent
            bits = flags | OOB if load.oob_every and (index + 1) % load.oob_every == 0 else flags
            if not host.stack.try_send(dest, stream.payload(index, load.size), bits):
                break
            stream.sent += 1
            sending.owed -= 1
            accepted += 1
        self.sent += accepted
        if accepted and sending.dest is not None:
            pair = sending.source, sending.dest
            self.sent_by_pair[pair] = self.sent_by_pair.get(pair, 0) + accepted
        elif accepted:
            multicasts = self._multicasts.setdefault(host.short, Multicasts())
            multicasts.accepted += accepted
            host.is_counting = True
            multicasts.looped = not flags & DONT_LOOPBACK
        self.engine.end_turn(host)

    def _dest_now(self, sending: Sending, host: Host) -> int | None:
        """Where a load's next messages go; None while they cannot: an application of a group sends
        when it is in, and to who is in with it."""
        other = self.members.get(sending.dest) if sending.dest is not None else None
        if not host.is_grouped:
            return None if other is None else other.short
        view = host.stack.view
        if view is None or host.short in self._leaving:
            return None
        if sending.dest is None:
            return wire.GROUP
        if other is None or all(member.short != other.short for member in view.members):
            return None
        return other.short

    def _stream(self, host: Host, dest: int) -> Stream:
        stream = self._streams.get((host.short, dest))
        if stream is None:
            stream = stream_of(self.seed, host.name, host.short, dest)
            self._streams[host.short, dest] = stream
        return stream

    def _is_gone(self, name: str | None) -> bool:
        """Whether a member is down, or going, and no step of the schedule will start it again."""
        if name is None or self.engine.now < self._last_start.get(name, 0.0):
            return False
        host = self.members.get(name)
        if host is None:
            return name in self.scenario.cluster.late
        return not host.is_alive or host.short in self._leaving
