"""Checks are linear: no join multiplies rows, and a large sound run is sound."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import pytest
from pyspark.sql.functions import col

from stormcast.pipeline import files
from stormcast.pipeline.checks.g1_no_loss import no_loss
from stormcast.pipeline.checks.g3_fifo import fifo
from stormcast.pipeline.tables import Tables
from stormcast.pipeline.tables.kept import keep
from stormcast.pipeline.verdict import CHECKS
from tests.helpers.large_run import make

if TYPE_CHECKING:
    from pyspark import StorageLevel
    from pyspark.sql import DataFrame, SparkSession


pytestmark = pytest.mark.slow

LOOKS_AHEAD = re.compile(r"specifiedwindowframe\(\w+, (?!unboundedpreceding)[^,]*, unboundedfollow")


@pytest.fixture(scope="module")
def tables(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Tables:

    directory = tmp_path_factory.mktemp("large") / "run" / "parquet"
    assert make(directory, 10_000) > 9_000
    return Tables(files.read(spark, files.find(directory)))


def test_no_plan_multiplies_rows(tables: Tables, monkeypatch: pytest.MonkeyPatch) -> None:

    plans: dict[str, str] = {}
    kind = type(tables.events)
    compute = kind.localCheckpoint

    def watched(table: DataFrame, **options: StorageLevel) -> DataFrame:
        plan = table._jdf.queryExecution().executedPlan()
        plans[f"{len(plans)}"] = plan.toString()
        return compute(table, **options)

    monkeypatch.setattr(kind, "localCheckpoint", watched)
    for check in CHECKS.values():
        keep(check(tables))

    assert len(plans) > len(CHECKS)
    for plan in plans.values():
        assert "CartesianProduct" not in plan
        assert "NestedLoop" not in plan
        # Python code, or a frame that looks ahead and is computed anew for each row.
        assert "PythonUDF" not in plan
        assert not LOOKS_AHEAD.search(plan)


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
