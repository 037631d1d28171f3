"""The whole stack while members come and go: what detectors, links, streams and views do together.

What one protocol owes alone is shown elsewhere; here every layer runs, and messages are under way.
"""

from __future__ import annotations

from collections.abc import Mapping
from random import Random

import pytest

from stormcast.node import trace
from stormcast.node.core import wire
from stormcast.node.core.model import View
from stormcast.node.core.wire import FD_ALL3, HEARTBEAT
from stormcast.node.protocols.layer import Layer
from tests.helpers.group import ALWAYS, QUIET, STACKS, GroupWorld, formed, numbered
from tests.helpers.world import TIMINGS

everywhere = pytest.mark.parametrize(
    ("stack", "timing"), [(stack, timing) for stack in STACKS for timing in TIMINGS]
)
HASTY: Mapping[str, Mapping[str, object]] = {
    "MERGE3": {"min_interval": 0.5, "max_interval": 1.0, "check_interval": 3.0},
}
"""Merging as the rows have it: their limits of 20 to 50 s are for this."""
TEN = "ABCDEFGHIJ"


def speak(world: GroupWorld, names: str, first: int, last: int) -> None:
    """Everybody multicasts, then sends the same to everybody else."""
    for name in names:
        world.multicast(name, *numbered(first, last))
    for name in names:
        for other in names:
            if other != name:
                world[name].send(*numbered(first, last), to=other)


def assert_spoken(world: GroupWorld, names: str, messages: int) -> None:
    """Exactly that arrived everywhere, in order within each stream, and nothing else did."""
    for name in names:
        for sender in names:
            streams = [
                [
                    bytes(payload)
                    for delivery in world[name].deliveries
                    if delivery.source == world.short(sender)
                    and delivery.is_multicast == is_multicast
                    for payload in delivery
                ]
                for is_multicast in (True, False)
            ]
            assert streams == [
                numbered(1, messages),
                [] if sender == name else numbered(1, messages),
            ]


def suspicions(world: GroupWorld) -> int:
    return sum(
        event.stream == trace.SUSPECTED
        for member in world
        for event in member.events(trace.SUSPECT)
    )


# -- Joins and leaves -------------------------------------------------------------------------


@everywhere
def test_two_that_join_hear_each_other_and_a_second_join_changes_nothing(
    stack: str, timing: str
) -> None:
    """G-02: B asks to join although it is in."""
    world = formed("AB", stack, timing)
    world.join("B")
    speak(world, "AB", 1, 1)
    world.advance(30.0)
    assert_spoken(world, "AB", 1)
    assert world.sizes("A") == [1, 2]
    assert world.sizes("B") == [2]


@pytest.mark.parametrize(("leaver", "other"), ["AB", "BA"])
@everywhere
def test_who_remains_sees_one_new_view(stack: str, timing: str, leaver: str, other: str) -> None:
    """G-09: whether it was the coordinator that left, or the other."""
    world = formed("AB", stack, timing)
    before = world.sizes(other)
    world.depart(leaver)
    world.advance(60.0)
    assert world.sizes(other) == [*before, 1]
    assert world.view(other) == other
    assert suspicions(world) == 0


@pytest.mark.slow
@everywhere
def test_a_member_comes_and_goes_ten_times(stack: str, timing: str) -> None:
    """G-10: each time the other sees a view of one, then of two, within five seconds."""
    world = formed("AB", stack, timing)
    for _again in range(10):
        world.depart("B")
        world.advance_until(lambda: world.view("A") == "A", 5.0)
        world.comes_back("B")
        world.advance_until(lambda: world.views_agree("AB"), 5.0)
    assert world.sizes("A") == [1, *[2, 1] * 10, 2]


@everywhere
def test_a_coordinator_comes_back_as_the_last(stack: str, timing: str) -> None:
    """G-10: B coordinates meanwhile, and goes on to."""
    world = formed("AB", stack, timing)
    world.depart("A")
    world.advance_until(lambda: world.view("B") == "B", 5.0)
    world.comes_back("A")
    world.advance_until(lambda: world.views_agree("AB"), 5.0)
    assert world.view("A") == world.view("B") == "BA"


@everywhere
def test_who_leaves_one_group_for_another_is_heard_there_only(
    stack: str, timing: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """G-12: both groups are on the same wire."""
    world = formed("AB", stack, timing)
    monkeypatch.setattr("tests.helpers.world.CLUSTER", "other")
    world.start("C")
    world.join("C")
    world.advance_until(lambda: world.view("C") == "C", 30.0)
    world.depart("B")
    world.comes_back("B")
    world.advance_until(lambda: world.views_agree("BC"), 10.0)
    world.multicast("B", b"here")
    world["B"].send(b"you", to="C")
    world.advance(30.0)
    assert world.got("C", "B") == [b"here", b"you"]
    assert world.got("A", "B") == []
    assert world.view("A") == "A"
    assert world["A"].refused["cluster"] > 0


@everywhere
def test_who_comes_back_gets_what_is_sent_from_then_on_and_nothing_twice(
    stack: str, timing: str
) -> None:
    """G-13: five unicasts and five multicasts, B leaves and comes back, and the same again."""
    world = formed("AB", stack, timing)
    for _again in range(2):
        world.multicast("A", *numbered(1, 5))
        world["A"].send(*numbered(1, 5), to="B")
        world.settle()
        assert world["B"].take() == [*numbered(1, 5), *numbered(1, 5)]
        world.depart("B")
        world.comes_back("B")
        world.advance_until(lambda: world.views_agree("AB"), 5.0)
    world.settle()
    assert world["B"].take() == []


@everywhere
def test_in_the_view_callback_a_member_is_in_that_view(stack: str, timing: str) -> None:
    """G-15: the view is in force when the application hears of it, and ranks are those of age."""
    world = GroupWorld("ABCD", stack, timing, joined=False)
    told = []

    def check(name: str, view: View) -> None:
        told.append(name)
        assert world[name].stack.view is view
        assert world[name].stack.role.is_server

    world.on_view = check
    for count, name in enumerate("ABCD", 1):
        world.join(name)
        world.advance_until(lambda: world.views_agree("ABCD"[:count]), 30.0)  # noqa: B023 called at once
    assert "".join(sorted(told)) == "AAAABBBCCD"
    assert {world.view(name) for name in "ABCD"} == {"ABCD"}


@pytest.mark.parametrize("leaver", "ABC")
@everywhere
def test_nobody_sees_a_view_without_itself_nor_any_after_leaving(
    stack: str, timing: str, leaver: str
) -> None:
    """G-16, P-24: and the numbers of what each sees only grow."""
    world = formed("ABC", stack, timing)
    world.leave(leaver)
    world.advance(30.0)
    assert world[leaver].stack.view is None
    last = len(world.seen[leaver])
    world.start("D")
    world.join("D")
    world.advance(30.0)
    assert len(world.seen[leaver]) == last
    for name, views in world.seen.items():
        assert all(world[name].address in view.members for view in views)
        numbers = [view.id.number for view in views]
        assert numbers == sorted(set(numbers))


@pytest.mark.slow
@pytest.mark.parametrize("leavers", ["A", "F", "AB", "BA", "ABCDEFGH", "HGFEDCBA", "CFI"])
@pytest.mark.parametrize("stack", STACKS)
@pytest.mark.parametrize("timing", TIMINGS)
def test_any_of_ten_leave_at_once_while_all_speak(stack: str, timing: str, leavers: str) -> None:
    """G-17, G-20, G-23: the rest share one view in the old order and nobody is suspected; what was
    said before is heard by all who stay."""
    world = formed(TEN, stack, timing, protocols=QUIET)
    world.multicast(leavers[0], *numbered(1, 20))
    world.multicast("J", *numbered(1, 20))
    world.depart(*leavers)
    rest = "".join(name for name in TEN if name not in leavers)
    world.advance_until(lambda: world.views_agree(rest), 20.0)
    world.multicast("J", *numbered(21, 40))
    world.settle()
    assert {world.view(name) for name in rest} == {rest}
    assert all(world[name].stack.view is None for name in leavers)
    assert world.everyone_got("J", numbered(1, 40), rest)
    assert world.everyone_got(leavers[0], numbered(1, 20), rest)
    assert suspicions(world) == 0


@pytest.mark.slow
@everywhere
def test_five_coordinators_leave_one_after_the_other(stack: str, timing: str) -> None:
    """G-18: the sixth coordinates the rest; a stream across all of it has no gap."""
    world = formed(TEN, stack, timing, protocols=QUIET)
    for count, leaver in enumerate("ABCDE"):
        world.multicast("J", *numbered(10 * count + 1, 10 * count + 10))
        world.depart(leaver)
        world.advance_until(lambda: world.views_agree(TEN[count + 1 :]), 20.0)  # noqa: B023 called at once
    world.settle()
    assert {world.view(name) for name in "FGHIJ"} == {"FGHIJ"}
    assert world.everyone_got("J", numbered(1, 50), "FGHIJ")
    assert suspicions(world) == 0


@everywhere
def test_a_member_that_is_alone_leaves_at_once(stack: str, timing: str) -> None:
    """G-17: there is nobody to ask."""
    world = formed("A", stack, timing)
    world.leave("A")
    assert world["A"].stack.has_left
    assert world["A"].stack.view is None


@everywhere
def test_a_view_callback_may_send(stack: str, timing: str) -> None:
    """U-42: A greets whoever comes, by unicast and by multicast, from within the callback."""
    world = formed("AB", stack, timing)

    def greet(name: str, view: View) -> None:
        if name == "A" and len(view.members) == 3:
            world["A"].send(b"hello", to="C")
            world.multicast("A", b"hello")

    world.start("C")
    world.on_view = greet
    world.join("C")
    world.advance_until(lambda: world.views_agree("ABC"), 10.0)
    world.settle()
    assert world.got("C", "A") == [b"hello", b"hello"]
    assert world.got("B", "A") == [b"hello"]


# -- Views that differ --------------------------------------------------------------------------


@everywhere
def test_unicasts_do_not_care_for_views(stack: str, timing: str) -> None:
    """U-48, U-51: all in one view, then C thinks it is alone; everybody sends five to everybody,
    itself included."""
    world = GroupWorld("ABC", stack, timing)
    for _again in range(2):
        for name in "ABC":
            for other in "ABC":
                world[name].send(*numbered(1, 5), to=other)
        world.settle()
        for name in "ABC":
            for sender in "ABC":
                assert world[name].from_(sender) == numbered(1, 5)
            assert len(world[name].take()) == 15
        world.install("C", number=10)


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(5))
@everywhere
def test_whatever_views_members_hold_unicasts_arrive_once(
    stack: str, timing: str, seed: int
) -> None:
    """P-13: any view with oneself in it, new ones while messages are under way."""
    dice = Random(seed)
    world = GroupWorld("ABCD", stack, timing)
    world.weather(seed, loss=0.1, copies=0.1, spread=0.01)
    for turn in range(6):
        for name in "ABCD":
            others = [other for other in "ABCD" if other == name or dice.random() < 0.5]
            dice.shuffle(others)
            world.install("".join(others), at=name, number=10 * turn + dice.randrange(2, 10))
        for name in "ABCD":
            for other in "ABCD":
                world[name].send(*numbered(5 * turn + 1, 5 * turn + 5), to=other)
        world.advance(dice.random())
    world.heal()
    world.settle()
    for name in "ABCD":
        for sender in "ABCD":
            assert world[name].from_(sender) == numbered(1, 30)


VIEWS: Mapping[str, Mapping[str, str]] = {
    "M-07": {"A": "AB", "B": "AB", "C": "CD", "D": "CD"},
    "M-07 alone": {"A": "A", "B": "B", "C": "C", "D": "D"},
    "M-10": {"A": "AB", "B": "B"},
    "M-14": {"A": "A", "B": "ABCD", "C": "ABCD", "D": "ABCD"},
    "M-28": {"A": "AC", "B": "ABC", "C": "ABC"},
    "M-31": {"A": "A", "B": "AB", "C": "ABC"},
    "M-33": {"A": "AB", "B": "BC", "C": "C"},
}


@pytest.mark.slow
@pytest.mark.parametrize("row", VIEWS)
@everywhere
def test_from_whatever_views_all_come_to_one_and_then_hear_all(
    stack: str, timing: str, row: str
) -> None:
    """M-07 to M-33, with M-26 before: everybody multicasts five, views are made to differ by hand,
    merging makes one of them within 30 s, and then five more of everybody are heard by all."""
    held = VIEWS[row]
    names = "".join(held)
    world = formed(names, stack, timing, protocols=HASTY)
    speak(world, names, 1, 5)
    world.settle()
    assert_spoken(world, names, 5)
    top = max(world.seen["A"][-1].id.number, 4)
    for number, (name, members) in enumerate(held.items(), top + 1):
        # As the rows have it: who coordinates names the view, and numbers differ where views do.
        world.install(members, at=name, number=top + 1 if members == held["A"] else number)
    world.advance_until(lambda: world.views_agree(names), 30.0)
    speak(world, names, 6, 10)
    world.settle()
    assert_spoken(world, names, 10)
    world.advance(30.0)
    assert world.views_agree(names)


@pytest.mark.slow
@everywhere
def test_a_group_split_in_the_middle_is_one_again_after_one_merge(stack: str, timing: str) -> None:
    """M-13: two halves by a real partition; the view that unites them is a merge of just those."""
    world = formed("ABCD", stack, timing, protocols=HASTY)
    world.partition("AB", "CD")
    world.advance_until(lambda: world.views_agree("AB") and world.views_agree("CD"), 90.0)
    for name in "ABCD":
        world.multicast(name, *numbered(1, 5))
    world.settle()
    assert world.everyone_got("A", numbered(1, 5), "AB")
    assert world.got("C", "A") == []
    world.heal()
    world.advance_until(lambda: world.views_agree("ABCD"), 30.0)
    for name in "ABCD":
        merges = [event for event in world[name].events(trace.VIEW) if event.stream == trace.MERGE]
        assert [event.count for event in merges] == [4]
        world.multicast(name, *numbered(6, 10))
    world.settle()
    assert world.everyone_got("A", numbered(1, 10), "AB")
    assert world.everyone_got("A", numbered(6, 10), "CD")
    assert world.everyone_got("D", numbered(6, 10), "AB")


@pytest.mark.slow
@everywhere
def test_two_coordinators_do_not_take_a_member_from_each_other_for_ever(
    stack: str, timing: str
) -> None:
    """C coordinates B, and does not hear A; B hears both. A does not merge with B alone."""
    world = formed("ACB", stack, timing)
    world.partition("A", "CB")
    world.advance_until(lambda: world.agrees("A") and world.agrees("CB"), 120.0)
    world.join_again()
    world.cut("A", "C")
    # Long enough for each to be heard of.
    world.advance(60.0 if timing == "compatible" else 10.0)
    views = world.sizes("B")
    world.advance(200.0 if timing == "compatible" else 40.0)
    assert world.sizes("B") == views
    world.heal()
    world.advance_until(lambda: world.agrees("ABC"), 60.0)


@everywhere
def test_two_that_hear_nothing_part_and_meet_again(stack: str, timing: str) -> None:
    """U-45: each is alone, then both are together, and unicasts flow again."""
    world = formed("AB", stack, timing, protocols=HASTY)
    speak(world, "AB", 1, 5)
    world.settle()
    world.partition("A", "B")
    world.advance_until(lambda: world.view("A") == "A" and world.view("B") == "B", 90.0)
    world.heal()
    world.advance_until(lambda: world.views_agree("AB"), 30.0)
    speak(world, "AB", 6, 10)
    world.settle()
    assert_spoken(world, "AB", 10)
    assert world.sizes("A") == [1, 2, 1, 2]


# -- Detectors ------------------------------------------------------------------------------------


@pytest.mark.slow
@everywhere
def test_who_loses_everything_is_excluded_and_blocks_nobody_for_longer(
    stack: str, timing: str
) -> None:
    """F-11: B's wire is cut while A multicasts more than fits; C has all of it in the end."""
    small = {"window_messages": 20}
    name = "MCAST" if stack == "mcast" else "NAKACK2"
    world = formed("ABC", stack, timing, protocols={name: small})
    world.partition("AC", "B")
    world.multicast("A", *numbered(1, 100))
    world.advance(0.2)
    assert len(world.got("C", "A")) < 100
    world.advance_until(lambda: world.views_agree("AC"), 90.0)
    world.settle()
    assert world.got("C", "A") == numbered(1, 100)
    assert world.got("B", "A") == []
    assert world.unpurged("A") == 0


@everywhere
def test_who_is_suspected_and_answers_stays_in(stack: str, timing: str) -> None:
    """F-04: C's heartbeats are lost for good; it is suspected time and again, and cleared."""
    world = formed("ABC", stack, timing)
    world.drop("C", HEARTBEAT, protocol=FD_ALL3, times=ALWAYS)
    world.advance(5 * world.settings.of("FD_ALL3").timeout)
    seen = [event.stream for event in world["A"].events(trace.SUSPECT)]
    assert seen.count(trace.SUSPECTED) > 1
    assert seen.count(trace.CLEARED) > 1
    assert trace.CONFIRMED not in seen
    assert world.sizes("A") == [1, 2, 3]
    assert world.views_agree("ABC")


@everywhere
def test_one_lost_answer_excludes_nobody(stack: str, timing: str) -> None:
    """C's connection to D is reset, and what D answers A is lost once."""
    world = formed("ABCD", stack, timing)
    world.drop("D", wire.I_AM_NOT_DEAD, dest="A", times=1)
    world["C"].stack.on_link(world.short("D"), False, world.now)
    world["C"].turn()
    world.advance(4)
    assert world.sizes("A") == [1, 2, 3, 4]
    assert world.views_agree("ABCD")


# -- What is left, and what everybody sees ------------------------------------------------------


@pytest.mark.slow
@pytest.mark.parametrize("how", ["leaves", "crashes"])
@everywhere
def test_nothing_is_kept_for_who_is_gone(stack: str, timing: str, how: str) -> None:
    """P-10: neither windows nor acks, credits, suspicions or queues, and nobody speaks to it."""
    world = formed("ABC", stack, timing, protocols=HASTY)
    speak(world, "ABC", 1, 5)
    gone = world.short("C")
    if how == "leaves":
        world.depart("C")
    else:
        world["A"].send(*numbered(6, 10), to="C")
        world["C"].crash()
    world.advance_until(lambda: world.views_agree("AB"), 90.0)
    world.advance(1.1 * world.settings.unicast_config.conn_close_timeout)
    for name in "AB":
        stack_of = world[name].stack
        assert gone not in stack_of.unicast.send_connections()
        assert gone not in stack_of.unicast.receive_connections()
        assert world[name].cached() == 0
        group = stack_of.group
        assert group is not None
        assert gone not in group.destinations()
        assert gone not in group.multicast.inbound()
        if stack == "mcast":
            assert world.acks(name).of(gone) is None
        assert group.fd_all is not None
        assert gone not in group.fd_all.tracked
        assert not group.fd_all.suspects
        fd_sock = group.protocols.fd_sock
        assert fd_sock is not None
        assert not fd_sock.suspects
        verify = group.protocols.verify
        assert verify is not None
        assert not verify.pending
        assert stack_of.outbox.pending(gone) == 0
        # Without a budget it could be sent to without limit, were it there.
        assert group.flow[14].room(gone) > 1 << 50
    before = len(world.wire)
    world.advance(60.0)
    assert all(sent.head.dest != gone for sent in world.wire[before:])


@pytest.mark.slow
@everywhere
def test_all_layers_see_the_same_views_in_the_same_order(stack: str, timing: str) -> None:
    """P-25: through joins, a crash, a split and a merge; windows and detectors cover just the
    members."""
    world = GroupWorld("ABCD", stack, timing, joined=False, protocols=HASTY)
    seen: dict[str, dict[str, list[View]]] = {name: {} for name in "ABCD"}
    for member in world:
        group = member.stack.group
        assert group is not None
        for layer in group.protocols.layers.values():
            _watch(layer, seen[member.name].setdefault(type(layer).__name__, []))
    world.join(*"ABCD")
    world.advance_until(lambda: world.views_agree("ABCD"), 60.0)
    world["D"].crash()
    world.advance_until(lambda: world.views_agree("ABC"), 90.0)
    world.partition("A", "BC")
    world.advance_until(lambda: world.views_agree("A") and world.views_agree("BC"), 90.0)
    world.heal()
    world.advance_until(lambda: world.views_agree("ABC"), 30.0)
    for name in "ABC":
        assert len(seen[name]) >= 7
        for views in seen[name].values():
            assert views == world.seen[name]
        group = world[name].stack.group
        assert group is not None
        assert group.fd_all is not None
        view = world.seen[name][-1]
        others = {member.short for member in view.members} - {world.short(name)}
        assert set(group.multicast.inbound()) == others
        assert group.fd_all.tracked == others


def _watch(layer: Layer, views: list[View]) -> None:
    """Note every view that a layer is told of."""
    on_view = layer.on_view

    def noted(view: View, now: float) -> None:
        views.append(view)
        on_view(view, now)

    layer.on_view = noted  # type: ignore[method-assign]


@everywhere
def test_who_founded_a_group_looks_for_nobody_any_more(stack: str, timing: str) -> None:
    """The last request and the end of the search may be due at the same moment."""
    world = GroupWorld("ABC", stack, timing, joined=False)
    world.join("A", "B", "C")
    world.advance(10.0)
    assert world.agrees("ABC")
    before = world.count(kind=wire.GET_MBRS_REQ)
    world.advance(30.0)
    assert world.count(kind=wire.GET_MBRS_REQ) == before


@everywhere
def test_groups_that_never_met_merge_as_soon_as_those_that_did(stack: str, timing: str) -> None:
    """Each is a stranger to the other, has to prove where it is, and is one group with it within
    the time of one check: also where one frame in five is lost."""
    protocols = {"MERGE3": {"min_interval": 0.5, "max_interval": 1.0, "check_interval": 3.0}}
    world = GroupWorld("ABCDE", stack, timing, joined=False, protocols=protocols)
    world.partition("AB", "CDE")
    for number, name in enumerate("ABCDE"):
        world.join(name)
        group = "AB" if number < 2 else "CDE"
        world.advance_until(lambda: world.views_agree(group[: group.index(name) + 1]), 60.0)  # noqa: B023 called at once
    world.weather(loss=0.2)
    world.join_again()
    world.advance_until(lambda: world.views_agree("ABCDE"), 25.0)
    assert world.sent(kind=wire.COOKIE)
    assert world.sizes("A")[-1] == 5
    world.heal()
    world.multicast("B", *numbered(1, 5))
    world.settle()
    assert world.everyone_got("B", numbered(1, 5), "ACDE")
