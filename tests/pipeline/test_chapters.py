"""Chapters of a soak, whose past is told by a prologue, are whole runs to Spark as well."""

from __future__ import annotations

from itertools import islice
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from stormcast.chaos.backends.sim.backend import SimBackend
from stormcast.chaos.language.cluster import Cluster
from stormcast.chaos.soak.player import Soak, Window
from stormcast.chaos.soak.storm import ALL, Storm
from stormcast.pipeline import files
from stormcast.pipeline.load import load
from stormcast.pipeline.questions import Question
from stormcast.pipeline.verdict import Verifier
from stormcast.verify import expectations_of
from tests.pipeline.batch import export_run, write_run

pytestmark = pytest.mark.slow

STACKS = ("udp", "mcast", "tcp-no-retransmit")


def windows(stack: str, folder: Path) -> list[Window]:
    """Three windows with large messages, restarts and partitions: two begin with a prologue."""
    cluster = Cluster(members=("n0", "n1", "n2"), stack=stack, timing="fast")
    sizes = ((16, 100), (30_000, 90_000))
    soak = Soak(Storm(cluster=cluster, window=20.0, sizes=sizes), 11, SimBackend(), folder)
    soak.open()
    return list(islice(soak.windows(), 3))


def test_spark_judges_chapters_as_the_oracles_do(spark: SparkSession, tmp_path: Path) -> None:
    questions, ours = [], {}
    for stack in STACKS:
        for window in windows(stack, tmp_path):
            name = f"{stack}-{window.number}"
            ours[name] = str(window.judgement.verdict)
            traces = export_run(write_run(window.run.traces, tmp_path / name))
            expected = expectations_of(window.scenario)
            questions.append(
                Question(run=name, traces=traces, guarantees=ALL, expected=expected, min_bites=0)
            )
    tables, defects = load(spark, files.find_all({one.run: one.traces for one in questions}))

    judged = Verifier(tables, questions, lambda _text: None).judge(defects)

    assert set(ours.values()) == {"holds"}
    for judgement in judged:
        bad = [one for one in judgement.findings if str(one.verdict) != "holds"]
        assert bad == [], judgement.question.run
