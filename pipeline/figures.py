"""Counts on Spark the few numbers that sum up each run."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from pyspark.sql import DataFrame, Row
from pyspark.sql import functions as F

from stormcast.pipeline import words
from stormcast.pipeline.judgement import Death, Figures, Probe
from stormcast.pipeline.side_by_side import side_by_side
from stormcast.pipeline.tables import Tables, arrivals


def count_figures(tables: Tables) -> dict[str, Figures]:
    """Return the figures of each run that has an event."""
    # The host's clock did not begin with the run: so use the phases that the rig recorded.
    begin, end = (
        F.when((F.col("kind") == "phase") & (F.col("text") == word), F.col("time"))
        for word in ("begin", "end")
    )
    counted = (
        tables.events.groupBy("run")
        .agg(
            F.count(F.lit(1)).alias("events"),
            F.max(F.col("kind") == "sent").alias("has_sent"),
            F.coalesce(F.min(begin), F.min("time")).alias("begin"),
            F.coalesce(F.max(end), F.max("time")).alias("end"),
        )
        .join(arrivals.counted(tables), "run", how="left")
        .na.fill(0, ["messages", "delivered"])
    )
    asked = {
        "counted": counted.collect,
        "probes": lambda: tables.rig.probes.where(F.col("id").isNotNull()).collect(),
        "uncounted": lambda: _uncounted(tables).orderBy("number").collect(),
        "deaths": lambda: tables.rig.deaths.orderBy("time", "number").collect(),
    }
    rows = side_by_side(tables.events.sparkSession, asked)
    bites: dict[str, dict[str, Probe]] = {}
    for row in rows["probes"]:
        bites.setdefault(row.run, {})[row.id] = Probe(row.do, row.bit or 0)
    uncounted: dict[str, dict[str, str]] = {}
    for row in rows["uncounted"]:
        uncounted.setdefault(row.run, {}).setdefault(row.id, row.do)
    deaths: dict[str, list[Row]] = {}
    for row in rows["deaths"]:
        deaths.setdefault(row.run, []).append(row)
    return {
        row.run: replace(
            _figures_of(row, bites.get(row.run, {}), deaths.get(row.run, ())),
            uncounted=uncounted.get(row.run, {}),
        )
        for row in rows["counted"]
    }


def _uncounted(tables: Tables) -> DataFrame:
    """Find the faults of which no event says how often they bit: run, number, id, do. Those that
    began before the run are of its past."""
    begins = (
        tables.rig.phases.where(F.col("phase") == "begin")
        .groupBy("run")
        .agg(F.min("time").alias("begin"))
    )
    is_of_run = F.col("begin").isNull() | (F.col("time") >= F.col("begin"))
    is_slow_network = (F.col("id") == words.NETWORK) & (F.col("do") == "delay")
    is_counted = ~F.col("do").isin(*words.NEVER_COUNTED) & ~is_slow_network
    return (
        tables.rig.fault_events.where((F.col("phase") == "on") & is_counted)
        .where(~F.col("id").startswith(words.STANDSTILL))
        .join(begins, "run", how="left")
        .where(is_of_run)
        .join(tables.rig.probes.select("run", "id"), ["run", "id"], how="left_anti")
        .select("run", "number", "id", "do")
    )


def _figures_of(row: Row, bites: Mapping[str, Probe], deaths: Sequence[Row]) -> Figures:
    begin = row.begin or 0.0
    return Figures(
        deaths=tuple(_death(each, each.time - begin) for each in deaths),
        messages=row.messages,
        delivered=row.delivered,
        has_sent=row.has_sent,
        events=row.events,
        begin=row.begin or 0.0,
        seconds=(row.end or 0.0) - (row.begin or 0.0),
        bites=bites,
    )


def _death(row: Row, at: float) -> Death:
    when = f"at {at:.1f} s" if at >= 0 else "as the scenario began, or before,"
    return Death(at, f"{row.who} died {when} of {row.how}; nothing in the scenario did that")
