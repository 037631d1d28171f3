"""Both judges find the same guarantees broken in recorded runs of which one event was changed."""

from __future__ import annotations

from pathlib import Path

import pytest
from pyspark.sql import SparkSession
from xxhash import xxh3_64_intdigest

from stormcast.chaos.oracles.evidence import Evidence
from stormcast.chaos.oracles.verdict import judge
from stormcast.pipeline import files
from stormcast.pipeline.guarantees import CHECKS
from stormcast.pipeline.load import load
from stormcast.pipeline.questions import Question
from stormcast.pipeline.verdict import Verifier
from tests.helpers.trace_mutants import TraceMutant, mutants
from tests.pipeline.batch import export_run, write_run

pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("for_many")]

SEED, NUMBER = 20, 25
MORE = range(21, 24)


def verdicts_of(mutant: TraceMutant) -> dict[str, str]:
    """What the oracles say of it, by guarantee."""
    evidence = Evidence.from_blocks(mutant.blocks, xxh3_64_intdigest)
    judgement = judge(evidence, tuple(CHECKS), min_bites=0)
    return {
        one.guarantee: str(one.verdict) for one in judgement.findings if one.guarantee in CHECKS
    }


def disagreements(spark: SparkSession, seed: int, number: int, folder: Path) -> dict[str, str]:
    """Judge mutants twice; for each on which the judges disagree, what each says."""
    made = {mutant.name: mutant for mutant in mutants(seed, number)}
    exported = {
        name: export_run(write_run(mutant.blocks, folder / name)) for name, mutant in made.items()
    }
    questions = [
        Question(run=name, traces=traces, guarantees=tuple(CHECKS), min_bites=0)
        for name, traces in exported.items()
    ]
    tables, defects = load(spark, files.find_all(exported))
    found = {}
    for judgement in Verifier(tables, questions, lambda _text: None).judge(defects):
        name = judgement.question.run
        theirs, ours = judgement.verdicts(), verdicts_of(made[name])
        differ = [
            f"{one}: {ours.get(one)} by the oracles, {theirs.get(one)} by Spark"
            for one in CHECKS
            if ours.get(one) != theirs.get(one)
        ]
        if differ:
            found[name] = "; ".join(differ)
    return found


@pytest.mark.parametrize(
    "seed", [SEED, *(pytest.param(seed, marks=pytest.mark.long) for seed in MORE)]
)
def test_two_judges_agree_on_changed_traces(spark: SparkSession, seed: int, tmp_path: Path) -> None:
    assert disagreements(spark, seed, NUMBER, tmp_path) == {}
