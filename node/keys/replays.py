"""Refuses what a sealer sent before: each number of a seal is taken once."""

from __future__ import annotations

from typing import Final

DEPTH: Final = 8192
"""Numbers up to the highest that are told apart. A network that reorders by more loses what is
older, and a protocol repairs it."""
_PLACE: Final = DEPTH - 1
"""The bits of a number that give its place in the ring of marks."""
assert not DEPTH & _PLACE, "a power of two"


class Replays:
    """The numbers that came from one incarnation of a member."""

    __slots__ = ("_floor", "_next_floor", "_taken", "highest")

    def __init__(self, highest: int = 0) -> None:
        self.highest = highest
        # Where only the highest is known, all up to it came.
        self._taken = bytearray((b"\1" if highest else b"\0") * DEPTH)
        """For each of the last numbers, whether it came."""
        self._floor = self._next_floor = 0
        """The highest number of two periods ago, and of one: up to the first nothing is new."""

    def take(self, number: int) -> bool:
        """Return whether this number is new, and note it."""
        highest = self.highest
        if number > highest:
            if number > highest + 1:
                self._forget(highest + 1, number)
            self.highest = number
        elif number <= self._floor or number <= highest - DEPTH or self._taken[number & _PLACE]:
            return False
        self._taken[number & _PLACE] = 1
        return True

    def has(self, number: int) -> bool:
        """Whether this number is known to have come."""
        return number > self.highest - DEPTH and self._taken[number & _PLACE] == 1

    def begin_period(self) -> None:
        """From now on take nothing that is older than what came before the period that ends. A
        member that was not there yet when it was sent may not have heard it; whoever recorded it
        can send it for ever."""
        self._floor, self._next_floor = self._next_floor, self.highest

    def _forget(self, first: int, end: int) -> None:
        """Clear the marks of these new numbers: older numbers had the same places in the ring."""
        if end - first >= DEPTH:
            self._taken = bytearray(DEPTH)
            return
        at, stop = first & _PLACE, end & _PLACE
        if at < stop:
            self._taken[at:stop] = bytes(stop - at)
        else:
            self._taken[at:] = bytes(DEPTH - at)
            self._taken[:stop] = bytes(stop)
