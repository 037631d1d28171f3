"""Reliable unicast under any finite plan of faults (P-01 to P-08, P-10 to P-13, P-15).

A plan names frames by their number on a directed path, so it is exhausted by traffic and shrinks to
the one fault that matters. After it the wire is perfect; what is promised then has a bound.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise
from math import inf
from random import Random

from hypothesis import assume, example, given, settings
from hypothesis import strategies as st

from stormcast.node import trace
from stormcast.node.core.model import DONT_LOOPBACK, OOB
from stormcast.node.core.serial import is_newer
from stormcast.node.core.wire import ACK, DATA, STABLE, XMIT_REQ
from stormcast.node.protocols.unicast.entries import State
from tests.helpers.world import (
    EVERY,
    NEWEST,
    TIMINGS,
    Member,
    Pair,
    World,
    numbered,
)

FEWER = settings(max_examples=max(1, settings.default.max_examples * 3 // 5))

generations = st.sampled_from(EVERY)
newest = st.sampled_from(NEWEST)
timings = st.sampled_from(TIMINGS)
batches = st.sampled_from([1, 3, None])

LIVES = {"conn_expiry_timeout": 6000.0, "conn_close_timeout": 6000.0, "max_retransmit_time": 6000.0}
"""Nothing ends by itself while a property is looked at."""


@dataclass(frozen=True)
class Strike:
    """One fault: the n-th frame of a member is lost, copied, or late."""

    does: str
    source: str
    nth: int
    amount: float

    def put_on(self, world: World) -> None:
        if self.does == "drop":
            world.drop(self.source, after=self.nth)
        elif self.does == "copy":
            world.duplicate(self.source, after=self.nth, copies=1 + int(self.amount))
        else:
            world.late(self.amount, self.source, after=self.nth)


@dataclass(frozen=True)
class Burst:
    """What one member sends in one turn, and the pause after it."""

    source: str
    count: int
    pause: float
    oob: bool = False


strikes = st.builds(
    Strike,
    does=st.sampled_from(["drop", "drop", "copy", "late"]),
    source=st.sampled_from("AB"),
    nth=st.integers(0, 40),
    amount=st.sampled_from([0.0005, 0.004, 0.3, 0.7, 1.6, 3.0]),
)
plans = st.lists(strikes, max_size=12, unique_by=lambda one: (one.source, one.nth))
pauses = st.sampled_from([0.0, 0.0003, 0.01, 0.26, 0.9])
bursts = st.builds(
    Burst, source=st.sampled_from("AB"), count=st.integers(1, 6), pause=pauses, oob=st.just(False)
)
mixed_bursts = st.builds(
    Burst, source=st.sampled_from("AB"), count=st.integers(1, 4), pause=pauses, oob=st.booleans()
)
traffic = st.lists(bursts, min_size=1, max_size=8)


class Talk:
    """A pair under a plan, and what either has sent so far."""

    def __init__(
        self,
        generation: str,
        timing: str,
        plan: list[Strike],
        max_batch: int | None = 1,
        **overrides: object,
    ) -> None:
        self.pair = Pair(generation, timing, max_batch=max_batch, **(LIVES | overrides))
        self.sent: dict[str, list[bytes]] = {"A": [], "B": []}
        for strike in plan:
            strike.put_on(self.pair)

    def say(self, bursts: list[Burst]) -> None:
        for burst in bursts:
            said = self.sent[burst.source]
            new = [b"%s%d" % (burst.source.encode(), len(said) + n) for n in range(burst.count)]
            said += new
            peer = "B" if burst.source == "A" else "A"
            self.pair[burst.source].send(*new, to=peer, flags=OOB if burst.oob else 0)
            self.pair.advance(burst.pause)

    def end(self) -> None:
        """Let late frames arrive, end what the plan still had, and let repair happen."""
        self.pair.advance(3.0)
        self.pair.heal()
        self.pair.settle()

    def got(self) -> dict[str, list[bytes]]:
        """By sender."""
        return {"A": self.pair.b.delivered, "B": self.pair.a.delivered}

    def fresh(self) -> None:
        """From here on, only what is sent and delivered now counts."""
        for said in self.sent.values():
            said.clear()
        for member in self.pair:
            member.take()


# -- P-01, P-03: delivery and silence ------------------------------------------------------------


@given(generation=generations, timing=timings, batch=batches, plan=plans, bursts=traffic)
def test_any_finite_plan_of_faults_ends_with_everything_delivered_once_in_order_and_silence(
    generation: str, timing: str, batch: int | None, plan: list[Strike], bursts: list[Burst]
) -> None:
    """P-01 and P-03: within the promised bound after the last fault, and then not one frame."""
    talk = Talk(generation, timing, plan, batch)
    talk.say(bursts)
    talk.end()

    assert talk.got() == talk.sent
    talk.pair.assert_idle(20.0)


@FEWER
@given(
    generation=generations,
    timing=timings,
    seed=st.integers(0, 2**16),
    loss=st.sampled_from([0.1, 0.3, 0.6]),
    count=st.integers(1, 40),
)
def test_any_lossy_wire_delivers_exactly_what_was_sent(
    generation: str, timing: str, seed: int, loss: float, count: int
) -> None:
    """P-01 with loss by chance, in both directions, for as long as there is traffic."""
    random = Random(seed)
    plan = [
        Strike("drop", source, nth, 0.0)
        for source in "AB"
        for nth in range(60)
        if random.random() < loss
    ]
    talk = Talk(generation, timing, plan)
    talk.say([Burst("A", 1, 0.05)] * count)
    talk.end()

    assert talk.got() == talk.sent
    talk.pair.assert_idle()


@FEWER
@given(
    generation=generations,
    timing=timings,
    capacity=st.integers(2, 7),
    batch=batches,
    plan=plans,
    bursts=traffic,
)
def test_any_faults_on_small_windows_end_with_everything_delivered(
    generation: str,
    timing: str,
    capacity: int,
    batch: int | None,
    plan: list[Strike],
    bursts: list[Burst],
) -> None:
    """P-01 and P-09 (no lost wake-up): windows that fill and empty all the time."""
    overrides = {"ack_threshold": 1} if generation in NEWEST else {}
    talk = Talk(generation, timing, plan, batch, window_messages=capacity, **overrides)
    talk.say(bursts)
    talk.end()
    talk.pair.intervals(60)

    assert talk.got() == talk.sent
    talk.pair.assert_idle()


# -- P-02: OOB -----------------------------------------------------------------------------------


@given(
    generation=generations,
    timing=timings,
    plan=plans,
    bursts=st.lists(mixed_bursts, min_size=1, max_size=8),
)
def test_oob_messages_are_delivered_once_and_regular_ones_keep_their_order(
    generation: str, timing: str, plan: list[Strike], bursts: list[Burst]
) -> None:
    """P-02: every message once; the regular ones of a sender in order; nothing regular before all
    earlier seqnos, OOB ones included, have been received."""
    talk = Talk(generation, timing, plan)
    talk.say(bursts)
    talk.end()

    for source, dest in (("A", talk.pair.b), ("B", talk.pair.a)):
        assert sorted(dest.delivered) == sorted(talk.sent[source])
        seen: set[int] = set()
        for delivery in dest.deliveries:
            if not delivery.flags & OOB:
                assert seen.issuperset(range(1, delivery.lo))
            seen.update(range(delivery.lo, delivery.hi + 1))
        regular = [one.lo for one in dest.deliveries if not one.flags & OOB]
        assert regular == sorted(regular)
    talk.pair.assert_idle()


@given(
    generation=generations,
    timing=timings,
    lost=st.sets(st.integers(2, 9), max_size=5),
    oob=st.integers(2, 10),
)
def test_no_gap_delays_an_oob_message(
    generation: str, timing: str, lost: set[int], oob: int
) -> None:
    """P-02: whatever was lost before it, an OOB message that arrives is delivered at once."""
    assume(oob not in lost)
    pair = Pair(generation, timing)
    for seqno in lost:
        pair.drop("A", DATA, seqno)
    for number in range(1, 11):
        pair.a.send(b"%d" % number, flags=OOB if number == oob else 0)
    pair.deliver()
    assert b"%d" % oob in pair.b.delivered
    pair.settle()
    assert sorted(pair.b.delivered) == sorted(numbered(1, 10))


# -- P-04: lost beginnings -----------------------------------------------------------------------


@given(
    generation=generations,
    timing=timings,
    lost=st.integers(1, 12),
    count=st.integers(1, 8),
    window=st.sampled_from(["none", "older", "closing", "removed"]),
    batch=batches,
)
def test_any_number_of_frames_may_be_lost_at_the_beginning(
    generation: str, timing: str, lost: int, count: int, window: str, batch: int | None
) -> None:
    """P-04: for every number of lost frames, and every window that the receiver may have."""
    pair = Pair(generation, timing, max_batch=batch, **LIVES)
    if window != "none":
        pair.open(3)
        pair.a.forget("B")
    if window == "closing":
        pair.b.close("A")
    if window == "removed":
        pair.b.forget("A")
    beginning = pair.drop("A", times=lost)
    pair.a.send(*numbered(1, count))
    # Backing off, a dozen losses in a row take their time; the bound counts from the last.
    for _ in range(100):
        if beginning.taken == lost:
            break
        pair.intervals(2)
    else:
        pair.heal()
    pair.settle()

    assert pair.b.delivered == numbered(1, count)
    pair.assert_idle()


# -- P-05: connection ids ------------------------------------------------------------------------


def adopted(member: Member) -> list[tuple[int, int]]:
    """The connection id and the epoch of each window that was opened, or re-opened, in order."""
    return [
        (event.conn, event.epoch)
        for event in member.events(trace.CONN)
        if event.stream == trace.RECEIVER_OPEN
    ]


lapses = st.lists(
    st.tuples(st.sampled_from("AB"), st.sampled_from(["sender", "receiver", "both"]), bursts),
    min_size=1,
    max_size=4,
)


def forget(member: Member, half: str) -> None:
    member.forget(
        "B" if member.name == "A" else "A",
        sender=half != "receiver",
        receiver=half != "sender",
    )


@given(
    generation=generations,
    timing=timings,
    first=st.sampled_from([1, 0x7FFFFFFF, 0xFFFFFFFE, 0xFFFFFFFF]),
    plan=plans,
    lapses=lapses,
)
def test_connection_ids_only_grow_and_nothing_old_is_delivered_into_a_new_one(
    generation: str,
    timing: str,
    first: int,
    plan: list[Strike],
    lapses: list[tuple[str, str, Burst]],
) -> None:
    """P-05, G7: members forget each other again and again, under faults, over the wrap."""
    talk = Talk(generation, timing, plan, first_conn=first)
    for name, half, burst in lapses:
        talk.say([burst])
        forget(talk.pair[name], half)
    talk.end()

    for member in talk.pair:
        conns = [conn for conn, _epoch in adopted(member)]
        assert all(
            later == earlier or is_newer(later, earlier) for earlier, later in pairwise(conns)
        )
        delivered = [delivery.conn for delivery in member.deliveries]
        assert all(
            later == earlier or is_newer(later, earlier) for earlier, later in pairwise(delivered)
        )


# -- P-06: acks ----------------------------------------------------------------------------------


@given(
    generation=generations,
    timing=timings,
    plan=plans,
    bursts=traffic,
    lapses=st.lists(st.integers(0, 7), max_size=2),
)
def test_a_sender_lets_go_only_what_the_receiver_has_in_that_connection(
    generation: str, timing: str, plan: list[Strike], bursts: list[Burst], lapses: list[int]
) -> None:
    """P-06, G6: highest acked never goes back, and stands only for what B was handed before."""
    talk = Talk(generation, timing, plan)
    for number, burst in enumerate(bursts):
        talk.say([burst])
        if number in lapses:
            forget(talk.pair.b, "receiver")
    talk.end()

    received = [
        (event.conn, event.lo, event.hi, event.time)
        for event in talk.pair.b.events(trace.DELIVERED)
    ]
    low: dict[int, int] = {}
    for purge in talk.pair.a.events(trace.PURGED):
        assert purge.lo == low.get(purge.conn, 0) + 1
        low[purge.conn] = purge.hi
        have = {
            seqno
            for conn, lo, hi, time in received
            if conn == purge.conn and time <= purge.time
            for seqno in range(lo, hi + 1)
        }
        assert have.issuperset(range(purge.lo, purge.hi + 1))


@given(
    generation=generations,
    timing=timings,
    order=st.permutations(range(6)),
    copies=st.lists(st.integers(0, 5), max_size=6),
)
def test_no_order_and_no_copies_of_acks_change_the_end(
    generation: str, timing: str, order: list[int], copies: list[int]
) -> None:
    """P-06: the acks that six batches caused reach A in any order, some of them again."""
    threshold = {"ack_threshold": 1} if generation in NEWEST else {}
    pair = Pair(generation, timing, **LIVES, **threshold)
    held = pair.hold("B")
    for number in range(6):
        pair.a.send(b"%d" % number)
        pair.intervals(1.3)
    acks = [sent for sent in held.held if sent.kind in (ACK, STABLE)]
    assert acks
    lows = []
    for position in [*order, *copies]:
        pair.a.receive(acks[position % len(acks)].data)
        lows.append(pair.a.sender("B").window.low)
    assert lows == sorted(lows)

    pair.heal()
    pair.settle()
    assert (pair.a.sender("B").window.low, pair.a.sender("B").window.high) == (6, 6)
    assert pair.b.delivered == [b"%d" % number for number in range(6)]
    pair.assert_idle()


# -- P-07: amnesia -------------------------------------------------------------------------------


@given(
    generation=generations,
    timing=timings,
    plan=plans,
    lapses=lapses,
    after=traffic,
)
def test_all_that_is_sent_after_the_last_lapse_of_memory_is_delivered_once_in_order(
    generation: str,
    timing: str,
    plan: list[Strike],
    lapses: list[tuple[str, str, Burst]],
    after: list[Burst],
) -> None:
    """P-07: either side, or both, forget the other at any moment, under any faults. What was under
    way may be lost, or come again; what follows may not."""
    talk = Talk(generation, timing, plan)
    for name, half, burst in lapses:
        talk.say([burst])
        forget(talk.pair[name], half)
    before = {name: set(said) for name, said in talk.sent.items()}
    talk.say(after)
    talk.end()

    for source, got in talk.got().items():
        new = [payload for payload in talk.sent[source] if payload not in before[source]]
        assert [payload for payload in got if payload not in before[source]] == new
    talk.pair.assert_silent()


@given(
    generation=generations,
    timing=timings,
    bursts=st.lists(st.tuples(bursts, st.booleans(), st.booleans()), min_size=1, max_size=8),
)
def test_a_receiver_may_forget_at_any_moment_on_a_wire_that_keeps_its_order(
    generation: str, timing: str, bursts: list[tuple[Burst, bool, bool]]
) -> None:
    """P-07: its pending acks are flushed and arrive first, so nothing is lost or repeated."""
    talk = Talk(generation, timing, [])
    for burst, a_forgets, b_forgets in bursts:
        talk.say([burst])
        if a_forgets:
            forget(talk.pair.a, "receiver")
        if b_forgets:
            forget(talk.pair.b, "receiver")
    talk.end()

    assert talk.got() == talk.sent
    talk.pair.assert_idle()


# -- P-08: close is reversible -------------------------------------------------------------------


@given(
    generation=newest,
    timing=timings,
    plan=plans,
    rounds=st.lists(
        st.tuples(
            bursts,
            st.sampled_from(["A leaves", "B leaves", "both leave", "A closes", "B closes", "back"]),
        ),
        min_size=1,
        max_size=8,
    ),
)
def test_who_is_out_of_the_view_for_less_than_the_close_timeout_misses_nothing(
    generation: str, timing: str, plan: list[Strike], rounds: list[tuple[Burst, str]]
) -> None:
    """P-08: under faults, and with the connections that there were. Nobody is silent for as long as
    `max_retransmit_time`. UNICAST and UNICAST2 remove at once when a view lacks the peer, and
    promise nothing here."""
    talk = Talk(generation, timing, plan)
    pair = talk.pair
    for member in pair:
        member.see("A", "B")
    talk.say([Burst("A", 1, 0.0), Burst("B", 1, 0.0)])
    for burst, event in rounds:
        talk.say([burst])
        for member in pair:
            peer = "B" if member.name == "A" else "A"
            if event in (f"{peer} leaves", "both leave"):
                member.see(member.name)
            elif event == f"{member.name} closes":
                member.close(peer)
            elif event == "back":
                member.see("A", "B")
    for member in pair:
        member.see("A", "B")
    talk.end()

    assert talk.got() == talk.sent
    for member, peer in ((pair.a, "B"), (pair.b, "A")):
        assert member.sender(peer).conn == 1
        assert set(adopted(member)) == {(1, 1)}
        assert member.sender(peer).state is State.OPEN
    pair.assert_idle()


# -- P-10: strangers -----------------------------------------------------------------------------


@given(
    generation=generations,
    timing=timings,
    plan=plans,
    bursts=traffic,
    view=st.sampled_from(["", "A", "AB"]),
    dies=st.booleans(),
)
def test_nothing_stays_of_who_is_not_a_member(
    generation: str, timing: str, plan: list[Strike], bursts: list[Burst], view: str, *, dies: bool
) -> None:
    """P-10: A talks with B, then views (or none) without B; B may be dead; in the end A has no
    entry, no early frame, no timer."""
    talk = Talk(
        generation,
        timing,
        plan,
        conn_expiry_timeout=8.0,
        conn_close_timeout=8.0,
        max_retransmit_time=8.0,
    )
    if view:
        talk.pair.a.see(*view)
    talk.say(bursts)
    if dies:
        talk.pair.b.crash()
    if view:
        talk.pair.a.see("A")
    talk.pair.advance(60.0)

    a = talk.pair.a
    assert not a.stack.unicast.send_connections()
    assert not a.stack.unicast.receive_connections()
    assert a.cached() == 0
    assert talk.pair.frames_within(600.0) == []


# -- P-11: self ----------------------------------------------------------------------------------


@given(
    generation=generations,
    timing=timings,
    batch=batches,
    flags=st.lists(st.sampled_from([0, OOB, DONT_LOOPBACK, OOB | DONT_LOOPBACK]), max_size=30),
    turns=st.sets(st.integers(0, 30)),
)
def test_of_messages_to_self_exactly_those_without_dont_loopback_arrive(
    generation: str, timing: str, batch: int | None, flags: list[int], turns: set[int]
) -> None:
    """P-11: any mix, in any turns; nothing is on the wire, and nothing is left."""
    world = World(generation, timing, members="A", max_batch=batch)
    a = world["A"]
    for number, bits in enumerate(flags):
        assert a.stack.try_send(a.short, b"%d" % number, bits)
        if number in turns:
            a.turn()
    a.turn()

    expected = [b"%d" % n for n, bits in enumerate(flags) if not bits & DONT_LOOPBACK]
    assert a.delivered == expected
    assert world.wire == []
    assert a.stack.outbox.pending(a.short) == 0
    assert not a.stack.unicast.send_connections()
    world.assert_idle()


# -- P-12: batching ------------------------------------------------------------------------------


@given(
    generation=generations,
    timing=timings,
    bursts=st.lists(mixed_bursts, min_size=1, max_size=8),
    batch=st.sampled_from([2, 5, None]),
)
def test_batches_change_nothing_that_the_application_sees(
    generation: str, timing: str, bursts: list[Burst], batch: int | None
) -> None:
    """P-12: the same traffic, message by message and in batches."""
    got = []
    for max_batch in (1, batch):
        talk = Talk(generation, timing, [], max_batch)
        talk.say(bursts)
        talk.end()
        got.append(talk.got())
    assert got[0] == got[1]


@given(
    generation=generations,
    timing=timings,
    bursts=st.lists(mixed_bursts, min_size=1, max_size=6),
    batch=batches,
    order=st.randoms(use_true_random=False),
    cuts=st.sets(st.integers(0, 30)),
)
def test_datagrams_cut_anyhow_change_nothing_that_the_application_sees(
    generation: str,
    timing: str,
    bursts: list[Burst],
    batch: int | None,
    order: Random,
    cuts: set[int],
) -> None:
    """P-12: the same frames in the same (shuffled) order, one datagram each and in any bundles."""
    talk = Talk(generation, timing, [], batch)
    held = talk.pair.hold("A", DATA)
    talk.say(bursts)
    frames = [sent.data for sent in held.held]
    order.shuffle(frames)
    seen = []
    for bundle in (False, True):
        world = World(generation, timing, members="B", **LIVES)
        datagrams: list[list[bytes]] = []
        for number, frame in enumerate(frames):
            if not datagrams or not bundle or number in cuts:
                datagrams.append([])
            datagrams[-1].append(frame)
        for datagram in datagrams:
            world["B"].receive(*datagram)
        state = world["B"].receiver("A")
        seen.append((world["B"].delivered, state and state.window.delivered, world["B"].cached()))
    assert seen[0] == seen[1]


# -- P-13: views ---------------------------------------------------------------------------------


@given(
    generation=generations,
    timing=timings,
    plan=plans,
    rounds=st.lists(
        st.tuples(
            bursts,
            st.sampled_from("AB"),
            st.sampled_from([("A",), ("B",), ("A", "B"), ("C",), ("B", "A", "C")]),
        ),
        min_size=1,
        max_size=6,
    ),
    after=traffic,
)
def test_no_assignment_of_views_stops_unicasts(
    generation: str,
    timing: str,
    plan: list[Strike],
    rounds: list[tuple[Burst, str, tuple[str, ...]]],
    after: list[Burst],
) -> None:
    """P-13: views that lack the other, or the member itself; all that is sent after the last one
    is delivered once, in order."""
    talk = Talk(generation, timing, plan)
    for burst, name, members in rounds:
        talk.say([burst])
        talk.pair[name].see(*members)
    before = {name: set(said) for name, said in talk.sent.items()}
    talk.say(after)
    talk.end()

    for source, got in talk.got().items():
        new = [payload for payload in talk.sent[source] if payload not in before[source]]
        assert [payload for payload in got if payload not in before[source]] == new
    talk.pair.assert_silent()


# -- P-15: requests ------------------------------------------------------------------------------


@given(
    generation=st.sampled_from(EVERY[1:]),
    timing=timings,
    plan=plans,
    bursts=traffic,
    size=st.sampled_from([1, 3, 1024]),
)
@example(
    generation="UNICAST3",
    timing="compatible",
    size=1024,
    plan=[Strike("drop", "A", 1, 0.0)],
    bursts=[Burst("A", 4, 0.0)],
)
def test_only_what_is_missing_and_was_missing_before_is_asked_for(
    generation: str, timing: str, plan: list[Strike], bursts: list[Burst], size: int
) -> None:
    """P-15: a requested seqno had not arrived, a later one had, and not just now; a request is no
    larger than it may be."""
    talk = Talk(generation, timing, plan, max_xmit_req_size=size)
    talk.say(bursts)
    talk.end()

    least = talk.pair.interval if timing == "compatible" else 0.0005
    for source, dest in (("A", "B"), ("B", "A")):
        arrived: dict[int, float] = {}
        for sent in talk.pair.sent(source, DATA):
            for at in sent.arrivals:
                arrived[sent.lo] = min(at, arrived.get(sent.lo, at))
        for request in talk.pair.sent(dest, XMIT_REQ):
            asked = [seqno for lo, hi in request.asks_for() for seqno in range(lo, hi + 1)]
            assert len(asked) <= size
            for seqno in asked:
                assert arrived.get(seqno, 1e9) >= request.at
                later = min(at for other, at in arrived.items() if other > seqno)
                assert later <= request.at - 0.999 * least, "asked for at the first look"


# -- P-39: stop ----------------------------------------------------------------------------------


@given(generation=generations, timing=timings, plan=plans, bursts=traffic, again=st.booleans())
def test_stopping_at_any_moment_ends_all_that_a_member_would_do(
    generation: str, timing: str, plan: list[Strike], bursts: list[Burst], *, again: bool
) -> None:
    """P-39: whatever is under way, stopped is stopped; a second time changes nothing."""
    talk = Talk(generation, timing, plan)
    talk.say(bursts)
    talk.pair.a.stop()
    if again:
        talk.pair.a.stop()

    assert talk.pair.a.stack.next_deadline() == inf
    assert not talk.pair.a.stack.unicast.send_connections()
    assert not talk.pair.a.stack.unicast.receive_connections()
    sent = talk.pair.count("A")
    talk.pair.advance(30.0)
    assert talk.pair.count("A") == sent
