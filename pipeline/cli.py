"""`stormcast verify`: judges and measures runs; writes verdicts, violations and metrics."""

from __future__ import annotations

import json
import logging
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from time import monotonic
from typing import TYPE_CHECKING, Final

from stormcast.exits import Exit
from stormcast.pipeline import session
from stormcast.pipeline.questions import CannotError, Question, VerifyError
from stormcast.whole import write_whole

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from stormcast.pipeline.files import Files
    from stormcast.pipeline.judgement import Judgement
    from stormcast.pipeline.measured import Breach
    from stormcast.pipeline.tables import Tables

VERIFY: Final = "verify"
"""The folder in a run's directory with the verdict of Spark; the run's own verdict stays."""
VERDICT: Final = "verdict.json"
METRICS: Final = "metrics.json"
VIOLATIONS: Final = "violations"
"""The directory of Parquet files with all violations of a run."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Task:
    """One run to verify."""

    question: Question
    directory: Path
    """The run's directory."""
    apart: Path | None = None
    """The directory for results; None: `verify` in the run's directory."""

    @property
    def out(self) -> Path:
        return self.apart or self.directory / VERIFY


@dataclass(frozen=True, slots=True, kw_only=True)
class Order:
    """Runs to verify, and the options for that."""

    tasks: Sequence[Task]
    shown: Callable[[str], str]
    """Returns a line as it may be shown: names and texts of traces may hold anything."""
    master: str = "local[*]"
    as_json: bool = False
    is_brief: bool = False
    """Whether runs that hold are not printed."""
    on_measured: Callable[[Task], object] = lambda _task: None
    """Called when all results of a run are written, so that a report may be made."""

    @property
    def questions(self) -> list[Question]:
        return [task.question for task in self.tasks]


def say(text: str) -> None:
    """Print progress or a refusal to stderr: only results go to stdout."""
    print(f"stormcast verify: {text}", file=sys.stderr, flush=True)


def verify(order: Order) -> int:
    """Verify runs together; returns the exit code of the worst verdict."""
    try:
        return _verify(order)
    except CannotError as error:
        say(_shown(order, str(error)))
        return Exit.UNKNOWN
    except VerifyError as error:
        say(_shown(order, str(error)))
        return Exit.USAGE


def _shown(order: Order, text: str) -> str:
    return "\n".join(map(order.shown, text.splitlines()))


def _verify(order: Order) -> int:
    session.check_pyspark()
    from stormcast.pipeline import files as found  # noqa: PLC0415 it needs PySpark

    # PySpark logs each exception that it raises, with the stack of the JVM.
    logging.getLogger("DataFrameQueryContextLogger").setLevel(logging.CRITICAL)
    files = found.find_all({question.run: question.traces for question in order.questions})
    rows = sum(trace.rows for traces in files.values() for trace in traces)
    started = monotonic()
    say(f"{len(files)} run{'s' * (len(files) > 1)}, {rows:,} events, Spark on {order.master}")
    with session.spark_session(order.master, rows=rows) as spark:
        judgements = _judge(spark, order, files)
    say(f"done in {monotonic() - started:.0f}s")
    return exit_code(judgements)


def _judge(spark: SparkSession, order: Order, files: Files) -> list[Judgement]:
    from stormcast.pipeline.load import load  # noqa: PLC0415 they need PySpark
    from stormcast.pipeline.verdict import Verifier  # noqa: PLC0415 as above

    say("reading the traces")
    tables, defects = load(spark, files)
    verifier = Verifier(tables, order.questions, say)
    judgements = verifier.judge(defects)
    for task, judgement in zip(order.tasks, judgements, strict=True):
        task.out.mkdir(parents=True, exist_ok=True)
        # Remove older results first: if this process is killed now, they must not lie beside those
        # of another judgement.
        for older in (METRICS, VERDICT):
            (task.out / older).unlink(missing_ok=True)
        verifier.write_violations(judgement, task.out / VIOLATIONS)
        write_whole(task.out / VERDICT, json.dumps(judgement.as_json(), indent=2) + "\n")
    # What is measured, and reports, are worth less than the verdicts: those are told first.
    tell(order, judgements)
    try:
        _measure(order, tables, verifier.breaches(judgements))
    except Exception as error:  # noqa: BLE001 whatever goes wrong, the verdicts stand
        say(f"nothing is measured: {_one_line(error)}; the verdicts stand, without reports")
    return judgements


def _one_line(error: Exception) -> str:
    return str(error).strip().partition("\n")[0][:200] or type(error).__name__


def _measure(order: Order, tables: Tables, breaches: dict[str, tuple[Breach, ...]]) -> None:
    """Measure all runs, and write the metrics beside each verdict."""
    from stormcast.pipeline.measure import measure_runs  # noqa: PLC0415 it needs PySpark

    say("measuring")
    runs = [question.run for question in order.questions]
    for run, metrics in measure_runs(tables.events, runs).items():
        task = order.tasks[runs.index(run)]
        replace(metrics, breaches=breaches.get(run, ())).write(task.out / METRICS)
        try:
            order.on_measured(task)
        except Exception as error:  # noqa: BLE001 a report that fails must not take the others along
            say(order.shown(f"{run} has no report: {_one_line(error)}"))


def exit_code(judgements: Sequence[Judgement]) -> Exit:
    """Return the exit code of the worst verdict."""
    worst = max((judgement.verdict for judgement in judgements), default=None)
    return Exit.of(worst)


def tell(order: Order, judgements: Sequence[Judgement]) -> None:
    """Print the results: a JSON object per run and line, or text."""
    for task, judgement in zip(order.tasks, judgements, strict=True):
        if order.as_json:
            print(json.dumps(judgement.as_json()))
        elif not order.is_brief or str(judgement.verdict) != "holds":
            # Line by line: a line break in a name must not make another line.
            print("\n".join(map(order.shown, _in_words(judgement, task.out))))


def _in_words(judgement: Judgement, out: Path) -> list[str]:
    lines = [f"{judgement.question.run}: {judgement.verdict}"]
    for finding in judgement.findings:
        by = "" if finding.by == "spark" else "  (when it ran)"
        lines.append(f"{finding.guarantee:<4}{finding.verdict!s:<9} {finding.detail}{by}")
        lines += (f"      {event}" for event in finding.witness)
    if judgement.not_judged:
        lines.append(f"not judged here: {' '.join(judgement.not_judged)}")
    lines.append(f"written to {out}")
    return lines
