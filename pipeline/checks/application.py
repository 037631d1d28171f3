"""Messages between applications: all that were offered are compared with those handed over (G1 to
G4).

Traces of version 1 have events of neither end, and are not judged here.
"""

from __future__ import annotations

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from stormcast.pipeline import words
from stormcast.pipeline.tables import Tables, hand_over
from stormcast.pipeline.tables.kept import keep
from stormcast.pipeline.tables.messages import NUMBERING
from stormcast.pipeline.tables.outgoing import DEST, cuts, given_up, told_by_senders
from stormcast.pipeline.tables.records import is_fragment
from stormcast.pipeline.violations import event, union, violations, with_name


def not_sent(tables: Tables, guarantee: str) -> DataFrame:
    """Find messages that were accepted, and neither left nor were reported as given up."""
    skipped = violations(
        tables.application.outgoing.where(F.col("first") > F.col("settled") + 1),
        guarantee,
        time="time",
        detail=F.format_string(
            "messages %d..%d were accepted, never left, and nobody was told",
            F.col("settled") + 1,
            F.col("first") - 1,
        ),
        witness=[event("sender", "number")],
    )
    return union(skipped, _still_waiting(tables, guarantee))


def _still_waiting(tables: Tables, guarantee: str) -> DataFrame:
    """Find messages that wait in an outbox at the end of a run, though their destination lives."""
    offered = (
        told_by_senders(tables.application.both_ends, "offered")
        .groupBy(*DEST)
        .agg(F.max_by(F.struct("number", "time", "hi"), "number").alias("offered"))
    )
    reached = tables.application.outgoing.groupBy(*DEST).agg(F.max("upto").alias("upto"))
    waiting = (
        offered.join(reached, [*DEST], how="left")
        .withColumn("waiting", F.col("offered.hi") - F.coalesce("upto", F.lit(0)))
        .where(F.col("waiting") > 0)
    )
    return violations(
        with_name(_should_leave(tables, waiting), tables, "dest", "name"),
        guarantee,
        time="end",
        detail=F.format_string(
            "%d messages to %s were accepted and wait in the outbox at the end", "waiting", _dest()
        ),
        witness=[event("sender", "offered.number")],
    )


def _should_leave(tables: Tables, rows: DataFrame) -> DataFrame:
    """Keep what a sender that answers for it has for a living member, or for a group."""
    living = tables.members.living()
    senders = tables.members.answering("sender")
    dests = living.select("run", F.col("short_id").alias("dest"), F.lit(True).alias("dest_lives"))
    grouped = tables.groups.views.select(
        "run", F.col("short_id").alias("sender"), F.lit(True).alias("has_view")
    ).distinct()
    groups = tables.groups.views.select("run", F.lit(True).alias("has_group")).distinct()
    no = F.lit(False)
    has_somewhere = F.when(
        F.col("dest") == words.GROUP,
        F.coalesce("has_view", no) | ~F.coalesce("has_group", no),
    ).otherwise(F.coalesce("dest_lives", no))
    return (
        rows.join(F.broadcast(senders), ["run", "sender"], how="left_semi")
        .join(F.broadcast(dests), ["run", "dest"], how="left")
        .join(F.broadcast(grouped), ["run", "sender"], how="left")
        .join(F.broadcast(groups), "run", how="left")
        .join(F.broadcast(tables.rig.runs.select("run", "end")), "run", how="inner")
        .where(has_somewhere)
    )


def split(tables: Tables, guarantee: str) -> DataFrame:
    """Find messages whose pieces left in such a way that nobody can join them, as on two
    connections, and that were not reported as given up."""
    both_ends = tables.application.both_ends
    numbered = F.col("protocol").isNotNull()
    sent = told_by_senders(both_ends, "sent").where(is_fragment() & numbered)
    whole = hand_over.whole(both_ends).select("run", F.col("source").alias("sender"), "dest", "cut")
    messages = (
        sent.groupBy(*DEST, "trim")
        .agg(F.count(F.lit(1)).alias("pieces"), F.max("number").alias("last"))
        .join(cuts(both_ends), [*DEST, "trim"], how="inner")
        .where(F.col("pieces") >= F.col("cut.count"))
        .join(whole, [*DEST, "cut"], how="left_anti")
    )
    lost = keep(_should_leave(tables, messages))
    key = [*DEST, "trim"]
    by_number = lost.join(given_up(both_ends).select(*DEST, "lo", "upto"), [*DEST]).where(
        F.col("cut.lo").between(F.col("lo"), F.col("upto"))
    )
    told = tables.application.given_up.withColumnsRenamed({"lo": "first", "hi": "upto"})
    by_seqno = (
        lost.select(*key)
        .join(sent.select(*key, "number"), key)
        .join(tables.messages.sent.select(*NUMBERING, "number", "lo"), [*DEST, "number"])
        .join(told, [*NUMBERING])
        .where(F.col("lo").between(F.col("first"), F.col("upto")))
    )
    silent = lost.join(
        by_number.select(*key).unionByName(by_seqno.select(*key)), key, how="left_anti"
    )
    return violations(
        with_name(silent, tables, "dest", "name"),
        guarantee,
        time="cut.time",
        detail=F.format_string(
            "the pieces of message %d to %s did not leave one after the other on one connection: "
            "nobody can join them",
            "cut.lo",
            _dest(),
        ),
        witness=[event("sender", "cut.number"), event("sender", "last")],
    )


def sent_again(tables: Tables, guarantee: str) -> DataFrame:
    """Find messages that left twice, under two seqnos."""
    again = tables.application.outgoing.where(F.col("first") <= F.col("reached"))
    return violations(
        with_name(again, tables, "dest", "name"),
        guarantee,
        time="time",
        detail=F.format_string("message %d to %s left a second time", "first", _dest()),
        witness=[event("sender", "number")],
    )


def _dest() -> Column:
    return F.when(F.col("dest") == words.GROUP, "the group").otherwise(F.col("name"))


def handed_over(tables: Tables, guarantee: str) -> DataFrame:
    """Find violations of one guarantee between windows and applications."""
    return violations(
        tables.application.hand_over.where(F.col("guarantee") == guarantee),
        guarantee,
        time="time",
        detail=F.col("detail"),
        witness=[event("other", "before"), event("receiver", "number")],
    )
