"""Keeps which members were confirmed to be dead, and for how long that counts."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from stormcast.node.core.model import Address

SUSPICION_LIFE: Final = 10.0
"""Seconds for which a confirmed suspicion counts, where the stack does not say: in `compatible` the
longest verification and the longest time between two repeats of a suspicion."""


class Suspects:
    """The members that were confirmed to be dead. Those of long ago may be alive by now."""

    def __init__(self, life: float) -> None:
        self.life = life
        """Seconds after which a suspect is asked again before it is excluded."""
        self._confirmed: dict[Address, float] = {}
        """By member, when it was confirmed to be dead."""

    @property
    def all(self) -> Collection[Address]:
        """The suspects, those that were confirmed long ago among them."""
        return self._confirmed.keys()

    def believed(self, now: float) -> frozenset[Address]:
        """Return those that were confirmed of late."""
        return frozenset(member for member in self._confirmed if not self._is_old(member, now))

    def add(self, members: Iterable[Address], now: float) -> None:
        """Note that members were confirmed to be dead."""
        self._confirmed.update(dict.fromkeys(members, now))

    def discard(self, member: Address) -> None:
        """Forget one, which is alive."""
        self._confirmed.pop(member, None)

    def take_old(self, now: float) -> tuple[Address, ...]:
        """Forget those that were confirmed long ago, and return them."""
        old = tuple(member for member in self._confirmed if self._is_old(member, now))
        for member in old:
            del self._confirmed[member]
        return old

    def clear(self) -> None:
        """Forget all."""
        self._confirmed.clear()

    def _is_old(self, suspect: Address, now: float) -> bool:
        return now - self._confirmed[suspect] > self.life
