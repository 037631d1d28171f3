"""Keeps tables, so that they are computed once, however many checks read them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from importlib import import_module
from threading import RLock
from typing import Any, Generic, TypeVar

from pyspark import StorageLevel
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.types import StructType

from stormcast.pipeline.session import SERIALIZED

T = TypeVar("T")


class made_once(Generic[T]):  # noqa: N801 it is used as a decorator
    """A property that is made when it is first asked for: once, however many threads ask for it at
    one time. (Python's own lets each of them make it.)"""

    def __init__(self, make: Callable[[Any], T]) -> None:
        self._make = make
        self._name = make.__name__
        self.__doc__ = make.__doc__

    def __get__(self, owner: object, _kind: type | None = None) -> T:
        had = vars(owner)
        # A lock for each property of each owner: one may need others, and none needs itself.
        with had.setdefault(f"{self._name} is made by", RLock()):
            if self._name not in had:
                had[self._name] = self._make(owner)
        made: T = had[self._name]
        return made


def keep(table: DataFrame) -> DataFrame:
    """Compute a table now, and return it as the start of a new plan.

    Otherwise each plan would contain all plans before it, and most of the time of a small run would
    go into planning. A table without rows is returned as one that Spark knows to be empty: it then
    leaves out whatever is made of it. One that is kept already is returned as it is.
    """
    plan = _execution(table).optimizedPlan()
    if plan.nodeName() == "LogicalRDD" and plan.rdd().isCheckpointed():
        return table
    if _has_no_rows(plan):
        return _nothing_like(table)
    if table.sparkSession.conf.get("spark.sql.shuffle.partitions") == "1":
        # Spark knows then that all rows are together, and need no shuffle to be sorted or joined.
        table = table.coalesce(1)
    if table.sparkSession.sparkContext.getCheckpointDir() is not None:
        # In files that all hosts see: a worker that is lost takes nothing with it.
        kept = table.checkpoint()
    else:
        # As they are where there is room: else Java serializes each row, and reads it again.
        is_serialized = table.sparkSession.conf.get(SERIALIZED, "false") == "true"
        level = (
            StorageLevel.MEMORY_AND_DISK if is_serialized else StorageLevel.MEMORY_AND_DISK_DESER
        )
        kept = table.localCheckpoint(storageLevel=level)
    return _nothing_like(kept) if _execution(kept).toRdd().isEmpty() else kept


def is_known_to_be_empty(table: DataFrame) -> bool:
    """Whether the plan says that there are no rows: Spark computes nothing to find out."""
    return _has_no_rows(_execution(table).optimizedPlan())


def _has_no_rows(plan: Any) -> bool:  # noqa: ANN401 Py4J has no types
    return bool(plan.nodeName() == "LocalRelation" and plan.data().isEmpty())


def _nothing_like(table: DataFrame) -> DataFrame:
    """Return a table without rows and with the same columns, as the start of a new plan."""
    session: Any = table.sparkSession
    rows = session.sparkContext._jvm.java.util.ArrayList()  # noqa: SLF001 Python rows would take a job
    nothing = session._jsparkSession.createDataFrame(rows, table._jdf.schema())  # noqa: SLF001 as above
    return type(table)(nothing, session)


def _execution(table: DataFrame) -> Any:  # noqa: ANN401 Py4J has no types
    return table._jdf.queryExecution()  # noqa: SLF001 there is no public way to a plan


def given(session: SparkSession, rows: Sequence[Sequence[Any]], schema: str) -> DataFrame:
    """Make a table of rows that this process has. Arrow brings them to the JVM; of plain Python
    rows Spark would make a table by Python processes of its own."""
    arrow = import_module("pyarrow")
    fields: Any = StructType.fromDDL(schema)
    columns = zip(*rows, strict=True) if rows else ([] for _field in fields)
    arrays = [arrow.array(list(column)) for column in columns]
    table: Any = arrow.Table.from_arrays(arrays, fields.names)
    return session.createDataFrame(table, fields)
