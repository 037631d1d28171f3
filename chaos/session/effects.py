"""What the faults of a run have done so far."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import Final

ONCE: Final = 1
"""What is done to a member that runs has an effect, and just this one."""


class Effects:
    """How often each fault struck members, and when the last of all faults was undone."""

    def __init__(self, now: Callable[[], float]) -> None:
        self.last_heal: float | None = None
        """When the last fault ended that kept members from each other, or a member came back."""
        self.bites: Counter[str] = Counter()
        self._now = now

    def bite(self, fault: str, number: int = ONCE) -> None:
        """Count effects of a fault."""
        self.bites[fault] += number

    def heal(self) -> None:
        """Something ended now, or somebody came back."""
        self.last_heal = self._now()
