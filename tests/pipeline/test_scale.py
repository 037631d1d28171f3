"""Checks are linear: no join multiplies rows, and a large sound run is sound."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import pytest
from pyspark.sql.functions import col

from bench.large_run import make
from stormcast.pipeline import files
from stormcast.pipeline.checks.g1_no_loss import no_loss
from stormcast.pipeline.checks.g3_fifo import fifo
from stormcast.pipeline.checks.g8_back_in_time import back_in_time
from stormcast.pipeline.guarantees import CHECKS
from stormcast.pipeline.questions import Arrivals, Expectations, OneView
from stormcast.pipeline.tables import Tables
from stormcast.pipeline.tables.kept import keep
from tests.oracles.story import Story
from tests.pipeline.batch import export_run, write_run

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark import StorageLevel
    from pyspark.sql import DataFrame, SparkSession


pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("for_many")]

LOOKS_AHEAD = re.compile(r"specifiedwindowframe\(\w+, (?!unboundedpreceding)[^,]*, unboundedfollow")


@pytest.fixture(scope="module")
def tables(for_many: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Tables:

    directory = tmp_path_factory.mktemp("large") / "run" / "parquet"
    assert make(directory, 10_000) > 9_000
    return Tables(files.read(for_many, files.find(directory)))


def test_many_events_are_read_and_kept_in_several_parts(
    for_many: SparkSession, tmp_path: Path
) -> None:
    """Else one core, of one worker, would have all that is made of them."""
    make(tmp_path / "run" / "parquet", 10_000)
    events = files.read(for_many, files.find(tmp_path / "run" / "parquet"))
    assert keep(events).rdd.getNumPartitions() > 1


def test_no_plan_multiplies_rows(tables: Tables, monkeypatch: pytest.MonkeyPatch) -> None:

    plans: dict[str, str] = {}
    kind = type(tables.events)
    compute = kind.localCheckpoint

    def watched(table: DataFrame, **options: StorageLevel) -> DataFrame:
        plan = table._jdf.queryExecution().executedPlan()
        plans[f"{len(plans)}"] = plan.toString()
        return compute(table, **options)

    monkeypatch.setattr(kind, "localCheckpoint", watched)
    for check in [*CHECKS.values(), _in_time]:
        keep(check(tables))

    assert len(plans) > len(CHECKS) + 1
    for plan in plans.values():
        assert "CartesianProduct" not in plan
        assert "NestedLoop" not in plan
        # Python code, or a frame that looks ahead and is computed anew for each row.
        assert "PythonUDF" not in plan
        assert not LOOKS_AHEAD.search(plan)


def _in_time(tables: Tables) -> DataFrame:
    """G8, of a run that expects something of every kind."""
    awaited = (
        Arrivals(by=1.0, sources=("n0", "n1"), dests=("n0", "n1", "n2")),
        OneView(by=1.0, seen_by=("n0",), members=("n0", "n1")),
    )
    return back_in_time(tables, {"run": Expectations(awaited=awaited, asks_one_group=True)})


def _shuffled(spark: SparkSession) -> int:
    """How many rows have gone from stage to stage so far."""
    context = spark.sparkContext
    store = context._jsc.sc().statusStore()
    no_quantiles = context._gateway.new_array(context._jvm.double, 0)
    stages = store.stageList(None, False, False, no_quantiles, None)
    return sum(stages.apply(index).shuffleWriteRecords() for index in range(stages.size()))


def test_a_connection_that_is_used_again_and_again_multiplies_no_rows(
    spark: SparkSession, tmp_path: Path
) -> None:
    """300 lives of one sender entry, under one connection id: each delivery is of the life of its
    time, of the one before, or of none of them."""
    story, lives = Story(), 300
    for life in range(lives):
        at, epoch, digest = 1.0 + life, life + 1, 10 * life
        story.at(at).opens()
        for seqno in (1, 2, 3):
            story.sends(seqno, digest=digest + seqno)
        story.at(at + 0.1).listens(epoch=epoch)
        if life % 2:
            story.delivers(3, epoch=epoch - 1, digest=0 if life == 7 else digest - 7)
        for seqno in (1, 2, 3)[: 3 - (life + 1) % 2]:
            story.delivers(seqno, epoch=epoch, digest=digest + seqno)
        story.acks(2, epoch=epoch).at(at + 0.2).purges(1, 2).at(at + 0.3).removes()
    directory = export_run(write_run(story.told(), tmp_path / "run"))
    tables = Tables(files.read(spark, files.find(directory)))
    events = tables.events.count()
    before = _shuffled(spark)
    delivered = tables.messages.delivered.orderBy("number").collect()

    assert _shuffled(spark) - before < 10 * events
    assert len(delivered) == 3 * lives
    for row in delivered:
        assert row.entry == row.epoch - 1 or not row.is_genuine
    assert [row.epoch for row in delivered if not row.is_genuine] == [7]


def test_a_large_sound_run_is_sound_and_one_lost_range_is_found(
    tables: Tables,
) -> None:

    assert no_loss(tables).count() == 0
    assert fifo(tables).count() == 0

    is_one = (
        (col("kind") == "delivered")
        & (col("short_id") == 0xA1)
        & (col("peer") == 0xA0)
        & (col("protocol") == "NAKACK2")
        & (col("lo") == 201)
    )
    lossy = Tables(tables.events.where(~is_one))
    (lost,) = no_loss(lossy).collect()
    assert lost.detail.startswith("multicast 201 was never delivered by n1")
    (skipped,) = fifo(lossy).collect()
    assert skipped.detail == "multicast 221 was delivered after 200, and 201 was not"


def test_of_a_large_run_one_range_that_is_not_handed_over_is_found(tables: Tables) -> None:
    is_one = (
        (col("kind") == "handed")
        & (col("short_id") == 0xA1)
        & (col("peer") == 0xA0)
        & (col("protocol") == "NAKACK2")
        & (col("lo") == 201)
    )
    (lost,) = no_loss(Tables(tables.events.where(~is_one))).collect()
    assert lost.detail == "201 was delivered, and the application was never handed it"
