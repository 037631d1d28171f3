"""Messages by pair of names: what was sent to whom, what had arrived of it, and when they parted.

A message in pieces is sent with its last piece, and has arrived when all of them have. A multicast
is for the members of its sender's view, as far as they have its sender in theirs. What had not
arrived when two members parted need not arrive any more.
"""

from __future__ import annotations

from typing import Final

from pyspark.sql import DataFrame, Window
from pyspark.sql import functions as F

from stormcast.pipeline import words
from stormcast.pipeline.ranges import with_last
from stormcast.pipeline.tables import Tables
from stormcast.pipeline.tables.kept import keep
from stormcast.pipeline.tables.outgoing import DEST, cuts, is_fragment, told_by_senders
from stormcast.pipeline.tables.records import is_kind, is_multicast

PAIR: Final = ("run", "source", "dest")
"""Names, which all incarnations of a member share."""
AFTER_ALL: Final = (1 << 63) - 1
"""Stands for the number of an end, which comes after all events of its member."""
_LARGE: Final = (*DEST, "conn", "trim")


def steps(tables: Tables, runs: DataFrame) -> DataFrame:
    """Return what happened between two names in these runs: run, source, dest, time, label and
    number (of the event), receiver (of an arrival), sent and arrived (messages), is_sending,
    is_parting."""
    names = keep(
        tables.members.incarnations.join(runs, "run", how="left_semi").select(
            "run", "short_id", "label", "name", "ended"
        )
    )
    views = tables.groups.views.join(runs, "run", how="left_semi")
    events = tables.events.join(runs, "run", how="left_semi")
    large = keep(_large(tables.application.both_ends.join(runs, "run", how="left_semi")))
    sent = keep(_sent(events, large))
    ends = keep(_ends(events, names))
    is_for_one = F.col("dest_id") != words.GROUP
    meant = _meant(tables, views, sent.where(~is_for_one), names, ends)
    of_event = (*PAIR, "time", "label", "number")
    sendings = _unless_gone(
        _named(sent.where(is_for_one).unionByName(meant), names, "dest_id"), ends
    ).select(*of_event, F.col("count").alias("sent"), F.lit(True).alias("is_sending"))
    arrivals = _named(_arrived(events, large), names, "receiver").select(
        *of_event, "receiver", F.col("count").alias("arrived")
    )
    partings = _partings(views, names, ends).withColumn("is_parting", F.lit(True))
    nothing, no = F.lit(0).cast("bigint"), F.lit(False)
    return keep(
        sendings.unionByName(arrivals, allowMissingColumns=True)
        .unionByName(partings, allowMissingColumns=True)
        .select(
            *of_event,
            "receiver",
            F.coalesce("sent", nothing).alias("sent"),
            F.coalesce("arrived", nothing).alias("arrived"),
            F.coalesce("is_sending", no).alias("is_sending"),
            F.coalesce("is_parting", no).alias("is_parting"),
        )
    )


def owed(steps: DataFrame) -> DataFrame:
    """Return for each pair with messages how many must arrive: run, source, dest, owed."""
    upto = (
        Window.partitionBy(*PAIR)
        .orderBy("time", "label", "number")
        .rowsBetween(Window.unboundedPreceding, Window.currentRow)
    )
    missing = F.sum(F.col("sent") - F.col("arrived")).over(upto)
    return (
        steps.withColumn("missing", F.when(F.col("is_parting"), missing))
        .groupBy(*PAIR)
        .agg(
            F.sum("sent").alias("sent"),
            F.max("is_sending").alias("is_sent"),
            F.greatest(F.max("missing"), F.lit(0)).alias("given_up"),
        )
        .where("is_sent")
        .select(*PAIR, (F.col("sent") - F.coalesce("given_up", F.lit(0))).alias("owed"))
    )


def counted(tables: Tables) -> DataFrame:
    """Return how many messages left in each run, and how many arrived at all receivers together:
    run, messages, delivered. A message in pieces is one message."""
    large = keep(_large(tables.application.both_ends))
    sent = _sent(tables.events, large).groupBy("run").agg(F.sum("count").alias("messages"))
    arrived = _arrived(tables.events, large).groupBy("run").agg(F.sum("count").alias("delivered"))
    return sent.join(arrived, "run", how="full_outer")


# -- Messages that left, and arrived ---------------------------------------------------------------


def _large(both_ends: DataFrame) -> DataFrame:
    """Return the messages all of whose pieces have left, on one connection and without a gap: run,
    sender, dest, conn, trim, `first` and `last` (seqnos), size."""
    pieces = told_by_senders(both_ends, "sent").where(is_fragment())
    return (
        pieces.groupBy(*_LARGE)
        .agg(F.min("lo").alias("first"), F.max("hi").alias("last"), F.count("lo").alias("size"))
        .join(cuts(both_ends), [*DEST, "trim"], how="inner")
        .where(
            (F.col("size") == F.col("cut.count"))
            & (F.col("last") - F.col("first") + 1 == F.col("size"))
        )
        .drop("cut")
    )


def _sent(events: DataFrame, large: DataFrame) -> DataFrame:
    """Return what left: run, sender, dest_id (0: the group), number, time, count (messages), flags,
    view."""
    rows = events.where(is_kind("sent")).select(
        "run",
        F.col("short_id").alias("sender"),
        F.when(is_multicast(), words.GROUP).otherwise(F.col("peer")).alias("dest_id"),
        *("number", "time", "count", "flags", "view", "conn", "trim", "hi"),
    )
    columns = ("run", "sender", "dest_id", "number", "time", "count", "flags", "view")
    lasts = large.withColumnRenamed("dest", "dest_id").withColumnRenamed("last", "hi")
    key = ["run", "sender", "dest_id", "conn", "trim", "hi"]
    return (
        rows.where(~is_fragment())
        .select(*columns)
        .unionByName(
            rows.where(is_fragment())
            .join(lasts.select(*key), key, how="left_semi")
            .withColumn("count", F.lit(1).cast("bigint"))
            .select(*columns)
        )
    )


def _unless_gone(sendings: DataFrame, ends: DataFrame) -> DataFrame:
    """Count none of what was sent to one that had ended: its sender did not know."""
    gone = ends.select(
        "run",
        F.col("short_id").alias("dest_id"),
        F.struct("time", "label").alias("gone"),
    )
    is_gone = F.col("gone") < F.struct("time", "label")
    return sendings.join(F.broadcast(gone), ["run", "dest_id"], how="left").withColumn(
        "count", F.when(F.coalesce(is_gone, F.lit(False)), 0).otherwise(F.col("count"))
    )


def _arrived(events: DataFrame, large: DataFrame) -> DataFrame:
    """Return what was delivered: run, sender, receiver, number, time, count (messages)."""
    rows = events.where(is_kind("delivered")).select(
        "run",
        F.col("peer").alias("sender"),
        F.col("short_id").alias("receiver"),
        F.when(is_multicast(), words.GROUP).otherwise(F.col("short_id")).alias("dest"),
        *("number", "time", "count", "flags", "conn", "epoch", "lo"),
    )
    message = ("run", "sender", "receiver", "conn", "epoch", "first", "size")
    seqnos = large.select(
        *("run", "sender", "dest", "conn", "first", "size"),
        F.explode(F.sequence("first", "last")).alias("lo"),
    )
    whole = (
        rows.where(is_fragment())
        .join(seqnos, ["run", "sender", "dest", "conn", "lo"], how="inner")
        .groupBy(*message, "lo")
        .agg(F.min(F.struct("number", "time")).alias("piece"))
        .groupBy(*message)
        .agg(F.count("lo").alias("pieces"), F.max("piece").alias("final"))
        .where(F.col("pieces") == F.col("size"))
        .select("run", "sender", "receiver", "final.*", F.lit(1).cast("bigint").alias("count"))
    )
    plain = rows.where(~is_fragment())
    return plain.select("run", "sender", "receiver", "number", "time", "count").unionByName(whole)


# -- For whom a multicast is -----------------------------------------------------------------------


def _meant(
    tables: Tables, views: DataFrame, multicasts: DataFrame, names: DataFrame, ends: DataFrame
) -> DataFrame:
    """Return a row for each member that a multicast is for, as `dest_id`."""
    held = views.select("run", F.col("short_id").alias("sender"), "place", "members")
    labels = names.select("run", F.col("short_id").alias("sender"), "label")
    aimed = (
        tables.groups.with_place(multicasts)
        .join(held, ["run", "sender", "place"], how="inner")
        .join(F.broadcast(labels), ["run", "sender"], how="inner")
        .withColumn("dest_id", F.explode("members"))
    )
    at = F.struct("time", "label")
    is_own = F.col("dest_id") == F.col("sender")
    own = aimed.where(is_own & (F.col("flags").bitwiseAND(words.DONT_LOOPBACK) == 0))
    gone = ends.select("run", F.col("short_id").alias("dest_id"), at.alias("end"))
    others = (
        aimed.where(~is_own)
        .join(F.broadcast(gone), ["run", "dest_id"], how="left")
        .where(F.col("end").isNull() | (F.col("end") > at))
    )
    marks = views.join(F.broadcast(names.drop("name", "ended")), ["run", "short_id"]).select(
        "run",
        F.col("short_id").alias("dest_id"),
        at.alias("at"),
        F.col("number").alias("turn"),
        F.struct("members").alias("theirs"),
    )
    met = with_last(others.withColumn("at", at), marks, ["run", "dest_id"], "theirs").where(
        F.col("theirs").isNull() | F.array_contains("theirs.members", F.col("sender"))
    )
    columns = multicasts.columns
    return own.select(*columns).unionByName(met.select(*columns))


# -- Partings --------------------------------------------------------------------------------------


def _ends(events: DataFrame, names: DataFrame) -> DataFrame:
    """Return the ends of incarnations: run, short_id, label, name, time."""
    last = events.groupBy("run", "short_id").agg(F.max("time").alias("last"))
    return (
        names.where(F.col("ended") < words.INFINITY)
        .join(last, ["run", "short_id"], how="inner")
        .select("run", "short_id", "label", "name", F.greatest("ended", "last").alias("time"))
    )


def _partings(views: DataFrame, names: DataFrame, ends: DataFrame) -> DataFrame:
    """Return the moments when a view of one dropped the other, or one ended, for both directions:
    run, source, dest, time, label, number."""
    in_turn = Window.partitionBy("run", "short_id").orderBy("place")
    gone = F.array_except(F.lag("members").over(in_turn), "members")
    others = names.select("run", F.col("short_id").alias("other"), F.col("name").alias("others"))
    ours = names.select("run", "short_id", "label", "name")
    dropped = (
        views.withColumn("gone", gone)
        .withColumn("other", F.explode("gone"))
        .join(F.broadcast(ours), ["run", "short_id"])
        .join(F.broadcast(others), ["run", "other"])
    )
    ended = ends.withColumn("number", F.lit(AFTER_ALL)).join(F.broadcast(others), "run")
    columns = ("run", "name", "others", "time", "label", "number")
    there, back = (
        F.struct(F.col(one).alias("source"), F.col(other).alias("dest"))
        for one, other in (("name", "others"), ("others", "name"))
    )
    return (
        dropped.select(*columns)
        .unionByName(ended.select(*columns))
        .withColumn("pair", F.explode(F.array(there, back)))
        .select("run", "pair.*", "time", "label", "number")
    )


def _named(rows: DataFrame, names: DataFrame, end: str) -> DataFrame:
    """Add the names of sender and receiver, whose short id is in `end`, and the label of the one
    whose event it is: an arrival is the receiver's."""
    ours, theirs = (
        names.select(
            "run",
            F.col("short_id").alias(short),
            F.col("name").alias(name),
            F.col("label").alias(f"{name}_label"),
        )
        for short, name in (("sender", "source"), (end, "dest"))
    )
    label = "dest_label" if end == "receiver" else "source_label"
    return (
        rows.join(F.broadcast(ours), ["run", "sender"])
        .join(F.broadcast(theirs), ["run", end])
        .withColumn("label", F.col(label))
    )
