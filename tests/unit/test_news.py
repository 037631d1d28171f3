"""What turns lead to besides frames and deliveries: it is there until it is taken, once."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from stormcast.node.core.model import Address, View, ViewId
from stormcast.node.stack.before_leaving import BeforeLeaving
from stormcast.node.stack.news import News, PendingNews
from stormcast.node.stack.outbox import Outbox
from tests.helpers.parts import ME, Parts

A = Address(ME, "a")
VIEW = View(ViewId(1, A), (A,))


class Pending:
    """News of a member without a group."""

    def __init__(self) -> None:
        parts = Parts()
        self.port = parts.port
        outbox = Outbox(A, parts.port, 1 << 20, has_group=False)
        self.leaving = BeforeLeaving(outbox, parts.unicast, None)
        self.news = PendingNews(parts.port, outbox, self.leaving)


@pytest.mark.parametrize(
    ("happen", "taken"),
    [
        (lambda it: it.news.views.append(VIEW), News([VIEW], [], [], [])),
        (lambda it: it.port.links.append((2, True)), News([], [(2, True)], [], [])),
        (lambda it: it.port.located.update({ME: A}), News([], [], [A], [])),
        (lambda it: it.port.proved.append(A), News([], [], [], [], [A])),
        (lambda it: it.port.doubted.append(2), News([], [], [], [], (), [2])),
    ],
)
def test_news_are_taken_once(happen: Callable[[Pending], None], taken: News) -> None:
    it = Pending()
    assert not it.news.is_any()
    happen(it)
    assert it.news.is_any()
    assert [list(part) for part in it.news.take()] == [list(part) for part in taken]
    assert not it.news.is_any()
    assert not any(it.news.take())


def test_that_a_member_has_left_stays_news() -> None:
    it = Pending()
    it.leaving.start(0.0)
    assert it.news.is_any()
    assert not any(it.news.take())
    assert it.news.is_any()
