"""Of groups: who is together with whom, and which multicasts that makes a member's due."""

from __future__ import annotations

from functools import cached_property
from typing import TYPE_CHECKING, Final

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F

from stormcast.pipeline import words
from stormcast.pipeline.ranges import with_last

if TYPE_CHECKING:
    from stormcast.pipeline.tables import Tables

VIEW_MASK: Final = 0xFFFFFFFF
"""What a record keeps of a view's number."""


class Groups:
    """What views and multicasts say together, each table made when it is first asked for."""

    def __init__(self, tables: Tables) -> None:
        self._tables = tables

    @cached_property
    def multicasts(self) -> DataFrame:
        """Batches of multicasts."""
        return self._tables.sent.where("is_multicast")

    @cached_property
    def streams(self) -> DataFrame:
        """One row per member that multicast: run, sender, high (the last seqno sent)."""
        high = F.max_by("hi", "number").alias("high")
        return self._tables.keep(self.multicasts.groupBy("run", "sender").agg(high))

    @cached_property
    def since(self) -> DataFrame:
        """From which view on each member has had another without a break up to its last one: run,
        short_id, other, place, time."""
        own = Window.partitionBy("run", "short_id")
        by_other = Window.partitionBy("run", "short_id", "other").orderBy("place")
        told = self._tables.views.withColumn("last", F.max("place").over(own)).select(
            "run", "short_id", "place", "time", "last", F.explode("members").alias("other")
        )
        # In an unbroken run of views the place grows as fast as the row number.
        runs = told.withColumn("unbroken", F.col("place") - F.row_number().over(by_other))
        return (
            runs.groupBy("run", "short_id", "other", "unbroken", "last")
            .agg(
                F.min("place").alias("place"),
                F.min_by("time", "place").alias("time"),
                F.max("place").alias("upto"),
            )
            .where(F.col("upto") == F.col("last"))
            .select("run", "short_id", "other", "place", "time")
        )

    @cached_property
    def sent_in(self) -> DataFrame:
        """What each member multicast in each of its views: run, sender, place (-1: before the
        first), first (seqno), last. The record names its view, and within a turn the view may be
        recorded after it; one that names none belongs to the view before it."""
        own_views = self._tables.views.withColumnRenamed("short_id", "sender")
        named = own_views.groupBy(
            "run", "sender", F.col("view").bitwiseAND(VIEW_MASK).alias("view")
        ).agg(F.max("place").alias("named"))
        marks = own_views.select(
            "run",
            "sender",
            F.col("number").alias("at"),
            F.col("number").alias("turn"),
            F.struct("place").alias("held"),
        )
        batches = self.multicasts.select(
            "run", "sender", "lo", "hi", "view", F.col("number").alias("at")
        )
        place = F.coalesce(
            F.when(F.col("view") != 0, F.col("named")), F.col("held.place"), F.lit(-1)
        ).cast("bigint")
        return self._tables.keep(
            with_last(batches, marks, ["run", "sender"], "held")
            .join(F.broadcast(named), ["run", "sender", "view"], how="left")
            .groupBy("run", "sender", place.alias("place"))
            .agg(F.min("lo").alias("first"), F.max("hi").alias("last"))
        )

    @cached_property
    def owed(self) -> DataFrame:
        """What each member must have of another's multicasts: run, sender, receiver, first..last.

        From the first one sent in a view from which on the sender always had the receiver, except
        what was sent before the receiver had the sender and lies below where its window then began.
        """
        pair = ["run", "sender", "receiver"]
        own = F.col("first")
        met_at = F.coalesce(F.col("late.lo"), F.col("high") + 1)
        begins = F.coalesce(F.col("offset") + 1, F.lit(1))
        return (
            self.together.join(self._first_in_view, pair, how="inner")
            .join(self._first_when_met, pair, how="inner")
            .join(self._openings, pair, how="left")
            .join(self.streams, ["run", "sender"], how="inner")
            .select(
                *pair,
                F.greatest(own, F.least(begins, met_at)).alias("first"),
                F.col("high").alias("last"),
            )
            .where(F.col("first") <= F.col("last"))
        )

    @cached_property
    def together(self) -> DataFrame:
        """Pairs of members that live, and that have each other at the end: `place` is the sender's
        view since which it has the receiver, `met` when the receiver got the sender."""
        living = self._tables.members.where("lives").select("run", "short_id")
        have = self.since.join(F.broadcast(living), ["run", "short_id"], how="left_semi")
        ours = have.select(
            "run", F.col("short_id").alias("sender"), F.col("other").alias("receiver"), "place"
        )
        theirs = have.select(
            "run",
            F.col("other").alias("sender"),
            F.col("short_id").alias("receiver"),
            F.col("time").alias("met"),
        )
        both = ours.join(theirs, ["run", "sender", "receiver"], how="inner")
        return self._tables.keep(both.where(F.col("sender") != F.col("receiver")))

    @cached_property
    def _first_in_view(self) -> DataFrame:
        """The first seqno that each sender sent in or after the view that brought each receiver."""
        pairs = self.together.select("run", "sender", "receiver", F.col("place").alias("since"))
        return (
            pairs.join(self.sent_in, ["run", "sender"], how="inner")
            .where(F.col("place") >= F.col("since"))
            .groupBy("run", "sender", "receiver")
            .agg(F.min("first").alias("first"))
        )

    @cached_property
    def _first_when_met(self) -> DataFrame:
        """The first batch that each sender sent after each receiver had it."""
        points = self.together.select(
            "run", "sender", "receiver", (F.lit(-words.EPSILON) - F.col("met")).alias("at")
        )
        # Backwards in time: the last one so is the first after the moment of the meeting.
        marks = self.multicasts.select(
            "run",
            "sender",
            (-F.col("time")).alias("at"),
            (-F.col("number")).alias("turn"),
            F.struct("lo").alias("late"),
        )
        return with_last(points, marks, ["run", "sender"], "late")

    @cached_property
    def _openings(self) -> DataFrame:
        """Where the window began with which a receiver met a sender."""
        windows = self._tables.windows.where(F.col("is_multicast") & F.col("opened").isNotNull())
        removed_at = F.coalesce(F.col("removed.time"), F.lit(words.INFINITY))
        pair = ["run", "sender", "receiver"]
        return (
            self.together.join(windows, pair, how="inner")
            .where(removed_at > F.col("met") + words.EPSILON)
            .groupBy(*pair)
            .agg(F.min_by("opened.lo", "first").alias("offset"))
        )


def with_batch(tables: Tables, losses: DataFrame) -> DataFrame:
    """Losses (`gap`) with the multicast that was lost; a seqno that was given to none is none."""
    marks = tables.groups.multicasts.select(
        "run",
        "sender",
        F.col("lo").alias("at"),
        F.col("number").alias("turn"),
        F.struct("number", "time", "hi").alias("batch"),
    )
    found = with_last(losses.withColumn("at", F.col("gap")), marks, ["run", "sender"], "batch")
    return found.where(F.col("batch.hi") >= F.col("gap"))


def excused(tables: Tables, losses: DataFrame) -> DataFrame:
    """Losses that were told of: nothing repairs, something was done to the run, and the receiver
    raised the alarm about this gap or one before it. Never silent."""
    was_disturbed = tables.runs.where("did_anything").select("run")
    alarms = tables.events.where((F.col("kind") == "alarm") & _is_of_group()).select(
        F.col("run"),
        F.col("short_id").alias("receiver"),
        F.col("peer").alias("sender"),
        F.col("time").alias("alarmed"),
        F.col("lo").alias("alarm_lo"),
    )
    in_time = F.col("alarmed") >= F.col("batch.time") - words.EPSILON
    is_before = F.col("alarm_lo") <= F.col("gap")
    pair = ["run", "sender", "receiver"]
    told = (
        losses.select(*pair, "gap", "batch")
        .join(alarms, pair, how="inner")
        .where(in_time & is_before)
        .dropDuplicates([*pair, "gap"])
    )
    in_silence = (F.col("batch.time") >= F.col("start")) & (F.col("batch.time") < F.col("end"))
    return (
        told.join(was_disturbed, "run", how="left_semi")
        .join(tables.silences.withColumnRenamed("short_id", "receiver"), ["run", "receiver"])
        .where(in_silence)
        .select(*pair, "gap")
    )


def _is_of_group() -> Column:
    return F.col("protocol").isin(*words.MULTICAST)
