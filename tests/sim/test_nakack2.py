"""NAKACK2: what is missing is asked for, what is stable is purged, silence means all is well."""

from __future__ import annotations

import dataclasses

import pytest

from stormcast.node.core import wire
from stormcast.node.core.errors import ConfigError
from stormcast.node.core.wire import DATA, GOSSIP, HIGHEST_SEQNO, STABILITY, XMIT_REQ
from stormcast.node.protocols.multicast import Nakack2Config
from tests.helpers.group import ALWAYS, GroupWorld, Sent, numbered
from tests.helpers.world import TIMINGS

both_timings = pytest.mark.parametrize("timing", TIMINGS)


def nakack(members: str = "ABC", timing: str = "compatible", **settings: object) -> GroupWorld:
    return GroupWorld(members, "udp", timing, protocols={"NAKACK2": settings})


def asked(sent: list[Sent]) -> list[list[tuple[int, int]]]:
    return [one.asks_for() for one in sent if one.kind == XMIT_REQ]


def no_votes(world: GroupWorld) -> None:
    """Stability never speaks: what it would repair is left to others."""
    world.drop(kind=GOSSIP, times=ALWAYS)
    world.drop(kind=STABILITY, times=ALWAYS)


# -- Requests ------------------------------------------------------------


def test_what_is_missing_in_two_looks_is_asked_for_and_nothing_else() -> None:
    """N-10: messages arrive between looks; each look asks for what the look before missed, too."""
    world = nakack("AB")
    frames: dict[int, bytes] = {}
    held = world.hold("B", DATA, dest="A")
    world.drop("B", HIGHEST_SEQNO, times=ALWAYS)
    world.multicast("B", *numbered(1, 31))
    for sent in held.held:
        frames[sent.lo] = sent.data
    world.cut("A", "B")

    def arrive(*seqnos: int) -> None:
        world["A"].receive(*(frames[seqno] for seqno in seqnos))

    def look() -> list[list[tuple[int, int]]]:
        return asked(world.frames_within(1.0))

    world.advance(0.5)
    arrive(1, 2, 3, 4, 6, 8, *range(14, 18), 19)
    assert world.got("A", "B") == numbered(1, 4)
    assert look() == []
    arrive(7, 9, 13, 18, 23, 24, *range(26, 30), 31)
    assert look() == [[(5, 5), (10, 12)]]
    assert look() == [[(5, 5), (10, 12), (20, 22), (25, 25), (30, 30)]]
    arrive(5, 10, 11, 12)
    assert world.got("A", "B") == numbered(1, 19)
    assert look() == [[(20, 22), (25, 25), (30, 30)]]
    arrive(20, 21, 22, 25, 30)
    assert look() == []
    assert world.got("A", "B") == numbered(1, 31)


@both_timings
def test_every_second_of_many_is_lost_and_asked_for_in_requests_of_bounded_size(
    timing: str,
) -> None:
    """N-11: 5000 messages, 2500 holes, requests of at most 100 seqnos, each frame small."""
    world = nakack(timing=timing, max_xmit_req_size=100)
    held = world.hold("A", DATA, dest="C")
    world.multicast("A", *numbered(1, 5000))
    world.release(held, lambda sent: sent[::2])
    world.advance(10.0)
    assert world.everyone_got("A", numbered(1, 5000), "ABC")
    requests = world.requests("C")
    sizes = [sum(hi - lo + 1 for lo, hi in sent.asks_for()) for sent in requests]
    assert max(sizes) == 100
    assert max(len(sent.data) for sent in requests) <= wire.HEAD_SIZE + 100 * 12


@both_timings
def test_ranges_of_a_request_are_bounded_too(timing: str) -> None:
    world = nakack("AB", timing, max_xmit_req_ranges=3)
    for seqno in range(2, 21, 2):
        world.drop("A", DATA, seqno)
    world.multicast("A", *numbered(1, 21))
    world.settle()
    assert world.got("B", "A") == numbered(1, 21)
    assert max(len(sent.asks_for()) for sent in world.requests()) == 3


@both_timings
def test_one_answer_serves_all_who_miss_the_same(timing: str) -> None:
    """With use_mcast_xmit the lost multicast is multicast again, once."""
    world = nakack("ABCD", timing, use_mcast_xmit=True)
    world.drop("A", DATA, 2, times=3)
    world.multicast("A", *numbered(1, 3))
    world.settle()
    assert world.everyone_got("A", numbered(1, 3), "ABCD")
    again = [sent for sent in world.sent("A", DATA, 2) if sent.head.transmission]
    assert [sent.dest for sent in again] == ["B", "C", "D"]
    assert {sent.head.dest for sent in again} == {wire.GROUP}


@both_timings
def test_only_who_asked_is_answered_where_losses_do_not_coincide(timing: str) -> None:
    world = nakack("ABCD", timing, use_mcast_xmit=False)
    world.drop("A", DATA, 2, dest="C")
    world.multicast("A", *numbered(1, 3))
    world.settle()
    assert world.everyone_got("A", numbered(1, 3), "ABCD")
    (again,) = [sent for sent in world.sent("A", DATA, 2) if sent.head.transmission]
    assert (again.dest, again.head.dest) == ("C", world.short("C"))


# -- Whom to ask ------------------------------------------------------------


@both_timings
def test_what_the_sender_can_no_longer_send_is_had_from_who_kept_it(timing: str) -> None:
    """A's last word reaches B only, then A cannot be reached; B gives C what it kept."""
    world = nakack("ABC", timing, use_mcast_xmit_req=True)
    world.drop("A", DATA, 2, dest="C", times=ALWAYS)
    world.deliver()
    world.multicast("A", *numbered(1, 3))
    world.cut("C", "A")
    world.settle()
    assert world.got("C", "A") == numbered(1, 3)
    assert {sent.source for sent in world.sent(None, DATA, 2, dest="C")} == {"A", "B"}


@both_timings
def test_a_random_member_is_asked_first_and_the_sender_when_that_did_not_help(
    timing: str,
) -> None:
    world = nakack("ABCDE", timing, xmit_from_random_member=True)
    for number in range(1, 41, 2):
        world.drop("A", DATA, number, dest="B")
        world.multicast("A", *numbered(number, number + 1))
        world.advance(3.0)
    assert world.everyone_got("A", numbered(1, 40), "ABCDE")
    first = [sent for sent in world.requests("B") if not sent.head.transmission]
    assert {sent.dest for sent in first} == {"A", "C", "D", "E"}
    answered = {sent.source for sent in world.wire if sent.kind == DATA and sent.dest == "B"}
    assert answered == {"A", "C", "D", "E"}


def test_each_second_request_goes_to_the_sender() -> None:
    """Never only to the sender: it may be dead, and another one have what it sent."""
    world = nakack("ABCDE", xmit_from_random_member=True)
    world.drop(kind=DATA, seqno=1, dest="B", times=4)
    world.multicast("A", *numbered(1, 2))
    world.settle()
    assert world.got("B", "A") == numbered(1, 2)
    again = [sent.dest for sent in world.requests("B") if sent.head.transmission]
    assert again[0] == again[2] == "A"


def test_kept_messages_are_let_go_once_they_are_stable() -> None:
    world = nakack("ABC", use_mcast_xmit_req=True)
    world.multicast("A", *numbered(1, 20))
    world.deliver()
    assert len(world.inbound("B", "A").kept) == 20
    world.settle()
    assert len(world.inbound("B", "A").kept) == 0


def test_a_stranger_s_request_is_not_answered() -> None:
    world = nakack("ABC")
    world.multicast("A", *numbered(1, 3))
    world.drop("A", DATA, 4, dest="C")
    world.multicast("A", *numbered(4, 5))
    world.install("AB", at="A")
    world.advance(5.0)
    assert world.requests("C")
    assert world["A"].refused["request-stranger"] > 0
    assert world.got("C", "A") == numbered(1, 3)


# -- The last message ------------------------------------------------------------


@both_timings
def test_a_silent_sender_announces_its_highest_seqno_so_often_and_no_more(timing: str) -> None:
    """JGRP-1904: as long as it is not stable; a new message starts the count again."""
    world = nakack("ABC", timing, resend_last_seqno_max_times=3)
    no_votes(world)
    for number in (1, 2):
        world.multicast("A", b"%d" % number)
        world.advance(20.0)
        said = world.sent("A", HIGHEST_SEQNO, dest="B")
        assert [sent.lo for sent in said] == [1] * 3 + [2] * 3 * (number - 1)
    assert len({(sent.lo, sent.head.transmission) for sent in said}) == len(said)


@both_timings
def test_nobody_announces_while_it_sends(timing: str) -> None:
    world = nakack("AB", timing)
    for number in range(1, 301):
        world.multicast("A", b"%d" % number)
        world.advance(0.01)
    assert world.count("A", HIGHEST_SEQNO) == 0


def test_what_is_stable_is_not_announced() -> None:
    world = nakack("AB")
    world.multicast("A", *numbered(1, 4096))
    world.advance(30.0)
    assert world.unpurged("A") == 0
    assert world.count("A", HIGHEST_SEQNO) == 0


def test_without_announcements_stability_finds_what_others_have() -> None:
    """JGRP-2678: two stabilities in a row say that C has what B has not."""
    world = nakack("ABC", resend_last_seqno=False)
    world.drop("A", DATA, 6, dest="B")
    world.multicast("A", *numbered(1, 5))
    world.multicast("A", b"6")
    world.settle()
    assert world.everyone_got("A", numbered(1, 6), "ABC")
    assert world.count("A", HIGHEST_SEQNO) == 0


# -- Stability ------------------------------------------------------------


@both_timings
def test_nothing_is_purged_that_a_member_has_not_delivered(timing: str) -> None:
    """P-16: C misses 5 as long as the wire says so; A keeps 5 and all after it."""
    world = nakack("ABC", timing)
    world.drop("A", DATA, 5, dest="C", times=ALWAYS)
    world.multicast("A", *numbered(1, 10))
    world.settle()
    assert world.machine("A").own.low == 4
    world.heal()
    world.settle()
    assert world.everyone_got("A", numbered(1, 10), "ABC")
    assert world.unpurged("A") == 0


@both_timings
def test_a_full_window_is_emptied_by_a_hurried_vote(timing: str) -> None:
    """Twenty windows full of messages pass in far less time than two regular votes take."""
    world = nakack("ABC", timing, window_messages=50)
    world.multicast("A", *numbered(1, 1000))
    world.advance_until(lambda: world.everyone_got("A", numbered(1, 1000), "ABC"), 20.0)


# -- Where windows begin ------------------------------------------------------------


def test_a_digest_opens_windows_where_it_says_and_leaves_those_there_are() -> None:
    """P-19: set. A joiner begins at the coordinator's digest; a second digest moves nothing."""
    world = GroupWorld("ABC", "udp", joined=False)
    world.install_digest("C", "ABC", {"A": (100, 120), "B": (7, 7)})
    assert [world.inbound("C", name).window.delivered for name in "AB"] == [100, 7]
    world.install_digest("C", "ABC", {"A": (50, 60), "B": (400, 400)})
    assert [world.inbound("C", name).window.delivered for name in "AB"] == [100, 7]


def test_a_view_without_a_digest_opens_windows_at_zero_and_closes_those_of_who_left() -> None:
    world = GroupWorld("ABC", "udp", joined=False)
    world.install_digest("C", "AC", {"A": (100, 120)})
    world.install_digest("C", "BC", {})
    assert set(world.machine("C").inbound()) == {world.short("B")}
    assert world.inbound("C", "B").window.delivered == 0


def test_a_merge_replaces_a_window_that_is_behind_unless_both_were_together() -> None:
    """JGRP-699, JGRP-948: never the own window, never one that is ahead, never a mutual one."""
    world = GroupWorld("ABCD", "udp", joined=False)
    world.install_digest("D", "ABCD", {"A": (10, 10), "B": (10, 10), "C": (10, 10)})
    world.multicast("D", *numbered(1, 3))
    world.install_digest(
        "D", "ABCD", {"A": (20, 20), "B": (20, 20), "C": (5, 5), "D": (90, 90)}, mutual="BD"
    )
    assert [world.inbound("D", name).window.delivered for name in "ABC"] == [20, 10, 10]
    assert world.machine("D").own.high == 3


def test_a_former_member_s_messages_are_late_and_not_early() -> None:
    """They are dropped with a reason; nothing of them is kept for a view to come."""
    world = nakack("ABC")
    late = world.hold("C", DATA, dest="A")
    world.multicast("C", b"1")
    world.install("AB")
    world.release(late)
    world.deliver()
    assert world.got("A", "C") == []
    assert world["A"].refused["former-member"] == 1


# -- Before the first view ------------------------------------------------------------


@both_timings
def test_a_joiner_queues_what_comes_early_and_asks_for_what_did_not_fit(timing: str) -> None:
    """JGRP-1509, with a bound of 10: what was refused is repaired after the view."""
    world = GroupWorld(
        "ABC", "udp", timing, joined=False, protocols={"NAKACK2": {"become_server_queue_size": 10}}
    )
    world.install("ABC", at="AB")
    world.multicast("A", *numbered(1, 30))
    world.deliver()
    assert world.got("C", "A") == []
    assert world["C"].refused["become-server-queue-full"] == 20
    world.install("ABC", at="C", number=1)
    world.settle()
    assert world.got("C", "A") == numbered(1, 30)


# -- Settings ------------------------------------------------------------


def test_settings_that_cannot_work_are_refused_with_the_remedy() -> None:
    with pytest.raises(ConfigError, match="resend_last_seqno: false"):
        Nakack2Config(resend_last_seqno_max_times=0)
    for name in ("max_xmit_req_size", "become_server_queue_size", "window_messages"):
        with pytest.raises(ConfigError, match=name):
            dataclasses.replace(Nakack2Config(), **{name: 0})
    world = nakack("AB")
    with pytest.raises(ConfigError, match="window_messages can not change"):
        world["A"].set("NAKACK2.window_messages", 5)


def test_requests_shrink_as_the_setting_does_at_run_time() -> None:
    world = nakack("AB")
    world["B"].set("NAKACK2.max_xmit_req_size", 2)
    for seqno in range(2, 8):
        world.drop("A", DATA, seqno)
    world.multicast("A", *numbered(1, 8))
    world.settle()
    assert world.got("B", "A") == numbered(1, 8)
    assert asked(world.requests()) == [[(2, 3)], [(4, 5)], [(6, 7)]]
