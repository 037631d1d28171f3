"""The events of a kind are the same, whether they are looked up among all or in a part of them."""

from __future__ import annotations

import random
from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession

from stormcast.pipeline.schema import EVENTS
from stormcast.pipeline.tables import by_kind
from stormcast.pipeline.tables.by_kind import EventsByKind
from stormcast.pipeline.tables.kept import keep

pytestmark = pytest.mark.slow

COUNTS = {"sent": 40, "delivered": 90, "view": 2, "start": 3, "conn": 1}


@pytest.fixture(scope="module")
def events(spark: SparkSession) -> DataFrame:
    kinds = [kind for kind, count in COUNTS.items() for _each in range(count)]
    random.Random(3).shuffle(kinds)
    rows = [_event(spark, kind, number) for number, kind in enumerate(kinds)]
    return keep(spark.createDataFrame(rows, EVENTS))


def _event(spark: SparkSession, kind: str, number: int) -> tuple[Any, ...]:
    schema = spark.createDataFrame([], EVENTS).schema
    told: dict[str, Any] = {
        "run": "r",
        "member": "n1",
        "short_id": 7,
        "number": number,
        "time": 0.5,
        "kind": kind,
    }
    return tuple(told.get(name) for name in schema.fieldNames())


@pytest.mark.parametrize(
    "kinds",
    [
        ("sent",),
        ("sent", "delivered"),
        ("view", "conn"),
        ("view",),
        ("conn", "delivered"),
        ("sent", "view", "start", "delivered"),
        ("gauge",),
        ("gauge", "sent"),
    ],
    ids="-".join,
)
@pytest.mark.parametrize(
    ("few", "many"), [(0, 1000), (0, 1), (1000, 2000)], ids=["in parts", "rare apart", "in one"]
)
def test_of_some_kinds_there_is_each_event_once(
    events: DataFrame, kinds: tuple[str, ...], few: int, many: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(by_kind, "FEW", few)
    monkeypatch.setattr(by_kind, "MANY", many)
    found = EventsByKind(events).of(*kinds)

    assert "wall_time" not in found.columns
    told = sorted((row.number, row.kind) for row in found.collect())
    wanted = [row for row in events.collect() if row.kind in kinds]
    assert told == sorted((row.number, row.kind) for row in wanted)
    assert len(told) == sum(COUNTS.get(kind, 0) for kind in kinds)


def test_of_many_events_only_what_is_rare_is_kept_twice(
    events: DataFrame, monkeypatch: pytest.MonkeyPatch
) -> None:
    """And of few nothing is. Rare kinds are together."""
    asked: list[int] = []
    monkeypatch.setattr(by_kind, "keep", lambda table: (asked.append(1), keep(table))[1])
    for few, many, parts in ((1000, 10_000, 0), (0, 50, 1), (0, 10_000, 3)):
        monkeypatch.setattr(by_kind, "FEW", few)
        monkeypatch.setattr(by_kind, "MANY", many)
        asked.clear()
        some = EventsByKind(events)
        for kind in COUNTS:
            some.of(kind).collect()
        assert len(asked) == parts
