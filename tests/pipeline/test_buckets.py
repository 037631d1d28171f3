"""Numberings that are cut into buckets are looked up as whole ones are, and by all cores."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import pytest
from pyspark.sql.functions import col, lit, spark_partition_id, when

from bench.large_run import make
from stormcast.pipeline import files, measure, metrics
from stormcast.pipeline.tables import Tables, by_kind
from stormcast.pipeline.tables.buckets import Buckets

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("for_many")]

PLACED = ("run", "receiver", "number", "kind", "sender", "dest", "conn", "entry", "is_genuine")


@pytest.fixture(scope="module")
def events(for_many: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> DataFrame:
    """One sender, whose batches of twenty are lost and repaired now and then."""
    directory = tmp_path_factory.mktemp("skewed") / "run" / "parquet"
    make(directory, 4_000, senders=1)
    return files.read(for_many, files.find(directory))


def placed(tables: Tables) -> set[tuple[object, ...]]:
    batch = col("batch.number").alias("batch")
    return {tuple(row) for row in tables.messages.placed.select(*PLACED, batch).collect()}


def test_each_point_has_the_same_batch_in_buckets(
    events: DataFrame, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Buckets of 32 seqnos: most batches of twenty straddle two sooner or later."""
    whole = placed(Tables(events))
    tables = Tables(events)
    monkeypatch.setattr(by_kind, "MANY", 1_000)
    monkeypatch.setattr(by_kind, "Buckets", lambda widest: Buckets(widest, least=5))
    assert tables._by_kind.buckets is not None
    assert tables._by_kind.buckets.bits == 5
    cut = placed(tables)

    assert len(whole) > 1_000
    assert any(row[-1] is not None for row in whole)
    assert cut == whole


def test_what_nobody_sent_has_no_batch_in_buckets(
    events: DataFrame, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The batch before a gap is in the same bucket, and does not reach so far."""
    gap = (col("kind") == "sent") & (col("lo") == 201)
    gone = events.where(~gap)
    whole = placed(Tables(gone))
    tables = Tables(gone)
    monkeypatch.setattr(by_kind, "MANY", 1_000)
    monkeypatch.setattr(by_kind, "Buckets", lambda widest: Buckets(widest, least=7))
    cut = placed(tables)

    assert sum(row[-1] is None for row in whole) >= 5
    assert cut == whole


def test_deliveries_are_timed_alike_in_buckets(events: DataFrame) -> None:
    # Of each batch the second half is delivered: where it straddles, it is in another bucket than
    # the begin of the batch.
    second = when(col("kind") == "delivered", col("lo") + 10).otherwise(col("lo"))
    ones = events.where(col("kind").isin("sent", "delivered")).withColumn("lo", second)
    timed = ones.withColumn("at", col("time")).withColumn("bin", lit(0))
    whole = sorted(map(str, metrics.deliveries(timed).collect()))
    cut = sorted(map(str, metrics.deliveries(timed, Buckets(19, least=5)).collect()))
    assert any("sent_at=None" not in row for row in whole)
    assert cut == whole


def test_a_run_is_measured_alike_in_buckets(
    events: DataFrame, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole, used = measure.measure_runs(events, ["run"]), []

    def made(widest: int) -> Buckets:
        used.append(widest)
        return Buckets(widest, least=5)

    monkeypatch.setattr(measure, "MANY", 1_000)
    monkeypatch.setattr(measure, "Buckets", made)
    assert shown(measure.measure_runs(events, ["run"])) == shown(whole)
    assert used == [19]


def shown(measured: object) -> str:
    """All of it. A mean has other last digits where its sum was made in another order."""
    return re.sub(r"\d+\.\d+(e-?\d+)?", lambda one: f"{float(one[0]):.9g}", repr(measured))


@pytest.mark.parametrize(("widest", "bits"), [(0, 16), (19, 16), (65_535, 16), (1 << 40, 41)])
def test_no_batch_is_wider_than_a_bucket(widest: int, bits: int) -> None:
    buckets = Buckets(widest)
    assert buckets.bits == bits
    assert 1 << buckets.bits > widest


def parts_of(tables: Tables) -> int:
    """In how many parts the batches of one stream are looked up."""
    is_of_stream = col("is_multicast") & (col("sender") == 0xA0) & (col("kind") == "delivered")
    points = tables.messages.receiving.where(is_of_stream)
    placed = tables.messages._beside_batches(points.withColumn("dest", lit(0)), lit(0))
    # Spark looks nothing up for whom no batch is asked for.
    found = placed.where(col("is_genuine")).select(spark_partition_id().alias("part"))
    return found.distinct().count()


def test_all_cores_look_up_one_stream(events: DataFrame, monkeypatch: pytest.MonkeyPatch) -> None:
    assert parts_of(Tables(events)) == 1
    monkeypatch.setattr(by_kind, "MANY", 1_000)
    monkeypatch.setattr(by_kind, "Buckets", lambda widest: Buckets(widest, least=5))
    assert parts_of(Tables(events)) > 1
