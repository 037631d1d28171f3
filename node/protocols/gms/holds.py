"""Bounds for how long merges of strangers hold up a group.

While a member takes part in a merge it takes part in no other, makes no view and purges nothing.
Groups that never were one are strangers to each other, so whoever has proved its address may lead a
merge, and need not finish it. A merge of a stranger that came to nothing is charged, by the seconds
that it took, to the place of its leader and to all strangers together. Charges fade: that is the
part of the time that they may take in the long run. The first few merges may fail without any
consequence, as those of honest groups do where frames are lost.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from stormcast.node.core.model import Address

MAX_PLACES: Final = 256
"""Places whose charges are remembered; the one that was charged first is forgotten."""
SHARE: Final = 0.25
"""Part of the time that merges of one place may take, and come to nothing."""
SHARE_OF_ALL: Final = 0.5
"""The same for all strangers together."""
FREE: Final = 2
"""Merges that one place may lead to nothing before it is refused any, each as long as can be."""
FREE_OF_ALL: Final = 4
_LEAST: Final = 0.1
"""Part of the longest merge that each one is charged at least: who calls it off at once has others
begin and end merges all the time."""


class _Account:
    """Seconds charged for merges that came to nothing; they fade with time."""

    __slots__ = ("_at", "_fading", "_owed")

    def __init__(self, fading: float) -> None:
        self._fading = fading
        self._owed = 0.0
        self._at = 0.0

    def owed(self, now: float) -> float:
        return max(0.0, self._owed - self._fading * (now - self._at))

    def charge(self, seconds: float, now: float) -> None:
        self._owed = self.owed(now) + seconds
        self._at = now


class Holds:
    """The charges of strangers for merges that came to nothing, and the leader of the present
    merge."""

    def __init__(self, longest: float) -> None:
        self._longest = longest
        """Seconds that a merge can take."""
        self._all = _Account(SHARE_OF_ALL)
        self._places: dict[str, _Account] = {}
        """By host, or by identity where the host is not known."""
        self._leader: Address | None = None
        """The stranger that leads the present merge."""
        self._since = 0.0

    def admits(self, leader: Address, now: float) -> bool:
        """Whether a stranger may lead a merge now."""
        return (
            self._owed(leader, now) < FREE * self._longest
            and self._all.owed(now) < FREE_OF_ALL * self._longest
        )

    def longest(self) -> float:
        """Return the seconds for which strangers may be refused once none of their merges comes to
        nothing any more."""
        return self._longest * max(1 / SHARE, 1 / SHARE_OF_ALL)

    def begin(self, leader: Address, now: float) -> None:
        """Note that a merge of a stranger begins."""
        self._leader, self._since = leader, now

    def gives_way(self, now: float) -> bool:
        """Whether a stranger leads the present merge, and has led others to nothing of late."""
        return self._leader is not None and self._owed(self._leader, now) > 0.0

    def finish(self) -> None:
        """Note that the present merge has led to its view: nothing is owed for it."""
        self._leader = None

    def end(self, now: float) -> None:
        """Note that the present merge is over. If a stranger led it, it is charged."""
        leader, self._leader = self._leader, None
        if leader is None:
            return
        seconds = max(now - self._since, _LEAST * self._longest)
        self._all.charge(seconds, now)
        self._places.setdefault(_place(leader), _Account(SHARE)).charge(seconds, now)
        if len(self._places) > MAX_PLACES:
            del self._places[next(iter(self._places))]

    def _owed(self, leader: Address, now: float) -> float:
        account = self._places.get(_place(leader))
        return account.owed(now) if account is not None else 0.0


def _place(leader: Address) -> str:
    """Return where a stranger is, whatever its port: another name costs it nothing there."""
    return leader.where.rpartition("[")[0] or f"{leader.identity:032x}"
