"""C1, ageing: messages that nobody answers are not repeated for ever."""

from __future__ import annotations

from typing import Final

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F

from stormcast.pipeline import words
from stormcast.pipeline.promises import of_unicast, unhindered, with_promises
from stormcast.pipeline.ranges import with_last
from stormcast.pipeline.tables import Tables
from stormcast.pipeline.tables.kept import keep
from stormcast.pipeline.tables.messages import NUMBERING
from stormcast.pipeline.violations import event, plain, violations

GUARANTEE: Final = "C1"


def parts(tables: Tables) -> list[DataFrame]:
    """Find messages resent to a member that is in no view, and did not answer for longer than
    connections age."""
    if not tables.occurring.any("retransmitted"):
        return []
    suspects = keep(_outside_views(tables, _to_the_gone(tables)))
    late = suspects.join(_unanswered_since(tables, suspects), ["run", "sender", "number"]).where(
        F.col("time") > F.col("since") + _allowed()
    )
    found = unhindered(late, tables, "sender", F.col("gone"), F.col("time"))
    return [
        violations(
            found,
            GUARANTEE,
            time="time",
            detail=F.format_string(
                "a message was resent after %.3fs in which nobody could answer: connections to "
                "nobody age in %ss",
                F.col("time") - F.col("since"),
                plain(of_unicast("age_within")),
            ),
            witness=[event("sender", "number")],
        )
    ]


def _allowed() -> Column:
    return of_unicast("age_within") + of_unicast("quiet_within") + F.col("long_travel")


def _to_the_gone(tables: Tables) -> DataFrame:
    """Return what was resent so long after its receiver was gone (`gone`)."""
    ends = tables.members.incarnations.select(
        "run", F.col("short_id").alias("dest"), F.col("ended").alias("end")
    )
    resent = tables.messages.sending.where(F.col("kind") == "retransmitted").select(
        *NUMBERING, "number", "time"
    )
    travels = tables.groups.calm.select("run", "long_travel")
    # A member without a trace never existed.
    gone = F.greatest(F.coalesce("end", F.lit(0.0)), F.lit(0.0))
    return (
        with_promises(resent.join(F.broadcast(ends), ["run", "dest"], how="left"), tables, "sender")
        .join(F.broadcast(travels), "run", how="inner")
        .withColumn("gone", gone)
        .where(F.col("time") > F.col("gone") + _allowed())
    )


def _outside_views(tables: Tables, resent: DataFrame) -> DataFrame:
    """Keep what was resent to members that were not in the sender's view, also where that was
    handed in. In the turn of a view that drops a member its connection is still there."""
    words_of = F.split(F.lower(F.coalesce("text", F.lit(""))), ",")
    shorts = F.transform(words_of, lambda word: F.conv(word, 16, 10).cast("bigint"))
    marks = tables.of("view").select(
        "run",
        F.col("short_id").alias("sender"),
        F.col("number").alias("at"),
        F.col("number").alias("turn"),
        F.struct("time", shorts.alias("members")).alias("held"),
    )
    is_in_view = F.coalesce(F.array_contains("held.members", F.col("dest")), F.lit(False))
    is_of_turn = F.coalesce(F.col("time") <= F.col("held.time") + words.EPSILON, F.lit(False))
    points = resent.withColumn("at", F.col("number"))
    return with_last(points, marks, ["run", "sender"], "held").where(~is_in_view & ~is_of_turn)


def _unanswered_since(tables: Tables, suspects: DataFrame) -> DataFrame:
    """Return since when nobody answered what was resent (run, sender, number, since): the latest of
    the end of its receiver, the last answer that purged anything, and the first sending of the
    oldest batch that was not acked then."""
    upto = Window.partitionBy(*NUMBERING).orderBy("number")
    reached = F.max("hi").over(upto.rowsBetween(Window.unboundedPreceding, Window.currentRow))
    purges = (
        tables.messages.sending.where(F.col("kind") == "purged")
        .withColumn("reached", reached)
        .select(
            *NUMBERING,
            F.col("time").alias("at"),
            F.col("number").alias("turn"),
            F.struct("time", "reached").alias("answer"),
        )
    )
    points = suspects.select(*NUMBERING, "number", "gone", F.col("time").alias("at"))
    answered = with_last(points, purges, NUMBERING, "answer")
    sent = tables.messages.sent.select(*NUMBERING, "hi", F.col("time").alias("sent_at"))
    is_unacked = F.col("hi") > F.coalesce("answer.reached", F.lit(0))
    return (
        answered.join(sent, [*NUMBERING])
        .where(is_unacked)
        .groupBy("run", "sender", "number")
        .agg(
            F.max(F.greatest("gone", F.coalesce("answer.time", F.lit(0.0)))).alias("upto"),
            F.min("sent_at").alias("oldest"),
        )
        .select("run", "sender", "number", F.greatest("upto", "oldest").alias("since"))
    )
