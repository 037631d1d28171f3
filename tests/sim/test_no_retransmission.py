"""NAKACK2 over connections that lose nothing (JGRP-2675): windows restore order and ask nobody.

Joins, merges and reconnects are where something was never sent to a member: there, and only there,
it asks until its window is complete.
"""

from __future__ import annotations

from random import Random
from typing import Any

import pytest

from stormcast.node import trace
from stormcast.node.core.errors import ConfigError
from stormcast.node.core.wire import BASELINE, BASELINE_REQ, DATA, HIGHEST_SEQNO, VIEW, XMIT_REQ
from tests.helpers.group import ALWAYS, QUIET, GroupWorld, numbered
from tests.helpers.world import TIMINGS

STACK = "tcp-no-retransmit"
SETTING = "NAKACK2.xmit_interval"

both_timings = pytest.mark.parametrize("timing", TIMINGS)


def silent(members: str = "ABC", timing: str = "compatible", **settings: object) -> GroupWorld:
    """Members of one view, all of whose windows are complete."""
    world = GroupWorld(members, STACK, timing, protocols={"NAKACK2": settings})
    world.advance(1.0)
    return world


def living(members: str, timing: str, **settings: object) -> GroupWorld:
    """A group whose views its own membership makes."""
    world = GroupWorld(members, STACK, timing, joined=False, protocols={"NAKACK2": settings})
    world.join(*members)
    world.advance_until(lambda: world.agrees(members), 60.0)
    world.advance(2.0)
    return world


def repairs(world: GroupWorld) -> int:
    """Frames that only a stack which retransmits sends."""
    return len(world.requests()) + world.count(kind=HIGHEST_SEQNO)


# -- Steady state ------------------------------------------------------------


@both_timings
def test_what_only_arrives_out_of_order_is_never_asked_for(timing: str) -> None:
    """P-20, M-12: three senders, arrivals shuffled over a second; everything is delivered in order
    and purged, and no request and no announcement is ever sent."""
    world = silent(timing=timing)
    world.weather(1, spread=1.0)
    for first in range(1, 500, 10):
        for sender in "ABC":
            world.multicast(sender, *numbered(first, first + 9))
        world.advance(0.05)
    world.advance(1.5)
    for sender in "ABC":
        assert world.everyone_got(sender, numbered(1, 500), "ABC")
    world.heal()
    world.settle()
    assert [world.unpurged(name) for name in "ABC"] == [0, 0, 0]
    assert repairs(world) == 0
    assert not world["A"].events(trace.ALARM)


@both_timings
def test_a_silent_group_sends_nothing(timing: str) -> None:
    world = silent(timing=timing)
    world.multicast("A", *numbered(1, 100))
    world.settle()
    assert world.frames_within(100.0) == []


@both_timings
def test_stability_purges_and_asks_for_nothing(timing: str) -> None:
    """Its digest says that B has not got what C has; that is merely under way."""
    world = silent(timing=timing)
    held = world.hold("A", DATA, dest="B")
    world.multicast("A", *numbered(1, 5))
    world.advance(20.0)
    assert world.unpurged("A") == 5
    assert repairs(world) == 0
    world.release(held)
    world.settle()
    assert world.got("B", "A") == numbered(1, 5)
    assert world.unpurged("A") == 0


# -- What is lost all the same ------------------------------------------------------------


@both_timings
def test_a_last_message_that_is_lost_is_an_alarm_and_then_repaired(timing: str) -> None:
    """Nothing follows it that would show a gap; that others have received it does."""
    world = silent(timing=timing)
    world.drop("A", DATA, 5, dest="B")
    world.multicast("A", *numbered(1, 5))
    world.advance(100.0)
    assert [event.peer for event in world["B"].events(trace.ALARM)] == [world.short("A")]
    assert world.got("B", "A") == numbered(1, 5)
    assert world.unpurged("A") == 0


@both_timings
def test_a_dropped_message_is_an_alarm_and_then_repaired(timing: str) -> None:
    """Something below drops 3. Nobody asks for it; B holds back what follows; after `gap_alarm` the
    record says so, and B asks after all."""
    world = silent("AB", timing, gap_alarm=10.0)
    world.drop("A", DATA, 3)
    world.multicast("A", *numbered(1, 20))
    world.advance(9.9)
    assert world.got("B", "A") == numbered(1, 2)
    assert repairs(world) == 0
    assert not world["B"].events(trace.ALARM)

    world.advance(0.2)
    ((alarm, text),) = world["B"].told(trace.ALARM)
    assert (alarm.peer, alarm.lo, alarm.hi) == (world.short("A"), 3, 3)
    assert "xmit_interval" in text
    world.advance(3.0)
    assert world.got("B", "A") == numbered(1, 20)
    assert [sent.asks_for() for sent in world.requests()] == [[(3, 3)]]
    world.settle()
    assert world.unpurged("A") == 0


@both_timings
def test_behind_a_gap_the_window_is_bounded_and_the_sender_waits(timing: str) -> None:
    """G5: no memory is lost to a gap that nobody repairs."""
    world = silent("ABC", timing, window_messages=20)
    world.drop("A", DATA, 3, dest="B")
    world.multicast("A", *numbered(1, 200))
    world.advance(25.0)
    assert len(world.inbound("B", "A").window) <= 20
    assert world.unpurged("A") <= 20
    assert world["A"].events(trace.BLOCKED)
    world.advance(60.0)
    assert world.everyone_got("A", numbered(1, 200), "ABC")


@both_timings
def test_a_gap_that_moves_is_no_alarm(timing: str) -> None:
    """Each gap lasts less than `gap_alarm`, one follows the other for far longer."""
    world = silent("AB", timing, gap_alarm=5.0)
    for number in range(1, 41, 2):
        world.late(2.0, "A", DATA, number)
    for number in range(1, 41, 2):
        world.multicast("A", *numbered(number, number + 1))
        world.advance(1.0)
    world.advance(5.0)
    assert world.got("B", "A") == numbered(1, 40)
    assert not world["B"].events(trace.ALARM)
    assert repairs(world) == 0


# -- Reconnect ------------------------------------------------------------


@both_timings
def test_what_a_connection_took_with_it_is_fetched_after_the_reconnect(timing: str) -> None:
    """Bytes that one connection accepted are never read; both sides say what there is."""
    world = silent("ABC", timing)
    world.multicast("A", *numbered(1, 5))
    world.deliver()
    lost = world.drop("A", DATA, dest="B", times=5)
    world.multicast("A", *numbered(6, 10))
    world.deliver()
    assert lost.taken == 5
    before = world.count("A", BASELINE, dest="B")
    world.reconnect("A", "B")
    assert world.count("A", BASELINE, dest="B") == before + 1
    world.advance(3.0)
    assert world.everyone_got("A", numbered(1, 10), "ABC")
    requests = len(world.requests())
    assert requests > 0
    world.multicast("A", *numbered(11, 20))
    world.weather(2, spread=0.5)
    world.advance(30.0)
    assert len(world.requests()) == requests
    assert world.everyone_got("A", numbered(1, 20), "ABC")


@both_timings
def test_a_lost_baseline_is_asked_for(timing: str) -> None:
    world = silent("AB", timing)
    world.multicast("A", *numbered(1, 5))
    world.drop("A", DATA, dest="B", times=2)
    world.multicast("A", *numbered(6, 7))
    world.drop("A", BASELINE, times=3)
    world.reconnect("A", "B")
    world.advance(10.0)
    assert world.got("B", "A") == numbered(1, 7)
    assert world.count("B", BASELINE_REQ, dest="A") >= 2
    assert world.frames_within(100.0)[60:] == []


@both_timings
def test_a_baseline_from_before_a_loss_does_not_complete_a_window(timing: str) -> None:
    """A says "5" at one reconnect. 6..10 go with the next connection, and only then "5" arrives: it
    says nothing about 6..10, which B asks for."""
    world = silent("AB", timing)
    world.multicast("A", *numbered(1, 5))
    world.deliver()
    early = world.hold("A", BASELINE, times=1)
    world.reconnect("A", "B")
    world.drop("A", DATA, dest="B", times=5)
    world.multicast("A", *numbered(6, 10))
    world.deliver()
    world.drop("A", BASELINE)
    world.reconnect("A", "B")
    world.release(early)
    world.advance(5.0)
    assert world.got("B", "A") == numbered(1, 10)
    assert not world["B"].events(trace.ALARM)


@both_timings
def test_an_answer_to_a_question_from_before_a_loss_does_not_complete_a_window(
    timing: str,
) -> None:
    """The same with a BASELINE that B had asked for, and that took until after the next loss."""
    world = silent("AB", timing)
    world.multicast("A", *numbered(1, 5))
    world.deliver()
    world.drop("A", BASELINE)
    world.reconnect("A", "B")
    early = world.hold("A", BASELINE, times=1)
    world.advance(0.6)
    assert len(early.held) == 1
    world.drop("A", DATA, dest="B", times=5)
    world.multicast("A", *numbered(6, 10))
    world.deliver()
    world.drop("A", BASELINE)
    world.reconnect("A", "B")
    world.release(early)
    world.advance(5.0)
    assert world.got("B", "A") == numbered(1, 10)
    assert not world["B"].events(trace.ALARM)


@both_timings
def test_a_loss_that_only_its_sender_noticed_is_completed(timing: str) -> None:
    """B hears that a connection was lost, asks, and is answered while A still writes to the lost
    one. What A says when it hears of it, too, has B ask again."""
    world = silent("AB", timing)
    world.multicast("A", *numbered(1, 5))
    world.deliver()
    world["B"].stack.on_connection_lost(world.short("A"), world.now)
    world["B"].turn()
    world.advance(2.0)
    world.drop("A", DATA, dest="B", times=5)
    world.multicast("A", *numbered(6, 10))
    world.deliver()
    world["A"].stack.on_connection_lost(world.short("B"), world.now)
    world["A"].turn()
    world.advance(5.0)
    assert world.got("B", "A") == numbered(1, 10)
    assert not world["B"].events(trace.ALARM)


@both_timings
def test_a_loss_that_only_its_sender_noticed_counts_while_a_window_is_completed(
    timing: str,
) -> None:
    """B has its answer, and fetches what that named, when A loses a connection again."""
    world = silent("AB", timing)
    world.drop("A", DATA)
    world.multicast("A", b"1")
    world.multicast("A", b"2")
    world.reconnect("A", "B")
    world.advance_until(lambda: world.inbound("B", "A").sync_target == 2, 5.0)
    world.advance_until(lambda: world.count(kind=XMIT_REQ) > 0, 5.0)
    world.drop("A", DATA, 3)
    world.multicast("A", b"3")
    world["A"].stack.on_connection_lost(world.short("B"), world.now)
    world["A"].turn()
    world.advance(5.0)
    assert world.got("B", "A") == [b"1", b"2", b"3"]
    assert not world["B"].events(trace.ALARM)


@pytest.mark.parametrize("seed", range(14))
@both_timings
def test_whatever_is_reordered_across_reconnects_all_is_completed(timing: str, seed: int) -> None:
    """Connections end one after the other, each with some batches, under arrivals that are shuffled
    over half a second: what was said on one comes after what was lost with the next."""
    world = silent("AB", timing)
    dice = Random(seed)
    world.weather(seed, spread=0.5)
    sent = 0
    for _turn in range(4):
        world.multicast("A", *numbered(sent + 1, sent + 4))
        world.advance(dice.uniform(0.0, 0.2))
        world.drop("A", DATA, dest="B", times=4)
        world.multicast("A", *numbered(sent + 5, sent + 8))
        sent += 8
        world.advance(dice.uniform(0.0, 0.2))
        world.reconnect("A", "B")
    world.advance(5.0)
    assert world.got("B", "A") == numbered(1, sent)
    assert not world["B"].events(trace.ALARM)


@both_timings
def test_a_member_that_comes_back_is_not_completed_by_what_was_said_before_it_went(
    timing: str,
) -> None:
    """A excludes B, multicasts to C alone, and has B again; a BASELINE of the first view comes only
    then, and the one of the last view is lost."""
    world = GroupWorld("ABC", STACK, timing, joined=False, protocols=QUIET)
    world.install("AC")
    world.multicast("A", *numbered(1, 5))
    world.deliver()
    early = world.hold("A", BASELINE, dest="B", times=1)
    world.install("ABC", at="AC")
    world.install_digest("B", "ABC", {"A": (5, 5), "C": (0, 0)})
    world.deliver()
    world.install("AC")
    world.multicast("A", *numbered(6, 10))
    world.deliver()
    world.drop("A", BASELINE, dest="B")
    world.install("B")
    view = world.install("ABC", at="AC")
    world.install("ABC", at="B", number=view.id.number)
    world.release(early)
    world.advance(5.0)
    assert world.got("B", "A") == numbered(6, 10)
    assert not world["B"].events(trace.ALARM)


# -- Switching ------------------------------------------------------------


@both_timings
def test_retransmission_may_be_switched_on_and_repairs_what_was_left(timing: str) -> None:
    world = silent("AB", timing)
    world.drop("A", DATA, 3)
    world.multicast("A", *numbered(1, 10))
    world.advance(5.0)
    assert world.got("B", "A") == numbered(1, 2)
    for name in "AB":
        world[name].set(SETTING, 0.5)
    world.advance(5.0)
    assert world.got("B", "A") == numbered(1, 10)


@both_timings
def test_switching_on_repairs_a_lost_last_message_too(timing: str) -> None:
    world = silent("AB", timing)
    world.drop("A", DATA, 3)
    world.multicast("A", *numbered(1, 3))
    world.advance(5.0)
    for name in "AB":
        world[name].set(SETTING, 0.5)
    world.advance(10.0)
    assert world.got("B", "A") == numbered(1, 3)


@both_timings
def test_switching_off_completes_what_was_lost_before(timing: str) -> None:
    """One last round for every gap, even if that is lost as well; afterwards nobody asks."""
    world = silent("AB", timing, xmit_interval=1.0)
    world.drop("A", DATA, 3)
    world.drop("B", XMIT_REQ, times=2)
    world.multicast("A", *numbered(1, 10))
    world.deliver()
    for name in "AB":
        world[name].set(SETTING, 0.0)
    world.advance(20.0)
    assert world.got("B", "A") == numbered(1, 10)
    asked = len(world.requests())
    world.weather(4, spread=2.0)
    world.multicast("A", *numbered(11, 50))
    world.advance(20.0)
    assert world.got("B", "A") == numbered(1, 50)
    assert len(world.requests()) == asked


@both_timings
def test_switching_off_completes_a_lost_last_message_too(timing: str) -> None:
    """Nothing shows that 3 is missing: who stops asking has to hear once more what there is."""
    world = silent("AB", timing, xmit_interval=1.0)
    world.drop("A", DATA, 3)
    world.multicast("A", *numbered(1, 3))
    world.deliver()
    for name in "AB":
        world[name].set(SETTING, 0.0)
    world.advance(5.0)
    assert world.got("B", "A") == numbered(1, 3)


@both_timings
def test_switching_back_and_forth_under_load_loses_nothing(timing: str) -> None:
    """Loss only while retransmission is on, reordering all the time."""
    world = silent("ABC", timing)
    for turn in range(8):
        on = turn % 2 == 1
        for name in "ABC":
            world[name].set(SETTING, 0.2 if on else 0.0)
        world.weather(turn, spread=0.3, loss=0.1 if on else 0.0)
        for first in range(100 * turn + 1, 100 * turn + 101, 10):
            for sender in "ABC":
                world.multicast(sender, *numbered(first, first + 9))
            world.advance(0.1)
        # What was lost last has to be seen before nobody looks any more.
        world.heal()
        world.advance(5.0)
    for sender in "ABC":
        assert world.everyone_got(sender, numbered(1, 800), "ABC")
    assert not any(world[name].events(trace.ALARM) for name in "ABC")


def test_a_stack_that_may_drop_does_not_switch_off() -> None:
    for stack in ("udp", "tcp"):
        world = GroupWorld("AB", stack)
        with pytest.raises(ConfigError, match="xmit_interval is 0"):
            world["A"].set(SETTING, 0.0)
    with pytest.raises(ConfigError, match="drop_when_full"):
        GroupWorld("AB", STACK, protocols={"TCP_NIO2": {"drop_when_full": True}})
    with pytest.raises(ConfigError, match="max_send_buffers"):
        GroupWorld("AB", STACK, protocols={"TCP_NIO2": {"max_send_buffers": 10}})


@both_timings
def test_a_joiner_whose_queue_overflowed_before_retransmission_ended_is_completed(
    timing: str,
) -> None:
    """C keeps 10 of 70 messages while it retransmits, then nobody does, then the view is there: no
    later message shows what the queue refused, and C asks for it within seconds."""
    world = GroupWorld(
        "ABC",
        STACK,
        timing,
        joined=False,
        protocols={**QUIET, "NAKACK2": {"xmit_interval": 1.0, "become_server_queue_size": 10}},
    )
    world.install("AB")
    world.multicast("B", *numbered(1, 5))
    world.deliver()
    world.install("ABC", at="AB")
    world.multicast("B", *numbered(6, 75))
    world.deliver()
    assert world["C"].refused["become-server-queue-full"] > 0
    for name in "ABC":
        world[name].set(SETTING, 0.0)
    world.install_digest("C", "ABC", {"A": (0, 0), "B": (5, 5)})
    world.advance(5.0)
    assert world.got("C", "B") == numbered(6, 75)
    assert not world["C"].events(trace.ALARM)


@both_timings
def test_the_bound_of_a_joiner_s_queue_follows_the_interval(timing: str) -> None:
    """JGRP-2675: bounded while something asks for what was refused, and at 0 or below nothing may
    be refused; both from the moment at which the setting changes. What is queued stays."""
    world = GroupWorld(
        "BC",
        STACK,
        timing,
        joined=False,
        protocols={**QUIET, "NAKACK2": {"xmit_interval": 1.0, "become_server_queue_size": 10}},
    )
    joiner = world["C"]
    world.drop("B", BASELINE, times=ALWAYS)
    view = world.install("BC", at="B")

    def refuses(first: int, last: int) -> int:
        before = joiner.refused.get("become-server-queue-full", 0)
        world.multicast("B", *numbered(first, last))
        world.deliver()
        return joiner.refused.get("become-server-queue-full", 0) - before

    assert refuses(1, 12) == 2
    joiner.set(SETTING, 0.0)
    assert refuses(13, 40) == 0
    joiner.set(SETTING, 0.5)
    assert refuses(41, 45) == 5
    world.machine("C").gauge(world.now)
    (gauge,) = [event for event in joiner.events(trace.GAUGE) if event.lo == 38]
    assert gauge.hi == 38
    joiner.set(SETTING, -1.0)
    assert refuses(46, 70) == 0
    world.install("BC", at="C", number=view.id.number)
    assert world.got("C", "B") == numbered(1, 10)
    kept = [*numbered(13, 40), *numbered(46, 70)]
    assert len(world.inbound("C", "B").window) == len(kept)


# -- Joins ------------------------------------------------------------


@pytest.mark.parametrize("bound", [1, 10, 50])
@both_timings
def test_the_queue_of_a_joiner_has_no_bound(timing: str, bound: int) -> None:
    """JGRP-2675: 70 messages come before the view; with any bound some were lost for ever."""
    world = GroupWorld(
        "ABC",
        STACK,
        timing,
        joined=False,
        protocols={"NAKACK2": {"become_server_queue_size": bound}},
    )
    view = world.install("ABC", at="AB")
    world.multicast("B", *numbered(1, 70))
    world.deliver()
    world.install("ABC", at="C", number=view.id.number)
    assert world.got("C", "B") == numbered(1, 70)
    assert "become-server-queue-full" not in world["C"].refused
    world.advance(20.0)
    assert len(world.requests()) == 0


@both_timings
def test_what_was_sent_before_a_joiner_was_known_is_fetched(timing: str) -> None:
    """B does not know C yet and sends 6..10 to A only; the digest that C got says 5."""
    world = GroupWorld("ABC", STACK, timing, joined=False)
    world.install("AB")
    world.multicast("B", *numbered(1, 5))
    world.deliver()
    world.install_digest("C", "ABC", {"A": (0, 0), "B": (5, 5)})
    world.install("ABC", at="A", number=world.views)
    world.multicast("B", *numbered(6, 10))
    world.deliver()
    assert world.got("C", "B") == []
    world.install("ABC", at="B", number=world.views)
    world.multicast("B", *numbered(11, 15))
    world.advance(3.0)
    assert world.got("C", "B") == numbered(6, 15)
    assert world.got("A", "B") == numbered(1, 15)


def test_a_new_member_is_told_at_once_what_there_is() -> None:
    """And not only when it asks, which it does after a while."""
    world = GroupWorld("ABC", STACK, joined=False)
    world.install("AB")
    world.multicast("B", *numbered(1, 5))
    world.deliver()
    told = world.count("B", BASELINE, dest="A")
    world.install("ABC", at="B")
    (said,) = world.sent("B", BASELINE, dest="C")
    assert (said.at, said.lo) == (world.now, 5)
    assert world.count("B", BASELINE, dest="A") == told


@both_timings
def test_a_joiner_s_first_message_may_arrive_before_the_view_does(timing: str) -> None:
    """C is in and multicasts at once; B hears of C only later, and had to keep 1..100."""
    world = GroupWorld(
        "ABC", STACK, timing, joined=False, protocols={"NAKACK2": {"max_unknown_messages": 10}}
    )
    world.install("AB")
    world.install_digest("C", "ABC", {"A": (0, 0), "B": (0, 0)})
    world.install("ABC", at="A", number=world.views)
    world.multicast("C", *numbered(1, 100))
    world.advance(1.0)
    assert world.got("B", "C") == []
    world.install("ABC", at="B", number=world.views)
    assert world.got("B", "C") == numbered(1, 100)
    assert "unknown-sender" not in world["B"].refused


def test_messages_of_strangers_are_not_kept_for_ever() -> None:
    world = silent("AB", unknown_sender_timeout=5.0)
    world.start("C")
    world.install_digest("C", "ABC", {})
    world.multicast("C", *numbered(1, 10))
    world.advance(4.0)
    assert "unknown-sender" not in world["B"].refused
    world.advance(2.0)
    assert world["B"].refused["unknown-sender"] == 10


@pytest.mark.parametrize("spread", [0.0, 0.2])
@both_timings
def test_a_join_under_load_gives_the_joiner_one_run_of_every_sender(
    timing: str, spread: float
) -> None:
    """P-18, P-20 with real membership: two members send all the time while C joins, over a wire
    that loses nothing; afterwards nobody has asked for anything but for C."""
    world = living("AB", timing)
    world.weather(7, spread=spread)
    world.start("C")
    sent = 0
    for turn in range(200):
        if turn == 20:
            world.join("C")
        for sender in "AB":
            world.multicast(sender, *numbered(sent + 1, sent + 5))
        sent += 5
        world.advance(0.02)
    world.advance_until(lambda: world.agrees("ABC"), 60.0)
    for sender in "AB":
        world.multicast(sender, b"%d" % (sent + 1))
    world.advance(10.0)
    sent += 1
    for sender in "AB":
        assert world.everyone_got(sender, numbered(1, sent), "AB")
        got = world.got("C", sender)
        assert got == numbered(sent + 1 - len(got), sent)
        assert got
    assert world.requests("A") == world.requests("B") == []
    assert not world["C"].events(trace.ALARM)
    before = len(world.requests())
    world.multicast("A", *numbered(1, 50))
    world.advance(10.0)
    assert len(world.requests()) == before


@both_timings
def test_a_delayed_view_at_a_sender_costs_the_joiner_nothing(timing: str) -> None:
    """The view reaches B a second late; all that B sends until then goes to A only."""
    world = living("AB", timing)
    first, second = world.view("A")
    held = world.hold(first, VIEW, dest=second)
    world.start("C")
    world.join("C")
    world.advance_until(lambda: world.view("C") != "", 30.0)
    world.multicast(second, *numbered(1, 30))
    world.advance(0.2)
    world.release(held)
    world.advance_until(lambda: world.agrees("ABC"), 30.0)
    world.multicast(second, *numbered(31, 40))
    world.advance(5.0)
    assert world.everyone_got(second, numbered(1, 40), "ABC")


def test_members_that_leave_and_come_back_begin_anew() -> None:
    """The stream of the former process is over; that of the new one begins at 1."""
    world = living("ABC", "fast")
    world.multicast("C", *numbered(1, 5))
    world.advance(1.0)
    world["C"].crash()
    world.advance_until(lambda: world.agrees("AB"), 60.0)
    world.start("C")
    world.join("C")
    world.advance_until(lambda: world.agrees("ABC"), 60.0)
    world.multicast("C", *numbered(1, 5))
    world.advance(3.0)
    assert world.everyone_got("C", numbered(1, 5), "ABC")
    assert world.count(kind=XMIT_REQ) == 0


# -- Test protocols --------------------------------------------------------------------------------


def put(world: GroupWorld, name: str, test_protocol: str, values: dict[str, Any] | None) -> None:
    """Right below NAKACK2, as a test does that wants to see messages lost."""
    above = "VERIFY_SUSPECT2" if values is not None else ""
    world[name].stack.set_test_protocol(test_protocol, values, world.now, above)
    world[name].turn()


def test_what_a_test_protocol_below_nakack2_loses_is_counted_and_an_alarm_is_given() -> None:
    """It is put in by hand, to see just that: 1 is missed when the alarm says so, and 3, which
    nothing follows, when stability has spoken of it and the alarm is due after that. The stack
    names the protocol that does it."""
    world = silent(timing="fast", gap_alarm=2.0)
    stack = world["B"].stack
    lost = {"match": {"kind": "DATA", "direction": "up", "times": 1}}
    assert stack.unrepaired_test_protocols() == []
    put(world, "B", "DROP", lost)
    put(world, "B", "DELAY", {"delay": "1ms"})
    assert stack.unrepaired_test_protocols() == ["DROP"], "what is late is not lost"
    world.multicast("A", b"1")
    world.multicast("A", b"2")
    world.advance(1.0)
    assert world.got("B", "A") == []
    world.advance(4.0)
    assert world["B"].events(trace.ALARM)
    assert world.got("B", "A") == [b"1", b"2"]
    put(world, "B", "DROP", None)
    put(world, "B", "DROP", lost)
    world.multicast("A", b"3")
    world.advance(2.0)
    assert world.got("B", "A") == [b"1", b"2"]
    assert world.got("C", "A") == [b"1", b"2", b"3"]
    world.advance(60.0)
    assert world.got("B", "A") == [b"1", b"2", b"3"]
    assert len(world["B"].events(trace.ALARM)) == 2
    assert stack.record.refused["probe-drop"] == 2
    put(world, "B", "DROP", None)
    assert stack.unrepaired_test_protocols() == []


def test_a_test_protocol_that_loses_only_what_others_repair_is_no_danger() -> None:
    world = silent(timing="fast")
    for protocol in ("FD_ALL3", "UNICAST3"):
        put(world, "B", "DROP", {"match": {"protocol": protocol}})
        assert world["B"].stack.unrepaired_test_protocols() == []
        put(world, "B", "DROP", None)
    world["B"].stack.set_test_protocol("DROP", {}, world.now, "NAKACK2")
    assert world["B"].stack.unrepaired_test_protocols() == [], (
        "above NAKACK2 it is no longer its affair"
    )


def test_retransmission_does_not_end_while_a_test_protocol_loses_messages() -> None:
    world = silent(timing="fast", xmit_interval=0.5)
    put(world, "A", "DISCARD", {"up": 0.1})
    assert world["A"].stack.unrepaired_test_protocols() == []
    with pytest.raises(
        ConfigError, match="DISCARD below NAKACK2 loses messages on purpose; remove"
    ):
        world["A"].stack.set_attribute(SETTING, 0.0, world.now)
    put(world, "A", "DISCARD", None)
    world["A"].stack.set_attribute(SETTING, 0.0, world.now)
