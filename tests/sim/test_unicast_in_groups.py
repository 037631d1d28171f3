"""Connections in a group: a member is given up by the view alone, however silent it is."""

from __future__ import annotations

import pytest

from stormcast.node import trace
from stormcast.node.core.model import OOB
from stormcast.node.core.wire import CREDIT, DATA, UFC
from tests.helpers.group import STACKS, GroupWorld
from tests.helpers.world import ALWAYS, TIMINGS, numbered

both_timings = pytest.mark.parametrize("timing", TIMINGS)
both_stacks = pytest.mark.parametrize("stack", STACKS)

IDLE = {"conn_expiry_timeout": 2.0, "conn_close_timeout": 2.0}
LONG = 30.0
"""Seconds, many times what an idle connection lives."""


def group(stack: str, timing: str, members: str = "AB", credits_: int = 10_000) -> GroupWorld:
    """A group whose view nobody changes, with connections that are closed soon when idle."""
    unicast = "UNICAST4" if stack == "mcast" else "UNICAST3"
    world = GroupWorld(
        members,
        stack,
        timing,
        protocols={
            unicast: dict(IDLE),
            "UFC": {"max_credits": credits_},
            "FRAG": {"frag_size": 1500},
        },
    )
    # Until the members watch each other; what is not watched yet would be suspected when cut off.
    world.advance(0.1)
    return world


def thousands(first: int, last: int) -> list[bytes]:
    """Messages of a thousand bytes, each with its number."""
    return [b"%08d" % number + bytes(992) for number in range(first, last + 1)]


def ends(world: GroupWorld, name: str) -> list[str]:
    """Why connections of a member were removed."""
    removed = (trace.SENDER_REMOVED, trace.RECEIVER_REMOVED)
    unicasts = world[name].stack.unicast.protocol
    return [
        why
        for event, why in world[name].told(trace.CONN)
        if event.stream in removed and event.protocol == unicasts
    ]


@both_stacks
@both_timings
def test_a_sender_that_waits_for_credits_is_not_idle(stack: str, timing: str) -> None:
    """All that A sent is acked, the CREDIT is lost for long: the rest waits, and arrives."""
    world = group(stack, timing)
    credit = world.drop("B", CREDIT, protocol=UFC, times=ALWAYS)
    world["A"].send(*thousands(1, 30))
    world.advance(1.0)
    assert world["A"].unacked("B") == 0
    assert world["A"].stack.outbox.pending(world.short("B")) == 20
    world.advance(LONG)
    assert ends(world, "A") == []

    world.release(credit)
    world.advance(LONG)
    assert world["B"].delivered == thousands(1, 30)
    assert "connection-closed" not in world["A"].refused


@both_timings
def test_once_nothing_waits_the_connection_becomes_idle_again(timing: str) -> None:
    world = group("udp", timing)
    world["A"].send(*thousands(1, 30))
    world.advance(LONG)
    assert world["B"].delivered == thousands(1, 30)
    assert world["A"].sender("B") is None


@both_stacks
@both_timings
def test_what_waits_for_credits_is_released_when_a_view_drops_the_peer(
    stack: str, timing: str
) -> None:
    """Nobody waits for ever: without B in the view the timeouts hold again."""
    world = group(stack, timing, "ABC")
    world.drop("B", CREDIT, protocol=UFC, times=ALWAYS)
    world["A"].send(*thousands(1, 30))
    world.advance(1.0)
    world.partition("AC", "B")
    world.advance(LONG)
    assert world["A"].stack.outbox.pending(world.short("B")) == 20

    world.install("AC", at="AC")
    world.advance(LONG)
    assert world["A"].stack.outbox.pending(world.short("B")) == 0
    assert world["A"].sender("B") is None


@both_stacks
@both_timings
def test_a_silent_member_is_kept_until_the_view_drops_it(stack: str, timing: str) -> None:
    """B is cut off for longer than an idle connection lives; it is still a member, and gets what
    A sent before and meanwhile, once, and what was ahead of a gap too."""
    world = group(stack, timing, credits_=100_000)
    world["A"].send(*numbered(1, 5))
    world.advance(0.5)
    world.drop("A", DATA, 6, dest="B")
    world["A"].send(b"6", flags=OOB)
    world["A"].send(b"7", flags=OOB)
    world.deliver()
    world.partition("A", "B")
    world["A"].send(*numbered(8, 10))
    world.advance(LONG)
    assert ends(world, "A") == ends(world, "B") == []

    world.heal()
    world.advance(LONG)
    assert sorted(world["B"].delivered, key=int) == numbered(1, 10)


@both_stacks
@both_timings
def test_a_member_that_is_out_of_the_view_is_given_up(stack: str, timing: str) -> None:
    world = group(stack, timing, "ABC")
    world.partition("AC", "B")
    world["A"].send(*numbered(1, 5))
    world.advance(LONG)
    assert world["A"].unacked("B") == 5
    world.install("AC", at="AC")
    world.advance(LONG)
    assert world["A"].sender("B") is None


# -- An application that takes nothing ---------------------------------------------------------


@both_stacks
@both_timings
def test_a_long_stall_costs_nothing(stack: str, timing: str) -> None:
    """B takes nothing for longer than an idle connection lives: it is handed nothing meanwhile,
    and everything afterwards."""
    world = group(stack, timing)
    world["A"].send(*thousands(1, 5))
    world.advance(1.0)
    world["B"].consume(consuming=False)
    world["A"].send(*thousands(6, 40))
    world.advance(LONG)
    assert world["B"].delivered == thousands(1, 5)
    world["B"].consume(consuming=True)
    world.advance(LONG)
    assert world["B"].delivered == thousands(1, 40)


@both_stacks
@both_timings
def test_what_a_stalled_application_has_yet_to_take_brings_no_credits(
    stack: str, timing: str
) -> None:
    """B's window has to go while B takes nothing: what was in it waits, and still costs credits."""
    world = group(stack, timing)
    world["B"].consume(consuming=False)
    world["A"].send(*thousands(1, 10))
    world.advance(1.0)
    world["B"].forget("A")
    world.deliver()
    world["A"].send(*thousands(11, 20))
    world.advance(LONG)
    assert world["A"].stack.outbox.pending(world.short("B")) == 10
    assert world["B"].delivered == []

    world["B"].consume(consuming=True)
    world.advance(LONG)
    assert world["B"].delivered == thousands(1, 20)
