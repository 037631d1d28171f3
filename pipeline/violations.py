"""The result of every check: one row per violation, with the events that prove it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from stormcast.pipeline.tables import Tables
from stormcast.pipeline.tables.kept import given

Check = Callable[[Tables], DataFrame]
"""Finds all violations of one guarantee."""
_RESULT: Final = """
    run STRING, guarantee STRING, member BIGINT, position BIGINT, time DOUBLE, detail STRING,
    witness ARRAY<STRUCT<member: BIGINT, number: BIGINT>>
"""


def event(member: str | Column, number: str | Column) -> Column:
    """Return a reference to an event: the member, and the event's number in its trace."""
    member = F.col(member) if isinstance(member, str) else member
    number = F.col(number) if isinstance(number, str) else number
    return F.struct(member.alias("member"), number.cast("bigint").alias("number"))


def violations(
    rows: DataFrame,
    guarantee: str,
    *,
    time: str | Column,
    detail: Column,
    witness: list[Column],
) -> DataFrame:
    """Return the result of a check from its rows. `member` and `position` are those of the last
    witness; a null witness is left out."""
    time = F.col(time) if isinstance(time, str) else time
    shown = F.filter(F.array(*witness), lambda each: each["number"].isNotNull())
    return (
        rows.withColumn("witness", shown)
        .withColumn("culprit", F.try_element_at("witness", F.lit(-1)))
        .select(
            "run",
            F.lit(guarantee).alias("guarantee"),
            F.col("culprit.member").alias("member"),
            F.col("culprit.number").alias("position"),
            time.alias("time"),
            detail.alias("detail"),
            "witness",
        )
    )


def nothing(tables: Tables) -> DataFrame:
    """Return the result of a check whose records do not occur."""
    return given(tables.events.sparkSession, [], _RESULT)


def union(*parts: DataFrame) -> DataFrame:
    """Join several results."""
    first, *rest = parts
    for part in rest:
        first = first.unionByName(part)
    return first


def with_name(rows: DataFrame, tables: Tables, short: str, name: str) -> DataFrame:
    """Add the shown name of a member to rows; its short id if it is unknown."""
    shown = tables.members.incarnations.select(
        "run", F.col("short_id").alias(short), F.col("shown").alias(name)
    )
    return rows.join(F.broadcast(shown), ["run", short], how="left").withColumn(
        name, F.coalesce(name, F.lower(F.hex(short)))
    )


def plain(value: str | Column) -> Column:
    """Format a number without trailing zeros."""
    return F.regexp_replace(F.format_string("%.6f", value), r"\.?0+$", "")
