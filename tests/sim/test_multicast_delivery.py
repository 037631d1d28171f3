"""What both multicast protocols promise: everyone gets every multicast, once, in order (G1-G3)."""

from __future__ import annotations

import pytest

from stormcast.node import trace
from stormcast.node.core.wire import ACK, DATA, HIGHEST_SEQNO, XMIT_REQ
from tests.helpers.group import ALWAYS, STACKS, GroupWorld, numbered
from tests.helpers.world import TIMINGS

everywhere = pytest.mark.parametrize(
    ("stack", "timing"), [(stack, timing) for stack in STACKS for timing in TIMINGS]
)

TINY = {
    "NAKACK2": {"window_messages": 10},
    "MCAST": {"window_messages": 10},
}
"""A window that fills at once."""


def tiny(stack: str) -> dict[str, dict[str, object]]:
    return {"mcast": {"MCAST": TINY["MCAST"]}, "udp": {"NAKACK2": TINY["NAKACK2"]}}[stack]


# -- Without faults ------------------------------------------------------------


@everywhere
def test_every_member_gets_every_multicast_of_every_sender(stack: str, timing: str) -> None:
    """N-01, O-04: two of three members multicast; each gets all, its own included, in order."""
    world = GroupWorld("ABC", stack, timing)
    for first in range(1, 1000, 50):
        for sender in "AB":
            world.multicast(sender, *numbered(first, first + 49))
        world.advance(0.01)
    world.deliver()
    for sender in "AB":
        assert world.everyone_got(sender, numbered(1, 1000), "ABC")
    assert not world.requests()


@everywhere
def test_nothing_is_kept_and_nothing_is_sent_once_all_is_delivered(stack: str, timing: str) -> None:
    """P-16, M-9: windows are empty, and no multicast frame disturbs the silence."""
    world = GroupWorld("ABC", stack, timing)
    for sender in "ABC":
        world.multicast(sender, *numbered(1, 100))
    world.settle()
    assert [world.unpurged(name) for name in "ABC"] == [0, 0, 0]
    assert all(world.is_idle(name) for name in "ABC")
    assert world.frames_within(60.0) == []


@everywhere
def test_a_member_that_is_alone_gets_its_own_and_keeps_nothing(stack: str, timing: str) -> None:
    """P-11, C-08: with a window far smaller than the traffic, and nobody to ack it."""
    world = GroupWorld("A", stack, timing, protocols=tiny(stack))
    world.multicast("A", *numbered(1, 500))
    assert world.got("A", "A") == numbered(1, 500)
    assert world.unpurged("A") == 0
    assert world.frames_within(60.0) == []


@everywhere
def test_a_multicast_before_the_first_view_waits_for_it(stack: str, timing: str) -> None:
    world = GroupWorld("AB", stack, timing, joined=False)
    assert world.offer("A", b"early") == 1
    world.deliver()
    assert world.got("A", "A") == []
    world.install("AB")
    world.deliver()
    assert world.everyone_got("A", [b"early"], "AB")


# -- With faults ------------------------------------------------------------


@pytest.mark.parametrize("lost", [1, 5, 10], ids=["first", "middle", "last"])
@everywhere
def test_a_lost_multicast_is_repaired_and_order_is_kept(stack: str, timing: str, lost: int) -> None:
    """N-14 for the last: nothing follows it, so its sender has to speak up (JGRP-1904)."""
    world = GroupWorld("ABC", stack, timing)
    world.drop("A", DATA, lost, dest="B")
    world.multicast("A", *numbered(1, 10))
    world.deliver()
    assert world.got("B", "A") == numbered(1, lost - 1)
    assert world.got("C", "A") == numbered(1, 10)
    world.settle()
    assert world.everyone_got("A", numbered(1, 10), "ABC")


@everywhere
def test_last_messages_that_are_all_lost_arrive_although_nothing_follows(
    stack: str, timing: str
) -> None:
    """N-14: each of 6..10 is lost once for everybody."""
    world = GroupWorld("ABC", stack, timing)
    for seqno in range(6, 11):
        world.drop("A", DATA, seqno, times=2)
    world.multicast("A", *numbered(1, 10))
    world.settle()
    assert world.everyone_got("A", numbered(1, 10), "ABC")


@everywhere
def test_the_only_message_arrives_even_if_its_announcement_is_lost_too(
    stack: str, timing: str
) -> None:
    """P-14: the loss of one announcement is made up by the next, or by stability."""
    world = GroupWorld("ABC", stack, timing)
    world.drop("A", DATA, dest="B")
    world.drop("A", HIGHEST_SEQNO, dest="B")
    world.multicast("A", b"1")
    world.settle()
    assert world.everyone_got("A", [b"1"], "ABC")
    assert world.unpurged("A") == 0


@everywhere
def test_requests_and_answers_may_be_lost_as_well(stack: str, timing: str) -> None:
    world = GroupWorld("ABC", stack, timing)
    world.drop("A", DATA, 2, dest="B", times=3)
    world.drop("B", XMIT_REQ, times=2)
    world.multicast("A", *numbered(1, 3))
    world.settle()
    assert world.everyone_got("A", numbered(1, 3), "ABC")
    assert world.unpurged("A") == 0


@everywhere
def test_copies_of_everything_change_nothing(stack: str, timing: str) -> None:
    """O-12: each frame of three senders arrives six times."""
    world = GroupWorld("ABC", stack, timing)
    world.duplicate(copies=5, times=ALWAYS)
    for sender in "ABC":
        world.multicast(sender, *numbered(1, 10))
    world.settle()
    for sender in "ABC":
        assert world.everyone_got(sender, numbered(1, 10), "ABC")


@everywhere
def test_shuffled_arrivals_are_delivered_in_order(stack: str, timing: str) -> None:
    """O-01: both send while what arrives is shuffled over some 50 frames; no window is stuck."""
    world = GroupWorld("AB", stack, timing)
    world.weather(1, spread=0.05)
    for first in range(1, 1000, 10):
        for sender in "AB":
            world.multicast(sender, *numbered(first, first + 9))
        world.advance(0.01)
    world.heal()
    world.settle()
    for sender in "AB":
        assert world.everyone_got(sender, numbered(1, 1000), "AB")
    assert [world.unpurged(name) for name in "AB"] == [0, 0]


@everywhere
def test_a_tenth_of_all_frames_lost_costs_nothing_but_time(stack: str, timing: str) -> None:
    world = GroupWorld("ABCD", stack, timing, max_batch=5)
    world.weather(3, loss=0.1, copies=0.1, spread=0.005)
    for first in range(1, 200, 10):
        for sender in "ABCD":
            world.multicast(sender, *numbered(first, first + 9))
        world.advance(0.05)
    world.heal()
    world.settle()
    for sender in "ABCD":
        assert world.everyone_got(sender, numbered(1, 200), "ABCD")
    assert all(world.is_idle(name) for name in "ABCD")


@everywhere
def test_reordering_within_an_interval_is_no_loss(stack: str, timing: str) -> None:
    """JGRP-1539: what is merely late is not asked for."""
    world = GroupWorld("AB", stack, timing)
    held = world.hold("A", DATA, times=10)
    world.multicast("A", *numbered(1, 10))
    world.release(held, reversed)
    world.settle()
    assert world.got("B", "A") == numbered(1, 10)
    assert not world.requests()


@pytest.mark.parametrize("as_one", [False, True], ids=["single", "batched"])
@everywhere
def test_any_order_in_one_datagram_or_many_is_the_same(
    stack: str, timing: str, *, as_one: bool
) -> None:
    """P-12: 1..8 arrive odd ones first, each alone or all in one datagram."""
    world = GroupWorld("AB", stack, timing)
    held = world.hold("A", DATA)
    world.multicast("A", *numbered(1, 8))
    world.release(held, lambda sent: sent[::2] + sent[1::2], as_one=as_one)
    world.deliver()
    assert world.got("B", "A") == numbered(1, 8)


# -- Bounds ------------------------------------------------------------


@everywhere
def test_an_application_that_does_not_listen_blocks_senders_and_nothing_is_lost(
    stack: str, timing: str
) -> None:
    """G5: its windows hold no more than their capacity; once it listens, everything flows."""
    world = GroupWorld("ABC", stack, timing, protocols=tiny(stack))
    world["C"].consume(consuming=False)
    world.multicast("A", *numbered(1, 50))
    world.advance(60.0)
    assert world.got("C", "A") == []
    assert len(world.inbound("C", "A").window) <= 10
    assert world.unpurged("A") == 10
    assert world.got("B", "A") == numbered(1, 10)
    assert world["A"].events(trace.BLOCKED)

    world["C"].consume(consuming=True)
    world.settle()
    world.settle()
    assert world.everyone_got("A", numbered(1, 50), "ABC")
    assert len(world["A"].events(trace.UNBLOCKED)) == len(world["A"].events(trace.BLOCKED))


@everywhere
def test_the_view_that_excludes_the_dead_releases_who_waits_for_it(stack: str, timing: str) -> None:
    """N-17, C-04 (JGRP-2853): D is silent, A's window is full; the view without D lets A go on."""
    world = GroupWorld("ABCD", stack, timing, protocols=tiny(stack))
    world.deliver()
    world.partition("ABC", "D")
    world.multicast("A", *numbered(1, 30))
    world.advance(30.0)
    assert world.unpurged("A") == 10
    world.install("ABC")
    world.settle()
    assert world.everyone_got("A", numbered(1, 30), "ABC")
    assert world.got("D", "A") == []


@everywhere
def test_who_stops_while_blocked_stops(stack: str, timing: str) -> None:
    """N-18, C-05: what was refused a number never gets one, and is never on the wire."""
    world = GroupWorld("ABCD", stack, timing, protocols=tiny(stack))
    world.deliver()
    world.partition("A", "BCD")
    world.multicast("A", *numbered(1, 30))
    world.advance(5.0)
    world["A"].stop()
    assert world.sent("A", DATA)[-1].hi == 10
    assert world["A"].stack.next_deadline() > world.now + 1e9
    assert world.frames_within(60.0) == []


@everywhere
def test_a_paused_wire_is_not_filled_with_repeats(stack: str, timing: str) -> None:
    """C1: while nobody answers, what is announced and asked for stays within a pace."""
    world = GroupWorld("ABC", stack, timing)
    world.multicast("A", *numbered(1, 20))
    world.partition("A", "BC")
    world.multicast("A", *numbered(21, 40))
    noise = [sent for sent in world.frames_within(60.0) if sent.kind in (ACK, HIGHEST_SEQNO)]
    interval = world.machine("A").config.xmit_interval
    assert len(noise) <= 2 * (60 / interval + 12)
