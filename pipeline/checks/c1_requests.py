"""C1, requests and acks: requests are bounded in size, spaced and patient, acks are few. These
rules are for all windows."""

from __future__ import annotations

from typing import Final

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F

from stormcast.pipeline import words
from stormcast.pipeline.promises import of_window, unhindered, with_promises
from stormcast.pipeline.ranges import with_last
from stormcast.pipeline.tables import Tables
from stormcast.pipeline.tables.kept import keep
from stormcast.pipeline.tables.messages import WINDOW
from stormcast.pipeline.violations import event, plain, union, violations

GUARANTEE: Final = "C1"
SPARE_ACKS: Final = 3
"""Acks that no rate accounts for: at the opening, of the last message, at the removal."""
_EARLY: Final = (*WINDOW, "is_multicast")
_LOOKS: Final = (*WINDOW, "is_multicast", "joining")
"""Requests with equal values of these columns are spaced."""


def parts(tables: Tables) -> list[DataFrame]:
    """Find requests and acks beyond what their receiver promises."""
    found = []
    if tables.occurring.any("requested"):
        requests = keep(_requests(tables))
        found += [
            _large(requests),
            _late(tables, requests),
            _asked_again(_same_ends(requests)),
            _asked_again(_same_inside(requests)),
            _impatient(tables, requests),
        ]
    return [*found, _many_acks(tables)] if tables.occurring.any("acked") else found


def _requests(tables: Tables) -> DataFrame:
    """Return all requests, with the bounds of their receiver and the batch of their last seqno."""
    protocols = tables.messages.windows.select(*WINDOW, "protocol")
    requests = tables.messages.placed.where(F.col("kind") == "requested").drop("protocol")
    known = with_promises(requests, tables, "receiver").join(
        F.broadcast(protocols), [*WINDOW], how="left"
    )
    is_joining = F.col("is_multicast") & (F.col("stream") == words.JOINING)
    spacing = F.when(is_joining, of_window("join_spacing")).otherwise(of_window("request_spacing"))
    return known.select(
        *WINDOW,
        "is_multicast",
        is_joining.alias("joining"),
        "number",
        "time",
        "lo",
        "hi",
        "count",
        "batch",
        "ended",
        of_window("request_size").alias("size"),
        spacing.alias("spacing"),
        of_window("request_patience").alias("patience"),
    )


def _large(requests: DataFrame) -> DataFrame:
    return violations(
        requests.where(F.col("count") > F.col("size")),
        GUARANTEE,
        time="time",
        detail=F.format_string("%d seqnos in one request: the limit is %.0f", "count", "size"),
        witness=[event("receiver", "number")],
    )


def _late(tables: Tables, requests: DataFrame) -> DataFrame:
    """Find requests for unicasts that their window had delivered already."""
    is_in_order = F.col("flags").bitwiseAND(words.OOB) == 0
    marks = tables.messages.receiving.where(
        (F.col("kind") == "delivered") & ~F.col("is_multicast") & is_in_order
    ).select(
        *WINDOW,
        F.col("time").alias("at"),
        F.col("number").alias("turn"),
        F.struct("number", "hi").alias("had"),
    )
    points = requests.where(~F.col("is_multicast")).withColumn("at", F.col("time") - words.EPSILON)
    found = keep(with_last(points, marks, WINDOW, "had"))
    is_late = F.coalesce(F.col("lo") <= F.col("had.hi"), F.lit(False))
    in_order = violations(
        found.where(is_late),
        GUARANTEE,
        time="time",
        detail=F.format_string("seqno %d was requested after %d was delivered", "lo", "had.hi"),
        witness=[event("receiver", "had.number"), event("receiver", "number")],
    )
    return union(in_order, delivered_early(tables, found.where(~is_late), "seqno"))


def delivered_early(tables: Tables, requests: DataFrame, what: str) -> DataFrame:
    """Find requests of which the first or the last seqno, which they surely ask for, had been
    delivered OOB."""
    marks = (
        tables.messages.delivered.where(F.col("flags").bitwiseAND(words.OOB) != 0)
        .join(requests.select(*_EARLY).distinct(), [*_EARLY], how="left_semi")
        .select(
            *_EARLY,
            F.col("lo").alias("at"),
            (-F.col("number")).alias("turn"),
            F.struct("number", "hi", "time").alias("early"),
        )
    )
    ends = F.explode(F.array_distinct(F.array("lo", "hi")))
    points = requests.select(*_EARLY, "number", "time", ends.alias("seqno"))
    came_before = (F.col("early.hi") >= F.col("seqno")) & (
        F.col("early.time") < F.col("time") - words.EPSILON
    )
    found = (
        with_last(points.withColumn("at", F.col("seqno")), marks, _EARLY, "early")
        .where(came_before)
        .groupBy(*_EARLY, "number")
        .agg(F.min(F.struct("seqno", "time", "early")).alias("it"))
        .select(*_EARLY, "number", "it.*")
    )
    return violations(
        found,
        GUARANTEE,
        time="time",
        detail=F.format_string(
            f"{what} %d was requested after it was delivered out of band", "seqno"
        ),
        witness=[event("receiver", "early.number"), event("receiver", "number")],
    )


def _same_ends(requests: DataFrame) -> DataFrame:
    """Find requests that begin or end at the same seqno as another one too short a time before."""
    ends = requests.withColumn("seqno", F.explode(F.array_distinct(F.array("lo", "hi"))))
    by_seqno = Window.partitionBy(*_LOOKS, "seqno").orderBy("number")
    before = F.lag(F.struct("number", "time")).over(by_seqno)
    return ends.withColumn("before", before).where(_is_too_soon())


def _same_inside(requests: DataFrame) -> DataFrame:
    """Find pairs of requests, too close in time, of which one has no gaps and contains an end of
    the other.

    Only requests in the same or neighbouring buckets of time are compared; a bucket is as long as
    the spacing.
    """
    spaced = requests.where(F.col("spacing") > 0).withColumn(
        "bucket", F.floor(F.col("time") / F.col("spacing"))
    )
    is_full = (F.col("count") == F.col("hi") - F.col("lo") + 1) & (F.col("hi") > F.col("lo") + 1)
    near = F.explode(F.array(F.col("bucket") - 1, F.col("bucket"), F.col("bucket") + 1))
    this = F.struct("number", "time")
    around = spaced.where(is_full).select(
        *_LOOKS, "spacing", near.alias("bucket"), this.alias("outer"), "lo", "hi"
    )
    within = spaced.select(
        *_LOOKS,
        "bucket",
        this.alias("inner"),
        F.explode(F.array_distinct(F.array("lo", "hi"))).alias("seqno"),
    )
    is_inside = (F.col("lo") < F.col("seqno")) & (F.col("seqno") < F.col("hi"))
    is_first = F.col("outer.number") < F.col("inner.number")
    return (
        around.join(within, [*_LOOKS, "bucket"], how="inner")
        .where(is_inside & (F.col("outer.number") != F.col("inner.number")))
        .withColumn("before", F.when(is_first, F.col("outer")).otherwise(F.col("inner")))
        .withColumn("after", F.when(is_first, F.col("inner")).otherwise(F.col("outer")))
        .withColumn("number", F.col("after.number"))
        .withColumn("time", F.col("after.time"))
        .where(_is_too_soon())
        .dropDuplicates(["run", "receiver", "number"])
    )


def _is_too_soon() -> Column:
    return F.col("time") - F.col("before.time") < F.col("spacing") - words.EPSILON


def _asked_again(found: DataFrame) -> DataFrame:
    return violations(
        found,
        GUARANTEE,
        time="time",
        detail=F.format_string(
            "the same seqno was requested again after %.6fs: the spacing is %ss",
            F.col("time") - F.col("before.time"),
            plain("spacing"),
        ),
        witness=[event("receiver", "before.number"), event("receiver", "number")],
    )


def _impatient(tables: Tables, requests: DataFrame) -> DataFrame:
    """Find requests for messages that may still be under way: the two-look rule (JGRP-1539)."""
    after = F.col("time") - F.col("batch.time")
    early = requests.where(
        (F.col("patience") > 0) & ~F.col("joining") & (after < F.col("patience") - words.EPSILON)
    )
    # A grid tick that a pause delayed is followed by the next one sooner.
    two_looks_ago = F.col("time") - 2 * F.col("patience")
    return violations(
        unhindered(early, tables, "receiver", two_looks_ago, F.col("time")),
        GUARANTEE,
        time="time",
        detail=F.format_string(
            "seqno %d was requested %.6fs after it was sent: two looks take %ss",
            "hi",
            after,
            plain("patience"),
        ),
        witness=[event("sender", "batch.number"), event("receiver", "number")],
    )


def _many_acks(tables: Tables) -> DataFrame:
    """Find windows with more acks than one per threshold of messages, one per spacing of time, and
    `SPARE_ACKS`."""
    acking = with_promises(
        tables.messages.windows.where(F.col("acks") > 0), tables, "receiver"
    ).join(
        F.broadcast(tables.rig.runs.select("run", "over")),
        "run",
        how="inner",
    )
    bounded = (
        acking.withColumn("threshold", of_window("ack_threshold"))
        .withColumn("spacing", of_window("ack_spacing"))
        .where((F.col("threshold") > 0) & (F.col("spacing") > 0))
    )
    removed_at = F.coalesce("removed.time", F.lit(words.INFINITY))
    opened = F.col("opened.time")
    start = F.when(F.col("is_multicast"), F.coalesce(opened, F.lit(0.0))).otherwise(
        F.coalesce(F.least(opened, "first_ack"), "started")
    )
    start = F.when(opened.isNull() & ~F.col("is_multicast"), F.col("started")).otherwise(start)
    lived = bounded.withColumn("life", F.least(removed_at, "ended", "over") - start)
    # First compare with delivered messages, which are known already and mostly enough.
    suspicious = keep(_over(lived.withColumn("messages", F.col("delivered"))))
    many = _over(_with_received(tables, suspicious)).withColumn(
        "rank", F.floor("allowed").cast("int") + 1
    )
    return _with_breaking_ack(tables, many)


def _over(windows: DataFrame) -> DataFrame:
    allowed = F.col("messages") / F.col("threshold") + F.col("life") / F.col("spacing") + SPARE_ACKS
    return windows.withColumn("allowed", allowed).where(
        F.col("acks") > F.col("allowed") + words.EPSILON
    )


def _with_received(tables: Tables, windows: DataFrame) -> DataFrame:
    """Set `messages` to those sent to a window in its life, if more than it delivered: messages
    that wait behind a gap count, too, and only their sending is recorded."""
    sent = tables.messages.sent.select(
        "run",
        "sender",
        "dest",
        "conn",
        F.col("time").alias("sent_at"),
        F.col("count").alias("messages"),
    )
    dest = F.when(F.col("is_multicast"), words.GROUP).otherwise(F.col("receiver"))
    in_time = F.col("sent_at") <= F.coalesce("removed.time", F.lit(words.INFINITY))
    received = (
        windows.select(*WINDOW, dest.alias("dest"), "removed")
        .join(sent, ["run", "sender", "dest", "conn"], how="inner")
        .where(in_time)
        .groupBy(*WINDOW)
        .agg(F.sum("messages").alias("received"))
    )
    return windows.join(received, [*WINDOW], how="left").withColumn(
        "messages", F.greatest("delivered", F.coalesce("received", F.lit(0)))
    )


def _with_breaking_ack(tables: Tables, many: DataFrame) -> DataFrame:
    in_turn = Window.partitionBy(*WINDOW).orderBy("number")
    acks = (
        tables.messages.receiving.where(F.col("kind") == "acked")
        .select(*WINDOW, "number", "time")
        .join(many.select(*WINDOW), [*WINDOW], how="left_semi")
        .withColumn("rank", F.row_number().over(in_turn))
        .withColumn("first_number", F.first("number").over(in_turn))
    )
    found = many.join(acks, [*WINDOW, "rank"], how="inner")
    return violations(
        found,
        GUARANTEE,
        time="time",
        detail=F.format_string(
            "%d acks for %d messages in %.3fs: one per %s messages and one per %ss allow %d",
            "acks",
            "delivered",
            "life",
            plain("threshold"),
            plain("spacing"),
            F.col("rank") - 1,
        ),
        witness=[event("receiver", "first_number"), event("receiver", "number")],
    )
