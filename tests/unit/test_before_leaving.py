"""What a member waits for before it leaves: as long as anything moves, and no longer."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import pytest

from stormcast.node.stack.before_leaving import CONFIRM_SECONDS, LOOK_SECONDS, BeforeLeaving


@dataclass
class Window:
    low: int = 0
    high: int = 0

    def __len__(self) -> int:
        return self.high - self.low


@dataclass
class Connection:
    window: Window


@dataclass
class Parts:
    """A stack of which only this is seen: one connection to member 2, and what waits for it."""

    window: Window = field(default_factory=Window)
    own: Window = field(default_factory=Window)
    lanes: dict[int, list[bytes]] = field(default_factory=dict)
    members: frozenset[int] = frozenset((1, 2))
    left_at: float | None = None
    hurried: int = 0

    @property
    def multicast(self) -> Parts:
        return self

    @property
    def stable(self) -> Parts:
        return self

    @property
    def has_backlog(self) -> bool:
        return any(self.lanes.values())

    def send_connections(self) -> dict[int, Connection]:
        return {2: Connection(self.window)}

    def hurry(self, _now: float) -> None:
        self.hurried += 1

    def leave(self, now: float) -> None:
        self.left_at = now


def before(parts: Any, *, in_group: bool = True) -> BeforeLeaving:
    return BeforeLeaving(parts, parts, parts if in_group else None)


def passes(waiting: BeforeLeaving, start: float, end: float) -> None:
    """Let time pass, with a look whenever one is due."""
    while waiting.look_at <= end:
        waiting.look(max(start, waiting.look_at))


def test_it_leaves_at_once_where_nothing_is_open() -> None:
    parts = Parts()
    waiting = before(parts)
    waiting.start(1.0)
    assert (parts.left_at, waiting.is_over) == (1.0, True)
    assert waiting.look_at == float("inf")


@pytest.mark.parametrize(
    "parts",
    [Parts(window=Window(3, 5)), Parts(own=Window(3, 5)), Parts(lanes={2: [b"one"]})],
    ids=["unicasts", "multicasts", "what waits"],
)
def test_it_gives_up_when_nothing_moves(parts: Parts) -> None:
    waiting = before(parts)
    waiting.start(1.0)
    passes(waiting, 1.0, 1.0 + CONFIRM_SECONDS)
    assert parts.left_at is None
    passes(waiting, 1.0, 1.0 + CONFIRM_SECONDS + 2 * LOOK_SECONDS)
    assert parts.left_at is not None
    assert bool(parts.hurried) is not parts.has_backlog, "members hurry where all has left"


@pytest.mark.parametrize("name", ["window", "own"])
def test_a_window_that_stays_full_moves_all_the_same(name: str) -> None:
    """As many messages are open at each look, and others each time."""
    parts = Parts(**{name: Window(0, 10)})
    window: Window = getattr(parts, name)
    waiting = before(parts)
    waiting.start(0.0)
    for second in range(1, 31):
        window.low += 1
        window.high += 1
        passes(waiting, second - 1.0, float(second))
    assert parts.left_at is None
    window.low = window.high
    passes(waiting, 30.0, 31.0)
    assert parts.left_at is not None


def test_what_is_open_to_one_who_is_no_member_is_not_waited_for() -> None:
    parts = Parts(window=Window(3, 5), members=frozenset((1,)))
    before(parts).start(1.0)
    assert parts.left_at == 1.0


def test_without_a_group_only_the_one_who_ordered_it_ends_the_wait() -> None:
    parts = Parts(window=Window(3, 5))
    waiting = before(parts, in_group=False)
    waiting.start(0.0)
    passes(waiting, 0.0, 10 * CONFIRM_SECONDS)
    assert not waiting.is_over
    parts.window.low = 5
    passes(waiting, 10 * CONFIRM_SECONDS, 11 * CONFIRM_SECONDS)
    assert waiting.is_over
    assert parts.left_at is None


def test_a_second_order_changes_nothing() -> None:
    parts = Parts(own=Window(3, 5))
    waiting = before(parts)
    waiting.start(0.0)
    passes(waiting, 0.0, 3.0)
    waiting.start(3.0)
    passes(waiting, 3.0, CONFIRM_SECONDS + 2 * LOOK_SECONDS)
    assert parts.left_at is not None
    parts.left_at = None
    waiting.start(9.0)
    assert parts.left_at is None, "it leaves once"
