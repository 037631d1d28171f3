"""What ends a member, and what its exit code says."""

from __future__ import annotations

import asyncio
import signal

import pytest

from stormcast.exits import Exit
from stormcast.node.member.ending import SIGNALLED, Ending
from tests.helpers.station import on_a_loop

UNANSWERED = 7
"""The code of a leave that had its time."""


class Told:
    """The end of a member, and what it says meanwhile."""

    def __init__(self) -> None:
        self.said: list[str] = []
        self.failures: list[Exception] = []
        self.ending = Ending(self.said.append, self.failures.append)


async def forever() -> None:
    await asyncio.Event().wait()


@on_a_loop
async def test_one_signal_has_a_member_leave_in_order() -> None:
    told = Told()
    told.ending.on_signal(signal.SIGTERM)
    leave = asyncio.ensure_future(forever())
    told.ending.cancel_when_told_again(leave)
    assert told.ending.is_told.is_set()
    assert not leave.cancelling()
    assert told.ending.code(UNANSWERED) == UNANSWERED
    assert told.said == ["SIGTERM: it is to leave"]
    leave.cancel()


@pytest.mark.parametrize("leaves_first", [False, True])
@on_a_loop
async def test_a_second_signal_ends_the_leave(*, leaves_first: bool) -> None:
    """Also one that comes before the leave begins."""
    told = Told()
    leave = asyncio.ensure_future(forever())
    if leaves_first:
        told.ending.cancel_when_told_again(leave)
    told.ending.on_signal(signal.SIGTERM)
    told.ending.on_signal(signal.SIGINT)
    if not leaves_first:
        told.ending.cancel_when_told_again(leave)
    assert leave.cancelling()
    assert told.ending.code(0) == SIGNALLED + signal.SIGINT
    assert told.said[-1] == "SIGINT again: it ends at once"


@on_a_loop
async def test_a_bug_ends_a_member_and_a_lost_connection_does_not() -> None:
    told, loop = Told(), asyncio.get_running_loop()
    told.ending.on_failure(loop, {"message": "a socket", "exception": ConnectionResetError()})
    told.ending.on_failure(loop, {"message": "no exception"})
    assert not told.ending.is_told.is_set()
    assert told.ending.code(0) == 0
    bug = ZeroDivisionError()
    told.ending.on_failure(loop, {"message": "a turn", "exception": bug})
    assert told.ending.is_told.is_set()
    assert told.ending.code(0) == Exit.UNKNOWN
    assert told.failures == [bug]
    assert told.said == ["failed: a socket", "failed: no exception", "failed: a turn"]
