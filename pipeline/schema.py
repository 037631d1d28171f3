"""The columns of a trace as Parquet: version 1 of the contract in docs/trace-format.md."""

from __future__ import annotations

from typing import Final

from pyspark.sql.types import (
    DataType,
    DoubleType,
    IntegerType,
    LongType,
    StringType,
    StructField,
    StructType,
    TimestampType,
)

SCHEMA_NAME: Final = "trace-events"
SCHEMA_VERSION: Final = "1"
"""Another version has other columns, so its files are refused."""

TYPES: Final[dict[str, DataType]] = {
    "string": StringType(),
    "int32": IntegerType(),
    "int64": LongType(),
    "double": DoubleType(),
    "timestamp[us, tz=UTC]": TimestampType(),
}
"""By name of a type in the contract: the type in Spark."""

COLUMNS: Final = (
    ("run", "string"),
    ("member", "string"),
    ("name", "string"),
    ("incarnation", "string"),
    ("short_id", "int64"),
    ("number", "int64"),
    ("time", "double"),
    ("wall_time", "timestamp[us, tz=UTC]"),
    ("kind", "string"),
    ("protocol", "string"),
    ("stream", "int32"),
    ("stream_word", "string"),
    ("peer", "int64"),
    ("peer_member", "string"),
    ("conn", "int64"),
    ("epoch", "int64"),
    ("view", "int64"),
    ("count", "int64"),
    ("lo", "int64"),
    ("hi", "int64"),
    ("bytes", "int64"),
    ("digest", "int64"),
    ("trim", "int64"),
    ("flags", "int32"),
    ("text", "string"),
    # Older files, without events of applications, lack this column: it is read as null.
    ("version", "int32"),
)

EVENTS: Final = StructType([StructField(name, TYPES[kind]) for name, kind in COLUMNS])
"""One row per event."""
