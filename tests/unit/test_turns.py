"""When a member has a turn, and in which order things happen in it."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import suppress
from math import inf
from typing import Any

import pytest

from stormcast.node.core.model import Address, View, ViewId
from stormcast.node.protocols.port import Abandoned
from stormcast.node.stack import News
from stormcast.node.transports.peer_places import MAX_LEARNED
from stormcast.node.turns import TURNS_AT_ONCE, Turns
from tests.helpers.station import on_a_loop

A, B = Address(1, "a", "127.0.0.1[1]"), Address(2, "b", "127.0.0.1[2]")


class Batch:
    """A message of a member."""

    def __init__(self, source: Address, text: str) -> None:
        self.source, self.text = source.short, text

    def __repr__(self) -> str:
        return self.text


def view(number: int, *members: Address) -> View:
    return View(ViewId(number, members[0]), members)


class Member:
    """Turns between a stack and a transport that only note what is done with them."""

    def __init__(self, *, is_watching: bool = False) -> None:
        self.at = 0.0
        self.log: list[str] = []
        self.deadline = inf
        self.arrived: list[Any] = []
        self.own: list[Any] = []
        """Messages of this member, handed over when its turn ends."""
        self.frames: list[Any] = []
        self.news: News | None = None
        self.views: list[View] = []
        self.pending_news: Any = self
        self.has_left = False
        self.is_full = self.is_held = False
        self.room: Any = self
        self.turns = Turns(lambda: self.at)
        self.application = application = self.turns.application
        application.on_deliveries = lambda batches: self.log.append(f"deliver {batches}")
        application.on_view = lambda view: self.log.append(f"view {view.id.number}")
        application.on_left = lambda: self.log.append("left")
        application.on_abandoned = lambda lost: self.log.append(f"abandoned {lost.count}")
        this: Any = self
        self.turns.start(this, this, this if is_watching else None)
        self.log.clear()

    def start(self, _now: float) -> None: ...

    def tick(self, now: float) -> None:
        self.log.append(f"tick {now:g}")
        self.deadline = inf

    def take_deliveries(self) -> list[Any]:
        taken, self.arrived = self.arrived, []
        return taken

    def end_turn(self, _now: float) -> list[Any]:
        self.log.append("end")
        self.arrived, self.own = self.own, []
        return self.frames

    def has_news(self) -> bool:
        return self.news is not None

    def take_news(self) -> News:
        taken, self.news = self.news, None
        self.views = []
        return taken or News([], [], [], [])

    def next_deadline(self) -> float:
        return self.deadline

    def install(self, *views: View) -> None:
        self.views = list(views)
        self.news = News(self.views, [], [], [])

    def stop(self, _now: float) -> list[Any]:
        return ["goodbye"]

    def send(self, frames: list[Any]) -> None:
        self.log.append(f"send {frames}")

    def locate(self, address: Address) -> None:
        self.log.append(f"locate {address}")

    def trust(self, address: Address) -> None:
        self.log.append(f"trust {address}")

    def doubt(self, short: int) -> None:
        self.log.append(f"doubt {short}")

    def on_view(self, _members: object) -> None:
        self.log.append("transport's view")

    def change(self, peer: Address | int, *, is_wanted: bool) -> None:
        where = peer if isinstance(peer, int) else peer.where
        self.log.append(f"watch {where}" if is_wanted else "watch no more")

    def poll(self) -> None:
        self.turns.turn()


@on_a_loop
async def test_answers_leave_before_the_view_is_told_and_own_messages_come_after_it() -> None:
    member = Member()
    member.arrived, member.own, member.frames = ["theirs"], ["own"], ["frame"]
    lost = [Abandoned(1, 3, "aged", 3)]
    member.news = News([view(1, A)], [], [B], lost, [B], [7])
    member.turns.turn()
    assert member.log == [
        "deliver ['theirs']",
        "end",
        "doubt 7",
        "locate b",
        "trust b",
        "send ['frame']",
        "transport's view",
        "view 1",
        "abandoned 3",
        "deliver ['own']",
    ]


@on_a_loop
async def test_a_view_is_told_after_what_came_before_it_and_before_who_is_new_in_it() -> None:
    """A is in; B comes with view 2, C with view 3, and a member that is in no view yet writes."""
    c, stranger = Address(3, "c"), Address(4, "d")
    member = Member()
    member.install(view(1, A))
    member.turns.turn()
    member.log.clear()

    member.install(view(2, A, B), view(3, A, B, c), view(4, A, B))
    member.arrived = [Batch(A, "a1"), Batch(B, "b1"), Batch(stranger, "d1"), Batch(c, "c1")]
    member.own = [Batch(A, "own")]
    member.turns.turn()
    assert [line for line in member.log if "transport" not in line] == [
        "deliver [a1]",
        "view 2",
        "deliver [b1, d1]",
        "view 3",
        "deliver [c1]",
        "end",
        "view 4",
        "deliver [own]",
    ]
    member.install(view(5, A, B))
    member.arrived = [Batch(B, "b2")]
    member.log.clear()
    member.turns.turn()
    assert member.log == ["deliver [b2]", "end", "transport's view", "view 5"]


@pytest.mark.parametrize("strangers", [1, MAX_LEARNED])
@on_a_loop
async def test_who_is_new_in_a_view_is_watched_where_the_view_says(strangers: int) -> None:
    """Whatever strangers have named before: its short id at another place, or so many that there
    is no room for another one."""
    member = Member(is_watching=True)
    named = [Address(B.identity, "x", "127.0.0.9[9]")] if strangers == 1 else []
    named += [Address(1000 + number, "x") for number in range(strangers)]
    member.news = News([], [], named, [])
    member.turns.turn()
    member.log.clear()
    member.news = News([view(1, A, B)], [(B.short, True)], [B], [])
    member.turns.turn()
    assert f"watch {B.where}" in member.log
    member.news = News([view(2, A)], [(B.short, False)], [], [])
    member.turns.turn()
    assert "watch no more" in member.log


@on_a_loop
async def test_a_member_that_ends_is_told_of_the_view_of_whose_message_it_is_given() -> None:
    member = Member()
    member.install(view(1, A))
    member.turns.turn()
    member.log.clear()
    member.install(view(2, A, B))
    member.arrived = [Batch(B, "b1")]
    member.turns.stop()
    assert member.log == ["send ['goodbye']", "view 2", "deliver [b1]"]


@on_a_loop
async def test_a_turn_that_is_asked_for_in_one_follows_it_a_few_times_at_once() -> None:
    member = Member()
    member.application.on_deliveries = lambda _batches: None
    asked = 0

    def ask() -> None:
        nonlocal asked
        asked += 1
        member.turns.turn()
        member.turns.after.append(ask)

    member.turns.after.append(ask)
    member.turns.turn()
    assert asked == TURNS_AT_ONCE
    await asyncio.sleep(0)
    assert asked == 2 * TURNS_AT_ONCE


@on_a_loop
async def test_waking_twice_is_one_turn_as_soon_as_the_loop_is_free() -> None:
    member = Member()
    member.turns.wake()
    member.turns.wake()
    assert member.log == []
    await asyncio.sleep(0)
    assert member.log == ["end"]


@on_a_loop
async def test_while_more_has_come_timers_wait_for_a_while() -> None:
    member = Member()
    member.deadline = 1.0
    member.turns.turn()
    member.at = 1.0
    member.turns.turn(has_more=True)
    assert "tick 1" not in member.log
    member.at = 1.06
    member.turns.turn(has_more=True)
    assert "tick 1.06" in member.log


@on_a_loop
async def test_a_turn_with_a_bug_is_told_and_not_the_last() -> None:
    member = Member()

    def fail() -> None:
        raise ZeroDivisionError

    member.turns.after.append(fail)
    with pytest.raises(ZeroDivisionError):
        member.turns.turn()
    member.turns.turn()
    assert member.log == ["end", "end"]


class Exits:
    """A function that exits the program at its first call with something of this name."""

    def __init__(self, real: Callable[[Any], None], what: str) -> None:
        self._real, self._what = real, what
        self._is_over = False

    def __call__(self, what: Any) -> None:
        self._real(what)
        if not self._is_over and self._what in str(what):
            self._is_over = True
            raise KeyboardInterrupt


def told(member: Member) -> list[str]:
    """What the application was told or given."""
    return [line for line in member.log if line.startswith(("deliver", "view", "abandoned"))]


@pytest.mark.parametrize("at", ["b1", "a:2", "a:3"])
@pytest.mark.parametrize("is_last", [False, True])
@on_a_loop
async def test_what_is_left_of_a_turn_whose_callback_exits_comes_first(
    at: str, *, is_last: bool
) -> None:
    """In the next turn, or when the member ends."""
    c = Address(3, "c")
    member = Member()
    member.install(view(1, A))
    member.turns.turn()
    member.log.clear()
    member.application.on_deliveries = Exits(member.application.on_deliveries, at)
    member.application.on_view = Exits(member.application.on_view, at)
    member.install(view(2, A, B), view(3, A, B, c))
    member.arrived = [Batch(A, "a1"), Batch(B, "b1"), Batch(c, "c1")]
    with pytest.raises(KeyboardInterrupt):
        member.turns.turn()
    member.arrived.append(Batch(c, "c2"))
    member.turns.stop() if is_last else member.turns.turn()
    assert "".join(told(member)).replace("deliver ", "") == "[a1]view 2[b1]view 3[c1, c2]"


@on_a_loop
async def test_a_callback_that_exits_takes_no_other_news() -> None:
    """Nor the next view: each is told of once, and so is what was given up."""
    member = Member()
    member.application.on_view = Exits(member.application.on_view, "a:1")
    lost = [Abandoned(1, 3, "aged", 3), Abandoned(1, 4, "aged", 7)]
    member.views = [view(1, A), view(2, A, B)]
    member.news = News(member.views, [], [], lost)
    with pytest.raises(KeyboardInterrupt):
        member.turns.turn()
    member.install(view(3, A))
    member.turns.turn()
    assert told(member) == ["view 1", "view 2", "abandoned 3", "abandoned 4", "view 3"]


@pytest.mark.parametrize("fails", ["trust", "send", "a:2", "a1", "b1", "abandoned 3"])
@on_a_loop
async def test_a_failure_at_the_end_of_a_member_takes_nothing_else(fails: str) -> None:
    """A turn left a notice, the windows had messages, and the stack gives something up."""
    member = Member()
    member.news = News([], [], [], [Abandoned(1, 1, "aged", 1), Abandoned(1, 2, "aged", 2)])
    turns = member.turns
    application = member.application
    real = application.on_abandoned
    application.on_abandoned = Exits(real, "count=1")
    with pytest.raises(KeyboardInterrupt):
        turns.turn()
    application.on_abandoned = Exits(real, "count=2" if fails.startswith("abandoned") else "none")
    application.on_deliveries = Exits(application.on_deliveries, fails)
    application.on_view = Exits(application.on_view, fails)
    if fails in {"trust", "send"}:
        setattr(member, fails, Exits(getattr(member, fails), ""))
    views = [view(1, A), view(2, A, B)]
    lost = [Abandoned(1, 3, "stop", 3), Abandoned(1, 4, "stop", 4)]
    member.news = News(views, [], [], lost, [A, B], [])
    member.arrived = [Batch(A, "a1"), Batch(B, "b1")]
    with pytest.raises(KeyboardInterrupt):
        turns.stop()
    assert "|".join(told(member)).replace("abandoned ", "").replace("deliver ", "") == (
        "1|2|view 1|[a1]|view 2|[b1]|3|4"
    )
    assert {"trust a", "trust b", "send ['goodbye']"} <= set(member.log)


@pytest.mark.parametrize("fails", ["locate", "send", "change", "on_view"])
@on_a_loop
async def test_news_outlast_a_turn_that_failed(fails: str) -> None:
    member = Member(is_watching=True)
    real = getattr(member, fails)

    def fail(*_rest: Any, **_named: Any) -> None:
        setattr(member, fails, real)
        raise ZeroDivisionError

    setattr(member, fails, fail)
    member.views = [view(1, A, B)]
    lost = [Abandoned(1, 3, "aged", 3)]
    member.news = News(member.views, [(B.short, True), (7, True)], [A, B], lost, [B], [])
    member.frames = ["frame"]
    for _ in range(3):
        with suppress(ZeroDivisionError):
            member.turns.turn()
    assert told(member) == ["view 1", "abandoned 3"]
    assert {"locate b", "trust b", "watch 7"} <= set(member.log)


@on_a_loop
async def test_a_call_that_fails_after_a_turn_takes_no_other() -> None:
    member = Member()
    called: list[int] = []
    member.turns.after += [lambda: called.append(1 // 0), lambda: called.append(2)]
    with pytest.raises(ZeroDivisionError):
        member.turns.turn()
    member.turns.turn()
    assert called == [2]


@on_a_loop
async def test_the_end_of_a_leave_is_told_once() -> None:
    member = Member()
    member.has_left = True
    for _ in range(2):
        member.news = News([], [], [], [])
        member.turns.turn()
    assert member.log.count("left") == 1


@on_a_loop
async def test_last_words_leave_and_then_there_is_no_turn() -> None:
    member = Member()
    member.turns.stop()
    member.turns.turn()
    assert member.log == ["send ['goodbye']"]
