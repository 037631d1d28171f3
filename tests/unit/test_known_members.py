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
