"""Finds and reads the Parquet files of runs: one that cannot be read makes its run unknown."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import reduce
from importlib import import_module
from pathlib import Path
from typing import Any, Final

from pyspark.sql import DataFrame, SparkSession

from stormcast.pipeline.halves import Runs, check_spark, in_halves
from stormcast.pipeline.questions import CannotError, VerifyError, one_line
from stormcast.pipeline.schema import COLUMNS, EVENTS, SCHEMA_NAME, SCHEMA_VERSION
from stormcast.pipeline.tables.kept import keep

SUFFIX: Final = ".parquet"
NEW: Final = frozenset({"version"})
"""Columns that older files lack."""
_GLOB: Final = re.compile(r"([\[\]{}*?\\])")
"""Characters of a path that Spark would take for a pattern."""

Defects = dict[str, list[str]]
"""By run: the reasons why its traces prove nothing."""
Files = Mapping[str, Sequence["TraceFile"]]
"""By run: the files of its traces."""


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
    broken: str = ""
    """The reason why it cannot be read; empty if it can."""


def find(directory: Path) -> list[TraceFile]:
    """Find the traces of a run; VerifyError if there are none."""
    paths = sorted(path for path in directory.iterdir() if path.suffix == SUFFIX)
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
        schema = footer.schema.to_arrow_schema()
        said = {key.decode(): value.decode() for key, value in (footer.metadata or {}).items()}
        notes = tuple(map(str, json.loads(said.get("stormcast.notes", '["it says no notes"]'))))
        runs, nameless = _runs_of(footer)
    except Exception as error:  # noqa: BLE001 whatever a file that is no Parquet makes a reader say
        return _broken(path, f"cannot be read as Parquet ({one_line(error)})")
    name, version = said.get("stormcast.schema"), said.get("stormcast.schema_version")
    if (name, version) != (SCHEMA_NAME, SCHEMA_VERSION):
        return _broken(
            path,
            f"is {name or 'no trace'} version {version}, and this reads {SCHEMA_NAME} "
            f"version {SCHEMA_VERSION}: export the run again",
        )
    types = {field.name: str(field.type) for field in schema}
    for column, wanted in COLUMNS:
        has = types.get(column)
        if has is None and column not in NEW:
            return _broken(path, f"has no column {column}: export the run again")
        if has is not None and has != wanted:
            return _broken(path, f"has a column {column} of {has}, not of {wanted}")
    if nameless:
        return _broken(path, "has events of no run")
    return TraceFile(path, path.stem, runs, footer.num_rows, notes)


def _broken(path: Path, why: str) -> TraceFile:
    return TraceFile(path, path.stem, (), 0, (), f"{path.name} {why}")


def _runs_of(footer: Any) -> tuple[tuple[str, ...], int]:  # noqa: ANN401 pyarrow has no types
    """Return the least and the greatest names of a run, and how many events have none."""
    names, nameless = set(), 0
    for index in range(footer.num_row_groups):
        statistics = footer.row_group(index).column(0).statistics
        if statistics is not None and statistics.has_min_max:
            names |= {statistics.min, statistics.max}
        if statistics is not None and statistics.has_null_count:
            nameless += statistics.null_count
    return tuple(sorted(names)), nameless


def find_all(directories: Mapping[str, Path]) -> dict[str, list[TraceFile]]:
    """Find the traces of each run. A file that names another run is not read: its events would be
    judged as that run's."""
    return {
        run: [
            replace(trace, broken=f"{trace.path.name} is of run {name}, not of {run}")
            if (name := next((name for name in trace.runs if name != run), None)) is not None
            else trace
            for trace in find(directory)
        ]
        for run, directory in directories.items()
    }


def read_all(spark: SparkSession, files: Files) -> tuple[DataFrame, Defects]:
    """Read the events of all runs whose files can be read; of the others, return the reasons."""
    found = {
        run: [trace.broken for trace in traces if trace.broken] for run, traces in files.items()
    }
    try:
        return keep(read(spark, _readable(files, found))), found
    except Exception as error:  # noqa: BLE001 see below
        check_spark(spark, error)
    # Java has many words for a file that it cannot read, and none says which file it was. To look
    # for it costs as much as to read all of them, so nobody does before.
    for run, traces in files.items():
        if not found[run]:
            found[run] = [why for trace in traces if (why := _bad_page(trace.path))]

    def read_some(runs: Runs) -> DataFrame:
        return keep(read(spark, [trace for run in runs for trace in files[run]]))

    readable = tuple(run for run, reasons in found.items() if not reasons)
    parts, crashed = in_halves(spark, readable, read_some)
    found |= {run: [f"its files cannot be read: {why}"] for run, why in crashed.items()}
    return reduce(DataFrame.unionByName, parts, read(spark, [])), found


def _readable(files: Files, found: Defects) -> list[TraceFile]:
    return [trace for run, traces in files.items() if not found[run] for trace in traces]


def _bad_page(path: Path) -> str:
    """Return why a file cannot be read to its end; empty if it can."""
    parquet = import_module("pyarrow.parquet")
    try:
        with parquet.ParquetFile(path) as file:
            for _batch in file.iter_batches():
                pass
    except Exception as error:  # noqa: BLE001 whatever a broken file makes a reader say
        return f"{path.name} cannot be read to its end ({one_line(error)})"
    return ""


def read(spark: SparkSession, files: Sequence[TraceFile]) -> DataFrame:
    """Read the events of all runs, with the schema of docs/trace-format.md."""
    if not files:
        return spark.createDataFrame([], EVENTS)
    paths = (_GLOB.sub(r"\\\1", str(trace.path)) for trace in files)
    return spark.read.schema(EVENTS).parquet(*paths)
