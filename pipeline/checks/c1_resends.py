"""C1, resends: a batch is sent again because a receiver asked, or because its sender heard nothing.

Requests, syncs and reports are each answered once per arrival, and a network may repeat a frame.
Resends that nobody asked for are paced by silent looks: in a stretch of T seconds without progress
there are at most log2(1 + T / least wait) looks while the wait doubles, then T / interval.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F

from stormcast.pipeline import words
from stormcast.pipeline.promises import of_protocol, of_unicast, with_promises
from stormcast.pipeline.ranges import total_upto, with_last
from stormcast.pipeline.tables import Tables
from stormcast.pipeline.tables.kept import keep
from stormcast.pipeline.tables.messages import NUMBERING
from stormcast.pipeline.tables.records import is_multicast
from stormcast.pipeline.violations import event, violations

GUARANTEE: Final = "C1"
REPEATER: Final = "DUPLICATE"
"""The test protocol that passes on copies."""
SPARE_RESENDS: Final = 2
"""Looks that no stretch accounts for: those at its two ends."""
_PAIR: Final = ("run", "sender", "receiver")


def parts(tables: Tables) -> list[DataFrame]:
    """Find batches that were sent again more often than requests and silence account for."""
    to_one = tables.occurring.of_one("retransmitted")
    return [
        *([_unicast(tables), _in_the_middle(tables)] if to_one else ()),
        *([_multicast(tables)] if tables.occurring.of_group("retransmitted") else ()),
    ]


def _unicast(tables: Tables) -> DataFrame:
    resent = tables.messages.sending.where(
        (F.col("kind") == "retransmitted") & ~F.col("is_multicast")
    )
    often = (
        resent.groupBy(*NUMBERING, "lo")
        .agg(F.count(F.lit(1)).alias("resends"))
        .where(F.col("resends") > SPARE_RESENDS)
    )
    paced = keep(_with_pace(tables, often))
    silent = _with_silence(tables, paced)
    pauses = (
        tables.members.holds.where(F.col("do") == "pause")
        .groupBy("run", F.col("short_id").alias("sender"))
        .agg(F.count(F.lit(1)).alias("pauses"))
    )
    unasked = SPARE_RESENDS + F.coalesce("pauses", F.lit(0)) + F.col("silent")
    suspicious = keep(
        silent.join(F.broadcast(pauses), ["run", "sender"], how="left")
        .withColumn("allowed", unasked)
        .where(F.col("resends") > F.col("allowed"))
    )
    asked = _with_asked(tables, suspicious)
    allowed = F.col("allowed") + F.col("most_copies") * F.col("asked")
    too_often = (
        asked.join(_copies(tables), "run", how="inner")
        .withColumn("allowed", allowed)
        .where(F.col("resends") > F.col("allowed") + words.EPSILON)
        .withColumn("rank", F.least(F.floor("allowed").cast("int"), F.col("resends") - 1) + 1)
    )
    in_turn = Window.partitionBy(*NUMBERING, "lo").orderBy("number")
    ranked = resent.select(
        *NUMBERING,
        "lo",
        F.col("number").alias("breaking"),
        F.col("time").alias("broke_at"),
        F.row_number().over(in_turn).alias("rank"),
    )
    found = too_often.join(ranked, [*NUMBERING, "lo", "rank"], how="inner")
    return violations(
        found,
        GUARANTEE,
        time="broke_at",
        detail=F.format_string(
            "seqnos %d..%d were sent again %d times: requests and silence allow %d",
            "batch.lo",
            "batch.hi",
            "resends",
            F.floor("allowed"),
        ),
        witness=[event("sender", "batch.number"), event("sender", "breaking")],
    )


def _in_the_middle(tables: Tables) -> DataFrame:
    """Find batches that were sent again without a request though others were unacked before and
    after them: their loss would show as a gap, and be requested."""
    before = (
        Window.partitionBy(*NUMBERING)
        .orderBy("number")
        .rowsBetween(Window.unboundedPreceding, Window.currentRow)
    )
    is_sent, is_purged = F.col("kind") == "sent", F.col("kind") == "purged"
    placed = (
        tables.messages.sending.where(~F.col("is_multicast") & (F.col("kind") != "conn"))
        .withColumn("high", F.max(F.when(is_sent, F.col("hi"))).over(before))
        .withColumn("low", F.max(F.when(is_purged, F.col("hi"))).over(before))
    )
    is_between = (F.col("hi") < F.col("high")) & (F.col("lo") > F.coalesce("low", F.lit(0)) + 1)
    in_turn = Window.partitionBy(*NUMBERING, "lo").orderBy("number")
    # The first generation has no requests: it repeats all old batches.
    repeats = keep(
        placed.where((F.col("kind") == "retransmitted") & (F.col("protocol") != "UNICAST"))
        .where(is_between)
        .select(
            *NUMBERING,
            "lo",
            F.col("number").alias("breaking"),
            F.col("time").alias("broke_at"),
            F.row_number().over(in_turn).cast("bigint").alias("rank"),
        )
    )
    often = repeats.groupBy(*NUMBERING, "lo").agg(F.count(F.lit(1)).alias("resends"))
    counted = _beside_batches(often, tables.messages.sent, NUMBERING)
    requests = F.col("requests") + F.coalesce("reports", F.lit(0))
    too_often = (
        _with_asked(tables, keep(counted))
        .join(_copies(tables), "run", how="inner")
        .withColumn("asked", requests)
        .withColumn("allowed", F.col("most_copies") * requests)
        .where(F.col("resends") > F.col("allowed"))
        .withColumn("rank", F.col("allowed") + 1)
    )
    return violations(
        too_often.join(repeats, [*NUMBERING, "lo", "rank"], how="inner"),
        GUARANTEE,
        time="broke_at",
        detail=F.format_string(
            "seqnos %d..%d were sent again %d times, with others unacked before and after them: "
            "%d requests allow %d",
            "batch.lo",
            "batch.hi",
            "resends",
            "asked",
            "allowed",
        ),
        witness=[event("sender", "batch.number"), event("sender", "breaking")],
    )


def _copies(tables: Tables) -> DataFrame:
    """Return how often one frame may have arrived: run, most_copies. A test protocol that repeats
    frames does so at both ends."""
    extra = F.max(F.col("protocols")[REPEATER]["copies"]).alias("extra")
    repeated = tables.members.incarnations.groupBy("run").agg(extra)
    one_end = F.lit(1) + F.coalesce("extra", F.lit(0))
    return F.broadcast(
        tables.rig.runs.join(F.broadcast(repeated), "run", how="left").select(
            "run", (F.col("most_copies") * one_end * one_end).alias("most_copies")
        )
    )


def _with_pace(tables: Tables, often: DataFrame) -> DataFrame:
    """Add the pace that the sender promises, and `last`, the time until which it could send."""
    removals = tables.messages.removed_entries.select(*NUMBERING, F.col("time").alias("removed_at"))
    within, spacing = of_unicast("resend_within"), of_unicast("request_spacing")
    # Late turns loosen `resend_within`; the time between looks stays what it is.
    interval = F.coalesce(of_unicast("resend_interval"), within / 2)
    never = F.lit(words.INFINITY)
    return (
        with_promises(often, tables, "sender")
        .where(within.isNotNull() & spacing.isNotNull())
        .join(removals, [*NUMBERING], how="left")
        .join(tables.rig.runs.select("run", "over"), "run", how="inner")
        .select(
            *NUMBERING,
            "lo",
            "resends",
            interval.alias("interval"),
            F.least(spacing, interval).alias("least"),
            F.least("over", "ended", F.coalesce("removed_at", never)).alias("last"),
        )
    )


def _looks(seconds: Column) -> Column:
    """Return the most looks in a stretch without progress; none if two looks do not fit."""
    least, interval = F.col("least"), F.col("interval")
    at_most = F.log2(1 + F.greatest(seconds, F.lit(0.0)) / least) + seconds / interval
    return F.when(seconds < least - words.EPSILON, 0.0).otherwise(at_most)


def _with_silence(tables: Tables, paced: DataFrame) -> DataFrame:
    """Add `batch`, and `silent`: how many silent looks fit between its sending and its purge."""
    numberings = paced.select(*NUMBERING, "interval", "least").distinct()
    in_turn = Window.partitionBy(*NUMBERING).orderBy("number")
    upto = in_turn.rowsBetween(Window.unboundedPreceding, Window.currentRow)
    pause = F.col("time") - F.lag("time").over(in_turn)
    progress = keep(
        tables.messages.sending.where(F.col("kind").isin("sent", "purged") & ~F.col("is_multicast"))
        .join(numberings, [*NUMBERING], how="inner")
        .withColumn("pause", F.coalesce(pause, F.lit(0.0)))
        .withColumn("looks", F.sum(_looks(F.col("pause"))).over(upto))
    )
    ends = progress.groupBy(*NUMBERING).agg(
        F.max_by(F.struct("time", "looks"), "number").alias("final"),
        F.min_by("protocol", "number").alias("protocol"),
    )
    purges = progress.where(F.col("kind") == "purged").select(
        *NUMBERING,
        (-F.col("hi")).alias("at"),
        (-F.col("number")).alias("turn"),
        F.struct("time", "looks").alias("purge"),
    )
    told = (
        _beside_batches(paced, progress.where(F.col("kind") == "sent"), NUMBERING, "looks")
        .join(ends, [*NUMBERING], how="inner")
        .withColumn("at", -F.col("batch.hi"))
    )
    was_purged = F.coalesce(F.col("purge.time") <= F.col("last"), F.lit(False))
    since_batch = F.when(was_purged, F.col("purge.looks")).otherwise(
        F.col("final.looks") + _looks(F.col("last") - F.col("final.time"))
    ) - F.col("batch.looks")
    until = F.when(was_purged, F.col("purge.time")).otherwise(F.col("last"))
    # The first generation repeats all old batches, with or without progress.
    of_age = _looks(until - F.col("batch.time"))
    silent = F.when(F.col("protocol") == "UNICAST", of_age).otherwise(since_batch)
    return with_last(told, purges, NUMBERING, "purge").withColumn("silent", silent)


def _with_asked(tables: Tables, batches: DataFrame) -> DataFrame:
    """Add `asked`: the requests for a batch, and the syncs and reports that may be answered with
    it. All of the connection count, as a late one may be answered with a later batch."""
    connection = [*_PAIR, "conn"]
    of_unicast_only = tables.messages.receiving.where(~F.col("is_multicast"))
    requests = of_unicast_only.where(F.col("kind") == "requested").withColumn("weight", F.lit(1))
    reports = (
        of_unicast_only.where((F.col("kind") == "acked") & (F.col("stream_word") == "STABLE"))
        .groupBy(*connection)
        .agg(F.count(F.lit(1)).alias("reports"))
    )
    syncs = (
        tables.of("sync")
        .where(~is_multicast())
        .groupBy("run", F.col("peer").alias("sender"), F.col("short_id").alias("receiver"), "conn")
        .agg(F.count(F.lit(1)).alias("syncs"))
    )
    found = batches.withColumn("receiver", F.col("dest"))
    found = _with_overlaps(found, requests, connection)
    found = found.join(syncs, connection, how="left").join(reports, connection, how="left")
    none = F.lit(0)
    asked = F.col("requests") + F.coalesce("syncs", none) + F.coalesce("reports", none)
    return found.withColumn("asked", asked)


def _beside_batches(resent: DataFrame, sent: DataFrame, by: Sequence[str], *more: str) -> DataFrame:
    """Add `batch`, the batch that holds the seqno at which resends begin: a resend may begin inside
    a batch, of which the front was acked."""
    marks = sent.select(
        *by,
        F.col("lo").alias("at"),
        F.col("number").alias("turn"),
        F.struct("number", "time", "lo", "hi", *more).alias("batch"),
    )
    placed = with_last(resent.withColumn("at", F.col("lo")), marks, by, "batch")
    return placed.where(F.col("batch.hi") >= F.col("lo"))


def _with_overlaps(batches: DataFrame, requests: DataFrame, by: list[str]) -> DataFrame:
    """Add the weight of all requests for any seqno of a batch: of those that begin before its end,
    minus those that end before its beginning."""
    begun = requests.select(*by, F.col("lo").alias("at"), F.col("number").alias("turn"), "weight")
    over = requests.select(*by, F.col("hi").alias("at"), F.col("number").alias("turn"), "weight")
    with_begun = total_upto(batches.withColumn("at", F.col("batch.hi")), begun, by, "begun")
    with_over = total_upto(with_begun.withColumn("at", F.col("batch.lo") - 1), over, by, "over")
    return with_over.withColumn("requests", F.col("begun") - F.col("over"))


def _multicast(tables: Tables) -> DataFrame:
    """Find multicasts that were repeated without a request, beyond the repeats that the sender's
    settings allow."""
    repeats = (
        tables.of("retransmitted")
        .where(is_multicast())
        .select(
            "run",
            # A repeat by another member than the sender names the sender.
            F.when(F.col("conn") != 0, F.col("conn")).otherwise(F.col("short_id")).alias("sender"),
            F.col("short_id").alias("by"),
            "number",
            "time",
            "lo",
        )
    )
    stream = ["run", "sender"]
    often = repeats.groupBy(*stream, "lo").agg(F.count(F.lit(1)).alias("resends"))
    counted = _beside_batches(often, tables.groups.multicasts, stream, "protocol")
    requests = _weighted_requests(tables)
    asked = _with_overlaps(
        counted.withColumn("protocol", F.col("batch.protocol")), requests, stream
    )
    tail = F.coalesce(of_protocol("tail_repeats"), F.lit(0.0))
    too_often = (
        with_promises(asked, tables, "sender")
        .join(_copies(tables), "run", how="inner")
        .withColumn("allowed", F.floor(F.col("most_copies") * F.col("requests") + tail))
        .where(F.col("resends") > F.col("allowed"))
        .withColumn("rank", (F.col("allowed") + 1).cast("int"))
    )
    in_turn = Window.partitionBy("run", "sender", "lo").orderBy("time", "by", "number")
    ranked = repeats.select(
        "run",
        "sender",
        "lo",
        "by",
        F.col("number").alias("breaking"),
        F.col("time").alias("broke_at"),
        F.row_number().over(in_turn).alias("rank"),
    )
    return violations(
        too_often.join(ranked, ["run", "sender", "lo", "rank"], how="inner"),
        GUARANTEE,
        time="broke_at",
        detail=F.format_string(
            "multicasts %d..%d were sent again %d times: %d requests allow %d",
            "batch.lo",
            "batch.hi",
            "resends",
            "requests",
            "allowed",
        ),
        witness=[event("sender", "batch.number"), event("by", "breaking")],
    )


def _weighted_requests(tables: Tables) -> DataFrame:
    """Return the requests for multicasts, each with the number of members that may answer it."""
    asks_all = F.exists(
        F.map_values("protocols"),
        lambda settings: F.coalesce(settings["use_mcast_xmit_req"], F.lit(False)),
    )
    crowd = tables.members.incarnations.groupBy("run").agg(F.count(F.lit(1)).alias("members"))
    answers = tables.members.incarnations.join(crowd, "run", how="inner").select(
        "run",
        F.col("short_id").alias("receiver"),
        F.when(asks_all, F.col("members")).otherwise(1).alias("weight"),
    )
    requests = tables.messages.receiving.where(
        F.col("is_multicast") & (F.col("kind") == "requested")
    )
    return requests.join(F.broadcast(answers), ["run", "receiver"], how="inner")
