"""C1, the budget of a scenario: control traffic of a whole run must stay within it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from pyspark.sql import DataFrame, Window
from pyspark.sql import functions as F

from stormcast.pipeline import words
from stormcast.pipeline.questions import Budget
from stormcast.pipeline.tables import Tables
from stormcast.pipeline.tables.kept import given
from stormcast.pipeline.violations import event, plain, violations

_LIMITS: Final = "run STRING, kind STRING, what STRING, per_message BOOLEAN, allowed DOUBLE"


def over_budget(tables: Tables, budgets: Mapping[str, Budget], guarantee: str) -> DataFrame:
    """Find for each run and each limit of its budget the event that broke the limit."""
    limits = given(
        tables.events.sparkSession,
        [limit for run, budget in budgets.items() for limit in _limits(run, budget)],
        _LIMITS,
    )
    is_sent = F.col("kind") == "sent"
    sent = tables.events.groupBy("run").agg(
        F.sum(F.when(is_sent, F.col("count")).otherwise(0)).alias("messages")
    )
    limit = F.when(F.col("per_message"), F.col("allowed") * F.col("messages")).otherwise(
        F.col("allowed")
    )
    weight = F.when(F.col("kind") == "retransmitted", F.col("count")).otherwise(1)
    of_kind = Window.partitionBy("run", "kind")
    in_turn = of_kind.orderBy("time", "short_id", "number")
    counted = (
        tables.events.join(F.broadcast(limits), ["run", "kind"], how="inner")
        .join(F.broadcast(sent), "run", how="inner")
        .withColumn("limit", limit)
        .withColumn("weight", weight)
        .withColumn("total", F.sum("weight").over(of_kind))
        .where(F.col("total") > F.col("limit") + words.EPSILON)
        .withColumn("so_far", F.sum("weight").over(in_turn))
    )
    is_breaking = (F.col("so_far") > F.col("limit") + words.EPSILON) & (
        F.col("so_far") - F.col("weight") <= F.col("limit") + words.EPSILON
    )
    share = F.when(
        F.col("messages") > 0,
        F.format_string(" (%.3f per message)", F.try_divide("total", "messages")),
    ).otherwise("")
    said = F.when(
        F.col("per_message"), F.format_string("%s per message", plain("allowed"))
    ).otherwise(F.format_string("%.0f", "allowed"))
    return violations(
        counted.where(is_breaking),
        guarantee,
        time="time",
        detail=F.concat(
            F.format_string("%d %s for %d messages", "total", "what", "messages"),
            share,
            F.lit(": the budget is "),
            said,
        ),
        witness=[event("short_id", "number")],
    )


def _limits(run: str, budget: Budget) -> list[tuple[str, str, str, bool, float]]:
    told = (
        ("acked", "acks", True, budget.acks),
        ("retransmitted", "messages resent", True, budget.resends),
        ("sync", "syncs", False, budget.syncs),
        ("requested", "requests", False, budget.requests),
    )
    return [
        (run, kind, what, per_message, float(allowed))
        for kind, what, per_message, allowed in told
        if allowed is not None
    ]
