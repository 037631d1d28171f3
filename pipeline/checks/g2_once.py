"""G2, at most once: a member delivers a message once, in all of its windows together."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from pyspark.sql import DataFrame, Window
from pyspark.sql import functions as F

from stormcast.pipeline.checks import application
from stormcast.pipeline.ranges import before_this
from stormcast.pipeline.tables import Tables
from stormcast.pipeline.tables.messages import NUMBERING, WINDOW
from stormcast.pipeline.violations import event, union, violations, with_name

GUARANTEE: Final = "G2"


def once(tables: Tables) -> DataFrame:
    """Find deliveries that share a seqno with an earlier one, and must not."""
    return union(
        _in_one_window(tables),
        _in_two_windows(tables),
        *([_multicasts(tables)] if tables.occurring.of_group("delivered") else ()),
        application.handed_over(tables, GUARANTEE),
        application.sent_again(tables, GUARANTEE),
    )


def repeats(delivered: DataFrame, by: Sequence[str]) -> DataFrame:
    """Return deliveries that share the seqno `shared` with another (`other`: of the deliveries that
    begin at or before it, the one that reaches furthest); `first` and `again` are the two in the
    order of the trace."""
    by_seqno = Window.partitionBy(*by).orderBy("lo", "number")
    furthest = F.max(F.struct("hi", "number", "time", "epoch")).over(before_this(by_seqno))
    this = F.struct("hi", "number", "time", "epoch")
    is_later = F.col("number") > F.col("other.number")
    return (
        delivered.withColumn("other", furthest)
        .where(F.col("other.hi") >= F.col("lo"))
        .withColumn("shared", F.col("lo"))
        .withColumn("first", F.when(is_later, F.col("other")).otherwise(this))
        .withColumn("again", F.when(is_later, this).otherwise(F.col("other")))
    )


def _in_one_window(tables: Tables) -> DataFrame:
    delivered = tables.messages.delivered.where(~F.col("is_multicast"))
    return violations(
        repeats(delivered, WINDOW),
        GUARANTEE,
        time="again.time",
        detail=F.format_string("seqno %d was delivered twice within one receive window", "shared"),
        witness=[event("receiver", "first.number"), event("receiver", "again.number")],
    )


def _multicasts(tables: Tables) -> DataFrame:
    """Find multicasts that a member delivered twice, in one window or in two."""
    delivered = tables.messages.delivered.where("is_multicast")
    found = with_name(repeats(delivered, ["run", "sender", "receiver"]), tables, "sender", "name")
    in_two = F.when(F.col("first.epoch") != F.col("again.epoch"), ", in two windows").otherwise("")
    twice = F.format_string("multicast %d of %s was delivered twice", "shared", "name")
    return violations(
        found,
        GUARANTEE,
        time="again.time",
        detail=F.concat(twice, in_two),
        witness=[event("receiver", "first.number"), event("receiver", "again.number")],
    )


def _in_two_windows(tables: Tables) -> DataFrame:
    """Find unicasts that were delivered in two windows: a new window must begin above all that the
    one before delivered."""
    delivered = tables.messages.delivered.where(~F.col("is_multicast") & F.col("is_genuine"))
    found = repeats(delivered, [*NUMBERING, "receiver"])
    return violations(
        found.where(F.col("first.epoch") != F.col("again.epoch")),
        GUARANTEE,
        time="again.time",
        detail=F.format_string("seqno %d was delivered again, in another window", "shared"),
        witness=[event("receiver", "first.number"), event("receiver", "again.number")],
    )
