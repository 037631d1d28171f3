"""Merging: split groups, overlapping and asymmetric views, busy and dead members and leaders."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stormcast.node.core import wire
from stormcast.node.core.digest import Digest
from stormcast.node.core.model import Address, View, ViewId
from stormcast.node.core.timing import Timing
from stormcast.node.protocols.events import ResumeStability, SuspendStability
from stormcast.node.protocols.gms.messages import (
    MergeAnswer,
    MergeId,
    MergePart,
    pack_merge_answer,
    pack_merge_id,
    pack_merge_view,
    unpack_merge_answer_untrusted,
    unpack_merge_id_untrusted,
)
from tests.helpers.membership import COMPATIBLE, FAST, Group

timings = pytest.mark.parametrize("timing", [COMPATIBLE, FAST], ids=lambda timing: timing.name)


def split(*views: str, timing: Timing = COMPATIBLE, members: str = "ABCDEFGH") -> Group:
    """Members that were one group, then each view is put into its members, or where it says."""
    used = "".join(name for name in members if any(name in view for view in views))
    group = Group(used, timing=timing)
    group.join_all()
    group.inject(*views)
    group.sent.clear()
    return group


def mutual(group: Group, name: str) -> str:
    """Whose windows the last merge view left alone at a member, apart from its own."""
    held = group[name].installs[-1].mutual
    assert held is not None
    return "".join(
        other.name
        for other in group.members.values()
        if other.address.short in held and other.name != name
    )


def give(group: Group, source: str, dest: str, kind: int, body: bytes, mark: int = 0) -> None:
    member = group[source]
    member.port.control(group[dest].address.short, kind, wire.GMS, body=body, mark=mark)
    group.drain(member)
    group.advance(0.1)


# -- Shapes ---------------------------------------------------------------------------------------


@timings
@pytest.mark.parametrize(
    ("views", "merged"),
    [
        (["A:10 AB", "C:10 CD"], "A:11 ABCD"),
        (["C:10 CDA", "B:12 B"], "B:13 BCDA"),
        (["A:10 ABC @ A", "B:11 BC"], "A:12 ABC"),
        (["A:11 AC @ A", "A:10 ABC @ BC"], "A:12 ABC"),
        (["A:11 ABCD @ ABC", "B:10 DBCA @ D"], "A:12 ABCD"),
        (["A:10 AB @ A", "B:10 BC @ B", "C:10 CD @ C", "D:10 D"], "A:11 ABCD"),
        (["A:10 AB", "C:10 CD", "E:10 EF", "G:10 GH"], "A:11 ABCDEFGH"),
        (["A:10 A", "A:11 AB @ B", "A:12 ABC @ C"], "A:13 ABC"),
        (["D:10 DA @ A", "B:20 BCD"], "B:21 ABCD"),
        (["A:10 A", "B:10 B", "C:10 C", "D:10 D"], "A:11 ABCD"),
        (["A:10 AB @ A", "B:10 BC @ B", "C:10 C"], "A:11 ABC"),
    ],
    ids=[
        "symmetric",
        "in another order",
        "asymmetric",
        "overlapping",
        "older, in another order",
        "chain",
        "four pairs",
        "one creator",
        "coordinator elsewhere",
        "singletons",
        "every one another",
    ],
)
def test_one_merge_makes_one_group(views: list[str], merged: str, timing: Timing) -> None:
    group = split(*views, timing=timing)
    group.disagree()
    group.converge(limit=0.5)
    held = group["A"].views[-1]
    assert f"{held.id} {''.join(map(str, held.members))}" == merged
    group.advance(1.0)
    group.assert_thawed()
    assert not group.sent or group.sent[-1].at < group.now - 0.9, "all fall silent"


@timings
def test_whole_groups_are_asked_though_only_their_coordinators_were_heard(timing: Timing) -> None:
    """M-08: the report names the four coordinators."""
    group = split("A:10 AB", "C:10 CD", "E:10 EF", "G:10 GH", timing=timing)
    group.disagree("ACEG", at="A")
    group.converge("ABCDEFGH", 0.5)


def test_only_one_of_many_that_hear_of_it_leads() -> None:
    group = split("A:10 AB", "C:10 CD")
    group.disagree()
    group.converge(limit=0.5)
    assert {s.source for s in group.sent if s.head.kind == wire.MERGE_REQ} == {"A"}


def test_where_all_agree_nobody_merges() -> None:
    group = split("A:10 AB")
    group.disagree()
    group.advance(1.0)
    assert not group.sent


def test_a_report_that_is_out_of_date_changes_nothing() -> None:
    """The groups became one since: A asks, hears that all agree, and leaves it at that."""
    group = split("A:10 AB", "C:10 CD")
    stale = {group[name].address: group[name].views[-1] for name in "AC"}
    group.disagree()
    group.converge(limit=0.5)
    group["A"].gms.on_disagreement(stale, {}, group.now)
    group.drain(group["A"])
    group.advance(8.0)
    assert [str(view.id) for view in group["C"].views[-2:]] == ["C:10", "A:11"]
    group.assert_thawed()


def test_a_report_about_oneself_that_is_out_of_date_is_known_better() -> None:
    """A is said to hold what it held before; now it holds what C holds."""
    group = split("A:10 AB", "C:10 CD")
    stale = group["A"].views[-1]
    group.disagree()
    group.converge(limit=0.5)
    group.sent.clear()
    views = {group["A"].address: stale, group["C"].address: group["C"].views[-1]}
    group["A"].gms.on_disagreement(views, {}, group.now)
    group.drain(group["A"])
    assert not group.sent


def test_a_merge_view_is_above_every_view_that_anyone_holds_or_reported() -> None:
    """G-14: D holds a newer view than the report knows, and was heard of with the newest."""
    group = split("A:10 AB", "C:30 CD", "D:40 DC @ D")
    views = {group[name].address: group[name].views[-1] for name in "AC"}
    ghost = View(ViewId(50, group["B"].address), (group["B"].address, group["A"].address))
    group["A"].gms.on_disagreement({**views, group["B"].address: ghost}, {}, group.now)
    group.drain(group["A"])
    group.converge("ABCD", 0.5)
    assert group["A"].views[-1].id.number == 51


# -- Digests and windows --------------------------------------------------------------------------


def test_each_senders_stream_goes_on_where_it_said_itself() -> None:
    """JGRP-948, P-30: everyone speaks of its own multicasts only."""
    group = split("A:10 AB", "C:10 CD")
    for number, name in enumerate("ABCD", start=3):
        group[name].sent = number
    group.disagree()
    group.converge(limit=0.5)
    shorts = {name: group[name].address.short for name in "ABCD"}
    digest = Digest({shorts[name]: (n, n) for n, name in enumerate("ABCD", start=3)})
    assert all(member.installs[-1].digest == digest for member in group.members.values())


@pytest.mark.parametrize(
    ("views", "kept"),
    [
        (["A:10 AB", "C:10 CD"], {"A": "B", "B": "A", "C": "D", "D": "C"}),
        (["A:10 ABC @ A", "B:11 BC"], {"A": "", "B": "C", "C": "B"}),
        (["A:11 AC @ A", "A:10 ABC @ BC"], {"A": "C", "B": "C", "C": "AB"}),
        (["A:10 AB @ A", "B:10 BC @ B", "C:10 C"], {"A": "", "B": "", "C": ""}),
    ],
)
def test_windows_stay_between_members_that_had_each_other_in_view(
    views: list[str], kept: dict[str, str]
) -> None:
    group = split(*views)
    group.disagree()
    group.converge(limit=0.5)
    assert {name: mutual(group, name) for name in kept} == kept


def test_stability_is_held_from_a_members_answer_until_it_has_the_view() -> None:
    group = split("A:10 A", "B:10 B")
    group.drop(wire.VIEW, times=2)
    group.disagree()
    group.advance(0.3)
    assert group["A"].names == "AB"
    assert group["B"].frozen_until > group.now
    group.converge(limit=2.0)
    events = [
        e for _at, e in group["B"].events if isinstance(e, SuspendStability | ResumeStability)
    ]
    assert events[-2:] == [SuspendStability(20.0), ResumeStability()]


# -- Loss, silence, death -------------------------------------------------------------------------


@timings
@pytest.mark.parametrize(
    "kind",
    [
        wire.MERGE_REQ,
        wire.MERGE_RSP,
        wire.GET_DIGEST_REQ,
        wire.GET_DIGEST_RSP,
        wire.VIEW,
        wire.VIEW_ACK,
    ],
)
def test_whatever_frame_of_a_merge_is_lost_it_is_repeated(kind: int, timing: Timing) -> None:
    group = split("A:10 AB", "C:10 CD", timing=timing)
    rule = group.drop(kind, times=2)
    group.disagree()
    group.converge(limit=2.0)
    group.advance(3.0)
    assert rule.taken == 2
    assert group.sent[-1].at < group.now - 1.0, "all fall silent"
    group.assert_thawed()


def test_who_does_not_answer_is_left_out_and_the_others_merge() -> None:
    group = split("A:10 AB", "C:10 CD")
    group.crash("D")
    group.disagree("ABC")
    group.advance(4.9)
    assert group["A"].names == "AB"
    group.converge("ABC", 0.5)


def test_the_dead_are_not_waited_for_once_they_are_known() -> None:
    group = split("A:10 AB", "C:10 CD")
    group.crash("B")
    group.disagree("ACD")
    group.advance(0.1)
    group.suspect("B", at="A")
    group.converge("ACD", 0.1)


def test_a_merge_with_nobody_left_is_called_off_and_excludes_nobody() -> None:
    """C answers to MERGE3 and then no more; B is merely slow. A keeps B."""
    group = split("A:10 AB", "C:10 C")
    group.drop(wire.GET_DIGEST_RSP, source="B", times=99)
    group.drop(wire.MERGE_RSP, source="C", times=99)
    group.disagree(at="A")
    group.advance(6.0)
    assert [group[name].names for name in "ABC"] == ["AB", "AB", "C"]
    group.assert_thawed()


def test_a_leader_that_dies_frees_everybody_within_twice_the_merge_timeout() -> None:
    """E5, M-06: C holds still for ten seconds, turns joins away, then lets in again."""
    group = split("A:10 A", "C:10 CD")
    group.add("E")
    group.drop(wire.MERGE_RSP, times=99)
    group.disagree()
    group.advance(0.1)
    group.crash("A")
    group.join("E")
    group.advance(9.0)
    assert group["C"].drops["join-not-now"] > 0
    assert group["C"].frozen_until > group.now
    group.advance(1.1)
    group.assert_thawed()
    group.converge("CDE", 5.0)


def test_a_leader_known_to_be_dead_frees_everybody_at_once() -> None:
    group = split("A:10 A", "C:10 CD")
    group.drop(wire.MERGE_RSP, times=99)
    group.disagree()
    group.advance(0.1)
    group.crash("A")
    group.suspect("A", at="CD")
    group.assert_thawed()


def test_a_participant_that_dies_after_its_answer_is_excluded_afterwards() -> None:
    """E6: C answers and dies. It is in the merge view, then no more; D was asked by A itself."""
    group = split("A:10 AB", "C:10 CD")
    group.drop(wire.GET_DIGEST_RSP, source="D", times=1)
    group.disagree()
    group.advance(0.1)
    group.crash("C")
    group.advance(1.0)
    assert group["D"].names == "ABCD"
    group.suspect("C", at="A")
    group.converge("ABD", 3.0)


def test_the_merge_view_reaches_a_member_that_the_next_view_overtakes() -> None:
    """The merge view to D is lost for three seconds. A excludes C meanwhile: D, who cannot take
    that view from a stranger, gets first the one and then the other."""
    group = split("A:10 AB", "C:10 CD")
    rule = group.drop(wire.VIEW, dest="D", times=10_000)
    group.disagree()
    group.advance(0.5)
    group.crash("C")
    group.advance(2.0)
    group.suspect("C", at="A")
    group.advance(0.5)
    assert group["A"].names == "ABD"
    rule.times = 0
    group.converge("ABD", 2.0)
    assert [view.id.number for view in group["D"].views[-2:]] == [11, 12]


def test_a_member_of_the_leader_s_own_group_takes_no_view_before_the_merge_view() -> None:
    """As before, but the merge view to B is lost, and D is excluded. The next view comes first, and
    what B answers brings the merge view, which says where its windows of C begin."""
    group = split("A:10 AB", "C:10 CD")
    rule = group.drop(wire.VIEW, dest="B", times=10_000)
    group.disagree()
    group.advance(0.5)
    group.crash("D")
    group.advance(2.0)
    rule.times = 0
    group.suspect("D", at="A")
    group.advance(0.01)
    merged, following = group["B"].installs[-2:]
    assert [merged.view.id.number, following.view.id.number] == [11, 12]
    assert merged.digest is not None
    assert group["B"].drops == {"view-before-merge": 1}


def test_a_coordinator_that_did_not_lead_the_merge_overtakes_no_merge_view() -> None:
    """B leads, and A coordinates, which waits for no acks of the merge view: the first one that B
    sends D is lost, and A's view without C comes to D before B repeats it."""
    group = split("B:10 BC", "A:10 AD")
    group.drop(wire.VIEW, source="B", dest="D")
    group.disagree("BCD", at="B")
    group.advance(0.1)
    assert (group["A"].names, group["D"].names) == ("ADBC", "AD")
    group.crash("C")
    group.suspect("C", at="AB")
    group.settle(lambda: group["D"].names == "ADB", 1.0)
    assert [view.id.number for view in group["D"].views[-2:]] == [11, 12]
    assert group["D"].drops["view-before-merge"]


def after_a_lost_merge_view() -> Group:
    """The merge view does not come to C. A, its leader, dies, and B makes the next view."""
    group = split("A:10 ABC", "D:10 D")
    group.drop(wire.VIEW, source="A", dest="C", times=10_000)
    group.disagree()
    group.advance(0.5)
    group.crash("A")
    group.suspect("A", at="B")
    group.advance(3.0)
    assert [group[name].names for name in "BCD"] == ["BCD", "ABC", "BCD"]
    assert group["C"].drops["view-before-merge"] > 1
    group.drop(wire.VIEW, dest="C", times=10_000)
    return group


def test_a_view_that_was_put_off_is_taken_when_the_leader_of_the_merge_is_dead() -> None:
    """C would miss what the others multicast since if only another merge brought it back."""
    group = after_a_lost_merge_view()
    group.suspect("A", at="C")
    assert group["C"].names == "BCD"


def test_a_view_that_was_put_off_is_taken_when_no_merge_view_comes_in_time() -> None:
    group = after_a_lost_merge_view()
    group.advance(6.4)
    assert group["C"].names == "ABC"
    group.advance(0.2)
    assert group["C"].names == "BCD"


def test_whoever_joined_or_caught_up_since_a_merge_names_it_too() -> None:
    """C joins after the merge, and D misses that view. Both say in their views what led there."""
    group = split("A:10 A", "B:10 BD")
    group.disagree()
    group.converge("ABD", 1.0)
    group.drop(wire.VIEW, dest="D")
    group.add("C")
    group.join("C")
    group.converge("ABCD", 3.0)
    for first, rest in ("A", "BCD"), ("B", "CD"), ("D", "C"):
        group.crash(first)
        group.suspect(first)
        group.converge(rest, 3.0)
    group.add("E")
    group.join("E")
    group.converge("CE", 3.0)
    named = {s.source: s.head.mark for s in group.sent if s.head.kind in (wire.VIEW, wire.JOIN_RSP)}
    assert named == dict.fromkeys("ABDC", 11)


def test_a_member_that_missed_a_merge_view_does_not_catch_up_without_another_merge() -> None:
    """B's windows for C have to begin where the digest says, not where they do without one."""
    group = split("A:10 AB", "C:10 C")
    group.drop(wire.VIEW, dest="B", times=10_000)
    group.disagree()
    group.advance(11.0)
    assert group["A"].names == "ABC"
    group.rules.clear()
    group.sent.clear()
    group["A"].gms.on_lagging(group["B"].address, group.now)
    group.drain(group["A"])
    group.advance(1.0)
    assert group.count(wire.GET_VIEW, "B", "A") == 1
    assert group["B"].names == "AB"
    group.watch()
    group.converge("ABC", 5.0)


def test_a_merge_view_that_comes_too_late_to_be_newer_ends_the_merge() -> None:
    group = split("A:10 A", "B:10 B")
    group.rule("delay", wire.VIEW, dest="B", amount=0.2)
    group.disagree()
    group.advance(0.1)
    group.inject("B:50 B")
    group.advance(0.15)
    assert group["B"].drops["merge-unknown"] == 1
    assert group["B"].frozen_until < 0


def test_a_leader_whose_own_view_changes_calls_the_merge_off() -> None:
    """What it said of itself, and with it who shares its windows, is no longer true."""
    group = split("A:10 A", "B:10 B")
    group.rule("delay", wire.MERGE_RSP, amount=0.3)
    group.disagree()
    group.advance(0.1)
    group.inject("A:20 A")
    group.advance(1.0)
    assert [group[name].names for name in "AB"] == ["A", "B"]
    group.assert_thawed()


def test_a_late_merge_view_is_not_taken_when_the_merge_is_over() -> None:
    """C waited ten seconds; what the digest promised may have been purged by now."""
    group = split("A:10 A", "C:10 C")
    group.rule("delay", wire.VIEW, dest="C", amount=11.0, times=1)
    group.drop(wire.VIEW, dest="C", times=10_000)
    group.disagree()
    group.advance(12.0)
    assert group["C"].names == "C"
    assert group["C"].drops["merge-unknown"] == 1
    group.rules.clear()
    group.watch()
    group.converge("AC", 10.0)


# -- Busy members ---------------------------------------------------------------------------------


def rejections(group: Group, source: str) -> int:
    return sum(
        unpack_merge_answer_untrusted(sent.head.source, sent.body).is_rejected
        for sent in group.sent
        if sent.source == source and sent.head.kind in {wire.MERGE_RSP, wire.GET_DIGEST_RSP}
    )


def test_two_leaders_at_once_end_in_one_group() -> None:
    """A leads with C, B with D, and then both of A's and B's hear of C: nobody waits for ever."""
    group = split("A:10 AE", "B:10 BF", "C:10 CG", "D:10 DH")
    group.disagree("BC", at="B")
    group.disagree("AC", at="A")
    group.advance(1.0)
    assert rejections(group, "C") == 1
    group.watch()
    group.converge("ABCDEFGH", 10.0)
    group.advance(12.0)
    group.assert_thawed()


def test_who_is_not_where_it_says_is_not_told_of_the_view() -> None:
    """The answer would be larger than the question; with the cookie, X is told."""
    group = split("A:10 AB", "C:10 C")
    stranger = group.add("X").address
    body = pack_merge_id(MergeId(stranger, 1))
    for kind in (wire.MERGE_REQ, wire.GET_DIGEST_REQ):
        give(group, "X", "A", kind, body)
        assert group.sent[-1].head.kind == wire.COOKIE
    cookie = group.sent[-1].head.mark
    give(group, "X", "A", wire.MERGE_REQ, body, mark=cookie + 1)
    assert group.sent[-1].head.kind == wire.COOKIE
    assert not group["A"].gms._merging.is_active
    give(group, "X", "A", wire.MERGE_REQ, body, mark=cookie)
    assert group.sent[-1].head.kind == wire.MERGE_RSP


def test_answers_that_name_too_many_are_not_kept() -> None:
    """What the answers of one merge name altogether is bounded, however many members answer."""
    group = split("A:10 A", "B:10 B", "C:10 C", "D:10 D", "E:10 E", "F:10 F")
    group.drop(wire.MERGE_RSP, times=99)
    group.disagree("ABCDEF", at="A")
    group.advance(0.01)
    body = next(sent.body for sent in group.sent if sent.head.kind == wire.MERGE_REQ)
    merge = unpack_merge_id_untrusted(body)
    for name in "BCDEF":
        member = group[name].address
        crowd = tuple(Address((ord(name) << 64) + other + 100_000, "") for other in range(4000))
        held = View(ViewId(10, member), (member, *crowd))
        answer = MergeAnswer(merge, False, held, Digest({member.short: (0, 0)}))
        head = group[name].port.codec.pack_control(wire.MERGE_RSP, wire.GMS, 1, 0, merge.number)
        fields = wire.Head._make(wire.HEAD_STRUCT.unpack(head))
        group["A"].gms.receive(fields, pack_merge_answer(answer), group.now)
    assert group["A"].port.drops["merge-too-large"] == 1


@timings
def test_groups_that_never_met_merge_with_one_round_trip_more(timing: Timing) -> None:
    """Each member asks the leader for its cookie, once; members of a past view do not ask."""
    group = Group("ABCD", timing=timing)
    group.inject("A:10 AB", "C:10 CD")
    group.disagree("AC", at="A")
    group.converge("ABCD", 0.05)
    assert {(sent.source, sent.dest) for sent in group.sent if sent.head.kind == wire.COOKIE} == {
        ("C", "A"),
        ("D", "A"),
    }
    group.inject("A:20 AB", "C:20 CD")
    began = len(group.sent)
    group.disagree("AC", at="A")
    group.converge("ABCD", 0.05)
    assert wire.COOKIE not in {sent.head.kind for sent in group.sent[began:]}


def stranger_merges(group: Group, at: str) -> None:
    """X, who has proved where it is, asks a member to merge, and never says what comes of it."""
    stranger = group.add("X").address
    group[at].port.prove(stranger)
    give(group, "X", at, wire.MERGE_REQ, pack_merge_id(MergeId(stranger, 1)))


def test_a_busy_group_is_left_out_and_nobody_waits_for_it() -> None:
    """C has accepted a merge of X's: it says so, and A merges with B at once (D-3)."""
    group = split("A:10 A", "B:10 B", "C:10 CD")
    stranger_merges(group, "C")
    group.disagree("ABC", at="A")
    group.converge("AB", 0.1)
    assert [group[name].names for name in "CD"] == ["CD", "CD"]
    assert rejections(group, "C") == 1


def test_who_answered_in_vain_is_told_so() -> None:
    """C takes part in A's merge, but D, of the same group, is busy: C need not wait for A."""
    group = split("A:10 A", "B:10 B", "C:10 CD")
    stranger_merges(group, "D")
    group.disagree("ABC", at="A")
    group.advance(0.1)
    assert [group[name].names for name in "ABCD"] == ["AB", "AB", "CD", "CD"]
    assert group["C"].frozen_until < 0


def test_a_leader_whose_own_group_is_busy_tears_it_not_apart() -> None:
    """B is taken by a merge of X's. A could merge with C and D, but not without B."""
    group = split("A:10 AB", "C:10 C", "D:10 D")
    stranger_merges(group, "B")
    group.disagree("ACD", at="A")
    group.advance(1.0)
    assert [group[name].names for name in "ABCD"] == ["AB", "AB", "C", "D"]
    assert all(group[name].frozen_until < 0 for name in "ACD")


def test_a_coordinator_that_is_bringing_a_view_takes_part_in_no_merge() -> None:
    """JGRP-1009: what looks like a disagreement is a view under way. D's ack is missing."""
    group = split("A:10 A", "C:10 CDE")
    group.drop(wire.VIEW_ACK, source="D", times=99)
    group.leave("E")
    group.advance(0.05)
    group.disagree("AC", at="A")
    group.advance(0.1)
    assert rejections(group, "C") == 1
    assert group["A"].names == "A"
    group.advance(2.0)
    group.disagree("AC", at="A")
    group.converge("ACD", 0.1)


def test_a_leader_that_is_bringing_a_view_begins_no_merge() -> None:
    group = split("A:10 ABE", "C:10 C")
    group.drop(wire.VIEW_ACK, source="B", times=99)
    group.leave("E")
    group.advance(0.05)
    group.disagree()
    group.advance(0.1)
    assert not group.count(wire.MERGE_REQ)
    group.advance(2.0)
    group.disagree()
    group.converge("ABC", 0.1)


def test_requests_are_turned_away_during_a_merge_and_served_after_it() -> None:
    group = split("A:10 AB", "C:10 CD")
    group.add("E")
    group.rule("delay", wire.GET_DIGEST_RSP, source="D", amount=0.3)
    group.disagree()
    group.advance(0.05)
    group.join("E")
    group.leave("B")
    group.converge("ACDE", 3.0)
    assert group["B"].is_left


def test_a_suspicion_during_a_merge_is_acted_on_after_it() -> None:
    group = split("A:10 ABE", "C:10 CD")
    group.rule("delay", wire.GET_DIGEST_RSP, source="D", amount=0.3)
    group.disagree()
    group.advance(0.05)
    group.crash("E")
    group.suspect("E", at="A")
    group.converge("ABCD", 2.0)


def test_a_suspicion_during_a_merge_that_comes_to_nothing_is_acted_on_after_it() -> None:
    group = split("A:10 A", "C:10 CDE")
    group.drop(wire.MERGE_RSP, times=99)
    group.disagree(at="A")
    group.advance(0.1)
    group.crash("A", "E")
    group.suspect("E", at="CD")
    group.advance(9.0)
    assert group["C"].names == "CDE"
    group.converge("CD", 1.0)


def test_a_leader_that_does_not_coordinate_acts_only_where_it_is_first() -> None:
    """B led the merge, A coordinates. B suspects A and C while it waits for D's ack; A proves to
    be alive: to exclude C is A's affair."""
    group = split("D:10 DA @ A", "B:20 BCD")
    group.drop(wire.VIEW_ACK, source="D")
    group.disagree()
    group.advance(0.1)
    assert group["B"].names == "ABCD"
    group.suspect("A", "C", at="B")
    group.clear("A", at="B")
    group.advance(3.0)
    assert group["B"].views[-1].id.number == 21


def test_a_late_request_does_not_begin_a_merge_again() -> None:
    group = split("A:10 A", "B:10 B")
    group.disagree()
    group.converge(limit=0.5)
    request = next(s for s in group.sent if s.head.kind == wire.MERGE_REQ)
    group.arrive(group["B"], request.head, request.body, "A")
    assert group["B"].drops == {"merge-over": 1}
    group.assert_thawed()


def test_a_cancellation_that_overtakes_the_request_counts() -> None:
    group = split("A:10 A", "B:10 B")
    body = pack_merge_id(MergeId(group["A"].address, 5))
    give(group, "A", "B", wire.CANCEL_MERGE, body)
    give(group, "A", "B", wire.MERGE_REQ, body)
    assert group["B"].drops == {"merge-over": 1}
    give(group, "A", "B", wire.CANCEL_MERGE, body)
    assert group["B"].drops == {"merge-over": 2}
    group.assert_thawed()


def test_a_leader_that_leaves_calls_the_merge_off() -> None:
    """C has answered, D has not yet: A goes, and C need not wait for the outcome."""
    group = split("A:10 AB", "C:10 CD")
    group.rule("delay", wire.GET_DIGEST_RSP, amount=0.5, times=9)
    group.disagree()
    group.advance(0.05)
    assert group["C"].frozen_until > group.now
    group.leave("A")
    group.advance(0.1)
    assert group["A"].is_left
    group.advance(1.0)
    group.assert_thawed()
    assert [group[name].names for name in "BCD"] == ["B", "CD", "CD"]


def test_who_is_leaving_takes_part_in_no_merge() -> None:
    group = split("A:10 A", "C:10 CD")
    group.drop(wire.LEAVE_REQ, times=99)
    group.leave("C")
    group.disagree("AC", at="A")
    group.advance(0.1)
    assert rejections(group, "C") == 1
    assert group["A"].names == "A"


# -- Hostile frames -------------------------------------------------------------------------------


def test_merge_frames_of_nobody_we_know_change_nothing() -> None:
    group = split("A:10 AB")
    group.add("X")
    strange = MergeId(group["X"].address, 1)
    view = group.view("X:99 XAB")
    digest = Digest({member.short: (0, 0) for member in view.members})
    part = MergePart(strange, digest, frozenset())
    own = Digest({group["X"].address.short: (0, 0)})
    answer = MergeAnswer(MergeId(group["A"].address, 1), False, group.view("X:99 X"), own)
    give(group, "X", "A", wire.VIEW, pack_merge_view(view, part))
    give(group, "X", "A", wire.MERGE_RSP, pack_merge_answer(answer))
    give(group, "X", "A", wire.MERGE_REQ, pack_merge_id(MergeId(group["B"].address, 1)))
    give(group, "X", "A", wire.CANCEL_MERGE, pack_merge_id(MergeId(group["B"].address, 1)))
    assert group["A"].drops == {"merge-unknown": 2, "merge-source": 2}
    assert group["A"].names == "AB"
    group.assert_thawed()


def test_an_answer_with_a_hostile_number_does_not_push_those_of_the_group() -> None:
    group = split("A:10 A", "B:10 B")
    group.drop(wire.MERGE_RSP)
    group.disagree()
    group.advance(0.1)
    b = group["B"]
    merge = MergeId(group["A"].address, 1)
    far = View(ViewId(1 << 40, b.address), (b.address,))
    body = pack_merge_answer(MergeAnswer(merge, False, far, Digest({b.address.short: (0, 0)})))
    give(group, "B", "A", wire.MERGE_RSP, body)
    assert group["A"].drops == {"merge-answer": 1}
    group.rules.clear()
    group.converge("AB", 1.0)
    assert group["A"].views[-1].id.number == 11


def test_a_report_with_a_hostile_number_counts_for_nothing() -> None:
    group = split("A:10 A", "B:10 B", "C:10 C")
    c = group["C"].address
    views = {group[name].address: group[name].views[-1] for name in "AB"}
    group["A"].gms.on_disagreement({**views, c: View(ViewId(1 << 40, c), (c,))}, {}, group.now)
    group.drain(group["A"])
    group.converge("AB", 0.5)
    assert group["A"].views[-1].id.number == 11


# -- From any state -------------------------------------------------------------------------------


@st.composite
def any_views(draw: st.DrawFn) -> list[str]:
    """For each of up to seven members a view with itself in it, of anybody's making."""
    names = "ABCDEFG"[: draw(st.integers(2, 7))]
    lines: dict[tuple[str, int], str] = {}
    result = []
    for name in names:
        members = {name, *draw(st.sets(st.sampled_from(names)))}
        order = "".join(draw(st.permutations(sorted(members))))
        key = (draw(st.sampled_from(order)), 20 + draw(st.integers(0, 4)))
        # One creator gives one number to one view; who is in it may hold it, too.
        order = lines.setdefault(key, order)
        if name in order:
            result.append(f"{key[0]}:{key[1]} {order} @ {name}")
    return result


@pytest.mark.slow
@given(views=any_views(), timing=st.sampled_from([COMPATIBLE, FAST]), seed=st.integers(0, 99))
def test_from_any_views_all_come_to_one_and_stay_there(
    views: list[str], timing: Timing, seed: int
) -> None:
    """P-28, P-25."""
    group = split(*views, timing=timing, members="ABCDEFG")
    group.dice.seed(seed)
    group.watch()
    group.converge(limit=30.0)
    group.advance(12.0)
    counts = {member.name: len(member.views) for member in group.members.values()}
    group.advance(20.0)
    assert {member.name: len(member.views) for member in group.members.values()} == counts
    group.assert_thawed()


@pytest.mark.slow
@given(
    views=any_views(),
    seed=st.integers(0, 2**32 - 1),
    loss=st.sampled_from([0.1, 0.3]),
    jitter=st.sampled_from([0.0, 0.5]),
    dead=st.sets(st.sampled_from("BC")),
)
def test_from_any_views_survivors_come_to_one_after_a_bad_time(
    views: list[str], seed: int, loss: float, jitter: float, dead: set[str]
) -> None:
    """P-28, P-29: frames are lost, copied and late, members die, and then the network heals."""
    group = split(*views, members="ABCDEFG")
    group.dice.seed(seed)
    group.loss = group.copies = loss
    group.jitter = jitter
    group.watch()
    for name in sorted(dead & set(group.members)):
        group.at(group.now + 2 * group.dice.random(), lambda name=name: group.crash(name))  # type: ignore[misc]
    group.advance(8.0)
    group.heal()
    group.converge(limit=60.0)
    group.advance(12.0)
    assert group.is_one(group.live())
    group.assert_thawed()


def test_partition_after_partition_heals_to_one_group() -> None:
    """Flapping: halves, thirds, one alone, in short succession."""
    group = Group(6, seed=4)
    group.join_all()
    group.watch()
    for parts in (["ABC", "DEF"], ["AD", "BE", "CF"], ["A", "BCDEF"], ["ABCDE", "F"]):
        group.partition(*parts)
        group.advance(3.0)
        group.heal()
        group.advance(1.5)
    group.converge("ABCDEF", 20.0)
    group.advance(12.0)
    group.assert_thawed()


def test_one_way_loss_towards_a_member_ends_with_the_link() -> None:
    """C does not hear A. Nobody is excluded: C is not first without A, and A hears C."""
    group = Group(3)
    group.join_all()
    group.watch()
    group.cut("A", "C")
    group.advance(10.0)
    assert group.is_one("ABC")
    group.heal()
    group.advance(5.0)
    assert group.is_one("ABC")
