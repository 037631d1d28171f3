"""Finds the run for which something crashes that is done for all runs at once."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

from pyspark.sql import SparkSession

from stormcast.pipeline.questions import CannotError, one_line

Runs = tuple[str, ...]
T = TypeVar("T")


class SparkLost(CannotError):
    """Spark went away: what failed says nothing of the runs."""

    def __init__(self) -> None:
        super().__init__(
            "Spark went away (was it killed, or out of memory?): run stormcast verify again, with "
            "fewer runs at a time if it ends so again"
        )


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
    """Raise SparkLost if Spark does not answer any more, or was stopped, which explains `error`."""
    try:
        # The cheapest question that a stopped context refuses.
        _cores = spark.sparkContext.defaultParallelism
    except Exception:  # noqa: BLE001 whatever it says instead of an answer
        raise SparkLost from error
