"""What a small job costs: planning, not work. These keep it low."""

from __future__ import annotations

import re
import shutil
import subprocess
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from pyspark.sql import functions

from stormcast.pipeline.session import FOR_FEW, SERIALIZED, SMALL, settings
from stormcast.pipeline.tables.kept import given, keep

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pyspark.sql import DataFrame, SparkSession

SCHEMA = "run STRING, at DOUBLE, number BIGINT, names ARRAY<STRING>"
ROWS = [("one", 0.5, 3, ["a", "b"]), ("two", None, None, None)]


@pytest.fixture
def one_partition(spark: SparkSession) -> Iterator[SparkSession]:
    before = {key: spark.conf.get(key) for key in FOR_FEW}
    for key, value in FOR_FEW.items():
        spark.conf.set(key, value)
    yield spark
    for key, value in before.items():
        spark.conf.set(key, value)


def _plan(table: DataFrame) -> str:
    return str(table._jdf.queryExecution().executedPlan().toString())


def test_given_rows_are_a_table(spark: SparkSession) -> None:
    table = given(spark, ROWS, SCHEMA)

    assert [tuple(row) for row in table.orderBy("run").collect()] == ROWS
    assert table.dtypes[3] == ("names", "array<string>")


def test_no_rows_are_a_table_too(spark: SparkSession) -> None:
    assert given(spark, [], SCHEMA).collect() == []


def test_what_is_made_of_an_empty_table_is_left_out(spark: SparkSession) -> None:
    table = keep(given(spark, ROWS, SCHEMA))
    nothing = keep(table.where("number > 5"))

    joined = table.join(nothing.select("run"), "run")
    assert "Join" not in _plan(joined)
    assert "Scan ExistingRDD" not in _plan(joined)
    assert keep(joined).collect() == []
    assert keep(table.unionByName(nothing)).count() == len(ROWS)


def test_rows_of_a_kept_table_are_not_serialized(spark: SparkSession) -> None:
    """Java would write each of them, and read it again whenever a check reads the table."""
    context: Any = spark.sparkContext._jsc
    before = set(context.getPersistentRDDs())
    table = keep(given(spark, ROWS, SCHEMA))
    after = context.getPersistentRDDs()
    levels = [after[number].getStorageLevel() for number in after if number not in before]
    assert [level.deserialized() for level in levels] == [True]
    assert table.count() == len(ROWS)


def test_nobody_looks_up_who_made_a_table(spark: SparkSession) -> None:
    table: Any = given(spark, ROWS, SCHEMA)
    assert len(table.collect()) == len(ROWS), "PySpark sets a site of its own for that"
    assert table._jdf.queryExecution().toRdd().creationSite().shortForm() == "stormcast"


def test_an_empty_table_keeps_its_columns(spark: SparkSession) -> None:
    table = given(spark, ROWS, SCHEMA)

    nothing = keep(table.where("number > 5"))

    assert nothing.dtypes == table.dtypes
    for _again in range(20):
        nothing = keep(nothing.unionByName(nothing).where("number > 5"))
    assert str(nothing._jdf.queryExecution().analyzed()).count("\n") <= 1


def test_rows_in_one_partition_are_joined_and_sorted_without_a_shuffle(
    one_partition: SparkSession,
) -> None:
    table = keep(given(one_partition, ROWS, SCHEMA))

    last = table.groupBy("run").agg(functions.max("at").alias("last"))
    assert "Exchange" not in _plan(table.join(last, "run", how="left"))


@pytest.fixture
def asked(spark: SparkSession, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """What the JVM is asked from now on, but what it may forget."""
    asked: list[str] = []
    context: Any = spark.sparkContext
    client = context._gateway._gateway_client
    send = client.send_command

    def counted(command: str, *rest: Any) -> Any:
        if not command.startswith("m"):
            asked.append(command)
        return send(command, *rest)

    monkeypatch.setattr(client, "send_command", counted)
    return asked


def test_a_name_is_looked_up_once(asked: list[str]) -> None:
    functions.upper(functions.col("run"))
    asked.clear()
    functions.col("run")
    assert asked == []
    functions.upper(functions.col("run"))
    assert len(asked) == 1


@pytest.mark.parametrize("columns", [1, 5, 10])
def test_a_short_list_is_made_at_once(spark: SparkSession, asked: list[str], columns: int) -> None:
    """One call makes it, one makes a sequence of it, and one selects."""
    table = given(spark, ROWS, SCHEMA)
    again = [functions.col("number").alias(f"c{place}") for place in range(columns)]
    table.select(*again)
    asked.clear()
    table.select(*again)
    assert len([command for command in asked if command[0] in "ci"]) == 3


@pytest.mark.parametrize("values", [[1], ["a", "b"], list(range(11)), [None, "a"], [], [[1], [2]]])
def test_a_list_is_the_same_however_it_is_made(spark: SparkSession, values: list[Any]) -> None:
    java: Any = spark.sparkContext._jvm
    assert str(java.java.util.ArrayList(values)) == str(values)


@pytest.mark.parametrize(("rows", "least"), [(SMALL, 128), (SMALL + 1, 512)])
def test_java_has_room_for_all_that_a_batch_compiles(rows: int, least: int) -> None:
    """With the simple compiler alone it has 48 MB, which the 53 runs of a chaos-test fill: then it
    compiles no more, and says so among the words for the user. What is compiled for millions of
    events fills the usual 240 MB, is thrown out, and compiled again."""
    asked = settings("local[*]", rows, "/nowhere", Path("/nowhere"))
    flags = asked["spark.driver.extraJavaOptions"].split()
    java = shutil.which("java")
    assert java is not None
    said = subprocess.run(
        [java, *flags, "-XX:+PrintFlagsFinal", "-version"],
        capture_output=True,
        text=True,
        check=True,
    ).stdout
    size = re.search(r"ReservedCodeCacheSize\s*=\s*(\d+)", said)
    assert size is not None
    assert int(size[1]) >= least << 20


@pytest.mark.parametrize("rows", [SMALL, SMALL + 1])
def test_java_is_not_asked_for_two_garbage_collectors(
    rows: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It would not start."""

    def flags(more: dict[str, str]) -> str:
        asked = settings("local[*]", rows, "/nowhere", Path("/nowhere"), more=more)
        return asked["spark.driver.extraJavaOptions"]

    other = "-Xlog:disable -XX:+UseG1GC"
    assert "GC" in flags({})
    assert "GC" not in flags({"spark.driver.defaultJavaOptions": other})
    monkeypatch.setenv("JAVA_TOOL_OPTIONS", other)
    assert "GC" not in flags({})


@pytest.mark.parametrize(
    ("rows", "master", "more", "are_serialized"),
    [
        (SMALL, "local[*]", {"spark.driver.memory": "1g"}, False),
        (900_000, "local[2]", {"spark.driver.memory": "4g"}, False),
        (1_100_000, "local[2]", {"spark.driver.memory": "4g"}, True),
        (1_100_000, "local[2]", {"spark.driver.memory": "8192m"}, False),
        (1_100_000, "local[2]", {"spark.driver.memory": "8192"}, False),
        (400_000, "local[2]", {"spark.driver.memory": "1g"}, True),
        (400_000, "local[2]", {"spark.driver.memory": "much"}, True),
        (400_000, "spark://host:7077", {}, True),
        (400_000, "spark://host:7077", {"spark.driver.memory": "16g"}, True),
        (400_000, "spark://host:7077", {"spark.executor.memory": "2g"}, False),
    ],
)
def test_tables_are_serialized_where_they_would_not_fit_into_the_memory_of_a_worker(
    rows: int, master: str, more: dict[str, str], are_serialized: bool
) -> None:
    asked = settings(master, rows, "/nowhere", Path("/nowhere"), more=more)
    assert asked[SERIALIZED] == str(are_serialized).lower()


@pytest.mark.parametrize("is_serialized", [True, False])
def test_kept_tables_are_as_the_session_says(spark: SparkSession, is_serialized: bool) -> None:
    before = spark.conf.get(SERIALIZED)
    spark.conf.set(SERIALIZED, str(is_serialized).lower())
    try:
        kept = keep(spark.range(3).withColumn("twice", functions.col("id") * 2))
    finally:
        spark.conf.set(SERIALIZED, before)
    level = kept._jdf.queryExecution().logical().rdd().getStorageLevel()
    assert level.deserialized() != is_serialized
    assert level.useDisk()
    assert [row.twice for row in kept.orderBy("id").collect()] == [0, 2, 4]


def test_only_what_is_kept_already_is_left_as_it_is(spark: SparkSession) -> None:
    """Rows that Python has are a plan without steps, too, but made anew whenever they are read."""
    rows = spark.createDataFrame(ROWS, SCHEMA)
    kept = keep(rows)

    assert kept is not rows
    assert keep(kept) is kept
