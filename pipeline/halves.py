"""Finds the run for which something crashes that is done for all runs at once."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, TypeVar

from pyspark.sql import SparkSession

from stormcast.pipeline.questions import CannotError, one_line

Runs = tuple[str, ...]
T = TypeVar("T")


class SparkLost(CannotError):
    """Spark, or a part of it, went away: what failed says nothing of the runs."""


WENT_AWAY: Final = (
    "Spark went away (was it killed, or out of memory?): run stormcast verify again, with fewer "
    "runs at a time if it ends so again"
)
TABLES_LOST: Final = (
    "a worker of Spark was lost, and computed tables with it: run stormcast verify again, with "
    "--tables DIR on storage that all hosts see, which keeps them from being lost"
)
_GONE_WITH_A_WORKER: Final = ("CHECKPOINT_RDD_BLOCK_ID_NOT_FOUND", "Checkpoint block rdd_")
"""In what Spark says of a table that a lost worker kept: by name, and in words."""


def in_halves(
    spark: SparkSession,
    runs: Runs,
    work: Callable[[Runs], T],
    on_crash: Callable[[Runs], object] = lambda _runs: None,
) -> tuple[list[T], dict[str, str]]:
    """Do `work` for all runs together. If it crashes, do it for halves of them, until it crashes
    for one alone. Returns what it returned, and by run why it crashed; SparkLost if it was Spark
    that failed."""
    try:
        return [work(runs)], {}
    except Exception as error:  # noqa: BLE001 what crashes proves nothing, whatever it was
        check_spark(spark, error)
        if len(runs) <= 1:
            return [], dict.fromkeys(runs, one_line(error))
    on_crash(runs)
    half = len(runs) // 2
    first, crashed = in_halves(spark, runs[:half], work, on_crash)
    second, more = in_halves(spark, runs[half:], work, on_crash)
    return first + second, crashed | more


def check_spark(spark: SparkSession, error: Exception) -> None:
    """Raise SparkLost if Spark does not answer any more, or was stopped, or has lost a worker that
    kept tables, which explains `error`."""
    if any(word in str(error) for word in _GONE_WITH_A_WORKER):
        raise SparkLost(TABLES_LOST) from error
    try:
        # The cheapest question that a stopped context refuses.
        _cores = spark.sparkContext.defaultParallelism
    except Exception:  # noqa: BLE001 whatever it says instead of an answer
        raise SparkLost(WENT_AWAY) from error
