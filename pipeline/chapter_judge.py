"""Judges chapters of a soak by the code of `stormcast verify`, some of them together, and leaves
nothing of them in memory."""

from __future__ import annotations

import gc
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

from pyspark.sql import SparkSession

from stormcast.findings import Finding, Verdict
from stormcast.pipeline import cli, files
from stormcast.pipeline.chapters import ChapterVerdict, Manifest, not_judged
from stormcast.pipeline.evidence import digest_of
from stormcast.pipeline.halves import check_spark
from stormcast.pipeline.judgement import Judgement
from stormcast.pipeline.load import load
from stormcast.pipeline.questions import Question, one_line
from stormcast.pipeline.verdict import Verifier

ABSENT: Final = "its directory is not there"
TORN: Final = "its traces are not those that were announced: a file is missing, cut or changed"

Ask = Callable[[Path, str], Question]
"""Returns the question about a run directory of this name; raises if it cannot be read."""


class ChapterJudge:
    """Judges chapters of one soak."""

    def __init__(
        self,
        spark: SparkSession,
        folder: Path,
        ask: Ask,
        shown: Callable[[str], str],
        on_progress: Callable[[str], None],
    ) -> None:
        self._spark = spark
        self._folder = folder
        self._ask = ask
        self._shown = shown
        self._on_progress = on_progress

    def judge(self, manifests: Sequence[Manifest]) -> list[ChapterVerdict]:
        """Return the verdict on each of these chapters. Those that do not hold have it in their
        directories as well, with all violations."""
        by_name = {one.name: one for one in manifests}
        tasks, whys = list[cli.Task](), dict[str, str]()
        for name, manifest in by_name.items():
            task, why = self._task(manifest)
            if task is None:
                whys[name] = why
            else:
                tasks.append(task)
        judgements, crashes = self._judge(tasks)
        found = {name: self._verdict(by_name[name], one) for name, one in judgements.items()}
        for name, why in (whys | crashes).items():
            found[name] = not_judged(by_name[name], why, time.time())
        return [found[name] for name in by_name]

    def _task(self, manifest: Manifest) -> tuple[cli.Task | None, str]:
        """Return what is to be judged; None where it cannot be, and the reason."""
        if manifest.odd:
            return None, manifest.odd
        directory = self._folder / manifest.name
        if not directory.is_dir():
            return None, ABSENT
        try:
            if digest_of(directory) != manifest.digest:
                return None, TORN if directory.is_dir() else ABSENT
            question = self._ask(directory, manifest.name)
        except Exception as error:  # noqa: BLE001 whatever is in its files, it spoils no other one
            return None, f"it cannot be read: {one_line(error)}"
        return cli.Task(question=question, directory=directory), ""

    def _judge(self, tasks: Sequence[cli.Task]) -> tuple[dict[str, Judgement], dict[str, str]]:
        """Judge some chapters together; if that crashes, each alone. Returns the judgements, and
        why others could not be judged, by name."""
        if not tasks:
            return {}, {}
        try:
            return self._together(tasks), {}
        except Exception as error:  # noqa: BLE001 what crashes for one is tried without it
            check_spark(self._spark, error)
            self._on_progress("again, one by one")
            if len(tasks) == 1:
                return {}, {tasks[0].question.run: f"it cannot be judged: {one_line(error)}"}
        judged, crashed = dict[str, Judgement](), dict[str, str]()
        for task in tasks:
            some, why = self._judge([task])
            judged |= some
            crashed |= why
        return judged, crashed

    def _together(self, tasks: Sequence[cli.Task]) -> dict[str, Judgement]:
        questions = [task.question for task in tasks]
        with nothing_kept(self._spark):
            found = files.find_all({one.run: one.traces for one in questions})
            tables, defects = load(self._spark, found)
            self._on_progress("loaded")
            verifier = Verifier(tables, questions, self._on_progress)
            judgements = verifier.judge(defects)
            self._on_progress("judged")
            self._keep_evidence(tasks, verifier, judgements)
        return {one.question.run: one for one in judgements}

    def _keep_evidence(
        self, tasks: Sequence[cli.Task], verifier: Verifier, judgements: Sequence[Judgement]
    ) -> None:
        """Write the verdicts that do not hold beside the traces, as `stormcast verify` does."""
        pairs = [
            (task, judgement)
            for task, judgement in zip(tasks, judgements, strict=True)
            if judgement.verdict is not Verdict.HOLDS and task.directory.is_dir()
        ]
        some = [task for task, _judgement in pairs]
        bad = [judgement for _task, judgement in pairs]
        order = cli.Order(tasks=some, shown=self._shown)
        for run, why in cli.write_verdicts(some, bad):
            cli.say(self._shown(f"{run}: its verdict is not written beside its traces: {why}"))
        cli.write_violations(order, verifier, bad)

    def _verdict(self, manifest: Manifest, judgement: Judgement) -> ChapterVerdict:
        """Return the line on a chapter that was judged."""
        now = time.time()
        is_unknown = judgement.verdict is Verdict.UNKNOWN
        if is_unknown and not (self._folder / manifest.name).is_dir():
            # It was dropped while it was read: that is why, whatever Spark made of it.
            return not_judged(manifest, ABSENT, now)
        return ChapterVerdict(
            chapter=manifest.chapter,
            first=manifest.first,
            verdict=str(judgement.verdict),
            own=manifest.own,
            agrees=str(judgement.verdict) == manifest.own and _agree(judgement),
            judged=True,
            findings=tuple(one.as_json() for one in judgement.findings if not one.holds),
            digest=manifest.digest,
            ended=manifest.ended,
            at=now,
        )


def _agree(judgement: Judgement) -> bool:
    """Whether both judges found the same guarantees violated."""
    return _violated(judgement.question.own) == _violated(judgement.findings)


def _violated(findings: Sequence[Finding]) -> set[str]:
    return {one.guarantee for one in findings if one.verdict is Verdict.VIOLATED}


# -- Memory ----------------------------------------------------------------------------------------


@contextmanager
def nothing_kept(spark: SparkSession) -> Iterator[None]:
    """Have Spark forget, at the end of the block, each table that was computed in it."""
    before = set(_kept(spark))
    try:
        yield
    finally:
        for number, table in _kept(spark).items():
            if number not in before:
                table.unpersist(False)
        # What no table keeps any more (shuffles, broadcasts, plans), the JVM drops once it has
        # noticed, and Python must have let go before.
        gc.collect()
        jvm: Any = spark.sparkContext._jvm  # noqa: SLF001 there is no public way
        jvm.System.gc()


def _kept(spark: SparkSession) -> Mapping[int, Any]:
    """Return the tables that Spark keeps, by number."""
    return dict(spark.sparkContext._jsc.getPersistentRDDs())  # noqa: SLF001 as above
