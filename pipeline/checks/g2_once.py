"""G2, at most once: within a window always; across windows except what the sender still owed."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from pyspark.sql import DataFrame, Window
from pyspark.sql import functions as F

from pipeline.checks import application
from pipeline.ranges import before_this, with_last
from pipeline.tables import LANE, WINDOW, Tables
from pipeline.violations import event, union, violations, with_name

GUARANTEE: Final = "G2"


def once(tables: Tables) -> DataFrame:
    """Deliveries that share a seqno with an earlier one, and may not."""
    return union(
        _in_one_window(tables),
        _in_two_windows(tables),
        _multicasts(tables),
        application.handed_over(tables, GUARANTEE),
        application.sent_again(tables, GUARANTEE),
    )


def repeats(delivered: DataFrame, by: Sequence[str]) -> DataFrame:
    """Deliveries that share `shared` with another (`other`: the one that reaches furthest of those
    that begin at or before it); `first` and `again` are the two in the order of the trace."""
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
    delivered = tables.delivered.where(~F.col("is_multicast"))
    return violations(
        repeats(delivered, WINDOW),
        GUARANTEE,
        time="again.time",
        detail=F.format_string("seqno %d was delivered twice within one receive window", "shared"),
        witness=[event("receiver", "first.number"), event("receiver", "again.number")],
    )


def _multicasts(tables: Tables) -> DataFrame:
    """A multicast is delivered once by a member, in whatever windows."""
    delivered = tables.delivered.where("is_multicast")
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
    """A repeat is fair when the first window was gone, and the sender still owed the message."""
    pairs = tables.keep(_repeated_pairs(tables))
    removed, opened = F.col("first_removed"), F.col("opened.number")
    is_logged = F.coalesce(removed <= opened, F.lit(False))
    unlogged = violations(
        pairs.where(~is_logged),
        GUARANTEE,
        time="again.time",
        detail=F.format_string(
            "seqno %d was delivered in two windows, and no removal of the first is logged", "lo"
        ),
        witness=[event("receiver", "first.number"), event("receiver", "again.number")],
    )
    return union(unlogged, _after_purges(tables, pairs.where(is_logged)))


def _repeated_pairs(tables: Tables) -> DataFrame:
    """Two deliveries of one batch in two windows that share `lo..hi`."""
    batch = [*LANE, "batch_number"]
    delivered = (
        tables.delivered.where(~F.col("is_multicast") & F.col("is_genuine"))
        .withColumn("batch_number", F.col("batch.number"))
        .select(
            *batch, "receiver", "epoch", F.struct("lo", "hi", "time", "number", "epoch").alias("it")
        )
    )
    in_two = (
        delivered.groupBy(*batch)
        .agg(F.min("epoch").alias("least"), F.max("epoch").alias("most"))
        .where(F.col("least") != F.col("most"))
    )
    repeated = delivered.join(in_two, batch, how="left_semi")
    first = repeated.select(*batch, F.col("it").alias("first"))
    again = repeated.select(*batch, "receiver", F.col("it").alias("again"))
    lo = F.greatest("first.lo", "again.lo")
    hi = F.least("first.hi", "again.hi")
    is_pair = (
        (F.col("first.epoch") != F.col("again.epoch"))
        & (F.col("first.number") < F.col("again.number"))
        & (lo <= hi)
    )
    pairs = (
        first.join(again, batch, how="inner")
        .where(is_pair)
        .select(*LANE, "receiver", "first", "again", lo.alias("lo"), hi.alias("hi"))
    )
    return _with_windows(tables, pairs)


def _with_windows(tables: Tables, pairs: DataFrame) -> DataFrame:
    """With when the second window opened, and the first was removed."""
    connection = ["run", "sender", "receiver", "conn"]
    windows = tables.windows.where(~F.col("is_multicast"))
    removals = windows.select(
        *connection,
        F.col("epoch").alias("first_epoch"),
        F.col("removed.number").alias("first_removed"),
    )
    openings = windows.select(*connection, F.col("epoch").alias("again_epoch"), "opened")
    return (
        pairs.withColumn("first_epoch", F.col("first.epoch"))
        .withColumn("again_epoch", F.col("again.epoch"))
        .join(removals, [*connection, "first_epoch"], how="left")
        .join(openings, [*connection, "again_epoch"], how="left")
    )


def _after_purges(tables: Tables, pairs: DataFrame) -> DataFrame:
    """Repeats of what the sender had purged before the second window opened."""
    # A sender purges upwards: the first purge that reaches the shared seqnos is the earliest.
    purges = tables.sending.where((F.col("kind") == "purged") & ~F.col("is_multicast")).select(
        *LANE,
        (-F.col("hi")).alias("at"),
        (-F.col("number")).alias("turn"),
        F.struct("number", "time", "lo").alias("purge"),
    )
    found = with_last(pairs.withColumn("at", -F.col("lo")), purges, LANE, "purge")
    was_purged = (F.col("purge.lo") <= F.col("hi")) & (F.col("purge.time") < F.col("opened.time"))
    seqno = F.greatest("lo", "purge.lo")
    return violations(
        found.where(was_purged),
        GUARANTEE,
        time="again.time",
        detail=F.format_string(
            "seqno %d was delivered again, in a window opened after it was purged", seqno
        ),
        witness=[
            event("receiver", "first.number"),
            event("sender", "purge.number"),
            event("receiver", "opened.number"),
            event("receiver", "again.number"),
        ],
    )
