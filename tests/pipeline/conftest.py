"""One Spark for all tests of the pipeline, and the runs that are told by hand, in two batches."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from stormcast.pipeline import files, session
from stormcast.pipeline.guarantees import CHECKS
from stormcast.pipeline.judgement import Judgement
from stormcast.pipeline.load import load, sort_out
from stormcast.pipeline.questions import Budget, CannotError, Question
from stormcast.pipeline.schema import EVENTS
from stormcast.pipeline.tables import Tables
from stormcast.pipeline.verdict import Verifier
from tests.oracles.corpus import Case
from tests.oracles.sentence_corpus import CASES
from tests.pipeline.batch import export_run, write_batch, write_run
from tests.pipeline.doubtful import OTHERS, QUESTIONS, UNKNOWN

_NOT_WORTH_IT = (
    "spark.sql.adaptive.enabled",
    "spark.sql.codegen.wholeStage",
    "spark.sql.codegen.factoryMode",
)


@pytest.fixture(scope="session")
def spark() -> Iterator[SparkSession]:
    """Set up as for a large job, by a Java that compiles well what it runs often, but without the
    generated code that takes longer than the tests; skipped where Spark cannot run."""
    logging.getLogger("DataFrameQueryContextLogger").setLevel(logging.CRITICAL)
    try:
        session.check_java()
    except CannotError as why:
        pytest.skip(str(why))
    with session.spark_session("local[2]", rows=session.SMALL + 1) as running:
        running.conf.set("spark.sql.shuffle.partitions", "2")
        for name in _NOT_WORTH_IT:
            running.conf.set(name, session.FOR_FEW[name])
        yield running


@pytest.fixture(scope="session")
def judgements(
    spark: SparkSession, tmp_path_factory: pytest.TempPathFactory
) -> dict[str, Judgement]:
    """The corpus of the oracles, judged in one go, by name."""
    directory = tmp_path_factory.mktemp("corpus")
    batch = write_batch(((case.name, case.blocks) for case in CASES.values()), directory / "batch")
    events = spark.read.schema(EVENTS).parquet(str(batch))
    tables, defects = sort_out(events, {}, {})
    return _judged(tables, defects, [_question(case, batch) for case in CASES.values()])


@pytest.fixture(scope="session")
def doubts(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Judgement]:
    """The doubtful runs, judged in one go, by name."""
    questions = list(_doubtful(tmp_path_factory.mktemp("doubtful")))
    traces = files.find_all({question.run: question.traces for question in questions})
    return _judged(*load(spark, traces), questions)


def _judged(
    tables: Tables, defects: files.Defects, questions: list[Question]
) -> dict[str, Judgement]:
    found = Verifier(tables, questions, lambda _text: None).judge(defects)
    return {judgement.question.run: judgement for judgement in found}


def _question(case: Case, batch: Path) -> Question:
    asked = case.budget
    budget = (
        Budget(acks=asked.acks, resends=asked.resends, syncs=asked.syncs, requests=asked.requests)
        if asked is not None
        else None
    )
    return Question(run=case.name, traces=batch, guarantees=tuple(CHECKS), budget=budget)


def _doubtful(directory: Path) -> Iterator[Question]:
    told = {name: blocks for name, (blocks, _why) in UNKNOWN.items()} | OTHERS
    for name, blocks in told.items():
        traces = export_run(write_run(blocks, directory / name))
        yield replace(Question(run=name, traces=traces), **QUESTIONS.get(name, {}))
