"""Names and addresses of who is in the view, and of who was met."""

from __future__ import annotations

import pytest

from stormcast.node.core.errors import ConfigError
from stormcast.node.core.model import Address, View, ViewId
from stormcast.node.known_members import KnownMembers
from tests.helpers.channel import address

A, B, C = map(address, "abc")


def known(*members: Address) -> KnownMembers:
    made = KnownMembers()
    made.on_view(View(ViewId(1, members[0]), members))
    return made


def test_of_two_of_one_name_the_one_that_came_last_is_meant() -> None:
    members = known(A, B)
    again = address("a", 2)
    members.add(again)
    assert members.named("a") == again
    assert members.named("b") == B


def test_a_name_that_nobody_has_is_refused_with_those_that_are_there() -> None:
    with pytest.raises(ConfigError, match="no member named 'x' in the view; there is a, b"):
        known(A, B).named("x")


def test_who_is_not_known_is_named_by_the_short_id() -> None:
    assert known(A).of(A.short) == A
    assert known(A).of(0xAB).name == "000000ab"


def test_who_has_left_is_known_until_there_are_too_many() -> None:
    members = known(A, B)
    members.on_view(View(ViewId(2, A), (A,)))
    assert B.short in members
    members.add(C)
    members.on_view(View(ViewId(3, A), (A,)))
    assert A.short in members
    assert B.short not in members


def test_a_name_stands_for_nobody_that_has_left() -> None:
    members = known(A, B)
    members.on_view(View(ViewId(2, A), (A,)))
    assert B.short in members
    assert members.of(B.short) == B
    with pytest.raises(ConfigError, match=r"no member named 'b' in the view; there is a$"):
        members.named("b")


def test_one_that_has_left_does_not_stand_in_the_way_of_its_namesake() -> None:
    again = address("b", 2)
    members = known(A, B)
    members.on_view(View(ViewId(2, A), (A, B, again)))
    assert members.named("b") == again
    members.on_view(View(ViewId(3, A), (A, B)))
    assert members.named("b") == B


def test_one_that_was_met_can_be_named_whatever_views_come_but_not_after_one_that_had_it() -> None:
    members = known(A, B)
    members.add(C)
    members.on_view(View(ViewId(2, A), (A, B)))
    assert members.named("c") == C
    members.on_view(View(ViewId(3, A), (A, B, C)))
    members.add(C)
    members.on_view(View(ViewId(4, A), (A, B)))
    with pytest.raises(ConfigError, match="there is a, b"):
        members.named("c")


def test_one_that_has_left_can_be_met_again() -> None:
    members = known(A, B, C)
    members.on_view(View(ViewId(2, A), (A, B)))
    members.add(C)
    assert members.named("c") == C
