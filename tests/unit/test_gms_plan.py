"""Who leads a merge, whom it asks, who is in it (M-01 to M-03, P-29); and the policy."""

from __future__ import annotations

from collections.abc import Mapping

from hypothesis import given
from hypothesis import strategies as st

from stormcast.node.core.digest import Digest
from stormcast.node.core.model import Address, View, ViewId
from stormcast.node.core.policy import is_first, merge_members, next_members
from stormcast.node.protocols.gms import plan
from stormcast.node.protocols.gms.messages import MergeAnswer, MergeId
from tests.helpers.membership import address

MEMBERS = {name: address(name) for name in "ABCDEFXYZ"}


def who(names: str) -> tuple[Address, ...]:
    return tuple(MEMBERS[name] for name in names)


def view(text: str) -> View:
    """`A:5 ABC`."""
    head, names = text.split()
    creator, number = head.split(":")
    return View(ViewId(int(number), MEMBERS[creator]), who(names))


def reported(**views: str) -> dict[Address, View]:
    return {MEMBERS[name]: view(text) for name, text in views.items()}


def answers(views: Mapping[Address, View], busy: str = "") -> dict[Address, MergeAnswer]:
    merge = MergeId(MEMBERS["A"], 1)
    return {
        m: MergeAnswer(merge, str(m) in busy, held, Digest({m.short: (3, 4)}))
        for m, held in views.items()
    }


def names(addresses: tuple[Address, ...] | list[Address]) -> str:
    return "".join(map(str, addresses))


# -- The policy -----------------------------------------------------------------------------------


def test_survivors_keep_their_order_and_joiners_follow_as_they_came() -> None:
    assert names(next_members(who("CABD"), who("YX"), who("A"), who("D"))) == "CBYX"


def test_a_joiner_that_is_a_member_keeps_its_rank() -> None:
    assert names(next_members(who("AB"), who("A"), (), ())) == "AB"


def test_the_lowest_first_member_leads_a_merge_and_groups_follow_each_member_once() -> None:
    assert names(merge_members([who("CD"), who("BAC")])) == "BACD"
    assert names(merge_members([who("BAC"), who("CD")])) == "BACD"
    assert merge_members([]) == ()


def test_who_is_first_without_the_dead_is_responsible_and_nobody_else() -> None:
    members = who("ABC")
    assert [is_first(m, members, who("A")) for m in members] == [False, True, False]
    assert not is_first(MEMBERS["A"], members, members)


@given(st.permutations("ABCDEF"), st.sets(st.sampled_from("ABCDEF")))
def test_exactly_one_survivor_is_first(order: list[str], dead: set[str]) -> None:
    members = who("".join(order))
    without = who("".join(sorted(dead)))
    firsts = [m for m in members if is_first(m, members, without)]
    assert len(firsts) == (1 if len(dead) < len(members) else 0)


# -- Leaders and speakers -------------------------------------------------------------------------


def test_the_lowest_of_those_that_coordinate_what_they_hold_leads() -> None:
    assert plan.leader_of(reported(A="C:5 CA", C="C:5 CA", D="D:5 D")) == MEMBERS["C"]


def test_without_any_coordinator_the_lowest_creator_that_reported_leads() -> None:
    views = reported(A="Z:5 YA", C="C:6 XC", D="Y:6 XCD")
    assert plan.leader_of(views) == MEMBERS["C"]


def test_without_coordinators_and_creators_the_lowest_that_reported_leads() -> None:
    assert plan.leader_of(reported(C="Z:5 YC", B="X:6 XB")) == MEMBERS["B"]


def test_coordinators_speak_and_who_is_in_none_of_their_views_speaks_for_itself() -> None:
    """A alone missed that B and C excluded it; then the reverse; then a member nobody covers."""
    assert names(plan.speakers_of(reported(A="B:5 BAC", B="B:6 BC", C="B:6 BC"))) == "AB"
    assert names(plan.speakers_of(reported(A="A:5 AC", B="A:4 ABC", C="A:4 ABC"))) == "AB"
    assert names(plan.speakers_of(reported(A="A:5 AB", B="A:5 AB", D="C:5 CD"))) == "ACD"


# -- Groups ---------------------------------------------------------------------------------------


def test_overlapping_views_become_groups_without_overlap() -> None:
    """A believes in {A,B,C}, but B and C have excluded it: {A} merges with {B,C}."""
    groups = plan.groups_of(answers(reported(A="A:1 ABC", B="B:2 BC", C="B:2 BC")), {})
    assert sorted(map(names, groups.values())) == ["A", "BC"]
    assert names(plan.merged_members(groups)) == "ABC"


def test_of_a_clean_split_each_side_is_a_group() -> None:
    groups = plan.groups_of(answers(reported(A="A:5 AB", B="A:5 AB", C="C:5 CD", D="C:5 CD")), {})
    assert sorted(map(names, groups.values())) == ["AB", "CD"]


def test_a_group_of_which_one_is_busy_stays_out_as_a_whole() -> None:
    views = reported(A="A:5 A", B="B:5 BC", C="B:5 BC", D="D:5 D")
    groups = plan.groups_of(answers(views, busy="C"), {})
    assert sorted(map(names, groups.values())) == ["A", "D"]


def test_a_group_stays_out_whose_coordinator_or_creator_holds_its_view_and_does_not_answer() -> (
    None
):
    """B is heard and does not hear: it would take C back. If B holds another view, C is alone."""
    for held in (view("B:5 BC"), view("B:5 CB"), view("C:5 BC")):
        given_answers = answers({MEMBERS["A"]: view("A:5 A"), MEMBERS["C"]: held})
        groups = plan.groups_of(given_answers, {MEMBERS["B"]: held.id})
        assert sorted(map(names, groups.values())) == ["A"]
        groups = plan.groups_of(given_answers, {MEMBERS["B"]: view("B:6 B").id})
        assert sorted(map(names, groups.values())) == ["A", "C"]


def test_partners_are_those_that_had_the_member_in_the_view_they_held() -> None:
    given_answers = answers(reported(A="A:1 ABC", B="B:2 BC", C="B:2 BC"))
    by_member = plan.partners_of(plan.groups_of(given_answers, {}))
    partners = {str(member): shorts for member, shorts in by_member.items()}
    short = {name: MEMBERS[name].short for name in "ABC"}
    assert partners["A"] == {short["A"]}
    assert partners["B"] == {short["A"], short["B"], short["C"]}


@st.composite
def any_reports(draw: st.DrawFn) -> dict[Address, View]:
    reports = {}
    for reporter in draw(st.lists(st.sampled_from("ABCDEF"), min_size=1, unique=True)):
        others = draw(st.sets(st.sampled_from("ABCDEFXYZ")))
        members = draw(st.permutations(sorted({reporter, *others})))
        creator = draw(st.sampled_from(members))
        number = draw(st.integers(1, 3))
        reports[MEMBERS[reporter]] = View(ViewId(number, MEMBERS[creator]), who("".join(members)))
    return reports


@given(any_reports(), st.sets(st.sampled_from("ABCDEF")))
def test_any_reports_have_a_leader_among_them_and_groups_that_part_their_reporters(
    views: dict[Address, View], busy: set[str]
) -> None:
    assert plan.leader_of(views) in views
    assert plan.leader_of(views) == plan.leader_of(dict(reversed(views.items())))
    groups = plan.groups_of(answers(views, "".join(busy)), {})
    members = [member for group in groups.values() for member in group]
    assert len(members) == len(set(members))
    assert set(members) == {
        m
        for m, held in views.items()
        if not any(views[other] == held and str(other) in busy for other in views)
    }
    if groups:
        assert set(plan.merged_members(groups)) == set(members)


@given(any_reports())
def test_everybody_in_any_reported_view_is_spoken_for(views: dict[Address, View]) -> None:
    speakers = plan.speakers_of(views)
    covered = {m for speaker in speakers if speaker in views for m in views[speaker].members}
    assert {m for held in views.values() for m in held.members} <= covered | set(speakers)
