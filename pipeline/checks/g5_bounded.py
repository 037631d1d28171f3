"""G5, bounded memory: no gauge is above its bound, nothing is kept for ever behind a gap, and no
more bytes are under way than credits allow."""

from __future__ import annotations

from typing import Final

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F

from stormcast.pipeline import words
from stormcast.pipeline.checks import g5_credits
from stormcast.pipeline.tables import Tables
from stormcast.pipeline.tables.kept import keep
from stormcast.pipeline.tables.messages import WINDOW
from stormcast.pipeline.tables.records import is_multicast
from stormcast.pipeline.violations import event, union, violations

GUARANTEE: Final = "G5"
_PAIR: Final = ("run", "sender", "receiver")


def bounded(tables: Tables) -> DataFrame:
    """Find gauges above their bound at any time, receive windows that are not empty at the end, and
    bytes beyond the credits."""
    gauges = keep(tables.of("gauge").withColumn("is_multicast", is_multicast()))
    return union(
        _above(gauges),
        _stuck(tables, gauges),
        _stuck_multicasts(tables, gauges),
        *g5_credits.parts(tables),
    )


def _is_above() -> Column:
    return (F.col("hi") > 0) & (F.col("lo") > F.col("hi"))


def _above(gauges: DataFrame) -> DataFrame:
    return violations(
        gauges.where(_is_above()),
        GUARANTEE,
        time="time",
        detail=F.format_string(
            "%s: %d, and the bound is %d", F.coalesce("stream_word", F.lit("gauge")), "lo", "hi"
        ),
        witness=[event("short_id", "number")],
    )


def _left(tables: Tables, gauges: DataFrame) -> DataFrame:
    """Return the gauges of receive windows that are not empty at the end of a run, though nothing
    waits to leave their sender."""
    ends = tables.rig.runs.select("run", "end")
    waiting = (
        gauges.where((F.col("stream") == words.OUTBOX_BYTES) & (F.col("lo") > 0))
        .join(F.broadcast(ends), "run", how="inner")
        .where(F.col("time") >= F.col("end"))
        .select("run", F.col("short_id").alias("sender"), F.col("peer").alias("dest"))
        .distinct()
    )
    holds_some = F.col("stream").isin(*words.RECEIVE_WINDOW) & (F.col("lo") > 0) & ~_is_above()
    return (
        gauges.where(holds_some)
        .join(F.broadcast(ends), "run", how="inner")
        .where(F.col("time") >= F.col("end"))
        .select(
            "run",
            F.col("peer").alias("sender"),
            F.col("short_id").alias("receiver"),
            F.struct("number", "time", "lo", "stream_word").alias("gauge"),
            "is_multicast",
        )
        .withColumn("dest", F.when(F.col("is_multicast"), words.GROUP).otherwise(F.col("receiver")))
        .join(F.broadcast(waiting), ["run", "sender", "dest"], how="left_anti")
        .drop("dest")
    )


def _stuck(tables: Tables, gauges: DataFrame) -> DataFrame:
    """Find unicasts that wait behind a gap at the end of a run, and so for ever: their sender could
    fill the gap, and does not."""
    living = tables.members.living("sender")
    found = (
        _left(tables, gauges)
        .where(~F.col("is_multicast"))
        .join(F.broadcast(living), ["run", "sender"], how="left_semi")
        .join(_held_by_both(tables), [*_PAIR], how="inner")
    )
    return _behind_a_gap(tables, found)


def _held_by_both(tables: Tables) -> DataFrame:
    """Return for each pair the window of a connection that neither end has removed."""
    connection = [*_PAIR, "conn"]
    lives = (
        tables.messages.sending.where(~F.col("is_multicast"))
        .groupBy("run", "sender", "dest", "conn")
        .agg(F.max("entry").alias("entry"))
        .join(
            tables.messages.removed_entries,
            ["run", "sender", "dest", "conn", "entry"],
            how="left_anti",
        )
        .select("run", "sender", F.col("dest").alias("receiver"), "conn")
    )
    newest = F.max_by(F.struct("epoch", "removed"), "first").alias("window")
    windows = tables.messages.windows.where(~F.col("is_multicast")).groupBy(*connection).agg(newest)
    return (
        windows.where(F.col("window.removed").isNull())
        .join(lives, connection, how="left_semi")
        .groupBy(*_PAIR)
        .agg(F.min("conn").alias("conn"), F.min_by("window.epoch", "conn").alias("epoch"))
    )


def _stuck_multicasts(tables: Tables, gauges: DataFrame) -> DataFrame:
    """Find multicasts that wait behind a gap at the end, of a sender that is still together with
    the member, unless retransmission is off."""
    open_windows = (
        tables.messages.windows.where(F.col("is_multicast") & F.col("removed").isNull())
        .groupBy(*_PAIR)
        .agg(F.max_by("epoch", "first").alias("epoch"))
        .withColumn("conn", F.lit(0).cast("bigint"))
    )
    silences = tables.members.silences.select(
        "run",
        F.col("short_id").alias("receiver"),
        F.col("start").alias("silent_from"),
        F.col("end").alias("silent_to"),
    )
    found = (
        _left(tables, gauges)
        .where("is_multicast")
        .join(tables.groups.together.select(*_PAIR), [*_PAIR], how="left_semi")
        .join(open_windows, [*_PAIR], how="inner")
    )
    when = F.col("gauge.time")
    silent = (
        found.join(F.broadcast(silences), ["run", "receiver"], how="inner")
        .where((F.col("silent_from") <= when) & (when < F.col("silent_to")))
        .select("run", "receiver", "gauge")
    )
    return _behind_a_gap(tables, found.join(silent, ["run", "receiver", "gauge"], how="left_anti"))


def _behind_a_gap(tables: Tables, found: DataFrame) -> DataFrame:
    last = Window.partitionBy(*WINDOW).orderBy(F.desc("number"))
    behind = (
        tables.messages.receiving.where(F.col("kind") == "delivered")
        .withColumn("rank", F.row_number().over(last))
        .where(F.col("rank") == 1)
        .select(*WINDOW, F.col("number").alias("behind"))
    )
    return violations(
        found.join(behind, [*WINDOW], how="left"),
        GUARANTEE,
        time="gauge.time",
        detail=F.format_string(
            "%s: %d at the end of the run, behind a gap", "gauge.stream_word", "gauge.lo"
        ),
        witness=[event("receiver", "behind"), event("receiver", "gauge.number")],
    )
