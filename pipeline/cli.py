"""`stormcast verify`: judges and measures runs; writes verdicts, violations and metrics."""

from __future__ import annotations

import json
import logging
import shutil
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from time import monotonic
from typing import TYPE_CHECKING, Final

from stormcast.exits import Exit
from stormcast.pipeline import session
from stormcast.pipeline.questions import CannotError, Question, VerifyError, one_line
from stormcast.whole import write_whole

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from stormcast.pipeline.files import Files
    from stormcast.pipeline.judgement import Judgement
    from stormcast.pipeline.measured import Breach
    from stormcast.pipeline.stored_run import Results
    from stormcast.pipeline.verdict import Verifier

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
    results: Results | None = None
    """Copies results to the store in which the run lies; None: it lies in none, or they go to a
    directory apart."""

    @property
    def out(self) -> Path:
        return self.apart or self.directory / VERIFY

    @property
    def place(self) -> str:
        """Where the results are, in the words of whoever named the run."""
        return str(self.out) if self.results is None else self.results.place(self.out)

    def keep(self, result: Path) -> None:
        """Copy a result to the store of the run, if it is in one."""
        if self.results is not None:
            self.results.put(result)


@dataclass(frozen=True, slots=True, kw_only=True)
class Order:
    """Runs to verify, and the options for that."""

    tasks: Sequence[Task]
    shown: Callable[[str], str]
    """Returns a line as it may be shown: names and texts of traces may hold anything."""
    named: Callable[[str], str] = str
    """Returns a text with the names of runs as they were asked for, in place of those of copies."""
    master: str = "local[*]"
    settings: Mapping[str, str] = field(default_factory=dict)
    """Settings of Spark, in place of ours."""
    tables: Path | None = None
    """A folder that all hosts see, for computed tables; None: each worker keeps its own."""
    as_json: bool = False
    is_brief: bool = False
    """Whether runs that hold are not printed."""
    on_measured: Callable[[Task], object] = lambda _task: None
    """Called for each run when all results are written, so that a report may be made."""

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

    quiet_logs()
    files = found.find_all({question.run: question.traces for question in order.questions})
    rows = sum(trace.rows for traces in files.values() for trace in traces)
    started = monotonic()
    say(f"{len(files)} run{'s' * (len(files) > 1)}, {rows:,} events, Spark on {order.master}")
    with session.spark_session(
        order.master, rows=rows, more=order.settings, shared=order.tables
    ) as spark:
        code = _judge(spark, order, files)
    say(f"done in {monotonic() - started:.0f}s")
    return code


def quiet_logs() -> None:
    """Have PySpark and Py4J log nothing: whatever fails is told by its exception."""
    # PySpark logs each exception that it raises, with the stack of the JVM; Py4J, each connection
    # that ends before its time, by a logger of its own and by the root's.
    for logger in ("DataFrameQueryContextLogger", "SQLQueryContextLogger", "py4j"):
        logging.getLogger(logger).setLevel(logging.CRITICAL + 1)
    logging.getLogger().addFilter(_is_not_by_py4j)


def _is_not_by_py4j(record: logging.LogRecord) -> bool:
    return "py4j" not in Path(record.pathname).parts


def _judge(spark: SparkSession, order: Order, files: Files) -> Exit:
    from stormcast.pipeline.halves import SparkLost, check_spark  # noqa: PLC0415 it needs PySpark
    from stormcast.pipeline.load import load  # noqa: PLC0415 as above
    from stormcast.pipeline.verdict import Verifier  # noqa: PLC0415 as above

    say("reading the traces")
    try:
        tables, defects = load(spark, files)
        verifier = Verifier(tables, order.questions, say)
        doubts = {one.run: one.doubts for one in order.questions if one.doubts}
        known = {run: (*doubts.get(run, ()), *defects.get(run, ())) for run in {*doubts, *defects}}
        judgements = [_named(order, one) for one in verifier.judge(known)]
    except Exception as error:
        check_spark(spark, error)
        raise
    unwritten = dict(write_verdicts(order.tasks, judgements))
    # What is measured, and reports, are worth less than the verdicts: those are told first.
    tell(order, judgements, unwritten)
    try:
        write_violations(order, verifier, judgements)
        _measure(order, verifier, verifier.breaches(judgements))
    except SparkLost as error:
        say(f"{error}. The verdicts stand; metrics or violations are missing")
    _report(order)
    code = exit_code(judgements)
    return Exit.UNKNOWN if unwritten and code is Exit.HOLDS else code


def _named(order: Order, judgement: Judgement) -> Judgement:
    findings = (replace(one, detail=order.named(one.detail)) for one in judgement.findings)
    return replace(judgement, findings=tuple(findings))


def write_verdicts(
    tasks: Sequence[Task], judgements: Sequence[Judgement]
) -> Iterator[tuple[str, str]]:
    """Write all verdicts; yields the runs whose verdict cannot be written, each with the reason."""
    for task, judgement in zip(tasks, judgements, strict=True):
        try:
            task.out.mkdir(parents=True, exist_ok=True)
            # Remove older results first: if this process is killed now, they must not lie beside
            # those of another judgement.
            for older in (METRICS, VERDICT):
                (task.out / older).unlink(missing_ok=True)
            shutil.rmtree(task.out / VIOLATIONS, ignore_errors=True)
            write_whole(task.out / VERDICT, json.dumps(judgement.as_json(), indent=2) + "\n")
            _keep_verdict(task)
        except (OSError, VerifyError) as error:
            yield task.question.run, one_line(error)


def _keep_verdict(task: Task) -> None:
    """Copy a verdict to the store of its run, in place of all that an older one has left there."""
    if task.results is not None:
        for older in (METRICS, VERDICT):
            task.results.remove(task.out / older)
        task.results.remove_folder(task.out / VIOLATIONS)
    task.keep(task.out / VERDICT)


def write_violations(order: Order, verifier: Verifier, judgements: Sequence[Judgement]) -> None:
    """Write all violations of each run beside its verdict."""
    for task, judgement in zip(order.tasks, judgements, strict=True):
        try:
            verifier.write_violations(judgement, task.out / VIOLATIONS)
            if (task.out / VIOLATIONS).exists():
                task.keep(task.out / VIOLATIONS)
        except Exception as error:  # noqa: BLE001 whatever goes wrong, the others' are written
            verifier.check_spark(error)
            run = task.question.run
            say(order.shown(f"{run}: its violations are not written: {one_line(error)}"))


def _measure(order: Order, verifier: Verifier, breaches: Mapping[str, tuple[Breach, ...]]) -> None:
    """Measure the runs without defects, and write the metrics beside each verdict. A run that
    cannot be measured has none."""
    from stormcast.pipeline.measure import measure_in_halves  # noqa: PLC0415 it needs PySpark

    say("measuring")
    measured, failed = measure_in_halves(verifier.sound_events, verifier.sound)
    for task in order.tasks:
        run = task.question.run
        try:
            if run in measured:
                metrics = replace(measured[run], breaches=breaches.get(run, ()))
                metrics.write(task.out / METRICS)
                task.keep(task.out / METRICS)
        except Exception as error:  # noqa: BLE001 whatever it was, the others have theirs
            failed[run] = one_line(error)
        if run in failed:
            say(order.shown(f"{run} has no metrics: {failed[run]}; its verdict stands"))


def _report(order: Order) -> None:
    """Have a report made of each run, with metrics or without."""
    for task in order.tasks:
        try:
            order.on_measured(task)
        except Exception as error:  # noqa: BLE001 a report that fails must not take the others along
            say(order.shown(f"{task.question.run} has no report: {one_line(error)}"))


def exit_code(judgements: Sequence[Judgement]) -> Exit:
    """Return the exit code of the worst verdict."""
    worst = max((judgement.verdict for judgement in judgements), default=None)
    return Exit.of(worst)


def tell(
    order: Order, judgements: Sequence[Judgement], unwritten: Mapping[str, str] | None = None
) -> None:
    """Print the results: a JSON object per run and line, or text. `unwritten` says by run why its
    verdict is not written."""
    failed = unwritten or {}
    for task, judgement in zip(order.tasks, judgements, strict=True):
        why = failed.get(task.question.run)
        where = f"written to {task.place}" if why is None else f"not written: {why}"
        if order.as_json:
            print(json.dumps(judgement.as_json()))
            if why is not None:
                say(order.shown(f"{task.question.run} is {where}"))
        elif not order.is_brief or str(judgement.verdict) != "holds" or why is not None:
            # Line by line: a line break in a name must not make another line.
            print("\n".join(map(order.shown, [*_in_words(judgement), where])))
    # What comes now may take minutes, or end this process.
    sys.stdout.flush()


def _in_words(judgement: Judgement) -> list[str]:
    lines = [f"{judgement.question.run}: {judgement.verdict}"]
    for finding in judgement.findings:
        by = "" if finding.by == "spark" else "  (when it ran)"
        lines.append(f"{finding.guarantee:<4}{finding.verdict!s:<9} {finding.detail}{by}")
        lines += (f"      {event}" for event in finding.witness)
    if judgement.not_judged:
        lines.append(f"not judged here: {' '.join(judgement.not_judged)}")
    return lines
