"""Does several things on Spark side by side: most of their time goes into planning, which takes one
core, and into waiting."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from typing import Final, TypeVar

from pyspark.sql import SparkSession

from stormcast.pipeline.gateway import spare_call_sites

T = TypeVar("T")

AT_ONCE: Final = 3
"""As many things at once: more of them hold more rows in memory, and gain nothing on two cores."""


def side_by_side(spark: SparkSession, works: Mapping[str, Callable[[], T]]) -> dict[str, T]:
    """Do all of this, the first ones first, and return what it returned, in the order given. If one
    raises, so does this, and what has not begun is left; what has begun is not waited for."""
    pool = ThreadPoolExecutor(AT_ONCE, "judge", initializer=spare_call_sites, initargs=(spark,))
    try:
        begun = {name: pool.submit(work) for name, work in works.items()}
        done = {name: one.result() for name, one in begun.items()}
    except BaseException:
        pool.shutdown(wait=False, cancel_futures=True)
        raise
    pool.shutdown()
    return done
