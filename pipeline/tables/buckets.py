"""Buckets: parts of a numbering by seqno. What one member multicasts is one numbering, and all that
looks its batches up would be sorted by one core; buckets are sorted by all."""

from __future__ import annotations

from typing import Final

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

LEAST: Final = 16
"""A bucket has 2 to the power of so many seqnos, or more."""


def widest() -> Column:
    """Return how far the last seqno of a batch is above its first, at most: an aggregate of
    events."""
    is_batch = (F.col("kind") == "sent") & (F.col("hi") >= F.col("lo"))
    return F.max(F.when(is_batch, F.col("hi") - F.col("lo")))


class Buckets:
    """Buckets that are wider than any batch, so that a batch is in two of them at most.

    The batch of a seqno is the last one that begins at or before it, if that reaches so far. Where
    batches overlap, which no member's do, that may be another one than among all batches.
    """

    def __init__(self, widest: int, least: int = LEAST) -> None:
        """Make them for batches whose last seqno is at most `widest` above the first."""
        self.bits = max(least, widest.bit_length())

    def of(self, seqno: Column) -> Column:
        """Return the bucket of a seqno."""
        return F.shiftright(seqno, self.bits)

    def spread(self, batches: DataFrame) -> DataFrame:
        """Put each batch, `lo..hi`, into the `bucket` of each of its seqnos: one that straddles two
        is in both."""
        both = F.array_distinct(F.array(self.of(F.col("lo")), self.of(F.col("hi"))))
        return batches.withColumn("bucket", F.explode(both))
