"""L1 of lanes and streams: nobody waits for room that is there, or keeps what all members have."""

from __future__ import annotations

from pyspark.sql import DataFrame, Window
from pyspark.sql import functions as F

from stormcast.pipeline import words
from stormcast.pipeline.promises import of_protocol, with_longest, with_promises
from stormcast.pipeline.ranges import gaps
from stormcast.pipeline.tables import Tables
from stormcast.pipeline.tables.kept import keep
from stormcast.pipeline.tables.messages import NUMBERING
from stormcast.pipeline.tables.records import is_kind
from stormcast.pipeline.violations import event, plain, violations


def parts(tables: Tables, guarantee: str) -> list[DataFrame]:
    """Return the violations, a table for each kind."""
    if not (tables.occurring.any("blocked") or tables.occurring.of_group("sent")):
        return []
    waiting = keep(_waiting(tables))
    complete = keep(_complete(tables, waiting))
    return [
        _to_members(tables, waiting, guarantee),
        _to_the_group(waiting, complete, guarantee),
        _kept(tables, complete, guarantee),
    ]


def _waiting(tables: Tables) -> DataFrame:
    """Return the lanes of living members that wait at the end of the run: run, short_id, peer,
    number, end (of the run)."""
    last = Window.partitionBy("run", "short_id", "peer").orderBy(F.desc("number"))
    return (
        tables.of("blocked", "unblocked")
        .join(F.broadcast(tables.members.living()), ["run", "short_id"], how="left_semi")
        .withColumn("rank", F.row_number().over(last))
        .where((F.col("rank") == 1) & is_kind("blocked"))
        .join(F.broadcast(tables.rig.runs.select("run", "end")), "run", how="inner")
        .select("run", "short_id", "peer", "number", "end")
    )


def _to_members(tables: Tables, waiting: DataFrame, guarantee: str) -> DataFrame:
    """Find lanes to a member that wait though all that was sent to it is acked."""
    pair = ["run", "sender", "dest"]
    unacked = (
        tables.messages.sending.where(~F.col("is_multicast") & is_kind("sent", "purged"))
        .groupBy(*NUMBERING)
        .agg(
            F.max(F.when(is_kind("sent"), F.col("hi"))).alias("high"),
            F.max(F.when(is_kind("purged"), F.col("hi"))).alias("low"),
        )
        .where(F.coalesce(F.col("low"), F.lit(0).cast("bigint")) < F.col("high"))
        .join(
            F.broadcast(tables.messages.removed_entries.select(*NUMBERING)),
            [*NUMBERING],
            how="left_anti",
        )
        .select(*pair)
        .distinct()
    )
    lanes = waiting.where(F.col("peer") != words.GROUP).select(
        "run", F.col("short_id").alias("sender"), F.col("peer").alias("dest"), "number", "end"
    )
    return violations(
        lanes.join(unacked, pair, how="left_anti"),
        guarantee,
        time="end",
        detail=F.lit("a lane still waits for room, and nothing is unacked in its way"),
        witness=[event("sender", "number")],
    )


def _to_the_group(waiting: DataFrame, complete: DataFrame, guarantee: str) -> DataFrame:
    """Find lanes to the group that wait though every member has everything."""
    lanes = waiting.where(F.col("peer") == words.GROUP).withColumnRenamed("short_id", "sender")
    return violations(
        lanes.join(complete, ["run", "sender"], how="left_semi"),
        guarantee,
        time="end",
        detail=F.lit("a lane to the group still waits for room, and every member has everything"),
        witness=[event("sender", "number")],
    )


def _complete(tables: Tables, waiting: DataFrame) -> DataFrame:
    """Return the senders of multicasts of whose last view every other member has delivered all that
    its window expects: run, sender, members (of that view). Who waits to multicast its first is a
    sender, too."""
    pair = ["run", "sender", "receiver"]
    last_views = tables.groups.views.groupBy("run", F.col("short_id").alias("sender")).agg(
        F.max_by("members", "place").alias("members")
    )
    begun = tables.groups.streams.select("run", "sender", "high")
    silent = (
        waiting.where(F.col("peer") == words.GROUP)
        .select("run", F.col("short_id").alias("sender"), F.lit(0).cast("bigint").alias("high"))
        .join(begun, ["run", "sender"], how="left_anti")
    )
    streams = keep(begun.unionByName(silent).join(last_views, ["run", "sender"], how="inner"))
    wanted = streams.withColumn("receiver", F.explode("members")).where(
        F.col("receiver") != F.col("sender")
    )
    current = (
        tables.messages.windows.where(F.col("is_multicast") & F.col("removed").isNull())
        .groupBy(*pair)
        .agg(F.max_by(F.struct("opened", "skipped"), "first").alias("window"))
    )
    begins = F.coalesce("window.skipped", "window.opened.lo", F.lit(0).cast("bigint")) + 1
    owed = keep(
        wanted.join(current, pair, how="left").select(
            *pair,
            F.col("window").isNull().alias("has_none"),
            begins.alias("first"),
            F.col("high").alias("last"),
        )
    )
    delivered = tables.messages.delivered.where(F.col("is_multicast") & F.col("is_genuine"))
    asked = owed.where(~F.col("has_none") & (F.col("first") <= F.col("last")))
    lacking = gaps(delivered, asked.drop("has_none"), pair)
    incomplete = (
        lacking.select("run", "sender")
        .unionByName(owed.where("has_none").select("run", "sender"))
        .distinct()
    )
    whole = streams.select("run", "sender", "members")
    return whole.join(incomplete, ["run", "sender"], how="left_anti")


def _kept(tables: Tables, complete: DataFrame, guarantee: str) -> DataFrame:
    """Find multicasts that every member has, and that their sender did not drop in time (P-16)."""
    sent = tables.groups.multicasts.groupBy("run", "sender").agg(
        F.max_by(F.struct("number", "time", "protocol"), "number").alias("sent")
    )
    purged = (
        tables.messages.sending.where(is_kind("purged") & F.col("is_multicast"))
        .groupBy("run", "sender")
        .agg(F.max("hi").alias("purged"))
    )
    ends = tables.rig.runs.select("run", "end").join(tables.groups.rest, "run", how="inner")
    living = tables.members.living("sender")
    upto = F.coalesce(F.col("purged"), F.lit(0).cast("bigint"))
    candidates = (
        tables.groups.streams.join(complete, ["run", "sender"], how="inner")
        .join(F.broadcast(living), ["run", "sender"], how="left_semi")
        .join(sent, ["run", "sender"], how="inner")
        .join(purged, ["run", "sender"], how="left")
        .join(F.broadcast(ends), "run", how="inner")
        .withColumn("purged", upto)
        .withColumn("protocol", F.col("sent.protocol"))
        .where(F.col("purged") < F.col("high"))
    )
    promised = with_promises(candidates, tables, "sender").withColumn(
        "within", of_protocol("purge_within")
    )
    members = F.explode("members").alias("hearer")
    hearers = promised.select("run", "sender", "protocol", members)
    found = (
        with_longest(promised, tables, hearers, ["run", "sender"], "purge_within")
        .withColumn("due", F.col("rest") + F.col("within") + F.col("long_travel"))
        .where(F.col("end") >= F.col("due"))
    )
    return violations(
        found,
        guarantee,
        time="due",
        detail=F.format_string(
            "multicasts %d..%d were not dropped within %ss",
            F.col("purged") + 1,
            "high",
            plain("within"),
        ),
        witness=[event("sender", "sent.number")],
    )
