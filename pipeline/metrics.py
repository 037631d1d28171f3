"""The measurements: from a DataFrame of events to DataFrames of aggregates, binned and small.

The events are the rows of docs/trace-format.md, of any number of runs, on one clock per run
(`tables/clock.py`), and binned by `since`. The first column of every result is `run`;
`pipeline/measure.py` collects the rows from Spark.
"""

from __future__ import annotations

from typing import Final

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F

from stormcast.pipeline.tables.buckets import Buckets, widest
from stormcast.pipeline.words import MERGE, MULTICAST, RIG

BUCKETS_PER_DOUBLING: Final = 8
"""Buckets of latency per doubling: each is 9% wide, so a quantile is at most that far off."""
TRAFFIC: Final = ("sent", "delivered", "retransmitted", "requested", "acked")
"""Kinds of events of the traffic between two members."""
BUSY: Final = (*TRAFFIC, "view", "fault", "suspect", "skipped", "alarm", "blocked")
"""Kinds of events that are worth showing; gauges and heartbeats go on until the end of a run."""
_SHOWN: Final = (*TRAFFIC, "view", "blocked", "unblocked")
_MEASURED: Final = (
    *("run", "short_id", "member", "name", "number", "time", "kind", "protocol", "stream", "peer"),
    *("peer_member", "conn", "count", "lo", "hi", "digest", "text"),
)
"""What is read of an event to measure a run."""
BEGIN: Final = "begin"
"""The phase that a rig notes at time 0 of its scenario; without it, the first event is time 0."""


def extents(events: DataFrame) -> DataFrame:
    """Return the extent of each run by its own clock: its number of events, and the times at which
    its scenario began (null: unknown), of its first and last event, and of the last event that is
    worth showing; and how far the last seqno of a batch is above its first, at most."""
    is_begin = (F.col("kind") == "phase") & (F.col("text") == BEGIN)
    is_busy = F.col("kind").isin(*BUSY)
    return events.groupBy("run").agg(
        F.count(F.lit(1)).alias("events"),
        F.min(F.when(is_begin, F.col("time"))).alias("begin"),
        F.min("time").alias("first"),
        F.max("time").alias("last"),
        F.max(F.when(is_busy, F.col("time"))).alias("busy"),
        widest().alias("widest"),
    )


def since(events: DataFrame, runs: DataFrame) -> DataFrame:
    """Add to events `at`, the seconds since their run began, and their bins.

    `runs` has the time at which each run began (`origin`), and the widths of the bins of its
    charts.
    """
    at = F.col("time") - F.col("origin")
    return (
        events.select(*_MEASURED)
        .join(F.broadcast(runs), "run", how="inner")
        .withColumn("at", at)
        .withColumn("bin", F.floor(at / F.col("width")).cast("int"))
        .withColumn("fine_bin", F.floor(at / F.col("fine_width")).cast("int"))
        .drop("origin", "width", "fine_width")
    )


def shown(events: DataFrame) -> DataFrame:
    """Return the events that charts and figures are of: without those of the application, which are
    most of all."""
    return events.where(F.col("kind").isin(*_SHOWN) | _is_noted())


def peer_label() -> Column:
    """Return the label of the peer, or its short id if it left no trace; null for the group."""
    stranger = F.when(F.col("peer") != 0, F.lower(F.hex("peer")))
    return F.coalesce("peer_member", stranger)


def lives(events: DataFrame) -> DataFrame:
    """Return a row per incarnation: names, and the times of its first, last and `stop` event."""
    stopped = F.when(F.col("kind") == "stop", F.col("at"))
    return (
        events.where(F.col("short_id") != RIG)
        .groupBy("run", "member", "name", "short_id")
        .agg(F.min("at").alias("first"), F.max("at").alias("last"), F.max(stopped).alias("stop"))
    )


def traffic(events: DataFrame) -> DataFrame:
    """Count messages and events of each kind, by the member that recorded them, peer and bin."""
    return (
        events.where(F.col("kind").isin(*TRAFFIC))
        .groupBy("run", "kind", "member", peer_label().alias("other"), "bin")
        .agg(F.sum("count").alias("messages"), F.count(F.lit(1)).alias("events"))
    )


def pairs(events: DataFrame) -> DataFrame:
    """Count messages and events of the whole run, by kind, protocol, recording member and peer."""
    return (
        events.where(F.col("kind").isin(*TRAFFIC) & F.col("protocol").isNotNull())
        .groupBy("run", "kind", "protocol", "member", peer_label().alias("other"))
        .agg(F.sum("count").alias("messages"), F.count(F.lit(1)).alias("events"))
    )


def deliveries(events: DataFrame, buckets: Buckets | None = None) -> DataFrame:
    """Return each delivered range with `sent_at`, the time its batch was sent; null if unknown.

    A sender's batches on one stream follow each other without overlap, so the batch of a delivery
    is the last one that begins at or before it, if that has its seqno. This needs one sort of a
    stream, or of each of its buckets, and no join by range.
    """
    is_multicast = F.col("protocol").isin(*MULTICAST)
    is_sent = F.col("kind") == "sent"
    numbered = events.where(F.col("kind").isin("sent", "delivered") & (F.col("lo") > 0))
    of_streams = numbered.select(
        "run",
        "protocol",
        F.when(is_sent, F.col("member")).otherwise(peer_label()).alias("sender"),
        F.when(is_sent, peer_label()).otherwise(F.col("member")).alias("receiver"),
        # All receivers of a multicast stream share one partition, and it has one conn.
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
    key = ["run", "protocol", "sender", "to", "stream_conn"]
    if buckets is not None:
        batches = buckets.spread(of_streams.where("is_sent"))
        others = of_streams.where(~F.col("is_sent"))
        of_streams = batches.unionByName(others.withColumn("bucket", buckets.of(F.col("lo"))))
        key.append("bucket")
    stream = (
        Window.partitionBy(*key)
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
    """Return the latencies of messages: their number and mean per bin and bucket of latency.

    Buckets are logarithmic. Messages without a recorded sending, or with one later than their
    delivery (two clocks that disagree), have the bucket null. Messages to oneself do not count.
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
    """Return each span in which a member's lane to a peer was blocked; `end` is null if it never
    ended."""
    lane = Window.partitionBy("run", "member", "peer").orderBy("number")
    told = events.where(F.col("kind").isin("blocked", "unblocked"))
    # A full window records `blocked` again for each message that waits: only the first counts.
    turns = told.withColumn("previous", F.lag("kind").over(lane)).where(
        (F.col("kind") != F.col("previous")) | F.col("previous").isNull()
    )
    return (
        turns.withColumn("end", F.lead("at").over(lane))
        .where(F.col("kind") == "blocked")
        .select("run", "member", peer_label().alias("other"), F.col("at").alias("start"), "end")
    )


def phases(events: DataFrame, spans: DataFrame) -> DataFrame:
    """Count messages and events by kind and span (`run`, `fault`, `span`, `start`, `end`)."""
    within = (F.col("at") >= F.col("start")) & (F.col("at") < F.col("end"))
    counted = events.where(F.col("kind").isin(*TRAFFIC)).select("run", "kind", "count", "at")
    return (
        counted.join(F.broadcast(spans), "run", how="inner")
        .where(within)
        .groupBy("run", "fault", "span", "kind")
        .agg(F.sum("count").alias("messages"), F.count(F.lit(1)).alias("events"))
    )


def blocked_within(stretches: DataFrame, spans: DataFrame) -> DataFrame:
    """Sum the seconds for which lanes were blocked in each span, over all lanes."""
    # A lane that stayed blocked is so to the end of each later span.
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
    """Return the recovery of each directed pair after the end (`healed`) of each fault.

    `first`: the time of its first delivery; `repaired`: that of the last delivery of a message sent
    before the end; `messages`: how many such messages there were.
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
    """Return the time of the first message that each member sent to each peer after each fault."""
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
    """Return the seqnos that each kind of event touched on the chosen pairs, per bin.

    Multicasts of a sender belong to the charts of all its receivers.
    """
    is_senders = F.col("kind").isin("sent", "retransmitted")
    # A repeat of another member's multicast names its first sender as `conn`.
    ours = ~(F.col("protocol").isin(*MULTICAST) & (F.col("conn") != 0) & is_senders)
    drawn = events.where(F.col("kind").isin(*TRAFFIC) & ours & (F.col("lo") > 0)).select(
        "run",
        "protocol",
        "kind",
        "conn",
        F.when(is_senders, F.col("member")).otherwise(peer_label()).alias("from"),
        F.when(is_senders, peer_label()).otherwise(F.col("member")).alias("to"),
        "lo",
        # A report has one seqno: the one up to which it acks.
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
    """Return the records of the rig: about as many as the scenario has steps."""
    return events.where(_is_noted()).select("run", "kind", "at", "text")


def _is_noted() -> Column:
    return (F.col("short_id") == RIG) & F.col("text").isNotNull()


def installed(events: DataFrame, most: int) -> DataFrame:
    """Return the views that members installed: the first `most` of each run."""
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
