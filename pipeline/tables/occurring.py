"""Which kinds of records occur in any of the runs. A check whose records do not occur finds none of
what it looks for, so its plans need not be made: in a small run they cost more than the work."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from stormcast.pipeline import words
from stormcast.pipeline.tables.buckets import widest
from stormcast.pipeline.tables.records import is_fragment, is_kind, is_multicast, is_numbered


class Occurring:
    """Knows the kinds of the records of some runs, and whether they are about the group."""

    def __init__(self, events: DataFrame) -> None:
        """Look through all records, once."""
        is_of_group = is_multicast().alias("of_group")
        was_joined = is_kind("handed") & (F.col("stream") == words.JOINED)
        of_pieces = is_kind("cut") | is_fragment() | was_joined
        found = events.groupBy(
            "kind",
            is_of_group,
            is_numbered().alias("is_numbered"),
            F.coalesce(of_pieces, F.lit(False)).alias("of_pieces"),
        )
        rows = found.agg(F.count(F.lit(1)).alias("rows"), widest().alias("above")).collect()
        counts: Counter[str] = Counter()
        for row in rows:
            counts[row.kind] += row.rows
        self.counts: Mapping[str, int] = counts
        """How many there are of each kind."""
        self.widest = max((row.above or 0 for row in rows), default=0)
        """How far the last seqno of a batch is above its first, at most."""
        self._of_group = {row.kind for row in rows if row.of_group}
        self._of_one = {row.kind for row in rows if not row.of_group}
        self._has_pieces = any(row.of_pieces for row in rows)
        self._unnumbered = {row.kind for row in rows if not row.is_numbered}

    def any(self, *kinds: str) -> bool:
        """Whether a record of one of these kinds occurs."""
        return any(kind in self.counts for kind in kinds)

    def of_group(self, *kinds: str) -> bool:
        """Whether one occurs that is about multicasts."""
        return not self._of_group.isdisjoint(kinds)

    def of_one(self, *kinds: str) -> bool:
        """Whether one occurs that is not about multicasts."""
        return not self._of_one.isdisjoint(kinds)

    def in_pieces(self) -> bool:
        """Whether a record occurs that is about a message in pieces."""
        return self._has_pieces

    def unnumbered(self, *kinds: str) -> bool:
        """Whether one occurs whose messages have no seqnos."""
        return not self._unnumbered.isdisjoint(kinds)
