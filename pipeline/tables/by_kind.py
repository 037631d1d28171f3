"""The events of each kind. Most checks read a few kinds, and some kinds are most of all events."""

from __future__ import annotations

from functools import reduce
from typing import Final

from pyspark.sql import DataFrame

from stormcast.pipeline.tables.kept import keep, made_once
from stormcast.pipeline.tables.occurring import Occurring
from stormcast.pipeline.tables.records import is_kind

FEW: Final = 20_000
"""Up to so many events, to look through all of them is cheaper than to plan for their parts."""
MANY: Final = 300_000
"""From so many events on, nothing is kept twice."""
LARGE_SHARE: Final = 0.03
"""A kind with such a share of all events is a table by itself."""


_OF_MEMBERS: Final = ("member", "name", "incarnation", "wall_time", "peer_member", "version")
"""What events say of their member. The table of incarnations says it as well, once."""


class EventsByKind:
    """The events of some runs, and parts of them by kind."""

    def __init__(self, events: DataFrame) -> None:
        self.all = events
        self._narrow = events.drop(*_OF_MEMBERS)

    @made_once
    def occurring(self) -> Occurring:
        """Which kinds of events there are."""
        return Occurring(self.all)

    def of(self, *kinds: str) -> DataFrame:
        """Return the events of these kinds, without what they say of their members."""
        parts = self._part_of
        if not parts:
            return self._narrow.where(is_kind(*kinds))
        asked = dict.fromkeys(parts.get(kind, self._rest) for kind in kinds)
        return reduce(DataFrame.union, [part.of(kinds) for part in asked])

    @made_once
    def _part_of(self) -> dict[str, Part]:
        """By kind, the part that has its events; nothing if there are no parts."""
        counts = self.occurring.counts
        total = sum(counts.values())
        if not FEW < total < MANY:
            return {}
        large = [kind for kind, count in counts.items() if count >= LARGE_SHARE * total]
        return {kind: Part(self._narrow.where(is_kind(kind)), alone=True) for kind in large}

    @made_once
    def _rest(self) -> Part:
        return Part(self._narrow.where(~is_kind(*self._part_of)), alone=False)


class Part:
    """The events of one kind, or of all rare ones."""

    def __init__(self, events: DataFrame, *, alone: bool) -> None:
        self._events = events
        self._is_alone = alone

    @made_once
    def _kept(self) -> DataFrame:
        return keep(self._events)

    def of(self, kinds: tuple[str, ...]) -> DataFrame:
        """Return its events of these kinds."""
        return self._kept if self._is_alone else self._kept.where(is_kind(*kinds))
