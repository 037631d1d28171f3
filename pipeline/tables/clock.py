"""Puts the events of all members of a run on one clock."""

from __future__ import annotations

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from stormcast.pipeline import words
from stormcast.pipeline.tables.kept import is_known_to_be_empty, keep


def on_one_clock(events: DataFrame) -> DataFrame:
    """Return the events, with times shifted by the difference of wall clocks for members whose
    monotonic clock began at another moment than the rig's.

    Clocks that agree are not shifted, because monotonic clocks are more exact than wall clocks.
    """
    began = F.unix_micros("wall_time") / 1e6 - F.col("time")
    clocks = events.where(F.col("number") == 0).select("run", "short_id", began.alias("began"))
    rig = clocks.where(F.col("short_id") == words.RIG).select(
        "run", F.col("began").alias("rig_began")
    )
    ahead = F.col("began") - F.col("rig_began")
    shifts = keep(
        clocks.join(rig, "run", how="inner")
        .where(F.abs(ahead) > words.CLOCKS_AGREE)
        .groupBy("run", "short_id")
        .agg(F.first(ahead).alias("shift"))
    )
    if is_known_to_be_empty(shifts):
        return events
    return (
        events.join(F.broadcast(shifts), ["run", "short_id"], how="left")
        .withColumn("time", F.col("time") + F.coalesce("shift", F.lit(0.0)))
        .drop("shift")
    )
