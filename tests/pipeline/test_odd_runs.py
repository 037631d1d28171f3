"""One odd run among others: it alone is unknown, whatever is wrong with its files or its check."""

from __future__ import annotations

from pathlib import Path

import pytest
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.functions import col

from stormcast.pipeline import files, verdict
from stormcast.pipeline.checks import g1_no_loss
from stormcast.pipeline.judgement import Judgement
from stormcast.pipeline.load import load
from stormcast.pipeline.questions import Question
from stormcast.pipeline.tables import Tables
from stormcast.pipeline.verdict import Verifier
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


def test_if_nothing_can_be_read_all_is_unknown(spark: SparkSession, tmp_path: Path) -> None:
    traces = export_run(write_run(clean(), tmp_path / "run"))
    for path in traces.iterdir():
        path.write_bytes(b"PAR1")
    assert str(judged(spark, {"run": traces})["run"].verdict) == "unknown"


@pytest.mark.parametrize("odd", ["a", "d"])
def test_a_check_that_crashes_for_one_run_judges_the_others(
    odd: str, spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def crashing(tables: Tables) -> DataFrame:
        if tables.events.where(col("run") == odd).head(1):
            raise PySparkException("it does not add up")
        return g1_no_loss.no_loss(tables)

    monkeypatch.setitem(verdict.CHECKS, "G1", crashing)
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
