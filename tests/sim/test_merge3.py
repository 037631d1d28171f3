"""MERGE3: who finds out that members hold different views, when, and what is said of it."""

from __future__ import annotations

from itertools import count
from random import Random

import pytest

from stormcast.node.core import wire
from stormcast.node.core.errors import ConfigError
from stormcast.node.core.model import Address, View, ViewId
from stormcast.node.core.packing import Writer
from stormcast.node.protocols.events import Disagreement, Lagging
from stormcast.node.protocols.merge3 import MAX_STRANGERS, Merge3, Merge3Config
from tests.helpers.layers import ALWAYS, Layers, address, view

QUICK = Merge3Config(min_interval=0.5, max_interval=1.0, check_interval=3.0)
HEALED_WITHIN = 35.0
"""1.5 max_interval + check_interval, some losses, with the defaults."""


def group(names: str, config: Merge3Config = QUICK, **settings: object) -> Layers:
    return Layers(names, (Merge3, config), **settings)  # type: ignore[arg-type]


def said(world: Layers, name: str) -> dict[str, str]:
    """The last disagreement at `name`: by member the view it holds."""
    views = world[name].events(Disagreement)[-1].views
    return {member.name: str(held) for member, held in views.items()}


def info(name: str, held: View) -> bytes:
    return Writer().address(address(name)).view_id(held.id).bytes()


@pytest.mark.parametrize("seed", range(5))
def test_members_that_agree_say_nothing_but_their_view_id(seed: int) -> None:
    world = group("ABCD", seed=seed)
    world.install(view(3, "ABCD"))
    world.advance(60)
    assert not any(member.happened for member in world.members.values())
    assert {frame.head.kind for frame in world.wire} == {wire.INFO}
    assert not any(member.refused for member in world.members.values())
    assert 60 / 1.5 <= len(world.sent(wire.INFO, "A")) <= 60 / 0.5


@pytest.mark.parametrize("seed", range(5))
def test_two_groups_are_reported_to_a_coordinator_in_time(seed: int) -> None:
    """E1: A|5 {A, B} and C|5 {C, D}, with default intervals."""
    world = group("ABCD", Merge3Config(), seed=seed)
    world.split("AB", "CD")
    world.install(view(5, "AB"))
    world.install(view(5, "CD"))
    world.advance(100)
    assert not any(member.happened for member in world.members.values())
    world.heal()
    world.advance(HEALED_WITHIN)
    expected = {"A": "A:5{A,B}", "C": "C:5{C,D}"}
    assert said(world, "A") == said(world, "C") == expected
    assert not world["B"].happened


def test_a_member_that_kept_an_old_view_is_found() -> None:
    """E3: A and C hold A|5 {A, C}, B missed it: the creator of its view holds another one."""
    world = group("ABC")
    world.install(view(5, "AC"))
    world.install(view(4, "ABC"), at="B")
    world.advance(6)
    assert said(world, "A") == {"A": "A:5{A,C}", "B": "A:4{A,B,C}"}


def test_views_of_one_creator_with_different_numbers_are_all_reported() -> None:
    """M-31: A|5 {A} at A, A|6 {A, B} at B, A|7 {A, B, C} at C."""
    world = group("ABC")
    world.install(view(5, "A"))
    world.install(view(6, "AB"), at="B")
    world.install(view(7, "ABC"), at="C")
    world.advance(6)
    assert said(world, "A") == {"A": "A:5{A}", "B": "A:6{A,B}", "C": "A:7{A,B,C}"}


def test_where_no_creator_is_left_somebody_reports_all_the_same() -> None:
    """A is gone. B would coordinate in its place by C's view, C by B's: both wait for the other."""
    world = group("ABC")
    world.install(view(4, "ACB"), at="B")
    world.install(view(3, "ABC"), at="C")
    world.kill("A")
    world.advance(6)
    expected = {"B": "A:4{A,C,B}", "C": "A:3{A,B,C}"}
    assert said(world, "B") == said(world, "C") == expected


def test_three_groups_are_one_report() -> None:
    """M-20: S|10 {S}, T|10 {T}, U|11 {U, V}."""
    world = group("STUV")
    for held in (view(10, "S"), view(10, "T"), view(11, "UV")):
        world.install(held)
    world.advance(6)
    assert said(world, "S") == {"S": "S:10{S}", "T": "T:10{T}", "U": "U:11{U,V}"}


@pytest.mark.parametrize("seed", range(10))
def test_any_split_is_one_report_of_all_its_parts(seed: int) -> None:
    """M-17: ten members in random parts of at most four, all with the same number."""
    dice = Random(seed)
    names = list("ABCDEFGHIJ")
    dice.shuffle(names)
    world = group("ABCDEFGHIJ", seed=seed)
    parts = []
    while names:
        size = dice.randint(1, 4)
        parts.append(view(8, "".join(names[:size])))
        names = names[size:]
    for part in parts:
        world.install(part)
    world.advance(7)
    lowest = min(part.coordinator.name for part in parts)
    if len(parts) > 1:
        views = world[lowest].events(Disagreement)[-1].views
        assert set(views.values()) == set(parts)


def test_older_ids_of_one_sender_are_overwritten() -> None:
    """M-15: B said 6, 7, 9 and, late, 8: nine is what it holds, and all are A's, too."""
    world = group("AB")
    world.install(view(9, "AB"), at="A")
    for number in (6, 7, 9, 8):
        world.inject("B", "A", wire.MERGE3, wire.INFO, info("B", view(number, "AB")))
    world.advance(3.5)
    assert world.sent(wire.VIEW_REQ) == []
    assert not world["A"].events(Disagreement)


def test_a_member_that_lags_is_reported_to_its_coordinator_only() -> None:
    """B missed A|6, which has it in: its coordinator can help without a merge."""
    world = group("ABC")
    world.install(view(6, "ABC"), at="AC")
    for name in "AC":
        world.inject("B", name, wire.MERGE3, wire.INFO, info("B", view(5, "AB")))
    assert world["A"].events(Lagging) == [Lagging(address("B"))]
    assert not world["C"].happened


@pytest.mark.parametrize(
    ("sender", "held"),
    [("X", view(5, "AX")), ("B", view(6, "ABC")), ("B", view(7, "AB")), ("B", view(5, "XB"))],
)
def test_strangers_newer_views_and_other_histories_are_not_lagging(sender: str, held: View) -> None:
    world = group("ABC")
    world.install(view(6, "ABC"), at="A")
    world.inject(sender, "A", wire.MERGE3, wire.INFO, info(sender, held))
    assert not world["A"].happened


def test_a_lagging_member_that_caught_up_is_no_disagreement() -> None:
    """B's INFO of the old view was heard; asked, it holds the new one."""
    world = group("AB")
    world.install(view(6, "AB"), at="A")
    world.inject("B", "A", wire.MERGE3, wire.INFO, info("B", view(5, "B")))
    world.install(view(6, "AB"), at="B")
    world.drop(wire.INFO, times=ALWAYS)
    world.advance(4)
    assert world.sent(wire.VIEW_REQ)
    assert not world["A"].events(Disagreement)


@pytest.mark.parametrize("timing", ["compatible", "fast"])
@pytest.mark.parametrize("kind", [wire.VIEW_REQ, wire.VIEW_RSP])
def test_a_lost_request_or_answer_is_repeated(kind: int, timing: str) -> None:
    config = Merge3Config(min_interval=0.5, max_interval=4.0, check_interval=12.0)
    world = group("AB", config, timing=timing)
    world.install(view(1, "A"))
    world.install(view(1, "B"))
    world.drop(kind, source="A" if kind == wire.VIEW_REQ else "B", times=2)
    world.advance(16.0)
    assert said(world, "A") == {"A": "A:1{A}", "B": "B:1{B}"}
    # The one that is heard first is asked once more, with the cookie of B.
    tries = [frame.head.transmission for frame in world.sent(wire.VIEW_REQ, "A")]
    assert list(dict.fromkeys(tries)) == [0, 1, 2]
    assert len(tries) == 4


@pytest.mark.parametrize("have_met", [True, False])
def test_answers_that_take_long_are_waited_for(have_met: bool) -> None:
    """Over a path longer than a tenth of the interval groups would otherwise never merge."""
    world = group("AB")
    world.delay = 0.6
    if have_met:
        world.install(view(1, "AB"))
    world.install(view(2, "A"))
    world.install(view(2, "B"))
    world.advance(10)
    assert said(world, "A") == said(world, "B") == {"A": "A:2{A}", "B": "B:2{B}"}


def test_a_disagreement_says_what_members_said_they_hold_though_they_do_not_answer() -> None:
    world = group("ABCD")
    world.install(view(2, "A"))
    apart = view(3, "CBD", "C")
    world.install(apart)
    world.cut("A", "C")
    world.advance(8)
    assert said(world, "A") == {"A": "A:2{A}", "B": "C:3{C,B,D}"}
    heard = world["A"].events(Disagreement)[-1].heard
    assert heard == dict.fromkeys(apart.members, apart.id)
    world.kill("C")
    world.advance(10)
    heard = world["A"].events(Disagreement)[-1].heard
    assert {member.name for member in heard} == set("BD")


def test_who_does_not_answer_is_left_out() -> None:
    world = group("ABC")
    for name in "ABC":
        world.install(view(1, name))
    world.drop(wire.VIEW_RSP, source="B", times=ALWAYS)
    world.advance(7)
    assert set(said(world, "A")) == {"A", "C"}


def test_a_view_under_way_pauses_the_search_and_the_view_resumes_it() -> None:
    """JGRP-1009."""
    world = group("AB")
    world.install(view(1, "A"))
    world.install(view(1, "B"))
    world.do("A", lambda m: m.layer(Merge3).on_tentative(view(2, "AB"), world.now))
    world.advance(2.9)
    assert world.sent(wire.INFO, "A") == []
    world.install(view(2, "AB"), at="A")
    world.advance(2)
    assert world.sent(wire.INFO, "A")


def test_views_that_come_often_do_not_put_a_check_off_for_ever() -> None:
    """A member that restarts again and again must not keep groups apart."""
    world = group("ABCD")
    world.install(view(1, "AB"))
    world.install(view(1, "CD"))
    for number in range(2, 12):
        world.advance(1.0)
        world.install(view(number, "AB"))
    assert set(said(world, "A").values()) > {"C:1{C,D}"}


def test_a_pause_for_a_view_that_never_comes_ends() -> None:
    world = group("AB")
    world.install(view(1, "A"))
    world.install(view(1, "B"))
    world.do("A", lambda m: m.layer(Merge3).on_tentative(view(2, "AB"), world.now))
    world.advance(10)
    assert said(world, "A") == {"A": "A:1{A}", "B": "B:1{B}"}


def test_a_leaving_member_takes_no_part() -> None:
    world = group("AB")
    world.install(view(1, "A"))
    world.install(view(1, "B"))
    world["B"].role.is_leaving = True
    world.advance(20)
    assert not any(member.happened for member in world.members.values())
    assert world.sent(wire.INFO, "B") == []


def test_no_more_members_are_asked_than_allowed() -> None:
    names = "ABCDEFGH"
    config = Merge3Config(min_interval=0.5, max_interval=1.0, check_interval=3, max_participants=3)
    world = group(names, config)
    for name in names:
        world.install(view(1, name))
    world.advance(3.95)
    assert {frame.dest for frame in world.sent(wire.VIEW_REQ, "H")} == {ord(n) for n in "ABC"}
    assert set(said(world, "A")) == {"A", "B", "C"}


def test_hostile_frames_are_counted_and_change_nothing() -> None:
    world = group("AB")
    world.install(view(1, "AB"))
    good = info("X", view(9, "X"))
    world.inject("B", "A", wire.MERGE3, wire.INFO, good)
    world.inject("X", "A", wire.MERGE3, wire.INFO, good + b"x")
    world.inject("X", "A", wire.MERGE3, wire.VIEW_REQ, b"x")
    world.inject("X", "A", wire.MERGE3, wire.VIEW_RSP, Writer().view(view(9, "X")).bytes())
    world.inject("X", "A", wire.MERGE3, wire.DATA)
    assert world["A"].refused == {
        "identity": 1,
        "body-long": 1,
        "body-short": 1,
        "unasked": 1,
        "kind": 1,
    }
    world.advance(20)
    assert not world["A"].happened


def test_a_view_without_its_holder_is_refused() -> None:
    world = group("AB")
    world.install(view(1, "A"))
    world.install(view(1, "B"))
    world.pause("B")
    world.inject("B", "A", wire.MERGE3, wire.INFO, info("B", view(1, "B")))
    world.advance(3.65)
    number = world.sent(wire.VIEW_REQ, "A")[0].head.lo
    body = Writer().view(view(9, "XY")).bytes()
    world.inject("B", "A", wire.MERGE3, wire.VIEW_RSP, body, lo=number)
    world.advance(3)
    assert world["A"].refused == {"not-in-its-view": 1}
    assert not world["A"].happened


def test_an_answer_to_an_earlier_check_is_refused() -> None:
    world = group("AB")
    world.install(view(1, "A"))
    world.install(view(1, "B"))
    world.pause("B")
    numbers = count(100)
    checks: list[int] = []
    while len(checks) < 2:
        if world.now == 0 or (checks and world.sent(wire.VIEW_REQ, "A")[-1].head.lo == checks[0]):
            body = info("B", view(1, "B"))
            world.inject("B", "A", wire.MERGE3, wire.INFO, body, lo=next(numbers))
        world.advance(0.05)
        checks = list(dict.fromkeys(frame.head.lo for frame in world.sent(wire.VIEW_REQ, "A")))
    first, second = checks
    body = Writer().view(view(1, "B")).bytes()
    world.inject("B", "A", wire.MERGE3, wire.VIEW_RSP, body, lo=first)
    assert world["A"].refused == {"unasked": 1}
    world.inject("B", "A", wire.MERGE3, wire.VIEW_RSP, body, lo=second)
    assert set(said(world, "A")) == {"A", "B"}


def test_an_info_that_came_before_is_counted_and_the_next_one_is_taken() -> None:
    """The network has doubled one, or somebody has recorded it; another was delayed."""
    world = group("AB")
    world.install(view(3, "AB"))

    def hears(number: int, held: View) -> dict[str, int]:
        world.inject("A", "B", wire.MERGE3, wire.INFO, info("A", held), lo=number)
        return world["B"].refused

    assert hears(7, view(3, "AB")) == {}
    assert hears(8, view(3, "AB")) == {}
    assert hears(8, view(3, "AB")) == {"info-old": 1}
    assert hears(7, view(3, "AB")) == {"info-old": 2}
    assert hears(9, view(2, "A")) == {"info-old": 3}
    # Of a newer view it is news, whatever its number: that one may have been forged.
    assert hears(1, view(4, "A")) == {"info-old": 3}


def test_an_info_that_nobody_waits_for_is_counted() -> None:
    world = group("AB")
    world.inject("B", "A", wire.MERGE3, wire.INFO, info("B", view(1, "B")))
    assert world["A"].refused == {"no-view": 1}
    world.install(view(1, "A"), at="A")
    world.do("A", lambda member: member.layer(Merge3).on_tentative(view(2, "AB"), world.now))
    world.inject("B", "A", wire.MERGE3, wire.INFO, info("B", view(1, "B")))
    assert world["A"].refused == {"no-view": 1, "info-not-now": 1}


def test_intervals_that_cannot_work_are_refused() -> None:
    with pytest.raises(ConfigError, match="min_interval"):
        Merge3Config(min_interval=10.0)
    with pytest.raises(ConfigError, match="check_interval"):
        Merge3Config(check_interval=10.0)
    assert Merge3Config(check_interval=10.1).check_every == 10.1
    assert Merge3Config().check_every == 16.0


def test_a_group_that_was_never_met_asks_for_proof_once() -> None:
    """B and A were in no view together: each wants its cookie back before it says its view."""
    world = group("AB")
    world.install(view(1, "A"))
    world.install(view(1, "B"))
    world.advance(8)
    assert said(world, "A") == said(world, "B") == {"A": "A:1{A}", "B": "B:1{B}"}
    assert len(world.sent(wire.COOKIE, "A")) == len(world.sent(wire.COOKIE, "B")) == 1


def test_members_of_a_past_view_are_told_at_once() -> None:
    world = group("AB")
    world.install(view(1, "AB"))
    world.install(view(2, "A"))
    world.install(view(3, "B"))
    world.advance(4)
    assert said(world, "A") == {"A": "A:2{A}", "B": "B:3{B}"}
    assert world.sent(wire.COOKIE) == []


def test_who_is_not_where_it_says_is_not_told_of_the_view() -> None:
    world = group("ABX")
    world.install(view(1, "AB"))
    asker = Writer().address(address("X")).bytes()
    world.inject("X", "A", wire.MERGE3, wire.VIEW_REQ, asker, lo=3, transmission=2)
    (cookie,) = world.sent(wire.COOKIE, "A")
    assert (cookie.head.lo, cookie.head.transmission, cookie.body) == (3, 2, b"")
    assert len(asker) > 0 == cookie.head.size
    for mark in (cookie.head.mark + 1, 0):
        world.inject("X", "A", wire.MERGE3, wire.VIEW_REQ, asker, lo=3, mark=mark)
    assert world.sent(wire.VIEW_RSP) == []
    world.inject("X", "A", wire.MERGE3, wire.VIEW_REQ, asker, lo=3, mark=cookie.head.mark)
    assert len(world.sent(wire.VIEW_RSP, "A")) == 1


def test_strangers_do_not_push_out_members_of_a_past_view() -> None:
    """Thousands of INFOs of nobody, before and after B's: A still finds out that B is there."""
    world = group("AB")
    world.install(view(1, "AB"))
    world.install(view(2, "A"))
    world.install(view(3, "B"))
    world.drop(wire.INFO, source="B", times=ALWAYS)

    def flood() -> None:
        for number in range(MAX_STRANGERS + 50):
            nobody = Address((1 << 40) + number + 1000, "x")
            body = Writer().address(nobody).view_id(ViewId(9, nobody)).bytes()
            head = world["B"].codec.pack_control(wire.INFO, wire.MERGE3, ord("A"), 0, 1)
            fields = wire.Head._make(wire.HEAD_STRUCT.unpack(head))
            head_of_nobody = fields._replace(source=nobody.short)
            world["A"].layer(Merge3).receive(head_of_nobody, body, world.now)

    flood()
    world.inject("B", "A", wire.MERGE3, wire.INFO, info("B", view(3, "B")))
    flood()
    world.do("A", lambda _member: None)
    assert world["A"].refused["heard-full"] >= MAX_STRANGERS
    world.advance(4)
    assert said(world, "A") == {"A": "A:2{A}", "B": "B:3{B}"}


def test_views_that_name_too_many_are_not_kept() -> None:
    """What answers name altogether is bounded, however many members answer."""
    names = "ABCDEFG"
    world = group(names, Merge3Config(min_interval=0.5, max_interval=1.0, check_interval=3.0))
    for name in names:
        world.install(view(1, name))
    for name in names[1:]:
        world.drop(wire.VIEW_RSP, source=name, times=ALWAYS)
    while not world.sent(wire.VIEW_REQ, "A"):
        world.advance(0.05)
    number = world.sent(wire.VIEW_REQ, "A")[0].head.lo
    for name in names[1:]:
        crowd = tuple(Address((ord(name) << 64) + other + 1000, "") for other in range(4000))
        held = View(ViewId(9, address(name)), (address(name), *crowd))
        world.inject(name, "A", wire.MERGE3, wire.VIEW_RSP, Writer().view(held).bytes(), lo=number)
    assert world["A"].refused == {"answers-full": 2}
