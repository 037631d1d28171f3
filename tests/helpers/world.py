"""Real stacks on the simulator's network: the vocabulary of the behaviour tests.

Time moves only in `advance` and `settle`. Every frame that leaves a member is kept in
`world.wire`, with the moments at which it arrived. Faults are those of scenarios: the first rule
that matches a frame acts on it, by default once.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import cache
from itertools import permutations
from math import inf, nextafter
from typing import Any, Final, TypedDict, Unpack

import pytest
from xxhash import xxh3_64_intdigest as hash64

from stormcast.chaos import faults
from stormcast.chaos.backends.sim.engine import Engine, Host
from stormcast.chaos.backends.sim.keys import SimKeys
from stormcast.chaos.backends.sim.network import Arrive, Network
from stormcast.chaos.faults import Cut, Link, NetworkFault
from stormcast.chaos.faults.fate import FATES
from stormcast.chaos.faults.paths import ActingRule, PathMaker
from stormcast.node.core import wire
from stormcast.node.core.codec import unpack_ranges_untrusted
from stormcast.node.core.match import FOREVER, Match
from stormcast.node.core.model import Address, Delivery, View, ViewId
from stormcast.node.core.wire import Head
from stormcast.node.protocols.unicast.entries import ReceiverEntry, SenderEntry
from stormcast.node.settings import GENERATIONS, StackSettings, load_settings
from stormcast.node.stack import Stack
from stormcast.node.trace import Event, read_blocks_untrusted
from stormcast.node.trace.tracer import Tracer

TIMINGS: Final = ("compatible", "fast")
EVERY: Final = tuple(GENERATIONS)
NEWEST: Final = ("UNICAST3", "UNICAST3-SYNC", "UNICAST4")
"""The generations with positive acks, gap requests and a lazy close."""
CLUSTER: Final = "test"
DELAY: Final = 0.001
ALWAYS: Final = 1 << 60
"""`times` of a fault that lasts until it is healed."""


def on(*generations: str, timings: Sequence[str] = TIMINGS) -> pytest.MarkDecorator:
    """Run a test on these generations, each with both clocks."""
    return pytest.mark.parametrize(
        ("generation", "timing"),
        [(generation, timing) for generation in generations for timing in timings],
    )


on_every_generation = on(*EVERY)


def numbered(first: int, last: int) -> list[bytes]:
    """Payloads that say their number."""
    return [b"%d" % number for number in range(first, last + 1)]


@dataclasses.dataclass(slots=True)
class Sent:
    """One frame that left a member."""

    at: float
    source: str
    dest: str
    head: Head
    data: bytes
    arrivals: list[float] = dataclasses.field(default_factory=list)
    """When it reached its destination: never, once, or as often as a fault copied it."""

    @property
    def kind(self) -> int:
        return self.head.kind

    @property
    def lo(self) -> int:
        return self.head.lo

    @property
    def hi(self) -> int:
        """The last seqno of a batch; of a control frame what it speaks of."""
        return self.head.lo + self.head.count - 1 if self.kind == wire.DATA else self.head.lo

    def asks_for(self) -> list[tuple[int, int]]:
        """The ranges of a retransmission request."""
        return unpack_ranges_untrusted(self.head, self.data[wire.HEAD_SIZE :])


class Which(TypedDict, total=False):
    """What else a rule may say."""

    dest: str
    protocol: int
    times: int
    after: int
    """Matching frames that pass before it acts."""
    copies: int
    delay: float


class Rule:
    """A rule of the network: what it took, and what it holds."""

    def __init__(self, world: World, name: str, acting: ActingRule) -> None:
        self.name = name
        self._world = world
        self._acting = acting

    @property
    def taken(self) -> int:
        return self._acting.matcher.taken

    @property
    def held(self) -> list[Sent]:
        return self._world.network.held_by(self.name)


class Wire(Network):
    """The simulator's network, and all that was put on it."""

    def __init__(self, arrive: Arrive) -> None:
        super().__init__(FATES["xxh3"], self._note_arrival)
        self.sent: list[Sent] = []
        self._under_way: dict[tuple[int, int], Sent] = {}
        """By the identity of the frame's bytes, which `sent` keeps, and to whom."""
        self._let_arrive = arrive

    def record(self, at: float, source: str, dest: str, short: int, frame: bytes) -> None:
        """A frame leaves for somebody; for a name that nobody has it is lost."""
        head = Head._make(wire.HEAD_STRUCT.unpack_from(frame))
        sent = Sent(at, source, dest, head, frame)
        self.sent.append(sent)
        self._under_way[id(frame), short] = sent

    def held_by(self, rule: str) -> list[Sent]:
        """What a rule holds, in order."""
        kept = self._held.get(rule, ())
        return [self._under_way[id(frame), dest] for _path, dest, frame in kept]

    def take_held(self, rule: str) -> list[Sent]:
        """Whoever takes it lets it arrive, or does not."""
        held = self.held_by(rule)
        self._held.pop(rule, None)
        return held

    def _note_arrival(self, at: float, dest: int, frame: bytes) -> None:
        self._under_way[id(frame), dest].arrivals.append(at)
        self._let_arrive(at, dest, frame)


class Member:
    """A stack, its application, and its trace."""

    def __init__(self, world: World, name: str, identity: int, settings: StackSettings) -> None:
        self.world = world
        self.name = name
        self.blocks: list[bytes] = []
        self.deliveries: list[Delivery] = []
        address = Address(identity, name)
        tracer = Tracer(address.short, 0, hash64, self.blocks.append)
        self.seals = world.keys.seals(name, address.short) if world.keys is not None else None
        self.stack = Stack(
            address,
            CLUSTER,
            settings,
            hash64,
            tracer,
            world.now,
            first_conn=world.first_conn,
            seals=self.seals,
        )
        self.host = Host(name, self.stack, tracer)
        self.address = address
        self.short = address.short

    # -- The application -------------------------------------------------------------------------

    @property
    def delivered(self) -> list[bytes]:
        """Everything the application got, in its order."""
        return [bytes(payload) for delivery in self.deliveries for payload in delivery]

    def from_(self, peer: str) -> list[bytes]:
        """What the application got from one sender, in its order."""
        short = self.world.short(peer)
        return [
            bytes(payload)
            for delivery in self.deliveries
            if delivery.source == short
            for payload in delivery
        ]

    def take(self) -> list[bytes]:
        """What the application got since the last `take`."""
        delivered = self.delivered
        self.deliveries.clear()
        return delivered

    def send(self, *payloads: bytes, to: str = "B", flags: int = 0) -> None:
        """Send in one turn; nothing may be refused."""
        assert self.offer(*payloads, to=to, flags=flags) == len(payloads)

    def offer(self, *payloads: bytes, to: str = "B", flags: int = 0) -> int:
        """Send until one is refused, in one turn; returns how many were accepted."""
        accepted = 0
        for payload in payloads:
            if not self.stack.try_send(self.world.short(to), payload, flags):
                break
            accepted += 1
        self.turn()
        return accepted

    def consume(self, *, consuming: bool) -> None:
        self.stack.set_consuming(consuming, self.world.now)
        self.turn()

    # -- Membership and commands -----------------------------------------------------------------

    def see(self, *names: str) -> None:
        """Install a view of these members."""
        self.world.views += 1
        members = tuple(Address(self.world.identity(name), name) for name in names)
        self.stack.install_view(View(ViewId(self.world.views, self.address), members), self.now)
        self.turn()

    def forget(self, peer: str, *, sender: bool = True, receiver: bool = True) -> None:
        """Hard: the state is gone at once."""
        self.stack.unicast.forget(
            self.world.short(peer), self.now, sender=sender, receiver=receiver
        )
        self.turn()

    def close(self, peer: str) -> None:
        """Soft: close as the protocol does it."""
        self.stack.unicast.close(self.world.short(peer), self.now)
        self.turn()

    def set(self, name: str, value: object) -> None:
        self.stack.set_attribute(name, value, self.now)
        self.turn()

    def stop(self) -> None:
        """Leave: the last frames go out, then the member is deaf."""
        for dest, head, body in self.stack.stop(self.now):
            self.world.transmit(self.host, dest, head + body)
        self.host.is_alive = False

    def crash(self) -> None:
        """Gone without a word."""
        self.host.is_alive = False
        self.world.ended(self)

    def turn(self) -> None:
        self.world.engine.end_turn(self.host)

    def receive(self, *frames: bytes) -> None:
        """Have one datagram of these frames arrive now."""
        self.stack.receive(b"".join(frames), self.now)
        self.turn()

    # -- Looking inside --------------------------------------------------------------------------

    @property
    def now(self) -> float:
        return self.world.now

    @property
    def refused(self) -> dict[str, int]:
        return self.stack.record.refused

    @property
    def abandoned(self) -> dict[str, int]:
        return self.stack.outbox.abandoned

    @property
    def interval(self) -> float:
        return self.stack.unicast.config.xmit_interval

    def sender(self, peer: str) -> SenderEntry | None:
        return self.stack.unicast.send_connections().get(self.world.short(peer))

    def receiver(self, peer: str) -> ReceiverEntry | None:
        return self.stack.unicast.receive_connections().get(self.world.short(peer))

    def unacked(self, peer: str) -> int:
        entry = self.sender(peer)
        return len(entry.window) if entry else 0

    def cached(self) -> int:
        """Early frames kept for connections without a window."""
        return sum(self.stack.unicast.early_frames().values())

    def events(self, *kinds: int) -> list[Event]:
        return [event for event, _text in self.told(*kinds)]

    def told(self, *kinds: int) -> list[tuple[Event, str]]:
        """The events of these kinds so far, each with its text."""
        if self.host.is_alive:
            self.stack.record.flush(self.world.now)
        self.host.tracer.seal()
        return [
            (event, block.text(event))
            for block in read_blocks_untrusted(b"".join(self.blocks), hash64)
            for event in block.events
            if event.kind in kinds
        ]

    def state(self) -> dict[str, object]:
        """All that a frame could change, to be compared."""
        unicast = self.stack.unicast
        return {
            "senders": {
                peer: (
                    entry.conn,
                    entry.state,
                    entry.window.low,
                    entry.window.high,
                    entry.window.bytes,
                    entry.last_stamp,
                    entry.established,
                    entry.last_used,
                    entry.heard_at,
                )
                for peer, entry in unicast.send_connections().items()
            },
            "receivers": {
                peer: (
                    entry.conn,
                    entry.state,
                    entry.epoch,
                    entry.window.delivered,
                    entry.window.deliverable,
                    entry.window.seen,
                    len(entry.window),
                    entry.last_used,
                )
                for peer, entry in unicast.receive_connections().items()
            },
            "cached": unicast.early_frames(),
            "delivered": self.delivered,
            "deadline": self.stack.next_deadline(),
        }


class World:
    """Some members, the wire between them, and the clock."""

    def __init__(
        self,
        generation: str = "UNICAST3-SYNC",
        timing: str = "compatible",
        *,
        members: Iterable[str] = "AB",
        max_batch: int | None = 1,
        first_conn: int = 1,
        delay: float = DELAY,
        outbox_bytes: int | None = None,
        stack: str = "unicast-only",
        protocols: Mapping[str, Mapping[str, object]] | None = None,
        sealed: bool = False,
        unicast: str | None = None,
        settings: Mapping[str, object] | None = None,
        **overrides: object,
    ) -> None:
        """Without a stack, `generation` and `overrides` say what the members run; with one,
        `unicast` replaces its generation, and `settings` are of that."""
        self.keys = SimKeys(1) if sealed else None
        """Those of the members, where they seal what they send."""
        self.delay = delay
        self.first_conn = first_conn
        self.views = 0
        self.link = Link(delay=delay)
        """What each path is by itself."""
        self.seed = 0
        """Of the dice of that."""
        self._acting: dict[str, NetworkFault] = {}
        """Faults by name, in the order in which they began."""
        self._rules = 0
        self._paths = PathMaker()
        self._identities: dict[str, int] = {}
        self._names: dict[int, str] = {}
        self._members: dict[int, Member] = {}
        self.engine = Engine(self.transmit, self._deliver, self._after_turn)
        self.network = Wire(self.engine.arrive)
        if stack == "unicast-only" and not (protocols or settings or unicast):
            self.settings = _settings(generation, timing, max_batch, tuple(overrides.items()))
        else:
            assert not overrides, f"a stack takes none of {sorted(overrides)}"
            self.settings = load_settings(
                stack,
                timing,
                unicast=unicast,
                overrides=settings,
                protocols=protocols,
                max_batch=max_batch,
            )
        if outbox_bytes is not None:
            self.settings = dataclasses.replace(self.settings, outbox_bytes=outbox_bytes)
        for name in members:
            self.start(name)

    def start(self, name: str, **overrides: object) -> Member:
        """Bring a member up; one of that name that was there before was another process."""
        identity = self._identities.get(name, 0)
        identity = identity + 0x100 if identity else ord(name)
        if name in self._names.values():
            self[name].crash()
        self._identities[name] = identity
        settings = self.settings
        if overrides:
            config = dataclasses.replace(settings.unicast_config, **overrides)
            layers = tuple(
                (name, config if name == settings.unicast else other)
                for name, other in settings.layers
            )
            settings = dataclasses.replace(settings, layers=layers)
        member = Member(self, name, identity, settings)
        self._names[member.short] = name
        self._members[member.short] = member
        self.engine.hosts[member.short] = member.host
        self._renew_paths()
        return member

    def __getitem__(self, name: str) -> Member:
        return self._members[self.short(name)]

    def __iter__(self) -> Iterator[Member]:
        return (self[name] for name in self._identities if self.short(name) in self._members)

    def identity(self, name: str) -> int:
        """Of a member, or of somebody who never was."""
        return self._identities.get(name) or ord(name)

    def short(self, name: str) -> int:
        return self.identity(name) & 0xFFFFFFFF

    # -- Time ------------------------------------------------------------------------------------

    @property
    def wire(self) -> list[Sent]:
        """Every frame so far."""
        return self.network.sent

    @property
    def now(self) -> float:
        return self.engine.now

    @property
    def interval(self) -> float:
        return self.settings.unicast_config.xmit_interval

    def advance(self, seconds: float) -> None:
        until = self.now + seconds
        # With what happens at that very moment.
        self.engine.run(nextafter(until, inf))
        self.engine.now = until

    def intervals(self, number: float) -> None:
        """Let so many intervals of retransmission pass."""
        self.advance(number * self.interval)

    def deliver(self) -> None:
        """Let what is on the wire arrive, and no look happen that waits for silence."""
        self.advance(2.5 * self.delay)

    def settle(self) -> None:
        """Let the time pass in which all promise to have repaired everything and to be silent."""
        self.advance(max(member.stack.unicast.bounds()["quiet_within"] for member in self))

    def frames_within(self, seconds: float) -> list[Sent]:
        """What is sent while that time passes."""
        before = len(self.wire)
        self.advance(seconds)
        return self.wire[before:]

    # -- Faults ----------------------------------------------------------------------------------

    def drop(
        self,
        source: str | None = None,
        kind: int | None = None,
        seqno: int | None = None,
        **rest: Unpack[Which],
    ) -> Rule:
        """Lose the next such frame."""
        return self._rule("drop", source, kind, seqno, rest)

    def hold(
        self,
        source: str | None = None,
        kind: int | None = None,
        seqno: int | None = None,
        **rest: Unpack[Which],
    ) -> Rule:
        """Keep such frames under way until `release`."""
        return self._rule("hold", source, kind, seqno, {"times": ALWAYS} | rest)

    def duplicate(
        self,
        source: str | None = None,
        kind: int | None = None,
        seqno: int | None = None,
        **rest: Unpack[Which],
    ) -> Rule:
        """Have `copies` more of the next such frame arrive."""
        return self._rule("duplicate", source, kind, seqno, rest)

    def late(
        self,
        seconds: float,
        source: str | None = None,
        kind: int | None = None,
        seqno: int | None = None,
        **rest: Unpack[Which],
    ) -> Rule:
        """Have the next such frame arrive so much later."""
        return self._rule("delay", source, kind, seqno, {"delay": seconds} | rest)

    def release(
        self,
        rule: Rule,
        order: Callable[[list[Sent]], Iterable[Sent]] = list,
        *,
        as_one: bool = False,
    ) -> None:
        """End a rule: what it held arrives in `order`, as one datagram if wanted."""
        kept = list(order(self.network.take_held(rule.name)))
        self._acting.pop(rule.name, None)
        self._renew_paths()
        if as_one and kept:
            self._arrive(kept[0], b"".join(sent.data for sent in kept))
            return
        for sent in kept:
            self._arrive(sent, sent.data)

    def partition(self, *groups: str) -> None:
        """Only members of one group hear each other: `partition("A", "BC")`; whom it does not name
        hears all."""
        self.join_again()
        names = dict.fromkeys("".join(groups))
        for name in names:
            heard = "".join(group for group in groups if name in group)
            self._begin(Cut(sources=(name,), dests=tuple(one for one in names if one not in heard)))

    def cut(self, source: str, dest: str) -> None:
        """Nothing passes, in this direction."""
        self._begin(Cut(sources=(source,), dests=(dest,)))

    def join_again(self) -> None:
        """End all cuts and partitions."""
        for name in [name for name, fault in self._acting.items() if isinstance(fault, Cut)]:
            del self._acting[name]
        self._renew_paths()

    def is_cut(self, source: str, dest: str) -> bool:
        """Whether nothing passes in this direction."""
        return bool(self.network.path(source, dest).blocked_by)

    def heal(self) -> None:
        """End every fault; what is held arrives."""
        ended = list(self._acting)
        self._acting.clear()
        self._renew_paths()
        for name in ended:
            for sent in self.network.take_held(name):
                self._arrive(sent, sent.data)

    def _begin(self, fault: NetworkFault) -> str:
        self._rules += 1
        name = f"fault {self._rules}"
        self._acting[name] = fault
        self._renew_paths()
        return name

    def _renew_paths(self) -> None:
        self._paths.renew(self.seed, self._acting)
        for source, dest in permutations(self._identities, 2):
            self.network.set_path(self._paths.path(source, dest, self.link, self._acting))

    # -- The wire --------------------------------------------------------------------------------

    def sent(
        self,
        source: str | None = None,
        kind: int | None = None,
        seqno: int | None = None,
        *,
        dest: str | None = None,
        protocol: int | None = None,
        conn: int | None = None,
    ) -> list[Sent]:
        """The frames of this description so far."""
        return [
            sent
            for sent in self.wire
            if source in (None, sent.source)
            and kind in (None, sent.kind)
            and (seqno is None or sent.lo <= seqno <= sent.hi)
            and dest in (None, sent.dest)
            and protocol in (None, sent.head.protocol)
            and conn in (None, sent.head.conn)
        ]

    def count(
        self,
        source: str | None = None,
        kind: int | None = None,
        seqno: int | None = None,
        *,
        dest: str | None = None,
        protocol: int | None = None,
        conn: int | None = None,
    ) -> int:
        return len(self.sent(source, kind, seqno, dest=dest, protocol=protocol, conn=conn))

    def transmit(self, host: Host, dest: int, frame: bytes) -> None:
        """Take a frame from a member; frames to nobody are kept in the record and lost."""
        if dest <= wire.GROUP:
            for member in self._members.values():
                if member.host is not host:
                    self._transmit(host, member.short, frame)
            return
        self._transmit(host, dest, frame)

    def _transmit(self, host: Host, dest: int, frame: bytes) -> None:
        name = self._names.get(dest, "?")
        self.network.record(self.now, host.name, name, dest, frame)
        if dest in self._members and name != host.name:
            self.network.send(self.network.path(host.name, name), dest, frame, self.now)

    def _arrive(self, sent: Sent, data: bytes) -> None:
        at = self.now + self.delay
        sent.arrivals.append(at)
        self.engine.arrive(at, sent.head.dest or self.short(sent.dest), data)

    def _deliver(self, host: Host, deliveries: list[Delivery]) -> None:
        self._members[host.short].deliveries += deliveries

    def ended(self, member: Member) -> None:
        """A process is gone; its connections, where there are any, tell."""

    def _after_turn(self, host: Host) -> None:
        """What a group's stack has to say besides frames; a world without groups has nothing."""

    def _rule(
        self,
        does: str,
        source: str | None,
        kind: int | None,
        seqno: int | None,
        rest: Which,
    ) -> Rule:
        after = rest.get("after", 0)
        match = Match(
            sources=_listed(source),
            dests=_listed(rest.get("dest")),
            kinds=_listed(None if kind is None else wire.KINDS[kind][0]),
            protocols=_listed(wire.PROTOCOLS[rest["protocol"]] if "protocol" in rest else None),
            seqno=None if seqno is None else (seqno, seqno),
            occurrence=(after + 1, FOREVER) if after else None,
        )
        name = self._begin(
            faults.Rule(
                does=does,
                match=match,
                delay=rest.get("delay", 0.0),
                copies=rest.get("copies", 1),
                times=rest.get("times", 1),
            )
        )
        return Rule(self, name, self._paths.rules[name])

    # -- Ends ------------------------------------------------------------------------------------

    def assert_idle(self, seconds: float = 5.0) -> None:
        """Nothing is unacked or held back, and nothing is sent any more (C1, P-03)."""
        for member in self:
            for entry in member.stack.unicast.receive_connections().values():
                assert len(entry.window) == 0, f"{member.name} holds messages back"
        self.assert_silent(seconds)

    def assert_silent(self, seconds: float = 5.0) -> None:
        """Nothing is unacked, and nothing is sent any more; what a lapse of memory tore may wait
        for the next connection."""
        for member in self:
            for entry in member.stack.unicast.send_connections().values():
                assert len(entry.window) == 0, f"{member.name} still has unacked messages"
        noise = self.frames_within(seconds)
        assert not noise, f"not silent: {[(sent.source, sent.head) for sent in noise]}"


class Pair(World):
    """The world of most tests: A, B, and the wire between them."""

    def __init__(
        self,
        generation: str = "UNICAST3-SYNC",
        timing: str = "compatible",
        **rest: Any,
    ) -> None:
        super().__init__(generation, timing, **rest)
        self.a = self["A"]
        self.b = self["B"]

    def open(self, messages: int = 10) -> None:
        """Traffic both ways, all of it acked; neither counts as delivered."""
        self.a.send(*numbered(1, messages), to="B")
        self.b.send(*numbered(1, messages), to="A")
        self.settle()
        assert self.a.take() == self.b.take() == numbered(1, messages)


def _listed(name: str | None) -> tuple[str, ...]:
    return () if name is None else (name,)


def seconds_of(sents: Iterable[Sent]) -> list[float]:
    """When frames were sent."""
    return [sent.at for sent in sents]


@cache
def _settings(
    generation: str,
    timing: str,
    max_batch: int | None,
    overrides: tuple[tuple[str, object], ...],
) -> StackSettings:
    return load_settings(
        timing=timing, unicast=generation, overrides=dict(overrides), max_batch=max_batch
    )


__all__ = [
    "ALWAYS",
    "CLUSTER",
    "DELAY",
    "EVERY",
    "NEWEST",
    "TIMINGS",
    "Member",
    "Pair",
    "Rule",
    "Sent",
    "World",
    "hash64",
    "numbered",
    "on",
    "on_every_generation",
    "seconds_of",
]
