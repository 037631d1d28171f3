"""The tables that checks and reports share, derived from the events of any number of runs.

All tables are keyed by `run`. Members are identified by their short ids, as in the records; the
table of incarnations has their labels. Each table is made when it is first used.
"""

from __future__ import annotations

from collections.abc import Collection

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from stormcast.pipeline.tables.application import ApplicationTables
from stormcast.pipeline.tables.by_kind import EventsByKind
from stormcast.pipeline.tables.clock import on_one_clock
from stormcast.pipeline.tables.groups import GroupTables
from stormcast.pipeline.tables.kept import keep
from stormcast.pipeline.tables.members import MemberTables
from stormcast.pipeline.tables.messages import MessageTables
from stormcast.pipeline.tables.occurring import Occurring
from stormcast.pipeline.tables.purges import PurgeTables
from stormcast.pipeline.tables.rig import RigTables


class Tables:
    """All tables of some runs."""

    def __init__(self, events: DataFrame) -> None:
        self.events = keep(on_one_clock(events))
        self._by_kind = EventsByKind(self.events)
        self.rig = RigTables(self._by_kind)
        self.members = MemberTables(self._by_kind, self.rig)
        self.messages = MessageTables(self._by_kind)
        self.groups = GroupTables(self._by_kind, self.rig, self.members, self.messages)
        self.purges = PurgeTables(self.members, self.messages)
        self.application = ApplicationTables(self._by_kind, self.rig, self.members, self.messages)

    def of(self, *kinds: str) -> DataFrame:
        """Return the events of these kinds."""
        return self._by_kind.of(*kinds)

    @property
    def occurring(self) -> Occurring:
        """Which kinds of events there are."""
        return self._by_kind.occurring

    def without(self, runs: Collection[str]) -> Tables:
        """Return the tables of all other runs."""
        return Tables(self.events.where(~F.col("run").isin(*runs))) if runs else self

    def only(self, runs: Collection[str]) -> Tables:
        """Return the tables of these runs."""
        return Tables(self.events.where(F.col("run").isin(*runs)))
