"""Connections that are retired and not closed yet: how many, and which may take their time."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any

from stormcast.node.core.model import Address
from stormcast.node.transports.connection_state import State
from stormcast.node.transports.retired import Retired

ANN, BOB = Address(1, "ann"), Address(2, "bob")


class Standing:
    """A connection that is open, and ends when its test says so."""

    def __init__(self, table: Table, peer: Address, *, is_stranger: bool = False) -> None:
        self.peer = peer
        self.reader = SimpleNamespace(is_stranger=is_stranger, buffered=0)
        self.is_bounded = False
        self.state = State.OPEN
        self._table = table

    def retire(self) -> None:
        self.state = State.RETIRING

    def bound(self) -> None:
        self.is_bounded = True

    def drop(self, _cause: str) -> None:
        self.state = State.CLOSED
        self._table.retired.end(self)  # type: ignore[arg-type]


class Table:
    """What has the retired ones, and counts what they hold."""

    def __init__(self, most: int = 2) -> None:
        strangers: Any = self
        self.retired = Retired(most, strangers)
        self.counted: list[Standing] = []

    def make_room_for(self, connection: Standing, _size: int) -> None:
        self.counted.append(connection)

    def retire(self, peer: Address, *, is_stranger: bool = False) -> Standing:
        connection: Any = Standing(self, peer, is_stranger=is_stranger)
        self.retired.retire(connection)
        return connection


def test_the_oldest_of_too_many_ends_and_one_of_a_stranger_before_it() -> None:
    table = Table()
    member = table.retire(ANN)
    stranger = table.retire(BOB, is_stranger=True)
    later = table.retire(ANN)
    assert [one.state for one in (member, stranger, later)] == [
        State.RETIRING,
        State.CLOSED,
        State.RETIRING,
    ]
    table.retire(BOB)
    assert member.state is State.CLOSED


def test_of_each_member_one_may_take_its_time() -> None:
    table = Table(most=9)
    first, other = table.retire(ANN), table.retire(BOB)
    assert not table.counted
    second = table.retire(ANN)
    assert (first.is_bounded, second.is_bounded, other.is_bounded) == (True, False, False)
    stranger = table.retire(BOB, is_stranger=True)
    assert (other.is_bounded, stranger.is_bounded) == (True, True)
    assert table.counted == [first, other, stranger]


def test_a_view_bounds_those_who_are_not_in_it_once() -> None:
    table = Table()
    ann, bob = table.retire(ANN), table.retire(BOB)
    for _ in range(2):
        table.retired.on_view({ANN.short})
    assert (ann.is_bounded, bob.is_bounded) == (False, True)
    assert table.counted == [bob]


def test_at_the_end_any_number_may_take_their_time_and_what_has_ended_is_not_waited_for() -> None:
    async def play() -> None:
        table = Table(most=1)
        table.retired.is_closing = True
        made = [table.retire(ANN) for _ in range(3)]
        assert not table.counted
        waiting = asyncio.ensure_future(table.retired.wait(10.0))
        await asyncio.sleep(0)
        for one in made:
            assert not waiting.done()
            one.drop("finished")
        await waiting
        await table.retired.wait(10.0)
        ended: Any = made[0]
        table.retired.retire(ended)
        assert not table.retired.connections

    asyncio.run(play())


def test_waiting_has_an_end() -> None:
    async def play() -> None:
        table = Table()
        stuck = table.retire(ANN)
        await table.retired.wait(0.0)
        assert stuck.state is State.RETIRING

    asyncio.run(play())
