"""The tables of numbered messages: records of senders and receivers, matched by batch.

A *numbering* is a sequence of seqnos: one life of a sender entry (to the member `dest`, with `conn`
and `entry`), or the stream of a member (all three are 0 there). A *window* is one life of a
receiver entry (`conn`, `epoch`). Rows are ranges, as in the trace.
"""

from __future__ import annotations

from typing import Final

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F

from stormcast.pipeline import words
from stormcast.pipeline.ranges import before_this
from stormcast.pipeline.tables.by_kind import EventsByKind
from stormcast.pipeline.tables.kept import keep, made_once
from stormcast.pipeline.tables.records import is_kind, is_multicast, is_numbered

NUMBERING: Final = ("run", "sender", "dest", "conn", "entry")
"""`dest` is the receiver, or 0: the group."""
WINDOW: Final = ("run", "sender", "receiver", "conn", "epoch")
_CONNECTION: Final = ("run", "sender", "dest", "conn")
_RANGE: Final = ("number", "time", "lo", "hi", "count", "bytes", "digest", "flags")


class MessageTables:
    """The records of senders and receivers of numbered messages."""

    def __init__(self, events: EventsByKind) -> None:
        self._events = events

    @made_once
    def sending(self) -> DataFrame:
        """Events of senders of numbered messages, each with its numbering: sent, purged, conn, and
        for unicast also retransmitted."""
        is_conn = is_kind("conn") & (F.col("stream") <= words.SENDER_REMOVED)
        of_unicast = ~is_multicast() & (is_kind("sent", "purged", "retransmitted") | is_conn)
        of_group = is_multicast() & (is_kind("sent") | (is_kind("purged") & (F.col("conn") == 0)))
        half = Window.partitionBy("run", "short_id", "peer", "conn").orderBy("number")
        # An entry that closes and opens again is the same one; after its removal a new one begins.
        is_removal = is_kind("conn") & (F.col("stream") == words.SENDER_REMOVED)
        removals = F.coalesce(F.sum(is_removal.cast("int")).over(before_this(half)), F.lit(0))
        columns = ("kind", "protocol", "stream", "view", "text", *_RANGE)
        kinds = self._events.of("sent", "purged", "retransmitted", "conn")
        rows = kinds.where(is_numbered() & (of_unicast | of_group))
        return keep(
            rows.select(
                "run",
                F.col("short_id").alias("sender"),
                F.when(is_multicast(), words.GROUP).otherwise(F.col("peer")).alias("dest"),
                F.when(is_multicast(), 0).otherwise(F.col("conn")).alias("conn"),
                removals.alias("entry"),
                is_multicast().alias("is_multicast"),
                *columns,
            )
        )

    @made_once
    def sent(self) -> DataFrame:
        """Numbered batches, each with its numbering."""
        return self.sending.where(is_kind("sent"))

    @made_once
    def receiving(self) -> DataFrame:
        """Events of receivers of numbered messages, each with its window: delivered, acked,
        requested, skipped, conn."""
        is_conn = is_kind("conn") & (F.col("stream") >= words.RECEIVER_OPEN)
        kinds = ("delivered", "acked", "requested", "skipped")
        rows = self._events.of(*kinds, "conn")
        return rows.where(is_numbered() & (is_kind(*kinds) | is_conn)).select(
            "run",
            F.col("peer").alias("sender"),
            F.col("short_id").alias("receiver"),
            F.when(is_multicast(), 0).otherwise(F.col("conn")).alias("conn"),
            "epoch",
            is_multicast().alias("is_multicast"),
            "kind",
            "protocol",
            "stream",
            "stream_word",
            "view",
            *_RANGE,
        )

    @made_once
    def windows(self) -> DataFrame:
        """One row per window: its first event, opening and removal, and its sums."""
        is_open = is_kind("conn") & (F.col("stream") == words.RECEIVER_OPEN)
        is_removed = is_kind("conn") & (F.col("stream") == words.RECEIVER_REMOVED)
        is_control = is_kind("requested", "acked")
        return keep(
            self.receiving.groupBy(*WINDOW, "is_multicast").agg(
                F.min("number").alias("first"),
                F.min(F.when(is_open, F.struct("number", "time", "lo", "view"))).alias("opened"),
                F.max(F.when(is_removed, F.struct("number", "time"))).alias("removed"),
                F.max(F.when(is_kind("skipped"), F.col("hi"))).alias("skipped"),
                F.sum(F.when(is_kind("delivered"), F.col("count")).otherwise(0)).alias("delivered"),
                F.sum(is_kind("acked").cast("int")).alias("acks"),
                F.sum(is_kind("requested").cast("int")).alias("requests"),
                F.min(F.when(is_kind("acked"), F.col("time"))).alias("first_ack"),
                F.min_by("protocol", F.when(is_control, F.col("number"))).alias("protocol"),
            )
        )

    @made_once
    def removed_entries(self) -> DataFrame:
        """Removed sender entries: their numbering, number and time of the removal, text (why), how
        many messages were `unacked`, and `closed_as`: why the entry was closing before; empty if it
        was not, and so had no time to repeat messages."""
        in_turn = Window.partitionBy(*NUMBERING).orderBy("number")
        was_closing = F.lag("stream").over(in_turn) == words.SENDER_CLOSING
        closed_as = F.when(was_closing, F.lag("text").over(in_turn))
        return keep(
            self.sending.where(is_kind("conn"))
            .withColumn("closed_as", F.coalesce(closed_as, F.lit("")))
            .where(F.col("stream") == words.SENDER_REMOVED)
            .select(
                *NUMBERING,
                "number",
                "time",
                "text",
                "protocol",
                "closed_as",
                F.col("lo").alias("unacked"),
            )
        )

    @made_once
    def placed(self) -> DataFrame:
        """Each delivery with `batch`, the batch of its first seqno, and each request with that of
        its last.

        `is_genuine`: the batch has the same digest, contains the whole range, and was sent before.
        """
        points = self.receiving.where(is_kind("delivered", "requested")).withColumn(
            "dest", F.when(F.col("is_multicast"), words.GROUP).otherwise(F.col("receiver"))
        )
        reused = keep(self._reused)
        if reused.isEmpty():
            return keep(self._beside_batches(points, F.lit(0)))
        lives = F.broadcast(reused.select(*_CONNECTION, F.size("began").alias("lives")))
        counted = points.join(lives, [*_CONNECTION], how="left")
        single = self._beside_batches(
            counted.where(F.col("lives").isNull()).drop("lives"), F.lit(0)
        )
        return keep(single.unionByName(self._in_lives(keep(counted.where("lives > 1")), reused)))

    @property
    def _reused(self) -> DataFrame:
        """Connections with several lives of their sender entry: run, sender, dest, conn, `began`
        (times, by entry)."""
        return (
            self.sending.where(~F.col("is_multicast"))
            .groupBy(*NUMBERING)
            .agg(F.min("time").alias("at"))
            .groupBy(*_CONNECTION)
            .agg(F.sort_array(F.collect_list(F.struct("entry", "at"))).alias("entries"))
            .where(F.size("entries") > 1)
            .select(*_CONNECTION, F.col("entries.at").alias("began"))
        )

    def _in_lives(self, counted: DataFrame, reused: DataFrame) -> DataFrame:
        """Place events of connections with several lives: in the newest one whose batch fits best.

        That is nearly always the life of that time, or the one before. Only deliveries that fit
        neither are looked up in all lives, so that reuse does not multiply the rows.
        """
        began = F.broadcast(reused)
        upto = F.size(F.filter("began", lambda at: at <= F.col("time") + words.EPSILON))
        held = F.greatest(upto - 1, F.lit(0))
        near = counted.join(began, [*_CONNECTION]).withColumn("held", held).drop("began")
        both = F.array_distinct(F.array("held", F.greatest(F.col("held") - 1, F.lit(0))))
        placed = keep(_newest_that_fits(self._beside_batches(near.drop("lives"), F.explode(both))))
        is_lost = is_kind("delivered") & ~F.col("is_genuine")
        key = ["run", "receiver", "number"]
        lost = counted.join(F.broadcast(placed.where(is_lost).select(*key)), key, how="left_semi")
        everywhere = F.explode(F.sequence(F.lit(0), F.col("lives") - 1))
        found = _newest_that_fits(self._beside_batches(lost, everywhere).drop("lives"))
        return placed.where(~is_lost).drop("held").unionByName(found)

    def _beside_batches(self, points: DataFrame, entry: Column) -> DataFrame:
        """Put each point, in these entries of its sender, beside the batch with its seqno: the
        last one that begins at or before it, if that has the seqno. This takes one sort of a
        numbering, or of each of its buckets, and no join by range."""
        at = F.when(is_kind("requested"), F.col("hi")).otherwise(F.col("lo"))
        told = (
            points.withColumn("entry", entry)
            .withColumn("entry", F.col("entry").cast("bigint"))
            .withColumn("at", at)
        )
        sent = self.sent.select(*NUMBERING, *_RANGE, "kind", F.col("lo").alias("at"))
        numbering: list[str] = [*NUMBERING]
        if (buckets := self._events.buckets) is not None:
            told = told.withColumn("bucket", buckets.of(F.col("at")))
            sent = buckets.spread(sent)
            numbering.append("bucket")
        both = told.unionByName(sent, allowMissingColumns=True)
        upto = Window.partitionBy(*numbering).orderBy("at", F.col("kind") != "sent", "number")
        batch = F.last(F.when(is_kind("sent"), F.struct(*_RANGE)), True).over(upto)
        return (
            both.withColumn("batch", batch)
            .where(~is_kind("sent"))
            .withColumn("batch", F.when(F.col("batch.hi") >= F.col("at"), F.col("batch")))
            .withColumn("is_genuine", F.coalesce(_is_genuine(), F.lit(False)))
            .drop("at", "bucket")
        )

    @made_once
    def delivered(self) -> DataFrame:
        """Deliveries of numbered messages, each with its window and its batch."""
        return self.placed.where(is_kind("delivered"))


def _is_genuine() -> Column:
    """Whether a delivery is of its batch: same digest, within its range, and sent before."""
    return (
        (F.col("batch.digest") == F.col("digest"))
        & (F.col("batch.hi") >= F.col("hi"))
        & (F.col("batch.time") <= F.col("time") + words.EPSILON)
    )


def _newest_that_fits(candidates: DataFrame) -> DataFrame:
    """Keep, of the lives of a sender entry, the newest whose batch fits the event best."""
    fits = F.struct("is_genuine", F.col("batch").isNotNull(), "entry")
    by_event = Window.partitionBy("run", "receiver", "number").orderBy(F.desc("fits"))
    return (
        candidates.withColumn("fits", fits)
        .withColumn("rank", F.row_number().over(by_event))
        .where(F.col("rank") == 1)
        .drop("fits", "rank")
    )
