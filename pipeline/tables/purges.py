"""The tables of purges that came too early."""

from __future__ import annotations

from typing import Final

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F

from stormcast.pipeline import words
from stormcast.pipeline.purges import lacked, suspicious
from stormcast.pipeline.ranges import reached_before, with_last
from stormcast.pipeline.tables.kept import keep, made_once
from stormcast.pipeline.tables.members import MemberTables
from stormcast.pipeline.tables.messages import NUMBERING, MessageTables

ACK_DELIVERED: Final = ("UNICAST2", "UNICAST4")
"""Protocols whose receivers ack what they delivered, not what they received."""


class PurgeTables:
    """Purges of unicasts that a receiver did not have."""

    def __init__(self, members: MemberTables, messages: MessageTables) -> None:
        self._members = members
        self._messages = messages

    @made_once
    def early(self) -> DataFrame:
        """The first early purge of each sender entry: its numbering, number, time, lo, hi, `seqno`
        (the first that the receiver did not have), `batch` and `late`, its later delivery."""
        return _early(self._members, self._messages)


def _early(members: MemberTables, messages: MessageTables) -> DataFrame:
    had = keep(_had(messages))
    purges = messages.sending.where((F.col("kind") == "purged") & ~F.col("is_multicast")).select(
        *NUMBERING, "number", "time", "lo", "hi", "protocol"
    )
    suspects = keep(suspicious(purges, had, NUMBERING))
    lacking = lacked(suspects, had, NUMBERING)
    excused = _held_by_a_stalled_application(messages, members, lacking)
    unexcused = lacking.join(excused, [*NUMBERING, "number"], how="left_anti")
    first = Window.partitionBy(*NUMBERING).orderBy("number")
    found = (
        unexcused.withColumn("rank", F.row_number().over(first))
        .where(F.col("rank") == 1)
        .drop("rank")
    )
    sent = messages.sent.select(
        *NUMBERING,
        F.col("lo").alias("at"),
        F.col("number").alias("turn"),
        F.struct("number", "hi").alias("batch"),
    )
    with_batch = with_last(found.withColumn("at", F.col("seqno")), sent, NUMBERING, "batch")
    fits = F.col("batch.hi") >= F.col("seqno")
    return keep(with_batch.withColumn("batch", F.when(fits, F.col("batch"))))


def _had(messages: MessageTables) -> DataFrame:
    """Return what receivers had of each numbering: lo, hi, and the number and time of the delivery.
    What was delivered again is left out."""
    delivered = messages.delivered.where(~F.col("is_multicast") & F.col("is_genuine"))
    in_order = Window.partitionBy(*NUMBERING).orderBy("lo", "time", "number")
    is_new = F.col("hi") > F.coalesce(reached_before(in_order), F.lit(0))
    return (
        delivered.withColumn("is_new", is_new)
        .where("is_new")
        .select(*NUMBERING, "number", "time", "lo", "hi")
    )


def _held_by_a_stalled_application(
    messages: MessageTables, members: MemberTables, lacking: DataFrame
) -> DataFrame:
    """Return the purges of what a stalled receiver held, and had acked: it delivers that later,
    unless it ends, loses its window, or the run breaks off in the stall."""
    key = [*NUMBERING, "number"]
    stalls = members.holds.where(F.col("do") == "stall").select(
        "run", F.col("short_id").alias("dest"), F.col("start").alias("stalled"), "end"
    )
    ends = members.incarnations.select("run", F.col("short_id").alias("dest"), "ended")
    # One that ended in a stall holds what it held then.
    at = F.least("time", "ended")
    stalled = (
        lacking.where(~F.col("protocol").isin(*ACK_DELIVERED))
        .join(F.broadcast(stalls), ["run", "dest"], how="inner")
        .join(F.broadcast(ends), ["run", "dest"], how="inner")
        .where((F.col("stalled") <= at) & (at <= F.col("end") + words.EPSILON))
        .groupBy(*key)
        .agg(
            F.first("time").alias("time"),
            F.first("complete").alias("complete"),
            F.max("end").alias("consumes"),
        )
    )
    living = members.living("dest").withColumn("lives", F.lit(True))
    removals = (
        messages.windows.where(F.col("removed").isNotNull() & ~F.col("is_multicast"))
        .groupBy("run", "sender", F.col("receiver").alias("dest"), "conn")
        .agg(F.max("removed.time").alias("removed"))
    )
    return (
        stalled.join(F.broadcast(living), ["run", "dest"], how="left")
        .join(removals, ["run", "sender", "dest", "conn"], how="left")
        .where(_is_excused())
        .select(*key)
    )


def _is_excused() -> Column:
    never = F.lit(False)
    return (
        F.col("lives").isNull()
        | (F.col("consumes") == words.INFINITY)
        | F.coalesce(F.col("removed") > F.col("time"), never)
        | F.col("complete").isNotNull()
    )
