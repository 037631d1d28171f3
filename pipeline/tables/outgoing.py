"""Messages that applications offered to each destination, and those of them that left."""

from __future__ import annotations

from typing import Final

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F

from stormcast.pipeline import words
from stormcast.pipeline.ranges import before_this, with_last
from stormcast.pipeline.tables.occurring import Occurring
from stormcast.pipeline.tables.records import is_fragment

DEST: Final = ("run", "sender", "dest")
"""`dest` is the receiver, or 0: the group. Messages are numbered for each destination."""
OFFER_SECONDS: Final = 0.25
"""Seconds within which a member records what was offered to it."""
LOW: Final = 0xFFFFFFFF
"""The bits of a message's number that a record keeps."""


def told_by_senders(both_ends: DataFrame, *kinds: str) -> DataFrame:
    """Return the events of these kinds, with sender and destination."""
    return both_ends.where(F.col("kind").isin(*kinds)).select(
        "run",
        F.col("short_id").alias("sender"),
        F.col("peer").alias("dest"),
        "kind",
        "protocol",
        "number",
        "time",
        "conn",
        "count",
        "lo",
        "hi",
        "bytes",
        "digest",
        "trim",
        "flags",
    )


def left(both_ends: DataFrame, occurring: Occurring) -> DataFrame:
    """Return batches that left, and messages that were given up while they waited, in order: run,
    sender, dest, number, time, is_abandoned, count, `first` to `last` (the application's numbers),
    `reached` (the highest number before), `upto` (the last one that left, or was given up after it
    was offered), `settled` (the highest of these before). A message in pieces has the row of its
    last piece, and of the one that follows it, if there is one.
    """
    sent = told_by_senders(both_ends, "sent")
    rows = sent.where(~is_fragment()).withColumn("upto", F.lit(None).cast("bigint"))
    abandoned = given_up(both_ends) if occurring.any("abandoned") else None
    if occurring.in_pieces():
        pieces = _last_pieces(both_ends, sent.where(is_fragment()), abandoned)
        rows = rows.unionByName(pieces, allowMissingColumns=True)
    if abandoned is not None:
        rows = rows.unionByName(abandoned)
    rows = rows.withColumn("is_abandoned", F.col("kind") == "abandoned")
    in_turn = Window.partitionBy(*DEST).orderBy("number")
    upto = in_turn.rowsBetween(Window.unboundedPreceding, Window.currentRow)
    since = Window.partitionBy(*DEST, "resets").orderBy("number")
    since_upto = since.rowsBetween(Window.unboundedPreceding, Window.currentRow)
    end = F.when(F.col("is_abandoned"), F.col("hi")).otherwise(F.col("trim") + F.col("count") - 1)
    before = F.coalesce(F.lag(end).over(in_turn), F.lit(0))
    # A record keeps the low half of a number: the whole number is the one nearest to the number
    # before. A record of abandoned messages has whole numbers, from which counting continues.
    step = F.when(F.col("is_abandoned"), 0).otherwise(
        _signed(F.col("trim") - before - 1) + F.col("count")
    )
    is_reset = F.col("is_abandoned").cast("int")
    start = F.last(F.when(F.col("is_abandoned"), F.col("hi")), True).over(upto)
    first = F.col("last") - F.col("count") + 1
    return (
        rows.withColumn("step", step)
        .withColumn("resets", F.sum(is_reset).over(upto))
        .withColumn("start", F.coalesce(start, F.lit(0)))
        .withColumn("last", F.col("start") + F.sum("step").over(since_upto))
        .withColumn("first", F.when(F.col("is_abandoned"), F.col("lo")).otherwise(first))
        .withColumn("reached", F.coalesce(F.max("last").over(before_this(in_turn)), F.lit(0)))
        .withColumn("upto", F.coalesce("upto", "last"))
        .withColumn("settled", F.coalesce(F.max("upto").over(before_this(in_turn)), F.lit(0)))
        .select(
            *DEST,
            *("number", "time", "is_abandoned", "count", "first", "last", "reached"),
            *("upto", "settled"),
        )
    )


def given_up(both_ends: DataFrame) -> DataFrame:
    """Return the reports of messages that were given up while they waited, with `upto`: the last of
    them that was offered by then."""
    offered = told_by_senders(both_ends, "offered").select(
        *DEST,
        F.col("time").alias("at"),
        F.col("number").alias("turn"),
        F.struct("hi").alias("offered"),
    )
    reports = (
        told_by_senders(both_ends, "abandoned")
        .where(F.col("protocol").isNull())
        .withColumn("at", F.col("time") + OFFER_SECONDS + words.EPSILON)
    )
    return (
        with_last(reports, offered, DEST, "offered")
        .withColumn("upto", F.least("hi", F.coalesce("offered.hi", F.lit(0))))
        .drop("offered")
    )


def cuts(both_ends: DataFrame) -> DataFrame:
    """Return the messages that were cut in pieces: run, sender, dest, trim (low half of the
    number), cut."""
    return (
        told_by_senders(both_ends, "cut")
        .groupBy(*DEST, F.col("lo").bitwiseAND(LOW).alias("trim"))
        .agg(
            F.max_by(F.struct("number", "time", "lo", "count", "bytes", "digest"), "number").alias(
                "cut"
            )
        )
    )


def _last_pieces(both_ends: DataFrame, pieces: DataFrame, abandoned: DataFrame | None) -> DataFrame:
    """Return the last piece of each message that left in pieces, in place of the message, and the
    first one that is too many."""
    by = [*DEST, "trim"]
    placed = pieces
    if abandoned is not None:
        marks = abandoned.select(
            *DEST,
            F.col("number").alias("at"),
            F.col("number").alias("turn"),
            F.struct("number").alias("reset"),
        )
        placed = with_last(pieces.withColumn("at", F.col("number")), marks, DEST, "reset")
        by.append("reset")
    of_message = Window.partitionBy(*by).orderBy("number")
    return (
        placed.withColumn("nth", F.row_number().over(of_message))
        .join(cuts(both_ends), [*DEST, "trim"], how="inner")
        # One piece more than there are is the message again.
        .where(F.col("nth").isin(F.col("cut.count"), F.col("cut.count") + 1))
        .withColumn("count", F.lit(1).cast("bigint"))
        .select(*pieces.columns)
    )


def _signed(difference: Column) -> Column:
    """Return the number nearest to 0 that has the same low 32 bits as a difference."""
    half = F.lit(0x80000000)
    return (difference + half).bitwiseAND(LOW) - half
