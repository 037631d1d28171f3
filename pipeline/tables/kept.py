"""Keeps tables, so that they are computed once, however many checks read them."""

from __future__ import annotations

from pyspark import StorageLevel
from pyspark.sql import DataFrame


def keep(table: DataFrame) -> DataFrame:
    """Compute a table now, and return it as the start of a new plan.

    Otherwise each plan would contain all plans before it, and most of the time of a small run would
    go into planning.
    """
    return table.localCheckpoint(storageLevel=StorageLevel.MEMORY_AND_DISK)
