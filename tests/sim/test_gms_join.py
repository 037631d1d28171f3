"""Joining: first, second, many at once, and whatever can be lost, late, stale or dead meanwhile."""

from __future__ import annotations

from itertools import pairwise
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st
from xxhash import xxh3_64_intdigest as hash64

from stormcast.node.core import wire
from stormcast.node.core.codec import Codec
from stormcast.node.core.digest import Digest
from stormcast.node.core.model import Address, View, ViewId
from stormcast.node.core.timing import Timing
from stormcast.node.protocols.events import (
    BecameServer,
    Found,
    Install,
    ResumeStability,
    SuspendStability,
)
from stormcast.node.protocols.gms import GmsConfig, coordinator, view_room
from stormcast.node.protocols.gms.messages import (
    JoinAnswer,
    JoinRefusal,
    MergeId,
    MergePart,
    pack_address,
    pack_join_answer,
    pack_join_refusal,
    pack_merge_view,
    room_for_members,
    size_in_view,
    unpack_join_answer_untrusted,
)
from stormcast.node.protocols.proof import LIFE_SECONDS, Proof
from tests.helpers.membership import CLUSTER, COMPATIBLE, FAST, Group, Member, address

JOINING = frozenset({wire.JOIN_REQ, wire.COOKIE, wire.JOIN_RSP})

timings = pytest.mark.parametrize("timing", [COMPATIBLE, FAST], ids=lambda timing: timing.name)


@timings
def test_the_first_founds_the_group_and_the_second_joins_it(timing: Timing) -> None:
    group = Group("AB", timing=timing)
    group.join("A")
    group.converge("A", 2.1)
    group.join("B")
    group.converge("AB", 0.1)
    assert [str(view) for view in group["A"].views] == ["A:1{A}", "A:2{A,B}"]
    assert [str(view) for view in group["B"].views] == ["A:2{A,B}"]


def test_a_joiner_learns_where_windows_begin_and_members_need_no_digest() -> None:
    """A has multicast 7: B's window for it begins there, its own at 0 (JGRP-1317)."""
    group = Group("AB")
    group.join("A")
    group.converge("A")
    group["A"].sent = 7
    group.join("B")
    group.converge("AB")
    a, b = (group[name].address.short for name in "AB")
    assert group["B"].installs[-1].digest == Digest({a: (7, 7), b: (0, 0)})
    assert group["A"].installs[-1].digest is None


def test_the_view_is_there_before_a_member_is_told_that_it_is_a_server() -> None:
    group = Group(1)
    group.join_all()
    kinds = [type(event) for _at, event in group["A"].events]
    assert kinds[-2:] == [Install, BecameServer]


def test_stability_is_held_from_the_digest_until_everybody_has_the_view() -> None:
    """The VIEW to B is late by a second: until its ack nothing may be purged (G-7, G-10)."""
    group = Group("ABC")
    group.join("A")
    group.converge("A")
    group.join("B")
    group.converge("AB")
    group.rule("delay", wire.VIEW, dest="B", amount=0.3)
    group.join("C")
    group.advance(0.2)
    assert group["C"].names == "ABC"
    assert group["A"].frozen_until > group.now
    group.advance(0.3)
    events = [
        e for _at, e in group["A"].events if isinstance(e, SuspendStability | ResumeStability)
    ]
    assert events[-2:] == [SuspendStability(30.0), ResumeStability()]
    group.assert_thawed()


@timings
@pytest.mark.parametrize("members", [2, 10, 20])
def test_many_first_comers_at_once_form_one_group_without_any_merge(
    members: int, timing: Timing
) -> None:
    """G-05, G-06: the lowest founds, the others join in two views."""
    group = Group(members, timing=timing)
    group.join()
    group.converge(limit=5.0)
    assert len(group["A"].views) <= 3


@pytest.mark.slow
def test_a_storm_of_a_hundred_joiners_needs_few_views() -> None:
    names = "".join(chr(0x4E00 + n) for n in range(101))
    group = Group(names)
    group.join(names[0])
    group.converge(names[0])
    group.join(*names[1:])
    group.converge(names, 5.0)
    assert len(group[names[0]].views) <= 4


@timings
def test_a_storm_in_a_bad_network_still_ends_in_one_group(timing: Timing) -> None:
    group = Group(12, timing=timing, loss=0.3, copies=0.3, jitter=0.05, seed=5)
    group.watch()
    group.join()
    group.converge(limit=60.0)


@timings
@pytest.mark.parametrize("kind", [wire.JOIN_REQ, wire.JOIN_RSP, wire.VIEW, wire.VIEW_ACK])
def test_whatever_frame_of_a_join_is_lost_it_is_repeated(kind: int, timing: Timing) -> None:
    group = Group("ABC", timing=timing)
    group.join("A")
    group.converge("A")
    group.join("B")
    group.converge("AB")
    rule = group.drop(kind, times=2)
    group.join("C")
    took = group.converge("ABC", 2.0)
    group.advance(3.0)
    assert rule.taken == 2
    assert took < (0.3 if timing is FAST else 1.2)
    assert len(group["C"].views) == 1
    group.assert_thawed()


def test_repeats_differ_so_that_no_fate_is_shared() -> None:
    """Half of all preambles are doomed: what is repeated unchanged would be lost for ever."""
    group = Group("AB")
    group.join("A")
    group.converge("A")
    group.drop(wire.JOIN_RSP, times=4)
    group.join("B")
    group.converge("AB", 5.0)
    sent = [s.head.transmission for s in group.sent if s.head.kind == wire.JOIN_RSP]
    assert sent == list(range(len(sent)))
    assert len(sent) >= 5


def test_a_repeated_question_to_join_is_answered_from_the_same_view() -> None:
    """B's answer is lost three times, C joins meanwhile: B is let in with the newer view."""
    group = Group("ABC")
    group.join("A")
    group.converge("A")
    group.drop(wire.JOIN_RSP, dest="B", times=5)
    group.join("B")
    group.advance(0.1)
    group.join("C")
    group.converge("ABC", 6.0)
    assert len({view.id for view in group["B"].views}) == 1
    assert all(install.digest is not None for install in group["B"].installs)
    group.advance(3.0)
    group.assert_thawed()


def test_a_joiner_that_has_acked_nothing_is_let_in_by_the_next_view() -> None:
    """B asks once and then cannot be heard; A's answer is lost until C has left."""
    group = Group("AC")
    group.join_all()
    group.add("B")
    answers = group.drop(wire.JOIN_RSP, dest="B", times=10_000)
    group.join("B")
    group.advance(0.01)
    group.drop(wire.JOIN_REQ, source="B", times=10_000)
    group.leave("C")
    group.advance(2.1)
    assert group["A"].names == "AB"
    answers.times = 0
    group.converge("AB", 1.0)
    assert group["B"].installs[-1].digest is not None


def test_an_answer_that_comes_after_the_round_counts() -> None:
    """JGRP-687: A's JOIN_RSP takes three seconds, B asks anew after two; one view results."""
    group = Group("AB")
    group.join("A")
    group.converge("A")
    group.rule("delay", wire.JOIN_RSP, amount=3.0, times=9)
    group.join("B")
    group.converge("AB", 3.2)
    group.advance(10.0)
    assert len(group["B"].views) == 1


def test_a_late_answer_does_not_move_a_member_that_founded_a_group_meanwhile() -> None:
    group = Group(config=GmsConfig(max_join_attempts=1))
    group.add("A")
    group.add("B")
    group.join("A")
    group.converge("A")
    group.rule("delay", wire.JOIN_RSP, amount=4.0, times=1)
    group.drop(wire.JOIN_RSP, times=10_000)
    group.join("B")
    group.advance(6.0)
    assert group["B"].names == "B"
    assert group["B"].drops["join-late"] == 1
    group.rules.clear()
    group.watch()
    group.converge("AB", 10.0)


def test_a_coordinator_only_discovery_believes_in_costs_a_round_and_no_more() -> None:
    """Z is long dead, but its entry is stale; B gives it one join timeout, then founds a group."""
    group = Group("B")
    dead = address("Z")
    group.stale = [Found(dead, True, dead)]
    group.join("B")
    group.advance(0.1)
    group.stale = []
    group.converge("B", 5.0)
    assert group.now < 2 + 2 + 0.5


def test_a_stale_entry_beside_a_living_coordinator_delays_a_join_by_one_timeout_at_most() -> None:
    group = Group("AB")
    group.join("A")
    group.converge("A")
    dead = address("Z")
    group.stale = [Found(dead, True, dead)]
    group.join("B")
    assert group.converge("AB", 5.0) < 2.2


def test_a_coordinator_that_others_name_is_asked_though_it_did_not_answer_itself() -> None:
    group = Group("AB")
    group.join("A")
    group.converge("A")
    group.hidden = "A"
    group.stale = [Found(address("Z"), True, group["A"].address)]
    group.join("B")
    group.converge("AB", 2.5)


def test_who_is_said_to_coordinate_without_having_a_view_founds_a_group() -> None:
    """JGRP-2395: to wait for oneself would take for ever."""
    group = Group("B")
    group.stale = [Found(address("Z"), True, group["B"].address)]
    group.join("B")
    group.converge("B", 2.2)


def test_a_joiner_that_finds_members_without_a_coordinator_founds_no_second_group() -> None:
    """B has the lowest identity of all it hears of; the member it hears of has a coordinator
    somewhere."""
    group = Group("B")
    group.stale = [Found(address("Z"), True, None)]
    group.join("B")
    group.advance(15.0)
    assert group["B"].view is None
    group.advance(15.0)
    assert group["B"].names == "B"


def test_a_joiner_without_a_limit_of_attempts_never_founds_a_group_beside_others() -> None:
    group = Group(config=GmsConfig(max_join_attempts=0))
    group.add("B")
    group.stale = [Found(address("Z"), True, None)]
    group.join("B")
    group.advance(100.0)
    assert group["B"].view is None


def test_of_joiners_alone_only_the_lowest_founds_a_group() -> None:
    group = Group("AB")
    group.partition("A", "B")
    group.stale = [Found(group["A"].address, False, None)]
    group.join("B")
    group.advance(10.0)
    assert group["B"].view is None


def test_a_joiner_whose_coordinator_dies_is_let_in_by_its_successor() -> None:
    group = Group("ABC")
    group.join("A")
    group.converge("A")
    group.join("B")
    group.converge("AB")
    group.crash("A")
    group.join("C")
    group.advance(0.5)
    group.suspect("A", at="B")
    group.converge("BC", 5.0)


def test_a_coordinator_that_dies_between_the_answers_leaves_a_joiner_that_gets_in() -> None:
    """A's view {A,B,C} reached B, its JOIN_RSP did not reach C: B knows C as a member already."""
    group = Group("ABC")
    group.join("A")
    group.converge("A")
    group.join("B")
    group.converge("AB")
    group.drop(wire.JOIN_RSP, dest="C", times=9)
    group.join("C")
    group.advance(0.1)
    assert group["B"].names == "ABC"
    group.crash("A")
    group.rules.clear()
    group.suspect("A", at="B")
    group.converge("BC", 6.0)


def test_a_restarted_member_joins_beside_its_former_self() -> None:
    """Same name, new identity; the old one is excluded when its death is noticed (JGRP-130)."""
    group = Group("ABC")
    group.join_all()
    group.crash("B")
    group.add("b", identity=0x1000 + ord("B"))
    group.join("b")
    group.settle(lambda: group["b"].view is not None, 1.0)
    assert group["A"].names == "ABCb"
    group.suspect("B", at="A")
    group.converge("ACb", 5.0)


def test_a_joiner_whose_short_id_is_taken_is_refused() -> None:
    """Its frames could not be told from those of the member that has it."""
    group = Group("AB")
    group.join("A")
    group.converge("A")
    group.join("B")
    group.converge("AB")
    twin = address("T", (1 << 40) + group["B"].address.identity)
    head, _body = _join_frame(group, "B")
    group.arrive(group["A"], head, pack_address(twin))
    cookie = group.sent[-1].head
    assert cookie.kind == wire.COOKIE, "the cookie of B is not good for T"
    group.arrive(group["A"], head._replace(mark=cookie.mark), pack_address(twin))
    refusal = unpack_join_answer_untrusted(group.sent[-1].body)
    assert refusal == JoinRefusal(twin, "its short id is taken")
    assert group["A"].names == "AB"


def _storm(joiners: int, largest_body: int = wire.MAX_BODY) -> Group:
    """A member, and joiners that ask it at the same time."""
    names = "".join(chr(0x4E00 + number) for number in range(joiners + 1))
    group = Group(names, largest_body=largest_body)
    group.join(names[0])
    group.converge(names[0])
    group.join(*names[1:])
    return group


def _first(group: Group) -> Member:
    return next(iter(group.members.values()))


def test_a_view_adds_so_many_joiners_and_the_next_one_the_others(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(coordinator, "_JOINERS", 8)
    group = _storm(20)
    group.converge(limit=1.0)
    sizes = [len(view.members) for view in _first(group).views]
    assert max(later - earlier for earlier, later in pairwise(sizes)) == 8
    assert sizes[-1] == 21


def test_so_many_joiners_are_let_in_per_second_and_the_others_later(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Views took joiners as soon as the one before was acked: thousands in a second."""
    monkeypatch.setattr(coordinator, "JOINERS_PER_SECOND", 12)
    group = _storm(30)
    seen = []
    for _second in range(3):
        group.advance(0.6)
        seen.append(len(_first(group).role.members))
        group.advance(0.4)
    assert seen == [13, 25, 31]
    group.converge(limit=1.0)


def test_a_leaver_does_not_wait_for_the_pace_of_joiners(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(coordinator, "JOINERS_PER_SECOND", 3)
    group = _storm(8)
    group.advance(0.5)
    members = [name for name, member in group.members.items() if member.view is not None]
    assert len(members) == 4
    group.leave(members[-1])
    group.advance(0.1)
    assert len(_first(group).role.members) == 3


def test_a_storm_of_256_members_does_not_notice_the_pace() -> None:
    assert coordinator.JOINERS_PER_SECOND >= 256
    assert coordinator._JOINERS == 64


@pytest.mark.parametrize("bound", ["members", "frame"])
def test_a_view_is_no_larger_than_others_take_and_a_frame_carries(
    bound: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A view of 4,097 members would be refused by all of them, and no later one be smaller."""
    most = 10
    if bound == "members":
        monkeypatch.setattr(view_room, "MAX_MEMBERS", most)
    of_one = size_in_view(address(chr(0x4E00)))
    group = _storm(20, wire.MAX_BODY if bound == "members" else 2048 + most * of_one)
    group.advance(2.0)
    view = _first(group).view
    assert view is not None
    assert len(view.members) == most
    group.converge("".join(map(str, view.members)))
    outside = [member for member in group.members.values() if member.view is None]
    assert len(outside) == 11
    says = {"members": "a view has at most 10 members", "frame": "no frame carries a view of more"}
    for member in outside:
        (alarm,) = member.alarms()
        assert says[bound] in alarm
        assert alarm.endswith("; start again when there is room")
    assert _first(group).view == view
    # What has left makes room for those who come then.
    group.leave(str(view.members[-1]))
    group.add("X")
    group.join("X")
    group.settle(lambda: group["X"].view is not None, 5.0)


def test_a_view_of_the_most_members_can_be_read() -> None:
    members = tuple(address(f"j{number}", number << 64 | number) for number in range(1, 4097))
    view = View(ViewId(7, members[0]), members)
    digest = Digest({member.short: (0, 0) for member in members})
    body = pack_join_answer(view, digest)
    assert unpack_join_answer_untrusted(body) == JoinAnswer(view, digest)
    part = MergePart(MergeId(members[0], 1), digest, frozenset(m.short for m in members))
    largest = len(pack_merge_view(view, part))
    assert len(body) < largest
    assert sum(map(size_in_view, members)) > room_for_members(largest - 1)


def _join_frame(group: Group, source: str) -> tuple[wire.Head, bytes]:
    """The last one, which has the cookie."""
    asked = [s for s in group.sent if (s.source, s.head.kind) == (source, wire.JOIN_REQ)]
    return asked[-1].head, asked[-1].body


def test_a_joiner_is_let_in_only_with_the_cookie_that_was_sent_to_its_address() -> None:
    group = Group("AB")
    group.join("A")
    group.converge("A")
    group.join("B")
    group.converge("AB")
    frames = [(s.source, s.head) for s in group.sent if s.head.kind in JOINING]
    assert [(source, head.kind) for source, head in frames] == [
        ("B", wire.JOIN_REQ),
        ("A", wire.COOKIE),
        ("B", wire.JOIN_REQ),
        ("A", wire.JOIN_RSP),
    ]
    cookie = frames[1][1].mark
    assert [head.mark for _source, head in frames[:3]] == [0, cookie, cookie]


def _question(group: Group, joiner: Address) -> wire.Head:
    codec, dest = Codec(CLUSTER, joiner.short, hash64), group["A"].address.short
    frame = codec.pack_control(wire.JOIN_REQ, wire.GMS, dest, 0, 1, body=pack_address(joiner))
    return wire.Head._make(wire.HEAD_STRUCT.unpack_from(frame))


def test_who_does_not_prove_where_it_is_costs_a_group_nothing() -> None:
    """Each question names another place, and gets an answer that is no larger."""
    group = Group("AX")
    group.join("A")
    group.converge("A")
    sent = len(group.sent)
    for number in range(1, 301):
        joiner = Address(group["X"].address.identity, "X", f"198.18.{number >> 8}.{number}[7800]")
        head = _question(group, joiner)
        for mark in (0, number):
            group.arrive(group["A"], head._replace(mark=mark), pack_address(joiner))
    group.advance(1.0)
    answers = group.sent[sent:]
    assert [answer.head.kind for answer in answers] == 600 * [wire.COOKIE]
    assert not any(answer.body for answer in answers)
    assert group["A"].names == "A"
    assert group["A"].views == [group["A"].view]


def test_a_cookie_is_good_for_its_joiner_and_for_a_minute_at_most() -> None:
    proof, other = Proof(Random(1)), Proof(Random(2))
    here = Address(5, "B", "198.18.0.2[7800]")
    cookie = proof.cookie(here, 100.0)
    assert 0 < cookie < 1 << 63
    assert proof.is_good(here, cookie, 100.0)
    assert proof.is_good(here, cookie, 100.0 + LIFE_SECONDS)
    assert not proof.is_good(here, cookie, 100.0 + 2 * LIFE_SECONDS)
    assert not proof.is_good(here, 0, 100.0)
    assert not proof.is_good(Address(5, "B", "198.18.0.3[7800]"), cookie, 100.0)
    assert not proof.is_good(Address(6, "B", "198.18.0.2[7800]"), cookie, 100.0)
    assert not other.is_good(here, cookie, 100.0)


def test_a_cookie_that_nobody_asked_for_is_dropped() -> None:
    group = Group("AB")
    group.join("A")
    group.converge("A")
    stranger = group["B"]
    stranger.port.control(group["A"].address.short, wire.COOKIE, wire.GMS, 1, mark=7)
    group.drain(stranger)
    group.advance(0.1)
    assert group["A"].drops == {"join-unasked": 1}


def test_a_refused_joiner_raises_an_alarm_and_stays_out() -> None:
    group = Group("AB")
    group.join("A")
    group.converge("A")
    double = group.add("T", identity=(1 << 40) + group["B"].address.identity)
    group.join("B")
    group.converge("AB")
    del group.members["B"]
    group.join("T")
    group.advance(20.0)
    assert double.view is None
    assert double.alarms() == ["cannot join: its short id is taken; start again with a new address"]


def test_nobody_is_refused_in_the_name_of_a_coordinator_by_who_has_not_seen_the_question() -> None:
    """A forged frame was enough, as attempts were numbered from 1, and a refusal is for good."""
    group = Group("ABX")
    group.join("A")
    group.converge("A")
    group.drop(wire.JOIN_REQ, dest="A", times=1)
    group.join("B")
    group.settle(lambda: group.count(wire.JOIN_REQ, "B") > 0, 1.0)
    b = group["B"].address
    for number in range(4):
        head = _question(group, group["A"].address)._replace(dest=b.short, kind=wire.JOIN_RSP)
        group.arrive(group["B"], head._replace(lo=number), pack_join_refusal(b, "no"))
    assert group["B"].drops == {"join-unasked": 4}
    group.converge("AB", 2.0)


def test_each_coordinator_is_asked_with_a_number_of_its_own_and_another_in_each_round() -> None:
    """Who is asked does not learn how another one would refuse; and a question that is lost is not
    lost again for being the same."""
    group = Group("BYZ")
    group.crash("Y", "Z")
    group.stale = [Found(address(name), True, address(name)) for name in "YZ"]
    group.join("B")
    group.advance(12.0)
    asked: dict[str, list[int]] = {}
    for sent in group.sent:
        asked.setdefault(sent.dest, [])
        if sent.head.kind == wire.JOIN_REQ and sent.head.lo not in asked[sent.dest]:
            asked[sent.dest].append(sent.head.lo)
    first, second = asked.values()
    assert len(first) >= 2
    assert not {*first} & {*second}
    assert min(*first, *second) > 1 << 31


def test_a_refusal_of_an_earlier_round_counts() -> None:
    group = Group("AB")
    group.join("A")
    group.converge("A")
    double = group.add("T", identity=(1 << 40) + group["B"].address.identity)
    group.join("B")
    group.converge("AB")
    del group.members["B"]
    group.rule("delay", wire.JOIN_RSP, dest="T", amount=3.0, times=99)
    group.join("T")
    group.advance(20.0)
    assert double.alarms() == ["cannot join: its short id is taken; start again with a new address"]


def test_nobody_is_kept_out_by_one_who_says_in_its_name_that_it_leaves() -> None:
    """One forged LEAVE_REQ had a joiner refused in all its attempts."""
    group = Group("AB")
    group.join("A")
    group.converge("A")
    b = group["B"].address
    group.arrive(group["A"], _question(group, b)._replace(kind=wire.LEAVE_REQ), pack_address(b))
    group.join("B")
    group.converge("AB", 2.1)


def test_a_joiner_that_gives_up_while_it_waits_is_not_let_in_by_a_late_question() -> None:
    """A's view for C is under way, so B waits; then B's question comes once more."""
    group = Group("ABC")
    group.join("A")
    group.converge("A")
    group.drop(wire.VIEW_ACK, source="C", times=3)
    group.join("C")
    group.settle(lambda: group["A"].names == "AC", 1.0)
    group.join("B")
    group.advance(0.1)
    group.leave("B")
    group.advance(0.01)
    head, body = _join_frame(group, "B")
    group.arrive(group["A"], head, body)
    group.converge("AC", 5.0)
    assert group["A"].drops["join-after-leave"] == 1


def test_a_late_question_to_join_brings_back_no_ghost() -> None:
    """B's JOIN_REQ is copied, and the copy arrives after B has left."""
    group = Group("AB")
    group.join("A")
    group.converge("A")
    group.join("B")
    group.converge("AB")
    group.leave("B")
    group.converge("A", 2.0)
    head, body = _join_frame(group, "B")
    group.arrive(group["A"], head, body)
    group.advance(1.0)
    assert group["A"].names == "A"
    assert group["A"].drops == {"join-after-leave": 1}


@pytest.mark.parametrize("is_alive", [True, False])
def test_a_late_question_to_join_brings_back_nobody_who_was_excluded(is_alive: bool) -> None:
    """B's JOIN_REQ is copied, and the copy arrives after B was excluded. Where B lives, it comes
    back by a merge."""
    group = Group("AB")
    group.join("A")
    group.converge("A")
    group.join("B")
    group.converge("AB")
    group.advance(1.0)
    if not is_alive:
        group.crash("B")
    group.suspect("B", at="A")
    head, body = _join_frame(group, "B")
    group.arrive(group["A"], head, body)
    group.advance(1.0)
    assert group["A"].names == "A"
    assert group["A"].drops == {"join-after-leave": 1}
    if is_alive:
        group.disagree()
        group.converge("AB", 2.0)
        assert group["A"].installs[-1].mutual is not None


def test_a_newcomer_that_never_had_a_view_may_ask_again_after_it_was_excluded() -> None:
    group = Group("AB")
    group.join("A")
    group.converge("A")
    lost = group.drop(wire.JOIN_RSP, dest="B", times=99)
    group.join("B")
    group.settle(lambda: group["A"].names == "AB", 5.0)
    group.suspect("B", at="A")
    assert group["A"].names == "A"
    lost.times = lost.taken
    group.converge("AB", 5.0)
    assert group["B"].installs[0].mutual is None


def test_a_digest_that_does_not_know_every_member_lets_nobody_in_yet() -> None:
    """A has no window for B at first: C gets no answer, asks again, and is let in then."""
    group = Group("ABC")
    group.join("A")
    group.converge("A")
    group.join("B")
    group.converge("AB")
    group["A"].unknown = {group["B"].address.short}
    group.join("C")
    group.advance(0.2)
    assert group["A"].names == group["B"].names == "ABC"
    assert group["C"].view is None
    group["A"].unknown = set()
    group.converge("ABC", 1.0)
    group.assert_thawed()


def test_an_answer_nobody_asked_for_is_dropped() -> None:
    group = Group("AB")
    group.join("A")
    group.converge("A")
    stranger = group["B"]
    view = group.view("B:9 BA")
    digest = Digest({member.short: (0, 0) for member in view.members})
    stranger.port.control(
        group["A"].address.short, wire.JOIN_RSP, wire.GMS, body=pack_join_answer(view, digest)
    )
    group.drain(stranger)
    group.advance(0.1)
    assert group["A"].names == "A"
    assert group["A"].drops == {"join-unasked": 1}


def test_only_a_coordinator_lets_in_and_only_who_asks_for_itself() -> None:
    group = Group("ABC")
    group.join("A")
    group.converge("A")
    group.join("B")
    group.converge("AB")
    third = group["C"]
    for dest, who in (("B", "C"), ("A", "B")):
        body = pack_address(group[who].address)
        third.port.control(group[dest].address.short, wire.JOIN_REQ, wire.GMS, body=body)
    group.drain(third)
    group.advance(1.0)
    assert group["B"].drops == {"not-coordinator": 1}
    assert group["A"].drops == {"join-source": 1}
    assert group["A"].names == "AB"


@pytest.mark.slow
@given(
    seed=st.integers(0, 2**32 - 1),
    members=st.integers(1, 8),
    loss=st.sampled_from([0.0, 0.1, 0.4]),
    jitter=st.sampled_from([0.0, 0.05, 1.0]),
    timing=st.sampled_from([COMPATIBLE, FAST]),
    starts=st.lists(st.floats(0.0, 5.0), min_size=8, max_size=8),
)
def test_every_join_ends_in_one_group_whatever_the_network_does(
    seed: int, members: int, loss: float, jitter: float, timing: Timing, starts: list[float]
) -> None:
    """P-26: any start times, losses, copies and delays; pieces are merged."""
    group = Group(members, timing=timing, seed=seed, loss=loss, copies=loss, jitter=jitter)
    for name, start in zip(group.members, starts, strict=False):
        group.at(start, lambda name=name: group.join(name))  # type: ignore[misc]
    group.watch()
    group.advance(15.0)
    group.heal()
    group.converge(limit=60.0)
    group.advance(10.0)
    assert group.is_one(group.live())
    group.assert_thawed()


@pytest.mark.slow
@given(members=st.integers(1, 10), starts=st.lists(st.floats(0.0, 5.0), min_size=10, max_size=10))
def test_first_comers_need_no_merge_where_nothing_is_lost(
    members: int, starts: list[float]
) -> None:
    group = Group(members)
    for name, start in zip(group.members, starts, strict=False):
        group.at(start, lambda name=name: group.join(name))  # type: ignore[misc]
    group.advance(6.0)
    group.converge(limit=10.0)
