"""A1, agreement: members that stay together deliver the same multicasts of the senders that stay
with them."""

from __future__ import annotations

from typing import Final

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F

from stormcast.pipeline import words
from stormcast.pipeline.losses import excused, with_batch, with_standstill
from stormcast.pipeline.ranges import gaps, with_last
from stormcast.pipeline.tables import Tables
from stormcast.pipeline.tables.kept import keep
from stormcast.pipeline.violations import event, nothing, violations, with_name

GUARANTEE: Final = "A1"
_PAIR: Final = ("run", "sender", "receiver")


def agreement(tables: Tables) -> DataFrame:
    """Find multicasts that one of two members has delivered and the other has not, though both went
    through the same views with the sender."""
    if not (tables.occurring.any("view") and tables.occurring.of_group("delivered")):
        return nothing(tables)
    held = keep(_held(tables))
    spans = keep(_spans(tables, held))
    reach = spans.groupBy("run", "sender").agg(F.max("hi").alias("last"))
    wanted = (
        held.join(reach, ["run", "sender"], how="inner")
        .withColumn("first", F.col("begins") + 1)
        .where(F.col("first") <= F.col("last"))
    )
    lacking = keep(gaps(spans, wanted, _PAIR))
    differing = keep(_had_by_others(tables, lacking, held, spans))
    return _unexcused(tables, differing)


def _held(tables: Tables) -> DataFrame:
    """Return the last windows of living members on senders that live and are in their last view:
    run, sender, receiver, epoch, opened, begins (seqnos up to it were not to be delivered), ids (of
    the views since the window was opened)."""
    living = tables.members.living()
    windows = tables.messages.windows.where(
        F.col("is_multicast") & F.col("removed").isNull() & (F.col("sender") != F.col("receiver"))
    )
    newest = F.max_by(F.struct("epoch", "opened", "skipped"), "first")
    current = windows.groupBy(*_PAIR).agg(newest.alias("window"))
    for side in ("sender", "receiver"):
        alive = living.withColumnRenamed("short_id", side)
        current = current.join(F.broadcast(alive), ["run", side], how="left_semi")
    opened_at = F.coalesce("window.opened.time", F.lit(0.0))
    points = current.withColumn("at", opened_at + words.EPSILON)
    marks = tables.groups.views.select(
        "run",
        F.col("short_id").alias("receiver"),
        F.col("time").alias("at"),
        F.col("place").alias("turn"),
        F.struct("place").alias("first_view"),
    )
    begins = F.coalesce("window.skipped", "window.opened.lo", F.lit(0))
    since_then = F.expr("slice(ids, first_view.place + 1, size(ids))")
    return (
        with_last(points, marks, ["run", "receiver"], "first_view")
        .where(F.col("first_view").isNotNull())
        .join(_view_ids(tables), ["run", "receiver"], how="inner")
        .where(F.array_contains("last_members", F.col("sender")))
        .select(
            *_PAIR,
            "window.epoch",
            F.col("window.opened.number").alias("opened"),
            begins.alias("begins"),
            since_then.alias("ids"),
        )
    )


def _view_ids(tables: Tables) -> DataFrame:
    """Return the ids of all views of each member, in order, and the members of its last view."""
    told = F.sort_array(F.collect_list(F.struct("place", "view", "creator")))
    ids = F.transform(told, lambda each: F.struct(each["view"], each["creator"]))
    return tables.groups.views.groupBy("run", F.col("short_id").alias("receiver")).agg(
        ids.alias("ids"), F.max_by("members", "place").alias("last_members")
    )


def _spans(tables: Tables, held: DataFrame) -> DataFrame:
    """Return each receiver's deliveries: in its last window, or out of band in earlier ones."""
    windows = held.select(*_PAIR, F.col("epoch").alias("current"))
    is_oob = F.col("flags").bitwiseAND(words.OOB) != 0
    is_here = F.col("epoch") == F.col("current")
    is_early = (F.col("epoch") < F.col("current")) & is_oob
    return (
        tables.messages.delivered.where(F.col("is_multicast") & F.col("is_genuine"))
        .join(F.broadcast(windows), [*_PAIR], how="inner")
        .where(is_here | is_early)
        .select(*_PAIR, "number", "time", "lo", "hi")
    )


def _had_by_others(
    tables: Tables, lacking: DataFrame, held: DataFrame, spans: DataFrame
) -> DataFrame:
    """Return the first seqno of each standstill that one member lacks and another has, above where
    both begin."""
    others = held.select(
        "run",
        "sender",
        F.col("receiver").alias("holder"),
        F.col("begins").alias("holder_begins"),
        F.col("ids").alias("holder_ids"),
    )
    pairs = (
        lacking.join(others, ["run", "sender"], how="inner")
        .where((F.col("holder") != F.col("receiver")) & _went_together())
        .withColumn(
            "shorter",
            F.when(F.size("ids") < F.size("holder_ids"), F.col("ids")[0]).otherwise(
                F.col("holder_ids")[0]
            ),
        )
    )
    above = F.greatest("begins", "holder_begins", "sent_before") + 1
    above_both = keep(
        _with_sent_before(tables, pairs)
        .withColumn("gap_lo", F.greatest("gap_lo", above))
        .where(F.col("gap_lo") <= F.col("gap_hi"))
    )
    asked = with_standstill(tables, above_both).withColumn("at", -F.col("gap_lo"))
    marks = spans.select(
        "run",
        "sender",
        F.col("receiver").alias("holder"),
        (-F.col("hi")).alias("at"),
        (-F.col("number")).alias("turn"),
        F.struct("number", "time", "lo").alias("had"),
    )
    found = with_last(asked, marks, ["run", "sender", "holder"], "had")
    return (
        found.where(F.col("had.lo") <= F.col("gap_hi"))
        .withColumn("gap", F.greatest("had.lo", "gap_lo"))
        .groupBy(*_PAIR, "holder", "opened", "stands_at")
        .agg(F.min(F.struct("gap", "had")).alias("least"))
        .select(*_PAIR, "holder", "opened", "least.gap", "least.had")
    )


def _went_together() -> Column:
    """Whether both members went through the same views last: the shorter list of ids is the end of
    the longer one."""
    return F.expr(
        "CASE WHEN size(ids) < size(holder_ids)"
        " THEN slice(holder_ids, size(holder_ids) - size(ids) + 1, size(ids)) = ids"
        " ELSE slice(ids, size(ids) - size(holder_ids) + 1, size(holder_ids)) = holder_ids END"
    )


def _with_sent_before(tables: Tables, pairs: DataFrame) -> DataFrame:
    """Add `sent_before`, the last seqno that the sender sent before the first view that it shares
    with both: a member that was with the sender before may have it, another need not."""
    came = tables.groups.views.groupBy(
        "run", F.col("short_id").alias("sender"), F.struct("view", "creator").alias("shorter")
    ).agg(F.min("place").alias("came"))
    upto = Window.partitionBy("run", "sender").orderBy("place")
    through = tables.groups.sent_in.select(
        "run",
        "sender",
        F.col("place").alias("at"),
        F.col("place").alias("turn"),
        F.struct(F.max("last").over(upto).alias("hi")).alias("through"),
    )
    with_came = (
        pairs.join(came, ["run", "sender", "shorter"], how="left")
        .join(tables.groups.streams, ["run", "sender"], how="left")
        .withColumn("at", F.coalesce("came", F.lit(0)) - 1)
    )
    before = F.when(F.col("came").isNull(), F.col("high")).otherwise(F.col("through.hi"))
    return with_last(with_came, through, ["run", "sender"], "through").withColumn(
        "sent_before", F.coalesce(before, F.lit(0))
    )


def _unexcused(tables: Tables, differing: DataFrame) -> DataFrame:
    with_sent = with_batch(tables, differing)
    key = [*_PAIR, "gap"]
    silent = with_sent.join(excused(tables, with_sent), key, how="left_anti")
    named = with_name(silent, tables, "sender", "sender_name")
    named = with_name(named, tables, "receiver", "receiver_name")
    named = with_name(named, tables, "holder", "holder_name")
    return violations(
        named,
        GUARANTEE,
        time="had.time",
        detail=F.format_string(
            "multicast %d of %s was delivered by %s and not by %s, which went through the same "
            "views",
            "gap",
            "sender_name",
            "holder_name",
            "receiver_name",
        ),
        witness=[event("holder", "had.number"), event("receiver", "opened")],
    )
