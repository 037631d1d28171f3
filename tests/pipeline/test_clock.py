"""Members of several hosts are put on the clock of their rig."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Final

import pytest
from pyspark.sql import DataFrame, SparkSession

from stormcast.pipeline import words
from stormcast.pipeline.schema import EVENTS
from stormcast.pipeline.tables.clock import on_one_clock

pytestmark = pytest.mark.slow

BEGAN: Final = datetime(2026, 1, 1, tzinfo=UTC)
RIG: Final = (words.RIG, 100.0, 0.0)
"""Short id, the time of its first event on its own clock, and how many seconds later it began."""


def _events(spark: SparkSession, *members: tuple[int, float, float]) -> DataFrame:
    rows = []
    for short, first, later in members:
        for number in range(3):
            wall = BEGAN + timedelta(seconds=later + number)
            rows.append(("r", f"m{short}", short, number, first + number, wall, "sent"))
    columns = ["run", "member", "short_id", "number", "time", "wall_time", "kind"]
    fields = {field.name: field for field in spark.createDataFrame([], EVENTS).schema}
    types = (f"{name} {fields[name].dataType.simpleString()}" for name in columns)
    return spark.createDataFrame(rows, ", ".join(types))


def _times(events: DataFrame) -> dict[int, list[float]]:
    found: dict[int, list[float]] = {}
    for row in on_one_clock(events).orderBy("number").collect():
        found.setdefault(row.short_id, []).append(round(row.time, 6))
    return found


def test_a_clock_that_began_at_another_moment_is_shifted(spark: SparkSession) -> None:
    """Of two members, one is on a host that has run for another time than that of the rig."""
    found = _times(_events(spark, RIG, (1, 7.0, 2.0), (2, 103.0, 3.2)))

    assert found == {
        words.RIG: [100.0, 101.0, 102.0],
        1: [102.0, 103.0, 104.0],
        2: [103.0, 104.0, 105.0],
    }


def test_clocks_that_agree_are_left_as_they_are(spark: SparkSession) -> None:
    found = _times(_events(spark, RIG, (1, 102.3, 2.0)))

    assert found == {words.RIG: [100.0, 101.0, 102.0], 1: [102.3, 103.3, 104.3]}
