"""The bites of a run's faults on members, and its last heal."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import Final

ONCE: Final = 1
"""The bites of something that was done to a running member: just one."""


class Effects:
    """Counts the bites of each fault on members, and notes the last heal of any fault."""

    def __init__(self, now: Callable[[], float]) -> None:
        self.last_heal: float | None = None
        """The last time at which a fault ended or a member was started; None before the first."""
        self.bites: Counter[str] = Counter()
        self._now = now

    def bite(self, fault: str, number: int = ONCE) -> None:
        """Count bites of a fault."""
        self.bites[fault] += number

    def heal(self) -> None:
        """Note that a fault ends now, or that a member is started."""
        self.last_heal = self._now()
