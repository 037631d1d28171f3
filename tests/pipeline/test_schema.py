"""The pipeline reads what the contract says, and nothing else."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path

import pyarrow
import pytest
from pyarrow import parquet

from stormcast.chaos.oracles import groups, history, reading
from stormcast.node import trace
from stormcast.node.core import model, wire
from stormcast.node.trace.export import COLUMNS as WRITTEN
from stormcast.node.trace.export import SCHEMA_VERSION as WRITTEN_VERSION
from stormcast.pipeline import words
from stormcast.pipeline.files import find, find_all
from stormcast.pipeline.questions import VerifyError
from stormcast.pipeline.schema import COLUMNS, EVENTS, SCHEMA_VERSION
from tests.oracles.story import Story
from tests.pipeline.batch import export_run, write_run

FORMAT = Path(__file__).parents[2] / "docs/trace-format.md"


def test_the_schema_is_the_table_of_the_contract() -> None:
    table = FORMAT.read_text().split("<!-- parquet -->")[1].split("<!-- /parquet -->")[0]
    told = re.findall(r"^\| `(\w+)` \| ([^|]+?) \|", table, re.MULTILINE)

    assert list(COLUMNS) == told
    assert EVENTS.fieldNames() == [name for name, _type in told]


def test_the_schema_is_what_members_export() -> None:
    assert list(COLUMNS) == [(column.name, column.type) for column in WRITTEN]
    assert str(WRITTEN_VERSION) == SCHEMA_VERSION


def test_the_words_are_those_of_the_records() -> None:

    assert tuple(wire.PROTOCOLS[each] for each in sorted(groups.MULTICAST)) == words.MULTICAST
    assert words.FLAGS == model.FLAG_NAMES
    assert (words.OOB, words.DONT_LOOPBACK) == (model.OOB, model.DONT_LOOPBACK)
    assert (words.SENDER_CLOSING, words.SENDER_REMOVED) == (
        trace.SENDER_CLOSING,
        trace.SENDER_REMOVED,
    )
    assert (words.RECEIVER_OPEN, words.RECEIVER_REMOVED) == (
        trace.RECEIVER_OPEN,
        trace.RECEIVER_REMOVED,
    )
    assert (words.REPAIR, words.JOINING) == (trace.REPAIR, trace.JOINING)
    assert (words.WHOLE, words.CONFIRMED) == (trace.WHOLE, trace.CONFIRMED)
    assert trace.CLEARED == words.CLEARED
    assert words.EPSILON == history.EPSILON
    assert words.CLOCKS_AGREE == reading.APART_SECONDS


def test_what_is_no_trace_is_refused(tmp_path: Path) -> None:
    with pytest.raises(VerifyError, match="holds no"):
        find(tmp_path)
    (tmp_path / "n0.parquet").write_bytes(b"not at all")
    (found,) = find(tmp_path)
    assert "n0.parquet cannot be read as Parquet" in found.broken


def _rewritten(directory: Path, change: Callable[[pyarrow.Table], pyarrow.Table]) -> Path:
    """A run's Parquet with the file of n0 changed."""
    exported = export_run(write_run(Story().a_clean_exchange().told(), directory))
    path = exported / "n0.parquet"
    table = parquet.read_table(path)
    parquet.write_table(change(table), path)
    return exported


def _of_version_2(table: pyarrow.Table) -> pyarrow.Table:
    return table.replace_schema_metadata(
        {**table.schema.metadata, b"stormcast.schema_version": b"2"}
    )


def _without_notes(table: pyarrow.Table) -> pyarrow.Table:
    return table.replace_schema_metadata({**table.schema.metadata, b"stormcast.notes": b"torn"})


def _with_text(table: pyarrow.Table) -> pyarrow.Table:
    at = table.schema.get_field_index("lo")
    return table.set_column(at, "lo", table["lo"].cast("string"))


@pytest.mark.parametrize(
    ("change", "why"),
    [
        (_of_version_2, "version 2, and this reads trace-events version 1: export the run again"),
        (_without_notes, "cannot be read as Parquet"),
        (_with_text, "has a column lo of string, not of int64"),
        (lambda table: table.drop_columns(["trim"]), "has no column trim"),
    ],
)
def test_a_file_of_another_shape_is_not_read(
    change: Callable[[pyarrow.Table], pyarrow.Table], why: str, tmp_path: Path
) -> None:
    (found,) = [one for one in find(_rewritten(tmp_path / "run", change)) if one.broken]
    assert found.broken.startswith("n0.parquet ")
    assert why in found.broken


def test_a_file_without_a_new_column_is_read(tmp_path: Path) -> None:
    older = _rewritten(tmp_path / "run", lambda table: table.drop_columns(["version"]))
    assert not any(one.broken for one in find(older))


def test_a_file_of_another_run_is_not_read(tmp_path: Path) -> None:
    exported = export_run(write_run(Story().a_clean_exchange().told(), tmp_path / "run"))
    found = find_all({"other": exported})["other"]
    assert {one.broken for one in found} == {
        f"{name}.parquet is of run run, not of other" for name in ("n0", "n1", "rig")
    }
