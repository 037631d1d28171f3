"""Streams across joins, merges and departures: where windows begin, and that nothing is missing."""

from __future__ import annotations

import pytest

from stormcast.node import trace
from stormcast.node.core import wire
from stormcast.node.core.wire import BASELINE, DATA, GOSSIP, HIGHEST_SEQNO, STABILITY, VIEW
from tests.helpers.group import ALWAYS, QUIET, GroupWorld, numbered
from tests.helpers.world import TIMINGS

STACKS = ("udp", "tcp", "tcp-no-retransmit", "mcast")

everywhere = pytest.mark.parametrize(
    ("stack", "timing"), [(stack, timing) for stack in STACKS for timing in TIMINGS]
)
on_datagrams = pytest.mark.parametrize(
    ("stack", "timing"), [(stack, timing) for stack in ("udp", "mcast") for timing in TIMINGS]
)


class Chatter:
    """Members that multicast numbers without a pause."""

    def __init__(self, world: GroupWorld, names: str) -> None:
        self.world = world
        self.sent = dict.fromkeys(names, 0)

    def turn(self, names: str = "", count: int = 3, pause: float = 0.02) -> None:
        for name in names or self.sent:
            first = self.sent[name] + 1
            self.sent[name] += count
            self.world.multicast(name, *numbered(first, self.sent[name]))
        self.world.advance(pause)

    def assert_complete(self, sender: str, names: str) -> None:
        assert self.world.everyone_got(sender, numbered(1, self.sent[sender]), names)


def living(members: str, stack: str, timing: str, **protocols: dict[str, object]) -> GroupWorld:
    """A group whose views its own membership makes."""
    world = GroupWorld(members, stack, timing, joined=False, protocols=protocols)
    world.join(*members)
    world.advance_until(lambda: world.agrees(members), 60.0)
    world.advance(2.0)
    return world


def offset(world: GroupWorld, name: str, sender: str) -> int:
    """Where the latest window of a sender began."""
    opened = [
        event.lo
        for event in world[name].events(trace.CONN)
        if event.stream == trace.RECEIVER_OPEN
        and event.peer == world.short(sender)
        and event.protocol in (wire.NAKACK2, wire.MCAST)
    ]
    return opened[-1]


def assert_one_run(world: GroupWorld, name: str, sender: str, last: int) -> None:
    """From the digest on, everything, and nothing before it (M-2, P-18)."""
    assert world.got(name, sender) == numbered(offset(world, name, sender) + 1, last)


# -- Joins ------------------------------------------------------------


@everywhere
def test_a_joiner_gets_one_run_of_every_sender_and_the_others_get_all(
    stack: str, timing: str
) -> None:
    """P-18: two members multicast all the time, the joiner as soon as it is in."""
    world = living("AB", stack, timing)
    chatter = Chatter(world, "AB")
    world.start("C")
    for turn in range(150):
        if turn == 30:
            world.join("C")
        chatter.turn()
        if world.view("C") and turn % 10 == 0:
            chatter.sent.setdefault("C", 0)
    world.advance_until(lambda: world.agrees("ABC"), 60.0)
    world.settle()
    for sender in "AB":
        chatter.assert_complete(sender, "AB")
        assert_one_run(world, "C", sender, chatter.sent[sender])
    assert chatter.sent["C"] > 0
    chatter.assert_complete("C", "ABC")
    assert [world.unpurged(name) for name in "ABC"] == [0, 0, 0]


@on_datagrams
def test_a_join_under_load_and_loss_costs_nothing_but_time(stack: str, timing: str) -> None:
    world = living("ABC", stack, timing)
    world.weather(11, loss=0.1, copies=0.05, spread=0.005)
    chatter = Chatter(world, "ABC")
    world.start("D")
    for turn in range(200):
        if turn == 20:
            world.join("D")
        chatter.turn()
    world.advance_until(lambda: world.agrees("ABCD"), 120.0)
    world.heal()
    chatter.turn()
    world.settle()
    for sender in "ABC":
        chatter.assert_complete(sender, "ABC")
        assert_one_run(world, "D", sender, chatter.sent[sender])


@everywhere
def test_a_stalled_joiner_gives_up_no_more_than_its_window_holds(stack: str, timing: str) -> None:
    """C has 1 and 2, which its application does not take, and hears that A has dropped 1..30: its
    window of ten gives up 3..10, and the rest once the application goes on (seed 5551005141)."""
    name = "MCAST" if stack == "mcast" else "NAKACK2"
    world = GroupWorld(
        "AC", stack, timing, joined=False, protocols={**QUIET, name: {"window_messages": 10}}
    )
    world.install("AC", at="A")
    world.multicast("A", *numbered(1, 2))
    world.deliver()
    world.partition("A", "C")
    world.install("A")
    for first, last in ((3, 10), (11, 20), (21, 30)):
        world.multicast("A", *numbered(first, last))
        world.settle()
    assert world.unpurged("A") == 0
    world.partition()
    world["C"].consume(consuming=False)
    world.install_digest("C", "AC", {"A": (0, 0)})
    world.install("AC", at="A", number=world.views)
    world.multicast("A", *numbered(31, 35))
    world.advance(5.0)
    ((skipped, _why),) = world["C"].told(trace.SKIPPED)
    assert (skipped.count, skipped.hi) == (8, 10)
    world["C"].consume(consuming=True)
    world.advance(10.0)
    assert world.got("C", "A") == [*numbered(1, 2), *numbered(31, 35)]
    assert [(e.count, e.hi) for e in world["C"].events(trace.SKIPPED)] == [(8, 10), (20, 30)]
    assert not world["C"].events(trace.ALARM)


@pytest.mark.parametrize("timing", TIMINGS)
@pytest.mark.parametrize("stack", ["udp", "tcp", "mcast"])
def test_what_a_stalled_window_could_not_give_up_is_given_up_later_without_an_alarm(
    stack: str, timing: str
) -> None:
    """C has one view less than A when A tells it what is gone: that was never meant for C. When C
    goes on, the rest is skipped at once, though A says nothing more."""
    name = "MCAST" if stack == "mcast" else "NAKACK2"
    world = GroupWorld("AC", stack, timing, protocols={**QUIET, name: {"window_messages": 10}})
    world["C"].consume(consuming=False)
    world.multicast("A", *numbered(1, 2))
    world.deliver()
    world.partition("A", "C")
    world.install("A", at="A")
    for first, last in ((3, 10), (11, 20), (21, 30)):
        world.multicast("A", *numbered(first, last))
        world.settle()
    world.partition()
    world.install("AC", at="A")
    world.multicast("A", *numbered(31, 35))
    world.advance(5.0)
    assert [(e.count, e.hi) for e in world["C"].events(trace.SKIPPED)] == [(8, 10)]
    world.partition("A", "C")
    world["C"].consume(consuming=True)
    world.advance(1.0)
    assert [(e.count, e.hi) for e in world["C"].events(trace.SKIPPED)] == [(8, 10), (20, 30)]
    world.partition()
    world.install("AC", at="C", number=world.views)
    world.advance(10.0)
    assert not world["C"].events(trace.ALARM)
    assert world.got("C", "A") == [*numbered(1, 2), *numbered(31, 35)]


@everywhere
def test_several_joiners_at_once_get_one_run_each(stack: str, timing: str) -> None:
    world = living("AB", stack, timing)
    chatter = Chatter(world, "AB")
    for name in "CDE":
        world.start(name)
    world.join("C", "D")
    for turn in range(100):
        if turn == 5:
            world.join("E")
        chatter.turn()
    world.advance_until(lambda: world.agrees("ABCDE"), 60.0)
    chatter.turn()
    world.settle()
    for sender in "AB":
        chatter.assert_complete(sender, "AB")
        for joiner in "CDE":
            assert_one_run(world, joiner, sender, chatter.sent[sender])


@everywhere
def test_a_sender_that_hears_late_of_the_joiner_has_kept_what_it_needs(
    stack: str, timing: str
) -> None:
    """The purge race: the view takes a second to reach one member, which multicasts meanwhile, and
    all others have what it sends."""
    world = living("ABC", stack, timing)
    coordinator, _second, third = world.view("A")
    chatter = Chatter(world, "ABC")
    for _turn in range(10):
        chatter.turn()
    world.advance(1.0)
    held = world.hold(coordinator, VIEW, dest=third)
    world.start("D")
    world.join("D")
    world.advance_until(lambda: world.view("D") != "", 30.0)
    for _turn in range(20):
        chatter.turn(count=10)
    world.release(held)
    world.advance_until(lambda: world.agrees("ABCD"), 60.0)
    world.settle()
    for sender in "ABC":
        chatter.assert_complete(sender, "ABC")
        assert_one_run(world, "D", sender, chatter.sent[sender])
    assert not world["D"].events(trace.ALARM)


@on_datagrams
def test_a_silent_sender_s_last_words_before_a_join_reach_the_joiner(
    stack: str, timing: str
) -> None:
    """A digest says 5 of B. 6 and 7 went to A only, B has announced them as often as it does, and
    never speaks again: it announces them once more to who is new, and C asks."""
    world = GroupWorld("ABC", stack, timing, joined=False)
    world.drop(kind=GOSSIP, times=ALWAYS)
    world.drop(kind=STABILITY, times=ALWAYS)
    world.drop(kind=BASELINE, times=ALWAYS)
    world.install("AB")
    world.multicast("B", *numbered(1, 5))
    world.advance(3.0)
    world.machine("A").suspend(60.0, world.now)
    world.partition("AB", "C")
    world.multicast("B", *numbered(6, 7))
    world.advance(10.0)
    world.partition()
    world.install_digest("C", "ABC", {"A": (0, 0), "B": (5, 5)})
    world.install("ABC", at="AB", number=world.views)
    world.settle()
    assert world.got("C", "B") == numbered(6, 7)
    assert world.got("A", "B") == numbered(1, 7)


@on_datagrams
def test_what_a_lone_member_sends_while_its_digest_is_in_use_is_kept(
    stack: str, timing: str
) -> None:
    """It is about to be merged with B, which begins where its digest says, and needs the rest."""
    world = GroupWorld("AB", stack, timing, joined=False)
    world.install("A")
    world.multicast("A", *numbered(1, 5))
    world.machine("A").suspend(10.0, world.now)
    world.multicast("A", *numbered(6, 7))
    world.advance(1.0)
    assert world.machine("A").own.low == 5
    world.install_digest("B", "AB", {"A": (5, 5)}, mutual=())
    world.install("AB", at="A", number=world.views)
    world.machine("A").resume(world.now)
    world.settle()
    assert world.got("B", "A") == numbered(6, 7)
    assert world.unpurged("A") == 0


@on_datagrams
def test_a_digest_in_use_that_nobody_speaks_of_any_more_keeps_nothing(
    stack: str, timing: str
) -> None:
    """What it promised goes a little later than was asked for."""
    world = GroupWorld("A", stack, timing, joined=False)
    world.install("A")
    world.machine("A").suspend(2.0, world.now)
    world.multicast("A", *numbered(1, 5))
    world.advance(2.0)
    assert world.unpurged("A") == 5
    world.advance(0.5)
    assert world.unpurged("A") == 0


@on_datagrams
def test_what_a_sender_said_in_an_earlier_view_completes_no_window(stack: str, timing: str) -> None:
    """A excludes B, multicasts to C alone until all of that is purged, and has B again; only then
    comes what A said when B was first in the view, and what it says now is lost."""
    world = GroupWorld("ABC", stack, timing, joined=False)
    world.install("AC")
    world.multicast("A", *numbered(1, 5))
    world.deliver()
    early = world.hold("A", BASELINE, dest="B", times=1)
    world.install("ABC", at="AC")
    world.install_digest("B", "ABC", {"A": (5, 5), "C": (0, 0)})
    world.deliver()
    world.partition("AC", "B")
    world.install("AC")
    world.multicast("A", *numbered(6, 10))
    world.settle()
    world.partition()
    world.drop("A", BASELINE, dest="B")
    world.install("B")
    view = world.install("ABC", at="AC")
    world.install("ABC", at="B", number=view.id.number)
    world.release(early)
    world.multicast("A", *numbered(11, 12))
    world.settle()
    assert world.got("B", "A") == numbered(11, 12)
    assert world["B"].events(trace.SKIPPED)
    assert not world["B"].events(trace.ALARM)


@on_datagrams
def test_what_a_joiner_s_queue_refused_is_asked_for(stack: str, timing: str) -> None:
    """A JOIN_RSP that is late: a hundred messages come before it, ten are kept."""
    name = "MCAST" if stack == "mcast" else "NAKACK2"
    world = living("AB", stack, timing, **{name: {"become_server_queue_size": 10}})
    chatter = Chatter(world, "AB")
    world.start("C")
    held = world.hold(kind=wire.JOIN_RSP, dest="C")
    world.join("C")
    world.advance_until(lambda: bool(held.held), 30.0)
    chatter.turn(count=50)
    assert world["C"].refused["become-server-queue-full"] == 90
    world.release(held)
    world.advance_until(lambda: world.agrees("ABC"), 60.0)
    chatter.turn()
    world.settle()
    for sender in "AB":
        assert_one_run(world, "C", sender, chatter.sent[sender])
        assert len(world.got("C", sender)) >= 53


@everywhere
def test_a_sender_that_dies_while_somebody_joins_blocks_nobody(stack: str, timing: str) -> None:
    world = living("ABC", stack, timing)
    coordinator, _second, third = world.view("A")
    chatter = Chatter(world, "ABC")
    world.start("D")
    for turn in range(60):
        if turn == 5:
            world.join("D")
        if turn == 12:
            world[third].crash()
            dead = chatter.sent.pop(third)
        chatter.turn()
    left = "".join(name for name in "ABCD" if name != third)
    world.advance_until(lambda: world.agrees(left), 120.0)
    chatter.turn()
    world.settle()
    for sender in chatter.sent:
        chatter.assert_complete(sender, "".join(chatter.sent))
        assert_one_run(world, "D", sender, chatter.sent[sender])
    assert world.got(coordinator, third) == numbered(1, dead)
    assert [world.unpurged(name) for name in left] == [0, 0, 0]


@everywhere
def test_a_restarted_member_is_somebody_else(stack: str, timing: str) -> None:
    """Its stream begins at 1 again, and nothing of the former one is taken for it."""
    world = living("ABC", stack, timing)
    world.multicast("C", *numbered(1, 10))
    world.advance(1.0)
    world["C"].crash()
    world.advance_until(lambda: world.agrees("AB"), 120.0)
    world.start("C")
    world.join("C")
    world.advance_until(lambda: world.agrees("ABC"), 60.0)
    world.multicast("C", *numbered(1, 5))
    world.multicast("A", b"welcome")
    world.advance(5.0)
    assert world.everyone_got("C", numbered(1, 5), "ABC")
    assert world.got("C", "A") == [b"welcome"]


# -- Departures ------------------------------------------------------------


@everywhere
def test_what_a_leaver_multicast_before_it_left_arrives(stack: str, timing: str) -> None:
    """And the coordinator's leaving stops nobody's stream."""
    world = living("ABC", stack, timing)
    leaver = world.view("A")[0]
    rest = "".join(name for name in "ABC" if name != leaver)
    chatter = Chatter(world, "ABC")
    for turn in range(60):
        if turn == 20:
            said = chatter.sent.pop(leaver)
            world.leave(leaver)
        chatter.turn()
    world.advance_until(lambda: world.agrees(rest), 60.0)
    world.settle()
    for sender in rest:
        chatter.assert_complete(sender, rest)
    for name in rest:
        assert world.got(name, leaver) == numbered(1, said)
    assert [world.unpurged(name) for name in rest] == [0, 0]


@everywhere
def test_a_late_question_to_join_does_not_cost_a_member_what_newcomers_sent(
    stack: str, timing: str
) -> None:
    """B, which has joined, misses the view with C. Then its question comes to A once more, and the
    answer says where the windows of a joiner would begin: C's after 10."""
    world = living("AB", stack, timing)
    question = [sent for sent in world.wire if sent.kind == wire.JOIN_REQ and sent.head.mark][-1]
    missed = world.drop(kind=VIEW, dest="B", times=ALWAYS)
    held = world.hold("C", dest="B")
    world.start("C")
    world.join("C")
    world.advance_until(lambda: world.view("C") == "ABC", 60.0)
    world.multicast("C", *numbered(1, 10))
    world.advance_until(lambda: world.got("A", "C") == numbered(1, 10), 60.0)
    assert missed.taken
    assert world.view("B") == "AB"
    world["A"].receive(question.data)
    world.deliver()
    assert world.view("B") == "ABC"
    world.release(held)
    world.heal()
    world.settle()
    assert world.everyone_got("C", numbered(1, 10), "ABC")


@everywhere
def test_a_joiner_whose_ack_was_lost_misses_nothing_of_who_came_after_it(
    stack: str, timing: str
) -> None:
    """A believes that B has no view yet, and sends it the view with D as if it joined there."""
    world = living("A", stack, timing, MERGE3=dict(QUIET["MERGE3"]))
    for name in "BCD":
        world.start(name)
    unheard = world.drop("B", wire.VIEW_ACK, times=ALWAYS)
    world.join("B")
    world.advance_until(lambda: world.view("B") == "AB", 60.0)
    missed = world.drop(kind=wire.JOIN_RSP, dest="B", times=ALWAYS)
    held = world.hold("C", dest="B")
    world.join("C")
    world.advance_until(lambda: world.view("C") == "ABC", 60.0)
    world.multicast("C", *numbered(1, 10))
    world.advance_until(lambda: world.got("A", "C") == numbered(1, 10), 60.0)
    world.advance(2.5)
    assert unheard.taken
    assert missed.taken
    assert world.view("B") == "AB"
    world.release(held)
    world.heal()
    world.join("D")
    world.advance_until(lambda: world.agrees("ABCD"), 60.0)
    world.settle()
    assert world.everyone_got("C", numbered(1, 10), "ABC")


@on_datagrams
def test_a_late_answer_of_another_group_costs_a_member_s_own_group_nothing(
    stack: str, timing: str
) -> None:
    """D finds A and asks it, then finds B and gets into its group. Then A's answer comes, of a
    higher number, while C misses what D has multicast."""
    world = living("ABC", stack, timing, MERGE3=dict(QUIET["MERGE3"]))
    world.install("A", at="A", number=20)
    world.install("BC", at="BC", number=10)
    hidden = [world.drop(name, wire.GET_MBRS_RSP, times=ALWAYS) for name in "BC"]
    answers = world.hold("A", wire.JOIN_RSP)
    world.start("D")
    world.join("D")
    world.advance_until(lambda: bool(answers.held), 60.0)
    for rule in hidden:
        world.release(rule)
    world.drop("A", wire.GET_MBRS_RSP, times=ALWAYS)
    world.advance_until(lambda: world.agrees("BCD"), 60.0)
    missed = world.drop("D", DATA, dest="C", times=ALWAYS)
    world.multicast("D", *numbered(1, 10))
    world.release(answers)
    world.advance(1.0)
    assert world["D"].refused["join-late"]
    assert world.agrees("BCD")
    world.release(missed)
    world.settle()
    assert world.everyone_got("D", numbered(1, 10), "BCD")


# -- Merges ------------------------------------------------------------


@everywhere
def test_streams_continue_after_a_merge_and_nothing_of_the_split_comes_late(
    stack: str, timing: str
) -> None:
    """P-30: {A,B} and {C,D} multicast while they are apart, and while they merge."""
    world = living("ABCD", stack, timing)
    chatter = Chatter(world, "ABCD")
    for _turn in range(10):
        chatter.turn()
    world.advance(1.0)
    together = dict(chatter.sent)
    world.partition("AB", "CD")
    world.advance_until(lambda: world.agrees("AB") and world.agrees("CD"), 120.0)
    for _turn in range(20):
        chatter.turn()
    world.advance(1.0)
    apart = dict(chatter.sent)
    world.heal()
    while not world.agrees("ABCD"):
        chatter.turn(count=1, pause=0.05)
        assert world.now < 300.0
    merged = dict(chatter.sent)
    for _turn in range(10):
        chatter.turn()
    world.settle()
    for side, others in (("AB", "CD"), ("CD", "AB")):
        for sender in side:
            chatter.assert_complete(sender, side)
            for name in others:
                got = world.got(name, sender)
                begin = offset(world, name, sender)
                assert got == [
                    *numbered(1, together[sender]),
                    *numbered(begin + 1, chatter.sent[sender]),
                ]
                assert apart[sender] <= begin <= merged[sender]
    assert [world.unpurged(name) for name in "ABCD"] == [0] * 4


@on_datagrams
def test_who_is_merely_slow_loses_nothing_at_a_merge(stack: str, timing: str) -> None:
    """JGRP-948: B lags behind A, with whom it was all the time; a merge with C does not make it
    skip what it has not got yet."""
    world = living("ABC", stack, timing)
    world.partition("AB", "C")
    world.advance_until(lambda: world.agrees("AB"), 120.0)
    held = world.hold("A", DATA, dest="B")
    mute = world.hold("A", HIGHEST_SEQNO, dest="B")
    world.multicast("A", *numbered(1, 30))
    world.partition()
    world.advance_until(lambda: world.agrees("ABC"), 300.0)
    assert world.got("B", "A") == []
    world.release(held)
    world.release(mute)
    world.settle()
    assert world.everyone_got("A", numbered(1, 30), "AB")


@on_datagrams
def test_a_merge_over_a_bad_wire_loses_nothing_that_is_sent_after_it(
    stack: str, timing: str
) -> None:
    world = living("ABCD", stack, timing)
    world.partition("AB", "CD")
    world.advance_until(lambda: world.agrees("AB") and world.agrees("CD"), 120.0)
    chatter = Chatter(world, "ABCD")
    world.partition()
    world.weather(13, loss=0.1, copies=0.1, spread=0.01)
    while not world.agrees("ABCD"):
        chatter.turn(count=2, pause=0.05)
        assert world.now < 400.0
    before = dict(chatter.sent)
    for _turn in range(20):
        chatter.turn()
    world.heal()
    world.settle()
    for sender in "ABCD":
        after = numbered(before[sender] + 1, chatter.sent[sender])
        for name in "ABCD":
            got = world.got(name, sender)
            assert got[-len(after) :] == after
            assert got == sorted(set(got), key=int)


@on_datagrams
def test_a_group_in_which_nobody_speaks_merges_and_then_speaks(stack: str, timing: str) -> None:
    world = living("ABC", stack, timing)
    world.partition("A", "BC")
    world.advance_until(lambda: world.agrees("A") and world.agrees("BC"), 120.0)
    world.heal()
    world.advance_until(lambda: world.agrees("ABC"), 300.0)
    for sender in "ABC":
        world.multicast(sender, *numbered(1, 5))
    world.settle()
    for sender in "ABC":
        assert world.everyone_got(sender, numbered(1, 5), "ABC")


@everywhere
def test_the_next_view_that_comes_before_a_merge_view_brings_nothing_of_the_split(
    stack: str, timing: str
) -> None:
    """A merges {A,B} with {C}, which has multicast 1 to 5; to B the view with D comes first."""
    world = living("ABC", stack, timing)
    world.start("D")
    world.partition("AB", "C")
    world.advance_until(lambda: world.agrees("AB") and world.agrees("C"), 120.0)
    world.multicast("C", *numbered(1, 5))
    world.join_again()
    missed = world.drop(kind=VIEW, dest="B", times=ALWAYS)
    world.advance_until(lambda: world.view("C") == "ABC", 120.0)
    world.multicast("C", *numbered(6, 10))
    merged = world["A"].stack.view
    assert merged is not None
    first = world.drop(kind=VIEW, seqno=merged.id.number, dest="B", times=ALWAYS)
    world.release(missed)
    world.join("D")
    world.advance_until(lambda: "view-before-merge" in world["B"].refused, 10.0)
    world.release(first)
    world.advance_until(lambda: world.agrees("ABCD"), 10.0)
    world.settle()
    assert offset(world, "B", "C") == 5
    assert world.got("B", "C") == world.got("A", "C") == numbered(6, 10)


@everywhere
def test_who_missed_a_merge_and_takes_the_next_view_loses_nothing(stack: str, timing: str) -> None:
    """A merges {A,B} with {C}; the view never comes to B, which takes the next one, with D."""
    world = living("ABC", stack, timing)
    world.start("D")
    world.partition("AB", "C")
    world.advance_until(lambda: world.agrees("AB") and world.agrees("C"), 120.0)
    world.multicast("C", *numbered(1, 5))
    world.join_again()
    world.drop("B", wire.INFO, times=ALWAYS)
    missed = world.drop(kind=VIEW, dest="B", times=ALWAYS)
    world.advance_until(lambda: world.view("C") == "ABC", 120.0)
    merged = world["A"].stack.view
    assert merged is not None
    world.drop(kind=VIEW, seqno=merged.id.number, dest="B", times=ALWAYS)
    world.release(missed)
    world.multicast("C", *numbered(6, 10))
    world.multicast("B", *numbered(1, 5))
    world.join("D")
    world.advance_until(lambda: world.agrees("ABCD"), 60.0)
    assert merged not in world.seen["B"]
    world.multicast("C", *numbered(11, 15))
    world.multicast("B", *numbered(6, 10))
    world.settle()
    assert world.got("B", "C")[-10:] == world.got("A", "C")[-10:] == numbered(6, 15)
    assert world.got("C", "B") == world.got("A", "B") == numbered(1, 10)
    assert [world.unpurged(name) for name in "ABCD"] == [0] * 4
    assert not world["B"].events(trace.ALARM)
