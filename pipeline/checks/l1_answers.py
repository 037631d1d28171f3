"""L1 of answers: what a request asks for, and its sender still has, is resent when it comes."""

from __future__ import annotations

from typing import Final

from pyspark.sql import DataFrame, Window
from pyspark.sql import functions as F

from stormcast.pipeline import words
from stormcast.pipeline.promises import of_protocol, with_promises
from stormcast.pipeline.ranges import before_this
from stormcast.pipeline.tables import Tables
from stormcast.pipeline.tables.kept import keep
from stormcast.pipeline.tables.records import is_kind, is_multicast, is_numbered
from stormcast.pipeline.violations import event, violations

_LANE: Final = ("run", "short_id", "dest", "conn", "is_multicast")
"""What one member numbers for one destination; of multicasts `dest` and `conn` are 0."""
_REQUEST: Final = ("run", "short_id", "number")


def answered_in_part(tables: Tables, guarantee: str) -> DataFrame:
    """Find requests of which a part was resent, or nothing."""
    wanted = keep(_wanted(tables))
    parts = wanted.join(_resent(tables, wanted), [*_LANE, "turn"], how="inner").where(
        F.col("to").isin(words.GROUP) | (F.col("to") == F.col("asker"))
    )
    lo, hi = F.greatest("resent_lo", "first"), F.least("resent_hi", "last")
    in_time = (F.col("resent_at") <= F.col("time")) & (
        F.col("resent_at") >= F.col("time") - F.col("width")
    )
    resent = (
        parts.where(in_time)
        .groupBy(*_REQUEST, "lo", "hi", "first", "last", "resent_lo")
        .agg(F.max("resent_hi").alias("resent_hi"), F.max("resent").alias("resent"))
        .groupBy(*_REQUEST)
        .agg(
            F.sum(F.greatest(hi - lo + 1, F.lit(0).cast("bigint"))).alias("came"),
            F.max((lo <= F.col("lo")) & (F.col("lo") <= hi)).alias("has_first"),
            F.max((lo <= F.col("hi")) & (F.col("hi") <= hi)).alias("has_last"),
            F.max("resent").alias("resent"),
        )
    )
    no = F.lit(False)
    skipped = (F.col("first") - F.col("lo")) + (F.col("hi") - F.col("last"))
    found = (
        wanted.drop("turn")
        .distinct()
        .join(resent, [*_REQUEST], how="left")
        .withColumn("came", F.coalesce("came", F.lit(0).cast("bigint")))
        .where(
            (F.col("came") < F.col("count") - skipped)
            | ((F.col("lo") == F.col("first")) & ~F.coalesce("has_first", no))
            | ((F.col("hi") == F.col("last")) & ~F.coalesce("has_last", no))
        )
    )
    return violations(
        found,
        guarantee,
        time="time",
        detail=F.format_string(
            "%d of %d..%d were asked for, %d..%d are kept, and %d of these were resent",
            "count",
            "lo",
            "hi",
            "first",
            "last",
            "came",
        ),
        witness=[event("short_id", "number"), event("short_id", "resent")],
    )


def _with_lanes(rows: DataFrame) -> DataFrame:
    return (
        rows.withColumn("is_multicast", is_multicast())
        .withColumn("dest", F.when(F.col("is_multicast"), words.GROUP).otherwise(F.col("peer")))
        .where(~F.col("is_multicast") | (F.col("conn") == 0))
    )


def _wanted(tables: Tables) -> DataFrame:
    """Return requests that came: their lane, `asker`, number, time, lo, hi, count, `first..last`
    (what of it the sender then kept), `width`, and a row for each `turn` of its answer: of unicasts
    their very time, of multicasts this or the last stretch of `width`."""
    is_removal = is_kind("conn") & (F.col("stream") == words.SENDER_REMOVED)
    kinds = ("sent", "purged", "answered")
    rows = _with_lanes(
        tables.of(*kinds, "conn").where(is_numbered() & (is_kind(*kinds) | is_removal))
    )
    asked = rows.where(is_kind("answered")).select(*_LANE).distinct()
    lane = Window.partitionBy(*_LANE).orderBy("number")
    life = Window.partitionBy(*_LANE, "life").orderBy("number")
    upto = life.rowsBetween(Window.unboundedPreceding, Window.currentRow)
    none = F.lit(0).cast("bigint")
    low = F.coalesce(F.max(F.when(is_kind("purged"), F.col("hi"))).over(upto), none)
    high = F.coalesce(F.max(F.when(is_kind("sent"), F.col("hi"))).over(upto), none)
    kept = (
        rows.join(F.broadcast(asked), [*_LANE], how="left_semi")
        .withColumn(
            "life", F.coalesce(F.sum(is_removal.cast("int")).over(before_this(lane)), F.lit(0))
        )
        .withColumn("first", F.greatest("lo", low + 1))
        .withColumn("last", F.least("hi", high))
        .where(is_kind("answered") & (F.col("first") <= F.col("last")))
        .select(
            *_LANE,
            "protocol",
            F.col("peer").alias("asker"),
            "number",
            "time",
            "lo",
            "hi",
            "count",
            "first",
            "last",
        )
    )
    turn = F.floor(F.col("time") / F.col("width"))
    turns = F.when(F.col("is_multicast"), F.array(turn - 1, turn)).otherwise(F.array("time"))
    return _with_width(kept, tables).withColumn("turn", F.explode(turns))


def _resent(tables: Tables, wanted: DataFrame) -> DataFrame:
    """Return what was resent on lanes with requests: its lane, `turn`, `to`, `resent` (number),
    `resent_at`, `resent_lo` and `resent_hi`."""
    lanes = F.broadcast(wanted.select(*_LANE).distinct())
    rows = _with_lanes(tables.of("retransmitted").where(is_numbered()))
    turn = F.floor(F.col("time") / F.col("width"))
    return (
        _with_width(rows.join(lanes, [*_LANE], how="left_semi"), tables)
        .withColumn("turn", F.when(F.col("is_multicast"), turn).otherwise(F.col("time")))
        .select(
            *_LANE,
            "turn",
            F.col("peer").alias("to"),
            F.col("number").alias("resent"),
            F.col("time").alias("resent_at"),
            F.col("lo").alias("resent_lo"),
            F.col("hi").alias("resent_hi"),
        )
    )


def _with_width(rows: DataFrame, tables: Tables) -> DataFrame:
    """Add the seconds for which what was resent before counts as an answer, as `width`: of
    multicasts, which may have gone to all, those of the promise; of unicasts none. Rows of which
    nothing is promised go."""
    lasts = of_protocol("answer_lasts") + words.EPSILON
    return (
        with_promises(rows, tables, "short_id")
        .withColumn("width", F.when(F.col("is_multicast"), lasts).otherwise(0.0))
        .where(F.col("width").isNotNull())
        .drop("promised", "protocols", "started", "ended")
    )
