"""Joins rows with the bounds that members promise by their settings."""

from __future__ import annotations

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from stormcast.pipeline import words
from stormcast.pipeline.tables import Tables


def with_promises(rows: DataFrame, tables: Tables, member: str) -> DataFrame:
    """Add to rows a member's promises (`promised`, `protocols`), and its start and end."""
    promises = tables.members.incarnations.select(
        "run", F.col("short_id").alias(member), "promised", "protocols", "started", "ended"
    )
    return rows.join(F.broadcast(promises), ["run", member], how="inner")


def of_unicast(bound: str) -> Column:
    """Return a bound of unicast; null if nothing is promised."""
    return F.col("promised")[bound]


def of_protocol(bound: str) -> Column:
    """Return a bound of the row's protocol; for unicast, or no protocol, the bound of unicast."""
    protocol = F.coalesce("protocol", F.lit("NONE"))
    has_settings = F.coalesce(F.map_contains_key("protocols", protocol), F.lit(False))
    is_unicast = protocol.isin("NONE", *words.UNICAST)
    return F.when(has_settings, F.col("protocols")[protocol]["bounds"][bound]).when(
        is_unicast, of_unicast(bound)
    )


def of_window(bound: str) -> Column:
    """Return a bound of a window: of unicast, or of its multicast protocol."""
    return F.when(F.col("is_multicast"), of_protocol(bound)).otherwise(of_unicast(bound))


def with_longest(
    rows: DataFrame, tables: Tables, hearers: DataFrame, key: list[str], bound: str
) -> DataFrame:
    """Make `within` the longest of what a row's member and all its hearers promise: where they
    answer each other, the slowest sets the pace. Rows without a hearer go, and those of which one
    promises nothing. `hearers` has for each row its key, its protocol, and `hearer`."""
    theirs = of_protocol(bound)
    longest = (
        with_promises(hearers, tables, "hearer")
        .groupBy(*key)
        .agg(F.max(theirs).alias("theirs"), F.min(theirs.isNotNull()).alias("all_promise"))
        .where("all_promise")
        .drop("all_promise")
    )
    both = rows.join(longest, key, how="inner")
    return both.withColumn("within", F.greatest("within", "theirs")).drop("theirs")


def unhindered(
    rows: DataFrame, tables: Tables, member: str, start: Column, end: Column
) -> DataFrame:
    """Keep rows whose member was neither paused, stalled nor gone at any time of `start..end`. Rows
    have the member's end as `ended`, and are identified by `run`, the member and `number`."""
    key = ["run", member, "number"]
    lived = rows.where(F.col("ended") > end)
    spans = tables.members.holds.select(
        "run",
        F.col("short_id").alias(member),
        F.col("start").alias("hold_start"),
        F.col("end").alias("hold_end"),
    )
    hindered = (
        lived.join(F.broadcast(spans), ["run", member], how="inner")
        .where((F.col("hold_start") <= end) & (F.col("hold_end") >= start))
        .select(*key)
    )
    return lived.join(hindered, key, how="left_anti")
