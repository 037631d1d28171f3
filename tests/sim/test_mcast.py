"""MCAST: fixed windows, acks of every member, and senders that wait instead of being lost."""

from __future__ import annotations

import pytest

from stormcast.node import trace
from stormcast.node.core import wire
from stormcast.node.core.errors import ConfigError
from stormcast.node.core.model import DONT_LOOPBACK
from stormcast.node.core.wire import ACK, BASELINE, DATA, HIGHEST_SEQNO, VIEW
from stormcast.node.protocols.multicast import McastConfig
from tests.helpers.forge import Forger
from tests.helpers.group import ALWAYS, GroupWorld, numbered
from tests.helpers.world import TIMINGS

both_timings = pytest.mark.parametrize("timing", TIMINGS)


def mcast(
    members: str = "ABC",
    timing: str = "compatible",
    *,
    max_batch: int | None = 1,
    **settings: object,
) -> GroupWorld:
    world = GroupWorld(members, "mcast", timing, protocols={"MCAST": settings}, max_batch=max_batch)
    world.deliver()
    return world


def living(members: str, timing: str, **settings: object) -> GroupWorld:
    """A group whose views its own membership makes."""
    world = GroupWorld(members, "mcast", timing, joined=False, protocols={"MCAST": settings})
    world.join(*members)
    world.advance_until(lambda: world.agrees(members), 60.0)
    world.advance(1.0)
    return world


def acked(world: GroupWorld, source: str, dest: str = "A") -> list[int]:
    """What a member has acked so far, each value once."""
    values = [sent.lo for sent in world.sent(source, ACK, dest=dest, protocol=wire.MCAST)]
    return list(dict.fromkeys(values))


# -- The window ------------------------------------------------------------


@pytest.mark.parametrize("capacity", [1, 2, 3, 4, 5])
@both_timings
def test_the_smallest_windows_pass_any_number_of_messages(timing: str, capacity: int) -> None:
    """Four senders, each far beyond its capacity, in and out of step."""
    world = mcast("ABCD", timing, window_messages=capacity)
    for sender in "ABCD":
        world.multicast(sender, *numbered(1, 20))
    world.advance(60.0)
    for sender in "ABCD":
        assert world.everyone_got(sender, numbered(1, 20), "ABCD")
    assert [world.unpurged(name) for name in "ABCD"] == [0] * 4


@pytest.mark.parametrize("capacity", [1, 3, 5])
@both_timings
def test_the_smallest_windows_pass_any_number_of_messages_over_a_bad_wire(
    timing: str, capacity: int
) -> None:
    world = mcast("ABC", timing, window_messages=capacity)
    world.weather(capacity, loss=0.2, copies=0.1, spread=0.01)
    for sender in "ABC":
        world.multicast(sender, *numbered(1, 30))
    world.advance(60.0)
    world.heal()
    world.advance(120.0)
    for sender in "ABC":
        assert world.everyone_got(sender, numbered(1, 30), "ABC")


def test_a_sender_is_never_further_ahead_of_the_slowest_than_the_capacity() -> None:
    """C acks nothing: exactly 5 messages leave, the sixth waits without a number; the outbox takes
    the rest, and refuses in the end."""
    world = GroupWorld(
        "ABC", "mcast", protocols={"MCAST": {"window_messages": 5}}, outbox_bytes=1000
    )
    world.drop("C", ACK, times=ALWAYS)
    accepted = world.offer("A", *numbered(1, 100))
    accepted += world.offer("A", *numbered(accepted + 1, 100))
    world.advance(30.0)
    assert world.sent("A", DATA)[-1].hi == 5
    assert world.machine("A").own.high == 5
    assert accepted < 100
    assert world["A"].stack.outbox.pending(wire.GROUP) == accepted - 5
    assert world.offer("A", b"more") == 0

    world.heal()
    world.advance(60.0)
    assert world.everyone_got("A", numbered(1, accepted), "ABC")
    assert world.offer("A", b"more") == 1


def test_a_purge_that_frees_several_places_fills_all_of_them() -> None:
    """P-09: no lost wake-up. One ack frees four places, and four messages leave in that turn."""
    world = mcast("AB", window_messages=4, ack_threshold=3)
    held = world.hold("B", ACK)
    world.multicast("A", *numbered(1, 9))
    world.advance(3.0)
    assert world.sent("A", DATA)[-1].hi == 4
    world.release(held)
    world.deliver()
    assert world.sent("A", DATA)[-1].hi == 8


def test_a_receiver_with_a_smaller_window_drops_what_does_not_fit_and_asks_later() -> None:
    """Unequal capacities: nothing is lost, and no window is ever over its capacity."""
    world = mcast("AB", window_messages=16)
    world.inbound("B", "A").window.capacity = 3
    world["B"].consume(consuming=False)
    world.multicast("A", *numbered(1, 16))
    world.deliver()
    assert len(world.inbound("B", "A").window) == 3
    assert world["B"].refused["beyond-window"] == 13
    world["B"].consume(consuming=True)
    world.advance(60.0)
    assert world.got("B", "A") == numbered(1, 16)
    assert world.unpurged("A") == 0


# -- Acks ------------------------------------------------------------


def test_a_member_acks_at_the_threshold_and_the_rest_at_the_interval() -> None:
    world = mcast("AB", window_messages=100, ack_threshold=10)
    world.advance(0.1)
    world.multicast("A", *numbered(1, 25))
    world.deliver()
    assert acked(world, "B") == [10, 20]
    assert world.unpurged("A") == 5
    world.advance(1.0)
    assert acked(world, "B") == [10, 20, 25]
    assert world.unpurged("A") == 0


def test_one_datagram_of_many_messages_is_acked_once() -> None:
    world = mcast("AB", max_batch=50, window_messages=100, ack_threshold=10)
    world.multicast("A", *numbered(1, 50))
    world.deliver()
    assert acked(world, "B") == [50]


def test_what_a_member_acks_it_has_delivered() -> None:
    """M-6: with 3 missing the ack says 2, however much arrived after it."""
    world = mcast("AB", window_messages=100, ack_threshold=1)
    world.drop("A", DATA, 3)
    world.multicast("A", *numbered(1, 10))
    world.deliver()
    assert acked(world, "B")[-1] == 2
    world.settle()
    assert acked(world, "B")[-1] == 10


def test_a_duplicate_is_acked_again() -> None:
    world = mcast("AB", window_messages=100)
    world.multicast("A", b"1")
    world.settle()
    before = len(world.sent("B", ACK))
    world.install("ABX", at="A")
    (first,) = world.sent("A", DATA, dest="B")
    world["B"].receive(first.data)
    world.advance(2.0)
    assert len(world.sent("B", ACK)) == before + 1


@pytest.mark.parametrize("threshold", [0, 1, 3])
@both_timings
def test_lost_acks_block_a_sender_for_two_intervals_at_most(timing: str, threshold: int) -> None:
    """JGRP-2874: the last ack is lost and nothing new brings another; the sender announces, which
    is answered even where the threshold is 1."""
    world = mcast("ABC", timing, window_messages=4, ack_threshold=threshold)
    world.drop("C", ACK, times=2)
    world.multicast("A", *numbered(1, 9))
    interval = world.machine("A").config.xmit_interval
    taken = world.advance_until(lambda: world.everyone_got("A", numbered(1, 9), "ABC"), 60.0)
    # Two acks were lost, so there are two such pauses, and one interval for the last ack.
    assert taken <= 2 * 2 * interval + interval + 0.1


@both_timings
def test_every_ack_but_the_last_may_be_lost(timing: str) -> None:
    world = mcast("ABC", timing, window_messages=4, ack_threshold=1)
    world.drop(kind=ACK, times=20)
    world.multicast("A", *numbered(1, 9))
    world.advance(120.0)
    assert world.everyone_got("A", numbered(1, 9), "ABC")
    assert world.unpurged("A") == 0


def test_old_and_repeated_acks_move_nothing_back() -> None:
    """P-06: any order of acks leaves the same low end."""
    world = mcast("AB", window_messages=100, ack_threshold=1)
    held = world.hold("B", ACK)
    world.duplicate("B", ACK, times=ALWAYS)
    world.multicast("A", *numbered(1, 10))
    world.deliver()
    world.release(held, lambda acks: [*reversed(acks), *acks])
    world.deliver()
    assert world.machine("A").own.low == 10


def test_an_ack_beyond_what_was_sent_is_refused() -> None:
    world = mcast("AB")
    world.multicast("A", *numbered(1, 3))
    lie = Forger(world, "B", "A", protocol=wire.MCAST).ack(0, 4, 0)
    world["A"].receive(lie)
    assert world["A"].refused == {"ack-beyond-sent": 1}
    assert world.machine("A").own.low == 0


def test_acks_of_who_left_or_is_not_in_yet_count_for_nothing() -> None:
    """P-17 (JGRP-2904): no entry is made, which would hold up the window for ever."""
    world = mcast("ABC", window_messages=5)
    late = world.hold("C", ACK, dest="A")
    world.multicast("A", *numbered(1, 4))
    world.advance(3.0)
    world.install("AB")
    world.release(late)
    world["A"].receive(Forger(world, "X", "A", protocol=wire.MCAST).ack(0, 1, 0))
    world.deliver()
    assert world["A"].refused["ack-stranger"] >= 2
    assert len(world.acks("A")) == 2
    world.multicast("A", *numbered(5, 30))
    world.advance(30.0)
    assert world.everyone_got("A", numbered(1, 30), "AB")
    assert world.unpurged("A") == 0


def test_a_new_member_counts_from_what_is_purged() -> None:
    """P-17: it can need nothing before that, so it holds nothing back either."""
    world = mcast("AB", window_messages=10, ack_threshold=1)
    world.multicast("A", *numbered(1, 20))
    world.advance(2.0)
    world.install("ABX", at="A")
    assert world.machine("A").own.low == 20
    assert world.acks("A").of(world.short("X")) == 20
    assert world.acks("A").minimum == 20


def test_the_own_ack_needs_no_network_and_no_loopback() -> None:
    """JGRP-2829: a window of messages that their sender skips empties like any other."""
    world = mcast("AB", window_messages=5)
    world.multicast("A", *numbered(1, 100), flags=DONT_LOOPBACK)
    world.advance(60.0)
    assert world.got("B", "A") == numbered(1, 100)
    assert world.got("A", "A") == []
    assert world.unpurged("A") == 0


@both_timings
def test_a_sender_announces_until_all_have_acked_and_then_is_silent(timing: str) -> None:
    """P-03, M-9: nobody can be heard for a while; the announcing stops with the last ack."""
    world = mcast("ABC", timing)
    world.drop("B", ACK, times=10)
    world.multicast("A", *numbered(1, 5))
    world.settle()
    world.settle()
    assert 8 <= world.count("A", HIGHEST_SEQNO, dest="B") <= 14
    assert world.unpurged("A") == 0
    assert world.frames_within(60.0) == []


# -- Slow and dead members ------------------------------------------------------------


@both_timings
def test_the_crash_of_the_slowest_releases_the_sender_with_the_next_view(timing: str) -> None:
    """N-17 with detectors and views of its own; what follows reaches exactly the survivors."""
    world = living("ABC", timing, window_messages=4)
    world.drop("C", ACK, protocol=wire.MCAST, times=ALWAYS)
    world.multicast("A", *numbered(1, 10))
    world.advance(1.0)
    assert world.sent("A", DATA, protocol=wire.MCAST)[-1].hi == 4
    world["C"].crash()
    world.advance_until(lambda: world.everyone_got("A", numbered(1, 10), "AB"), 60.0)
    assert world.view("A") == world.view("B") == "AB"
    assert world.got("C", "A") == numbered(1, 4)


@both_timings
def test_two_suspicions_in_separate_views_pass_a_full_window(timing: str) -> None:
    """P-21 (JGRP-2875): two members die and are found one after the other while windows are full
    because of both; no view waits behind the messages that it would release."""
    world = living("ABCD", timing, window_messages=4)
    first, second, third, fourth = world.view("A")
    for dead in (third, fourth):
        world.drop(dead, ACK, protocol=wire.MCAST, times=ALWAYS)
    for sender in (first, second):
        world.multicast(sender, *numbered(1, 20))
    world[third].crash()
    world.advance_until(lambda: world.view(first) == first + second + fourth, 60.0)
    world[fourth].crash()
    assert world.unpurged(first) == world.unpurged(second) == 4
    world.advance_until(lambda: world.agrees(first + second), 120.0)
    world.advance(5.0)
    for sender in (first, second):
        assert world.everyone_got(sender, numbered(1, 20), first + second)


@both_timings
def test_a_joiner_gets_in_while_every_window_is_full(timing: str) -> None:
    """A view is no multicast: it needs no place in a window."""
    world = living("AB", timing, window_messages=4)
    world.drop("B", ACK, protocol=wire.MCAST, times=ALWAYS)
    world.multicast("A", *numbered(1, 20))
    world.advance(5.0)
    world.start("C")
    world.join("C")
    world.advance_until(lambda: world.agrees("ABC"), 60.0)
    world.heal()
    world.advance_until(lambda: world.everyone_got("A", numbered(1, 20), "AB"), 60.0)
    world.multicast("A", b"last")
    world.advance(5.0)
    assert world.got("C", "A")[-1] == b"last"


@both_timings
def test_who_leaves_while_its_window_is_full_leaves(timing: str) -> None:
    world = living("ABC", timing, window_messages=4)
    world.drop("C", ACK, protocol=wire.MCAST, times=ALWAYS)
    world.multicast("A", *numbered(1, 20))
    world.leave("A")
    took = world.advance_until(lambda: world.agrees("BC"), 60.0)
    world.advance_until(lambda: world["A"].stack.has_left, 60.0)
    assert took > 4.0, "it gives its messages up when nothing moved for that long"
    assert world["A"].stack.outbox.abandoned == {"stop": 4}


@both_timings
def test_one_way_loss_blocks_a_sender_for_ever_by_default(timing: str) -> None:
    """A is heard by nobody's window at C, C's heartbeats reach A: nobody suspects C."""
    world = mcast("ABC", timing, window_messages=4)
    world.drop("A", DATA, dest="C", times=ALWAYS)
    world.multicast("A", *numbered(1, 20))
    world.advance(120.0)
    assert world.got("B", "A") == numbered(1, 4)
    assert world.view("A") == "ABC"
    assert not world["A"].events(trace.SUSPECT)


@both_timings
@pytest.mark.parametrize("full", [{"window_messages": 4}, {"window_bytes": 50}], ids=str)
def test_with_a_limit_a_member_that_cannot_be_heard_is_suspected_and_excluded(
    full: dict[str, int], timing: str
) -> None:
    """R-6: everything from A to C is lost, C's heartbeats arrive. Verification asks both ways. A
    window is full in bytes, too, when the next message does not fit."""
    world = living("ABC", timing, slow_member_timeout=3.0, **full)
    slow = "C" if world.view("A")[-1] != "A" else "B"
    other = "B" if slow == "C" else "C"
    world.cut("A", slow)
    world.multicast("A", *numbered(1, 20))
    world.advance_until(lambda: slow not in world.view("A"), 60.0)
    world.advance_until(lambda: world.everyone_got("A", numbered(1, 20), "A" + other), 60.0)


@both_timings
def test_a_slow_member_that_answers_is_cleared_and_stays(timing: str) -> None:
    """C is merely busy: it is suspected, says that it lives, and nothing is lost to it."""
    world = living("ABC", timing, window_messages=4, slow_member_timeout=3.0)
    world["C"].consume(consuming=False)
    world.multicast("A", *numbered(1, 20))
    world.advance(12.0)
    doubts = {(event.stream, event.peer) for event in world["A"].events(trace.SUSPECT)}
    assert doubts == {(trace.SUSPECTED, world.short("C")), (trace.CLEARED, world.short("C"))}
    assert world.agrees("ABC")
    world["C"].consume(consuming=True)
    world.advance_until(lambda: world.everyone_got("A", numbered(1, 20), "ABC"), 60.0)


@pytest.mark.parametrize("changed", [0.0, 60.0], ids=["switched off", "longer"])
@both_timings
def test_a_limit_that_changes_holds_for_a_window_that_is_full_already(
    changed: float, timing: str
) -> None:
    world = living("ABC", timing, window_messages=4, slow_member_timeout=3.0)
    world["C"].consume(consuming=False)
    world.multicast("A", *numbered(1, 20))
    world.advance(1.0)
    world["A"].set("MCAST.slow_member_timeout", changed)
    world.advance(20.0)
    assert not world["A"].events(trace.SUSPECT)
    world["C"].consume(consuming=True)
    world.advance_until(lambda: world.everyone_got("A", numbered(1, 20), "ABC"), 60.0)


# -- Splits and merges ------------------------------------------------------------


@both_timings
def test_an_asymmetric_split_heals_although_a_window_is_full(timing: str) -> None:
    """A:{A,B}, B:{B}: A waits for acks of B, who takes it for a stranger. After the merge A goes
    on, what it sent meanwhile is not delivered late, and B's stream begins where B said."""
    world = living("AB", timing, window_messages=16)
    first, second = world.view("A")
    world.multicast(first, *numbered(1, 40))
    world.multicast(second, *numbered(1, 35))
    world.advance(5.0)
    number = world[second].stack.view.id.number + 1  # type: ignore[union-attr]
    world.install(second, at=second, number=number)
    world.cut(second, first)
    world.multicast(second, *numbered(36, 70))
    world.multicast(first, *numbered(41, 100))
    assert world.machine(first).own.high == 56
    world.deliver()
    world.heal()
    world.advance_until(lambda: world.agrees("AB"), 300.0)
    world.multicast(second, b"after")
    world.advance_until(lambda: world.everyone_got(first, numbered(1, 100), first), 60.0)
    world.advance(10.0)
    assert world.got(first, second) == [*numbered(1, 35), b"after"]
    assert world.got(second, first) == [*numbered(1, 40), *numbered(57, 100)]


@both_timings
def test_acks_are_frozen_while_a_joiner_is_let_in_and_no_longer(timing: str) -> None:
    """The purge race: B has not heard of the view with C yet, and must keep what C may ask for."""
    world = living("AB", timing, ack_threshold=1)
    coordinator, other = world.view("A")
    world.multicast(other, *numbered(1, 5))
    world.advance(1.0)
    world.start("C")
    held = world.hold(coordinator, VIEW, dest=other)
    world.join("C")
    world.advance_until(lambda: world.view("C") != "", 30.0)
    offset = world.inbound("C", other).window.delivered
    world.multicast(other, *numbered(6, 25))
    world.advance(0.3)
    assert world.machine(other).own.low <= offset == 5
    world.release(held)
    world.advance_until(lambda: world.agrees("ABC"), 30.0)
    world.advance_until(lambda: world.unpurged(other) == 0, 60.0)
    assert world.everyone_got(other, numbered(1, 25), "AB")
    assert world.got("C", other) == numbered(6, 25)


@both_timings
def test_a_freeze_that_nobody_ends_ends_by_itself(timing: str) -> None:
    """M-13: the digest's user is gone; acks go on after its time."""
    world = mcast("AB", timing, window_messages=10, ack_threshold=1)
    world.machine("B").suspend(5.0, world.now)
    world.multicast("A", *numbered(1, 30))
    world.advance(5.0)
    assert acked(world, "B") == []
    assert world.machine("A").own.high == 10
    world.advance(20.0)
    assert world.got("B", "A") == numbered(1, 30)


def test_a_window_that_a_digest_opened_is_acked_unasked() -> None:
    """Its sender may be blocked, waiting for exactly this member."""
    world = GroupWorld("AB", "mcast", joined=False)
    world.install_digest("B", "AB", {"A": (7, 9)})
    world.advance(2.0)
    assert acked(world, "B") == [7]


# -- Settings ------------------------------------------------------------


def test_settings_that_cannot_work_are_refused_with_the_reason() -> None:
    with pytest.raises(ConfigError, match="MCAST needs it positive"):
        McastConfig(xmit_interval=0.0)
    with pytest.raises(ConfigError, match="a full window is never acked"):
        McastConfig(window_messages=4, ack_threshold=4)
    McastConfig(window_messages=4, ack_threshold=3)
    with pytest.raises(ConfigError, match="must not be negative"):
        McastConfig(slow_member_timeout=-1.0)


def test_a_new_interval_does_not_end_what_new_members_are_told() -> None:
    """C has not heard what can be had, nor acked, when the interval changes."""
    world = living("AB", "compatible")
    world.multicast("A", *numbered(1, 50))
    world.advance(30.0)
    world.drop("A", BASELINE, dest="C")
    world.drop("C", ACK, dest="A")
    world.start("C")
    world.join("C")
    world.advance_until(lambda: world.agrees("ABC"), 30.0)
    world["A"].set("MCAST.xmit_interval", 0.7)
    world.advance(10.0)
    assert not world.acks("A").unheard


def test_the_threshold_may_change_at_run_time_and_the_capacity_may_not() -> None:
    world = mcast("AB", window_messages=100, ack_threshold=50)
    world["B"].set("MCAST.ack_threshold", 5)
    world.multicast("A", *numbered(1, 10))
    world.deliver()
    assert acked(world, "B") == [5, 10]
    with pytest.raises(ConfigError, match="window_messages can not change"):
        world["A"].set("MCAST.window_messages", 5)
