"""C1, requests for credits: they name a living connection, and end when all is delivered."""

from __future__ import annotations

from typing import Final

from pyspark.sql import DataFrame, Window
from pyspark.sql import functions as F

from stormcast.pipeline import words
from stormcast.pipeline.promises import of_protocol, with_promises
from stormcast.pipeline.tables import Tables
from stormcast.pipeline.violations import event, plain, violations

GUARANTEE: Final = "C1"


def parts(tables: Tables) -> list[DataFrame]:
    """Find requests for credits that can never be answered, and needless repetitions of them."""
    if not tables.occurring.any("credit"):
        return []
    asked = tables.of("credit").where(F.col("stream") == words.ASKED)
    return [_of_the_past(tables, asked), _unanswered(tables, asked)]


def _of_the_past(tables: Tables, asked: DataFrame) -> DataFrame:
    """Find requests about a seqno of a connection that the requester itself had ended."""
    gone = tables.messages.removed_entries.select(
        "run",
        F.col("sender").alias("short_id"),
        F.col("dest").alias("peer"),
        "conn",
        F.col("number").alias("gone"),
    )
    about_one = asked.where((F.col("conn") != 0) & (F.col("lo") > 0))
    found = about_one.join(gone, ["run", "short_id", "peer", "conn"], how="inner")
    return violations(
        found.where(F.col("gone") < F.col("number")),
        GUARANTEE,
        time="time",
        detail=F.format_string(
            "credits were asked for seqno %d of a connection that had ended", "lo"
        ),
        witness=[event("short_id", "gone"), event("short_id", "number")],
    )


def _unanswered(tables: Tables, asked: DataFrame) -> DataFrame:
    """Find requests that are repeated when the run is quiet and all that was sent was acked."""
    same = Window.partitionBy("run", "short_id", "peer", "protocol", "bytes").orderBy("number")
    late = (
        asked.where(F.col("count") == 0)
        .join(F.broadcast(tables.groups.calm), "run", how="inner")
        .where(F.col("time") > F.col("calm") + words.EPSILON)
        .withColumn("begun", F.first(F.struct("number", "time")).over(same))
        .withColumn("waited", F.col("time") - F.col("begun.time"))
    )
    promised = with_promises(late, tables, "short_id").withColumn(
        "within", of_protocol("ask_within")
    )
    longest = 2 * F.col("within") + F.col("long_travel")
    found = promised.where(F.col("waited") > longest + words.EPSILON)
    for side in ("short_id", "peer"):
        found = _unhindered(tables, found, side)
    return violations(
        found,
        GUARANTEE,
        time="time",
        detail=F.format_string(
            "credits were asked for during %.3fs after all that was sent was acked: "
            "one question in %ss is enough",
            "waited",
            plain("within"),
        ),
        witness=[event("short_id", "begun.number"), event("short_id", "number")],
    )


def _unhindered(tables: Tables, found: DataFrame, side: str) -> DataFrame:
    """Keep requests during which the member of `side` was neither paused, stalled nor gone."""
    key = ["run", "short_id", "number"]
    ends = tables.members.incarnations.select(
        "run", F.col("short_id").alias(side), F.col("ended").alias("gone_at")
    )
    holds = tables.members.holds.select(
        "run",
        F.col("short_id").alias(side),
        F.col("start").alias("hold_start"),
        F.col("end").alias("hold_end"),
    )
    lived = (
        found.join(F.broadcast(ends), ["run", side], how="inner")
        .where(F.col("gone_at") > F.col("time"))
        .drop("gone_at")
    )
    hindered = (
        lived.join(F.broadcast(holds), ["run", side], how="inner")
        .where((F.col("hold_start") <= F.col("time")) & (F.col("hold_end") >= F.col("begun.time")))
        .select(*key)
    )
    return lived.join(hindered, key, how="left_anti")
