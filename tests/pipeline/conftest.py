"""One Spark for all tests of the pipeline, and one batch of runs: all that are told by hand."""

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
from stormcast.pipeline.load import sort_out
from stormcast.pipeline.questions import Budget, CannotError, Question
from stormcast.pipeline.schema import EVENTS
from stormcast.pipeline.verdict import Verifier
from tests.oracles.corpus import Case
from tests.oracles.sentence_corpus import CASES
from tests.pipeline.batch import export_run, write_batch, write_run
from tests.pipeline.doubtful import OTHERS, QUESTIONS, UNKNOWN


@pytest.fixture(scope="session")
def spark() -> Iterator[SparkSession]:
    """Two cores and two shuffle partitions, as large jobs have them, but without the generated code
    that takes longer than the tests; skipped where Spark cannot run."""
    logging.getLogger("DataFrameQueryContextLogger").setLevel(logging.CRITICAL)
    try:
        session.check_java()
    except CannotError as why:
        pytest.skip(str(why))
    with session.spark_session("local[2]", rows=0) as running:
        running.conf.set("spark.sql.shuffle.partitions", "2")
        running.conf.set("spark.sql.optimizer.disableHints", "false")
        running.conf.set("spark.sql.autoBroadcastJoinThreshold", "10MB")
        yield running


@pytest.fixture(scope="session")
def judgements(
    spark: SparkSession, tmp_path_factory: pytest.TempPathFactory
) -> dict[str, Judgement]:
    """The corpus of the oracles and the doubtful runs, judged in one go, by name."""
    directory = tmp_path_factory.mktemp("runs")
    batch = write_batch(((case.name, case.blocks) for case in CASES.values()), directory / "corpus")
    questions = [_question(case, batch) for case in CASES.values()]
    doubtful = list(_doubtful(directory / "doubtful"))
    traces = files.find_all({question.run: question.traces for question in doubtful})
    told, unreadable = files.read_all(spark, traces)
    events = told.unionByName(spark.read.schema(EVENTS).parquet(str(batch)))
    tables, defects = sort_out(events, traces, unreadable)
    verifier = Verifier(tables, [*questions, *doubtful], lambda _text: None)
    found = verifier.judge(defects)
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
