"""G6, purge safety: a sender purges no seqno before its receivers have it."""

from __future__ import annotations

from typing import Final

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from stormcast.pipeline.checks import g6_multicast
from stormcast.pipeline.tables import Tables
from stormcast.pipeline.violations import event, union, violations

GUARANTEE: Final = "G6"


def purge_safety(tables: Tables) -> DataFrame:
    """Find purges of seqnos that a receiver had later, or never."""
    if not tables.occurring.of_group("purged"):
        return _unicast(tables)
    return union(_unicast(tables), g6_multicast.purged_early(tables, GUARANTEE))


def _unicast(tables: Tables) -> DataFrame:
    early = tables.purges.early
    late = F.col("late").isNotNull()
    ahead = F.col("late.time") - F.col("time")
    return violations(
        early,
        GUARANTEE,
        time="time",
        detail=F.when(
            late,
            F.format_string("seqno %d was purged %.6fs before it was delivered", "seqno", ahead),
        ).otherwise(F.format_string("seqno %d was purged and never delivered", "seqno")),
        witness=[
            event("sender", "batch.number"),
            event("sender", "number"),
            event("dest", "late.number"),
        ],
    )
