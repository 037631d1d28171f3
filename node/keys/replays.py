"""Refuses what a sealer sent before: each number of a seal is taken once."""

from __future__ import annotations

from typing import Final

DEPTH: Final = 8192
"""Numbers below the highest that are told apart. A network that reorders by more loses what is
older, and a protocol repairs it."""
_ALL: Final = (1 << DEPTH) - 1


class Replays:
    """The numbers that came from one incarnation of a member."""

    __slots__ = ("_taken", "highest")

    def __init__(self, highest: int = 0) -> None:
        self.highest = highest
        self._taken = _ALL if highest else 0
        """Bit n: highest - n came. Where only the highest is known, all up to it did."""

    def take(self, number: int) -> bool:
        """Return whether this number is new, and note it."""
        ahead = number - self.highest
        if ahead > 0:
            self._taken = ((self._taken << ahead) & _ALL) | 1 if ahead < DEPTH else 1
            self.highest = number
            return True
        if ahead <= -DEPTH:
            return False
        bit = 1 << -ahead
        if self._taken & bit:
            return False
        self._taken |= bit
        return True
