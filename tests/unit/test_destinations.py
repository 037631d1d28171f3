"""What an application may write as a destination."""

from __future__ import annotations

from typing import Any

import pytest

from stormcast.node.core.errors import ClosedError, ConfigError
from stormcast.node.core.model import Address
from stormcast.node.core.wire import GROUP
from stormcast.node.destinations import Destinations
from stormcast.node.known_members import KnownMembers
from tests.helpers.channel import address

A = address("a")


class Member:
    """A member whose transport notes whom it is to locate."""

    def __init__(self) -> None:
        self.is_running = True
        self.located: list[Address] = []
        self.transport = self
        self.locate = self.located.append
        self.members = KnownMembers()
        runtime: Any = self
        self.destinations = Destinations(runtime, self.members)

    def check_open(self) -> None:
        if not self.is_running:
            raise ClosedError("closed")


def test_a_member_is_its_address_its_short_id_or_its_name() -> None:
    member = Member()
    member.destinations.meet(A)
    find = member.destinations.find
    assert [find(dest) for dest in (A, A.short, "a", None)] == [A.short, A.short, A.short, GROUP]
    assert member.located == [A]


def test_who_is_not_known_is_located_when_it_is_first_sent_to() -> None:
    member = Member()
    for _ in range(2):
        assert member.destinations.find(A) == A.short
    assert member.located == [A]


def test_a_member_that_has_ended_meets_nobody() -> None:
    member = Member()
    member.is_running = False
    assert member.destinations.find(A) == A.short
    assert member.located == []
    with pytest.raises(ClosedError):
        member.destinations.find("a")


def test_what_is_no_destination_is_refused() -> None:
    no_dest: Any = b"a"
    with pytest.raises(ConfigError, match="dest is of type bytes: write an Address, a short id"):
        Member().destinations.find(no_dest)
    with pytest.raises(ConfigError, match="dest is "):
        Member().destinations.meet(no_dest)
