"""C1 for multicasts: what windows may ask for, and silence where nothing is repaired."""

from __future__ import annotations

from typing import Final

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F

from pipeline import words
from pipeline.ranges import with_last
from pipeline.tables import WINDOW, Tables, is_multicast
from pipeline.violations import event, violations

GUARANTEE: Final = "C1"


def parts(tables: Tables) -> list[DataFrame]:
    """Requests and announcements of multicast windows beyond what is promised."""
    requests = tables.receiving.where(F.col("is_multicast") & (F.col("kind") == "requested"))
    placed = tables.keep(_with_reached(tables, requests))
    return [
        _delivered_before(tables, placed),
        _never_sent(tables, placed),
        _unasked_for(tables, requests),
        _announced(tables),
    ]


def _with_reached(tables: Tables, requests: DataFrame) -> DataFrame:
    """Requests with what their window had delivered in order, or given up, when they were made."""
    is_in_order = F.col("flags").bitwiseAND(words.OOB) == 0
    is_open = (F.col("kind") == "conn") & (F.col("stream") == words.RECEIVER_OPEN)
    reached = F.when(is_open, F.col("lo")).otherwise(F.col("hi"))
    moves = ((F.col("kind") == "delivered") & is_in_order) | (F.col("kind") == "skipped") | is_open
    upto = (
        Window.partitionBy(*WINDOW)
        .orderBy("number")
        .rowsBetween(Window.unboundedPreceding, Window.currentRow)
    )
    marks = (
        tables.receiving.where(F.col("is_multicast") & moves)
        .join(requests.select(*WINDOW).distinct(), [*WINDOW], how="left_semi")
        .select(
            *WINDOW,
            F.col("number").alias("at"),
            F.col("number").alias("turn"),
            F.struct(F.max(reached).over(upto).alias("hi")).alias("reached"),
        )
    )
    placed = with_last(requests.withColumn("at", F.col("number")), marks, WINDOW, "reached")
    return placed.withColumn("reached", F.coalesce("reached.hi", F.lit(0)))


def _delivered_before(tables: Tables, requests: DataFrame) -> DataFrame:
    """Requests for what was delivered (M-7)."""
    marks = tables.delivered.where("is_multicast").select(
        *WINDOW,
        F.col("lo").alias("at"),
        (-F.col("number")).alias("turn"),
        F.struct("number", "hi").alias("had"),
    )
    late = requests.where(F.col("lo") <= F.col("reached")).withColumn("at", F.col("lo"))
    found = with_last(late, marks, WINDOW, "had")
    had = F.when(F.col("had.hi") >= F.col("lo"), F.col("had.number"))
    return violations(
        found,
        GUARANTEE,
        time="time",
        detail=F.format_string(
            "multicast %d was requested after %d was delivered", "lo", "reached"
        ),
        witness=[event("receiver", had), event("receiver", "number")],
    )


def _never_sent(tables: Tables, requests: DataFrame) -> DataFrame:
    """Requests for what was not sent (P-15)."""
    marks = tables.groups.multicasts.select(
        "run",
        "sender",
        F.col("time").alias("at"),
        F.col("number").alias("turn"),
        F.struct("hi").alias("sent"),
    )
    ahead = requests.where(F.col("lo") > F.col("reached")).withColumn(
        "at", F.col("time") + words.EPSILON
    )
    found = with_last(ahead, marks, ["run", "sender"], "sent").withColumn(
        "high", F.coalesce("sent.hi", F.lit(0))
    )
    return violations(
        found.where(F.col("hi") > F.col("high")),
        GUARANTEE,
        time="time",
        detail=F.format_string(
            "multicast %d was requested, and %d was the last one sent", "hi", "high"
        ),
        witness=[event("receiver", "number")],
    )


def _in_silence(tables: Tables, rows: DataFrame, member: str) -> DataFrame:
    """What was done while a member had switched repair off, and not just in this moment."""
    was_silent = (F.col("silent_from") <= F.col("time") - words.EPSILON) & (
        F.col("silent_to") > F.col("time") + words.EPSILON
    )
    silences = tables.silences.select(
        "run",
        F.col("short_id").alias(member),
        F.col("start").alias("silent_from"),
        F.col("end").alias("silent_to"),
    )
    return rows.join(F.broadcast(silences), ["run", member], how="inner").where(was_silent)


def _unasked_for(tables: Tables, requests: DataFrame) -> DataFrame:
    """Repairs where the settings forbid them; completing a window that just opened is none."""
    repairs = requests.where(F.col("stream") == words.REPAIR)
    return _forbidden(
        _in_silence(tables, repairs, "receiver"),
        F.col("receiver"),
        "a repair was requested, though nothing is repaired",
    )


def _announced(tables: Tables) -> DataFrame:
    to_all = tables.events.where(
        (F.col("kind") == "sync") & is_multicast() & (F.col("peer") == words.GROUP)
    )
    return _forbidden(
        _in_silence(tables, to_all, "short_id"),
        F.col("short_id"),
        "the highest seqno was announced, though nothing is repaired",
    )


def _forbidden(found: DataFrame, member: Column, detail: str) -> DataFrame:
    return violations(
        found, GUARANTEE, time="time", detail=F.lit(detail), witness=[event(member, "number")]
    )
