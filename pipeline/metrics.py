"""What is measured of runs: DataFrame of events → DataFrame of aggregates, binned and small.

The events are the rows of docs/trace-format.md, of any number of runs, on one clock each
(`tables/clock.py`), and binned by `since`. Every function says what its rows are, and has `run`
first; `pipeline/measure.py` takes them out of Spark.
"""

from __future__ import annotations

from typing import Final

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F

from stormcast.pipeline.words import MULTICAST, RIG

BUCKETS_PER_DOUBLING: Final = 8
"""Of latency: each is 9% wide, so a quantile is at most that far off."""
TRAFFIC: Final = ("sent", "delivered", "retransmitted", "requested", "acked")
"""What goes on between two members."""
MERGE: Final = 1
"""`stream` of a view that joins groups that were apart."""
BUSY: Final = (*TRAFFIC, "view", "fault", "suspect", "skipped", "alarm", "blocked")
"""What is worth showing; gauges and heartbeats go on until the end of a run."""
BEGIN: Final = "begin"
"""The phase that a rig notes where its scenario's time is 0; else that is the first event."""


def extents(events: DataFrame) -> DataFrame:
    """How far each run reaches by its own clock: its number of events, when its scenario began
    (null: nobody says), its first and last event, and the last one that is worth showing."""
    is_begin = (F.col("kind") == "phase") & (F.col("text") == BEGIN)
    is_busy = F.col("kind").isin(*BUSY)
    return events.groupBy("run").agg(
        F.count(F.lit(1)).alias("events"),
        F.min(F.when(is_begin, F.col("time"))).alias("begin"),
        F.min("time").alias("first"),
        F.max("time").alias("last"),
        F.max(F.when(is_busy, F.col("time"))).alias("busy"),
    )


def since(events: DataFrame, runs: DataFrame) -> DataFrame:
    """The events with `at`, seconds since their run began, and the bins that they fall into.

    `runs` says when that was (`origin`), and how wide the bins of its charts are.
    """
    at = F.col("time") - F.col("origin")
    return (
        events.join(F.broadcast(runs), "run", how="inner")
        .withColumn("at", at)
        .withColumn("bin", F.floor(at / F.col("width")).cast("int"))
        .withColumn("fine_bin", F.floor(at / F.col("fine_width")).cast("int"))
        .drop("origin", "width", "fine_width")
    )


def peer_label() -> Column:
    """The other side by its label, or by its short id where it left no trace; null: the group."""
    stranger = F.when(F.col("peer") != 0, F.lower(F.hex("peer")))
    return F.coalesce("peer_member", stranger)


def lives(events: DataFrame) -> DataFrame:
    """One row per incarnation: who it is, and the time of its first, last and stopping event."""
    stopped = F.when(F.col("kind") == "stop", F.col("at"))
    return (
        events.where(F.col("short_id") != RIG)
        .groupBy("run", "member", "name", "short_id")
        .agg(F.min("at").alias("first"), F.max("at").alias("last"), F.max(stopped).alias("stop"))
    )


def traffic(events: DataFrame) -> DataFrame:
    """Messages and events of each kind, by who wrote them, the other side, and bin."""
    return (
        events.where(F.col("kind").isin(*TRAFFIC))
        .groupBy("run", "kind", "member", peer_label().alias("other"), "bin")
        .agg(F.sum("count").alias("messages"), F.count(F.lit(1)).alias("events"))
    )


def pairs(events: DataFrame) -> DataFrame:
    """The same over the whole run, by protocol: one row per kind, writer, other side."""
    return (
        events.where(F.col("kind").isin(*TRAFFIC) & F.col("protocol").isNotNull())
        .groupBy("run", "kind", "protocol", "member", peer_label().alias("other"))
        .agg(F.sum("count").alias("messages"), F.count(F.lit(1)).alias("events"))
    )


def deliveries(events: DataFrame) -> DataFrame:
    """Each delivered range with `sent_at`, when its batch was sent; null where nobody sent it.

    A sender's batches on one stream follow each other without overlap, so the batch of a delivery
    is the last one that begins at or before it. That needs one sort, and no join by range.
    """
    is_multicast = F.col("protocol").isin(*MULTICAST)
    is_sent = F.col("kind") == "sent"
    numbered = events.where(F.col("kind").isin("sent", "delivered") & (F.col("lo") > 0))
    of_streams = numbered.select(
        "run",
        "protocol",
        F.when(is_sent, F.col("member")).otherwise(peer_label()).alias("sender"),
        F.when(is_sent, peer_label()).otherwise(F.col("member")).alias("receiver"),
        # Of a multicast stream all receivers share one partition, and there is one conn.
        F.when(is_multicast, F.lit(0))
        .when(is_sent, F.col("peer"))
        .otherwise(F.col("short_id"))
        .alias("to"),
        F.when(is_multicast, F.lit(0)).otherwise(F.col("conn")).alias("stream_conn"),
        is_sent.alias("is_sent"),
        "lo",
        "hi",
        "count",
        "digest",
        "at",
        "bin",
    )
    stream = (
        Window.partitionBy("run", "protocol", "sender", "to", "stream_conn")
        .orderBy("lo", F.desc("is_sent"), "at")
        .rowsBetween(Window.unboundedPreceding, Window.currentRow)
    )
    batch = F.when(F.col("is_sent"), F.struct("at", "hi", "digest"))
    with_batch = of_streams.withColumn("batch", F.last(batch, ignorenulls=True).over(stream))
    is_its_own = (F.col("batch.hi") >= F.col("lo")) & (F.col("batch.digest") == F.col("digest"))
    return with_batch.where(~F.col("is_sent")).select(
        "run",
        "protocol",
        "sender",
        "receiver",
        "count",
        "at",
        "bin",
        F.when(is_its_own, F.col("batch.at")).alias("sent_at"),
    )


def latencies(delivered: DataFrame) -> DataFrame:
    """How long messages were under way: messages and mean per bin and bucket of latency.

    Buckets are logarithmic. Null is the bucket of what has no sending, or one that is later than
    its delivery: two clocks that disagree. What one says to oneself travels nowhere.
    """
    seconds = F.col("at") - F.col("sent_at")
    travelled = F.greatest(seconds, F.lit(1e-9))
    bucket = F.floor(F.log2(travelled) * BUCKETS_PER_DOUBLING).cast("int")
    return (
        delivered.where(F.col("sender") != F.col("receiver"))
        .select(
            "run",
            "bin",
            F.when(seconds >= 0, bucket).alias("bucket"),
            "count",
            seconds.alias("seconds"),
        )
        .groupBy("run", "bin", "bucket")
        .agg(
            F.sum("count").alias("messages"),
            (F.sum(F.col("seconds") * F.col("count")) / F.sum("count")).alias("mean"),
            F.max("seconds").alias("most"),
        )
    )


def blocked(events: DataFrame) -> DataFrame:
    """Each stretch in which a member's window to a peer admitted nothing; `end` null: still."""
    lane = Window.partitionBy("run", "member", "peer").orderBy("number")
    told = events.where(F.col("kind").isin("blocked", "unblocked"))
    # A window that is full says so again with each message that waits: the first one counts.
    turns = told.withColumn("previous", F.lag("kind").over(lane)).where(
        (F.col("kind") != F.col("previous")) | F.col("previous").isNull()
    )
    return (
        turns.withColumn("end", F.lead("at").over(lane))
        .where(F.col("kind") == "blocked")
        .select("run", "member", peer_label().alias("other"), F.col("at").alias("start"), "end")
    )


def phases(events: DataFrame, spans: DataFrame) -> DataFrame:
    """Messages and events of each kind in each span (`run`, `fault`, `span`, `start`, `end`)."""
    within = (F.col("at") >= F.col("start")) & (F.col("at") < F.col("end"))
    counted = events.where(F.col("kind").isin(*TRAFFIC)).select("run", "kind", "count", "at")
    return (
        counted.join(F.broadcast(spans), "run", how="inner")
        .where(within)
        .groupBy("run", "fault", "span", "kind")
        .agg(F.sum("count").alias("messages"), F.count(F.lit(1)).alias("events"))
    )


def blocked_within(stretches: DataFrame, spans: DataFrame) -> DataFrame:
    """Seconds of being blocked in each span, over all lanes."""
    # One that never ended lasts as long as the run, of which the last span is the end.
    until = F.coalesce(F.col("blocked.end"), F.col("spans.end"))
    overlap = F.least(until, F.col("spans.end")) - F.greatest("blocked.start", "spans.start")
    same_run = F.col("blocked.run") == F.col("spans.run")
    return (
        stretches.alias("blocked")
        .join(F.broadcast(spans).alias("spans"), same_run, how="inner")
        .where(overlap > 0)
        .groupBy("spans.run", "fault", "span")
        .agg(F.sum(overlap).alias("seconds"))
    )


def returns(delivered: DataFrame, heals: DataFrame) -> DataFrame:
    """How each directed pair came back after the end (`healed`) of each fault.

    `first`: its first delivery; `repaired`: the last delivery of what was sent before the end, and
    how many messages that were.
    """
    was_waiting = F.col("sent_at") < F.col("healed")
    return (
        delivered.where(F.col("sender") != F.col("receiver"))
        .join(F.broadcast(heals), "run", how="inner")
        .where(F.col("at") >= F.col("healed"))
        .groupBy("run", "fault", "protocol", "sender", "receiver")
        .agg(
            F.min("at").alias("first"),
            F.max(F.when(was_waiting, F.col("at"))).alias("repaired"),
            F.sum(F.when(was_waiting, F.col("count")).otherwise(0)).alias("messages"),
        )
    )


def offers(events: DataFrame, heals: DataFrame) -> DataFrame:
    """The first thing that each member sent after the end of each fault, to each peer."""
    return (
        events.where((F.col("kind") == "sent") & F.col("protocol").isNotNull())
        .join(F.broadcast(heals), "run", how="inner")
        .where(F.col("at") >= F.col("healed"))
        .groupBy(
            "run",
            "fault",
            "protocol",
            F.col("member").alias("sender"),
            peer_label().alias("other"),
        )
        .agg(F.min("at").alias("offered"))
    )


def sequences(events: DataFrame, chosen: DataFrame) -> DataFrame:
    """The seqnos that each kind of event touched on the chosen pairs, per bin.

    What a sender multicasts belongs to the chart of each of its receivers.
    """
    is_senders = F.col("kind").isin("sent", "retransmitted")
    # A repeat of somebody else's multicast names its first sender as `conn`.
    ours = ~(F.col("protocol").isin(*MULTICAST) & (F.col("conn") != 0) & is_senders)
    drawn = events.where(F.col("kind").isin(*TRAFFIC) & ours & (F.col("lo") > 0)).select(
        "run",
        "protocol",
        "kind",
        "conn",
        F.when(is_senders, F.col("member")).otherwise(peer_label()).alias("from"),
        F.when(is_senders, peer_label()).otherwise(F.col("member")).alias("to"),
        "lo",
        # A report has one value: up to where.
        F.when(F.col("kind") == "acked", F.col("lo")).otherwise(F.col("hi")).alias("hi"),
        F.col("fine_bin").alias("bin"),
    )
    is_of_pair = (
        (F.col("drawn.run") == F.col("chosen.run"))
        & (F.col("drawn.protocol") == F.col("chosen.protocol"))
        & (F.col("drawn.from") == F.col("chosen.sender"))
        & (F.col("drawn.to").isNull() | (F.col("drawn.to") == F.col("chosen.receiver")))
    )
    return (
        drawn.alias("drawn")
        .join(F.broadcast(chosen).alias("chosen"), is_of_pair, how="inner")
        .groupBy(
            "chosen.run",
            "chosen.protocol",
            "chosen.sender",
            "chosen.receiver",
            "kind",
            "conn",
            "bin",
        )
        .agg(F.min("lo").alias("lo"), F.max("hi").alias("hi"))
    )


def noted(events: DataFrame) -> DataFrame:
    """What the rig noted: as much as the scenario has steps."""
    is_rigs = (F.col("short_id") == RIG) & F.col("text").isNotNull()
    return events.where(is_rigs).select("run", "kind", "at", "text")


def installed(events: DataFrame, most: int) -> DataFrame:
    """Views as members installed them, up to so many per run: the first ones."""
    in_turn = Window.partitionBy("run").orderBy("at", "member", "number")
    return (
        events.where(F.col("kind") == "view")
        .withColumn("place", F.row_number().over(in_turn))
        .where(F.col("place") <= most)
        .select(
            "run",
            "member",
            F.col("lo").alias("view_number"),
            "at",
            F.col("peer").alias("creator"),
            (F.col("stream") == MERGE).alias("is_merge"),
            F.coalesce("text", F.lit("")).alias("members"),
        )
    )
