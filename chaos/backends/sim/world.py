"""Members in virtual time: their processes as hosts of the engine, and the network and operating
system between them. The backend starts and ends members here, asks them, and runs the engine.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import TYPE_CHECKING, Any, Final

from stormcast.chaos.backends.base import ClusterPlan
from stormcast.chaos.backends.sim.engine import Engine, Host
from stormcast.chaos.backends.sim.hosts import UNBOUNDED, HostMaker
from stormcast.chaos.backends.sim.links import Links, LostConnections, Notices
from stormcast.chaos.backends.sim.members import SimMember
from stormcast.chaos.backends.sim.network import Network
from stormcast.chaos.backends.sim.paths import Paths
from stormcast.chaos.backends.sim.sending import FrameSender, StreamSender
from stormcast.chaos.backends.sim.strangers import Strangers
from stormcast.chaos.backends.sim.streams import StreamNetwork
from stormcast.chaos.backends.sim.traces import Traces
from stormcast.chaos.faults.fate import FATES, Fate
from stormcast.node.core.model import Delivery
from stormcast.node.keys.cluster_keys import ClusterKey
from stormcast.node.member.loads import Load
from stormcast.node.member.settings import MemberSettings
from stormcast.node.payloads import INDEX_BYTES
from stormcast.node.protocols.unicast import Unicast

if TYPE_CHECKING:
    from stormcast.chaos.backends.sim.keys import SimKeys

UNDER_WAY: Final = 300.0
"""Seconds for which something may be under way to a host."""


class World:
    """One cluster: its members, network and clock."""

    def __init__(
        self,
        plan: ClusterPlan,
        settings: Mapping[str, MemberSettings],
        *,
        fate: str = "xxh3",
        make_unicast: Callable[..., Unicast] | None = None,
        make_multicast: Callable[..., Any] | None = None,
        keys: tuple[ClusterKey, ...] = (),
    ) -> None:
        self.members: dict[str, SimMember] = {}
        """The newest incarnation of each member."""
        self.mismatches: list[str] = []
        """Messages that an application got other than they were sent, of all incarnations."""
        self.is_in_order = not any(member.config.get("historical") for member in plan.members)
        """Whether each connection carries its messages in the order in which they were accepted."""
        self._settings = settings
        self._traces = Traces(plan.trace_bytes)
        self._keys = _keys_of(plan, keys)
        self._maker = HostMaker(
            plan, settings, self._traces, self._keys, make_unicast, make_multicast
        )
        self._people: dict[int, SimMember] = {}
        """Every incarnation that is not forgotten, by short id."""
        self._gone_since: dict[int, float] = {}
        """By short id, when it was first noticed that an incarnation was gone."""
        self._leaving: set[int] = set()
        make_sender = StreamSender if self._maker.is_stream else FrameSender
        self.sender = make_sender(self.members)
        self.engine = Engine(self.sender.send, self._deliver, self._after_turn)
        self.network = self._make_network(FATES[fate])
        self.sender.connect(self.engine, self.network)
        self._notices = Notices(self.engine, self.network)
        self._links = Links(self.engine, self.network, self._notices)
        self._lost = LostConnections(self.engine, self._notices)
        self.strangers = Strangers(self.engine, self.network)
        self.paths = Paths(self.network, self.strangers, plan.names, self._on_new_paths)

    def _make_network(self, fate: Fate) -> Network:
        if not self._maker.is_stream:
            return Network(fate, self.engine.arrive)
        network = StreamNetwork(
            fate,
            self.engine.arrive,
            self.engine.call,
            self.engine.take_away,
            lambda *ends: self._lost.give_up(*ends),  # noqa: PLW0108 it is made after the network
            self._maker.transport_setting("max_send_buffers"),
        )
        self.engine.on_unopened = lambda host, frame: network.end_unopened(
            host.short, frame, self.engine.now
        )
        return network

    def _on_new_paths(self) -> None:
        for host in self.engine.hosts.values():
            host.routes.clear()
            host.group = None
        self.network.on_change(self.engine.now)
        self._notices.retry()

    def name_of(self, short: int) -> str:
        """Return the name of the member that an incarnation belongs to, by its short id."""
        host = self.engine.hosts.get(short)
        return f"{short:08x}" if host is None else host.name

    def note_loads(self, loads: tuple[Load, ...]) -> None:
        """Clear `is_in_order` if a load has messages without a seqno (NO_RELIABILITY), with several
        (fragments), or too small to hold their index: then seqnos do not follow the indexes."""
        frag = self._maker.stack.fragments
        most = UNBOUNDED if frag is None else frag.frag_size
        if any(
            "NO_RELIABILITY" in load.flags or load.size[0] < INDEX_BYTES or load.size[1] > most
            for load in loads
        ):
            self.is_in_order = False

    # -- Processes -----------------------------------------------------------------------------

    def start(self, name: str) -> None:
        """Start a member as a new incarnation, with an identity of its own."""
        host = self._maker.make(name, self.engine.now)
        self.engine.hosts[host.short] = host
        self.members[name] = self._people[host.short] = SimMember(self, host, self._settings[name])
        self._forget_routes()
        if host.is_grouped:
            self.engine.call(self.engine.now, partial(self._begin, host))

    def change_keys(self, step: str) -> None:
        """Change the keys of all members. Each member rereads them at its own moment of the next
        second; a paused one does so after it was resumed and has taken what came meanwhile."""
        assert self._keys is not None, "a run without keys has no feature to change them"
        for short, delay, look in self._keys.change(step):
            if host := self.engine.hosts.get(short):
                self._look_later(host, delay, look)

    def _look_later(self, host: Host, delay: float, look: Callable[[], None]) -> None:
        def look_now() -> None:
            if host.is_paused:
                host.mail.append(partial(self._look_later, host, delay, look))
            else:
                look()

        self.engine.call(self.engine.now + delay, look_now)

    def _begin(self, host: Host) -> None:
        """Have a member join its group."""
        if host.is_alive:
            host.stack.start(self.engine.now)
            self.engine.end_turn(host)

    def _forget_routes(self) -> None:
        """Forget where multicast datagrams go, because a member was started or has ended."""
        for member in self.members.values():
            member.host.group = None

    def crash(self, host: Host) -> None:
        """End a member as a kill does: it sends nothing more, and its journal keeps all events
        recorded so far."""
        if not host.is_alive:
            return
        host.is_alive = False
        host.tracer.seal()
        self._end_process(host)

    def is_leaving(self, host: Host) -> bool:
        """Whether a member was told to leave."""
        return host.short in self._leaving

    def leave(self, host: Host) -> None:
        """Have a member leave; its process ends when the leaving is done."""
        if host.short in self._leaving:
            return
        self._leaving.add(host.short)
        host.tells_news = True
        engine = self.engine
        host.stack.leave(engine.now)
        patience = self._people[host.short].settings.leave_timeout
        engine.call(engine.now + patience, lambda: engine.tell(host, lambda: self._stop(host)))

    def _stop(self, host: Host) -> None:
        """End a member in order: its stack sends its last frames, then its process ends."""
        for dest, head, body in host.stack.stop(self.engine.now):
            self.sender.send(host, dest, head + body)
        self.crash(host)

    def stall(self, host: Host) -> None:
        """Have the application take no more messages; with a receive queue, that blocks the
        receiving threads, too."""
        host.stack.set_consuming(False, self.engine.now)
        host.is_clogged = self._maker.transport_setting("receive_queue") > 0

    def consume(self, host: Host) -> int:
        """Have the application take messages again; returns how many waited: messages in windows,
        and frames in the receive queue."""
        waited = host.stack.set_consuming(True, self.engine.now)
        return waited + (self.engine.unclog(host) if host.is_clogged else 0)

    def freeze(self) -> None:
        """Stop all members at one moment, for good; no member is told of another one's end."""
        for host in self._living():
            host.stack.record.flush(self.engine.now)
            host.tracer.seal()
            host.is_alive = False

    def take_traces(self) -> dict[str, bytes]:
        """Return the traces of every incarnation so far, also of those that still run."""
        for host in self._living():
            host.stack.record.flush(self.engine.now)
            host.tracer.seal()
        return self._traces.joined()

    def forget_traces(self) -> None:
        """Forget what was recorded so far, and incarnations that are gone."""
        self._traces.forget({host.label for host in self._living()})
        self.mismatches.clear()
        self._forget_hosts()

    def _forget_hosts(self) -> None:
        """Forget the hosts of incarnations that have been gone for so long that nothing is under
        way to them any more. The last one of each member stays: it may be asked for its state."""
        hosts, now = self.engine.hosts, self.engine.now
        for short in [short for short, host in hosts.items() if not host.is_alive]:
            since = self._gone_since.setdefault(short, now)
            is_last = self.members[hosts[short].name] is self._people[short]
            if now - since >= UNDER_WAY and not is_last:
                del hosts[short], self._people[short], self._gone_since[short]

    def _living(self) -> list[Host]:
        return [host for host in self.engine.hosts.values() if host.is_alive]

    def _end_process(self, host: Host) -> None:
        self._forget_routes()
        self._links.end_process(host)
        if isinstance(self.network, StreamNetwork):
            self._lost.end_process(host, self.network.end_process(host.short))

    # -- The results of a turn -----------------------------------------------------------------

    def _deliver(self, host: Host, deliveries: list[Delivery]) -> None:
        self._people[host.short].on_deliveries(deliveries)

    def _after_turn(self, host: Host) -> None:
        """Pass on a group's news after a turn: monitored connections, views, the end of leaving."""
        stack = host.stack
        news = stack.take_news()
        if news.links:
            self._links.change(host, news.links)
        for view in news.views:
            self._people[host.short].on_view(view)
        if stack.has_left and host.is_alive:
            self._stop(host)


def _keys_of(plan: ClusterPlan, given: tuple[ClusterKey, ...]) -> SimKeys | None:
    """Return the keys of sealed members: those that were given, or one that is drawn."""
    if not plan.sealed:
        return None
    from stormcast.chaos.backends.sim.keys import SimKeys  # noqa: PLC0415 as members do

    return SimKeys(plan.seed, given)
