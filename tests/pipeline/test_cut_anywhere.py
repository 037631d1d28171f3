"""Spark judges the chapters of a run that was cut anywhere as the oracles do."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import islice
from pathlib import Path
from random import Random
from typing import Final

import pytest
from pyspark.sql import SparkSession

from stormcast.chaos.oracles.verdict import CHECKS
from stormcast.findings import Finding
from stormcast.pipeline.load import sort_out
from stormcast.pipeline.questions import Question
from stormcast.pipeline.schema import EVENTS
from stormcast.pipeline.verdict import Verifier
from tests.oracles.corpus import Case
from tests.oracles.cut import Chapter, chapters_of
from tests.oracles.sentence_corpus import CASES
from tests.oracles.test_cut_anywhere import cuts_of
from tests.pipeline.batch import budget_of, write_batch

pytestmark = pytest.mark.slow

SOME: Final = 60
"""Runs that are cut in the test that always runs."""


def cut(case: Case) -> list[Chapter]:
    """The chapters of a run that is cut where it has the most of them."""
    found = (list(chapters_of(case.blocks, cuts, case.budget)) for cuts in cuts_of(case))
    return max(found, key=len)


def chapters(cases: list[Case]) -> Iterator[tuple[str, Case, Chapter, bool]]:
    """Each chapter by name, and whether it is the last: a budget is for that one."""
    for case in cases:
        found = cut(case)
        if len(found) > 1:
            for number, chapter in enumerate(found):
                yield f"{case.name}-{number}", case, chapter, chapter is found[-1]


def violated(findings: Sequence[Finding]) -> set[str]:
    return {one.guarantee for one in findings if str(one.verdict) == "violated"}


def judged_by_spark(
    spark: SparkSession, told: Mapping[str, tuple[Case, Chapter, bool]], folder: Path
) -> dict[str, set[str]]:
    batch = write_batch(((name, one.traces) for name, (_case, one, _last) in told.items()), folder)
    questions = [
        Question(
            run=name,
            traces=batch,
            guarantees=tuple(CHECKS),
            budget=budget_of(case) if is_last else None,
        )
        for name, (case, _chapter, is_last) in told.items()
    ]
    tables, defects = sort_out(spark.read.schema(EVENTS).parquet(str(batch)), {}, {})
    found = Verifier(tables, questions, lambda _text: None).judge(defects)
    return {one.question.run: violated(one.findings) for one in found}


@pytest.mark.parametrize("share", ["some", pytest.param("all", marks=pytest.mark.long)])
def test_spark_finds_in_each_chapter_what_the_oracles_find(
    for_many: SparkSession, tmp_path: Path, share: str
) -> None:
    cases = list(CASES.values())
    if share == "some":
        Random("cut").shuffle(cases)
    told = {name: (case, one, last) for name, case, one, last in chapters(cases)}
    if share == "some":
        told = dict(islice(told.items(), SOME))

    found = judged_by_spark(for_many, told, tmp_path / "batch")

    wrong = {
        name: (violated(chapter.judgement.findings), found[name])
        for name, (_case, chapter, _last) in told.items()
        if violated(chapter.judgement.findings) != found[name]
    }
    assert not wrong
    assert len(told) >= SOME
