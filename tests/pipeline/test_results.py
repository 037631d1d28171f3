"""What `stormcast verify` writes and prints, in which order, and what it does where that fails."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from subprocess import run
from types import ModuleType
from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession

from stormcast.exits import Exit
from stormcast.node import trace
from stormcast.node.core.names import printable
from stormcast.pipeline import cli, gather, measure, purges, session
from stormcast.pipeline.checks import g6_multicast, g6_purge_safety, g7_connections
from stormcast.pipeline.files import find_all
from stormcast.pipeline.load import load
from stormcast.pipeline.questions import Question
from stormcast.pipeline.report.run_files import read_run
from stormcast.pipeline.report.writing import write_report
from stormcast.pipeline.verdict import Verifier
from stormcast.whole import write_whole
from tests.oracles.story import Story
from tests.pipeline.batch import export_run, write_run

pytestmark = pytest.mark.slow


def a_loss() -> dict[str, bytes]:
    return Story().a_clean_exchange().at(2.0).sends(6).told()


def clean() -> dict[str, bytes]:
    return Story().a_clean_exchange().told()


def with_a_third() -> dict[str, bytes]:
    return Story().a_clean_exchange().at(3.0).listens("n2").told()


def of_an_odd_rig() -> dict[str, bytes]:
    story = Story().a_clean_exchange()
    story.rig.record(trace.PROBE, 2.0, text='{"id": "f1", "do": "loss"}')
    return story.told()


@pytest.fixture
def here(spark: SparkSession, monkeypatch: pytest.MonkeyPatch) -> None:
    """The Spark of all tests, in place of one of its own."""

    @contextmanager
    def ours(*_words: object, **_more: object) -> Iterator[SparkSession]:
        yield spark

    monkeypatch.setattr(session, "spark_session", ours)


def an_order(directory: Path, runs: Mapping[str, dict[str, bytes]]) -> cli.Order:
    """An order to verify these runs, each of which gets its report."""
    tasks = []
    for name, blocks in runs.items():
        path = write_run(blocks, directory / name)
        question = Question(run=name, traces=export_run(path), guarantees=("G1", "G2"))
        tasks.append(cli.Task(question=question, directory=path))
    return cli.Order(
        tasks=tasks,
        shown=printable,
        on_measured=lambda task: write_report(task.directory, task.apart),
    )


def kept_verdict(task: cli.Task) -> str:
    return str(json.loads((task.out / cli.VERDICT).read_text())["verdict"])


@pytest.mark.usefixtures("here")
def test_verdicts_are_kept_and_printed_before_anything_is_measured(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """So they stand where measuring fails; each run still has a report, which says so."""
    order = an_order(tmp_path, {"sound": clean(), "lossy": a_loss()})
    known_then: list[str] = []

    def failing(*_words: object) -> Any:
        if not known_then:
            known_then.extend([capsys.readouterr().out, *map(kept_verdict, order.tasks)])
        raise OSError("No space left on device")

    monkeypatch.setattr(measure, "measure_runs", failing)
    assert cli.verify(order) == Exit.VIOLATED

    out, *verdicts = known_then
    assert verdicts == ["holds", "violated"]
    assert "sound: holds" in out
    assert "lossy: violated" in out
    said = capsys.readouterr().err
    for name in ("sound", "lossy"):
        assert f"{name} has no metrics: No space left on device" in said
        assert "Nothing was measured" in (tmp_path / name / "report.html").read_text()


@pytest.mark.usefixtures("here")
def test_a_run_that_cannot_be_measured_costs_no_other_its_metrics(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Neither one that is odd, nor one for which measuring crashes."""
    whole = gather.lives_of

    def crashing(rows: Any, *more: Any) -> Any:
        if any(row.name == "n2" for row in rows):
            raise KeyError("bit")
        return whole(rows, *more)

    monkeypatch.setattr(gather, "lives_of", crashing)
    order = an_order(
        tmp_path,
        {"sound": clean(), "odd": of_an_odd_rig(), "third": with_a_third(), "lossy": a_loss()},
    )
    assert cli.verify(order) == Exit.VIOLATED

    assert list(map(kept_verdict, order.tasks)) == ["holds", "unknown", "holds", "violated"]
    measured = {task.question.run for task in order.tasks if (task.out / cli.METRICS).exists()}
    assert measured == {"sound", "lossy"}
    said = capsys.readouterr().err
    assert "third has no metrics: 'bit'" in said
    for task in order.tasks:
        kept = read_run(task.directory)
        assert (kept.metrics is not None) == (task.question.run in measured)
        assert (task.directory / "report.html").exists()
        if kept.metrics is None:
            assert "odd" in kept.no_metrics


@pytest.mark.usefixtures("here")
def test_violations_are_written_after_all_verdicts_and_none_costs_another_its_own(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    order = an_order(tmp_path, {"first": a_loss(), "second": a_loss()})
    whole = Verifier.write_violations
    printed: list[tuple[str, str]] = []

    def failing(verifier: Verifier, judgement: Any, out: Path) -> None:
        printed.append(capsys.readouterr())
        if judgement.question.run == "first":
            raise OSError("No space left on device")
        whole(verifier, judgement, out)

    monkeypatch.setattr(Verifier, "write_violations", failing)
    assert cli.verify(order) == Exit.VIOLATED

    assert "first: violated" in printed[0][0]
    assert "second: violated" in printed[0][0]
    assert list(map(kept_verdict, order.tasks)) == ["violated", "violated"]
    said = "".join(err for _out, err in (*printed, capsys.readouterr()))
    assert said.count("first: its violations are not written: No space left on device") == 1
    assert (order.tasks[1].out / cli.VIOLATIONS).is_dir()


@pytest.mark.usefixtures("here")
def test_a_verdict_that_cannot_be_written_is_printed_and_never_passed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    order = an_order(tmp_path, {"full": clean(), "sound": clean()})

    def failing(path: Path, text: str) -> None:
        if path == order.tasks[0].out / cli.VERDICT:
            raise OSError("No space left on device")
        write_whole(path, text)

    monkeypatch.setattr(cli, "write_whole", failing)
    assert cli.verify(order) == Exit.UNKNOWN

    said = capsys.readouterr()
    assert "full: holds\n" in said.out
    assert "\nnot written: No space left on device\nsound: holds\n" in said.out
    assert f"\nwritten to {order.tasks[1].out}\n" in said.out
    assert kept_verdict(order.tasks[1]) == "holds"


LOSES_SPARK = """
import os, signal, sys
from pyspark import SparkContext
from stormcast import verify
from stormcast.pipeline import guarantees, measure

def lost(*_words):
    os.kill(SparkContext._gateway.proc.pid, signal.SIGKILL)
    return whole(*_words)

for name in set(guarantees.CHECKS) - {"G1", "G2"}:
    del guarantees.CHECKS[name]
if sys.argv[1] == "checking":
    whole = guarantees.CHECKS["G2"]
    guarantees.CHECKS["G2"] = lost
else:
    whole = measure.measure_runs
    measure.measure_runs = lost
sys.exit(verify.verify(sys.argv[2:]))
"""


@pytest.mark.usefixtures("spark")
@pytest.mark.parametrize("when", ["checking", "measuring"])
def test_a_spark_that_goes_away_is_told_in_one_line(when: str, tmp_path: Path) -> None:
    """While it checks nothing is claimed; while it measures the verdicts stand."""
    runs = [write_run(a_loss(), tmp_path / "a"), write_run(clean(), tmp_path / "b")]
    command = [sys.executable, "-c", LOSES_SPARK, when, *map(str, runs)]
    done = run(command, capture_output=True, text=True, check=False)

    lines = done.stderr.splitlines()
    assert all(line.startswith("stormcast verify: ") for line in lines), done.stderr
    assert sum("Spark went away" in line for line in lines) == 1, done.stderr
    assert not any("again, in" in line for line in lines), done.stderr
    verdicts = [(path / "verify/verdict.json").exists() for path in runs]
    if when == "checking":
        assert done.returncode == Exit.UNKNOWN
        assert done.stdout == ""
        assert verdicts == [False, False]
        assert "run stormcast verify again" in lines[-1]
    else:
        assert done.returncode == Exit.VIOLATED
        assert "b: holds" in done.stdout
        assert verdicts == [True, True]
        assert all((path / "report.html").exists() for path in runs)


def test_early_purges_are_looked_for_once(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Though two checks ask for them."""
    traces = {"run": export_run(write_run(clean(), tmp_path / "run"))}
    tables, _defects = load(spark, find_all(traces))
    looked: list[object] = []
    whole = purges.suspicious

    def counted(*words: Any) -> DataFrame:
        looked.append(words)
        return whole(*words)

    for module in modules_with("suspicious", whole):
        monkeypatch.setattr(module, "suspicious", counted)
    monkeypatch.setattr(g6_multicast, "suspicious", whole)
    g6_purge_safety.purge_safety(tables)
    g7_connections.apart(tables)
    assert len(looked) == 1


def modules_with(name: str, what: object) -> list[ModuleType]:
    """The modules that know something by this name."""
    modules = [one for word, one in sys.modules.items() if word.startswith("stormcast.pipeline")]
    return [one for one in modules if getattr(one, name, None) is what]
