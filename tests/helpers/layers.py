"""Layers without a stack around them, on a virtual wire: one or more protocols per member.

Members are named by single letters; identities grow with them. Time moves only in `advance`. The
world does what the stack does: it hands frames to the layer that they name, and events to the
layers that should hear of them, and keeps both. Views are installed by hand.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterable, Sequence
from heapq import heappop, heappush
from itertools import count
from random import Random
from typing import Any, Final, TypeVar

from xxhash import xxh3_64_intdigest as hash64

from stormcast.node import trace
from stormcast.node.core import wire
from stormcast.node.core.codec import Codec
from stormcast.node.core.errors import BadFrame
from stormcast.node.core.model import Address, View, ViewId
from stormcast.node.core.timers import Timers
from stormcast.node.core.timing import Timing
from stormcast.node.core.wire import Head
from stormcast.node.protocols.events import Cleared, Event, Role, Suspected, Vouched
from stormcast.node.protocols.fd_all3 import FdAll3
from stormcast.node.protocols.fd_sock2 import FdSock2
from stormcast.node.protocols.layer import Layer, MemberContext
from stormcast.node.protocols.port import EVERYONE, Port
from stormcast.node.protocols.verify_suspect2 import VerifySuspect2
from stormcast.node.trace import read_blocks_untrusted
from stormcast.node.trace.tracer import Tracer

CLUSTER: Final = 7
DELAY: Final = 0.001
ALWAYS: Final = 1 << 60
"""`times` of a drop that lasts."""

E = TypeVar("E")
L = TypeVar("L", bound=Layer)


def address(name: str) -> Address:
    return Address(ord(name), name)


def addresses(names: Iterable[str]) -> tuple[Address, ...]:
    return tuple(map(address, names))


def view(number: int, members: str, creator: str = "") -> View:
    """`view(3, "ABC")` is what JGroups prints as A|3 {A, B, C}."""
    return View(ViewId(number, address(creator or members[0])), addresses(members))


@dataclasses.dataclass(slots=True)
class Sent:
    """One frame that left a member."""

    at: float
    source: str
    dest: int
    head: Head
    body: bytes


@dataclasses.dataclass(slots=True)
class _Drop:
    kinds: frozenset[int]
    sources: str
    dests: str
    times: int


class Member:
    """One member: a role, a port, timers, and its layers."""

    def __init__(self, name: str, world: Layers) -> None:
        self.name = name
        self.address = address(name)
        self.role = Role(self.address)
        self.blocks: list[bytes] = []
        self.tracer = Tracer(self.address.short, 0, hash64, self.blocks.append)
        self.codec = Codec(CLUSTER, self.address.short, hash64)
        self.port = Port(self.codec, self.tracer)
        self.timers: Timers[tuple[int, str]] = Timers()
        self.is_alive = True
        self.is_paused = False
        self.refused: dict[str, int] = {}
        self.happened: list[tuple[float, Event]] = []
        self.links: dict[int, bool] = {}
        """Monitored connections: whether they stand."""
        self.layers: list[Layer] = world.make(self)

    def layer(self, kind: type[L]) -> L:
        return next(layer for layer in self.layers if isinstance(layer, kind))

    def events(self, kind: type[E]) -> list[E]:
        return [event for _at, event in self.happened if isinstance(event, kind)]

    def moments(self, kind: type[Any]) -> list[float]:
        return [at for at, event in self.happened if isinstance(event, kind)]

    def suspicions(self) -> list[tuple[str, str]]:
        """What the trace says of suspects: (word, name) each."""
        self.tracer.seal()
        events = [
            event
            for block in self.blocks
            for each in read_blocks_untrusted(block, hash64)
            for event in each.events
        ]
        return [
            (trace.SUSPICIONS[event.stream], chr(event.peer))
            for event in events
            if event.kind == trace.SUSPECT
        ]


class Layers:
    """Members, a wire, and the time."""

    def __init__(
        self,
        names: str,
        *kinds: tuple[type[Layer], Any],
        timing: str = "compatible",
        seed: int = 0,
        loss: float = 0.0,
        extra: Callable[[Member], Sequence[Any]] = lambda _member: (),
    ) -> None:
        self.now = 0.0
        self.loss = loss
        self.delay = DELAY
        self.timing = Timing(name=timing, adaptive=timing == "fast")
        self.wire: list[Sent] = []
        self._kinds = kinds
        self._extra = extra
        self._seed = seed
        self._dice = Random(seed)
        self._flying: list[tuple[float, int, Callable[[], None]]] = []
        self._order = count()
        self._drops: list[_Drop] = []
        self._cuts: set[tuple[str, str]] = set()
        self.members = {name: Member(name, self) for name in names}
        for member in self.members.values():
            for layer in member.layers:
                layer.start(0.0)
            self._turn(member)

    def __getitem__(self, name: str) -> Member:
        return self.members[name]

    def make(self, member: Member) -> list[Layer]:
        return [
            kind(
                config,
                MemberContext(
                    member.role,
                    member.port,
                    member.timers,
                    self.timing,
                    Random(f"{self._seed}/{member.name}/{kind.protocol}"),
                ),
                *self._extra(member),
            )
            for kind, config in self._kinds
        ]

    # -- Script ---------------------------------------------------------------------------------

    def install(self, installed: View, at: str = "") -> None:
        """Install a view at these members, or at all that are in it."""
        for name in at or "".join(member.name for member in installed.members):
            member = self.members[name]
            if member.is_alive:
                member.role.view = installed
                member.role.is_server = True
                member.port.contacts.on_view(installed.members)
                for layer in member.layers:
                    layer.on_view(installed, self.now)
                self._turn(member)

    def do(self, name: str, act: Callable[[Member], object]) -> None:
        """Let something happen at a member, now."""
        member = self.members[name]
        act(member)
        self._turn(member)

    def advance(self, seconds: float) -> None:
        """Let time pass."""
        end = self.now + seconds
        while True:
            deadlines = [m.timers.next_deadline() for m in self._running()]
            flying = self._flying[0][0] if self._flying else end + 1
            due = min([*deadlines, flying])
            if due > end:
                break
            self.now = max(self.now, due)
            while self._flying and self._flying[0][0] <= self.now:
                heappop(self._flying)[2]()
            for member in self._running():
                for protocol, what in member.timers.take_due(self.now):
                    self._layer(member, protocol).on_timer(what, self.now)
                self._turn(member)
        self.now = end

    def kill(self, names: str) -> None:
        """The processes end; their connections close."""
        for name in names:
            self.members[name].is_alive = False
            self._close_links(name)

    def pause(self, name: str) -> None:
        """The process stops, but is there: nothing is answered, nothing closes."""
        self.members[name].is_paused = True

    def leave(self, name: str) -> None:
        """The member stops its layers, and is gone."""
        self.do(name, lambda member: [layer.stop(self.now) for layer in member.layers])
        self.kill(name)

    def cut(self, sources: str, dests: str) -> None:
        """Frames from these no longer reach those."""
        self._cuts |= {(source, dest) for source in sources for dest in dests}

    def split(self, *groups: str) -> None:
        """Only within a group frames arrive."""
        for group in groups:
            others = "".join(other for other in groups if other != group)
            self.cut(group, others)

    def heal(self) -> None:
        self._cuts.clear()
        self._drops.clear()
        self.loss = 0.0

    def drop(self, *kinds: int, source: str = "", dest: str = "", times: int = 1) -> None:
        """Lose the next frames of these kinds, as far as source and destination match."""
        self._drops.append(_Drop(frozenset(kinds), source, dest, times))

    def sent(self, kind: int, source: str = "", since: float = 0.0) -> list[Sent]:
        return [
            frame
            for frame in self.wire
            if frame.head.kind == kind
            and frame.source in (source or frame.source)
            and frame.at >= since
        ]

    def inject(
        self, source: str, dest: str, protocol: int, kind: int, body: bytes = b"", **fields: int
    ) -> None:
        """A frame that `source` never sent arrives at `dest`, now."""
        codec = Codec(CLUSTER, address(source).short, hash64)
        lo = fields.pop("lo", 0)
        frame = codec.pack_control(
            kind,
            protocol,
            address(dest).short,
            fields.pop("conn", 0),
            lo,
            body=body,
            **fields,
        )
        self._arrive(self.members[dest], frame)

    # -- Inside ---------------------------------------------------------------------------------

    def _running(self) -> list[Member]:
        return [m for m in self.members.values() if m.is_alive and not m.is_paused]

    def _layer(self, member: Member, protocol: int) -> Layer:
        return next(layer for layer in member.layers if layer.protocol == protocol)

    def _turn(self, member: Member) -> None:
        """What the stack does at the end of a turn."""
        port = member.port
        for layer in member.layers:
            if isinstance(layer, FdAll3) and layer.suspects:
                layer.notice(self.now)
        while port.events:
            event = port.events.pop(0)
            member.happened.append((self.now, event))
            for layer in member.layers:
                if isinstance(event, Suspected) and isinstance(layer, VerifySuspect2):
                    layer.on_suspected(event.members, self.now)
                elif (
                    isinstance(event, Cleared)
                    and isinstance(layer, FdAll3 | FdSock2 | VerifySuspect2)
                ) or (isinstance(event, Vouched) and isinstance(layer, VerifySuspect2)):
                    layer.on_cleared(event.member, self.now)
        for reason, number in port.drops.items():
            member.refused[reason] = member.refused.get(reason, 0) + number
        port.drops = {}
        links, port.links = port.links, []
        for peer, is_wanted in links:
            self._link(member, peer, is_wanted=is_wanted)
        frames, port.frames = port.frames, []
        for dest, head, body in frames:
            self._send(member, dest, head + body)

    def _send(self, member: Member, dest: int, frame: bytes) -> None:
        head, body = member.codec.unpack_untrusted(frame)
        self.wire.append(Sent(self.now, member.name, dest, head, body))
        if dest == EVERYONE:
            names = list(self.members)
        elif dest == wire.GROUP:
            names = [each.name for each in member.role.members]
        else:
            names = [chr(dest)]
        for name in names:
            other = self.members.get(name)
            if other is None or other is member or self._is_lost(member.name, name, head.kind):
                continue
            self._later(self.delay, lambda other=other: self._arrive(other, frame))  # type: ignore[misc]

    def _is_lost(self, source: str, dest: str, kind: int) -> bool:
        for rule in self._drops:
            matches = (
                kind in rule.kinds
                and source in (rule.sources or source)
                and dest in (rule.dests or dest)
            )
            if matches and rule.times:
                rule.times -= 1
                return True
        return (source, dest) in self._cuts or self._dice.random() < self.loss

    def _later(self, seconds: float, act: Callable[[], None]) -> None:
        heappush(self._flying, (self.now + seconds, next(self._order), act))

    def _arrive(self, member: Member, frame: bytes) -> None:
        if not member.is_alive or member.is_paused:
            return
        try:
            head, body = member.codec.unpack_untrusted(frame)
            self._layer(member, head.protocol).receive(head, body, self.now)
        except BadFrame as bad:
            member.port.drop(bad.reason)
        self._turn(member)

    def _link(self, member: Member, peer: int, *, is_wanted: bool) -> None:
        member.links.pop(peer, None)
        if not is_wanted:
            return
        member.links[peer] = False
        name = chr(peer)
        other = self.members[name]
        whole = not {(member.name, name), (name, member.name)} & self._cuts
        if whole and not other.is_paused:
            self._later(
                2 * self.delay, lambda: self._answer_link(member, peer, is_up=other.is_alive)
            )

    def _answer_link(self, member: Member, peer: int, *, is_up: bool) -> None:
        if peer in member.links:
            if is_up:
                member.links[peer] = True
            else:
                del member.links[peer]
            self._tell_link(member, peer, is_up=is_up)

    def _close_links(self, name: str) -> None:
        peer = address(name).short
        for member in self.members.values():
            if member.links.get(peer):
                self._later(
                    self.delay,
                    lambda member=member: self._answer_link(member, peer, is_up=False),  # type: ignore[misc]
                )

    def _tell_link(self, member: Member, peer: int, *, is_up: bool) -> None:
        if member.is_alive and not member.is_paused:
            member.layer(FdSock2).on_link(peer, is_up, self.now)
            self._turn(member)
