"""Reads events from Parquet files, and finds defects: a trace that is not whole proves nothing."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import Any, Final

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F

from stormcast.pipeline import words
from stormcast.pipeline.questions import CannotError, VerifyError
from stormcast.pipeline.schema import EVENTS, SCHEMA_NAME, SCHEMA_VERSION
from stormcast.pipeline.tables import Tables

SUFFIX: Final = ".parquet"
TORN: Final = ": torn block"
"""The end of a note on a block that is not whole."""


@dataclass(frozen=True, slots=True)
class TraceFile:
    """The trace of one member, as its file describes it."""

    path: Path
    label: str
    runs: tuple[str, ...]
    """The least and the greatest name of a run in the file; none if it is empty."""
    rows: int
    notes: tuple[str, ...]
    """Reasons why the trace is not whole."""


def find(directory: Path) -> list[TraceFile]:
    """Find the traces of a run; VerifyError if there are none, or of another version."""
    paths = sorted(directory.glob(f"*{SUFFIX}"))
    if not paths:
        raise VerifyError(f"{directory} holds no {SUFFIX} files: stormcast trace export makes them")
    return [_describe(path) for path in paths]


def _describe(path: Path) -> TraceFile:
    try:
        parquet = import_module("pyarrow.parquet")
    except ImportError:
        raise CannotError("verify needs pyarrow: pip install 'stormcast[verify]'") from None
    try:
        footer = parquet.read_metadata(path)
    except Exception as error:  # noqa: BLE001 whatever a file that is no Parquet makes a reader say
        raise VerifyError(f"{path} cannot be read as Parquet ({error}): export it again") from None
    said = {key.decode(): value.decode() for key, value in (footer.metadata or {}).items()}
    name, version = said.get("stormcast.schema"), said.get("stormcast.schema_version")
    if (name, version) != (SCHEMA_NAME, SCHEMA_VERSION):
        raise VerifyError(
            f"{path} is {name or 'no trace'} version {version}, and this reads {SCHEMA_NAME} "
            f"version {SCHEMA_VERSION}: export the run again"
        )
    notes = tuple(map(str, json.loads(said.get("stormcast.notes", '["it says no notes"]'))))
    return TraceFile(path, path.stem, _runs_of(footer), footer.num_rows, notes)


def _runs_of(footer: Any) -> tuple[str, ...]:  # noqa: ANN401 pyarrow has no types
    names = set()
    for index in range(footer.num_row_groups):
        statistics = footer.row_group(index).column(0).statistics
        if statistics is not None and statistics.has_min_max:
            names |= {statistics.min, statistics.max}
    return tuple(sorted(names))


def check_names(files: dict[str, list[TraceFile]]) -> None:
    """Check that every file belongs to its run: runs of one name would be judged as one."""
    for run, traces in files.items():
        for trace in traces:
            if any(name != run for name in trace.runs):
                raise VerifyError(f"{trace.path} is of run {trace.runs[0]}, not of {run}")


def read(spark: SparkSession, files: Sequence[TraceFile]) -> DataFrame:
    """Read the events of all runs, with the schema of docs/trace-format.md."""
    return spark.read.schema(EVENTS).parquet(*(str(trace.path) for trace in files))


def defects(tables: Tables, files: dict[str, list[TraceFile]]) -> dict[str, list[str]]:
    """Return the defects of each run, because of which its traces prove nothing; runs without
    defects are left out."""
    found: dict[str, list[str]] = {}
    killed = _killed(tables)
    for run, traces in files.items():
        for trace in traces:
            # A block is written before the frames of its turn leave: so no frame of a killed
            # member's last turn, whose block is torn, has left.
            is_last_gasp = (run, trace.label) in killed
            notes = [note for note in trace.notes if not (is_last_gasp and TORN in note)]
            found.setdefault(run, []).extend(f"{trace.label}: {note}" for note in notes)
            if not trace.rows:
                found[run].append(f"{trace.label}: empty trace")
    for row in _in_events(tables).collect():
        found.setdefault(row.run, []).append(row.detail)
    for run in files:
        found.setdefault(run, [])
    _judge_runs(tables, found)
    sound = [run for run, reasons in found.items() if not reasons]
    for row in _unheard_of(tables).collect():
        if row.run in sound:
            found[row.run].append(f"{row.peer:x} was heard and left no trace")
    return {run: sorted(reasons) for run, reasons in found.items() if reasons}


def _killed(tables: Tables) -> set[tuple[str, str]]:
    killed = tables.members.incarnations.where(F.col("killed") < words.INFINITY).select(
        "run", "label"
    )
    return {(row.run, row.label) for row in killed.collect()}


def _judge_runs(tables: Tables, found: dict[str, list[str]]) -> None:
    """Add the defects of runs without members, or without a recorded end."""
    ended = {row.run for row in tables.rig.runs.where(F.col("end") < words.INFINITY).collect()}
    peopled = {row.run for row in tables.members.incarnations.select("run").distinct().collect()}
    for run, reasons in found.items():
        if run not in peopled:
            reasons.append("no member left a trace")
        if run not in ended:
            reasons.append("the rig recorded no end of the run")


def _in_events(tables: Tables) -> DataFrame:
    """Find defects in the events themselves: one row per defect of a member."""
    named = tables.events.groupBy("run", "member").agg(
        F.min("short_id").alias("short_id"),
        F.max("short_id").alias("other"),
        F.min("number").alias("first"),
        F.max("number").alias("last"),
        F.count(F.lit(1)).alias("rows"),
    )
    foreign = named.where(F.col("short_id") != F.col("other"))
    lost = named.where((F.col("first") != 0) | (F.col("rows") != F.col("last") + 1))
    twice = named.groupBy("run", "short_id").agg(
        F.sort_array(F.collect_list("member")).alias("all")
    )
    members, events = tables.members.incarnations, tables.events
    # Spark reads a word that is no hexadecimal number in part, or as null: so check it here.
    is_no_list = ~F.coalesce("text", F.lit("")).rlike("^([0-9a-fA-F]{1,8}(,|$))*$")
    parts = (
        foreign.select("run", _says("%s: block of another member", "member")),
        lost.select("run", _says("%s: events are missing", "member")),
        twice.where(F.size("all") > 1).select(
            "run", _says("%s: the same member as %s", F.get("all", 1), F.get("all", 0))
        ),
        members.where(~F.col("was_told")).select(
            "run", _says("%s: does not begin with its start", "label")
        ),
        events.where(F.col("kind") == "truncated").select(
            "run", _says("%s: truncated: %s", "member", F.coalesce("text", F.lit("")))
        ),
        events.where((F.col("kind") == "view") & (F.col("peer") != 0) & is_no_list).select(
            "run", _says("%s: %s is no list of members", "member", F.substring("text", 1, 20))
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
    """Find members that acked or sent, and so must have left a trace, but did not."""
    is_delivery = F.col("kind") == "delivered"
    is_ack = (F.col("kind") == "purged") & ~F.col("protocol").isin(*words.MULTICAST)
    known = tables.members.incarnations.select("run", F.col("short_id").alias("peer"))
    return (
        tables.events.where(is_delivery | is_ack)
        .select("run", "peer")
        .distinct()
        .join(F.broadcast(known), ["run", "peer"], how="left_anti")
    )
