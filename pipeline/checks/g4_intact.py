"""G4, intact: a member delivers only messages that were sent to it, bit for bit."""

from __future__ import annotations

from typing import Final

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from stormcast.pipeline import words
from stormcast.pipeline.checks import application
from stormcast.pipeline.tables import Tables
from stormcast.pipeline.tables.records import is_numbered
from stormcast.pipeline.violations import event, union, violations, with_name

GUARANTEE: Final = "G4"
MIXED: Final = "fragment-inconsistent"
DELIVERY_FLAGS: Final = words.OOB | words.DONT_LOOPBACK | words.FRAGMENT
"""The flags that decide how a message is delivered and handed over; others may change."""


def intact(tables: Tables) -> DataFrame:
    """Find deliveries of messages that were not sent, or sent otherwise."""
    return union(
        _different(tables),
        _strange(tables),
        *([_unnumbered(tables)] if tables.occurring.unnumbered("delivered") else ()),
        *([_mixed(tables)] if tables.occurring.any("dropped") else ()),
        application.handed_over(tables, GUARANTEE),
    )


def _different(tables: Tables) -> DataFrame:
    """Find deliveries that contradict their batch."""
    found = tables.messages.delivered.where("is_genuine").withColumn("difference", _difference())
    return violations(
        found.where(F.col("difference").isNotNull()),
        GUARANTEE,
        time="time",
        detail=F.col("difference"),
        witness=[event("sender", "batch.number"), event("receiver", "number")],
    )


def _difference() -> Column:
    """Return the text of how a delivery contradicts its batch; null if it does not."""
    flags = F.col("batch.flags").bitwiseXOR(F.col("flags")).bitwiseAND(DELIVERY_FLAGS)
    other_range = (F.col("lo") != F.col("batch.lo")) | (F.col("hi") != F.col("batch.hi"))
    is_whole = F.col("stream") == words.WHOLE
    return (
        F.when(
            flags != 0,
            F.format_string(
                "seqnos %d..%d were delivered with other flags than they were sent", "lo", "hi"
            ),
        )
        .when(
            F.col("count") != F.col("hi") - F.col("lo") + 1,
            F.format_string("%d messages were delivered as seqnos %d..%d", "count", "lo", "hi"),
        )
        .when(
            is_whole & other_range,
            F.format_string(
                "%d..%d were delivered as the whole of %d..%d", "lo", "hi", "batch.lo", "batch.hi"
            ),
        )
        .when(
            ~other_range & (F.col("bytes") != F.col("batch.bytes")),
            F.format_string("%d bytes were delivered of a batch of %d", "bytes", "batch.bytes"),
        )
        .when(
            F.col("bytes") > F.col("batch.bytes"),
            F.format_string(
                "%d bytes were delivered as a part of a batch of %d", "bytes", "batch.bytes"
            ),
        )
    )


def _strange(tables: Tables) -> DataFrame:
    """Find deliveries that no batch of their stream explains, with the batch that they pretend to
    be, or that they are of another connection."""
    strange = tables.messages.delivered.where(~F.col("is_genuine"))
    elsewhere = _sent_elsewhere(tables, strange)
    key = ["run", "receiver", "number"]
    found = strange.join(elsewhere, key, how="left")
    is_group = F.col("is_multicast")
    what = F.concat(
        F.when(is_group, "multicasts ").otherwise("seqnos "), F.format_string("%d..%d", "lo", "hi")
    )
    is_moved = F.col("other").isNotNull()
    moved = F.format_string(" were sent on conn %d and delivered on conn %d", "other.conn", "conn")
    nothing = F.when(is_group, " were delivered and never sent").otherwise(
        F.format_string(" were delivered on conn %d and never sent on it", "conn")
    )
    pretended = F.concat(F.lit(" were delivered "), _contradiction())
    detail = F.concat(
        what,
        F.when(is_moved, moved).when(F.col("batch").isNotNull(), pretended).otherwise(nothing),
    )
    batch = F.when(is_moved, F.col("other.number")).otherwise(F.col("batch.number"))
    return violations(
        found,
        GUARANTEE,
        time="time",
        detail=detail,
        witness=[event("sender", batch), event("receiver", "number")],
    )


def _contradiction() -> Column:
    digests = (
        F.lower(F.lpad(F.hex("digest"), 16, "0")),
        F.lower(F.lpad(F.hex("batch.digest"), 16, "0")),
    )
    return (
        F.when(
            F.col("batch.digest") != F.col("digest"),
            F.format_string("from a batch with digest %s, and were sent with %s", *digests),
        )
        .when(
            F.col("batch.hi") < F.col("hi"),
            F.format_string("from a batch that was sent as %d..%d", "batch.lo", "batch.hi"),
        )
        .otherwise("before they were sent")
    )


def _sent_elsewhere(tables: Tables, strange: DataFrame) -> DataFrame:
    """Return, for deliveries that were sent on another connection of the same pair, that batch."""
    sent = tables.messages.sent.where(~F.col("is_multicast")).select(
        "run",
        "sender",
        F.col("dest").alias("receiver"),
        "digest",
        F.col("conn").alias("other_conn"),
        F.struct("conn", "number", "time", "lo", "hi").alias("other"),
    )
    holds_it = (F.col("other.lo") <= F.col("lo")) & (F.col("other.hi") >= F.col("hi"))
    was_before = F.col("other.time") <= F.col("time") + words.EPSILON
    is_other = F.col("other_conn") != F.col("conn")
    return (
        strange.where(~F.col("is_multicast"))
        .select("run", "sender", "receiver", "digest", "conn", "number", "lo", "hi", "time")
        .join(sent, ["run", "sender", "receiver", "digest"], how="inner")
        .where(holds_it & was_before & is_other)
        .groupBy("run", "receiver", "number")
        .agg(F.min("other").alias("other"))
    )


def _unnumbered(tables: Tables) -> DataFrame:
    """Find deliveries of unnumbered messages that were not sent before. Such messages are known by
    their digest alone, and may be lost or repeated."""
    rows = tables.of("sent", "delivered").where(~is_numbered())
    sent = (
        rows.where(F.col("kind") == "sent")
        .groupBy("run", F.col("short_id").alias("peer"), F.col("peer").alias("dest"), "digest")
        .agg(F.min("time").alias("sent_at"))
    )
    to_it, to_all = (sent.withColumnRenamed("sent_at", name) for name in ("told_it", "told_all"))
    delivered = rows.where(F.col("kind") == "delivered").select(
        "run", "peer", F.col("short_id").alias("receiver"), "number", "time", "digest"
    )
    key = ["run", "peer", "digest"]
    never = F.lit(words.INFINITY)
    first = F.least(F.coalesce("told_it", never), F.coalesce("told_all", never))
    found = (
        delivered.join(to_it.withColumnRenamed("dest", "receiver"), [*key, "receiver"], how="left")
        .join(to_all.where(F.col("dest") == words.GROUP).drop("dest"), key, how="left")
        .where(first > F.col("time") + words.EPSILON)
    )
    return violations(
        found,
        GUARANTEE,
        time="time",
        detail=F.lit("an unnumbered batch was delivered that had not been sent"),
        witness=[event("receiver", "number")],
    )


def _mixed(tables: Tables) -> DataFrame:
    """Find fragments that do not fit together: pieces of two messages were mixed."""
    mixed = tables.of("dropped").where(F.col("text") == MIXED)
    return violations(
        with_name(mixed, tables, "short_id", "shown"),
        GUARANTEE,
        time="time",
        detail=F.format_string("%s gave a message up whose pieces contradict each other", "shown"),
        witness=[event("short_id", "number")],
    )
