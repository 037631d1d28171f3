"""Repeats frames until they are answered: this makes the control frames of a group reliable."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable
from dataclasses import dataclass
from math import inf
from typing import TYPE_CHECKING, Final

from stormcast.node.core import wire

if TYPE_CHECKING:
    from stormcast.node.core.timing import Timing
    from stormcast.node.protocols.port import Port

_SLOWEST: Final = 8
"""The longest wait between repeats, in intervals."""
_PATIENCE: Final = 8
"""A repeat comes after an eighth of the question's age, once that is longer than the interval: old
questions cost little, and still arrive soon after the network heals."""


@dataclass(slots=True)
class _Question:
    dest: int
    kind: int
    lo: int
    body: bytes
    asked: float
    until: float
    due: float
    mark: int
    tries: int = 0


class Repeats:
    """Frames, each under a key, that are sent now and repeated until they are stopped."""

    __slots__ = ("_interval", "_port", "_questions", "_timing", "_wake")

    def __init__(
        self, port: Port, timing: Timing, interval: float, wake: Callable[[float], None]
    ) -> None:
        self._port = port
        self._timing = timing
        self._interval = interval
        self._wake = wake
        self._questions: dict[Hashable, _Question] = {}

    def __contains__(self, key: Hashable) -> bool:
        return key in self._questions

    def __len__(self) -> int:
        return len(self._questions)

    def say(
        self,
        key: Hashable,
        dest: int,
        kind: int,
        lo: int,
        body: bytes,
        now: float,
        until: float = inf,
        *,
        mark: int = 0,
    ) -> None:
        """Send a frame, and again until it is stopped or `until` has passed. Replaces the key."""
        question = _Question(dest, kind, lo, body, now, until, now, mark)
        self._questions[key] = question
        self._send(question, now)
        self._wake(question.due)

    def nudge(self, key: Hashable, now: float) -> None:
        """Repeat the frame of a key now: the other side seems to miss it."""
        self._send(self._questions[key], now)

    def prove(self, key: Hashable, cookie: int, now: float) -> None:
        """Repeat the frame of a key now, from now on with the cookie that the other side sent."""
        self._questions[key].mark = cookie
        self.nudge(key, now)

    def stop(self, key: Hashable) -> None:
        """Stop the repeats of a key: the frame is answered, or no longer matters."""
        self._questions.pop(key, None)

    def stop_all(self, keys: Iterable[Hashable]) -> None:
        """Stop the repeats of several keys."""
        for key in list(keys):
            self._questions.pop(key, None)

    def clear(self) -> None:
        """Stop all repeats."""
        self._questions.clear()

    def on_timer(self, now: float) -> None:
        """Repeat what is due."""
        for key, question in list(self._questions.items()):
            if question.until <= now:
                del self._questions[key]
            elif question.due <= now:
                self._send(question, now)
        self._wake(min((question.due for question in self._questions.values()), default=inf))

    def _send(self, question: _Question, now: float) -> None:
        self._port.control(
            question.dest,
            question.kind,
            wire.GMS,
            question.lo,
            body=question.body,
            mark=question.mark,
            transmission=wire.told_apart(question.tries),
        )
        question.due = now + self._wait(question, now)
        question.tries += 1

    def _wait(self, question: _Question, now: float) -> float:
        wait = self._interval
        if self._timing.adaptive:
            wait = min(wait, 2 * self._timing.initial_rtt * (1 << min(question.tries, 10)))
        aged = (now - question.asked) / _PATIENCE
        return min(max(wait, aged), _SLOWEST * self._interval)
