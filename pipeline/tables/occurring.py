"""Which kinds of records occur in any of the runs. A check whose records do not occur finds none of
what it looks for, so its plans need not be made: in a small run they cost more than the work."""

from __future__ import annotations

from pyspark.sql import DataFrame

from stormcast.pipeline.tables.records import is_multicast, is_numbered


class Occurring:
    """Knows the kinds of the records of some runs, and whether they are about the group."""

    def __init__(self, events: DataFrame) -> None:
        """Look through all records, once."""
        is_of_group = is_multicast().alias("of_group")
        found = events.select("kind", is_of_group, is_numbered().alias("is_numbered"))
        rows = found.distinct().collect()
        self._all = {row.kind for row in rows}
        self._of_group = {row.kind for row in rows if row.of_group}
        self._of_one = {row.kind for row in rows if not row.of_group}
        self._unnumbered = {row.kind for row in rows if not row.is_numbered}

    def any(self, *kinds: str) -> bool:
        """Whether a record of one of these kinds occurs."""
        return not self._all.isdisjoint(kinds)

    def of_group(self, *kinds: str) -> bool:
        """Whether one occurs that is about multicasts."""
        return not self._of_group.isdisjoint(kinds)

    def of_one(self, *kinds: str) -> bool:
        """Whether one occurs that is not about multicasts."""
        return not self._of_one.isdisjoint(kinds)

    def unnumbered(self, *kinds: str) -> bool:
        """Whether one occurs whose messages have no seqnos."""
        return not self._unnumbered.isdisjoint(kinds)
