"""Ranges of seqnos: what they cover together, without looking at single seqnos."""

from __future__ import annotations

from collections.abc import Sequence

from pyspark.sql import Column, DataFrame, Window, WindowSpec
from pyspark.sql import functions as F


def before_this(ordered: WindowSpec) -> WindowSpec:
    """Return a window frame of all rows before the current one.

    Frames always look back: Spark computes such a frame in one pass, but a frame that looks ahead
    anew for each row. To look at following rows, sort the other way round.
    """
    return ordered.rowsBetween(Window.unboundedPreceding, -1)


def reached_before(ordered: WindowSpec) -> Column:
    """Return the highest seqno of the ranges before the current one; null at the first."""
    return F.max("hi").over(before_this(ordered))


def gaps(parts: DataFrame, wanted: DataFrame, by: Sequence[str]) -> DataFrame:
    """Return the gaps of `first..last` that no part covers: a row each (`gap_lo`, `gap_hi`).

    `parts` has `lo..hi`, `wanted` has `first..last`; both are keyed by `by`, `wanted` uniquely, and
    its other columns are kept.
    """
    keys = list(by)
    relevant = (
        parts.select(*keys, "lo", "hi")
        .join(wanted.select(*keys, "first", "last"), keys, how="inner")
        .where((F.col("hi") >= F.col("first")) & (F.col("lo") <= F.col("last")))
    )
    in_order = Window.partitionBy(*keys).orderBy("lo", "hi")
    nothing_yet = F.col("first") - 1
    # Add the end as a part, so that a gap after the last part is found like all others.
    end = F.col("last") + 1
    ends = wanted.select(*keys, end.alias("lo"), end.alias("hi"), "first", "last")
    so_far = F.greatest(F.coalesce(reached_before(in_order), nothing_yet), nothing_yet)
    return (
        relevant.unionByName(ends)
        .withColumn("so_far", so_far)
        .where(F.col("lo") > F.col("so_far") + 1)
        .select(*keys, (F.col("so_far") + 1).alias("gap_lo"), (F.col("lo") - 1).alias("gap_hi"))
        .join(wanted.drop("first", "last"), keys, how="inner")
    )


def spans(parts: DataFrame, by: Sequence[str]) -> DataFrame:
    """Return the union of the ranges of each key as the fewest ranges: `at` and `turn` are the
    first seqno, `span` has the last one (`hi`)."""
    in_order = Window.partitionBy(*by).orderBy("lo", "hi")
    upto = in_order.rowsBetween(Window.unboundedPreceding, Window.currentRow)
    is_new = F.coalesce(F.col("lo") > reached_before(in_order) + 1, F.lit(True))
    return (
        parts.withColumn("is_new", is_new.cast("int"))
        .withColumn("place", F.sum("is_new").over(upto))
        .groupBy(*by, "place")
        .agg(
            F.min("lo").alias("at"),
            F.min("lo").alias("turn"),
            F.struct(F.max("hi").alias("hi")).alias("span"),
        )
    )


def first_gaps(parts: DataFrame, wanted: DataFrame, by: Sequence[str]) -> DataFrame:
    """Return for each key the first seqno that no part covers (`gap`), if there is one."""
    keys = list(by)
    return (
        gaps(parts, wanted.select(*keys, "first", "last"), by)
        .groupBy(*keys)
        .agg(F.min("gap_lo").alias("gap"))
        .join(wanted.drop("first", "last"), keys, how="inner")
    )


def with_last(points: DataFrame, marks: DataFrame, by: Sequence[str], name: str) -> DataFrame:
    """Add to each point the last mark at or before it, as column `name`; null if there is none.

    Both have `at`; `turn` orders marks with the same `at`. This takes one sort. To find the first
    mark at or after a point, negate `at` of both.
    """
    upto = (
        Window.partitionBy(*by)
        .orderBy("at", "is_point", "turn")
        .rowsBetween(Window.unboundedPreceding, Window.currentRow)
    )
    marks = marks.select(*by, "at", "turn", name)
    return (
        points.withColumn("is_point", F.lit(True))
        .unionByName(marks.withColumn("is_point", F.lit(False)), allowMissingColumns=True)
        .withColumn(name, F.last(name, True).over(upto))
        .where(F.col("is_point"))
        .drop("is_point", "at", "turn")
    )


def total_upto(points: DataFrame, marks: DataFrame, by: Sequence[str], name: str) -> DataFrame:
    """Add to each point the sum of `weight` of all marks at or before it, as column `name`."""
    so_far = (
        Window.partitionBy(*by)
        .orderBy("at", "turn")
        .rowsBetween(Window.unboundedPreceding, Window.currentRow)
    )
    summed = marks.withColumn(name, F.struct(F.sum("weight").over(so_far).alias("sum")))
    return with_last(points, summed, by, name).withColumn(name, F.coalesce(f"{name}.sum", F.lit(0)))
