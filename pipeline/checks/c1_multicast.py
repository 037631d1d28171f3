"""C1 for multicasts: requests of windows; without retransmission, silence, and windows that are
completed when they open, or by a question."""

from __future__ import annotations

from typing import Final

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F

from stormcast.pipeline import words
from stormcast.pipeline.checks.c1_requests import delivered_early
from stormcast.pipeline.ranges import with_last
from stormcast.pipeline.tables import Tables
from stormcast.pipeline.tables.kept import keep
from stormcast.pipeline.tables.messages import WINDOW
from stormcast.pipeline.tables.records import is_multicast
from stormcast.pipeline.violations import event, violations, with_name

GUARANTEE: Final = "C1"


def parts(tables: Tables) -> list[DataFrame]:
    """Find requests, announcements and alarms of multicast windows beyond what is promised."""
    occurring, found = tables.occurring, []
    if occurring.of_group("requested"):
        requests = tables.messages.receiving.where(
            F.col("is_multicast") & (F.col("kind") == "requested")
        )
        placed = keep(_with_reached(tables, requests))
        early = placed.where(F.col("lo") > F.col("reached"))
        found += [
            _delivered_before(tables, placed),
            delivered_early(tables, early, "multicast"),
            _never_sent(tables, placed),
            _unasked_for(tables, requests),
        ]
    if occurring.of_group("sync"):
        found.append(_announced(tables))
    if occurring.of_group("alarm"):
        alarms = keep(_alarms(tables))
        found += [_needless_alarms(tables, alarms), _hasty_alarms(tables, alarms)]
    return found


def _with_reached(tables: Tables, requests: DataFrame) -> DataFrame:
    """Add `reached`: the seqno up to which the window of a request had delivered in order, or given
    up, when the request was made."""
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
        tables.messages.receiving.where(F.col("is_multicast") & moves)
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
    """Find requests for messages that had been delivered (M-7)."""
    marks = tables.messages.delivered.where("is_multicast").select(
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
    """Find requests for messages that had not been sent (P-15)."""
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
    """Keep events while a member had surely switched retransmission off: not those at a moment of
    which nobody knows whether it came before the change."""
    was_silent = (F.col("silent_from") <= F.col("time") - words.EPSILON) & (
        F.col("silent_to") > F.col("time") + words.EPSILON
    )
    silences = tables.members.silences.select(
        "run",
        F.col("short_id").alias(member),
        F.col("surely_from").alias("silent_from"),
        F.col("surely_to").alias("silent_to"),
    )
    return rows.join(F.broadcast(silences), ["run", member], how="inner").where(was_silent)


def _unasked_for(tables: Tables, requests: DataFrame) -> DataFrame:
    """Find repairs where settings forbid them; to complete a window that just opened is none."""
    repairs = requests.where(F.col("stream") == words.REPAIR)
    return _forbidden(
        _in_silence(tables, repairs, "receiver"),
        F.col("receiver"),
        "a repair was requested, though nothing is repaired",
    )


def _announced(tables: Tables) -> DataFrame:
    to_all = tables.of("sync").where(is_multicast() & (F.col("peer") == words.GROUP))
    return _forbidden(
        _in_silence(tables, to_all, "short_id"),
        F.col("short_id"),
        "the highest seqno was announced, though nothing is repaired",
    )


def _alarms(tables: Tables) -> DataFrame:
    """Return the alarms about multicasts, each with the batch that it names first, and with the
    window that it is about: without those of members that the sender has excluded since, as it
    keeps nothing for them."""
    stream = ["run", "sender"]
    alarms = (
        tables.of("alarm")
        .where(is_multicast())
        .select(
            "run",
            F.col("peer").alias("sender"),
            F.col("short_id").alias("receiver"),
            "epoch",
            "number",
            "time",
            "lo",
            F.col("lo").alias("at"),
        )
    )
    windows = tables.messages.windows.where("is_multicast").select(
        *stream,
        "receiver",
        "epoch",
        F.col("opened").isNotNull().alias("is_opened"),
        F.coalesce("opened.time", F.lit(0.0)).alias("opened_at"),
        F.coalesce("opened.view", F.lit(0)).alias("opened_in"),
    )
    batches = tables.groups.multicasts.select(
        *stream,
        F.col("lo").alias("at"),
        F.col("number").alias("turn"),
        F.struct("number", "hi", "time").alias("batch"),
    )
    found = (
        with_last(alarms, batches, stream, "batch")
        .where(F.col("batch.hi") >= F.col("lo"))
        .join(windows, [*stream, "receiver", "epoch"], how="inner")
    )
    later = tables.groups.views.select(
        "run",
        F.col("short_id").alias("sender"),
        F.col("time").alias("later_time"),
        F.col("view").alias("later_view"),
        F.col("members").alias("later_members"),
    )
    is_excluded = (
        (found["run"] == later["run"])
        & (found["sender"] == later["sender"])
        & (F.col("opened_in") > 0)
        & (F.col("later_view") > F.col("opened_in"))
        & (F.col("later_time") <= found["time"] + words.EPSILON)
        & ~F.array_contains("later_members", found["receiver"])
    )
    return found.join(later, is_excluded, how="left_anti")


def _needless_alarms(tables: Tables, alarms: DataFrame) -> DataFrame:
    """Find alarms about multicasts that no network lost: they were sent in a view without the
    receiver, before its window opened. A window that begins below them has to be completed, without
    an alarm."""
    stream = ["run", "sender"]
    sent_in = tables.groups.sent_in.select(
        *stream,
        F.col("first").alias("at"),
        F.col("first").alias("turn"),
        F.struct("place", "last").alias("sent_in"),
    )
    views = tables.groups.views.select(
        "run", F.col("short_id").alias("sender"), "place", "view", "members"
    )
    early = alarms.where(F.col("batch.time") <= F.col("opened_at") + words.EPSILON)
    found = (
        with_last(early.withColumn("at", F.col("lo")), sent_in, stream, "sent_in")
        .withColumn("place", F.col("sent_in.place"))
        .join(views, [*stream, "place"], how="inner")
        .where(~F.array_contains("members", F.col("receiver")))
    )
    return violations(
        with_name(found, tables, "receiver", "name"),
        GUARANTEE,
        time="time",
        detail=F.format_string(
            "an alarm about multicast %d, which was sent in view %d, without %s: "
            "its window was never completed",
            "lo",
            "view",
            "name",
        ),
        witness=[event("sender", "batch.number"), event("receiver", "number")],
    )


def _hasty_alarms(tables: Tables, alarms: DataFrame) -> DataFrame:
    """Find alarms about multicasts that the receiver had to ask for, as its window was not
    complete: without retransmission only the answer to a question completes a window, and what was
    sent before the question must be there by then."""
    pair = ["run", "sender", "receiver"]
    questions = (
        tables.of("sync")
        .where(is_multicast() & (F.col("peer") != words.GROUP))
        .select(
            "run",
            F.col("peer").alias("sender"),
            F.col("short_id").alias("receiver"),
            F.coalesce("conn", F.lit(0)).alias("question"),
            F.coalesce("epoch", F.lit(0)).alias("epoch"),
            F.col("time").alias("asked"),
        )
    )
    # Traces of older versions do not say which questions are one.
    untold = questions.where(F.col("question") == 0).select(*pair).distinct()
    begun = questions.groupBy(*pair, "question").agg(F.min("asked").alias("begun"))
    completing = (
        questions.where(F.col("epoch") != 0)
        .groupBy(*pair, "epoch", "question")
        .agg(F.min("asked").alias("asked"))
        .join(begun, [*pair, "question"], how="inner")
        .select(*pair, "epoch", "asked", "begun")
    )
    silent = (
        _in_silence(tables, alarms.where("is_opened"), "receiver")
        .drop("silent_from", "silent_to")
        .join(F.broadcast(untold), pair, how="left_anti")
    )
    in_time = F.coalesce(F.col("asked") <= F.col("time") + words.EPSILON, F.lit(True))
    found = (
        silent.join(F.broadcast(completing), [*pair, "epoch"], how="left")
        .groupBy(*pair, "epoch", "number")
        .agg(
            F.first("time").alias("time"),
            F.first("lo").alias("lo"),
            F.first("batch").alias("batch"),
            F.max(F.when(in_time, F.col("begun"))).alias("begun"),
        )
        .where(F.col("begun").isNull() | (F.col("batch.time") < F.col("begun") - words.EPSILON))
    )
    named = with_name(found, tables, "receiver", "name")
    what = F.when(
        F.col("begun").isNull(),
        F.format_string(
            "an alarm about multicast %d, and %s never asked what there is", "lo", "name"
        ),
    ).otherwise(
        F.format_string(
            "an alarm about multicast %d, which was sent before %s asked at %.3fs what there is",
            "lo",
            "name",
            "begun",
        )
    )
    return violations(
        named,
        GUARANTEE,
        time="time",
        detail=F.concat(what, F.lit(": its window was never completed")),
        witness=[event("sender", "batch.number"), event("receiver", "number")],
    )


def _forbidden(found: DataFrame, member: Column, detail: str) -> DataFrame:
    return violations(
        found, GUARANTEE, time="time", detail=F.lit(detail), witness=[event(member, "number")]
    )
