"""Makes the tables of runs, and finds defects: a trace that is not whole, or that says what no
member can say, proves nothing.

Runs are sorted out in three steps, each of which may rely on the one before: files that cannot be
read, records that cannot be, and traces that are not whole. So no odd run spoils the others. If a
step crashes all the same, it is done for halves of the runs, until it is known for which.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from itertools import chain
from typing import Any, Final

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F

from stormcast.pipeline import impossible, words
from stormcast.pipeline.files import Defects, Files, read_all
from stormcast.pipeline.halves import Runs, in_halves
from stormcast.pipeline.side_by_side import side_by_side
from stormcast.pipeline.tables import Tables
from stormcast.pipeline.tables.kept import keep

_MEMBERS: Final = r"\A([0-9a-fA-F]{1,8}(,[0-9a-fA-F]{1,8})*)?\z"
"""The text of a view."""
TORN: Final = ": torn block"
"""The end of a note on a block that is not whole."""


def load(spark: SparkSession, files: Files) -> tuple[Tables, Defects]:
    """Return the tables of all runs whose records can be, and the defects of all runs that have
    some. The tables also hold runs that are not whole."""
    events, unreadable = read_all(spark, files)
    return sort_out(events, files, unreadable)


def sort_out(
    events: DataFrame, files: Files, unreadable: Mapping[str, Sequence[str]]
) -> tuple[Tables, Defects]:
    """As `load`, of events that are read already."""
    known = {run: list(reasons) for run, reasons in unreadable.items() if reasons}
    runs = tuple(run for run in files if run not in known)

    def sorted_out(some: Runs) -> tuple[Tables, Defects]:
        told = events if some == runs else events.where(F.col("run").isin(*some))
        return _sort_out(told, {run: files[run] for run in some})

    found, crashed = in_halves(events.sparkSession, runs, sorted_out)
    for _tables, reasons in found:
        known |= reasons
    known |= {run: [f"it cannot be loaded: {why}"] for run, why in crashed.items()}
    if len(found) == 1 and not crashed:
        return found[0][0], known
    return Tables(events.where(~F.col("run").isin(*known))), known


def _sort_out(events: DataFrame, files: Files) -> tuple[Tables, Defects]:
    """Return the tables of all runs whose records can be, and all defects."""
    known: Defects = {}
    odd = side_by_side(
        events.sparkSession,
        {
            "records": lambda: _odd_records(events),
            "settings": lambda: list(impossible.settings(events)),
            "rig": lambda: list(impossible.rig(events)),
        },
    )
    for run, reason in chain.from_iterable(odd.values()):
        known.setdefault(run, []).append(reason)
    tables = Tables(events.where(~F.col("run").isin(*known)) if known else events)
    rest = {run: traces for run, traces in files.items() if run not in known}
    return tables, known | defects(tables, rest)


def _odd_records(events: DataFrame) -> list[tuple[str, str]]:
    rows = impossible.records(events).orderBy("run", "detail").collect()
    return [(row.run, row.detail) for row in rows]


def defects(tables: Tables, files: Files) -> Defects:
    """Return the defects of each run, because of which its traces prove nothing; runs without
    defects are left out. Every record can be."""
    found: Defects = {}
    asked: dict[str, Callable[[], Collection[Any]]] = {
        "killed": lambda: _killed(tables),
        "heard of": lambda: _unheard_of(tables).collect(),
        "in events": lambda: _in_events(tables).collect(),
        "ended": lambda: _ended(tables),
        "peopled": lambda: _peopled(tables),
    }
    told = side_by_side(tables.events.sparkSession, asked)
    killed = told["killed"]
    for run, traces in files.items():
        for trace in traces:
            # A block is written before the frames of its turn leave: so no frame of a killed
            # member's last turn, whose block is torn, has left.
            is_last_gasp = (run, trace.label) in killed
            notes = [note for note in trace.notes if not (is_last_gasp and TORN in note)]
            found.setdefault(run, []).extend(f"{trace.label}: {note}" for note in notes)
            if not trace.rows:
                found[run].append(f"{trace.label}: empty trace")
    for row in told["in events"]:
        found.setdefault(row.run, []).append(row.detail)
    for run in files:
        found.setdefault(run, [])
        if run not in told["peopled"]:
            found[run].append("no member left a trace")
        if run not in told["ended"]:
            found[run].append("the rig recorded no end of the run")
    sound = [run for run, reasons in found.items() if not reasons]
    for row in told["heard of"]:
        if row.run in sound:
            found[row.run].append(f"{row.peer:x} {row.how} and left no trace")
    return {run: sorted(reasons) for run, reasons in found.items() if reasons}


def _killed(tables: Tables) -> set[tuple[str, str]]:
    killed = tables.members.incarnations.where(F.col("killed") < words.INFINITY).select(
        "run", "label"
    )
    return {(row.run, row.label) for row in killed.collect()}


def _ended(tables: Tables) -> set[str]:
    """Return the runs whose end was recorded."""
    ended = tables.rig.runs.where(F.col("end") < words.INFINITY)
    return {row.run for row in ended.collect()}


def _peopled(tables: Tables) -> set[str]:
    """Return the runs that have members."""
    return {row.run for row in tables.members.incarnations.select("run").distinct().collect()}


def _in_events(tables: Tables) -> DataFrame:
    """Find defects in the events themselves: one row per defect of a member."""
    named = keep(
        tables.events.groupBy("run", "member").agg(
            F.min("short_id").alias("short_id"),
            F.max("short_id").alias("other"),
            F.min("number").alias("first"),
            F.max("number").alias("last"),
            F.count(F.lit(1)).alias("rows"),
        )
    )
    foreign = named.where(F.col("short_id") != F.col("other"))
    lost = named.where((F.col("first") != 0) | (F.col("rows") != F.col("last") + 1))
    twice = named.groupBy("run", "short_id").agg(
        F.sort_array(F.collect_list("member")).alias("all")
    )
    members = tables.members.incarnations
    # Spark reads a word that is no hexadecimal number in part, or as null: so check it here.
    text = F.coalesce("text", F.lit(""))
    is_no_view = (F.col("kind") == "view") & (F.col("peer") != 0) & ~text.rlike(_MEMBERS)
    is_cut_short = F.col("kind") == "truncated"
    parts = (
        foreign.select("run", _says("%s: block of another member", "member")),
        lost.select("run", _says("%s: events are missing", "member")),
        twice.where(F.size("all") > 1).select(
            "run", _says("%s: the same member as %s", F.get("all", 1), F.get("all", 0))
        ),
        members.where(~F.col("was_told")).select(
            "run", _says("%s: does not begin with its start", "label")
        ),
        tables.events.where(is_cut_short | is_no_view).select(
            "run",
            F.when(is_cut_short, F.format_string("%s: truncated: %s", "member", text))
            .otherwise(
                F.format_string(
                    "%s: %s is no list of members", "member", F.substring("text", 1, 20)
                )
            )
            .alias("detail"),
        ),
        _nonsense(tables.rig.fault_events, "do", "phase"),
        _nonsense(tables.rig.probes, "do", "bit"),
        _nonsense(tables.rig.exits.withColumnRenamed("name", "id"), "ordered"),
    )
    found = parts[0]
    for part in parts[1:]:
        found = found.unionByName(part)
    return found


def _nonsense(told: DataFrame, *fields: str) -> DataFrame:
    """Find records of the rig without an id, or without one of these fields."""
    lacks = F.col("id").isNull()
    for field in fields:
        lacks = lacks | F.col(field).isNull()
    return told.where(lacks).select(
        "run", _says("rig: '%s' does not say what it should", F.substring("text", 1, 40))
    )


def _says(text: str, *values: str | Column) -> Column:
    return F.format_string(text, *values).alias("detail")


def _unheard_of(tables: Tables) -> DataFrame:
    """Find members that were heard, or were in a view, and so must have left a trace, but did not:
    run, peer, how."""
    is_sign = F.col("kind") == "delivered"
    is_ack = (F.col("kind") == "purged") & ~F.col("protocol").isin(*words.MULTICAST)
    heard = tables.of("delivered", "purged").where(
        (is_sign | is_ack) & (F.col("peer") != words.GROUP)
    )
    seen = tables.groups.views.withColumn("peer", F.explode("members"))
    known = tables.members.incarnations.select("run", F.col("short_id").alias("peer"))
    return (
        heard.select("run", "peer", F.lit("was heard").alias("how"))
        .unionByName(seen.select("run", "peer", F.lit("was in a view").alias("how")))
        .join(F.broadcast(known), ["run", "peer"], how="left_anti")
        .groupBy("run", "peer")
        .agg(F.min("how").alias("how"))
    )
