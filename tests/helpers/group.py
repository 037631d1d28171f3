"""A group on a virtual wire: the world of the unicast tests, with views and multicasts.

`GroupWorld("ABC")` is a group whose view was installed by hand, so that nothing else changes it;
`GroupWorld("ABC", joined=False)` are processes that have yet to find each other.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from functools import partial
from typing import Any

from stormcast.chaos.backends.sim.engine import Host
from stormcast.chaos.faults import Link
from stormcast.node.core import wire
from stormcast.node.core.ack_table import AckTable
from stormcast.node.core.digest import Digest
from stormcast.node.core.model import Address, View, ViewId
from stormcast.node.core.wire import GROUP
from stormcast.node.protocols.events import BecameServer, Install
from stormcast.node.protocols.multicast import Multicast
from stormcast.node.protocols.multicast.inbound import Inbound
from stormcast.node.protocols.multicast.retention import UntilAcked
from stormcast.node.settings.transports import STREAMS
from tests.helpers.world import ALWAYS, Member, Sent, World, numbered

STACKS = ("udp", "mcast")
QUIET: Mapping[str, Mapping[str, object]] = {
    "MERGE3": {"min_interval": 1000.0, "max_interval": 2000.0, "check_interval": 4000.0},
    "FD_ALL3": {"timeout": 4000.0, "interval": 1000.0},
}
"""Settings under which nothing is heard of detectors and merging: for tests of multicast alone."""


class GroupWorld(World):
    """Some members of one group, and the wire between them."""

    def __init__(
        self,
        members: str = "ABC",
        stack: str = "udp",
        timing: str = "compatible",
        *,
        joined: bool = True,
        protocols: Mapping[str, Mapping[str, object]] | None = None,
        **rest: Any,
    ) -> None:
        self._watched: set[tuple[int, int]] = set()
        self.seen: dict[str, list[View]] = {}
        """Every view that each member's application was told of."""
        self.on_view: Callable[[str, View], None] | None = None
        """What applications do in their view callback: called with the member's name."""
        wanted = {**(QUIET if joined else {}), **(protocols or {})}
        super().__init__(timing=timing, members=members, stack=stack, protocols=wanted, **rest)
        if joined:
            self.install(members)

    # -- The wire --------------------------------------------------------------------------------

    def weather(
        self, seed: int = 0, *, loss: float = 0.0, copies: float = 0.0, spread: float = 0.0
    ) -> None:
        """From now on any frame may be lost, doubled, or up to `spread` seconds later; `heal` ends
        it. A wire that only reorders is what streams with many readers are."""
        self.seed = seed
        self.link = Link(delay=self.delay, loss=loss, duplicate=copies, jitter=spread)
        self._renew_paths()

    def heal(self) -> None:
        self.link = Link(delay=self.delay)
        super().heal()

    def transmit(self, host: Host, dest: int, frame: bytes) -> None:
        """Over connections a multicast is sent to the members that its sender knows."""
        if dest == GROUP and self.settings.transport in STREAMS:
            for member in host.stack.destinations():
                self._transmit(host, member, frame)
        else:
            super().transmit(host, dest, frame)

    def reconnect(self, one: str, other: str) -> None:
        """The connection between two members was replaced, and both transports say so."""
        for here, there in ((one, other), (other, one)):
            self[here].stack.on_connection_lost(self.short(there), self.now)
            self[here].turn()

    # -- Monitored connections -------------------------------------------------------------------

    def _after_turn(self, host: Host) -> None:
        news = host.stack.take_news()
        for peer, wanted in news.links:
            self._watched.discard((host.short, peer))
            if wanted:
                self._watched.add((host.short, peer))
                self.engine.call(self.now + 2 * self.delay, partial(self._answer_link, host, peer))
        for view in news.views:
            self.seen.setdefault(host.name, []).append(view)
            if self.on_view is not None:
                self.on_view(host.name, view)

    def _answer_link(self, host: Host, peer: int) -> None:
        target = self._members.get(peer)
        if target is None:
            return
        here, there = host.name, target.name
        if here != there and (self.is_cut(here, there) or self.is_cut(there, here)):
            return
        self._tell_link(host, peer, target.host.is_alive)

    def _tell_link(self, host: Host, peer: int, is_up: bool) -> None:
        if host.is_alive and (host.short, peer) in self._watched:
            host.stack.on_link(peer, is_up, self.now)
            self.engine.end_turn(host)

    def ended(self, member: Member) -> None:
        for watcher, peer in sorted(self._watched):
            if peer == member.short:
                host = self._members[watcher].host
                self.engine.call(self.now + self.delay, partial(self._tell_link, host, peer, False))

    # -- Membership ------------------------------------------------------------------------------

    def install(self, members: str, at: str | None = None, number: int | None = None) -> View:
        """Install one view at all its members, or at some."""
        self.views = number or self.views + 1
        addresses = tuple(Address(self.identity(name), name) for name in members)
        view = View(ViewId(self.views, addresses[0]), addresses)
        for name in members if at is None else at:
            self[name].stack.install_view(view, self.now)
            self[name].turn()
        return view

    def install_digest(
        self,
        at: str,
        members: str,
        digest: Mapping[str, tuple[int, int]],
        mutual: Collection[str] | None = None,
    ) -> None:
        """Install a view at one member with a digest: as a joiner, or as after a merge."""
        self.views += 1
        addresses = tuple(Address(self.identity(name), name) for name in members)
        seqnos = {self.short(name): pair for name, pair in digest.items()}
        stayed = None if mutual is None else frozenset(map(self.short, mutual))
        member = self[at]
        group = member.stack.group
        assert group is not None
        role = member.stack.role
        role.view = View(ViewId(self.views, addresses[0]), addresses)
        group.events.on_event(Install(role.view, Digest(seqnos), stayed), self.now)
        if not role.is_server:
            role.is_server = True
            group.events.on_event(BecameServer(), self.now)
        member.turn()

    def multicast(self, source: str, *payloads: bytes, flags: int = 0) -> None:
        """Multicast in one turn; nothing may be refused."""
        assert self.offer(source, *payloads, flags=flags) == len(payloads)

    def offer(self, source: str, *payloads: bytes, flags: int = 0) -> int:
        """Multicast until one is refused, in one turn; returns how many were accepted."""
        member = self[source]
        accepted = 0
        for payload in payloads:
            if not member.stack.try_send(GROUP, payload, flags):
                break
            accepted += 1
        member.turn()
        return accepted

    def join(self, *names: str) -> None:
        """Have members begin to join, now."""
        for name in names:
            self[name].stack.start(self.now)
            self[name].turn()

    def leave(self, name: str) -> None:
        """Have a member begin to leave, gracefully."""
        self[name].stack.leave(self.now)
        self[name].turn()

    def depart(self, *names: str) -> None:
        """Have members leave at once; each process ends once it is out."""
        for name in names:
            self.leave(name)
        self.advance_until(lambda: all(self[name].stack.has_left for name in names), 60.0)
        for name in names:
            self[name].stop()
            self.ended(self[name])

    def comes_back(self, name: str) -> None:
        """Another process of that name joins."""
        self.start(name)
        self.join(name)

    def settle(self) -> None:
        """Let the time pass in which all promise to have repaired and purged everything."""
        self.advance(max(self._promised(member) for member in self))

    def _promised(self, member: Member) -> float:
        bounds = member.stack.record.bounds()
        votes = bounds.get("STABLE", {}).get("vote_within", 0.0)
        return max(promise.get("quiet_within", 0.0) for promise in bounds.values()) + 2 * votes

    def advance_until(self, condition: Callable[[], bool], limit: float) -> float:
        """Let time pass until something is so; returns how long it took."""
        began = self.now
        while not condition():
            assert self.now - began < limit, f"not within {limit} s"
            self.advance(0.01)
        return self.now - began

    # -- Looking inside --------------------------------------------------------------------------

    def views_agree(self, names: str) -> bool:
        """Whether all of them hold one view with just these processes in it, in any order."""
        held = {self[name].stack.view for name in names}
        (view, *others) = held
        wanted = {self[name].address for name in names}
        return not others and view is not None and set(view.members) == wanted

    def sizes(self, name: str) -> list[int]:
        """Of every view that a member's application was told of."""
        return [len(view.members) for view in self.seen.get(name, ())]

    def view(self, name: str) -> str:
        """Names of the members of somebody's view, in rank order; empty without one."""
        view = self[name].stack.view
        return "".join(member.name for member in view.members) if view else ""

    def agrees(self, names: str) -> bool:
        """Whether all of them hold one view, with just them in it."""
        views = {self[name].stack.view for name in names}
        (view, *others) = views
        return not others and view is not None and {m.name for m in view.members} == set(names)

    def machine(self, name: str) -> Multicast:
        machine = self[name].stack.multicast
        assert machine is not None
        return machine

    def acks(self, name: str) -> AckTable:
        """What the members have acked of a member's multicasts, by MCAST."""
        retention = self.machine(name).retention
        assert isinstance(retention, UntilAcked)
        return retention.acks

    def inbound(self, name: str, sender: str) -> Inbound:
        """The window of a sender at a member."""
        return self.machine(name).inbound()[self.short(sender)]

    def unpurged(self, name: str) -> int:
        """Own multicasts that a member still keeps."""
        return len(self.machine(name).own)

    def is_idle(self, name: str) -> bool:
        """Whether nobody waits for anything of a member's multicasts, nor it for others'."""
        windows = (entry.window for entry in self.machine(name).inbound().values())
        return not self.unpurged(name) and not any(window.has_gap() for window in windows)

    def got(self, name: str, sender: str) -> list[bytes]:
        """What a member's application got of a sender's multicasts and unicasts."""
        return self[name].from_(sender)

    def everyone_got(self, sender: str, wanted: list[bytes], names: str) -> bool:
        return all(self.got(name, sender) == wanted for name in names)

    def requests(self, source: str | None = None) -> list[Sent]:
        """Retransmission requests for multicasts so far."""
        return [
            sent
            for sent in self.sent(source, wire.XMIT_REQ)
            if sent.head.protocol in (wire.NAKACK2, wire.MCAST)
        ]


def formed(
    members: str,
    stack: str = "udp",
    timing: str = "compatible",
    *,
    protocols: Mapping[str, Mapping[str, object]] | None = None,
    **rest: Any,
) -> GroupWorld:
    """A group that its members formed themselves, one joining after the other."""
    world = GroupWorld(members, stack, timing, joined=False, protocols=protocols, **rest)
    for count, name in enumerate(members, 1):
        world.join(name)
        world.advance_until(lambda: world.views_agree(members[:count]), 60.0)  # noqa: B023 called at once
    world.advance(1.0)
    return world


__all__ = ["ALWAYS", "QUIET", "STACKS", "GroupWorld", "Member", "Sent", "formed", "numbered"]
