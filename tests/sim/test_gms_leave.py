"""Leaving and dying: whoever goes, the others share one view, and whoever leaves gets away."""

from __future__ import annotations

from itertools import permutations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stormcast.node.core import wire
from stormcast.node.core.timing import Timing
from stormcast.node.protocols.gms.messages import MAX_NUMBER, pack_view
from tests.helpers.membership import COMPATIBLE, FAST, Group

timings = pytest.mark.parametrize("timing", [COMPATIBLE, FAST], ids=lambda timing: timing.name)


def joined(members: int | str, timing: Timing = COMPATIBLE) -> Group:
    group = Group(members, timing=timing)
    group.join_all()
    group.sent.clear()
    return group


def all_left(group: Group, names: str) -> bool:
    return all(group[name].is_left for name in names)


@timings
@pytest.mark.parametrize(
    ("leavers", "rest"),
    [
        ("C", "ABDEFGHIJ"),
        ("A", "BCDEFGHIJ"),
        ("AB", "CDEFGHIJ"),
        ("BA", "CDEFGHIJ"),
        ("ABCDEFGH", "IJ"),
        ("BCDEFGHA", "IJ"),
        ("HGFEDCBA", "IJ"),
        ("CDEFGHIJ", "AB"),
        ("BCDEFGHI", "AJ"),
    ],
)
def test_any_of_ten_leave_at_once_and_the_rest_share_a_view(
    leavers: str, rest: str, timing: Timing
) -> None:
    """G-17, G-20, G-23: with nobody detecting failures, everybody is out within the timeout."""
    group = joined(10, timing)
    group.leave(*leavers)
    group.settle(lambda: all_left(group, leavers), 1.0)
    group.converge(rest, 1.0)
    assert group[rest[0]].role.is_coordinator
    assert all(group[name].view is None for name in leavers)
    assert all(not sent.head.transmission for sent in group.sent), "nothing had to be repeated"


@pytest.mark.parametrize("order", list(permutations("ABC")), ids="".join)
@pytest.mark.parametrize("pause", [0.0, 0.0005, 0.001, 0.0015, 0.003])
def test_leaves_overlap_in_any_order(order: tuple[str, ...], pause: float) -> None:
    group = joined(5)
    for number, name in enumerate(order):
        group.at(group.now + number * pause, lambda name=name: group.leave(name))  # type: ignore[misc]
    group.advance(0.5)
    assert all_left(group, "ABC")
    group.converge("DE", 0.1)


def test_coordinators_leave_one_after_the_other() -> None:
    group = joined(10)
    for name in "ABCDE":
        group.leave(name)
        group.settle(lambda name=name: group[name].is_left, 0.5)  # type: ignore[misc]
    group.converge("FGHIJ", 0.5)


def test_all_leave_at_once() -> None:
    group = joined(6)
    group.leave(*"ABCDEF")
    group.settle(lambda: all_left(group, "ABCDEF"), 5.0)


def test_who_is_alone_leaves_at_once() -> None:
    group = joined(1)
    group.leave("A")
    assert group["A"].is_left


def test_who_is_still_joining_leaves_at_once_and_is_forgotten() -> None:
    group = Group("AB")
    group.join("A")
    group.converge("A")
    group.drop(wire.JOIN_RSP, times=9)
    group.join("B")
    group.advance(0.1)
    group.leave("B")
    assert group["B"].is_left
    group.advance(0.1)
    assert group["A"].names == "A"


@pytest.mark.parametrize("kind", [wire.LEAVE_REQ, wire.LEAVE_RSP])
@pytest.mark.parametrize("leaver", ["A", "C"])
def test_a_lost_frame_of_a_leave_is_repeated(kind: int, leaver: str) -> None:
    group = joined(4)
    group.drop(kind)
    group.leave(leaver)
    group.settle(lambda: group[leaver].is_left, 0.8)
    group.converge("".join(sorted(set("ABCD") - {leaver})), 1.0)


def test_a_leave_that_nobody_grants_ends_with_its_timeout() -> None:
    group = joined(3)
    group.drop(wire.LEAVE_REQ, times=99)
    group.leave("C")
    group.advance(0.9)
    assert not group["C"].is_left
    group.advance(0.2)
    assert group["C"].is_left
    group.suspect("C", at="AB")
    group.converge("AB", 1.0)


def test_a_leaver_turns_to_the_successor_of_a_coordinator_that_died() -> None:
    """JGRP-2293: A dies before it can let C go; the view without A sends C to B at once."""
    group = joined(4)
    group.crash("A")
    group.leave("C")
    group.suspect("A", at="BCD")
    group.settle(lambda: group["C"].is_left, 0.9)
    group.converge("BD", 1.0)


def test_a_leaver_asks_nobody_it_suspects() -> None:
    """Only C knows that A is dead: it asks B, which lets it go as soon as it knows, too."""
    group = joined(4)
    group.crash("A")
    group.suspect("A", at="C")
    group.leave("C")
    group.advance(0.1)
    assert (group.count(wire.LEAVE_REQ, "C", "A"), group.count(wire.LEAVE_REQ, "C", "B")) == (0, 1)
    group.suspect("A", at="B")
    group.converge("BD", 0.1)
    assert len(group["D"].views) == 2


def test_a_leaving_coordinator_finishes_what_it_has_accepted() -> None:
    """C's leave waits for the acks of D's exclusion; A leaves behind it, and none is forgotten."""
    group = joined(5)
    group.rule("delay", wire.VIEW_ACK, source="E", amount=0.2)
    group.crash("D")
    group.suspect("D", at="A")
    group.advance(0.01)
    group.leave("C")
    group.advance(0.01)
    group.leave("A")
    group.settle(lambda: all_left(group, "AC"), 2.0)
    group.converge("BE", 1.0)
    assert [str(view) for view in group["B"].views[-3:]] == [
        "A:6{A,B,C,E}",
        "A:7{A,B,E}",
        "B:8{B,E}",
    ]


@pytest.mark.parametrize("waiting", ["", "F", "FG"])
def test_a_leaving_coordinator_asks_its_successor_though_a_member_hangs(waiting: str) -> None:
    """G-12: view {A,B,C,D,E} waits for D. So does the next one, if others wait to be let in."""
    group = joined("ABCD")
    group.crash("D")
    group.add("E")
    group.join("E")
    group.settle(lambda: group["A"].names == "ABCDE", 1.0)
    for name in waiting:
        group.add(name)
        group.join(name)
    group.advance(0.5)
    group.leave("A")
    group.settle(lambda: group["A"].is_left, 2.1)
    assert group.count(wire.LEAVE_REQ, "A", "B")
    group.advance(3.0)
    assert set("BCE" + waiting) <= set(group["B"].names)
    assert "A" not in group["B"].names


def test_a_successor_that_leaves_too_asks_the_next_one_though_a_member_hangs() -> None:
    """B takes over from A. Its view waits for D, and E's leave for that view."""
    group = joined("ABCDE")
    group.crash("D")
    group.leave("B")
    group.leave("A")
    group.settle(lambda: group["A"].is_left, 0.5)
    assert group["B"].names == "BCDE"
    group.leave("E")
    group.settle(lambda: group["B"].is_left, 2.1)
    assert group.count(wire.LEAVE_REQ, "B", "C")
    group.settle(lambda: group["C"].names == "CD", 3.0)


def test_a_coordinator_that_began_to_leave_lets_nobody_in() -> None:
    """It waits for D's ack, and F asks meanwhile."""
    group = joined("ABCD")
    group.rule("delay", wire.VIEW_ACK, source="D", amount=1.0)
    group.add("E")
    group.join("E")
    group.settle(lambda: group["A"].names == "ABCDE", 1.0)
    group.rule("delay", wire.JOIN_REQ, source="F", amount=0.2)
    group.add("F")
    group.join("F")
    group.settle(lambda: group.count(wire.JOIN_REQ, "F") == 1, 0.5)
    group.leave("A")
    group.settle(lambda: group["A"].is_left, 2.0)
    assert "F" not in group["B"].names
    assert group["A"].drops["join-not-now"]


def test_a_leaving_coordinator_lets_nobody_in_and_the_joiner_finds_the_successor() -> None:
    group = joined("AB")
    group.add("C")
    group.drop(wire.LEAVE_REQ, times=1)
    group.leave("A")
    group.join("C")
    group.converge("BC", 5.0)
    assert group["A"].is_left


def test_whoever_leaves_takes_no_later_view() -> None:
    """P-24: the harness fails if a view arrives after the leave."""
    group = joined(3)
    group.leave("C")
    group.converge("AB", 1.0)
    group.add("D")
    group.join("D")
    group.converge("ABD", 1.0)
    assert group["C"].view is None


# -- Crashes --------------------------------------------------------------------------------------


@timings
@pytest.mark.parametrize(
    ("dead", "rest"), [("C", "ABDE"), ("A", "BCDE"), ("AB", "CDE"), ("ABCD", "E"), ("BDE", "AC")]
)
def test_the_first_survivor_excludes_the_dead(dead: str, rest: str, timing: Timing) -> None:
    group = joined(5, timing)
    group.crash(*dead)
    group.suspect(*dead)
    group.converge(rest, 0.5)
    assert len(group[rest[0]].views) <= 6
    assert group[rest[0]].views[-1].id.creator == group[rest[0]].address


def test_suspicions_that_come_one_by_one_make_the_second_next_responsible_at_last() -> None:
    """C hears of B first, then of A; only then it is first itself."""
    group = joined(4)
    group.crash("A", "B")
    group.suspect("B", at="C")
    assert group["C"].names == "ABCD"
    group.suspect("A", at="C")
    group.converge("CD", 0.5)


def test_a_cleared_suspicion_does_not_make_anyone_take_over() -> None:
    group = joined(4)
    group.suspect("B", at="C")
    group.clear("B", at="C")
    group.suspect("A", at="C")
    group.advance(1.0)
    assert group["C"].names == "ABCD"


def test_a_suspicion_that_waits_is_dropped_when_it_is_cleared() -> None:
    """A waits for acks when D is suspected, and D proves alive before A gets to it."""
    group = joined(5)
    group.crash("E")
    group.drop(wire.VIEW_ACK, times=2)
    group.suspect("E", at="A")
    group.advance(0.01)
    group.suspect("D", at="A")
    group.clear("D", at="A")
    group.advance(3.0)
    assert group.is_one("ABCD")


def test_who_is_suspected_itself_goes_on() -> None:
    group = joined(3)
    group.suspect("A", at="A")
    group.advance(1.0)
    assert group.is_one("ABC")


def test_the_dead_hold_up_no_view_and_the_silent_only_for_the_ack_timeout() -> None:
    """JGRP-2556: C's ack is not waited for once C is suspected. D's silence costs two seconds."""
    group = joined("ABCD")
    group.add("E")
    group.add("F")
    group.crash("C")
    group.suspect("C", at="A")
    group.join("E")
    group.advance(0.1)
    assert group["A"].names == "ABDE"
    group.drop(wire.VIEW_ACK, source="D", times=99)
    group.join("F")
    group.advance(0.1)
    group.crash("E")
    group.suspect("E", at="A")
    group.advance(1.7)
    assert group["A"].names == "ABDEF"
    group.advance(0.5)
    assert group["A"].names == "ABDF"


@pytest.mark.parametrize("reached", ["", "B", "C", "BC"])
def test_a_coordinator_that_dies_while_it_brings_a_view_leaves_one_group(reached: str) -> None:
    """A excludes D, dies, and some have the view and some not; then also nobody has it."""
    group = joined(5)
    group.crash("D")
    for name in set("BCE") - set(reached):
        group.drop(wire.VIEW, dest=name, times=99)
    group.suspect("D", at="A")
    group.advance(0.01)
    group.crash("A")
    group.rules.clear()
    group.watch()
    group.converge("BCE", 10.0)


def test_a_member_that_missed_a_view_gets_it_once_it_can_be_reached() -> None:
    """B was out of reach for half a minute, but nobody noticed: no merge is needed (R-3)."""
    group = joined("ABC")
    group.drop(dest="B", times=10_000)
    group.add("D")
    group.join("D")
    group.advance(30.0)
    assert (group["A"].names, group["B"].names) == ("ABCD", "ABC")
    group.rules.clear()
    group.converge("ABCD", 4.1)
    assert not group.count(wire.MERGE_REQ)


def test_silence_is_told_ever_more_rarely() -> None:
    group = joined("ABC")
    group.drop(dest="B", times=10_000)
    group.add("D")
    group.join("D")
    group.advance(600.0)
    assert 100 < group.count(wire.VIEW, "A", "B") < 200


def test_who_lags_behind_catches_up_with_whoever_brings_a_newer_view() -> None:
    """B brings its view to A, which holds a newer one: A says so, B asks, and gets it."""
    group = joined("ABC")
    group.drop(wire.VIEW, dest="B", times=10_000)
    group.add("D")
    group.join("D")
    group.advance(3.0)
    group.crash("A")
    group.rules.clear()
    group.sent.clear()
    # B, with {A,B,C}, would be first; C holds {A,B,C,D}.
    group["C"].gms.on_lagging(group["B"].address, group.now)
    group.drain(group["C"])
    group.advance(0.1)
    assert group["B"].names == "ABCD"
    assert group.count(wire.GET_VIEW, "B", "C") == 1


def test_a_member_of_another_history_does_not_catch_up_without_a_merge() -> None:
    """B's view was made by hand, C's too: C cannot tell what B's windows miss."""
    group = joined("ABC")
    group.inject("C:20 ABC @ C", "B:15 ABC @ B")
    group["C"].gms.on_lagging(group["B"].address, group.now)
    group.drain(group["C"])
    group.advance(1.0)
    assert group.count(wire.GET_VIEW, "B", "C") == 1
    assert group["B"].views[-1].id.number == 15


# -- Views from strangers -------------------------------------------------------------------------


def give(group: Group, source: str, dest: str, kind: int, body: bytes) -> None:
    member = group[source]
    member.port.control(group[dest].address.short, kind, wire.GMS, body=body)
    group.drain(member)
    group.advance(0.1)


def test_views_from_strangers_old_views_and_views_without_us_change_nothing() -> None:
    group = joined("AB")
    group.add("X")
    for source, text in [("X", "X:9 XB"), ("A", "A:2 BA"), ("A", "A:1 BA"), ("A", "A:9 A")]:
        give(group, source, "B", wire.VIEW, pack_view(group.view(text)))
    assert group["B"].views[-1] == group["A"].views[-1]
    assert group["B"].drops == {
        "view-from-stranger": 1,
        "view-old": 1,
        "view-without-me": 1,
    }


def test_a_hostile_number_does_not_push_those_of_the_group() -> None:
    group = joined("ABC")
    view = group.view(f"A:{MAX_NUMBER - 1} AB")
    give(group, "A", "B", wire.VIEW, pack_view(view))
    assert group["B"].drops == {"view-number": 1}
    group.crash("A")
    group.suspect("A", at="BC")
    group.converge("BC", 1.0)
    assert group["B"].views[-1].id.number < 10


def test_the_same_view_again_is_acked_and_not_installed() -> None:
    group = joined("AB")
    held = group["A"].view
    assert held is not None
    give(group, "A", "B", wire.VIEW, pack_view(held))
    assert len(group["B"].views) == 1
    assert group.count(wire.VIEW_ACK, "B", "A") == 1


def test_a_late_ack_does_not_count_for_the_next_view() -> None:
    """D-2: B's ack of view 4 comes twice; the second must not stop the repeats of view 5."""
    group = Group("ABC")
    group.join_all()
    group.add("D")
    group.join("D")
    group.converge("ABCD", 1.0)
    late = [s for s in group.sent if (s.source, s.head.kind) == ("B", wire.VIEW_ACK)][-1]
    group.drop(wire.VIEW, dest="B", times=2)
    group.leave("D")
    group.advance(0.05)
    group.arrive(group["A"], late.head, late.body, "B")
    group.converge("ABC", 1.0)


def test_a_late_ack_does_not_let_the_next_view_go_ahead() -> None:
    """B has yet to ack view 5 when its ack of view 4 comes once more, and D wants to leave."""
    group = Group("ABCD")
    group.join_all()
    late = [s for s in group.sent if (s.source, s.head.kind) == ("B", wire.VIEW_ACK)][-1]
    group.add("E")
    # The second one answers the old ack: who has an older view is told the newer one.
    group.drop(wire.VIEW, dest="B", times=2)
    group.join("E")
    group.advance(0.01)
    group.arrive(group["A"], late.head, late.body, "B")
    group.leave("D")
    group.advance(0.05)
    assert group["A"].names == "ABCDE"
    group.converge("ABCE", 1.0)


def test_a_view_with_the_same_number_is_not_taken_for_the_one_that_is_brought() -> None:
    """D-7: B made its own view 3. It neither takes nor acks A's, and A goes on telling it."""
    group = joined("AB")
    group.add("C")
    group.inject("B:3 AB @ B")
    group.join("C")
    group.advance(0.1)
    group["B"].gms.on_lagging(group["A"].address, group.now)
    group.drain(group["B"])
    sent = group.count(wire.VIEW, "A", "B")
    group.advance(2.0)
    assert group["B"].drops["view-old"] > 1
    assert group.count(wire.VIEW, "A", "B") > sent
    assert group["B"].names == "AB"


def test_who_brings_a_view_too_old_to_take_is_told_and_repeats_it_no_more() -> None:
    """B missed two views, its coordinator died, and what it makes is older than what C holds."""
    group = joined("ABC")
    group.inject("A:9 ABC @ C")
    group.crash("A")
    group.suspect("A", at="B")
    group.advance(3.0)
    assert (group["B"].names, group["C"].names) == ("BC", "ABC")
    assert group.count(wire.VIEW, "B", "C") == 1
    group.watch()
    group.converge("BC", 10.0)


def test_frames_to_one_that_has_left_are_counted_and_no_more() -> None:
    group = joined("ABC")
    group.leave("C")
    group.converge("AB", 1.0)
    sent = len(group.sent)
    give(group, "A", "C", wire.VIEW, b"")
    assert group["C"].drops == {"left": 1}
    assert len(group.sent) == sent + 1


@pytest.mark.slow
@given(
    seed=st.integers(0, 2**32 - 1),
    members=st.integers(2, 8),
    data=st.data(),
    loss=st.sampled_from([0.0, 0.05, 0.3]),
    timing=st.sampled_from([COMPATIBLE, FAST]),
)
def test_whoever_leaves_gets_away_and_nobody_who_stays_is_expelled(
    seed: int, members: int, data: st.DataObject, loss: float, timing: Timing
) -> None:
    """P-27: any set of leavers, at any moments close together, whatever is lost."""
    group = Group(members, timing=timing, seed=seed)
    group.join_all()
    leavers = data.draw(st.sets(st.sampled_from(sorted(group.members))))
    group.loss = group.copies = loss
    for name in sorted(leavers):
        when = group.now + data.draw(st.floats(0.0, 0.02))
        group.at(when, lambda name=name: group.leave(name))  # type: ignore[misc]
    installs = {name: len(group[name].views) for name in group.members}
    group.advance(3.0 + members)
    assert all_left(group, "".join(leavers))
    rest = [name for name in group.members if name not in leavers]
    for name in rest:
        for view in group[name].views[installs[name] :]:
            assert {group[other].address for other in rest} <= set(view.members)
    if rest:
        group.heal()
        group.watch()
        group.converge("".join(rest), 30.0)
        assert group[rest[0]].role.is_coordinator
