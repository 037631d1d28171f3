"""FD_ALL3, FD_SOCK2 and VERIFY_SUSPECT2: who is suspected when, by whom, and who is not."""

from __future__ import annotations

from math import ceil
from random import Random

import pytest

from stormcast.node.core import wire
from stormcast.node.core.errors import ConfigError
from stormcast.node.core.packing import Writer
from stormcast.node.protocols.events import Cleared, Confirmed, Lagging, Suspected
from stormcast.node.protocols.fd_all3 import FdAll3, FdAll3Config
from stormcast.node.protocols.fd_sock2 import FdSock2, FdSock2Config
from stormcast.node.protocols.verify_suspect2 import VerifySuspect2, VerifySuspect2Config
from tests.helpers.layers import ALWAYS, Layers, address, addresses, view

ALL = (FdAll3, FdAll3Config())
SOCK = (FdSock2, FdSock2Config())
VERIFY = (VerifySuspect2, VerifySuspect2Config())


def hear(world: Layers, source: str, at: str) -> None:
    """A frame of a protocol above arrives."""
    world.do(at, lambda member: member.layer(FdAll3).heard.add(address(source).short))


def suspect(world: Layers, names: str, at: str = "A") -> None:
    world.do(
        at, lambda member: member.layer(VerifySuspect2).on_suspected(addresses(names), world.now)
    )


def named(event: Suspected | Confirmed) -> str:
    return "".join(sorted(member.name for member in event.members))


# -- FD_ALL3 --------------------------------------------------------------------------------------


@pytest.mark.parametrize("seed", range(8))
def test_a_silent_member_is_suspected_after_n_to_n_plus_1_intervals(seed: int) -> None:
    """B dies at some moment between two checks; n = ceil(timeout / interval)."""
    dice = Random(seed)
    config = FdAll3Config(timeout=dice.uniform(2, 50), interval=dice.uniform(0.5, 1.9))
    world = Layers("AB", (FdAll3, config))
    world.install(view(1, "AB"))
    n, interval = ceil(config.timeout / config.interval), config.interval
    world.advance(dice.uniform(1, 3) * interval)
    hear(world, "B", at="A")
    heard_at = world.now
    world.kill("B")

    world.advance((n + 2) * interval)

    silence = world["A"].moments(Suspected)[0] - heard_at
    assert n * interval <= silence <= (n + 1) * interval + 1e-9


def test_a_member_that_is_new_has_a_whole_timeout() -> None:
    """C enters the view just before a check, and never says anything."""
    world = Layers("ABC", ALL)
    world.install(view(1, "AB"))
    world.kill("C")
    world.advance(7.9)
    world.install(view(2, "ABC"))
    world.advance(39.9)
    assert not world["A"].events(Suspected)
    world.advance(8.1)
    assert named(world["A"].events(Suspected)[0]) == "C"


def test_heartbeats_alone_keep_everybody_unsuspected() -> None:
    world = Layers("ABCD", ALL)
    world.install(view(1, "ABCD"))
    world.advance(1000)
    assert not any(member.events(Suspected) for member in world.members.values())
    assert len(world.sent(wire.HEARTBEAT, "A")) == 126


def test_a_multicast_makes_the_next_heartbeat_needless() -> None:
    world = Layers("AB", ALL)
    world.install(view(1, "AB"))
    world.advance(1)
    for _ in range(3):
        world.do("A", lambda member: setattr(member.layer(FdAll3), "mcast_sent", True))
        world.advance(8)
    assert len(world.sent(wire.HEARTBEAT, "A")) == 1
    world.advance(8)
    assert len(world.sent(wire.HEARTBEAT, "A")) == 2


def test_any_frame_is_a_sign_of_life_unless_only_heartbeats_are() -> None:
    """B's heartbeats are lost, other frames of it arrive."""
    for counts in (True, False):
        world = Layers("AB", (FdAll3, FdAll3Config(msg_counts_as_heartbeat=counts)))
        world.install(view(1, "AB"))
        world.drop(wire.HEARTBEAT, source="B", times=ALWAYS)
        for _ in range(20):
            world.advance(5)
            hear(world, "B", at="A")
        assert bool(world["A"].events(Suspected)) is not counts


def test_only_the_member_that_would_coordinate_passes_suspicions_up() -> None:
    """A and B die: C is next, D and E only remember; all are named, at every check (G-13)."""
    world = Layers("ABCDE", ALL)
    world.install(view(1, "ABCDE"))
    world.advance(1)
    world.kill("AB")
    world.advance(70)
    assert [named(event) for event in world["C"].events(Suspected)] == ["AB"] * 3
    assert not world["D"].events(Suspected)
    assert not world["E"].events(Suspected)
    assert world["E"].suspicions() == [("suspected", "A"), ("suspected", "B")]


def test_a_suspect_that_is_heard_is_cleared_at_once_and_everywhere() -> None:
    world = Layers("AB", ALL)
    world.install(view(1, "AB"))
    world.pause("B")
    world.advance(50)
    assert world["A"].events(Suspected)
    hear(world, "B", at="A")
    assert world["A"].events(Cleared) == [Cleared(address("B"))]
    assert world["A"].suspicions() == [("suspected", "B"), ("cleared", "B")]
    world.advance(39)
    assert len(world["A"].events(Suspected)) == len(
        [at for at in world["A"].moments(Suspected) if at <= 50]
    )


def test_members_that_left_the_view_are_not_suspected() -> None:
    """JGRP-2387: C dies and is excluded while its silence is being counted."""
    world = Layers("ABC", ALL)
    world.install(view(1, "ABC"))
    world.advance(1)
    world.kill("C")
    world.advance(30)
    world.install(view(2, "AB"))
    world.advance(200)
    assert not world["A"].events(Suspected)
    assert world["A"].layer(FdAll3).tracked == {address("B").short}


def test_a_member_alone_sends_nothing() -> None:
    world = Layers("AB", ALL)
    world.install(view(1, "A"))
    world.advance(100)
    world.install(view(2, "AB"))
    world.install(view(3, "A"))
    start = world.now
    world.advance(100)
    assert world.sent(wire.HEARTBEAT, "A", since=start + 0.01) == []


def test_with_one_way_loss_nobody_is_suspected_by_who_may_act() -> None:
    """A hears C, C does not hear A: C suspects A, but B would be next, and B hears A."""
    world = Layers("ABC", ALL)
    world.install(view(1, "ABC"))
    world.cut("A", "C")
    world.advance(200)
    assert not any(member.events(Suspected) for member in world.members.values())
    assert ("suspected", "A") in world["C"].suspicions()


def test_heartbeats_of_strangers_change_nothing() -> None:
    world = Layers("AB", ALL)
    world.install(view(1, "AB"))
    world.inject("X", "A", wire.FD_ALL3, wire.HEARTBEAT)
    world.inject("B", "A", wire.FD_ALL3, wire.SUSPECT)
    assert world["A"].refused == {"stranger": 1, "kind": 1}


def test_an_interval_that_is_not_below_the_timeout_is_refused() -> None:
    with pytest.raises(ConfigError, match=r"fd_all3\.interval"):
        FdAll3Config(timeout=8.0, interval=8.0)
    assert FdAll3Config(timeout=8.0, interval=7.999).patience == 2


# -- VERIFY_SUSPECT2 ------------------------------------------------------------------------------


def verifying(names: str, **settings: float) -> Layers:
    world = Layers(names, (VerifySuspect2, VerifySuspect2Config(**settings)))  # type: ignore[arg-type]
    world.install(view(1, names))
    return world


def test_no_suspicion_is_handed_on_before_its_timeout_or_after_twice_that() -> None:
    """F-02: timeout 2 s; A suspects B at 0 and C at 0.1."""
    world = verifying("ABC", timeout=2.0)
    world.kill("BC")
    suspect(world, "B")
    world.advance(0.1)
    suspect(world, "C")
    world.advance(10)
    moments = dict(
        zip(map(named, world["A"].events(Confirmed)), world["A"].moments(Confirmed), strict=True)
    )
    assert 2.0 <= moments["B"] <= 4.0
    assert 2.1 <= moments["C"] <= 4.1


def test_each_of_seven_suspicions_is_handed_on() -> None:
    """F-03."""
    world = verifying("ABCDEFGH")
    world.kill("BCDEFGH")
    for name in "BCDEFGH":
        suspect(world, name)
        world.advance(0.1)
    world.advance(2)
    assert sorted("".join(map(named, world["A"].events(Confirmed)))) == list("BCDEFGH")


def test_a_member_that_answers_later_is_not_suspected_again() -> None:
    """F-04: both are confirmed, then suspected once more; now B answers."""
    world = verifying("ABC")
    world.cut("A", "BC")
    suspect(world, "BC")
    world.advance(3)
    assert [named(event) for event in world["A"].events(Confirmed)] == ["BC"]
    world.heal()
    world.cut("A", "C")
    suspect(world, "BC")
    world.advance(3)
    assert [named(event) for event in world["A"].events(Confirmed)] == ["BC", "C"]
    assert world["A"].events(Cleared) == [Cleared(address("B"))]
    assert world["A"].suspicions()[-2:] == [("cleared", "B"), ("confirmed", "C")]


def test_suspicions_of_two_windows_are_two_events() -> None:
    """F-05: B and C are suspected at 0.5, D and E at 1.2."""
    world = verifying("ABCDE")
    world.kill("BCDE")
    world.advance(0.5)
    suspect(world, "BC")
    world.advance(0.7)
    suspect(world, "DE")
    world.advance(5)
    assert [named(event) for event in world["A"].events(Confirmed)] == ["BC", "DE"]
    assert world["A"].moments(Confirmed) == pytest.approx([2.0, 3.0])


def test_suspicions_of_one_window_are_one_event() -> None:
    """F-06: one after the other, within a window; JGRP-2558."""
    world = verifying("ABCDE")
    world.kill("BCDE")
    world.advance(0.1)
    for name in "BCDE":
        suspect(world, name)
        world.advance(0.2)
    world.advance(5)
    assert [named(event) for event in world["A"].events(Confirmed)] == ["BCDE"]


def test_suspicions_at_once_are_one_event() -> None:
    """F-07."""
    world = verifying("ABCDE")
    world.kill("BCDE")
    suspect(world, "BCDE")
    world.advance(5)
    assert [named(event) for event in world["A"].events(Confirmed)] == ["BCDE"]


def test_a_repeated_suspicion_moves_no_deadline_and_asks_no_more() -> None:
    """JGRP-2943."""
    world = verifying("AB")
    world.kill("B")
    for _ in range(9):
        suspect(world, "B")
        world.advance(0.1)
    world.advance(0.2)
    assert len(world.sent(wire.ARE_YOU_DEAD)) == 3
    assert world["A"].moments(Confirmed) == [1.0]


def test_more_questions_survive_more_losses() -> None:
    """Two of three questions are lost: the answer to the third is in time."""
    for lost, is_cleared in ((2, True), (3, False)):
        world = verifying("AB")
        world.drop(wire.ARE_YOU_DEAD, times=lost)
        suspect(world, "B")
        world.advance(3)
        assert [frame.head.transmission for frame in world.sent(wire.ARE_YOU_DEAD)] == [0, 1, 2]
        assert bool(world["A"].events(Cleared)) is is_cleared
        assert bool(world["A"].events(Confirmed)) is not is_cleared


def test_who_left_the_view_or_was_heard_otherwise_is_no_longer_verified() -> None:
    world = verifying("ABC")
    world.kill("BC")
    suspect(world, "BC")
    world.install(view(2, "AC"))
    world.do("A", lambda m: m.layer(VerifySuspect2).on_cleared(address("C"), world.now))
    world.advance(5)
    assert not world["A"].events(Confirmed)


def test_a_late_answer_to_an_earlier_question_does_not_clear_who_died_since() -> None:
    """B's answer is under way while B is cleared otherwise, dies, and is suspected again."""
    world = verifying("AB")
    world.drop(wire.I_AM_NOT_DEAD, times=1)
    suspect(world, "B")
    (question,) = world.sent(wire.ARE_YOU_DEAD)
    world.advance(0.1)
    world.do("A", lambda m: m.layer(VerifySuspect2).on_cleared(address("B"), world.now))
    world.kill("B")
    suspect(world, "B")
    late = question.head.lo
    world.inject("B", "A", wire.VERIFY_SUSPECT2, wire.I_AM_NOT_DEAD, lo=late)
    world.advance(3)
    assert not world["A"].events(Cleared)
    assert [named(event) for event in world["A"].events(Confirmed)] == ["B"]


def test_strangers_and_oneself_are_not_verified() -> None:
    world = verifying("AB")
    suspect(world, "AX")
    world.inject("X", "A", wire.VERIFY_SUSPECT2, wire.I_AM_NOT_DEAD)
    world.advance(5)
    assert world.wire == []
    assert not world["A"].happened


# -- FD_SOCK2 -------------------------------------------------------------------------------------


def watched(world: Layers, name: str) -> str:
    neighbour = world[name].layer(FdSock2).watched
    return neighbour.name if neighbour else ""


def test_each_member_watches_the_next_one_of_the_view() -> None:
    world = Layers("ABC", SOCK)
    world.install(view(1, "ABC"))
    world.advance(1)
    assert [watched(world, name) for name in "ABC"] == ["B", "C", "A"]
    world.install(view(2, "AC"))
    world.advance(1)
    assert [watched(world, name) for name in "AC"] == ["C", "A"]
    assert world["A"].links == {address("C").short: True}


def test_a_nearer_neighbour_takes_the_place_of_the_one_before() -> None:
    world = Layers("ABC", SOCK)
    world.install(view(1, "AC"))
    world.advance(1)
    world.install(view(2, "ABC"))
    world.advance(1)
    assert world["A"].links == {address("B").short: True}


def test_a_killed_member_is_confirmed_within_three_seconds() -> None:
    world = Layers("ABC", SOCK, ALL, VERIFY)
    world.install(view(1, "ABC"))
    world.advance(1)
    world.kill("C")
    world.advance(3)
    assert named(world["A"].events(Confirmed)[0]) == "C"
    assert watched(world, "B") == "A"


def test_a_row_of_dead_neighbours_is_one_suspicion() -> None:
    """The coordinator and three successors are killed together: one walk, one event (G-9)."""
    world = Layers("ABCDEF", SOCK, VERIFY)
    world.install(view(1, "ABCDEF"))
    world.advance(1)
    world.kill("ABCD")
    world.advance(3)
    assert [named(event) for event in world["E"].events(Confirmed)][:1] == ["ABCD"]
    assert watched(world, "F") == "E"
    assert not world["F"].events(Suspected)


def test_when_all_neighbours_are_dead_nothing_is_watched() -> None:
    world = Layers("ABCD", SOCK)
    world.install(view(1, "ABCD"))
    world.advance(1)
    world.kill("BCD")
    world.advance(1)
    assert named(world["A"].events(Suspected)[0]) == "BCD"
    assert watched(world, "A") == ""
    assert world["A"].links == {}


def test_a_suspicion_is_repeated_until_a_view_without_the_suspect() -> None:
    world = Layers("ABC", SOCK)
    world.install(view(1, "ABC"))
    world.advance(1)
    world.drop(wire.SUSPECT, times=2)
    world.kill("C")
    world.advance(4)
    assert not world["A"].events(Suspected)
    world.advance(5)
    assert named(world["A"].events(Suspected)[0]) == "C"
    world.install(view(2, "AB"))
    start = world.now
    world.advance(30)
    assert world.sent(wire.SUSPECT, since=start) == []


def test_a_neighbour_that_does_not_answer_is_suspected_after_all_its_ports() -> None:
    """B is stopped: it accepts nothing and refuses nothing; 4 ports at 1 s each."""
    world = Layers("ABC", SOCK)
    world.pause("B")
    world.install(view(1, "ABC"), at="AC")
    world.advance(3.9)
    assert not world["A"].events(Suspected)
    world.advance(0.2)
    assert named(world["A"].events(Suspected)[0]) == "B"
    assert watched(world, "A") == "C"


def test_what_was_found_is_told_while_the_walk_waits_for_a_dead_host() -> None:
    """B dies, its successor C hangs: B is not kept back until C has used up its time."""
    world = Layers("ABCD", SOCK)
    world.install(view(1, "ABCD"))
    world.advance(1)
    world.pause("C")
    world.kill("B")
    world.advance(1.1)
    assert [named(event) for event in world["A"].events(Suspected)] == ["B"]
    world.advance(3.5)
    assert named(world["A"].events(Suspected)[-1]) == "BC"


def test_a_reset_connection_to_a_live_member_is_cleared_and_stands_again() -> None:
    world = Layers("ABC", SOCK, VERIFY)
    world.install(view(1, "ABC"))
    world.advance(60)
    world["B"].links.clear()
    world.do("B", lambda m: m.layer(FdSock2).on_link(address("C").short, False, world.now))
    world.advance(1)
    assert world["A"].events(Cleared) == [Cleared(address("C"))]
    assert not world["A"].events(Confirmed)
    assert watched(world, "B") == "C"
    assert all(not member.layer(FdSock2).suspects for member in world.members.values())
    assert world["B"].suspicions() == [("suspected", "C"), ("cleared", "C")]


def test_a_member_that_always_refuses_is_tried_once_per_interval() -> None:
    """C answers every question, but its port is closed to B: no storm of suspicions."""
    world = Layers("ABC", SOCK, VERIFY)
    link = world._answer_link

    def refuse(member: object, peer: int, *, is_up: bool) -> None:
        if member is world["B"] and peer == address("C").short:
            is_up = False
        link(member, peer, is_up=is_up)  # type: ignore[arg-type]

    world._answer_link = refuse  # type: ignore[method-assign]
    world.install(view(1, "ABC"))
    world.advance(60)
    assert 10 <= len(world.sent(wire.SUSPECT)) <= 13
    assert not world["A"].events(Confirmed)
    assert watched(world, "B") == "A"


def test_a_graceful_leave_is_no_suspicion() -> None:
    """F-09: C leaves; its connections close before the view without it arrives."""
    for leaver, staying in (("C", "AB"), ("A", "BC")):
        world = Layers("ABC", SOCK, VERIFY)
        world.install(view(1, "ABC"))
        world.advance(1)
        world.leave(leaver)
        world.advance(2)
        world.install(view(2, staying))
        world.advance(30)
        for name in staying:
            assert world[name].suspicions() == []
            assert not world[name].happened


def test_a_leaver_that_nobody_excludes_is_suspected_in_the_end() -> None:
    """The LEAVE_REQ was lost: whoever said goodbye must not stay in the view for ever."""
    world = Layers("ABC", SOCK, VERIFY)
    world.install(view(1, "ABC"))
    world.advance(1)
    world.leave("C")
    world.advance(5)
    assert not world["A"].happened
    world.advance(4)
    assert named(world["A"].events(Confirmed)[0]) == "C"


@pytest.mark.parametrize("gap", [4.0, 4.95, 5.0, 5.05])
def test_each_leaver_has_its_own_time(gap: float) -> None:
    """F-09: C leaves, then D, whose view comes when C's time is over."""
    world = Layers("ABCDE", SOCK, VERIFY)
    world.install(view(1, "ABCDE"))
    world.advance(1)
    world.leave("C")
    world.advance(0.05)
    world.install(view(2, "ABDE"))
    world.advance(gap - 0.05)
    world.leave("D")
    world.advance(2)
    world.install(view(3, "ABE"))
    world.advance(30)
    assert not world.sent(wire.SUSPECT)
    assert not any(world[name].happened for name in "ABE")


def test_two_leavers_are_suspected_each_in_its_time() -> None:
    """B does not get the view without C, nor the one without D, which leaves 2 s after C."""
    world = Layers("ABCDE", SOCK)
    world.install(view(1, "ABCDE"))
    world.advance(1)
    world.leave("C")
    world.advance(0.05)
    world.install(view(2, "ABDE"), at="ADE")
    world.advance(1.95)
    world.leave("D")
    suspects = world["B"].layer(FdSock2).suspects
    for seconds, suspected in ((2.9, ""), (0.2, "C"), (1.8, "C"), (0.2, "CD")):
        world.advance(seconds)
        assert "".join(member.name for member in suspects.values()) == suspected


def test_who_was_excluded_may_close_its_connection() -> None:
    world = Layers("ABC", SOCK, VERIFY)
    world.install(view(1, "ABC"))
    world.advance(1)
    world.install(view(2, "AB"))
    world.kill("C")
    world.advance(30)
    assert world["B"].suspicions() == []


def test_a_suspicion_of_who_is_not_in_the_view_means_that_its_sender_lags() -> None:
    """B missed the view without C, and suspects C for ever: the coordinator learns of it."""
    world = Layers("ABC", SOCK)
    world.install(view(1, "ABC"))
    world.advance(1)
    world.install(view(2, "AB"), at="A")
    world.kill("C")
    world.advance(1)
    assert world["A"].events(Lagging) == [Lagging(address("B"))]
    assert not world["A"].events(Suspected)


@pytest.mark.parametrize(
    ("kind", "named", "reason"),
    [
        (wire.SUSPECT, "XY", "not-a-member"),
        (wire.SUSPECT, "XB", ""),
        (wire.UNSUSPECT, "XY", "not-suspected"),
        (wire.UNSUSPECT, "B", "not-suspected"),
        (wire.UNSUSPECT, "BC", ""),
    ],
)
def test_what_is_said_of_nobody_whom_it_concerns_is_counted(
    kind: int, named: str, reason: str
) -> None:
    """At B, which does not coordinate, C is suspected."""
    world = Layers("ABCD", SOCK)
    world.install(view(1, "ABCD"))
    body = Writer().addresses(addresses("C")).bytes()
    world.inject("A", "B", wire.FD_SOCK2, wire.SUSPECT, body)
    assert world["B"].refused == {}
    body = Writer().addresses(addresses(named)).bytes()
    world.inject("D", "B", wire.FD_SOCK2, kind, body)
    assert world["B"].refused == ({reason: 1} if reason else {})


def test_hostile_suspicions_are_counted_and_change_nothing() -> None:
    world = Layers("ABC", SOCK)
    world.install(view(1, "ABC"))
    body = Writer().addresses(addresses("B")).bytes()
    world.inject("X", "A", wire.FD_SOCK2, wire.SUSPECT, body)
    world.inject("B", "A", wire.FD_SOCK2, wire.SUSPECT, body + b"x")
    world.inject("B", "A", wire.FD_SOCK2, wire.SUSPECT, body[:-1])
    world.inject("B", "A", wire.FD_SOCK2, wire.DATA, body)
    assert world["A"].refused == {"stranger": 1, "body-long": 1, "body-short": 1, "kind": 1}
    assert world["A"].layer(FdSock2).suspects == {}
    assert not world["A"].happened


def test_a_member_told_to_suspect_itself_does_not() -> None:
    world = Layers("AB", SOCK)
    world.install(view(1, "AB"))
    world.inject("B", "A", wire.FD_SOCK2, wire.SUSPECT, Writer().addresses(addresses("A")).bytes())
    assert not world["A"].happened
    assert world["A"].suspicions() == []


# -- Together -------------------------------------------------------------------------------------


@pytest.mark.parametrize("seed", range(10))
@pytest.mark.parametrize("timing", ["compatible", "fast"])
def test_the_dead_are_confirmed_and_the_living_are_not(seed: int, timing: str) -> None:
    """P-31 under 10 % loss: a random subset dies; the first survivor confirms exactly it."""
    dice = Random(seed)
    names = "ABCDEFGH"
    verify = (VerifySuspect2, VerifySuspect2Config(num_msgs=8))
    world = Layers(names, SOCK, ALL, verify, timing=timing, seed=seed, loss=0.1)
    world.install(view(1, names))
    world.advance(100)
    assert not any(member.events(Confirmed) for member in world.members.values())
    dead = "".join(sorted(dice.sample(names, dice.randint(1, 7))))
    world.kill(dead)
    world.advance(60)
    first = min(set(names) - set(dead))
    confirmed = {name for event in world[first].events(Confirmed) for name in named(event)}
    assert confirmed == set(dead)
    living = set(names) - set(dead)
    assert not any(
        set(named(event)) & living
        for member in world.members.values()
        for event in member.events(Confirmed)
    )
