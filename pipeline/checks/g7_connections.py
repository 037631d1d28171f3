"""G7, connections stay apart: none delivers messages of another, or is purged by its acks."""

from __future__ import annotations

from typing import Final

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F

from stormcast.pipeline import words
from stormcast.pipeline.ranges import before_this, with_last
from stormcast.pipeline.tables import Tables
from stormcast.pipeline.tables.kept import keep
from stormcast.pipeline.tables.messages import NUMBERING, WINDOW
from stormcast.pipeline.violations import event, union, violations

GUARANTEE: Final = "G7"
_PAIR: Final = ("run", "sender", "receiver")
_IDS: Final = 1 << 32
"""Connection ids wrap here: of two, the one that is less than half of it ahead is the newer."""


def apart(tables: Tables) -> DataFrame:
    """Find deliveries and purges that took effect on another connection than their own."""
    return union(
        _after_a_newer_one(tables),
        _after_the_next_life(tables),
        _of_another(tables),
        _purged_by_another(tables),
        _after_the_window(tables),
        *([_of_a_stranger(tables)] if tables.occurring.of_group("delivered") else ()),
    )


def _ahead(conn: str | Column, of: str | Column) -> Column:
    """Return how many connection ids one is ahead of another; below 0 if it is older."""
    one = F.col(conn) if isinstance(conn, str) else conn
    other = F.col(of) if isinstance(of, str) else of
    return F.pmod(one - other + _IDS // 2, F.lit(_IDS)) - _IDS // 2


# -- Unicast ---------------------------------------------------------------------------------------


def _after_a_newer_one(tables: Tables) -> DataFrame:
    """Find unicasts that a member delivered on a connection after it had opened a newer one of the
    same sender."""
    is_open = (F.col("kind") == "conn") & (F.col("stream") == words.RECEIVER_OPEN)
    is_delivery = F.col("kind") == "delivered"
    rows = tables.messages.receiving.where(~F.col("is_multicast") & (is_open | is_delivery))
    in_turn = Window.partitionBy(*_PAIR).orderBy("number")
    first = F.first(F.when(is_open, F.col("conn")), True).over(
        in_turn.rowsBetween(Window.unboundedPreceding, Window.currentRow)
    )
    place = F.struct(
        F.col("place"), (-F.col("number")).alias("turn"), F.col("number").alias("opened"), "conn"
    )
    newest = F.max(F.when(is_open, place)).over(before_this(in_turn))
    found = (
        rows.withColumn("place", _ahead(F.col("conn"), first))
        .withColumn("newest", newest)
        .where(is_delivery & (F.col("newest.place") > F.col("place")))
    )
    return violations(
        found,
        GUARANTEE,
        time="time",
        detail=F.format_string(
            "conn %d delivered after the newer conn %d was opened", "conn", "newest.conn"
        ),
        witness=[event("receiver", "newest.opened"), event("receiver", "number")],
    )


def _after_the_next_life(tables: Tables) -> DataFrame:
    """Find messages of one life of a sender entry that were delivered after one of its next life,
    where frames name no connection."""
    connection = ["run", "sender", "dest", "conn"]
    delivered = tables.messages.delivered.where(
        ~F.col("is_multicast") & F.col("is_genuine")
    ).select(*NUMBERING, "receiver", "number", "time")
    firsts = (
        delivered.where(F.col("entry") > 0)
        .groupBy(*NUMBERING)
        .agg(F.min(F.struct("time", "number")).alias("next"))
        .withColumn("entry", F.col("entry") - 1)
    )
    late = (
        delivered.join(firsts, [*connection, "entry"], how="inner")
        .where(F.col("time") > F.col("next.time") + words.EPSILON)
        .groupBy(*NUMBERING, "receiver", "next")
        .agg(F.min(F.struct("time", "number")).alias("late"))
    )
    return violations(
        late,
        GUARANTEE,
        time="late.time",
        detail=F.lit("a message of an earlier connection was delivered after one of the next"),
        witness=[event("receiver", "next.number"), event("receiver", "late.number")],
    )


def _of_another(tables: Tables) -> DataFrame:
    """Find deliveries of batches that were sent on another connection of the same two members."""
    strange = tables.messages.delivered.where(~F.col("is_multicast") & ~F.col("is_genuine")).select(
        *WINDOW, "number", "time", "lo", "hi", "digest"
    )
    sent = tables.messages.sent.where(~F.col("is_multicast")).select(
        "run",
        "sender",
        F.col("dest").alias("receiver"),
        "digest",
        F.struct("conn", "number", "time", "lo", "hi").alias("batch"),
    )
    is_origin = (
        (F.col("batch.conn") != F.col("conn"))
        & (F.col("batch.lo") <= F.col("lo"))
        & (F.col("batch.hi") >= F.col("hi"))
        & (F.col("batch.time") <= F.col("time") + words.EPSILON)
    )
    found = (
        strange.join(sent, [*_PAIR, "digest"], how="inner")
        .where(is_origin)
        .groupBy(*WINDOW, "number", "time")
        .agg(F.min("batch").alias("batch"))
    )
    return violations(
        found,
        GUARANTEE,
        time="time",
        detail=F.format_string(
            "messages of conn %d were delivered on conn %d", "batch.conn", "conn"
        ),
        witness=[event("sender", "batch.number"), event("receiver", "number")],
    )


def _purged_by_another(tables: Tables) -> DataFrame:
    """Find early purges of seqnos that the receiver had, and acked, on an older connection."""
    pair = ["run", "sender", "dest"]
    early = tables.purges.early.select(
        *NUMBERING, F.col("number").alias("purge"), F.col("time").alias("purged_at"), "seqno"
    )
    had = tables.messages.delivered.where(~F.col("is_multicast") & F.col("is_genuine")).select(
        *pair,
        F.col("conn").alias("older"),
        F.col("entry").alias("older_entry"),
        "lo",
        "hi",
        F.struct("time", "number").alias("had"),
    )
    ahead = _ahead("conn", "older")
    is_older = (ahead > 0) | ((ahead == 0) & (F.col("older_entry") < F.col("entry")))
    known = keep(
        early.join(had, pair, how="inner")
        .where(is_older & F.col("seqno").between(F.col("lo"), F.col("hi")))
        .groupBy(*NUMBERING, "purge", "purged_at", "seqno", "older")
        .agg(F.min("had").alias("had"))
        .groupBy(*NUMBERING, "purge", "purged_at", "seqno")
        .agg(F.min(F.struct("older", "had")).alias("first"))
        .select(*NUMBERING, "purge", "purged_at", "seqno", "first.older", "first.had")
    )
    acks = tables.messages.receiving.where(
        (F.col("kind") == "acked") & ~F.col("is_multicast")
    ).select(
        "run",
        "sender",
        F.col("receiver").alias("dest"),
        F.col("conn").alias("older"),
        F.struct("time", "number").alias("ack"),
        F.col("lo").alias("acked"),
    )
    covers = (F.col("acked") >= F.col("seqno")) & (F.col("ack.time") <= F.col("purged_at"))
    proved = (
        known.join(acks, [*pair, "older"], how="left")
        .groupBy(*NUMBERING, "purge", "purged_at", "seqno", "had")
        .agg(F.max(F.when(covers, F.col("ack"))).alias("ack"))
    )
    return violations(
        proved,
        GUARANTEE,
        time="purged_at",
        detail=F.format_string(
            "seqno %d of conn %d was purged: the receiver had only an older one", "seqno", "conn"
        ),
        witness=[
            event("dest", F.coalesce("ack.number", "had.number")),
            event("sender", "purge"),
        ],
    )


# -- Windows ---------------------------------------------------------------------------------------


def _after_the_window(tables: Tables) -> DataFrame:
    """Find messages that were delivered in a window after it was removed, and multicasts also after
    the next one was opened. Within one turn the order proves nothing: a window that ends delivers
    its rest."""
    window = [*WINDOW, "is_multicast"]
    in_turn = Window.partitionBy(*_PAIR, "is_multicast").orderBy("first")
    ends = (
        tables.messages.windows.withColumn(
            "next", F.lead(F.struct("opened.number", "opened.time")).over(in_turn)
        )
        .withColumn(
            "next", F.when(F.col("is_multicast") & F.col("next.number").isNotNull(), F.col("next"))
        )
        .select(*window, F.least("removed", "next").alias("end"))
        .where(F.col("end").isNotNull())
    )
    late = (
        tables.messages.delivered.join(ends, window, how="inner")
        .where(F.col("time") > F.col("end.time") + words.EPSILON)
        .groupBy(*window, "end")
        .agg(F.min(F.struct("number", "time", "lo")).alias("late"))
    )
    what = F.when(F.col("is_multicast"), "multicast").otherwise("unicast")
    return violations(
        late,
        GUARANTEE,
        time="late.time",
        detail=F.format_string("%s %d was delivered in a window that had ended", what, "late.lo"),
        witness=[event("receiver", "end.number"), event("receiver", "late.number")],
    )


def _of_a_stranger(tables: Tables) -> DataFrame:
    """Find multicasts of a sender that is not in the receiver's view: its window must end with it.
    Of views that were replaced within the same turn each may be the one."""
    views = tables.groups.views.withColumnRenamed("short_id", "receiver")
    in_turn = Window.partitionBy("run", "receiver").orderBy("place")
    # Before its first view a member has nobody.
    nobody = views.where(F.col("place") == 0).select(
        "run",
        "receiver",
        F.lit(-words.INFINITY).alias("since"),
        F.col("time").alias("until"),
        "number",
        F.lit(-1).cast("bigint").alias("place"),
        F.expr("CAST(array() AS ARRAY<BIGINT>)").alias("members"),
    )
    held = keep(
        views.withColumn("until", F.lead("time").over(in_turn))
        .select(
            "run",
            "receiver",
            F.col("time").alias("since"),
            F.coalesce("until", F.lit(words.INFINITY)).alias("until"),
            "number",
            F.col("place").cast("bigint").alias("place"),
            "members",
        )
        .unionByName(nobody)
    )
    marks = held.select(
        "run",
        "receiver",
        F.col("since").alias("at"),
        F.col("place").alias("turn"),
        F.struct("number", "members").alias("view"),
    )
    delivered = tables.messages.delivered.where(
        F.col("is_multicast") & (F.col("sender") != F.col("receiver"))
    ).select(*WINDOW, "number", "time", "lo")
    points = delivered.withColumn("at", F.col("time") + words.EPSILON)
    strange = keep(
        with_last(points, marks, ["run", "receiver"], "view").where(
            F.col("view").isNotNull() & ~F.array_contains("view.members", F.col("sender"))
        )
    )
    excused = (
        strange.join(
            held.select("run", "receiver", "since", "until", "members"),
            ["run", "receiver"],
            how="inner",
        )
        .where(
            F.array_contains("members", F.col("sender"))
            & (F.col("since") <= F.col("time") + words.EPSILON)
            & (F.col("until") >= F.col("time") - words.EPSILON)
        )
        .select("run", "receiver", "number")
        .distinct()
    )
    found = (
        strange.join(excused, ["run", "receiver", "number"], how="left_anti")
        .groupBy(*WINDOW)
        .agg(F.min(F.struct("number", "time", "lo", "view")).alias("first"))
    )
    return violations(
        found,
        GUARANTEE,
        time="first.time",
        detail=F.format_string(
            "multicast %d was delivered of a member that is not in the view", "first.lo"
        ),
        witness=[event("receiver", "first.view.number"), event("receiver", "first.number")],
    )
