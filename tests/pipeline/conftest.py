"""One Spark for all tests of the pipeline, and the runs that are told by hand, in two batches."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from stormcast.pipeline import files, session
from stormcast.pipeline.guarantees import CHECKS
from stormcast.pipeline.judgement import Judgement
from stormcast.pipeline.load import load, sort_out
from stormcast.pipeline.questions import CannotError, Question
from stormcast.pipeline.schema import EVENTS
from stormcast.pipeline.tables import Tables, by_kind
from stormcast.pipeline.verdict import Verifier
from tests.oracles.corpus import Case
from tests.oracles.sentence_corpus import CASES
from tests.pipeline.batch import budget_of, export_run, write_batch, write_run
from tests.pipeline.doubtful import OTHERS, QUESTIONS, UNKNOWN

FOR_MANY = {
    "spark.sql.shuffle.partitions": "2",
    "spark.sql.maxSinglePartitionBytes": "128m",
    "spark.sql.autoBroadcastJoinThreshold": "10MB",
    "spark.sql.optimizer.disableHints": "false",
}
"""How large jobs shuffle and join. Not their generated code, which takes longer than the tests."""


@pytest.fixture(scope="session")
def spark() -> Iterator[SparkSession]:
    """As for small runs, but with a Java that compiles well what it runs often; skipped where Spark
    cannot run."""
    logging.getLogger("DataFrameQueryContextLogger").setLevel(logging.CRITICAL)
    try:
        session.check_java()
    except CannotError as why:
        pytest.skip(str(why))
    with session.spark_session("local[2]", rows=session.SMALL + 1) as running:
        for name, value in session.FOR_FEW.items():
            running.conf.set(name, value)
        yield running


@contextmanager
def as_for_many(spark: SparkSession) -> Iterator[None]:
    before = {name: spark.conf.get(name) for name in FOR_MANY}
    for name, value in FOR_MANY.items():
        spark.conf.set(name, value)
    try:
        yield
    finally:
        for name, was in before.items():
            spark.conf.set(name, str(was))


@pytest.fixture(scope="module")
def for_many(spark: SparkSession) -> Iterator[SparkSession]:
    """Spark, whose plans in this module are as those of large jobs."""
    with as_for_many(spark):
        yield spark


@pytest.fixture(scope="session")
def judgements(
    spark: SparkSession, tmp_path_factory: pytest.TempPathFactory
) -> dict[str, Judgement]:
    """The corpus of the oracles, judged in one go, by name; each kind of events is in its part."""
    directory = tmp_path_factory.mktemp("corpus")
    batch = write_batch(((case.name, case.blocks) for case in CASES.values()), directory / "batch")
    events = spark.read.schema(EVENTS).parquet(str(batch))
    with as_for_many(spark), pytest.MonkeyPatch.context() as patch:
        patch.setattr(by_kind, "FEW", 0)
        tables, defects = sort_out(events, {}, {})
        return _judged(tables, defects, [_question(case, batch) for case in CASES.values()])


@pytest.fixture(scope="session")
def doubts(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Judgement]:
    """The doubtful runs, judged in one go, by name."""
    questions = list(_doubtful(tmp_path_factory.mktemp("doubtful")))
    traces = files.find_all({question.run: question.traces for question in questions})
    with as_for_many(spark):
        return _judged(*load(spark, traces), questions)


def _judged(
    tables: Tables, defects: files.Defects, questions: list[Question]
) -> dict[str, Judgement]:
    found = Verifier(tables, questions, lambda _text: None).judge(defects)
    return {judgement.question.run: judgement for judgement in found}


def _question(case: Case, batch: Path) -> Question:
    return Question(run=case.name, traces=batch, guarantees=tuple(CHECKS), budget=budget_of(case))


def _doubtful(directory: Path) -> Iterator[Question]:
    told = {name: blocks for name, (blocks, _why) in UNKNOWN.items()} | OTHERS
    for name, blocks in told.items():
        traces = export_run(write_run(blocks, directory / name))
        yield replace(Question(run=name, traces=traces), **QUESTIONS.get(name, {}))
