"""Flow control and fragments in the whole stack: who waits, for whom, and who releases it."""

from __future__ import annotations

import pytest

from stormcast.node import trace
from stormcast.node.core.model import NO_FC
from stormcast.node.core.wire import CREDIT, DATA, GROUP
from tests.helpers.group import ALWAYS, STACKS, GroupWorld
from tests.helpers.world import TIMINGS

both_timings = pytest.mark.parametrize("timing", TIMINGS)
everywhere = pytest.mark.parametrize(
    ("stack", "timing"), [(stack, timing) for stack in STACKS for timing in TIMINGS]
)


def lean(members: str, timing: str, stack: str = "udp", budget: int = 10_000) -> GroupWorld:
    """Members that may have little under way."""
    protocols: dict[str, dict[str, object]] = {
        "UFC": {"max_credits": budget},
        "FRAG": {"frag_size": budget // 10},
    }
    if stack == "udp":
        protocols["MFC"] = {"max_credits": budget}
    world = GroupWorld(members, stack, timing, protocols=protocols)
    world.deliver()
    return world


def thousands(count: int) -> list[bytes]:
    """Messages of a thousand bytes, each with its number."""
    return [b"%08d" % number + bytes(992) for number in range(count)]


# -- Credits ------------------------------------------------------------


@both_timings
def test_who_cannot_take_stops_multicasts_until_a_view_without_it(timing: str) -> None:
    """C-04: C takes nothing; A spends the credits it has for it, and waits; the view releases."""
    world = lean("ABCD", timing)
    world["C"].consume(consuming=False)
    world.multicast("A", *thousands(40))
    world.advance(20.0)
    got = len(world.got("B", "A"))
    assert got == 10
    assert world["A"].stack.outbox.pending(GROUP) == 30
    world.partition("ABD", "C")
    world.install("ABD")
    world.advance(20.0)
    assert world.everyone_got("A", thousands(40), "ABD")
    assert len(world["A"].events(trace.BLOCKED)) == len(world["A"].events(trace.UNBLOCKED))


@both_timings
def test_who_waits_for_credits_may_stop(timing: str) -> None:
    """C-05: nothing more is sent, by nobody."""
    world = lean("ABCD", timing)
    world["C"].consume(consuming=False)
    world.multicast("A", *thousands(40))
    world.advance(5.0)
    world["A"].stop()
    assert world["A"].stack.next_deadline() == float("inf")
    before = world.count("A")
    world.advance(30.0)
    assert world.count("A") == before


@both_timings
def test_unicasts_to_who_cannot_take_wait_alone(timing: str) -> None:
    """C-07: A's unicasts to C wait; those to B and the multicasts do not."""
    world = lean("ABC", timing)
    world["C"].consume(consuming=False)
    world["A"].send(*thousands(40), to="C")
    world["A"].send(*thousands(40), to="B")
    world.advance(20.0)
    assert len(world["B"].from_("A")) == 40
    assert world["A"].stack.outbox.pending(world.short("C")) == 30
    world["C"].consume(consuming=True)
    world.advance(20.0)
    assert world["C"].from_("A") == thousands(40)


@pytest.mark.parametrize("end", ["view", "stop"])
@both_timings
def test_a_unicast_that_waits_for_credits_ends_with_the_view_or_the_stop(
    timing: str, end: str
) -> None:
    """C-07: its lane does not stay blocked for a member that is gone."""
    world = lean("ABC", timing)
    world["C"].consume(consuming=False)
    world["A"].send(*thousands(40), to="C")
    world.advance(5.0)
    world.partition("AB", "C")
    if end == "view":
        world.install("AB")
        world.advance(300.0)
        assert world["A"].stack.outbox.pending(world.short("C")) == 0
        assert len(world["A"].events(trace.BLOCKED)) == len(world["A"].events(trace.UNBLOCKED))
    else:
        world["A"].stop()
        assert world["A"].stack.next_deadline() == float("inf")


@everywhere
def test_nobody_waits_for_its_own_credits(stack: str, timing: str) -> None:
    """C-02, C-08, P-11: far more than the credits, to itself, unicast and multicast, in pieces
    too; all arrives without time passing."""
    world = lean("A", timing, stack)
    world.multicast("A", *thousands(100))
    world.advance(0.01)
    world["A"].send(*thousands(100), to="A")
    world["A"].send(bytes(5000), to="A")
    world.advance(0.01)
    world.multicast("A", bytes(5000))
    world.advance(0.01)
    assert world.got("A", "A") == [*thousands(100), *thousands(100), bytes(5000), bytes(5000)]


@both_timings
def test_lost_credits_are_asked_for(timing: str) -> None:
    """P-34: every grant is lost for a while."""
    world = lean("ABC", timing)
    world.drop(kind=CREDIT, times=6)
    world.multicast("A", *thousands(60))
    world["A"].send(*thousands(60), to="B")
    world.advance(60.0)
    assert world.got("C", "A") == thousands(60)
    assert len(world.got("B", "A")) == 120


@both_timings
def test_what_asks_for_no_credit_costs_none(timing: str) -> None:
    """P-33: as much again is admitted afterwards as before."""
    world = lean("AB", timing)
    world["B"].consume(consuming=False)
    world.multicast("A", *thousands(50), flags=NO_FC)
    world.multicast("A", *thousands(50))
    world.advance(10.0)
    assert world["A"].stack.outbox.pending(GROUP) == 40


@both_timings
def test_a_retransmission_spends_no_credit(timing: str) -> None:
    """P-34: with half of all frames lost the stream still flows."""
    world = lean("AB", timing)
    world.weather(1, loss=0.5)
    world.multicast("A", *thousands(50))
    world.advance(60.0)
    world.heal()
    world.advance(60.0)
    assert world.got("B", "A") == thousands(50)


# -- Fragments ------------------------------------------------------------


@everywhere
def test_many_large_unicasts_arrive_whole(stack: str, timing: str) -> None:
    """FR-01, FR-02: a hundred of 100 KB, in pieces of 24 KB, over a wire that loses some."""
    world = GroupWorld(
        "AB", stack, timing, protocols={"FRAG": {"frag_size": 24_000}}, max_batch=None
    )
    world.weather(2, loss=0.02)
    source = bytes(range(256)) * 500
    slices = [memoryview(source)[start : start + 100_000] for start in range(50)]
    for payload in slices:
        assert world["A"].stack.try_send(world.short("B"), payload)
        world["A"].turn()
        world.advance(0.01)
    world.advance(10.0)
    world.heal()
    world.advance(60.0)
    assert world["B"].from_("A") == [bytes(payload) for payload in slices]


@pytest.mark.parametrize("size", [0, 1, 23_999, 24_000, 24_001, 48_000, 48_001])
@everywhere
def test_a_message_of_any_size_keeps_its_bytes(stack: str, timing: str, size: int) -> None:
    """FR-05, at both sides of each boundary; its sender gets the multicast, too."""
    world = GroupWorld("AB", stack, timing, protocols={"FRAG": {"frag_size": 24_000}})
    payload = (bytes(range(256)) * 200)[:size]
    world.multicast("A", payload)
    world["A"].send(payload, to="B")
    world.deliver()
    assert world.got("A", "A") == [payload]
    assert world.got("B", "A") == [payload, payload]


@everywhere
def test_pieces_of_who_is_gone_are_freed(stack: str, timing: str) -> None:
    """P-35: the last piece never comes."""
    world = GroupWorld("ABC", stack, timing, protocols={"FRAG": {"frag_size": 1000}})
    world.drop("C", DATA, 5, times=ALWAYS)
    world.multicast("C", bytes(4500))
    world.deliver()
    stack_of_a = world["A"].stack
    stack_of_a.record.gauge(world.now)
    assert open_bytes(world) > 0
    world.install("AB")
    stack_of_a.record.gauge(world.now)
    assert world.got("A", "C") == []
    before = len(gauges(world))
    world.advance(0.3)
    stack_of_a.record.gauge(world.now)
    assert len(gauges(world)) == before


def gauges(world: GroupWorld) -> list[int]:
    return [
        event.lo for event in world["A"].events(trace.GAUGE) if event.stream == trace.FRAGMENT_BYTES
    ]


def open_bytes(world: GroupWorld) -> int:
    return gauges(world)[-1] if gauges(world) else 0
