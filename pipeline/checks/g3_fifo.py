"""G3, FIFO: within a window deliveries ascend, with no step back and no skip; OOB is exempt."""

from __future__ import annotations

from typing import Final

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F

from stormcast.pipeline import words
from stormcast.pipeline.checks import application
from stormcast.pipeline.ranges import before_this, first_gaps, with_last
from stormcast.pipeline.tables import Tables
from stormcast.pipeline.tables.kept import keep
from stormcast.pipeline.tables.messages import WINDOW
from stormcast.pipeline.violations import event, union, violations

GUARANTEE: Final = "G3"
_HOLE: Final = (*WINDOW, "number")


def fifo(tables: Tables) -> DataFrame:
    """Find deliveries at or below their predecessor, or above a seqno that is not accounted for."""
    in_order = keep(_odd(_in_order(tables)))
    handed_over = application.handed_over(tables, GUARANTEE)
    late = _across_windows(tables)
    return union(_steps_back(in_order), _skips(tables, in_order), late, handed_over)


def _odd(in_order: DataFrame) -> DataFrame:
    """Keep the deliveries that are not the next one."""
    return in_order.where(F.col("lo") != F.col("reached") + 1)


def _is_oob() -> Column:
    return F.col("flags").bitwiseAND(words.OOB) != 0


def _in_order(tables: Tables) -> DataFrame:
    """Return the deliveries that must be in order, with `reached`, the highest seqno before, and
    `previous`. `reached` is null where a unicast window begins, which G1 judges; for a multicast
    window, its opening says where it begins."""
    windows = tables.messages.windows.select(*WINDOW, "opened")
    offset = F.coalesce("opened.lo", F.lit(0))
    is_early = _is_oob() & (~F.col("is_multicast") | (F.col("lo") > offset))
    upto_here = before_this(Window.partitionBy(*WINDOW).orderBy("number"))
    # Of two deliveries that reached equally high, take the first.
    before = F.max(F.struct("hi", -F.col("number"))).over(upto_here)
    reached = F.when(F.col("is_multicast"), F.greatest(F.coalesce("before.hi", offset), offset))
    own_or_opened = (F.col("sender") == F.col("receiver")) | F.col("opened").isNotNull()
    knows_start = F.col("before").isNotNull() | (F.col("is_multicast") & own_or_opened)
    return (
        tables.messages.delivered.join(F.broadcast(windows), [*WINDOW], how="left")
        .where(~is_early)
        .withColumn("before", before)
        .withColumn("offset", offset)
        .withColumn("reached", F.coalesce(reached, F.col("before.hi")))
        .withColumn("knows_start", knows_start)
        .withColumn("previous", _previous())
        .select(
            *_HOLE,
            "is_multicast",
            "time",
            "lo",
            "hi",
            "reached",
            "offset",
            "knows_start",
            "previous",
        )
    )


def _across_windows(tables: Tables) -> DataFrame:
    """Find deliveries that come in a later window than what was sent after them. One that came
    before is a matter of G2."""
    stream = ["run", "sender", "receiver", "conn", "is_multicast", "entry"]
    connection = stream[:-1]
    windows = tables.messages.windows.select(*connection, "epoch", F.col("first").alias("nth"))
    several = windows.groupBy(*connection).agg(F.count(F.lit(1)).alias("lives")).where("lives > 1")
    delivered = keep(
        tables.messages.delivered.where("is_genuine")
        .join(F.broadcast(several.drop("lives")), connection, how="left_semi")
        .join(F.broadcast(windows), [*connection, "epoch"], how="inner")
        .withColumn("is_oob", _is_oob())
        .select(*stream, "nth", "number", "time", "lo", "hi", "is_oob")
    )
    # The frame is by value, so that it contains no delivery of the same window.
    before = Window.partitionBy(*stream).orderBy("nth").rangeBetween(Window.unboundedPreceding, -1)
    regular = F.when(~F.col("is_oob"), F.struct("hi", -F.col("number")))
    late = keep(
        delivered.withColumn("reached", F.max(regular).over(before)).where(
            ~F.col("is_oob") & (F.col("lo") <= F.col("reached.hi"))
        )
    )
    past = delivered.select(
        *stream, F.col("nth").alias("past"), F.col("lo").alias("from"), F.col("hi").alias("upto")
    )
    again = late.join(past, stream, how="inner").where(
        (F.col("past") < F.col("nth")) & F.col("lo").between(F.col("from"), F.col("upto"))
    )
    key = ["run", "receiver", "number"]
    return violations(
        late.join(again.select(*key).distinct(), key, how="left_anti"),
        GUARANTEE,
        time="time",
        detail=F.format_string(
            "%s %d was delivered after %d, which an earlier window delivered",
            F.when(F.col("is_multicast"), "multicast").otherwise("seqno"),
            "lo",
            "reached.hi",
        ),
        witness=[event("receiver", -F.col("reached.col2")), event("receiver", "number")],
    )


def _previous() -> Column:
    """Return the number of the event before: a delivery, or the opening of the window."""
    is_above = F.col("before.hi") > F.col("offset")
    by_delivery = -F.col("before.col2")
    return F.when(
        F.col("is_multicast") & ~F.coalesce(is_above, F.lit(False)), F.col("opened.number")
    ).otherwise(by_delivery)


def _steps_back(in_order: DataFrame) -> DataFrame:
    begins = F.format_string("its window begins after %d", "offset")
    was_before = F.format_string("%d was before", "reached")
    of_group = F.format_string(
        "multicast %d was delivered, and %s",
        "lo",
        F.when(F.col("lo") <= F.col("offset"), begins).otherwise(was_before),
    )
    of_one = F.format_string("seqno %d was delivered after seqno %d", "lo", "reached")
    return violations(
        in_order.where(F.col("lo") <= F.col("reached")),
        GUARANTEE,
        time="time",
        detail=F.when(F.col("is_multicast"), of_group).otherwise(of_one),
        witness=[event("receiver", "previous"), event("receiver", "number")],
    )


def _skips(tables: Tables, in_order: DataFrame) -> DataFrame:
    """Find holes that are not accounted for: neither by early deliveries, nor by seqnos reported as
    given up, nor by messages that their sender did not want back."""
    is_hole = (F.col("lo") > F.col("reached") + 1) & F.col("knows_start")
    holes = in_order.where(is_hole).select(
        *_HOLE,
        "time",
        "is_multicast",
        "previous",
        "reached",
        F.col("lo").alias("beyond"),
        (F.col("reached") + 1).alias("first"),
        (F.col("lo") - 1).alias("last"),
    )
    wanted = keep(_above_what_was_given_up(tables, holes))
    skipped = first_gaps(_within_holes(tables, wanted), wanted, _HOLE)
    of_group = F.format_string(
        "multicast %d was delivered after %d, and %d was not", "beyond", "reached", "gap"
    )
    of_one = F.format_string(
        "seqno %d was delivered after seqno %d, and seqno %d was not", "beyond", "reached", "gap"
    )
    return violations(
        skipped,
        GUARANTEE,
        time="time",
        detail=F.when(F.col("is_multicast"), of_group).otherwise(of_one),
        witness=[event("receiver", "previous"), event("receiver", "number")],
    )


def _above_what_was_given_up(tables: Tables, holes: DataFrame) -> DataFrame:
    """Keep the part of each hole that was not given up by a skip before: a skip gives up everything
    below it."""
    by_time = (
        Window.partitionBy(*WINDOW)
        .orderBy("time", "number")
        .rowsBetween(Window.unboundedPreceding, Window.currentRow)
    )
    skips = tables.messages.receiving.where(F.col("kind") == "skipped").select(
        *WINDOW,
        F.col("time").alias("at"),
        F.col("number").alias("turn"),
        F.struct(F.max("hi").over(by_time).alias("hi")).alias("given_up"),
    )
    at = F.col("time") + F.when(F.col("is_multicast"), words.EPSILON).otherwise(0.0)
    above = F.greatest(F.col("first"), F.coalesce(F.col("given_up.hi") + 1, F.col("first")))
    return (
        with_last(holes.withColumn("at", at), skips, WINDOW, "given_up")
        .withColumn("first", above)
        .where(F.col("first") <= F.col("last"))
        .drop("given_up")
    )


def _within_holes(tables: Tables, holes: DataFrame) -> DataFrame:
    """Return the ranges that account for parts of holes, each with the first hole it reaches."""
    # Most windows have no holes, so consider only windows with holes.
    with_holes = holes.select(*WINDOW).distinct()
    parts = _early(tables).unionByName(_muted(tables)).join(with_holes, [*WINDOW], how="left_semi")
    marks = holes.select(
        *WINDOW,
        (-F.col("last")).alias("at"),
        (-F.col("number")).alias("turn"),
        F.struct("number", "first", "last").alias("hole"),
    )
    points = parts.withColumn("at", -F.col("lo")).withColumnRenamed("number", "part_number")
    placed = with_last(points, marks, WINDOW, "hole")
    is_within = F.col("hole.first") <= F.col("hi")
    is_before = F.col("part_number") < F.col("hole.number")
    return placed.where(is_within & is_before).select(
        *WINDOW, F.col("hole.number").alias("number"), "lo", "hi"
    )


def _early(tables: Tables) -> DataFrame:
    """Return the ranges delivered out of band, in a window or in earlier windows of the receiver:
    seqnos are the same in all of them."""
    oob = tables.messages.delivered.where(_is_oob())
    here = oob.select(*WINDOW, "number", "lo", "hi")
    of_one_stream = ["run", "sender", "receiver", "conn", "is_multicast"]
    later = tables.messages.windows.select(*of_one_stream, F.col("epoch").alias("later"))
    before = (
        oob.where(F.col("is_genuine"))
        .join(F.broadcast(later), of_one_stream, how="inner")
        .where(F.col("later") > F.col("epoch"))
        .withColumn("epoch", F.col("later"))
        .select(*WINDOW, "number", "lo", "hi")
    )
    return here.unionByName(before)


def _muted(tables: Tables) -> DataFrame:
    """Return the ranges that a member sent with DONT_LOOPBACK, in its windows on itself."""
    is_muted = F.col("flags").bitwiseAND(words.DONT_LOOPBACK) != 0
    is_to_self = F.col("is_multicast") | (F.col("sender") == F.col("dest"))
    own = tables.messages.windows.where(F.col("sender") == F.col("receiver")).select(
        *WINDOW, "is_multicast"
    )
    return (
        tables.messages.sent.where(is_muted & is_to_self)
        .select("run", "sender", "conn", "is_multicast", "lo", "hi")
        .join(F.broadcast(own), ["run", "sender", "conn", "is_multicast"], how="inner")
        .select(*WINDOW, F.lit(-1).cast("bigint").alias("number"), "lo", "hi")
    )
