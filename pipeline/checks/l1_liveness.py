"""L1, liveness: deliveries are acked in time, senders repeat unacked messages in time, and nobody
waits for room that is there."""

from __future__ import annotations

from typing import Final

from pyspark.sql import DataFrame, Window
from pyspark.sql import functions as F

from stormcast.pipeline import words
from stormcast.pipeline.checks import l1_lanes
from stormcast.pipeline.checks.l1_answers import answered_in_part
from stormcast.pipeline.promises import of_protocol, of_unicast, unhindered, with_promises
from stormcast.pipeline.ranges import with_last
from stormcast.pipeline.tables import Tables
from stormcast.pipeline.tables.kept import keep
from stormcast.pipeline.tables.messages import NUMBERING, WINDOW
from stormcast.pipeline.tables.records import is_kind
from stormcast.pipeline.violations import event, plain, union, violations

GUARANTEE: Final = "L1"


def liveness(tables: Tables) -> DataFrame:
    """Find deliveries without an ack, senders that fall silent, requests answered in part, and
    lanes that wait for nothing."""
    return union(
        _acked_late(tables),
        _unflushed(tables),
        _unrepeated(tables),
        *([answered_in_part(tables, GUARANTEE)] if tables.occurring.any("answered") else ()),
        *l1_lanes.parts(tables, GUARANTEE),
    )


# -- Acks ------------------------------------------------------------------------------------------


def _acked_late(tables: Tables) -> DataFrame:
    """Find in each window the first delivery in order that no ack covered in time."""
    is_mcast = F.col("protocol") == words.ACKED_MULTICAST
    in_order = tables.messages.receiving.where(
        is_kind("delivered")
        & (F.col("sender") != F.col("receiver"))
        & (F.col("flags").bitwiseAND(words.OOB) == 0)
        & (~F.col("is_multicast") | is_mcast)
    ).select(*WINDOW, "is_multicast", "protocol", "number", "time", "hi")
    promised = with_promises(in_order, tables, "receiver")
    within = F.when(F.col("is_multicast"), of_protocol("ack_within")).otherwise(
        of_unicast("ack_within")
    )
    of_strangers = F.when(~F.col("is_multicast"), of_unicast("stranger_ack_within"))
    bounded = (
        promised.withColumn("within", within)
        .withColumn("more", F.coalesce(of_strangers, within) - within)
        .where(F.col("within").isNotNull())
        .drop("promised", "protocols", "started")
    )
    # The ack that covers a delivery is the one with the smallest value at or above it, of those
    # that acked anything new: one that says less than an earlier one covers nothing.
    before = (
        Window.partitionBy(*WINDOW).orderBy("number").rowsBetween(Window.unboundedPreceding, -1)
    )
    acked = (
        tables.messages.receiving.where(is_kind("acked"))
        .withColumn("known", F.max("lo").over(before))
        .where(F.col("known").isNull() | (F.col("lo") > F.col("known")))
    )
    acks = acked.select(
        *WINDOW,
        (-F.col("lo")).alias("at"),
        (-F.col("number")).alias("turn"),
        F.struct("number", "time").alias("ack"),
    )
    points = bounded.withColumn("at", -F.col("hi"))
    due = F.col("time") + F.col("within") + words.EPSILON
    late = with_last(points, acks, WINDOW, "ack").withColumn("due", due)
    late = keep(late.where(F.col("ack").isNull() | (F.col("ack.time") > F.col("due"))))
    late = _with_more_for_freezes(tables, _with_more_for_strangers(tables, late))
    late = late.where(F.col("ack").isNull() | (F.col("ack.time") > F.col("due")))
    removals = tables.messages.windows.select(*WINDOW, F.col("removed.time").alias("removed"))
    ends = tables.rig.runs.select("run", "end")
    last = F.least("end", F.coalesce("removed", F.lit(words.INFINITY)))
    ended = (
        late.join(removals, [*WINDOW], how="left")
        .join(F.broadcast(ends), "run", how="inner")
        .where(F.col("due") < last)
        .drop("end", "removed")
    )
    found = _first_of(unhindered(ended, tables, "receiver", F.col("time"), F.col("due")), [*WINDOW])
    return violations(
        found,
        GUARANTEE,
        time="due",
        detail=F.format_string(
            "seqno %d was not acked within %ss", "hi", plain(F.col("within") + F.col("more"))
        ),
        witness=[event("receiver", "number"), event("receiver", "ack.number")],
    )


def _first_of(rows: DataFrame, by: list[str]) -> DataFrame:
    """Return the first row of each key, in the order of the trace."""
    in_turn = Window.partitionBy(*by).orderBy("number")
    ranked = rows.withColumn("rank", F.row_number().over(in_turn))
    return ranked.where(F.col("rank") == 1).drop("rank")


def _with_more_for_strangers(tables: Tables, late: DataFrame) -> DataFrame:
    """Give senders that were outside of the receiver's view at some moment until `due` the time
    that they have; `more` is 0 for all others."""
    key = [*WINDOW, "number"]
    views = tables.groups.views.withColumnRenamed("short_id", "receiver")
    in_turn = Window.partitionBy("run", "receiver").orderBy("place")
    held = views.select(
        "run",
        "receiver",
        F.col("time").alias("since"),
        F.coalesce(F.lead("time").over(in_turn), F.lit(words.INFINITY)).alias("until"),
        "members",
        (F.col("place") == 0).alias("is_first"),
    )
    begin, end = F.col("time") - words.EPSILON, F.col("due") + words.EPSILON
    lacks = ~F.array_contains("members", F.col("sender"))
    is_held = (F.col("since") <= end) & (F.col("until") >= begin)
    # Before its first view a member has nobody.
    is_before_all = F.col("is_first") & (F.col("since") >= begin)
    candidates = late.where(F.col("more") > 0).select(*key, "time", "due")
    outside = (
        candidates.join(held, ["run", "receiver"], how="inner")
        .where((lacks & is_held) | is_before_all)
        .select(*key)
    )
    without_views = candidates.join(
        views.select("run", "receiver").distinct(), ["run", "receiver"], how="left_anti"
    ).select(*key)
    known = outside.unionByName(without_views).distinct().withColumn("is_outside", F.lit(True))
    more = F.when(F.col("is_outside").isNotNull(), F.col("more")).otherwise(0.0)
    return (
        late.join(known, key, how="left")
        .withColumn("more", more)
        .withColumn("due", F.col("due") + F.col("more"))
        .drop("is_outside")
    )


def _with_more_for_freezes(tables: Tables, late: DataFrame) -> DataFrame:
    """Give multicasts that would be due in a time in which their receiver's acks were frozen, or in
    which it caught up, until the end of that time."""
    key = [*WINDOW, "number"]
    held = (
        late.where("is_multicast")
        .join(F.broadcast(_frozen(tables)), ["run", "receiver", "within"], how="inner")
        .where((F.col("frozen") < F.col("due")) & (F.col("until") > F.col("time")))
        .groupBy(*key)
        .agg(F.max("until").alias("until"))
    )
    later = F.greatest("due", F.coalesce("until", F.col("due")))
    return (
        late.join(held, key, how="left")
        .withColumn("more", F.col("more") + later - F.col("due"))
        .withColumn("due", later)
        .drop("until")
    )


def _frozen(tables: Tables) -> DataFrame:
    """Return the times in which a receiver's acks were frozen, each with the time to catch up:
    run, receiver, within, frozen, until. Those of which one begins in another are one."""
    spans = tables.members.freezes.select(
        "run",
        F.col("short_id").alias("receiver"),
        F.lit(words.ACKED_MULTICAST).alias("protocol"),
        F.col("start").alias("frozen"),
        F.col("end").alias("thawed"),
    )
    bounded = with_promises(spans, tables, "receiver").withColumn(
        "within", of_protocol("ack_within")
    )
    in_turn = Window.partitionBy("run", "receiver").orderBy("frozen")
    until = F.col("thawed") + F.col("within")
    is_new = F.col("frozen") > F.lag(until).over(in_turn) + words.EPSILON
    return (
        bounded.withColumn("nth", F.coalesce(is_new.cast("int"), F.lit(0)))
        .withColumn("nth", F.sum("nth").over(in_turn))
        .groupBy("run", "receiver", "within", "nth")
        .agg(F.min("frozen").alias("frozen"), F.max(until).alias("until"))
        .drop("nth")
    )


def _unflushed(tables: Tables) -> DataFrame:
    """Find windows that were removed before all that they had delivered was acked (JGRP-1755)."""
    is_removal = is_kind("conn") & (F.col("stream") == words.RECEIVER_REMOVED)
    removed = (
        tables.messages.receiving.where(
            ~F.col("is_multicast") & (F.col("sender") != F.col("receiver"))
        )
        .groupBy(*WINDOW)
        .agg(
            F.max(F.when(is_removal, F.struct("number", "time", "lo"))).alias("removed"),
            F.max(F.when(is_kind("acked"), F.col("lo"))).alias("acked"),
            F.max(F.when(is_kind("delivered"), F.col("number"))).alias("last"),
        )
    )
    found = removed.where(
        F.col("last").isNotNull()
        & (F.col("removed.lo") > F.coalesce("acked", F.lit(0).cast("bigint")))
    )
    return violations(
        found,
        GUARANTEE,
        time="removed.time",
        detail=F.format_string(
            "the window was removed, and seqno %d in it never acked", "removed.lo"
        ),
        witness=[event("receiver", "last"), event("receiver", "removed.number")],
    )


# -- Repeats ---------------------------------------------------------------------------------------


def _unrepeated(tables: Tables) -> DataFrame:
    """Find in each sender entry the first time in which it had messages unacked, and neither sent
    nor purged any for too long."""
    activity = tables.messages.sending.where(
        ~F.col("is_multicast")
        & (F.col("sender") != F.col("dest"))
        & is_kind("sent", "purged", "retransmitted")
    )
    in_turn = Window.partitionBy(*NUMBERING).orderBy("number")
    upto = in_turn.rowsBetween(Window.unboundedPreceding, Window.currentRow)
    none = F.lit(0).cast("bigint")
    high = F.coalesce(F.max(F.when(is_kind("sent"), F.col("hi"))).over(upto), none)
    low = F.coalesce(F.max(F.when(is_kind("purged"), F.col("hi"))).over(upto), none)
    waits = (
        activity.withColumn("next", F.lead(F.struct("number", "time")).over(in_turn))
        .withColumn("is_waiting", low < high)
        .where("is_waiting")
        .select(*NUMBERING, "number", "time", "next")
    )
    removals = tables.messages.removed_entries.select(*NUMBERING, F.col("time").alias("removed"))
    ends = tables.rig.runs.select("run", "end")
    last = F.least("end", "ended", F.coalesce("removed", F.lit(words.INFINITY)))
    until = F.coalesce(F.least("next.time", last), last)
    within = of_unicast("resend_within")
    long = keep(
        with_promises(waits, tables, "sender")
        .join(F.broadcast(ends), "run", how="inner")
        .join(F.broadcast(removals), [*NUMBERING], how="left")
        .withColumn("within", within)
        .withColumn("until", until)
        .where(F.col("until") - F.col("time") > F.col("within") + words.EPSILON)
        .select(*NUMBERING, "number", "time", "next", "within", "until")
    )
    pauses = tables.members.holds.where(F.col("do") == "pause").select(
        "run", F.col("short_id").alias("sender"), F.col("start").alias("paused"), "end"
    )
    key = [*NUMBERING, "number"]
    overlap = F.greatest(F.lit(0.0), F.least("end", "until") - F.greatest("paused", "time"))
    hindered = (
        long.join(F.broadcast(pauses), ["run", "sender"], how="inner")
        .groupBy(*key)
        .agg(F.sum(overlap).alias("lost"))
    )
    silent = F.col("until") - F.col("time") - F.coalesce("lost", F.lit(0.0))
    found = _first_of(
        long.join(hindered, key, how="left")
        .withColumn("silent", silent)
        .where(F.col("silent") > F.col("within") + words.EPSILON),
        [*NUMBERING],
    )
    return violations(
        found,
        GUARANTEE,
        time=F.col("time") + F.col("within"),
        detail=F.format_string(
            "unacked, and nothing sent for %.6fs: the bound is %ss", "silent", plain("within")
        ),
        witness=[event("sender", "number"), event("sender", "next.number")],
    )
