"""A full transport in every turn: what is repeated for the dead keeps nothing out for ever."""

from __future__ import annotations

import pytest

from stormcast.node.core.model import DONT_BUNDLE
from stormcast.node.core.wire import DATA
from tests.helpers.world import World, numbered

QUEUE = 4
ASKING = ("UNICAST2", "UNICAST3", "UNICAST3-SYNC", "UNICAST4")
"""Generations whose receivers ask for gaps; UNICAST repeats everything instead."""


def world_of(generation: str, **settings: object) -> World:
    return World(
        stack="unicast-only",
        unicast=generation,
        members="ABC",
        settings=settings,
        protocols={"UDP": {"queue_frames": QUEUE}},
    )


def test_repeats_for_a_dead_member_do_not_keep_those_for_a_living_one_out() -> None:
    """A repeats twenty messages to B, which is dead, in each interval, before those to C."""
    world = world_of("UNICAST")
    world["B"].crash()
    world["A"].send(*numbered(1, 20), to="B", flags=DONT_BUNDLE)
    world.drop("A", DATA, 1, times=1)
    world["A"].send(*numbered(1, 10), to="C", flags=DONT_BUNDLE)

    world.intervals(30)

    assert world["A"].refused["transport-queue-full"] > 30
    assert world["C"].delivered == numbered(1, 10)


@pytest.mark.parametrize("generation", ASKING)
def test_requests_to_a_dead_member_do_not_keep_those_to_a_living_one_out(generation: str) -> None:
    """C misses every second message of A and of B, asks for each alone, and A is dead."""
    world = world_of(generation, max_xmit_req_size=1)
    for source in "AB":
        world[source].send(b"0", to="C")
    world.deliver()
    for source in "AB":
        for seqno in range(2, 22, 2):
            world.drop(source, DATA, seqno, times=1)
        for number in range(1, 21):
            world[source].send(b"%d" % number, to="C")
            world.deliver()
    world["A"].crash()

    world.intervals(40)

    assert world["C"].refused["transport-queue-full"] > 30
    assert world["C"].from_("B") == [b"%d" % number for number in range(21)]
