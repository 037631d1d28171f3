"""Membership alone on a virtual wire: real `Gms` layers, everything around them a simple stand-in.

The stand-ins: discovery sees who is up and reachable; detection is done by hand, or by `watch`,
which knows the truth; disagreement is reported by hand or by `watch`, too. Multicast is a counter
per stream. What no run may ever do is checked at every event.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from heapq import heappop, heappush
from itertools import count
from math import inf
from random import Random
from typing import Final

from xxhash import xxh3_64_intdigest as hash64

from stormcast.node.core import wire
from stormcast.node.core.codec import Codec
from stormcast.node.core.digest import Digest
from stormcast.node.core.errors import BadFrame
from stormcast.node.core.model import Address, View, ViewId
from stormcast.node.core.policy import is_first
from stormcast.node.core.timers import Timers
from stormcast.node.core.timing import Timing
from stormcast.node.core.wire import Head
from stormcast.node.protocols.events import (
    BecameServer,
    Discover,
    Doubted,
    Event,
    Found,
    Install,
    Left,
    ResumeStability,
    Role,
    SuspendStability,
    Tentative,
)
from stormcast.node.protocols.gms import Gms, GmsConfig
from stormcast.node.protocols.layer import MemberContext
from stormcast.node.protocols.port import Port
from stormcast.node.trace import ALARM, read_blocks_untrusted
from stormcast.node.trace.tracer import Tracer

COMPATIBLE: Final = Timing()
FAST: Final = Timing(name="fast", adaptive=True)
DELAY: Final = 0.001
CLUSTER: Final = 7


def address(name: str, identity: int = 0) -> Address:
    """An address that sorts like its name: A before B."""
    number = identity or sum(ord(c) << (8 * n) for n, c in enumerate(reversed(name)))
    return Address(number, name)


@dataclass(eq=False)
class Rule:
    """One fault of the wire."""

    does: str
    kind: int | None
    source: str | None
    dest: str | None
    times: float
    amount: float = 0.0
    taken: int = 0

    def takes(self, source: str, dest: str, kind: int) -> bool:
        is_match = (
            self.kind in (None, kind)
            and self.source in (None, source)
            and self.dest in (None, dest)
            and self.taken < self.times
        )
        self.taken += is_match
        return is_match


@dataclass(frozen=True, slots=True)
class Sent:
    """A frame that left."""

    at: float
    source: str
    dest: str
    head: Head
    body: bytes


@dataclass(eq=False)
class Member:
    """One layer and what it said."""

    group: Group
    name: str
    address: Address
    config: GmsConfig = field(default_factory=GmsConfig)
    is_alive: bool = True
    is_left: bool = False
    views: list[View] = field(default_factory=list)
    installs: list[Install] = field(default_factory=list)
    events: list[tuple[float, Event]] = field(default_factory=list)
    drops: dict[str, int] = field(default_factory=dict)
    sent: int = 0
    """Its own multicasts."""
    unknown: set[int] = field(default_factory=set)
    """Members whose stream is missing from the digest."""
    frozen_until: float = -1.0
    started: float = inf
    left_at: float = inf

    def __post_init__(self) -> None:
        blocks: list[bytes] = []
        self.blocks = blocks
        self.tracer = Tracer(self.address.short, 0, hash64, blocks.append)
        self.port = Port(Codec(CLUSTER, self.address.short, hash64), self.tracer)
        self.timers: Timers[tuple[int, str]] = Timers()
        self.role = Role(self.address)
        self.gms = Gms(
            self.config,
            MemberContext(
                self.role,
                self.port,
                self.timers,
                self.group.timing,
                Random(self.address.identity),
                self.group.largest_body,
            ),
            self.digest,
        )

    @property
    def view(self) -> View | None:
        return self.role.view

    @property
    def names(self) -> str:
        return "".join(map(str, self.view.members)) if self.view else ""

    def digest(self) -> Digest:
        streams = {member.short: (0, 0) for member in self.role.members}
        streams[self.address.short] = (self.sent, self.sent)
        return Digest({short: pair for short, pair in streams.items() if short not in self.unknown})

    def alarms(self) -> list[str]:
        self.tracer.seal()
        found: list[str] = []
        for data in self.blocks:
            for block in read_blocks_untrusted(data, hash64):
                found += [block.text(event) for event in block.events if event.kind == ALARM]
        return found


class Group:
    """Members named A, B, C … by default in the order of their identities."""

    def __init__(
        self,
        names: int | str = 0,
        *,
        timing: Timing = COMPATIBLE,
        config: GmsConfig | None = None,
        seed: int = 0,
        loss: float = 0.0,
        copies: float = 0.0,
        jitter: float = 0.0,
        largest_body: int = wire.MAX_BODY,
    ) -> None:
        self.largest_body = largest_body
        self.timing = timing
        self.config = config or GmsConfig()
        self.dice = Random(seed)
        self.loss = loss
        self.copies = copies
        self.jitter = jitter
        self.now = 0.0
        self.members: dict[str, Member] = {}
        self.sent: list[Sent] = []
        self.rules: list[Rule] = []
        self.parts: list[frozenset[str]] = []
        self.deaf: set[tuple[str, str]] = set()
        """Directed pairs that are cut."""
        self.by_id: dict[ViewId, tuple[Address, ...]] = {}
        self.stale: list[Found] = []
        """What discovery finds besides those that are there."""
        self.hidden = ""
        """Whom discovery does not find."""
        self.is_watching = False
        self._is_by_hand = False
        self._order = count()
        self._queue: list[tuple[float, int, Callable[[], None]]] = []
        if isinstance(names, int):
            names = "".join(chr(ord("A") + n) for n in range(names))
        for name in names:
            self.add(name)

    def add(self, name: str, identity: int = 0, config: GmsConfig | None = None) -> Member:
        """A member that is up but has not started to join."""
        member = Member(self, name, address(name, identity), config or self.config)
        self.members[name] = member
        return member

    def __getitem__(self, name: str) -> Member:
        return self.members[name]

    # -- Time ---------------------------------------------------------------------------------

    def at(self, when: float, act: Callable[[], None]) -> None:
        heappush(self._queue, (when, next(self._order), act))

    def advance(self, seconds: float) -> None:
        """Let time pass."""
        end = self.now + seconds
        for _ in range(2_000_000):
            deadline, member = self._next_timer()
            queued = self._queue[0][0] if self._queue else inf
            when = min(deadline, queued)
            if when > end:
                self.now = end
                return
            self.now = max(self.now, when)
            if queued <= deadline:
                heappop(self._queue)[2]()
            elif member is not None:
                for _protocol, what in member.timers.take_due(self.now):
                    member.gms.on_timer(what, self.now)
                self.drain(member)
        raise AssertionError("the group spins")

    def settle(self, check: Callable[[], bool], limit: float) -> float:
        """Let time pass until `check` holds; returns how long it took."""
        start = self.now
        while not check():
            assert self.now - start < limit, f"not within {limit} s: {self.describe()}"
            self.advance(0.05)
        return self.now - start

    def _next_timer(self) -> tuple[float, Member | None]:
        best, who = inf, None
        for member in self.members.values():
            if member.is_alive:
                deadline = member.timers.next_deadline()
                if deadline < best:
                    best, who = deadline, member
        return best, who

    # -- What happens to members --------------------------------------------------------------

    def join(self, *names: str) -> None:
        """Start these members at once; without names all."""
        for name in names or tuple(self.members):
            member = self.members[name]
            member.started = self.now
            member.gms.start(self.now)
            self.drain(member)

    def join_all(self) -> None:
        """One after the other, in order: ranks follow names."""
        for name in self.members:
            self.join(name)
            self.settle(lambda name=name: self.members[name].view is not None, 60.0)  # type: ignore[misc]
            self.settle(self.is_one, 60.0)

    def leave(self, *names: str) -> None:
        for name in names:
            self.members[name].gms.leave(self.now)
            self.drain(self.members[name])

    def crash(self, *names: str) -> None:
        for name in names:
            self.members[name].is_alive = False

    def suspect(self, *names: str, at: str = "") -> None:
        """Everybody alive, or those in `at`, learns that these are dead."""
        dead = tuple(self.members[name].address for name in names)
        for name in at or self.live():
            member = self.members[name]
            member.gms.on_confirmed(dead, self.now)
            self.drain(member)

    def clear(self, name: str, at: str) -> None:
        for other in at:
            self.members[other].gms.on_cleared(self.members[name].address, self.now)
            self.drain(self.members[other])

    def inject(self, *lines: str) -> None:
        """Views by hand: `A:5 ABC` is installed at all its live members, `A:5 ABC @ B` at B."""
        for line in lines:
            text, _, where = line.partition("@")
            view = self.view(text)
            for name in where.strip() or "".join(map(str, view.members)):
                member = self.members[name]
                if member.is_alive:
                    self.by_hand(member, view)

    def by_hand(self, member: Member, view: View) -> None:
        self._is_by_hand = True
        member.gms.install_by_hand(view, self.now)
        self.drain(member)
        self._is_by_hand = False

    def view(self, text: str) -> View:
        head, names = text.split()
        creator, number = head.split(":")
        return View(
            ViewId(int(number), self.members[creator].address),
            tuple(self.members[name].address for name in names),
        )

    def disagree(self, reporters: str = "", at: str = "") -> None:
        """The views of `reporters` are reported to everybody in `at`; both default to all."""
        live = [self.members[name] for name in reporters or self.live()]
        views = {member.address: member.view for member in live if member.view is not None}
        for name in at or self.live():
            member = self.members[name]
            member.gms.on_disagreement(views, {}, self.now)
            self.drain(member)

    def watch(self, every: float = 1.0) -> None:
        """From now on failures are detected and disagreements reported, as far as members reach
        each other: the truth, now and again, at a time of its own for each member."""
        self.is_watching = True
        for member in self.members.values():
            self.at(self.now + self.dice.random() * every, lambda m=member: self._look(m, every))  # type: ignore[misc]

    def _look(self, member: Member, every: float) -> None:
        self.at(self.now + every * (0.5 + self.dice.random()), lambda: self._look(member, every))
        if not member.is_alive or member.view is None:
            return
        others = [other for other in self.members.values() if self._is_heard(other, member)]
        heard = {other.address for other in others} | {member.address}
        dead = tuple(m for m in member.view.members if m not in heard)
        if dead and is_first(member.address, member.view.members, dead):
            member.gms.on_confirmed(dead, self.now)
        views = {other.address: other.view for other in [member, *others] if other.view is not None}
        if len(set(views.values())) > 1:
            member.gms.on_disagreement(views, {}, self.now)
        self.drain(member)

    def _is_heard(self, other: Member, member: Member) -> bool:
        return (
            other is not member
            and other.is_alive
            and not other.is_left
            and self._is_open(other.name, member.name)
        )

    # -- The wire -----------------------------------------------------------------------------

    def rule(
        self,
        does: str,
        kind: int | None = None,
        source: str | None = None,
        dest: str | None = None,
        times: float = 1,
        amount: float = 0.0,
    ) -> Rule:
        """`drop` or `delay` (by `amount`) the next matching frames."""
        rule = Rule(does, kind, source, dest, times, amount)
        self.rules.append(rule)
        return rule

    def drop(
        self,
        kind: int | None = None,
        source: str | None = None,
        dest: str | None = None,
        times: float = 1,
    ) -> Rule:
        return self.rule("drop", kind, source, dest, times)

    def partition(self, *parts: str) -> None:
        """Members reach only those of a common part."""
        self.parts = [frozenset(part) for part in parts]

    def cut(self, source: str, dest: str) -> None:
        """Nothing from `source` reaches `dest`."""
        self.deaf.add((source, dest))

    def heal(self) -> None:
        self.parts = []
        self.deaf.clear()
        self.rules.clear()
        self.loss = self.copies = self.jitter = 0.0

    def _is_open(self, source: str, dest: str) -> bool:
        if (source, dest) in self.deaf:
            return False
        return not self.parts or any(source in part and dest in part for part in self.parts)

    def _transmit(self, source: Member, dest: Member, data: bytes) -> None:
        head, body = source.port.codec.unpack_untrusted(data)
        self.sent.append(Sent(self.now, source.name, dest.name, head, body))
        delay = DELAY + self.dice.random() * self.jitter
        for rule in self.rules:
            if rule.takes(source.name, dest.name, head.kind):
                if rule.does == "drop":
                    return
                delay += rule.amount
                break
        if not self._is_open(source.name, dest.name) or self.dice.random() < self.loss:
            return
        for copy in range(1 + (self.dice.random() < self.copies)):
            late = self.dice.random() * self.jitter * copy
            self.at(
                self.now + delay + late,
                lambda: self.arrive(dest, head, body, source.name),
            )

    def arrive(self, dest: Member, head: Head, body: bytes, source: str = "") -> None:
        """A frame reaches a member, as its stack would hand it in."""
        if not dest.is_alive or (source and not self._is_open(source, dest.name)):
            return
        if head.source not in dest.port.contacts.trusted:
            dest.port.contacts.heard(head.source, wire.HEAD_SIZE + head.size)
        try:
            dest.gms.receive(head, body, self.now)
        except BadFrame as bad:
            dest.port.drop(bad.reason)
        self.drain(dest)

    def count(self, kind: int, source: str | None = None, dest: str | None = None) -> int:
        return sum(
            sent.head.kind == kind and source in (None, sent.source) and dest in (None, sent.dest)
            for sent in self.sent
        )

    # -- What layers say ----------------------------------------------------------------------

    def drain(self, member: Member) -> None:
        """Pass on what a layer enqueued: events first, as the stack does in the same turn."""
        port = member.port
        events, port.events = port.events, []
        frames, port.frames = port.frames, []
        port.challenged.clear()
        drops, port.drops = port.drops, {}
        for reason, number in drops.items():
            member.drops[reason] = member.drops.get(reason, 0) + number
        for event in events:
            self._on_event(member, event)
        if not member.is_alive:
            return
        for dest, data, more in frames:
            for other in list(self.members.values()):
                if other.address.short == dest and other is not member:
                    self._transmit(member, other, data + more)

    def _on_event(self, member: Member, event: Event) -> None:
        member.events.append((self.now, event))
        if isinstance(event, Discover):
            self._discover(member, self.now, event.seconds)
        elif isinstance(event, Install):
            self._on_install(member, event)
        elif isinstance(event, SuspendStability):
            member.frozen_until = max(member.frozen_until, self.now + event.seconds)
        elif isinstance(event, ResumeStability):
            member.frozen_until = -1.0
        elif isinstance(event, Left):
            assert not member.is_left, "left twice"
            member.is_left = True
            member.left_at = self.now
        else:
            assert isinstance(event, BecameServer | Doubted | Tentative), event

    def _on_install(self, member: Member, event: Install) -> None:
        view = event.view
        assert not member.is_left, "no view after leaving (P-24)"
        assert member.address in view.members, "only views with oneself in it (V3, P-24)"
        if member.views:
            assert view.id.number > member.views[-1].id.number, "view numbers grow (V2, P-24)"
        # Of a view made by hand its creator knows nothing, so it may give its id once more.
        if not self._is_by_hand:
            known = self.by_id.setdefault(view.id, view.members)
            assert known == view.members, "one id, one list of members (V1)"
        shorts = {m.short for m in view.members}
        if event.digest is not None:
            assert set(event.digest) == shorts, "a digest knows exactly the members"
        member.port.contacts.on_view(view.members)
        member.views.append(view)
        member.installs.append(event)

    def _discover(self, member: Member, since: float, seconds: float) -> None:
        """Done as soon as a coordinator is there, else when time is over."""
        found = [
            Found(
                other.address,
                other.role.is_server,
                None
                if other.view is None or (other.role.is_leaving and other.role.is_coordinator)
                else other.view.coordinator,
            )
            for other in self.members.values()
            if other is not member
            and other.name not in self.hidden
            and other.is_alive
            and other.started <= self.now
            and not other.is_left
            and not (other.role.is_leaving and not other.role.is_coordinator)
            and self._is_open(other.name, member.name)
            and self._is_open(member.name, other.name)
        ]
        found += self.stale
        is_done = any(f.coordinator == f.address for f in found) or self.now >= since + seconds
        if is_done:
            self.at(
                self.now + 2 * DELAY,
                lambda: self._discovered(member, tuple(found)),
            )
        else:
            self.at(self.now + seconds / 20, lambda: self._discover(member, since, seconds))

    def _discovered(self, member: Member, found: tuple[Found, ...]) -> None:
        if member.is_alive:
            member.gms.on_discovered(found, self.now)
            self.drain(member)

    # -- What came out ------------------------------------------------------------------------

    def live(self) -> str:
        """Members that are up, did start, and have not left."""
        return "".join(m.name for m in self.members.values() if m.is_alive and not m.is_left)

    def is_one(self, names: str = "") -> bool:
        """Whether all live members that have a view hold one view of exactly these, or of all
        that have one."""
        among = [m for m in self.members.values() if m.is_alive and not m.is_left and m.view]
        wanted = set(names) or {m.name for m in among}
        held = {m.view for m in among if m.name in wanted}
        if len(held) != 1 or not wanted <= {m.name for m in among}:
            return False
        (view,) = held
        assert view is not None
        return {str(m) for m in view.members} == wanted

    def converge(self, names: str = "", limit: float = 60.0) -> float:
        """Wait until they hold one view."""
        return self.settle(lambda: self.is_one(names or self.live()), limit)

    def describe(self) -> str:
        return " ".join(
            f"{m.name}={m.view}{'' if m.is_alive else '(dead)'}" for m in self.members.values()
        )

    def assert_thawed(self) -> None:
        """Whoever suspended stability has resumed it (G-10)."""
        for member in self.members.values():
            if member.is_alive:
                assert member.frozen_until < 0, f"{member.name} still holds stability"
