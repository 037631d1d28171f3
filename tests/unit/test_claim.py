"""Which run has a keeper, and the pauses of its member: each for as long as its lease."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import Callable, Coroutine
from typing import Any

import pytest

from stormcast.node.keeper.busy import BusyError
from stormcast.node.keeper.claim import Claim
from stormcast.node.keeper.pauses import Pauses

SOON = 0.01


class Process:
    """A member process that notes its signals."""

    def __init__(self) -> None:
        self.code: int | None = None
        self.is_paused = False
        self.signals: list[signal.Signals] = []

    def signal(self, number: signal.Signals) -> None:
        self.signals.append(number)


def plays(story: Callable[[], Coroutine[Any, Any, None]]) -> Callable[[], None]:
    return lambda: asyncio.run(story())


@plays
async def test_one_run_at_a_time_has_the_keeper() -> None:
    said: list[str] = []
    claim = Claim(said.append, lambda: None)
    assert claim.take("a", 30.0)
    assert not claim.take("a", 30.0), "it had it"
    with pytest.raises(BusyError, match="run a has this member"):
        claim.take("b", 30.0)
    assert not claim.release("b")
    assert claim.release("a")
    assert claim.take("b", 30.0)
    assert said == ["run a has the member now", "run b has the member now"]
    claim.release("b")


@plays
async def test_a_claim_lapses_unless_it_is_made_again_or_given_back() -> None:
    lapsed: list[str] = []
    claim = Claim(lambda _line: None, lambda: lapsed.append(claim.run))
    claim.take("a", SOON)
    claim.take("a", 30.0)
    await asyncio.sleep(5 * SOON)
    assert not lapsed
    claim.take("a", SOON)
    await asyncio.sleep(5 * SOON)
    assert lapsed == ["a"], "whose claim has lapsed has the keeper until it is taken"
    claim.release("a")
    claim.take("b", SOON)
    claim.release("b")
    await asyncio.sleep(5 * SOON)
    assert lapsed == ["a"]


@plays
async def test_a_pause_ends_with_its_lease_unless_it_is_renewed() -> None:
    said: list[str] = []
    pauses, member = Pauses(said.append), Process()
    one: Any = member
    assert pauses.begin(one, SOON)
    assert not pauses.begin(one, SOON), "it was paused"
    pauses.renew(one, 30.0)
    await asyncio.sleep(5 * SOON)
    assert (member.is_paused, pauses.lapses) == (True, 0)
    pauses.renew(one, SOON)
    await asyncio.sleep(5 * SOON)
    assert (member.is_paused, pauses.lapses) == (False, 1)
    assert member.signals == [signal.SIGSTOP, signal.SIGSTOP, signal.SIGCONT]
    assert said == ["nobody renewed the pause: the member goes on"]


@plays
async def test_the_pause_of_a_member_that_ended_or_was_resumed_does_not_lapse() -> None:
    pauses = Pauses(lambda _line: None)
    ended, resumed = Process(), Process()
    one: Any = ended
    pauses.begin(one, SOON)
    ended.code, ended.is_paused = 0, False
    await asyncio.sleep(5 * SOON)
    pauses.renew(one, SOON)
    other: Any = resumed
    pauses.begin(other, SOON)
    pauses.end(other)
    pauses.renew(other, SOON)
    pauses.end(None)
    await asyncio.sleep(5 * SOON)
    assert pauses.lapses == 0
    assert resumed.signals == [signal.SIGSTOP, signal.SIGCONT]
