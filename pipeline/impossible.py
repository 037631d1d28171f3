"""Finds what no member can say in its trace, whose run then proves nothing.

What checks conclude rests on arithmetic with times, seqnos and bounds, which must neither fail nor
pass over a value. The corpus has one trace for each reason (`tests/oracles/impossible.py`).
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from math import isnan
from typing import Any

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from stormcast.pipeline import words


def records(events: DataFrame) -> DataFrame:
    """Find traces with records that cannot be, or not at their place: run, detail."""
    number, time, lo, hi = (F.col(name) for name in ("number", "time", "lo", "hi"))
    named = F.format_string("event %s (%s)", number.cast("string"), F.col("kind"))
    is_finite = time.isNotNull() & ~F.isnan(time) & (F.abs(time) < words.INFINITY)
    fits = F.lit(True)
    for column in ("lo", "hi", "count", "view"):
        fits = fits & F.col(column).isNotNull() & F.col(column).between(0, words.MOST)
    why = (
        F.when(number.isNull() | F.col("kind").isNull(), F.lit("an event without number or kind"))
        .when(~is_finite, F.concat(named, F.lit(" is at "), _in_words("time")))
        .when(~fits, F.concat(named, F.lit(" has a number that is too large")))
        .when(
            (lo > hi) & F.col("kind").isin(*words.RANGES),
            F.concat(named, F.lit(" ends before it begins")),
        )
    )
    is_stop, is_view = F.col("kind") == "stop", F.col("kind") == "view"
    traces = events.withColumn("why", why).groupBy("run", "member").agg(
        F.min(F.when(F.col("why").isNotNull(), F.struct("number", "why"))).alias("first"),
        F.min(F.when(is_stop, number)).alias("stopped"),
        F.max("number").alias("last"),
        F.collect_set(F.when(F.col("view") != 0, F.col("view"))).alias("named"),
        F.collect_set(F.when(is_view, lo.bitwiseAND(words.VIEW_MASK))).alias("had"),
    )  # fmt: skip  # a column a line
    detail = F.coalesce(
        F.col("first.why"),
        F.when(
            F.col("last") > F.col("stopped"),
            F.format_string("event %s comes after the member's end", F.col("stopped") + 1),
        ),
        F.when(
            F.size(F.array_except("named", "had")) > 0,
            F.lit("an event is of a view that the member never had"),
        ),
    )
    label = F.coalesce("member", F.lit("somebody"))
    return traces.where(detail.isNotNull()).select(
        "run", F.concat(label, F.lit(": "), detail).alias("detail")
    )


def _in_words(time: str) -> Column:
    return F.lower(F.coalesce(F.col(time).cast("string"), F.lit("no time")))


def settings(events: DataFrame) -> Iterator[tuple[str, str]]:
    """Yield run and reason for each member whose first event does not say its settings as it
    should. There is one row for each member, so they are read here."""
    first = events.where((F.col("number") == 0) & (F.col("kind") == "start"))
    for row in first.select("run", "member", "text").orderBy("run", "member").collect():
        _name, _space, rest = (row.text or "").partition(" ")
        _identity, space, told = rest.partition(" ")
        if not space:
            continue  # It does not begin with its start: that is another defect.
        try:
            _check_settings(json.loads(told))
        except (ValueError, TypeError, AttributeError, RecursionError) as error:
            yield row.run, f"{row.member}: '{told[:40]}' does not say what it should: {error}"


def _check_settings(told: dict[str, Any]) -> None:
    """Raise an error unless settings are an object, and every bound is a number, or null."""
    _check_bounds(told)
    for values in (told.get("protocols") or {}).values():
        _check_bounds(values)
        interval = values.get("xmit_interval")
        if interval is not None:
            float(interval)


def _check_bounds(told: dict[str, Any]) -> None:
    for name, value in (told.get("bounds") or {}).items():
        is_number = isinstance(value, int | float) and not isinstance(value, bool)
        if value is not None and (not is_number or isnan(value) or value < 0):
            raise ValueError(f"bound {name} is {value!r}")
