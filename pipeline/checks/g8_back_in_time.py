"""G8, back in time: what a scenario expects had happened in time, and no run stands still.

The times of a scenario count from the begin of its run.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Final

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from stormcast.pipeline import words
from stormcast.pipeline.questions import Arrivals, Expectations, OneView
from stormcast.pipeline.tables import Tables, arrivals
from stormcast.pipeline.tables.arrivals import PAIR
from stormcast.pipeline.tables.kept import given, keep
from stormcast.pipeline.violations import event, plain, union, violations

GUARANTEE: Final = "G8"
STANDSTILL_SECONDS: Final = 60.0
"""Without a delivery for so long, messages that wait are stuck."""
LAST_WORDS_SECONDS: Final = 0.4
"""Members write their gauges within so many seconds before the end."""
_NANOSECOND: Final = 1e-9
"""Times of traces are exact to it; their differences are not."""

_ARRIVALS: Final = "run STRING, by DOUBLE, source STRING, dest STRING, wanted BIGINT"
_VIEWS: Final = "run STRING, nth INT, by DOUBLE, seen_by ARRAY<STRING>, named ARRAY<STRING>"


def back_in_time(tables: Tables, expected: Mapping[str, Expectations]) -> DataFrame:
    """Find what was expected and had not happened in time, and standstills, by run."""
    session = tables.events.sparkSession
    found = [_standstills(tables, expected)]
    counts = [row for run, one in expected.items() for row in _counts(run, one)]
    if counts:
        found.append(_late(tables, given(session, counts, _ARRIVALS)))
    views = [row for run, one in expected.items() for row in _views(run, one)]
    if views:
        found.append(_apart(tables, given(session, views, _VIEWS)))
    return union(*found)


def _counts(run: str, expected: Expectations) -> Iterator[tuple[str, float, str, str, int | None]]:
    for one in expected.awaited:
        if isinstance(one, Arrivals):
            for source in one.sources:
                for dest in one.dests:
                    yield run, one.by, source, dest, one.count


def _views(
    run: str, expected: Expectations
) -> Iterator[tuple[str, int, float | None, list[str] | None, list[str] | None]]:
    views = [one for one in expected.awaited if isinstance(one, OneView)]
    for nth, one in enumerate(views):
        yield run, nth, one.by, list(one.seen_by), list(one.members)
    if expected.asks_one_group:
        yield run, -1, None, None, None


# -- Messages --------------------------------------------------------------------------------------


def _late(tables: Tables, wanted: DataFrame) -> DataFrame:
    """Find pairs of which too few messages had arrived by the time that the scenario names."""
    steps = arrivals.steps(tables, F.broadcast(wanted.select("run").distinct()))
    owed = arrivals.owed(steps)
    begin = tables.rig.runs.select("run", "begin")
    asked = keep(
        wanted.join(F.broadcast(begin), "run")
        .join(owed, [*PAIR], how="left")
        # A member is expected to hear of itself only where it sends to itself, and all that was
        # sent only where something was.
        .where(
            F.col("owed").isNotNull()
            | (F.col("wanted").isNotNull() & (F.col("source") != F.col("dest")))
        )
        .withColumn("is_of_all", F.col("wanted").isNull())
        .withColumn("wanted", F.coalesce("wanted", "owed"))
    )
    key = [*PAIR, "by", "begin", "wanted", "is_of_all"]
    arrived = steps.where(~F.col("is_sending")).select(
        *PAIR, "time", "number", "receiver", "arrived", "met"
    )
    is_in_time = F.col("time") - F.col("begin") <= F.col("by") + _NANOSECOND
    last = F.max(F.when(is_in_time, F.struct("time", "number", "receiver"))).alias("last")
    # Of all that was sent nothing else stands in for what had to arrive.
    counts = F.when(F.col("is_of_all"), F.col("met")).otherwise(F.col("arrived"))
    had = (
        asked.join(arrived, [*PAIR], how="left")
        .groupBy(*key)
        .agg(F.coalesce(F.sum(F.when(is_in_time, counts)), F.lit(0)).alias("had"), last)
        .where(F.col("had") < F.col("wanted"))
    )
    detail = F.concat(
        F.format_string("%s had %d of %d from %s by t=", "dest", "had", "wanted", "source"),
        plain("by"),
    )
    return violations(
        had,
        GUARANTEE,
        time=F.col("begin") + F.col("by"),
        detail=detail,
        witness=[event("last.receiver", "last.number")],
    )


# -- Views -----------------------------------------------------------------------------------------


def _apart(tables: Tables, asked: DataFrame) -> DataFrame:
    """Find times at which not all who are named held one view of exactly the named members."""
    forms = tables.groups.views.select("run").distinct()
    runs = tables.rig.runs.select("run", "begin", "end")
    at = F.when(F.col("by").isNull(), F.col("end")).otherwise(F.col("begin") + F.col("by"))
    asked = (
        asked.join(F.broadcast(runs), "run")
        # Where nobody forms a group, nobody must be one at the end.
        .join(F.broadcast(forms.withColumn("forms", F.lit(True))), "run", how="left")
        .where(F.col("by").isNotNull() | F.col("forms"))
        .withColumn("at", at)
        .drop("forms", "begin", "end")
    )
    key = ["run", "nth", "by", "at", "seen_by", "named"]
    is_alive = (F.col("started") <= F.col("at") + _NANOSECOND) & (
        F.col("at") + _NANOSECOND < F.col("ended")
    )
    living = keep(
        tables.members.incarnations.select("run", "short_id", "label", "name", "started", "ended")
        .join(F.broadcast(asked), "run")
        .where(is_alive)
    )
    # Who is expected to hold the view, and whom it must have.
    holders = living.where(F.col("seen_by").isNull() | F.array_contains("seen_by", F.col("name")))
    wanted = (
        living.where(F.col("named").isNull() | F.array_contains("named", F.col("name")))
        .groupBy("run", "nth")
        .agg(
            F.sort_array(F.collect_set("short_id")).alias("wanted"),
            F.sort_array(F.collect_set("label")).alias("labels"),
        )
    )
    views = tables.groups.views.select(
        "run", "short_id", "place", "number", "time", "view", "creator", "members"
    )
    held = (
        holders.select("run", "short_id", "label", "nth", "at")
        .join(views, ["run", "short_id"], how="left")
        .where(F.col("time").isNull() | (F.col("time") <= F.col("at") + _NANOSECOND))
        .groupBy("run", "nth", "short_id", "label")
        .agg(F.max_by(F.struct("view", "creator", "members", "number"), "place").alias("it"))
    )
    # A holder all of whose views are later holds none.
    seen = (
        holders.select("run", "nth", "short_id")
        .join(held, ["run", "nth", "short_id"], how="left")
        .groupBy("run", "nth")
        .agg(
            F.count(F.lit(1)).alias("holders"),
            F.count("it.view").alias("with_view"),
            F.count_distinct("it.view", "it.creator").alias("ids"),
            F.collect_set(F.sort_array("it.members")).alias("lists"),
            F.max(F.struct(F.col("it.number").alias("number"), "short_id")).alias("last"),
        )
    )
    judged = asked.join(seen, ["run", "nth"], how="left").join(wanted, ["run", "nth"], how="left")
    asked_of = F.when(F.col("seen_by").isNull(), F.col("holders")).otherwise(F.size("seen_by"))
    named = F.when(F.col("named").isNull(), F.size("wanted")).otherwise(F.size("named"))
    is_one = (
        (F.coalesce("with_view", F.lit(0)) == asked_of)
        & (F.coalesce("ids", F.lit(0)) <= 1)
        & (F.size(F.coalesce("wanted", F.array().cast("array<bigint>"))) == named)
        & F.forall(
            F.coalesce("lists", F.array().cast("array<array<bigint>>")),
            lambda one: one == F.col("wanted"),
        )
    )
    when = F.when(F.col("by").isNull(), "at the end").otherwise(
        F.concat(F.lit("at t="), plain("by"))
    )
    whose = F.concat_ws(" ", F.coalesce(F.sort_array("named"), "labels"))
    return violations(
        judged.where(~F.coalesce(is_one, F.lit(False)) & _is_asked_of_anybody()).select(
            *key, "labels", "last"
        ),
        GUARANTEE,
        time="at",
        detail=F.concat(F.lit("not one view of "), whose, F.lit(" "), when),
        witness=[event("last.short_id", "last.number")],
    )


def _is_asked_of_anybody() -> Column:
    """At the end nothing is asked where nobody lives."""
    return F.col("seen_by").isNotNull() | F.col("holders").isNotNull()


# -- Standstills -----------------------------------------------------------------------------------


def _standstills(tables: Tables, expected: Mapping[str, Expectations]) -> DataFrame:
    """Find runs at whose end a living member holds messages for its group, or for another living
    member, though nothing was delivered in the last minute."""
    ends = tables.rig.runs.where(
        F.col("run").isin(*expected) & (F.col("end") < words.INFINITY)
    ).select("run", "begin", "end")
    living = tables.members.living()
    dests = living.select("run", F.col("short_id").alias("peer")).unionByName(
        tables.rig.runs.select("run", F.lit(words.GROUP).cast("bigint").alias("peer"))
    )
    waiting = (
        tables.of("gauge")
        .where((F.col("stream") == words.OUTBOX_BYTES) & (F.col("lo") > 0))
        .join(F.broadcast(ends), "run")
        .where(F.col("time") >= F.col("end") - LAST_WORDS_SECONDS)
        .join(F.broadcast(living), ["run", "short_id"], how="left_semi")
        .join(F.broadcast(dests), ["run", "peer"], how="left_semi")
        .groupBy("run", "begin", "end")
        .agg(F.min(F.struct("short_id", "number")).alias("gauge"))
    )
    names = tables.members.incarnations.select("run", F.col("short_id").alias("peer"))
    last = (
        tables.of("delivered")
        .join(F.broadcast(names), ["run", "peer"], how="left_semi")
        .groupBy("run")
        .agg(F.max_by(F.struct("time", "short_id", "number"), "time").alias("last"))
    )
    since = F.col("end") - F.coalesce("last.time", "begin")
    still = waiting.join(last, "run", how="left").withColumn("since", since)
    return violations(
        still.where(F.col("since") > STANDSTILL_SECONDS),
        GUARANTEE,
        time="end",
        detail=F.format_string("messages wait, and none was delivered in the last %.1fs", "since"),
        witness=[event("last.short_id", "last.number"), event("gauge.short_id", "gauge.number")],
    )
