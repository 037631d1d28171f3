"""Credits while the group changes by itself: who waits is released, and nobody is owed anything."""

from __future__ import annotations

import pytest

from stormcast.node import trace
from stormcast.node.core.model import NO_RELIABILITY, OOB
from stormcast.node.core.wire import CREDIT_REQ, DATA, GROUP, UFC
from tests.helpers.group import GroupWorld, Sent, formed
from tests.helpers.world import TIMINGS

both_timings = pytest.mark.parametrize("timing", TIMINGS)
BUDGET = 10_000


def lean(members: str, timing: str, stack: str = "udp") -> GroupWorld:
    """A group in which little may be under way."""
    protocols: dict[str, dict[str, object]] = {
        "UFC": {"max_credits": BUDGET},
        "FRAG": {"frag_size": 1500},
        "MERGE3": {"min_interval": 0.5, "max_interval": 1.0, "check_interval": 3.0},
    }
    if stack != "mcast":
        protocols["MFC"] = {"max_credits": BUDGET}
    return formed(members, stack, timing, protocols=protocols)


def thousands(first: int, last: int) -> list[bytes]:
    """Messages of a thousand bytes, each with its number."""
    return [b"%08d" % number + bytes(992) for number in range(first, last + 1)]


def assert_no_lane_waits(world: GroupWorld, name: str) -> None:
    member = world[name]
    assert len(member.events(trace.BLOCKED)) == len(member.events(trace.UNBLOCKED))


@pytest.mark.slow
@both_timings
def test_the_crash_of_the_slowest_member_releases_who_waits_for_its_credits(timing: str) -> None:
    """C-04, C-07: C takes nothing, then dies; its detectors say so, the view says so, and then A's
    multicasts go on. What A had for C alone is given up."""
    world = lean("ABC", timing)
    world["C"].consume(consuming=False)
    world.multicast("A", *thousands(1, 40))
    world["A"].send(*thousands(1, 40), to="C")
    world.advance(1.0)
    assert world["A"].stack.outbox.pending(GROUP) == 30
    world["C"].crash()
    world.advance_until(lambda: world.views_agree("AB"), 90.0)
    world.settle()
    assert world.everyone_got("A", thousands(1, 40), "AB")
    world.advance(2 * world.settings.unicast_config.conn_close_timeout)
    assert world["A"].stack.outbox.pending(world.short("C")) == 0
    assert_no_lane_waits(world, "A")


@both_timings
def test_who_comes_back_is_owed_nothing_and_owes_nothing(timing: str) -> None:
    """P-09, P-10: each B takes more than a budget, and the next one is served at once again."""
    world = lean("AB", timing)
    for _again in range(3):
        world.multicast("A", *thousands(1, 25))
        world["A"].send(*thousands(1, 25), to="B")
        world["B"].send(*thousands(1, 25), to="A")
        world.advance(world.settings.of("MFC").max_block_time)
        assert world["B"].take() != []
        assert len(world["A"].take()) == 50
        world.depart("B")
        world.comes_back("B")
        world.advance_until(lambda: world.views_agree("AB"), 10.0)
    assert world["A"].stack.group.flow[UFC].room(world.short("B")) == BUDGET  # type: ignore[union-attr]


@pytest.mark.slow
@both_timings
def test_credits_that_a_partition_tore_are_whole_after_the_merge(timing: str) -> None:
    """P-34: both sides speak while apart, and have spent more than a budget before; together again,
    all of what is said then arrives, without a wait for every budget."""
    world = lean("ABCD", timing)
    for name in "AC":
        world.multicast(name, *thousands(1, 15))
    world.settle()
    world.partition("AB", "CD")
    for name, other in ("AC", "CA"):
        world.multicast(name, *thousands(16, 45))
        world[name].send(*thousands(1, 30), to=other)
    world.advance_until(lambda: world.views_agree("AB") and world.views_agree("CD"), 90.0)
    world.heal()
    world.advance_until(lambda: world.views_agree("ABCD"), 30.0)
    world.settle()
    for member in world:
        member.take()
    for name in "AC":
        world.multicast(name, *thousands(46, 90))
    world.advance(2 * world.settings.of("MFC").max_block_time)
    for name in "AC":
        assert world.everyone_got(name, thousands(46, 90), "ABCD")
        assert_no_lane_waits(world, name)


@both_timings
@pytest.mark.parametrize("to", ["B", ""])
def test_what_nobody_numbers_neither_costs_nor_brings_credits(timing: str, to: str) -> None:
    """P-33: unreliable messages are not counted where they are sent, so they must not be where
    they are taken: the receiver would allow more than it has room for, or what is refused."""
    world = lean("AB", timing)
    dest = world.short(to) if to else GROUP
    for payload in thousands(1, 12):
        assert world["A"].stack.try_send(dest, payload)
        world["A"].turn()
    world.advance(world.settings.of("MFC").max_block_time)
    for payload in thousands(1, 12):
        assert world["A"].stack.try_send(dest, payload, NO_RELIABILITY)
        world["A"].turn()
    world.deliver()
    assert "credit-beyond-limit" not in world["A"].refused
    world["B"].consume(consuming=False)
    for payload in thousands(1, 40):
        assert world["A"].stack.try_send(dest, payload)
        world["A"].turn()
    world.advance(10.0)
    # Whatever of the budget was left, and no more than that.
    assert world["A"].stack.outbox.pending(dest) >= 30


@both_timings
@pytest.mark.parametrize("stack", ["udp", "mcast", "tcp-nio2"])
def test_a_question_about_a_connection_that_is_gone_is_asked_anew(stack: str, timing: str) -> None:
    """A speaks until its credits are spent, into a network that loses it all, and loses the
    connection: what was lost with it costs one question, not the peer for ever (P-33, P-34)."""
    world = lean("AB", timing, stack)
    world["A"].send(b"first")
    world.settle()
    world.cut("A", "B")
    world["A"].send(*thousands(1, 20))
    world.advance(1.0)
    assert world["A"].stack.outbox.pending(world.short("B")) > 0
    world["A"].forget("B", receiver=False)
    world.advance(0.1)
    world.heal()
    world["A"].send(*thousands(21, 60))
    world.advance(2 * world.settings.of("UFC").max_block_time)
    assert world.got("B", "A") == [b"first", *thousands(21, 60)]
    assert_no_lane_waits(world, "A")


@both_timings
def test_what_comes_late_of_a_connection_that_ended_brings_no_credits(timing: str) -> None:
    """It is in the count that was settled since: B would allow its bytes a second time (P-33)."""
    world = lean("AB", timing)
    world["A"].send(b"first")
    world.settle()
    held = world.hold("A", DATA, dest="B")
    world["A"].send(*thousands(1, 20))
    world.advance(1.0)
    world["A"].forget("B", receiver=False)
    world.advance(1.0)
    world["A"].stack.try_send(world.short("B"), b"again")
    world["A"].turn()
    world.advance(2 * world.settings.of("UFC").max_block_time)
    world.release(held)
    world.settle()
    world["B"].consume(consuming=False)
    world["A"].send(*thousands(21, 60))
    world.advance(2 * world.settings.of("UFC").max_block_time)
    assert world["A"].stack.outbox.pending(world.short("B")) >= 30


@both_timings
def test_a_receiver_that_lost_its_window_grants_what_was_acked(timing: str) -> None:
    """A asks while its messages are under way, and no question arrives. B takes them, acks them,
    and loses the window: A sends nothing that would open another, and must get its answer."""
    world = lean("AB", timing)
    world["A"].send(b"first")
    world.settle()
    lost = world.drop("A", CREDIT_REQ, protocol=UFC, times=1 << 30)
    world["A"].send(*thousands(1, 20))
    world.settle()
    world["B"].forget("A", sender=False)
    world.release(lost)
    world.advance(2 * world.settings.of("UFC").max_block_time)
    assert world.got("B", "A") == [b"first", *thousands(1, 20)]


def taken_of_a(world: GroupWorld, *frames: Sent) -> tuple[int, int] | None:
    """How far B's application has taken A's unicasts, after these frames and before it takes."""
    stack = world["B"].stack
    for frame in frames:
        stack.receive(frame.data, world.now)
    assert stack.group is not None
    taken: tuple[int, int] | None = stack.group.flow[UFC]._windows.taken(world.short("A"))
    return taken


def frames_of_a(world: GroupWorld, *payloads: bytes, flags: int = 0) -> list[Sent]:
    """The frames in which A sends these to B, before they arrive."""
    held = world.hold("A", DATA, dest="B")
    before = len(world.sent("A", DATA))
    for payload in payloads:
        world["A"].send(payload, flags=flags)
    world.release(held)
    return world.sent("A", DATA)[before:]


def test_what_waits_above_a_gap_does_not_say_that_the_gap_was_taken() -> None:
    """An OOB message was handed up ahead of 3, and the application is slow. Asked about 3, B would
    settle on a count that holds it, and count it again."""
    world = lean("AB", "compatible")
    world["A"].send(b"1", b"2")
    world.settle()
    frames_of_a(world, b"3")
    (early,) = frames_of_a(world, b"4", flags=OOB)
    assert taken_of_a(world) == (1, 2)
    assert taken_of_a(world, early) == (1, 2)


def test_what_waits_of_a_connection_that_was_replaced_is_not_taken() -> None:
    """B hands up 3, then meets the next connection in the same turn: 3 is not taken yet."""
    world = lean("AB", "compatible")
    world["A"].send(b"1", b"2")
    world.settle()
    (old,) = frames_of_a(world, b"3")
    world["A"].forget("B")
    (new,) = frames_of_a(world, b"4")
    assert taken_of_a(world, old, new) == (1, 2)
    world["B"].turn()
    assert taken_of_a(world) == (2, 1)
