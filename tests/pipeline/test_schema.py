"""The pipeline reads what the contract says, and nothing else."""

from __future__ import annotations

import re
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
from stormcast.pipeline.load import find
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
    assert words.EPSILON == history.EPSILON
    assert words.CLOCKS_AGREE == reading.APART_SECONDS


def test_what_is_no_trace_is_refused(tmp_path: Path) -> None:
    with pytest.raises(VerifyError, match="holds no"):
        find(tmp_path)
    (tmp_path / "n0.parquet").write_bytes(b"not at all")
    with pytest.raises(VerifyError, match="cannot be read as Parquet"):
        find(tmp_path)


def test_another_version_is_refused(tmp_path: Path) -> None:

    exported = export_run(write_run(Story().a_clean_exchange().told(), tmp_path / "run"))
    path = exported / "n0.parquet"
    table = parquet.read_table(path)
    said = {**table.schema.metadata, b"stormcast.schema_version": b"2"}
    parquet.write_table(pyarrow.table(table).replace_schema_metadata(said), path)

    with pytest.raises(VerifyError, match=r"version 2, and this reads trace-events version 1"):
        find(exported)
