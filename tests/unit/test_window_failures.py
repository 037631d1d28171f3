"""A receive window that runs out of memory anywhere in a step: nothing is lost, or there twice."""

from __future__ import annotations

import sys
from collections.abc import Callable
from itertools import count
from types import FrameType

from stormcast.node.core.islands import Piece
from stormcast.node.core.window import ReceiveWindow

SENT = [(1, 2), (4, 5), (9, 10), (3, 8), (14, 15), (12, 12), (17, 17)]
GONE = 13
"""The sender no longer has 11 and 13."""


class Strike:
    """Fails the call of this number that the window makes or is made of."""

    def __init__(self, number: int) -> None:
        self.left = number

    def __call__(self, frame: FrameType, event: str, _what: object) -> None:
        if event in ("call", "c_call") and frame.f_code.co_filename.endswith("core/window.py"):
            self.left -= 1
            if not self.left:
                raise MemoryError


class Life:
    """A window, and what the application got of it."""

    def __init__(self) -> None:
        self.window: ReceiveWindow[str] = ReceiveWindow(0, 100, 1 << 20)
        self.got: list[int] = []

    def take(self, pieces: list[Piece[str]]) -> None:
        self.got += [s for lo, hi, _, item in pieces if item for s in range(lo, hi + 1)]

    def steps(self) -> list[Callable[[], object]]:
        window = self.window
        first, second, third, *rest = SENT
        return [
            lambda: window.add(*first, 10, "one"),
            lambda: window.add(*second, 10, "one"),
            lambda: window.add(*third, 10, "early"),
            lambda: self.take(window.take_early(lambda item: item == "early")),
            lambda: self.take(window.add(*rest[0], 10, "oob", oob=True)),
            *(lambda batch=batch: window.add(*batch, 10, "one") for batch in rest[1:]),
            lambda: self.take(window.take_ready()),
            lambda: window.skip_to(GONE),
            lambda: self.take(window.take_ready()),
        ]

    def do(self, step: Callable[[], object], strike: Strike) -> None:
        """Do a step, and again if it failed: a sender repeats, and the application takes later."""
        sys.setprofile(strike)
        try:
            step()
        except MemoryError:
            sys.setprofile(None)
            self.window.put_back([])
            step()
        finally:
            sys.setprofile(None)


def test_a_step_of_a_receive_window_that_fails_anywhere_loses_nothing() -> None:
    for number in count(1):
        life, strike = Life(), Strike(number)
        for step in life.steps():
            life.do(step, strike)
        life.window.add(16, 16, 10, "last")
        life.take(life.window.take_ready())
        assert sorted(life.got) == [*range(1, 11), 12, *range(14, 18)], number
        assert (len(life.window), life.window.bytes) == (0, 0), number
        if strike.left > 0:
            break
    assert number > 50
