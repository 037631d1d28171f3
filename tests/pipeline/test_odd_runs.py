"""One odd run among others: it alone is unknown, whatever is wrong with its files or its check."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pyarrow
import pytest
from pyarrow import parquet
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, Row, SparkSession
from pyspark.sql.functions import col

from stormcast.node import trace
from stormcast.pipeline import figures, files, found_violations, guarantees
from stormcast.pipeline import load as loading
from stormcast.pipeline.checks import g1_no_loss
from stormcast.pipeline.judgement import Figures, Judgement
from stormcast.pipeline.load import load
from stormcast.pipeline.questions import Question
from stormcast.pipeline.tables import Tables
from stormcast.pipeline.verdict import Verifier
from stormcast.pipeline.witness import describe
from tests.oracles.impossible import ODD_RIGS, with_rig
from tests.oracles.story import Story
from tests.pipeline.batch import export_run, write_run

pytestmark = pytest.mark.slow


def a_loss() -> dict[str, bytes]:
    return Story().a_clean_exchange().at(2.0).sends(6).told()


def clean() -> dict[str, bytes]:
    return Story().a_clean_exchange().told()


def judged(spark: SparkSession, runs: dict[str, Path]) -> dict[str, Judgement]:
    """What is found in G1 and G2 of these runs, judged together."""
    questions = [
        Question(run=run, traces=traces, guarantees=("G1", "G2")) for run, traces in runs.items()
    ]
    tables, defects = load(spark, files.find_all(runs))
    verifier = Verifier(tables, questions, lambda _text: None)
    return {each.question.run: each for each in verifier.judge(defects)}


def test_names_that_look_like_patterns_are_names(spark: SparkSession, tmp_path: Path) -> None:
    """`seed[1]` is not `seed1`: a loss in one is found there, and not in the other."""
    runs = {
        name: export_run(write_run(blocks, tmp_path / name))
        for name, blocks in (("seed[1]", a_loss()), ("seed1", clean()), ("{a,b}*?", clean()))
    }
    found = judged(spark, runs)
    assert {run: str(one.verdict) for run, one in found.items()} == {
        "seed[1]": "violated",
        "seed1": "holds",
        "{a,b}*?": "holds",
    }


def test_files_that_cannot_be_read_spoil_only_their_run(
    spark: SparkSession, tmp_path: Path
) -> None:
    runs = {
        name: export_run(write_run(blocks, tmp_path / name))
        for name, blocks in (("loss", a_loss()), ("page", clean()), ("footer", clean()))
    }
    footer = runs["footer"] / "n1.parquet"
    footer.write_bytes(footer.read_bytes()[:-5])
    page = runs["page"] / "n1.parquet"
    whole = bytearray(page.read_bytes())
    whole[4:400] = bytes(396)
    page.write_bytes(whole)

    found = judged(spark, runs)
    assert str(found["loss"].verdict) == "violated"
    for run, why in (
        ("page", "n1.parquet cannot be read to its end"),
        ("footer", "n1.parquet cannot be read as Parquet"),
    ):
        assert str(found[run].verdict) == "unknown"
        assert why in found[run].findings[0].detail


def test_a_trace_that_is_there_twice_proves_nothing(spark: SparkSession, tmp_path: Path) -> None:
    """A journal beside its trace, of which one may be damaged: only its run is unknown."""
    runs = {name: write_run(clean(), tmp_path / name) for name in ("once", "twice")}
    journal = tmp_path / "twice/trace/n1"
    journal.mkdir()
    (journal / "000000.trace").write_bytes(clean()["n1"])

    found = judged(spark, {name: export_run(run) for name, run in runs.items()})

    assert {run: str(one.verdict) for run, one in found.items()} == {
        "once": "holds",
        "twice": "unknown",
    }
    assert f"n1: {journal}: n1 is there twice" in found["twice"].findings[0].detail


def test_if_nothing_can_be_read_all_is_unknown(spark: SparkSession, tmp_path: Path) -> None:
    traces = export_run(write_run(clean(), tmp_path / "run"))
    for path in traces.iterdir():
        path.write_bytes(b"PAR1")
    assert str(judged(spark, {"run": traces})["run"].verdict) == "unknown"


@pytest.mark.parametrize("odd", ["a", pytest.param("d", marks=pytest.mark.long)])
def test_a_check_that_crashes_for_one_run_judges_the_others(
    odd: str, spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def crashing(tables: Tables) -> DataFrame:
        if tables.events.where(col("run") == odd).head(1):
            raise PySparkException("it does not add up")
        return g1_no_loss.no_loss(tables)

    monkeypatch.setitem(guarantees.CHECKS, "G1", crashing)
    runs = {
        name: export_run(write_run(a_loss() if name == "b" else clean(), tmp_path / name))
        for name in "abcd"
    }
    found = judged(spark, runs)
    assert {run: one.verdicts()["G1"] for run, one in found.items()} == {
        run: "unknown" if run == odd else "violated" if run == "b" else "holds" for run in "abcd"
    }
    assert "its check crashed: it does not add up" in found[odd].findings[0].detail
    assert all(one.verdicts()["G2"] == "holds" for one in found.values())


MANY = json.dumps({"id": "f1", "do": "duplicate", "phase": "on", "copies": 1000})


def test_a_rig_that_says_what_none_can_spoils_only_its_run(
    spark: SparkSession, tmp_path: Path
) -> None:
    odd = {name: ODD_RIGS[name] for name in ("late-beyond-all", "nested-too-deep", "bites-yes")}
    told = {name: with_rig(kind, text) for name, (kind, text) in odd.items()}
    told |= {"loss": a_loss(), "most": with_rig(trace.FAULT, MANY)}
    runs = {name: export_run(write_run(blocks, tmp_path / name)) for name, blocks in told.items()}

    found = judged(spark, runs)
    assert str(found["loss"].verdict) == "violated"
    assert found["most"].verdicts()["G1"] == "holds"
    for name, (_kind, text) in odd.items():
        assert str(found[name].verdict) == "unknown", name
        detail = found[name].findings[0].detail
        assert f"rig: '{text[:40]}' does not say what it should: " in detail, name


@pytest.mark.parametrize("where", ["counted", "loaded", "told"])
def test_what_crashes_outside_of_checks_for_one_run_judges_the_others(
    where: str, spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    if where == "counted":
        count = figures._figures_of

        def counting(row: Row, *more: Any) -> Figures:
            if row.run == "c":
                raise ValueError("overflow")
            return count(row, *more)

        monkeypatch.setattr(figures, "_figures_of", counting)
    elif where == "loaded":
        whole = loading.defects

        def crashing(tables: Tables, traces: files.Files) -> files.Defects:
            if tables.events.where(col("run") == "c").head(1):
                raise PySparkException("it cannot be loaded")
            return whole(tables, traces)

        monkeypatch.setattr(loading, "defects", crashing)
    else:

        def dumb(row: Row, names: dict[int, str]) -> str:
            if row.run == "c":
                raise ValueError("it cannot be told")
            return describe(row, names)

        monkeypatch.setattr(found_violations, "describe", dumb)
    told = {"a": clean(), "b": a_loss(), "c": a_loss(), "d": clean()}
    runs = {name: export_run(write_run(blocks, tmp_path / name)) for name, blocks in told.items()}

    found = judged(spark, runs)
    assert {run: str(one.verdict) for run, one in found.items()} == {
        "a": "holds",
        "b": "violated",
        "c": "unknown",
        "d": "holds",
    }
    why = {"counted": "overflow", "loaded": "it cannot be loaded", "told": "it cannot be told"}
    assert why[where] in found["c"].findings[0].detail
    assert found["b"].findings[0].witness


NULLS = ("time", "number", "kind", "short_id", "member", "peer", "conn", "digest", "run")


def _rewrite(path: Path, kind: str, column: str, value: object) -> None:
    """Change a column of all events of a kind in a file of Parquet."""
    table = parquet.read_table(path)
    rows: Sequence[dict[str, Any]] = table.to_pylist()
    changed = [row | {column: value} if row["kind"] == kind else row for row in rows]
    # That there are no notes is said at the end of a file, and not read with its table.
    schema = table.schema.with_metadata({**table.schema.metadata, "stormcast.notes": "[]"})
    parquet.write_table(pyarrow.Table.from_pylist(changed, schema=schema), path)


def test_a_value_that_is_missing_makes_its_run_unknown(spark: SparkSession, tmp_path: Path) -> None:
    """As no exporter writes it. A run beside it is judged as ever."""
    told = {f"no-{column}": clean() for column in NULLS} | {"loss": a_loss()}
    runs = {name: export_run(write_run(blocks, tmp_path / name)) for name, blocks in told.items()}
    for column in NULLS:
        _rewrite(runs[f"no-{column}"] / "n1.parquet", "delivered", column, None)

    found = judged(spark, runs)
    assert found["loss"].verdicts() == {"G1": "violated", "G2": "holds"}, found["loss"].findings
    for column in NULLS:
        judgement = found[f"no-{column}"]
        assert judgement.verdicts() == {"G1": "unknown", "G2": "unknown"}, column
        detail = judgement.findings[0].detail
        assert "n1" in detail or column == "member", detail
        assert column in detail, detail
