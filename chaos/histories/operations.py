"""Operations of clients, and the history that they make."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from math import inf
from typing import Final

from stormcast.chaos.histories.values import NULL, Value, shown

NEVER: Final = 2**62
"""Stands in place of the line of an end that never came: later than every line."""


class HistoryError(ValueError):
    """What the caller asks for does not make sense. Lines of a history never raise it."""


class Outcome(Enum):
    """The end of an operation, as its client says it."""

    OK = "ok"
    """It happened, once, between its invocation and this line."""
    FAIL = "fail"
    """It did not happen, and never will."""
    INFO = "info"
    """Nobody knows: it happens once, at any time from its invocation on, or never. An operation
    whose end is missing has this outcome, too."""


@dataclass(frozen=True, slots=True)
class Operation:
    """One operation of one client process.

    Lines order what happened: an operation whose end stands before the invocation of another one
    came before it. Times say when, for fault windows and reports.
    """

    process: str
    f: str
    key: Value
    argument: Value | None
    """The value of the invocation; None where the line has none."""
    result: Value | None
    """The value of the end, if that is `ok`; None where the line has none."""
    outcome: Outcome
    invoked: int
    """The line of the invocation. No two operations have the same."""
    ended: int
    """The line of the end, or NEVER."""
    start: float
    end: float
    """The time of the end; of one that never came infinite."""

    @property
    def is_ok(self) -> bool:
        return self.outcome is Outcome.OK

    @property
    def completed(self) -> int:
        """The line by which the operation has surely happened: NEVER, where nobody knows."""
        return self.ended if self.is_ok else NEVER

    def describe(self, source: str) -> str:
        """Return the operation in words: `ops.jsonl:3 process 0: read x, ok 7 at line 5, …`."""
        key = "" if self.key == NULL else f" {shown(self.key)}"
        asked = "" if self.argument in {None, NULL} else f" {_of(self.argument)}"
        result = "" if self.result in {None, self.argument} else f" {_of(self.result)}"
        at = "" if self.ended == NEVER else f" at line {self.ended}"
        end = "" if self.end == inf else f"{self.end:.3f}"
        return (
            f"{source}:{self.invoked} process {shown(self.process)}: {self.f}{key}{asked}, "
            f"{self.outcome.value}{result}{at}, t={self.start:.3f}..{end}"
        )


@dataclass(frozen=True, slots=True)
class History:
    """What clients said of their operations, and what is wrong with the lines in which they did."""

    source: str
    """The name of the file, for witnesses."""
    operations: tuple[Operation, ...]
    """In the order of their invocations."""
    problems: tuple[str, ...] = ()
    """The first problems of the lines, each with its place. With one, the history proves nothing:
    the line that nobody can read may be the one that explains the others."""
    problem_count: int = 0

    def describe(self, operations: list[Operation]) -> tuple[str, ...]:
        """Return a witness: operations in words, in the order of the lines."""
        ordered = sorted(operations, key=lambda one: one.invoked)
        return tuple(one.describe(self.source) for one in ordered)


def _of(value: Value | None) -> str:
    return "" if value is None else shown(value)
