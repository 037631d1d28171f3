"""A confirmed suspicion of a member that lives: how long it counts, and what ends it."""

from __future__ import annotations

import pytest

from stormcast.node import trace
from stormcast.node.core import wire
from stormcast.node.protocols.events import Doubted
from tests.helpers.group import STACKS, GroupWorld, formed
from tests.helpers.membership import Group


def four() -> Group:
    group = Group("ABCD")
    group.join_all()
    return group


@pytest.mark.parametrize(("age", "rest"), [(9.0, "BC"), (11.0, "BCD")])
def test_a_suspicion_excludes_a_member_for_ten_seconds(age: float, rest: str) -> None:
    """B confirmed D to be dead, and did not coordinate. Then A dies."""
    group = four()
    group.suspect("D", at="B")
    group.advance(age)
    group.crash("A")
    group.suspect("A", at="B")
    group.converge(rest, 1.0)
    asked = [event.members for _when, event in group["B"].events if isinstance(event, Doubted)]
    assert asked == ([(group["D"].address,)] if rest == "BCD" else [])


def test_who_was_suspected_long_ago_is_not_passed_over_by_a_leaver() -> None:
    """A suspected B, which is to make the view without A, a minute ago."""
    group = four()
    group["A"].gms._coordinator._suspects.add((group["B"].address,), group.now)
    group.advance(60)
    group.leave("A")
    group.converge("BCD", 0.5)
    assert [sent.dest for sent in group.sent if sent.head.kind == wire.LEAVE_REQ] == ["B"]


def test_a_suspicion_from_before_a_merge_excludes_nobody_after_it() -> None:
    """A confirms D to be dead when D has answered the leader B already. By the merge view A is the
    first, and D is in it."""
    group = Group("ABCDE")
    group.inject("A:5 AD @ AD", "B:6 B", "C:7 CA @ C", "E:8 E")
    group.rule("delay", wire.MERGE_RSP, source="E", amount=1.0)
    group.disagree("BCE", at="B")
    group.advance(0.5)
    group.suspect("D", at="A")
    group.advance(5)
    assert group.is_one("ABCDE")
    assert len(group["A"].views) == 2


@pytest.mark.parametrize("life", [1.5, 2.5])
def test_a_suspicion_that_waits_for_the_last_view_ages_too(life: float) -> None:
    """D hangs, and the view with E waits 2 s for it; meanwhile B is confirmed to be dead."""
    group = four()
    group.add("E")
    group["A"].gms._coordinator._suspects.life = life
    group.crash("D")
    group.join("E")
    group.settle(lambda: group["A"].names == "ABCDE", 1.0)
    group.suspect("B", at="A")
    group.advance(3)
    asked = [event.members for _when, event in group["A"].events if isinstance(event, Doubted)]
    assert asked == ([(group["B"].address,)] if life < 2 else [])
    assert group["A"].names == ("ABCDE" if life < 2 else "ACDE")


# -- In whole groups ------------------------------------------------------------------------------


def glitch(world: GroupWorld) -> None:
    """The connections that watch D and A are reset, so that A and B ask D whether it lives; what D
    answers B is lost. A hears it, and says so."""
    world.drop("D", wire.I_AM_NOT_DEAD, dest="B", times=99)
    for watcher, peer in (("C", "D"), ("D", "A")):
        world[watcher].stack.on_link(world.short(peer), False, world.now)
        world[watcher].turn()
    world.advance(4)
    world.heal()


@pytest.mark.parametrize("stack", STACKS)
def test_who_is_alive_as_another_member_says_is_not_confirmed_to_be_dead(stack: str) -> None:
    """B asks D, and hears from A that D lives."""
    world = formed("ABCD", stack)
    glitch(world)
    events = world["B"].events(trace.SUSPECT)
    said = [event.stream for event in events if event.peer == world.short("D")]
    assert trace.CONFIRMED not in said
    assert trace.CLEARED in said


@pytest.mark.parametrize("stack", STACKS)
def test_who_was_cleared_long_ago_stays_when_the_coordinator_leaves(stack: str) -> None:
    """Nor does B hear from A that D lives."""
    world = formed("ABCD", stack)
    world.drop("A", wire.UNSUSPECT, dest="B", times=99)
    glitch(world)
    world.advance(120)
    world.depart("A")
    world.advance_until(lambda: world.views_agree("BCD"), 10.0)
    assert world.sizes("B") == [2, 3, 4, 3]
