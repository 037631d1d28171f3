"""Members that only speak credits, over streams that lose, and windows that hold until taken."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from random import Random

from xxhash import xxh3_64_intdigest as hash64

from stormcast.node.core import wire
from stormcast.node.core.codec import Codec
from stormcast.node.core.credits import StreamEnd
from stormcast.node.core.errors import BadFrame
from stormcast.node.core.model import Address, View, ViewId
from stormcast.node.core.timers import Timers
from stormcast.node.core.timing import Timing
from stormcast.node.core.wire import Head
from stormcast.node.protocols.events import Role
from stormcast.node.protocols.flow import FlowConfig, FlowControl, Mfc, Ufc
from stormcast.node.protocols.layer import MemberContext
from stormcast.node.protocols.port import Port
from stormcast.node.trace.tracer import Tracer

CLUSTER = 0xC1
NAMES = "ABCDEFGH"


class OneWay:
    """What one member sends to another: under way, then in the receiver's window, then taken."""

    def __init__(self) -> None:
        self.conn = 1
        self.seqno = 0
        self.taken = 0
        self.on_the_way: deque[tuple[int, int, int]] = deque()
        """Seqno, bytes, and the sender's meeting with the receiver."""
        self.held: deque[tuple[int, int, int]] = deque()


class Member:
    """One flow control protocol, its port, and what waits to be sent."""

    def __init__(self, world: Flow, name: str) -> None:
        self.world = world
        self.name = name
        self.address = Address(NAMES.index(name) + 1, name)
        self.short = self.address.short
        self.role = Role(self.address)
        self.timers: Timers[tuple[int, str]] = Timers()
        tracer = Tracer(self.short, 0, hash64, lambda _block: None)
        self.port = Port(Codec(CLUSTER, self.short, hash64), tracer)
        self.layer: Ufc | Mfc = world.kind(
            world.config, MemberContext(self.role, self.port, self.timers, world.timing, Random(0))
        )
        self.layer.stand_on(self)
        self.layer.start(0.0)
        self.lanes: dict[int, deque[int]] = {}
        self.blocked: set[int] = set()
        self.meetings: dict[int, int] = {}
        self.is_consuming = True

    # -- What the protocol asks of the windows ---------------------------------------------------

    def sent(self, peer: int) -> StreamEnd:
        stream = self.world.stream(self.short, peer)
        return StreamEnd(stream.conn, stream.seqno, len(stream.on_the_way))

    def taken(self, peer: int) -> tuple[int, int] | None:
        stream = self.world.streams.get((peer, self.short))
        return None if stream is None else (stream.conn, stream.taken)

    # -- The application -------------------------------------------------------------------------

    def send(self, *sizes: int, to: str = "") -> None:
        dest = self.world[to].short if to else wire.GROUP
        self.lanes.setdefault(dest, deque()).extend(sizes)
        self.pull(dest)

    def pull(self, dest: int) -> None:
        lane = self.lanes.get(dest, deque())
        self.blocked.discard(dest)
        while lane:
            size = lane[0]
            if self.layer.room(dest) < size:
                self.blocked.add(dest)
                self.layer.blocked(dest, size, self.world.now)
                return
            lane.popleft()
            for peer in self.role.members if dest == wire.GROUP else [self.world.at(dest).address]:
                stream = self.world.stream(self.short, peer.short)
                stream.seqno += 1
                meeting = self.meetings.get(peer.short, 0)
                stream.on_the_way.append((stream.seqno, size, meeting))
            self.layer.spent(dest, size, self.world.now)

    def take(self, source: str, count: int = 1 << 30) -> int:
        """The application takes messages of `source`; returns how many there were."""
        peer = self.world[source].short
        stream = self.world.stream(peer, self.short)
        taken = 0
        while stream.held and taken < count:
            seqno, size, _meeting = stream.held.popleft()
            stream.taken = seqno
            self.layer.delivered(peer, size, stream.conn, self.world.now)
            taken += 1
        return taken

    def waits(self) -> bool:
        return bool(self.blocked)

    def pending(self) -> int:
        return sum(map(len, self.lanes.values()))

    # -- Membership ------------------------------------------------------------------------------

    def install(self, number: int, names: Iterable[str]) -> None:
        members = tuple(self.world[name].address for name in names)
        for member in members:
            if member not in self.role.members:
                self.meetings[member.short] = self.meetings.get(member.short, 0) + 1
        view = View(ViewId(number, members[0]), members)
        self.role.view = view
        self.layer.on_view(view, self.world.now)
        self.world.settle_turn(self)


class Flow:
    """Some members, a clock, and a wire for control frames that may lose and repeat."""

    def __init__(
        self,
        kind: type[FlowControl] = Ufc,
        names: str = "AB",
        *,
        seed: int = 0,
        adaptive: bool = True,
        max_credits: int = 1000,
        min_threshold: float = 0.2,
        view: bool = True,
    ) -> None:
        self.kind = kind
        self.config = FlowConfig(max_credits=max_credits, min_threshold=min_threshold)
        self.timing = Timing(adaptive=adaptive)
        self.dice = Random(seed)
        self.now = 0.0
        self.loss = 0.0
        self.copies = 0.0
        self.streams: dict[tuple[int, int], OneWay] = {}
        self.wire: list[tuple[str, str, int, Head]] = []
        """Every frame sent: from, to, kind, head."""
        self.flying: list[tuple[int, bytes]] = []
        self.members = {name: Member(self, name) for name in names}
        if view:
            self.view(1, names)

    def __getitem__(self, name: str) -> Member:
        return self.members[name]

    def at(self, short: int) -> Member:
        return self.members[NAMES[short - 1]]

    def stream(self, source: int, dest: int) -> OneWay:
        return self.streams.setdefault((source, dest), OneWay())

    def view(self, number: int, names: Iterable[str], *, at: str = "") -> None:
        for name in at or names:
            self[name].install(number, names)

    def reset(self, source: str, dest: str) -> None:
        """The connection is replaced: what was not taken is lost."""
        stream = self.stream(self[source].short, self[dest].short)
        stream.conn += 1
        stream.seqno = stream.taken = 0
        stream.on_the_way.clear()
        stream.held.clear()

    def arrive(self, source: str, dest: str, count: int = 1 << 30) -> None:
        """Messages under way reach the receiver's window."""
        stream = self.stream(self[source].short, self[dest].short)
        for _ in range(min(count, len(stream.on_the_way))):
            stream.held.append(stream.on_the_way.popleft())

    def outstanding(self, source: Member, dest: Member) -> int:
        """Bytes of the sender's present meeting that were sent and not taken."""
        stream = self.stream(source.short, dest.short)
        meeting = source.meetings.get(dest.short, 0)
        return sum(
            size
            for queue in (stream.on_the_way, stream.held)
            for _, size, at in queue
            if at == meeting
        )

    # -- Frames and time -------------------------------------------------------------------------

    def count(self, kind: int, source: str, dest: str) -> int:
        return sum(1 for entry in self.wire if entry[:3] == (source, dest, kind))

    def settle_turn(self, member: Member) -> None:
        """The end of a member's turn: frames leave, who was woken goes on."""
        port = member.port
        while port.frames or port.woken:
            frames, port.frames = port.frames, []
            for dest, frame, body in frames:
                assert not body
                head = Head._make(wire.HEAD_STRUCT.unpack(frame))
                self.wire.append((member.name, self.at(dest).name, head.kind, head))
                for _ in range(1 + (self.dice.random() < self.copies)):
                    if self.dice.random() >= self.loss:
                        self.flying.append((dest, frame))
            woken, port.woken = port.woken, []
            for dest in woken:
                member.pull(dest)

    def exchange(self) -> None:
        """Control frames under way arrive."""
        flying, self.flying = self.flying, []
        for dest, frame in flying:
            self.hand(self.at(dest), frame)

    def hand(self, member: Member, frame: bytes) -> None:
        head, body = member.port.codec.unpack_untrusted(frame)
        try:
            member.layer.receive(head, body, self.now)
        except BadFrame as bad:
            member.port.drop(bad.reason)
        self.settle_turn(member)

    def advance(self, seconds: float = 0.0, *, step: float = 0.02) -> None:
        """Let time pass; messages arrive and are taken by those who consume."""
        end = self.now + seconds
        while True:
            for _ in range(3):
                self.turn()
            if self.now >= end:
                return
            self.now = min(end, self.now + step)

    def turn(self) -> None:
        for member in self.members.values():
            for _protocol, what in member.timers.take_due(self.now):
                member.layer.on_timer(what, self.now)
            self.settle_turn(member)
        self.exchange()
        for dest in self.members.values():
            if dest.is_consuming:
                for source in self.members:
                    self.arrive(source, dest.name)
                    dest.take(source)
                self.settle_turn(dest)
