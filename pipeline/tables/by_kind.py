"""The events of each kind. Most checks read a few kinds, and some kinds are most of all events."""

from __future__ import annotations

from functools import reduce
from typing import Final

from pyspark.sql import DataFrame

from stormcast.pipeline.tables.buckets import Buckets
from stormcast.pipeline.tables.kept import keep, made_once
from stormcast.pipeline.tables.occurring import Occurring
from stormcast.pipeline.tables.records import is_kind

FEW: Final = 20_000
"""Up to so many events, to look through all of them is cheaper than to plan for their parts."""
MANY: Final = 300_000
"""From so many events on, only what is rare is kept twice."""
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
        large = [kind for kind in kinds if kind in self._large]
        rare = [kind for kind in kinds if kind not in self._large]
        if not self._large:
            return self._narrow.where(is_kind(*kinds))
        if self._counted < MANY:
            parts = [self._large[kind].events for kind in dict.fromkeys(large)]
        else:
            parts = [self._narrow.where(is_kind(*large))] if large else []
        if rare:
            parts.append(self._rare.events.where(is_kind(*rare)))
        return reduce(DataFrame.union, parts)

    @made_once
    def buckets(self) -> Buckets | None:
        """How the numberings of many events are cut; None: there are few, and they are not."""
        return Buckets(self.occurring.widest) if self._counted >= MANY else None

    @made_once
    def _counted(self) -> int:
        return sum(self.occurring.counts.values())

    @made_once
    def _large(self) -> dict[str, Part]:
        """By large kind, its events; nothing if there are no parts."""
        if self._counted <= FEW:
            return {}
        least = LARGE_SHARE * self._counted
        kinds = [kind for kind, count in self.occurring.counts.items() if count >= least]
        return {kind: Part(self._narrow.where(is_kind(kind))) for kind in kinds}

    @made_once
    def _rare(self) -> Part:
        """The events of all other kinds."""
        return Part(self._narrow.where(~is_kind(*self._large)))


class Part:
    """Some of the events, kept when they are first read."""

    def __init__(self, events: DataFrame) -> None:
        self._events = events

    @made_once
    def events(self) -> DataFrame:
        """All of them."""
        return keep(self._events)
