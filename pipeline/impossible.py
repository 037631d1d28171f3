"""Finds what no member can say in its trace, whose run then proves nothing.

What checks conclude rests on arithmetic with times, seqnos and bounds, which must neither fail nor
pass over a value. The corpus has one trace for each reason (`tests/oracles/impossible.py`).
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from math import isfinite, isnan
from typing import Any, Final, NamedTuple

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from stormcast.pipeline import words

ALWAYS: Final = ("kind", "number", "member", "short_id", "stream", "peer", "conn", "epoch", "bytes",
                 "digest", "trim", "flags")  # fmt: skip  # a list of words
"""Columns that each event has a value in, besides those that are checked for their range."""


def records(events: DataFrame) -> DataFrame:
    """Find traces with records that cannot be, or not at their place: run, detail."""
    number, time, lo, hi = (F.col(name) for name in ("number", "time", "lo", "hi"))
    named = F.format_string("event %s (%s)", number.cast("string"), F.col("kind"))
    is_finite = time.isNotNull() & ~F.isnan(time) & (F.abs(time) < words.INFINITY)
    fits = F.lit(True)
    for column in ("lo", "hi", "count", "view", "number"):
        fits = fits & F.col(column).isNotNull() & F.col(column).between(0, words.MOST)
    is_lacking = F.lit(False)
    for column in ALWAYS:
        is_lacking = is_lacking | F.col(column).isNull()
    lacking = F.concat_ws(
        ", ", *(F.when(F.col(column).isNull(), F.lit(column)) for column in ALWAYS)
    )
    why = (
        F.when(is_lacking, F.concat(F.lit("an event without "), lacking))
        .when(~is_finite, F.concat(named, F.lit(" is at "), _in_words("time")))
        .when(~fits, F.concat(named, F.lit(" has a number that is too large")))
        .when(
            (lo > hi) & F.col("kind").isin(*words.RANGES),
            F.concat(named, F.lit(" ends before it begins")),
        )
        .when(
            _is_counted() & (F.col("count") != hi - lo + 1),
            F.concat(named, F.lit(" has another count than its range")),
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


def _is_counted() -> Column:
    """Whether an event is of as many messages as it has seqnos: one without a protocol has none,
    and a joined message is one."""
    is_joined = (F.col("kind") == "handed") & (F.col("stream") == words.JOINED)
    return F.col("kind").isin(*words.COUNTED) & F.col("protocol").isNotNull() & ~is_joined


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
        except (ValueError, TypeError, AttributeError, OverflowError, RecursionError) as error:
            yield row.run, f"{row.member}: '{told[:40]}' does not say what it should: {error}"


def _check_settings(told: dict[str, Any]) -> None:
    """Raise an error unless settings are an object, and so is what they say of flaws, and every
    bound is a number, or null."""
    _check_bounds(told)
    _check_flaws(told)
    for values in (told.get("protocols") or {}).values():
        _check_bounds(values)
        _check_flaws(values)
        interval, copies = values.get("xmit_interval"), values.get("copies")
        if interval is not None:
            float(interval)
        if copies is not None and not _whole(0, _COPIES)(copies):
            raise ValueError(f"copies is {str(copies)[:20]!r}")


def _check_flaws(told: dict[str, Any]) -> None:
    flaws = told.get("historical")
    # Spark reads what is no object as nothing, which would be no flaw.
    if flaws is not None and not isinstance(flaws, dict):
        raise ValueError(f"historical is {str(flaws)[:20]!r}")


def _check_bounds(told: dict[str, Any]) -> None:
    for name, value in (told.get("bounds") or {}).items():
        is_number = isinstance(value, int | float) and not isinstance(value, bool)
        if value is not None and (not is_number or isnan(value) or value < 0):
            raise ValueError(f"bound {name} is {value!r}")


# -- What the rig says -----------------------------------------------------------------------------

_SHORT: Final = (1 << 32) - 1
"""The largest short id."""
_COPIES: Final = 1_000_000
"""More copies of a frame than any fault makes; sums of so many fit 64 bits."""


class _Field(NamedTuple):
    """What a field of a text may be."""

    is_valid: Callable[[object], bool]
    is_needed: bool = False


def _is_text(value: object) -> bool:
    return isinstance(value, str)


def _is_seconds(value: object) -> bool:
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    return is_number and isfinite(value) and value >= 0  # type: ignore[arg-type, operator]


def _whole(least: int, most: int) -> Callable[[object], bool]:
    return lambda value: type(value) is int and least <= value <= most


_RIG: Final[dict[str, Mapping[str, _Field]]] = {
    "fault": {
        "id": _Field(_is_text, is_needed=True),
        "do": _Field(_is_text, is_needed=True),
        "phase": _Field(lambda value: value in ("on", "off"), is_needed=True),
        "member": _Field(_whole(0, _SHORT)),
        "copies": _Field(_whole(0, _COPIES)),
        "attribute": _Field(_is_text),
        "late": _Field(_is_seconds),
        "within": _Field(_is_seconds),
    },
    "probe": {
        "id": _Field(_is_text, is_needed=True),
        "do": _Field(_is_text, is_needed=True),
        "bit": _Field(_whole(0, words.MOST), is_needed=True),
    },
    "exit": {
        "name": _Field(_is_text, is_needed=True),
        "ordered": _Field(lambda value: isinstance(value, bool), is_needed=True),
        "incarnation": _Field(_whole(1, words.MOST)),
        "signal": _Field(_whole(-words.MOST, words.MOST)),
        "code": _Field(_whole(-words.MOST, words.MOST)),
        "member": _Field(_whole(0, _SHORT)),
        "why": _Field(_is_text),
    },
}
"""By kind of event: what is read of its text. Null is the same as nothing."""


def rig(events: DataFrame) -> Iterator[tuple[str, str]]:
    """Yield run and reason for each event of the rig whose text does not say what it should. There
    are about as many as a scenario has steps, so they are read here."""
    rows = events.where((F.col("short_id") == words.RIG) & F.col("kind").isin(*_RIG))
    for row in rows.select("run", "member", "kind", "text").orderBy("run", "number").collect():
        text = row.text or ""
        try:
            told = json.loads(text)
            _check_text(told, _RIG[row.kind])
            if row.kind == "exit":
                _check_end(told)
        except (ValueError, OverflowError, RecursionError) as error:
            label = row.member or "somebody"
            yield row.run, f"{label}: '{text[:40]}' does not say what it should: {error}"


def _check_text(told: object, fields: Mapping[str, _Field]) -> None:
    """Raise an error unless a text is an object, and each of its fields is what it may be."""
    if not isinstance(told, dict):
        raise ValueError("it is no object")
    for name, field in fields.items():
        value = told.get(name)
        if value is None and field.is_needed:
            raise ValueError(f"it has no {name}")
        if value is not None and not field.is_valid(value):
            raise ValueError(f"{name} is {str(value)[:20]!r}")


def _check_end(told: Mapping[str, Any]) -> None:
    """Raise an error if a process ended that nobody ordered to, and nothing says how."""
    if not told["ordered"] and told.get("signal") is None and told.get("code") is None:
        raise ValueError("it has neither signal nor code")
