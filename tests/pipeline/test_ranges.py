"""Ranges on Spark: literal rows, and beside the oracles' own arithmetic on many drawn ones."""

from __future__ import annotations

import random
from typing import TYPE_CHECKING, NamedTuple

import pytest

from stormcast.chaos.oracles.coverage import first_gap
from stormcast.pipeline.checks.g2_once import repeats
from stormcast.pipeline.ranges import first_gaps, gaps, total_upto, with_last

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("for_many")]


class Part(NamedTuple):
    lo: int
    hi: int


def _parts(spark: SparkSession, *rows: tuple[str, int, int]) -> DataFrame:
    return spark.createDataFrame(rows, "key STRING, lo BIGINT, hi BIGINT")


def _wanted(spark: SparkSession, *rows: tuple[str, int, int]) -> DataFrame:
    return spark.createDataFrame(rows, "key STRING, first BIGINT, last BIGINT")


def test_what_no_part_covers_is_a_gap(spark: SparkSession) -> None:
    parts = _parts(spark, ("a", 1, 3), ("a", 2, 5), ("a", 8, 9), ("b", 1, 9))
    wanted = _wanted(spark, ("a", 1, 12), ("b", 1, 9), ("c", 4, 5))

    found = {tuple(row) for row in gaps(parts, wanted, ["key"]).collect()}
    assert found == {("a", 6, 7), ("a", 10, 12), ("c", 4, 5)}


def test_what_lies_outside_covers_nothing(spark: SparkSession) -> None:
    parts = _parts(spark, ("a", 1, 4), ("a", 9, 12))
    found = gaps(parts, _wanted(spark, ("a", 4, 9)), ["key"]).collect()

    assert [tuple(row) for row in found] == [("a", 5, 8)]


def test_the_first_gap_is_the_one_that_the_oracles_find(spark: SparkSession) -> None:
    chance = random.Random(7)
    drawn = {
        f"case {index}": (
            Part(lo := chance.randrange(1, 20), lo + chance.randrange(12)),
            [
                Part(at := chance.randrange(1, 30), at + chance.randrange(8))
                for _ in range(chance.randrange(8))
            ],
        )
        for index in range(300)
    }
    parts = _parts(spark, *((key, *part) for key, (_, some) in drawn.items() for part in some))
    wanted = _wanted(spark, *((key, *want) for key, (want, _) in drawn.items()))

    found = {row.key: row.gap for row in first_gaps(parts, wanted, ["key"]).collect()}
    for key, (want, some) in drawn.items():
        assert found.get(key) == first_gap(want.lo, want.hi, some), (want, some)  # type: ignore[arg-type]


def test_the_last_mark_at_or_before_a_point_is_its_own(spark: SparkSession) -> None:
    points = spark.createDataFrame(
        [("a", "p1", 1), ("a", "p5", 5), ("b", "p9", 9)], "key STRING, point STRING, at BIGINT"
    )
    marks = spark.createDataFrame(
        [("a", 2, 1, "m2"), ("a", 5, 1, "m5"), ("a", 5, 2, "m5 again"), ("a", 7, 1, "m7")],
        "key STRING, at BIGINT, turn INT, mark STRING",
    )
    found = with_last(points, marks, ["key"], "mark").collect()

    assert {row.point: row.mark for row in found} == {"p1": None, "p5": "m5 again", "p9": None}


def test_weights_add_up_to_a_point(spark: SparkSession) -> None:
    points = spark.createDataFrame([("a", 1), ("a", 5), ("a", 9)], "key STRING, at BIGINT")
    marks = spark.createDataFrame(
        [("a", 2, 1, 3), ("a", 5, 1, 4), ("a", 6, 1, 5)],
        "key STRING, at BIGINT, turn INT, weight INT",
    )
    found = total_upto(points, marks, ["key"], "total").collect()

    assert sorted(row.total for row in found) == [0, 7, 12]


def test_of_four_deliveries_two_share_a_seqno(spark: SparkSession) -> None:
    rows = [("r", 1, 5, 10, 1), ("r", 6, 8, 11, 1), ("r", 4, 4, 12, 1), ("r", 9, 9, 13, 1)]
    delivered = spark.createDataFrame(
        [(*row, float(row[3])) for row in rows],
        "run STRING, lo BIGINT, hi BIGINT, number BIGINT, epoch BIGINT, time DOUBLE",
    )
    (found,) = repeats(delivered, ["run"]).collect()

    assert (found.first.number, found.again.number, found.shared) == (10, 12, 4)
