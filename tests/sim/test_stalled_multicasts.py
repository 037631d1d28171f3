"""Multicasts at an application that takes nothing for a while: what arrived is not thrown away."""

from __future__ import annotations

import pytest

from stormcast.node import trace
from stormcast.node.core import wire
from stormcast.node.core.model import DONT_LOOPBACK, OOB
from stormcast.node.core.wire import DATA, GROUP
from tests.helpers.group import ALWAYS, QUIET, STACKS, GroupWorld, formed, numbered
from tests.helpers.world import TIMINGS

everywhere = pytest.mark.parametrize(
    ("stack", "timing"), [(stack, timing) for stack in STACKS for timing in TIMINGS]
)
both_timings = pytest.mark.parametrize("timing", TIMINGS)
NAMES = {"udp": "NAKACK2", "tcp": "NAKACK2", "tcp-no-retransmit": "NAKACK2", "mcast": "MCAST"}


def narrow(stack: str, messages: int) -> dict[str, dict[str, object]]:
    """Settings of a group whose windows hold few messages."""
    return {**QUIET, NAMES[stack]: {"window_messages": messages}}


# -- Windows that end ------------------------------------------------------------------------------


@pytest.mark.parametrize("stack", ["udp", "mcast", "tcp"])
@pytest.mark.parametrize("how", ["crash", "leave"])
def test_what_arrived_of_a_member_that_goes_is_handed_over_later(stack: str, how: str) -> None:
    """B has all of it when a view without A ends the window; A's unicasts are kept, too."""
    world = formed("CAB", stack, "fast")
    a, b = world["A"], world["B"]
    b.consume(consuming=False)
    world.multicast("A", *numbered(1, 3))
    world.advance(5.0)
    if how == "crash":
        a.crash()
    else:
        world.leave("A")
        world.advance(8.0)
        a.stop()
        world.ended(a)
    world.advance_until(lambda: world.views_agree("CB"), 200.0)
    assert world.got("B", "A") == []

    b.consume(consuming=True)
    world.advance(1.0)
    assert world.got("B", "A") == world.got("C", "A") == numbered(1, 3)


@everywhere
def test_what_arrived_of_a_member_that_comes_back_comes_first(stack: str, timing: str) -> None:
    """A view without A, and one with it again: the window is opened above what the last one had."""
    world = GroupWorld("ABC", stack, timing)
    world["B"].consume(consuming=False)
    world.multicast("A", *numbered(1, 3))
    world.advance(1.0)
    world.install("BC", at="BC")
    world.install("ABC")
    world.multicast("A", *numbered(4, 5))
    world.advance(1.0)
    world["B"].consume(consuming=True)
    world.settle()
    assert world.got("B", "A") == world.got("C", "A") == numbered(1, 5)


@everywhere
def test_a_merge_keeps_a_window_that_has_what_the_digest_says(stack: str, timing: str) -> None:
    """A and C leave B out for a while, B keeps both; its application has yet to take what came."""
    world = GroupWorld("ABC", stack, timing)
    world["B"].consume(consuming=False)
    world.multicast("A", *numbered(1, 3))
    world.advance(1.0)
    epoch = world.inbound("B", "A").epoch
    merge(world, 3)
    assert world.inbound("B", "A").epoch == epoch
    world["B"].consume(consuming=True)
    world.multicast("A", b"4")
    world.settle()
    assert world.got("B", "A") == world.got("C", "A") == numbered(1, 4)


@everywhere
def test_what_a_window_had_that_a_merge_replaces_is_handed_over_later(
    stack: str, timing: str
) -> None:
    """B missed 4 while A had excluded it, so that 4 is not for B; 1 to 3 it has."""
    world = GroupWorld("ABC", stack, timing)
    world["B"].consume(consuming=False)
    world.multicast("A", *numbered(1, 3))
    world.advance(1.0)
    world.install("AC", at="AC")
    world.drop("A", dest="B", times=ALWAYS)
    world.multicast("A", b"4")
    world.settle()
    world.heal()
    merge(world, 4, apart=False)
    world["B"].consume(consuming=True)
    world.multicast("A", b"5")
    world.settle()
    assert world.got("B", "A") == [*numbered(1, 3), b"5"]
    assert world.got("C", "A") == numbered(1, 5)


def merge(world: GroupWorld, sent: int, *, apart: bool = True) -> None:
    """Install a view of A, B and C as a merge of AC and B does, where A has multicast so much."""
    if apart:
        world.install("AC", at="AC")
        world.advance(1.0)
    number = world.views
    for name in "ABC":
        world.views = number
        digest = {"A": (sent, sent), "B": (0, 0), "C": (0, 0)}
        world.install_digest(name, "ABC", digest, "AC" if name in "AC" else "")


@everywhere
def test_an_oob_message_behind_a_gap_is_handed_over_with_its_window(
    stack: str, timing: str
) -> None:
    """2 was lost for good, 3 is OOB: it waits for no other, and only the stall held it back."""
    world = GroupWorld("ABC", stack, timing)
    world["B"].consume(consuming=False)
    world.multicast("A", b"1")
    world.drop("A", DATA, 2, dest="B", times=ALWAYS)
    world.multicast("A", b"2")
    world.advance(0.001)
    world.multicast("A", b"3", flags=OOB)
    world.multicast("A", b"4")
    world.advance(0.002)
    world["A"].crash()
    world.install("BC")
    world["B"].consume(consuming=True)
    world.advance(1.0)
    assert world.got("B", "A") == [b"1", b"3"]


@everywhere
def test_an_oob_message_behind_a_gap_waits_no_longer_than_the_stall(
    stack: str, timing: str
) -> None:
    """It is handed over once, and the rest closes up around it."""
    world = GroupWorld("AB", stack, timing)
    world["B"].consume(consuming=False)
    world.drop("A", DATA, 1, times=ALWAYS)
    world.multicast("A", b"1")
    world.advance(0.001)
    world.multicast("A", b"2", flags=OOB)
    world.advance(0.002)
    world["B"].consume(consuming=True)
    assert world.got("B", "A") == [b"2"]
    world.heal()
    world.settle()
    assert world.got("B", "A") == [b"2", b"1"]


@pytest.mark.parametrize("stack", ["udp", "mcast"])
def test_a_message_in_pieces_is_whole_though_its_sender_goes(stack: str) -> None:
    """B was handed the first pieces; the last ones wait for it when the view ends the window. A
    view gives pieces up, but not before what came ahead of it is joined."""
    world = formed("CAB", stack, "fast", protocols={"FRAG": {"frag_size": 1000}})
    payload = bytes(range(250)) * 10
    held = world.hold("A", DATA, 3, dest="B")
    world.multicast("A", payload)
    world.advance(0.002)
    world["B"].consume(consuming=False)
    world.release(held)
    world.advance(0.01)
    world["A"].crash()
    world.advance_until(lambda: world.views_agree("CB"), 200.0)
    world["B"].consume(consuming=True)
    world.advance(1.0)
    assert world.got("B", "A") == world.got("C", "A") == [payload]


# -- Bounds ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("stack", ["udp", "mcast", "tcp-no-retransmit"])
@both_timings
def test_ended_windows_leave_a_stalled_application_two_windows_at_most(
    stack: str, timing: str
) -> None:
    """G5: A sends a window full in each of many views, and comes back after each. What is refused
    in the last one is asked for when B goes on, and not before."""
    world = GroupWorld("ABC", stack, timing, protocols=narrow(stack, 10))
    world["B"].consume(consuming=False)
    lives = 8
    for life in range(lives):
        world.multicast("A", *numbered(10 * life + 1, 10 * life + 10))
        world.advance(3.0)
        assert untaken(world, "B", "A") <= 20
        if life < lives - 1:
            come_back(world, 10 * life + 10)
    assert world["B"].refused["not-consuming"] > 0
    requests = len(world.requests("B"))
    world.advance(10.0)
    assert len(world.requests("B")) == requests

    world["B"].consume(consuming=True)
    world.settle()
    world.settle()
    assert world.got("C", "A") == numbered(1, 10 * lives)
    got = world.got("B", "A")
    assert got == sorted(set(got), key=int)
    assert got[:10] == numbered(1, 10)
    assert got[-10:] == numbered(10 * lives - 9, 10 * lives)
    assert world.unpurged("A") == 0
    assert not world["B"].events(trace.ALARM)


@both_timings
def test_what_was_refused_behind_an_answer_is_asked_for_at_once(timing: str) -> None:
    """B's third window of A is shut: it has the answer that 21 to 23 can be had, refuses 24 to 26,
    and the stall ends before anybody tells it of these. Nothing below dropped a message."""
    stack = "tcp-no-retransmit"
    world = GroupWorld("ABC", stack, timing, protocols=narrow(stack, 10))
    world["B"].consume(consuming=False)
    for sent in (10, 20):
        world.multicast("A", *numbered(sent - 9, sent))
        world.advance(3.0)
        come_back(world, sent)
    world.multicast("A", *numbered(21, 23))
    world.advance(3.0)
    assert world.inbound("B", "A").sync_target == 23
    world.multicast("A", *numbered(24, 26))
    world.advance(0.05)

    world["B"].consume(consuming=True)
    world.advance(5.0)
    assert world.got("B", "A") == [*numbered(1, 10), *numbered(21, 26)]
    world.settle()
    assert not world["B"].events(trace.ALARM)


def come_back(world: GroupWorld, sent: int) -> None:
    """End the window that B has of A, which has multicast so much, and have A come back."""
    number = world.views
    for one, members in (("A", "A"), ("B", "BC"), ("C", "BC")):
        world.install(members, at=one, number=number + 1 + (members == "BC"))
    world.advance(1.0)
    rejoin(world, sent)


def rejoin(world: GroupWorld, sent: int) -> None:
    number = world.views
    for name in "ABC":
        world.views = number
        digest = {"A": (sent, sent), "B": (0, 0), "C": (0, 0)}
        world.install_digest(name, "ABC", digest, "BC" if name in "BC" else "")


def untaken(world: GroupWorld, name: str, sender: str) -> int:
    """Messages of a sender that a member keeps for its application."""
    stack = world[name].stack
    kept = sum(len(one) for one in stack._port.withheld if one.source == world.short(sender))
    return kept + len(world.inbound(name, sender).window)


# -- Gaps from the start ---------------------------------------------------------------------------


@everywhere
@pytest.mark.parametrize("by_merge", [False, True])
def test_a_window_that_begins_with_places_asks_for_what_is_between(
    stack: str, timing: str, *, by_merge: bool
) -> None:
    """5 was delivered OOB before B left A out, 4 was lost; nothing follows, and B asks for 4."""
    world = GroupWorld("ABC", stack, timing)
    if by_merge:
        world["A"].consume(consuming=False)
    world.multicast("A", *numbered(1, 3))
    world.advance(0.01)
    world.drop("A", DATA, dest="B")
    world.multicast("A", b"4")
    world.advance(0.0005)
    world.multicast("A", b"5", flags=OOB)
    world.advance(0.0015)
    world.install("BC", at="B")
    world.advance(5.0)
    if by_merge:
        number = world.views
        for name in "ABC":
            world.views = number
            world.install_digest(name, "ABC", {"A": (0, 5), "B": (0, 0), "C": (0, 0)}, "")
    else:
        world.install("ABC")
    world.advance(1.0)
    world["A"].consume(consuming=True)
    world.settle()
    assert world.got("B", "A") == [*numbered(1, 3), b"5", b"4"]
    assert world.unpurged("A") == 0


# -- The end of a stall ----------------------------------------------------------------------------


@everywhere
def test_own_messages_count_as_waiting(stack: str, timing: str) -> None:
    """Else a stall that held back nothing but these is said to have had no effect."""
    world = GroupWorld("AB", stack, timing)
    a = world["A"].stack
    a.set_consuming(False, world.now)
    world.multicast("A", *numbered(1, 3))
    world.multicast("A", b"4", flags=DONT_LOOPBACK)
    assert a.try_send(world.short("A"), b"5")
    world.advance(1.0)
    assert a.set_consuming(True, world.now) == 4
    world.advance(1.0)
    assert a.set_consuming(True, world.now) == 0


@pytest.mark.parametrize("sender", ["A", "B"])
@both_timings
def test_the_end_of_a_long_stall_frees_windows_at_once(timing: str, sender: str) -> None:
    """Votes have become rare by then; C, which takes everything now, says so unasked."""
    world = GroupWorld("ABC", "udp", timing, protocols=narrow("udp", 64))
    world["C"].consume(consuming=False)
    world.offer(sender, *numbered(1, 200))
    world.advance(60.0)
    outbox = world[sender].stack.outbox
    assert outbox.pending(GROUP) == 136
    world["C"].consume(consuming=True)
    world.advance_until(lambda: not outbox.pending(GROUP), 2.0)
    world.advance(1.0)
    assert world.got("C", sender) == numbered(1, 200)


# -- Late, not lost --------------------------------------------------------------------------------


@both_timings
def test_what_is_late_for_long_is_no_gap_where_nothing_is_retransmitted(timing: str) -> None:
    """The connection from A to C stands still for longer than `gap_alarm`. By stability C hears of
    what B has; it asks A once, and requests nothing."""
    world = GroupWorld("BAC", "tcp-no-retransmit", timing)
    world.multicast("A", b"1")
    world.settle()
    held = world.hold("A", dest="C")
    before = world.count("C", wire.BASELINE_REQ)
    world.multicast("A", b"2", b"3")
    world.advance(75.0)
    assert 1 <= world.count("C", wire.BASELINE_REQ) - before <= 3
    world.release(held)
    world.settle()
    assert world.got("C", "A") == numbered(1, 3)
    assert not world["C"].events(trace.ALARM)
    assert not world.requests()
