"""Messages by pair of names: what was sent to whom, what had arrived of it, and when they parted.

A message in pieces is sent with its first piece, because who comes later can never have it whole,
and has arrived when all of them have. A multicast is for the members of its sender's view, as far
as they have its sender in theirs. What had not arrived when two members parted need not arrive any
more, and does not stand in for another message if it comes all the same: messages are told apart by
their seqnos.
"""

from __future__ import annotations

from typing import Final

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F

from stormcast.pipeline import words
from stormcast.pipeline.ranges import before_this, with_last
from stormcast.pipeline.tables import Tables
from stormcast.pipeline.tables.kept import keep
from stormcast.pipeline.tables.outgoing import DEST, cuts, told_by_senders
from stormcast.pipeline.tables.records import is_fragment, is_multicast, is_numbered

PAIR: Final = ("run", "source", "dest")
"""Names, which all incarnations of a member share."""
AFTER_ALL: Final = (1 << 63) - 1
"""Stands for the number of an end, which comes after all events of its member."""
_WAY: Final = ("run", "sender", "receiver")
"""Incarnations, by their short ids."""
_NUMBERING: Final = ("counted_by", "counter")
"""What counts messages (see `_numbering`)."""
_KNOWN_BY: Final = (*_NUMBERING, "lo", "hi")
_LARGE: Final = (*DEST, "conn", "trim")


def steps(tables: Tables, runs: DataFrame) -> DataFrame:
    """Return what happened between two names in these runs: run, source, dest, time, number (of the
    event), receiver (of an arrival), is_sending, and numbers of messages: arrived (for the first
    time), met (those that had to arrive), owed (that had to arrive; where somebody parted it is
    told by their arrival)."""
    names = keep(
        tables.members.incarnations.join(runs, "run", how="left_semi").select(
            "run", "short_id", "label", "name", "ended"
        )
    )
    views = tables.groups.views.join(runs, "run", how="left_semi")

    def of_these(events: DataFrame) -> DataFrame:
        return events.join(runs, "run", how="left_semi")

    large = _large(tables, of_these(tables.application.both_ends))
    sent = keep(_sent(of_these(tables.of("sent")), large))
    ends = keep(_ends(of_these(tables.events), names))
    is_for_one = F.col("dest_id") != words.GROUP
    is_muted = (F.col("dest_id") == F.col("sender")) & (
        F.col("flags").bitwiseAND(words.DONT_LOOPBACK) != 0
    )
    meant = _meant(tables, views, sent.where(~is_for_one), names, ends)
    sendings = _unless_gone(
        _named(sent.where(is_for_one & ~is_muted).unionByName(meant), names, "dest_id"), ends
    ).withColumnRenamed("dest_id", "receiver")
    arrived = _arrived(of_these(tables.of("delivered")), large)
    arrivals = _new(_named(arrived, names, "receiver"), sent)
    partings = keep(_partings(views, names, ends))
    wanted = keep(_with_numbers(_until_parted(sendings, partings)))
    arrivals = _with_numbers(_until_parted(arrivals, partings))
    return keep(_of_sendings(wanted).unionByName(_of_arrivals(_met(arrivals, wanted))))


def _of_sendings(wanted: DataFrame) -> DataFrame:
    nothing = F.lit(0).cast("bigint")
    return wanted.select(
        *(*PAIR, "time", "number"),
        F.lit(None).cast("bigint").alias("receiver"),
        F.lit(True).alias("is_sending"),
        nothing.alias("arrived"),
        nothing.alias("met"),
        F.when(F.col("parted").isNull(), F.col("count")).otherwise(nothing).alias("owed"),
    )


def _of_arrivals(found: DataFrame) -> DataFrame:
    is_owed_by_it = F.col("sending.parted").isNotNull()
    return found.select(
        *(*PAIR, "time", "number", "receiver"),
        F.lit(False).alias("is_sending"),
        F.col("new").alias("arrived"),
        "met",
        F.when(is_owed_by_it, F.col("met")).otherwise(0).alias("owed"),
    )


def owed(steps: DataFrame) -> DataFrame:
    """Return for each pair with messages how many must arrive: run, source, dest, owed."""
    return (
        steps.groupBy(*PAIR)
        .agg(F.sum("owed").alias("owed"), F.max("is_sending").alias("is_sent"))
        .where("is_sent")
        .drop("is_sent")
    )


def counted(tables: Tables) -> DataFrame:
    """Return how many messages left in each run, and how many arrived at all receivers together:
    run, messages, delivered. A message in pieces is one message."""
    large = _large(tables, tables.application.both_ends)
    sent, arrived = _sent(tables.of("sent"), large), _arrived(tables.of("delivered"), large)
    sent = sent.groupBy("run").agg(F.sum("count").alias("messages"))
    arrived = arrived.groupBy("run").agg(F.sum("count").alias("delivered"))
    return sent.join(arrived, "run", how="full_outer")


# -- Messages that left, and arrived ---------------------------------------------------------------


def _large(tables: Tables, both_ends: DataFrame) -> DataFrame | None:
    """Return the messages all of whose pieces have left, on one connection and without a gap: run,
    sender, dest, conn, trim, `first` and `last` (seqnos), size; None if none is in pieces."""
    if not tables.occurring.in_pieces():
        return None
    pieces = told_by_senders(both_ends, "sent").where(is_fragment())
    return keep(
        pieces.groupBy(*_LARGE)
        .agg(F.min("lo").alias("first"), F.max("hi").alias("last"), F.count("lo").alias("size"))
        .join(cuts(both_ends), [*DEST, "trim"], how="inner")
        .where(
            (F.col("size") == F.col("cut.count"))
            & (F.col("last") - F.col("first") + 1 == F.col("size"))
        )
        .drop("cut")
    )


def _sent(sent: DataFrame, large: DataFrame | None) -> DataFrame:
    """Return what left: run, sender, dest_id (0: the group), number, time, count (messages), flags,
    view, and what tells the messages apart."""
    rows = sent.select(
        "run",
        F.col("short_id").alias("sender"),
        F.when(is_multicast(), words.GROUP).otherwise(F.col("peer")).alias("dest_id"),
        *("number", "time", "count", "flags", "view", "conn", "trim", "lo", "hi"),
        *_numbering(),
    )
    columns = ("run", "sender", "dest_id", "number", "time", "count", "flags", "view", *_KNOWN_BY)
    if large is None:
        return rows.where(~is_fragment()).select(*columns)
    firsts = large.withColumnRenamed("dest", "dest_id").withColumnRenamed("first", "lo")
    key = ["run", "sender", "dest_id", "conn", "trim", "lo"]
    return (
        rows.where(~is_fragment())
        .select(*columns)
        .unionByName(
            rows.where(is_fragment())
            .join(firsts.select(*key, "last"), key, how="inner")
            .withColumn("count", F.lit(1).cast("bigint"))
            .withColumn("lo", F.col("last"))
            .withColumn("hi", F.col("last"))
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


def _arrived(delivered: DataFrame, large: DataFrame | None) -> DataFrame:
    """Return what was delivered: run, sender, receiver, number, time, count (messages), and what
    tells the messages apart."""
    rows = delivered.select(
        "run",
        F.col("peer").alias("sender"),
        F.col("short_id").alias("receiver"),
        F.when(is_multicast(), words.GROUP).otherwise(F.col("short_id")).alias("dest"),
        *("number", "time", "count", "flags", "conn", "lo", "hi"),
        # The pieces of a multicast are joined within one window; those of a unicast on one
        # connection, whose window may be opened anew among them.
        F.when(is_multicast(), F.col("epoch")).otherwise(0).alias("epoch"),
        *_numbering(),
    )
    columns = ("run", "sender", "receiver", "number", "time", "count", *_KNOWN_BY)
    message = ("run", "sender", "receiver", "conn", "epoch", "first", "size", *_NUMBERING)
    if large is None:
        return rows.where(~is_fragment()).select(*columns)
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
        .withColumn("hi", F.col("first") + F.col("size") - 1)
        .select(
            *("run", "sender", "receiver", "final.*", *_NUMBERING, "hi"),
            F.col("hi").alias("lo"),
            F.lit(1).cast("bigint").alias("count"),
        )
    )
    return rows.where(~is_fragment()).select(*columns).unionByName(whole)


# -- Messages one by one ---------------------------------------------------------------------------


def _numbering() -> tuple[Column, Column]:
    """Return what counts messages: the connection, or the stream; for messages without seqnos their
    digest, of which equal ones are counted."""
    counted_by = F.when(is_multicast(), "stream").when(is_numbered(), "conn").otherwise("digest")
    counter = F.when(is_multicast(), 0).when(is_numbered(), F.col("conn"))
    return (
        counted_by.alias("counted_by"),
        counter.otherwise(F.col("digest")).cast("bigint").alias("counter"),
    )


def _new(arrivals: DataFrame, sent: DataFrame) -> DataFrame:
    """Add how many of the messages had not arrived before (`new`). Of equal messages without seqnos
    as many can arrive as have left."""
    is_without = F.col("counted_by") == "digest"
    key = (*_WAY, *_NUMBERING)
    in_turn = Window.partitionBy(*key).orderBy("time", "number")
    before = F.coalesce(F.sum("count").over(before_this(in_turn)), F.lit(0))
    left = (
        sent.where(is_without)
        .groupBy("run", "sender", *_NUMBERING)
        .agg(F.sum("count").alias("left"))
    )
    equal = (
        arrivals.where(is_without)
        .join(left, ["run", "sender", *_NUMBERING], how="left")
        .withColumn("new", F.least("count", F.coalesce("left", F.lit(0)) - before))
        .drop("left")
    )
    by_number = Window.partitionBy(*key).orderBy("lo", "time", "number")
    covered = F.coalesce(F.max("hi").over(before_this(by_number)), F.lit(0))
    numbered = arrivals.where(~is_without).withColumn(
        "new", F.col("hi") - F.greatest(F.col("lo") - 1, covered)
    )
    return numbered.unionByName(equal).withColumn("new", F.greatest("new", F.lit(0)))


def _with_numbers(batches: DataFrame) -> DataFrame:
    """Give messages without seqnos the next numbers of those with the same digest. They begin anew
    when sender and receiver part (`since`): nobody knows which of equal ones were lost."""
    is_without = F.col("counted_by") == "digest"
    equal = Window.partitionBy(*_WAY, *_NUMBERING, "since").orderBy("time", "label", "number")
    upto = F.sum("count").over(equal.rowsBetween(Window.unboundedPreceding, Window.currentRow))
    batches = batches.withColumn("since", F.when(is_without, F.col("parted")))
    counted = batches.where(is_without).withColumn("hi", upto)
    return batches.where(~is_without).unionByName(
        counted.withColumn("lo", F.col("hi") - F.col("count") + 1)
    )


def _until_parted(batches: DataFrame, partings: DataFrame) -> DataFrame:
    """Add to messages when their sender and their receiver parted next (`parted`: time, label and
    number)."""
    back = Window.partitionBy(*_WAY).orderBy(
        F.col("time").desc(), F.col("label").desc(), F.col("number").desc()
    )
    since = back.rowsBetween(Window.unboundedPreceding, Window.currentRow)
    marks = partings.withColumn("parted", F.struct("time", "label", "number"))
    return (
        batches.unionByName(marks, allowMissingColumns=True)
        .withColumn("parted", F.last("parted", True).over(since))
        .where(F.col("count").isNotNull())
    )


def _met(arrivals: DataFrame, wanted: DataFrame) -> DataFrame:
    """Add to what arrived the batch that it is of (`sending`), and how many of its messages had to
    arrive and had not before (`met`)."""
    key = (*_WAY, *_NUMBERING, "since")
    marks = wanted.where(F.col("count") > 0).select(
        *key,
        F.col("lo").alias("at"),
        F.col("lo").alias("turn"),
        F.struct("hi", "parted").alias("sending"),
    )
    placed = with_last(arrivals.withColumn("at", F.col("lo")), marks, key, "sending")
    parted = F.col("sending.parted")
    is_in_time = parted.isNull() | (F.struct("time", "label", "number") <= parted)
    last = F.when(is_in_time, F.least("hi", "sending.hi"))
    in_turn = Window.partitionBy(*key).orderBy("lo", "time", "label", "number")
    before = F.coalesce(F.max("last").over(before_this(in_turn)), F.lit(0))
    met = F.col("last") - F.greatest(F.col("lo") - 1, before)
    return placed.withColumn("last", last).withColumn(
        "met", F.greatest(F.coalesce(met, F.lit(0)), F.lit(0))
    )


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
    run, sender, receiver, time, label, number."""
    in_turn = Window.partitionBy("run", "short_id").orderBy("place")
    gone = F.array_except(F.lag("members").over(in_turn), "members")
    dropped = (
        views.withColumn("gone", gone)
        .withColumn("other", F.explode("gone"))
        .join(F.broadcast(names.select("run", "short_id", "label")), ["run", "short_id"])
    )
    others = names.select("run", F.col("short_id").alias("other"))
    ended = ends.withColumn("number", F.lit(AFTER_ALL)).join(F.broadcast(others), "run")
    columns = ("run", "short_id", "other", "time", "label", "number")
    there, back = (
        F.struct(F.col(one).alias("sender"), F.col(other).alias("receiver"))
        for one, other in (("short_id", "other"), ("other", "short_id"))
    )
    return (
        dropped.select(*columns)
        .unionByName(ended.select(*columns))
        .withColumn("way", F.explode(F.array(there, back)))
        .select("run", "way.*", "time", "label", "number")
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
