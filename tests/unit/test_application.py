"""The order in which an application gets messages and views, also where it exits in between."""

from __future__ import annotations

from typing import Any

import pytest

from stormcast.node.application import Application
from stormcast.node.core.model import View, ViewId
from stormcast.node.protocols.port import Abandoned
from tests.helpers.channel import address, delivery

A, B = address("a"), address("b")
FIRST, SECOND = View(ViewId(1, A), (A,)), View(ViewId(2, A), (A, B))


class User:
    """An application that notes what it gets, and exits once at what it is to exit at."""

    def __init__(self, exits_at: str = "") -> None:
        self.log: list[str] = []
        self.exits_at = exits_at
        self.side = Application()
        self.side.on_deliveries = lambda batches: self.note(
            " ".join(bytes(payload).decode() for batch in batches for payload in batch)
        )
        self.side.on_view = lambda view: self.note(f"view {view.id.number}")
        self.side.on_left = lambda: self.note("left")
        self.side.on_abandoned = lambda lost: self.note(f"abandoned {lost.count}")

    def note(self, line: str) -> None:
        self.log.append(line)
        if line == self.exits_at:
            self.exits_at = ""
            raise KeyboardInterrupt

    def news(self, views: list[View], *abandoned: Abandoned) -> None:
        for step in self.side.view_steps(views) + self.side.abandoned_steps(list(abandoned)):
            step()


BATCHES: Any = [delivery(A, 0, [b"a1"]), delivery(B, 0, [b"b1"])]


def test_a_view_that_came_before_a_message_is_no_news_afterwards() -> None:
    user = User()
    user.news([FIRST])
    user.side.hand_over(BATCHES, [SECOND])
    user.news([SECOND], Abandoned(1, 3, "aged", 3))
    user.news([SECOND])
    assert user.log == ["view 1", "a1", "view 2", "b1", "abandoned 3", "view 2"]


@pytest.mark.parametrize("exits_at", ["a1", "view 2", "b1"])
def test_what_an_exit_leaves_comes_first(exits_at: str) -> None:
    user = User(exits_at)
    user.news([FIRST])
    with pytest.raises(KeyboardInterrupt):
        user.side.hand_over(BATCHES, [SECOND])
    arrived: Any = [delivery(A, 0, [b"a2"])]
    user.side.hand_over(user.side.take_unhanded(arrived), [SECOND])
    assert " ".join(user.log) == "view 1 a1 view 2 b1 a2"
    assert user.side.unhanded == []


@pytest.mark.parametrize("exits_at", ["a1", "view 2", "b1"])
def test_the_last_messages_are_handed_over_whatever_fails(exits_at: str) -> None:
    user = User(exits_at)
    user.news([FIRST])
    last: list[Any] = [BATCHES, [], []]
    failures = user.side.hand_over_last(lambda: last.pop(0), [SECOND])
    assert [type(one) for one in failures] == [KeyboardInterrupt]
    assert user.log == ["view 1", "a1", "view 2", "b1"]


def test_the_end_of_a_leave_is_told_once() -> None:
    user = User()
    user.side.tell_left()
    user.side.tell_left()
    assert user.log == ["left"]
