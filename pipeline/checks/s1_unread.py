"""S1, unread: nobody but members reads a message that was sent."""

from __future__ import annotations

from typing import Final

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from stormcast.pipeline import words
from stormcast.pipeline.tables import Tables
from stormcast.pipeline.violations import event, nothing, violations, with_name

GUARANTEE: Final = "S1"


def unread(tables: Tables) -> DataFrame:
    """Find batches that a stranger read as their sender packed them."""
    if not tables.occurring.any("overheard"):
        return nothing(tables)
    batch = F.struct("number", "time")
    sent = (
        tables.of("sent")
        .groupBy("run", F.col("short_id").alias("sender"), "digest")
        .agg(F.min(batch).alias("batch"))
    )
    overheard = (
        tables.of("overheard")
        .where(F.col("short_id") == words.RIG)
        .select("run", F.col("peer").alias("sender"), "digest", "number", "time", "bytes")
    )
    read = overheard.join(sent, ["run", "sender", "digest"], how="inner").where(
        F.col("batch.time") <= F.col("time") + words.EPSILON
    )
    return violations(
        with_name(read, tables, "sender", "name"),
        GUARANTEE,
        time="time",
        detail=F.format_string("a stranger read what %s sent, %d bytes", "name", "bytes"),
        witness=[event(F.lit(words.RIG).cast("bigint"), "number"), event("sender", "batch.number")],
    )
