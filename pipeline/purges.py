"""Purges that came before a receiver had what was purged.

A purge up to `hi` is early if some seqno up to `hi` was had later, or never. So to each purge is
brought the latest time at which a receiver had any seqno up to `hi`: one sort. Only purges that
look early are then compared with deliveries.
"""

from __future__ import annotations

from collections.abc import Sequence

from pyspark.sql import DataFrame, Window
from pyspark.sql import functions as F

from stormcast.pipeline import words
from stormcast.pipeline.ranges import gaps, reached_before, with_last


def suspicious(purges: DataFrame, had: DataFrame, by: Sequence[str]) -> DataFrame:
    """Return the purges at whose time a seqno up to `hi` was not had, and the time at which they
    all were (`complete`; null: never)."""
    upto = (
        Window.partitionBy(*by)
        .orderBy("lo", "hi")
        .rowsBetween(Window.unboundedPreceding, Window.currentRow)
    )
    before = F.coalesce(reached_before(Window.partitionBy(*by).orderBy("lo", "hi")), F.lit(0))
    is_gap = (F.col("lo") > before + 1).cast("int")
    marks = had.withColumn("is_gap", is_gap).select(
        *by,
        F.col("lo").alias("at"),
        F.col("hi").alias("turn"),
        F.struct(
            F.max("time").over(upto).alias("time"),
            F.max("hi").over(upto).alias("hi"),
            F.max("is_gap").over(upto).alias("has_gap"),
        ).alias("so_far"),
    )
    points = with_last(purges.withColumn("at", F.col("hi")), marks, by, "so_far")
    is_whole = (F.col("so_far.hi") >= F.col("hi")) & (F.col("so_far.has_gap") == 0)
    complete = F.when(is_whole, F.col("so_far.time"))
    return (
        points.withColumn("complete", complete)
        .drop("so_far")
        .where(F.col("complete").isNull() | (F.col("complete") > F.col("time") + words.EPSILON))
    )


def lacked(suspects: DataFrame, had: DataFrame, by: Sequence[str]) -> DataFrame:
    """Add to early purges `seqno`, the first that was not had then, and `late`, the delivery that
    brought it later, if one did. Purges are few here."""
    key = [*by, "number"]
    purges = suspects.select(*key, "hi", F.col("time").alias("purged_at"))
    deliveries = had.select(
        *by, "lo", F.col("hi").alias("upto"), "time", F.col("number").alias("delivery")
    )
    both = purges.join(deliveries, list(by), how="inner").where(F.col("lo") <= F.col("hi"))
    is_late = F.col("time") > F.col("purged_at") + words.EPSILON
    in_time = both.where(~is_late).select(*key, "lo", F.least("upto", "hi").alias("hi"))
    wanted = purges.select(*key, F.lit(1).cast("bigint").alias("first"), F.col("hi").alias("last"))
    seqno = gaps(in_time, wanted, key).groupBy(*key).agg(F.min("gap_lo").alias("seqno"))
    late = (
        both.where(is_late)
        .join(seqno, key, how="inner")
        .where((F.col("lo") <= F.col("seqno")) & (F.col("upto") >= F.col("seqno")))
        .groupBy(*key)
        .agg(F.min(F.struct("time", F.col("delivery").alias("number"))).alias("late"))
    )
    return suspects.join(seqno, key, how="inner").join(late, key, how="left")
