"""Tables that are computed once, however many checks read them."""

from __future__ import annotations

from pyspark import StorageLevel
from pyspark.sql import DataFrame


def keep(table: DataFrame) -> DataFrame:
    """Compute a table now.

    What reads it has a plan that begins here: plans that contain all plans before them are what
    takes the time of a small run.
    """
    return table.localCheckpoint(storageLevel=StorageLevel.MEMORY_AND_DISK)
