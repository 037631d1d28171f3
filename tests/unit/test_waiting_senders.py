"""Senders that wait for room in the outbox: woken by room, forgotten when they give up."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from stormcast.node.core.errors import ClosedError
from stormcast.node.turns import Turns
from stormcast.node.waiting_senders import WaitingSenders
from tests.helpers.station import on_a_loop

OUTBOX = 1000


class Member:
    """A member whose outboxes are as full as the test says."""

    def __init__(self) -> None:
        self.stack: Any = self
        self.settings: Any = self
        self.outbox: Any = self
        self.outbox_bytes = OUTBOX
        self.rooms: dict[int, int] = {}
        self.turns = Turns(lambda: 0.0)
        runtime: Any = self
        self.waiting = WaitingSenders(runtime)

    def room(self, dest: int) -> int:
        return self.rooms.get(dest, 0)

    def turn(self) -> int:
        """Do what follows a turn; return how much that was."""
        called, self.turns.after = self.turns.after, []
        for call in called:
            call()
        return len(called)

    async def give_up(self, dest: int) -> None:
        """Wait for a moment, as `wait_for` does."""
        waiting = asyncio.ensure_future(self.waiting.wait(dest))
        await asyncio.sleep(0)
        waiting.cancel()
        with pytest.raises(asyncio.CancelledError):
            await waiting


@on_a_loop
async def test_who_waits_is_woken_when_half_is_free() -> None:
    member = Member()
    waiting = [asyncio.ensure_future(member.waiting.wait(dest)) for dest in (1, 1, 2)]
    await asyncio.sleep(0)
    member.rooms[1] = OUTBOX // 2 - 1
    assert member.turn() == 1
    await asyncio.sleep(0)
    assert not any(one.done() for one in waiting)
    member.rooms[1] = OUTBOX // 2
    assert member.turn() == 1
    await asyncio.sleep(0)
    assert [one.done() for one in waiting] == [True, True, False]
    member.rooms[2] = OUTBOX
    assert member.turn() == 1
    await waiting[2]
    assert member.turn() == 0


@on_a_loop
async def test_who_gives_up_is_forgotten_at_once_and_looked_for_no_more() -> None:
    """One that tries again and again while the outbox stays full grew by a future each time."""
    member = Member()
    stays = asyncio.ensure_future(member.waiting.wait(1))
    for _ in range(100):
        await member.give_up(1)
        await member.give_up(2)
        assert len(member.waiting) == 1
        assert member.turn() == 1
    member.rooms[1] = OUTBOX
    member.turn()
    await stays
    for _ in range(3):
        await member.give_up(1)
    assert len(member.waiting) == 0
    assert member.turn() == 1
    assert member.turn() == 0


@on_a_loop
async def test_all_that_wait_hear_that_there_will_be_no_room() -> None:
    member = Member()
    waiting = [asyncio.ensure_future(member.waiting.wait(dest)) for dest in (1, 2)]
    await asyncio.sleep(0)
    member.waiting.fail(ClosedError("a is closed"))
    for one in waiting:
        with pytest.raises(ClosedError):
            await one
