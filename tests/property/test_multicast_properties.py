"""Reliable multicast under any finite plan of faults (P-09, P-14 to P-18, P-20).

A plan names frames by their number on the way out of a member, so it is exhausted by traffic and
shrinks to the one fault that matters. After it the wire is perfect; what is promised then has a
bound.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import inf

from hypothesis import given, settings
from hypothesis import strategies as st

from stormcast.node import trace
from stormcast.node.core.model import DONT_LOOPBACK, OOB
from stormcast.node.core.wire import DATA, MCAST, NAKACK2, XMIT_REQ
from tests.helpers.group import GroupWorld, Sent, numbered
from tests.helpers.world import TIMINGS

FEWER = settings(max_examples=max(1, settings.default.max_examples * 2 // 5))
FEW = settings(max_examples=max(1, settings.default.max_examples // 5))

MULTICAST = (NAKACK2, MCAST)
stacks = st.sampled_from(["udp", "mcast"])
timings = st.sampled_from(TIMINGS)
batches = st.sampled_from([1, 3, None])
capacities = st.sampled_from([1, 2, 3, 5, 64])


@dataclass(frozen=True)
class Strike:
    """One fault: the n-th frame of a member to another is lost, copied, or late."""

    does: str
    source: str
    dest: str | None
    nth: int
    amount: float

    def put_on(self, world: GroupWorld) -> None:
        if self.does == "drop":
            world.drop(self.source, after=self.nth, dest=self.dest)
        elif self.does == "copy":
            world.duplicate(
                self.source, after=self.nth, dest=self.dest, copies=1 + int(self.amount)
            )
        else:
            world.late(self.amount, self.source, after=self.nth, dest=self.dest)


@dataclass(frozen=True)
class Burst:
    """What one member multicasts in one turn, and the pause after it."""

    source: str
    count: int
    pause: float
    flags: int = 0


def strikes(*does: str) -> st.SearchStrategy[list[Strike]]:
    return st.lists(
        st.builds(
            Strike,
            does=st.sampled_from(does),
            source=st.sampled_from("ABC"),
            dest=st.sampled_from(["A", "B", "C", None]),
            nth=st.integers(0, 30),
            amount=st.sampled_from([0.0005, 0.004, 0.3, 0.7, 1.6, 3.0]),
        ),
        max_size=12,
        unique_by=lambda one: (one.source, one.nth),
    )


plans = strikes("drop", "drop", "copy", "late")
harmless = strikes("late", "late", "late")
pauses = st.sampled_from([0.0, 0.0003, 0.01, 0.26, 0.9])


def bursts(*flags: int) -> st.SearchStrategy[list[Burst]]:
    one = st.builds(
        Burst,
        source=st.sampled_from("ABC"),
        count=st.integers(1, 6),
        pause=pauses,
        flags=st.sampled_from(flags),
    )
    return st.lists(one, min_size=1, max_size=8)


traffic = bursts(0)
mixed = bursts(0, OOB, DONT_LOOPBACK, OOB | DONT_LOOPBACK)


class Story:
    """A group under a plan, and what each member has sent so far."""

    def __init__(
        self, world: GroupWorld, plan: list[Strike], names: str = "ABC", *, joined: bool = True
    ) -> None:
        self.world = world
        self.names = names
        self.sent: dict[str, list[bytes]] = {name: [] for name in "ABCD"}
        self.looped: dict[str, list[bytes]] = {name: [] for name in "ABCD"}
        """What each sender wants to hear itself."""
        if joined:
            world.deliver()
        for strike in plan:
            strike.put_on(world)

    def say(self, said: list[Burst]) -> None:
        for burst in said:
            self.say_one(burst)

    def say_one(self, burst: Burst) -> None:
        before = len(self.sent[burst.source])
        new = numbered(before + 1, before + burst.count)
        self.sent[burst.source] += new
        if not burst.flags & DONT_LOOPBACK:
            self.looped[burst.source] += new
        self.world.multicast(burst.source, *new, flags=burst.flags)
        self.world.advance(burst.pause)
        self.assert_nothing_needed_is_purged()

    def end(self) -> None:
        """Let late frames arrive, end what the plan still had, and let repair happen."""
        self.world.advance(3.0)
        self.world.heal()
        self.world.settle()

    def assert_nothing_needed_is_purged(self) -> None:
        """G6, P-16: whoever is a member of each other's view has delivered what is purged."""
        for sender in self.names:
            machine = self.world.machine(sender)
            for name in self.names:
                if name == sender or not self.world.machine(name).inbound():
                    continue
                entry = self.world.inbound(name, sender)
                assert machine.own.low <= entry.window.delivered, f"{name} still needs {sender}'s"

    def assert_all_delivered(self) -> None:
        for sender in self.names:
            for name in self.names:
                wanted = self.looped[sender] if name == sender else self.sent[sender]
                assert self.world.got(name, sender) == wanted, f"{name} of {sender}"


# -- P-14, P-16 ------------------------------------------------------------


@given(stack=stacks, timing=timings, max_batch=batches, plan=plans, said=traffic)
def test_any_plan_of_faults_delays_multicasts_and_no_more(
    stack: str, timing: str, max_batch: int | None, plan: list[Strike], said: list[Burst]
) -> None:
    """P-14, P-16, P-03: everybody delivers everything once and in order, nothing is kept, and then
    nobody sends anything any more."""
    story = Story(GroupWorld("ABC", stack, timing, max_batch=max_batch), plan)
    story.say(said)
    story.end()
    story.assert_all_delivered()
    assert [story.world.unpurged(name) for name in "ABC"] == [0, 0, 0]
    assert story.world.frames_within(120.0) == []


@FEWER
@given(stack=stacks, timing=timings, plan=plans, said=mixed)
def test_messages_of_all_flags_are_delivered_once_and_regular_ones_in_order(
    stack: str, timing: str, plan: list[Strike], said: list[Burst]
) -> None:
    """P-02, P-11, P-14 with OOB and DONT_LOOPBACK mixed in."""
    story = Story(GroupWorld("ABC", stack, timing), plan)
    story.say(said)
    story.end()
    oob = {
        (sent.source, payload)
        for sent in story.world.sent(kind=DATA)
        if sent.head.flags & OOB
        for payload in [story.sent[sent.source][sent.lo - 1]]
    }
    for sender in "ABC":
        for name in "ABC":
            wanted = story.looped[sender] if name == sender else story.sent[sender]
            got = story.world.got(name, sender)
            assert sorted(got) == sorted(wanted)
            regular = [payload for payload in got if (sender, payload) not in oob]
            assert regular == [p for p in wanted if (sender, p) not in oob]
    assert [story.world.unpurged(name) for name in "ABC"] == [0, 0, 0]


@FEWER
@given(capacity=capacities, timing=timings, plan=plans, said=traffic)
def test_the_smallest_window_delivers_everything_too(
    capacity: int, timing: str, plan: list[Strike], said: list[Burst]
) -> None:
    """P-09, P-14, M-4: MCAST of any capacity; no window ever holds more, no wake-up is lost."""
    settings_of = {"MCAST": {"window_messages": capacity}}
    story = Story(GroupWorld("ABC", "mcast", timing, protocols=settings_of), plan)
    for burst in said:
        story.say_one(burst)
        for sender in "ABC":
            assert story.world.unpurged(sender) <= capacity
    story.end()
    story.world.settle()
    story.world.settle()
    story.assert_all_delivered()
    assert [story.world.unpurged(name) for name in "ABC"] == [0, 0, 0]


# -- P-15 ------------------------------------------------------------


def known_since(world: GroupWorld, name: str, sender: str, seqno: int) -> float:
    """When a member could first know that a seqno exists."""
    return min(
        (
            min(sent.arrivals)
            for sent in world.sent(sender, dest=name)
            if sent.arrivals and sent.head.protocol in MULTICAST and sent.hi >= seqno
        ),
        default=inf,
    )


def had(world: GroupWorld, name: str, sender: str, seqno: int) -> float:
    """When a member got a message."""
    return min(
        (
            min(sent.arrivals)
            for sent in world.sent(sender, DATA, seqno, dest=name)
            if sent.arrivals
        ),
        default=inf,
    )


@FEWER
@given(stack=stacks, timing=timings, plan=plans, said=traffic)
def test_every_request_is_justified_and_no_two_come_too_close(
    stack: str, timing: str, plan: list[Strike], said: list[Burst]
) -> None:
    """P-15, M-7: what is asked for was missing at a previous look, is missing now, and was not
    asked for within the interval."""
    story = Story(GroupWorld("ABC", stack, timing), plan)
    world = story.world
    story.say(said)
    story.end()
    names = {world.short(name): name for name in "ABC"}
    last: dict[tuple[str, str, int], float] = {}
    for sent in sorted(world.requests(), key=lambda one: one.at):
        sender = names[sent.head.conn]
        for seqno in seqnos_of(sent):
            assert had(world, sent.source, sender, seqno) > sent.at
            patience, spacing = (1.0, 0.999) if timing == "compatible" else (0.001, 0.002)
            previous = last.get((sent.source, sender, seqno), -1.0)
            known = known_since(world, sent.source, sender, seqno)
            # What no frame of the sender told, stability did, which waits for its own second look.
            assert known == inf or sent.at - known >= patience - 1e-9
            assert previous < 0 or sent.at - previous >= spacing - 1e-9
            last[sent.source, sender, seqno] = sent.at


def seqnos_of(sent: Sent) -> list[int]:
    return [seqno for lo, hi in sent.asks_for() for seqno in range(lo, hi + 1)]


# -- P-20 ------------------------------------------------------------


@FEWER
@given(timing=timings, max_batch=batches, plan=harmless, said=traffic)
def test_what_is_only_late_is_never_asked_for_without_retransmission(
    timing: str, max_batch: int | None, plan: list[Strike], said: list[Burst]
) -> None:
    """P-20: any delays, but no loss: everything is delivered, and nobody asks."""
    world = GroupWorld("ABC", "tcp-no-retransmit", timing, max_batch=max_batch)
    world.advance(1.0)
    story = Story(world, plan)
    story.say(said)
    story.end()
    story.assert_all_delivered()
    assert world.count(kind=XMIT_REQ) == 0
    assert [world.unpurged(name) for name in "ABC"] == [0, 0, 0]
    assert not any(world[name].events(trace.ALARM) for name in "ABC")


# -- P-18 ------------------------------------------------------------


def offset(world: GroupWorld, name: str, sender: str) -> int:
    """Where the latest window of a sender began."""
    opened = [
        event.lo
        for event in world[name].events(trace.CONN)
        if event.stream == trace.RECEIVER_OPEN
        and event.peer == world.short(sender)
        and event.protocol in MULTICAST
    ]
    return opened[-1]


@FEW
@given(
    stack=st.sampled_from(["udp", "mcast"]),
    timing=timings,
    plan=plans,
    begin=st.integers(0, 8),
    said=st.lists(traffic, min_size=1, max_size=3),
)
def test_a_joiner_begins_at_its_digest_and_misses_nothing_afterwards(
    stack: str, timing: str, plan: list[Strike], begin: int, said: list[list[Burst]]
) -> None:
    """P-18: any interleaving of multicasts with request, answer and view, any of them lost, copied
    or late."""
    join_and_talk(stack, timing, plan, begin, said)


@FEW
@given(
    timing=timings,
    plan=harmless,
    begin=st.integers(0, 8),
    said=st.lists(traffic, min_size=1, max_size=3),
)
def test_a_joiner_misses_nothing_although_nobody_retransmits(
    timing: str, plan: list[Strike], begin: int, said: list[list[Burst]]
) -> None:
    """P-18 and P-20: over a wire that loses nothing, whatever it delays."""
    join_and_talk("tcp-no-retransmit", timing, plan, begin, said)


def join_and_talk(
    stack: str, timing: str, plan: list[Strike], begin: int, said: list[list[Burst]]
) -> None:
    world = GroupWorld("ABC", stack, timing, joined=False)
    world.join(*"ABC")
    world.advance_until(lambda: world.agrees("ABC"), 60.0)
    world.advance(2.0)
    story = Story(world, plan, joined=False)
    world.start("D")
    spoken = [burst for part in said for burst in part]
    for index, burst in enumerate(spoken):
        if index == min(begin, len(spoken) - 1):
            world.join("D")
        story.say_one(burst)
    world.advance_until(lambda: world.agrees("ABCD"), 120.0)
    for sender in "ABC":
        story.say_one(Burst(sender, 2, 0.01))
    story.end()
    story.assert_all_delivered()
    for sender in "ABC":
        begun = offset(world, "D", sender)
        assert world.got("D", sender) == story.sent[sender][begun:]
    assert [world.unpurged(name) for name in "ABCD"] == [0] * 4
    assert not any(world[name].events(trace.ALARM) for name in "ABCD")


# -- P-09, P-17, P-21 ------------------------------------------------------------


@FEWER
@given(
    stack=stacks,
    timing=timings,
    capacity=st.sampled_from([2, 5]),
    silent=st.lists(st.sampled_from("BCD"), max_size=3, unique=True),
    counts=st.lists(st.integers(1, 12), min_size=1, max_size=4),
)
def test_whoever_blocks_is_released_by_the_views_without_the_silent(
    stack: str, timing: str, capacity: int, silent: list[str], counts: list[int]
) -> None:
    """P-09, P-17: any members fall silent, one view after the other excludes them; all that was
    accepted reaches who is left, in order, and what is purged all who are left have."""
    name = {"udp": "NAKACK2", "mcast": "MCAST"}[stack]
    world = GroupWorld("ABCD", stack, timing, protocols={name: {"window_messages": capacity}})
    world.deliver()
    left = "ABCD"
    world.partition("".join(n for n in left if n not in silent), *silent)
    sent = 0
    for index, count in enumerate(counts):
        world.multicast("A", *numbered(sent + 1, sent + count))
        sent += count
        world.advance(0.5)
        if index < len(silent):
            left = left.replace(silent[index], "")
            world.install(left)
        world.advance(0.5)
    for gone in silent[len(counts) :]:
        left = left.replace(gone, "")
        world.install(left)
    world.advance(60.0)
    assert world.everyone_got("A", numbered(1, sent), left)
    assert world.unpurged("A") == 0
    if stack == "mcast":
        acks = world.acks("A")
        assert {n for n in "ABCD" if world.short(n) in acks} == set(left)
        assert acks.minimum == min(acks.of(world.short(n)) or 0 for n in left)
