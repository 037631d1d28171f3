"""Runs told by hand, as the Parquet that the pipeline reads."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import asdict
from pathlib import Path

import pyarrow
from pyarrow import parquet

from stormcast.node.trace.export import export
from stormcast.node.trace.files import find_sources, member_names
from stormcast.pipeline.questions import Budget
from tests.oracles.corpus import Case


def budget_of(case: Case) -> Budget | None:
    """The budget of a run of the corpus, as the pipeline asks for it."""
    asked = case.budget
    return Budget(**asdict(asked)) if asked is not None else None


def write_run(blocks: Mapping[str, bytes], directory: Path) -> Path:
    """A run directory with these traces."""
    traces = directory / "trace"
    traces.mkdir(parents=True)
    for label, data in blocks.items():
        (traces / f"{label}.trace").write_bytes(data)
    return directory


def export_run(directory: Path) -> Path:
    """The Parquet of a run directory, made as `stormcast trace export` does."""
    sources, out = find_sources(directory), directory / "parquet"
    for _file in export(sources, out, directory.name, member_names(sources), []):
        pass
    return out


def write_batch(runs: Iterable[tuple[str, Mapping[str, bytes]]], directory: Path) -> Path:
    """Many runs as one file: to open thousands takes longer than to judge what is in them."""
    tables = []
    for name, blocks in runs:
        exported = export_run(write_run(blocks, directory / name))
        tables += [parquet.read_table(path) for path in sorted(exported.glob("*.parquet"))]
    batch = directory / "batch.parquet"
    parquet.write_table(
        pyarrow.concat_tables(table.replace_schema_metadata() for table in tables), batch
    )
    return batch
