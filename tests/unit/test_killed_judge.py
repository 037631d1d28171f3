"""What a `stormcast verify` that is killed leaves: folders that `clean` knows by their name, and no
results of two judgements side by side."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from stormcast.chaos.backends.netns.names import OF_RUN
from stormcast.chaos.backends.run_id import RunId
from stormcast.chaos.language.shipped import find_shipped
from stormcast.chaos.session.runner import run_scenario
from stormcast.exits import Exit
from stormcast.findings import Finding, Verdict
from stormcast.pipeline import cli, session
from stormcast.pipeline.judgement import Figures, Judgement
from stormcast.pipeline.questions import Question
from stormcast.verify import _question, _Run

pyspark = pytest.importorskip("pyspark.sql")


class _Builder:
    """Of sessions that are none; as PySpark does, it makes a folder for Java's first words."""

    def __init__(self, made: list[Path]) -> None:
        self._made = made

    def __getattr__(self, _name: str) -> object:
        return lambda *_words: self

    def getOrCreate(self) -> _Builder:  # noqa: N802 as PySpark calls it
        self._made.append(Path(tempfile.mkdtemp()))
        # What a JVM that is started now is told.
        run = RunId.parse(os.environ[OF_RUN])
        assert run is not None
        assert run.has_owner()
        return self


class _Sessions:
    def __init__(self, made: list[Path]) -> None:
        self.builder = _Builder(made)


def test_all_that_is_temporary_is_in_a_folder_of_its_owner(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made: list[Path] = []
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    monkeypatch.setattr(pyspark, "SparkSession", _Sessions(made))
    monkeypatch.setattr(session, "check_java", lambda _who: None)
    monkeypatch.setattr(session, "spare_questions", lambda _session: None)
    with session.spark_session("local[1]", rows=1):
        (scratch,) = tmp_path.iterdir()
        assert scratch.name.startswith(session.own_prefix())
        assert [path.parent for path in made] == [scratch]
        assert tempfile.gettempdir() == str(tmp_path)
        assert OF_RUN not in os.environ
    assert list(tmp_path.iterdir()) == []


class _Verifier:
    """Finds each run violated, and may be killed while it writes what was violated."""

    def __init__(self, _tables: object, questions: Sequence[Question], _tell: object) -> None:
        self._questions = questions

    def judge(self, _defects: object) -> list[Judgement]:
        lost = Finding("G1", Verdict.VIOLATED, "6 was lost")
        return [
            Judgement(
                question=question,
                findings=(lost,),
                figures=Figures(bites={}),
                violations={"G1": 1},
                not_judged=(),
            )
            for question in self._questions
        ]

    def write_violations(self, _judgement: object, out: Path) -> None:
        if (out.parent / "die").exists():
            raise KeyboardInterrupt
        out.mkdir(exist_ok=True)

    def breaches(self, _judgements: object) -> dict[str, Any]:
        return {}


@pytest.mark.parametrize("dies", [True, False])
def test_no_results_of_two_judgements_lie_side_by_side(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, dies: bool
) -> None:
    """Those of an earlier one go before anything is written, and the verdict comes first."""
    from stormcast.pipeline import load, verdict  # noqa: PLC0415 they need PySpark

    monkeypatch.setattr(load, "load", lambda *_words: (None, {}))
    monkeypatch.setattr(verdict, "Verifier", _Verifier)
    monkeypatch.setattr(cli, "_measure", lambda *_words: None)
    monkeypatch.setattr(cli, "_report", lambda *_words: None)
    monkeypatch.setattr(cli, "tell", lambda *_words: None)
    out = tmp_path / "verify"
    out.mkdir()
    for name in ("verdict.json", "metrics.json"):
        (out / name).write_text('{"verdict": "holds"}')
    (out / "violations").mkdir()
    task = cli.Task(question=Question(run="run", traces=tmp_path), directory=tmp_path)
    order = cli.Order(tasks=[task], shown=str)
    spark: Any = None
    if dies:
        (out / "die").touch()
        with pytest.raises(KeyboardInterrupt):
            cli._judge(spark, order, {})
        assert {path.name for path in out.iterdir()} == {"die", "verdict.json"}
    else:
        assert cli._judge(spark, order, {}) == Exit.VIOLATED
        assert {path.name for path in out.iterdir()} == {"verdict.json", "violations"}
    assert '"violated"' in (out / "verdict.json").read_text()


def test_traces_of_a_run_that_was_killed_before_its_verdict_prove_nothing(tmp_path: Path) -> None:
    """They are whole, and may hold: but not all that makes a run unknown is in them."""
    run = tmp_path / "run"
    run_scenario(find_shipped("order-under-loss").read(), 1, out=run)
    told = _question(_Run(run, "run"))
    assert {str(finding.verdict) for finding in told.own} == {"holds"}
    (run / "verdict.json").unlink()
    (finding,) = _question(_Run(run, "run")).own
    assert (finding.guarantee, str(finding.verdict)) == ("run", "unknown")
    assert finding.detail.startswith("it ended before it was judged")
    (run / "begun").unlink()
    assert _question(_Run(run, "run")).own == (), "traces alone are judged by what they say"
