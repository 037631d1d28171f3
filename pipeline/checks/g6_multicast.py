"""G6 for multicasts: a sender purges none before every member of its view has it (M-3, P-16)."""

from __future__ import annotations

from typing import Final

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F

from stormcast.pipeline import words
from stormcast.pipeline.purges import lacked, suspicious
from stormcast.pipeline.ranges import reached_before, with_last
from stormcast.pipeline.tables import Tables
from stormcast.pipeline.tables.kept import keep
from stormcast.pipeline.violations import event, violations, with_name

_PAIR: Final = ("run", "sender", "receiver")
_FIRST: Final = -words.INFINITY
"""The time of what a member never expected."""


def purged_early(tables: Tables, guarantee: str) -> DataFrame:
    """Find for each sender and member the first purge of a multicast that the member did not have,
    though it was in the sender's view."""
    had = keep(_had(tables))
    suspects = keep(suspicious(_purges(tables), had, _PAIR))
    lacking = lacked(suspects, had, _PAIR)
    first = Window.partitionBy(*_PAIR).orderBy("number")
    found = (
        lacking.withColumn("rank", F.row_number().over(first))
        .where(F.col("rank") == 1)
        .drop("rank")
    )
    sent = tables.groups.multicasts.select(
        "run",
        "sender",
        F.col("lo").alias("at"),
        F.col("number").alias("turn"),
        F.struct("number", "hi").alias("batch"),
    )
    points = found.withColumn("at", F.col("seqno"))
    named = with_name(
        with_last(points, sent, ["run", "sender"], "batch"), tables, "receiver", "name"
    )
    # What is only expected no more was not delivered.
    late = F.when(F.col("late.number").isNotNull(), F.col("late"))
    ahead = late["time"] - F.col("time")
    return violations(
        named,
        guarantee,
        time="time",
        detail=F.when(
            late.isNotNull(),
            F.format_string(
                "multicast %d was purged %.6fs before %s delivered it", "seqno", ahead, "name"
            ),
        ).otherwise(
            F.format_string("multicast %d was purged and never delivered by %s", "seqno", "name")
        ),
        witness=[
            event("sender", F.when(F.col("batch.hi") >= F.col("seqno"), F.col("batch.number"))),
            event("sender", "number"),
            event("receiver", late["number"]),
        ],
    )


def _purges(tables: Tables) -> DataFrame:
    """Return the purges of each sender for each member of its view then: run, sender, receiver,
    number, time, lo, hi."""
    purged = tables.messages.sending.where(
        (F.col("kind") == "purged") & F.col("is_multicast")
    ).select("run", "sender", "number", "time", "lo", "hi", "view")
    views = tables.groups.views.select("run", F.col("short_id").alias("sender"), "place", "members")
    return (
        tables.groups.with_place(purged)
        .join(F.broadcast(views), ["run", "sender", "place"], how="inner")
        .withColumn("receiver", F.explode("members"))
        .drop("members", "place", "view")
    )


def _had(tables: Tables) -> DataFrame:
    """Return what members had of each stream, or expected no more, in ranges that hardly overlap:
    run, sender, receiver, lo, hi, time, number (null: was not delivered)."""
    delivered = tables.messages.delivered.where(F.col("is_multicast") & F.col("is_genuine")).select(
        *_PAIR, "number", "time", "lo", "hi"
    )
    is_muted = F.col("flags").bitwiseAND(words.DONT_LOOPBACK) != 0
    muted = tables.groups.multicasts.where(is_muted).select(
        "run", "sender", F.col("sender").alias("receiver"), "time", "lo", "hi"
    )
    every = tables.messages.windows.where("is_multicast")
    windows = every.where(F.col("opened").isNotNull() & (F.col("opened.lo") > 0))
    # A member that has no window yet wants nothing below where its first one will begin: the first
    # of all, though that one may begin at 0.
    begins = F.min(F.struct("first", "opened.lo")).alias("begins")
    firsts = (
        every.groupBy(*_PAIR)
        .agg(begins)
        .where(F.col("begins.lo") > 0)
        .select(
            *_PAIR, F.lit(_FIRST).alias("time"), _one().alias("lo"), F.col("begins.lo").alias("hi")
        )
    )
    known = delivered.unionByName(muted, allowMissingColumns=True).unionByName(
        firsts, allowMissingColumns=True
    )
    in_order = Window.partitionBy(*_PAIR).orderBy("lo", "time")
    is_new = F.col("hi") > F.coalesce(reached_before(in_order), F.lit(0))
    had = keep(known.withColumn("is_new", is_new).where("is_new").drop("is_new"))
    return had.unionByName(_given_up(tables, windows, had), allowMissingColumns=True)


def _given_up(tables: Tables, windows: DataFrame, had: DataFrame) -> DataFrame:
    """Return what members expected no more because a later window begins above it, or because they
    gave it up, and had not delivered."""
    opened = windows.select(*_PAIR, "opened.number", "opened.time", F.col("opened.lo").alias("hi"))
    skipped = tables.messages.receiving.where(
        (F.col("kind") == "skipped") & F.col("is_multicast")
    ).select(*_PAIR, "number", "time", "hi")
    lacking = keep(suspicious(opened.unionByName(skipped), had, _PAIR))
    return lacked(lacking, had, _PAIR).select(*_PAIR, "time", F.col("seqno").alias("lo"), "hi")


def _one() -> Column:
    return F.lit(1).cast("bigint")
