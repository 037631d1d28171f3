"""Quiet: the time from which on a client may expect to see all that was acknowledged."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from stormcast.chaos.histories.operations import NEVER, Operation


@dataclass(frozen=True, slots=True)
class Quiet:
    """When the last fault was over, and how long the guest may take to settle then."""

    healed: float
    """The end of the last fault, on the clock of the history."""
    settle: float = 0.0
    """Seconds that must pass after the last fault, and after the last change."""

    def after(self, changes: Iterable[Operation]) -> Begin:
        """Return the point from which on it is quiet, given all operations that change the object.
        One that never ended is not waited for."""
        line, time = 0, self.healed
        for one in changes:
            if one.ended != NEVER:
                line = max(line, one.ended)
                time = max(time, one.end)
        return Begin(line, time + self.settle)


@dataclass(frozen=True, slots=True)
class Begin:
    """The point from which on it is quiet."""

    line: int
    time: float

    def is_before(self, operation: Operation) -> bool:
        """Whether all of the operation was in quiet."""
        return operation.invoked > self.line and operation.start >= self.time
