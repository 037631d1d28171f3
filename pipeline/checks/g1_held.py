"""G1 for windows that end: what one held without a gap is delivered in it.

A window holds each seqno once, above what it delivered and not above what was sent by then: if that
many are held, all of them are, and there is no gap.
"""

from __future__ import annotations

from typing import Final

from pyspark.sql import DataFrame, Window
from pyspark.sql import functions as F

from stormcast.pipeline import words
from stormcast.pipeline.ranges import first_gaps, with_last
from stormcast.pipeline.tables import Tables
from stormcast.pipeline.tables.kept import keep
from stormcast.pipeline.tables.messages import WINDOW
from stormcast.pipeline.tables.records import is_kind, is_multicast, is_numbered
from stormcast.pipeline.violations import event, violations

GUARANTEE: Final = "G1"
_WINDOW: Final = (*WINDOW, "is_multicast")
_CONNECTION: Final = ("run", "sender", "receiver", "conn", "is_multicast")
_PAIR: Final = ("run", "sender", "receiver", "is_multicast")


def lost_with_windows(tables: Tables) -> DataFrame:
    """Find messages that a member which stays had in a window that was removed, all that were sent
    by then, and never delivered."""
    held = keep(_held_without_a_gap(tables))
    what = F.when(F.col("is_multicast"), "multicast").otherwise("seqno")
    return violations(
        first_gaps(_delivered(tables, held), held, _WINDOW).withColumn("what", what),
        GUARANTEE,
        time="removed.time",
        detail=F.format_string(
            "%s %d was held without a gap, and never delivered: its window ended", "what", "gap"
        ),
        witness=[event("receiver", "gauge"), event("receiver", "removed.number")],
    )


def _held_without_a_gap(tables: Tables) -> DataFrame:
    """Return the windows that were removed and once held all that was sent by then and was not
    delivered: `first..last`, as the last such `gauge` says, and how the window was `removed`."""
    # Few windows are removed while they hold something.
    candidates = keep(_of_removed_windows(tables))
    gauges = _with_high(tables, _with_reached(tables, candidates))
    is_all = F.col("held") == F.col("last") - F.col("reached")
    newest = Window.partitionBy(*_WINDOW).orderBy(F.desc("gauge"))
    return (
        gauges.where(is_all)
        .withColumn("nth", F.row_number().over(newest))
        .where("nth = 1")
        .withColumn("first", F.col("reached") + 1)
        .select(*_WINDOW, "first", "last", "gauge", "removed")
    )


def _of_removed_windows(tables: Tables) -> DataFrame:
    """Return the gauges of windows that were removed at members that stay: the window, `gauge` (its
    number), time, `held`."""
    of_window = (
        tables.of("conn", "gauge")
        .where(is_numbered())
        .withColumns(
            {
                "sender": F.col("peer"),
                "receiver": F.col("short_id"),
                "conn": F.when(is_multicast(), 0).otherwise(F.col("conn")),
                "is_multicast": is_multicast(),
            }
        )
    )
    is_open, is_removed = F.lit(words.RECEIVER_OPEN), F.lit(words.RECEIVER_REMOVED)
    states = of_window.where(is_kind("conn") & F.col("stream").isin(is_open, is_removed))
    removed = (
        states.where(F.col("stream") == is_removed)
        .groupBy(*_WINDOW)
        .agg(F.max(F.struct("number", "time", "text")).alias("removed"))
        .where(F.coalesce("removed.text", F.lit("")) != "stop")
        .join(F.broadcast(tables.members.living("receiver")), ["run", "receiver"], how="left_semi")
    )
    is_gauge = is_kind("gauge") & (F.col("stream") == words.RECEIVE_MESSAGES) & (F.col("lo") > 0)
    gauges = of_window.where(is_gauge).select(
        *_PAIR, "number", "time", F.col("lo").alias("held"), F.col("number").alias("at")
    )
    marks = states.select(
        *_PAIR,
        F.col("number").alias("at"),
        F.col("number").alias("turn"),
        F.struct("stream", "conn", "epoch").alias("state"),
    )
    return (
        with_last(gauges, marks, _PAIR, "state")
        .where(F.col("state.stream") == is_open)
        .select(*_PAIR, "state.conn", "state.epoch", "time", "held", F.col("number").alias("gauge"))
        .join(removed, [*_WINDOW], how="inner")
    )


def _with_reached(tables: Tables, gauges: DataFrame) -> DataFrame:
    """Add `reached`: how far the window had delivered in order. That is no more than what was
    delivered last in its turn: messages that came early prove nothing. Left out is what a window
    held after it gave something up aloud, as that counts as held, too."""
    records = tables.messages.receiving.join(
        F.broadcast(gauges.select(*_WINDOW).distinct()), [*_WINDOW], how="left_semi"
    )
    is_oob = F.col("flags").bitwiseAND(words.OOB) != 0
    is_mark = is_kind("skipped") | (is_kind("delivered") & ~is_oob)
    marks = records.where(is_mark).select(
        *_WINDOW,
        F.col("number").alias("at"),
        F.col("number").alias("turn"),
        F.when(is_kind("delivered"), F.struct("hi")).alias("delivered"),
        F.when(is_kind("skipped"), F.struct("hi")).alias("skip"),
    )
    begins = tables.messages.windows.select(
        *_WINDOW,
        F.when(F.col("is_multicast"), F.col("opened.lo")).alias("offset"),
    )
    points = with_last(gauges.withColumn("at", F.col("gauge")), marks, _WINDOW, "delivered")
    return (
        with_last(points.withColumn("at", F.col("gauge")), marks, _WINDOW, "skip")
        .where(F.col("skip").isNull())
        .join(begins, [*_WINDOW], how="inner")
        .withColumn("reached", F.coalesce("delivered.hi", "offset", F.lit(0)))
        .drop("delivered", "skip", "offset")
    )


def _with_high(tables: Tables, gauges: DataFrame) -> DataFrame:
    """Add `last`: the highest seqno that was sent by the time of the gauge."""
    by = ["run", "sender", "dest", "conn", "is_multicast"]
    in_turn = Window.partitionBy(*by).orderBy("number")
    upto = in_turn.rowsBetween(Window.unboundedPreceding, Window.currentRow)
    senders = F.broadcast(gauges.select("run", "sender").distinct())
    marks = tables.messages.sent.join(senders, ["run", "sender"], how="left_semi").select(
        *by,
        F.col("time").alias("at"),
        F.col("number").alias("turn"),
        F.struct(F.max("hi").over(upto).alias("hi")).alias("sent"),
    )
    dest = F.when(F.col("is_multicast"), words.GROUP).otherwise(F.col("receiver"))
    points = gauges.withColumn("dest", dest).withColumn("at", F.col("time") + words.EPSILON)
    return (
        with_last(points, marks, by, "sent")
        .withColumn("last", F.coalesce("sent.hi", F.lit(0)))
        .drop("sent", "dest")
    )


def _delivered(tables: Tables, held: DataFrame) -> DataFrame:
    """Return what each of the windows delivered, what earlier ones did, which keeps a place in it,
    and what it gave up aloud."""
    windows = held.select(*_WINDOW)
    delivered = (
        tables.messages.receiving.where(is_kind("delivered"))
        .withColumnRenamed("epoch", "delivered_in")
        .join(F.broadcast(windows), [*_CONNECTION], how="inner")
        .where(F.col("delivered_in") <= F.col("epoch"))
        .select(*_WINDOW, "lo", "hi")
    )
    given_up = tables.messages.windows.where(F.col("skipped").isNotNull()).select(
        *_WINDOW, F.lit(0).cast("bigint").alias("lo"), F.col("skipped").alias("hi")
    )
    return delivered.unionByName(given_up)
