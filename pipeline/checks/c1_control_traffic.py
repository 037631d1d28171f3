"""C1, control traffic is bounded: syncs and requests are spaced, acks are few, and in the end there
is no traffic."""

from __future__ import annotations

from typing import Final

from pyspark.sql import DataFrame, Window
from pyspark.sql import functions as F

from stormcast.pipeline import words
from stormcast.pipeline.checks import (
    c1_ageing,
    c1_credits,
    c1_multicast,
    c1_requests,
    c1_resends,
)
from stormcast.pipeline.promises import of_protocol, of_unicast, unhindered, with_promises
from stormcast.pipeline.tables import Tables
from stormcast.pipeline.tables.records import is_multicast
from stormcast.pipeline.violations import event, plain, union, violations

GUARANTEE: Final = "C1"
TRAFFIC: Final = ("sent", "acked", "requested", "retransmitted", "sync")


def control_traffic(tables: Tables) -> DataFrame:
    """Find control traffic beyond what the members' own settings promise."""
    return union(
        _hasty_syncs(tables),
        *c1_requests.parts(tables),
        *c1_resends.parts(tables),
        *c1_multicast.parts(tables),
        *c1_credits.parts(tables),
        _not_quiet(tables),
        *c1_ageing.parts(tables),
    )


def _hasty_syncs(tables: Tables) -> DataFrame:
    in_turn = Window.partitionBy("run", "short_id", "peer").orderBy("number")
    syncs = tables.events.where((F.col("kind") == "sync") & ~is_multicast())
    apart = F.col("time") - F.col("before.time")
    found = with_promises(
        syncs.withColumn("before", F.lag(F.struct("number", "time")).over(in_turn)),
        tables,
        "short_id",
    ).where(apart < of_unicast("sync_spacing") - words.EPSILON)
    # A sync that a pause delayed is late, and the next one is in time: both are close together.
    begin = F.col("before.time") - of_unicast("sync_spacing")
    found = unhindered(found, tables, "short_id", begin, F.col("time"))
    return violations(
        found,
        GUARANTEE,
        time="time",
        detail=F.format_string(
            "two syncs %.6fs apart: the spacing is %ss", apart, plain(of_unicast("sync_spacing"))
        ),
        witness=[event("short_id", "before.number"), event("short_id", "number")],
    )


def _not_quiet(tables: Tables) -> DataFrame:
    """Find traffic with a living peer after the run has had its time to settle (P-03).

    A later view, such as that of a merge after the network healed, makes members open and fill
    windows again, and an alarm makes them request missing messages after all: the time runs from
    there.
    """
    living = tables.members.living("peer")
    crowd = tables.members.incarnations.groupBy("run").agg(
        F.sum(F.col("lives").cast("int")).alias("living")
    )
    calm = tables.groups.calm.join(crowd, "run", how="left").select(
        "run", "calm", "long_travel", "living"
    )
    late = (
        tables.events.where(F.col("kind").isin(*TRAFFIC))
        .join(F.broadcast(calm), "run", how="inner")
        .where(F.col("time") > F.col("calm") + words.EPSILON)
    )
    promised = with_promises(late, tables, "short_id").withColumn(
        "within", of_protocol("quiet_within")
    )
    upto = F.col("calm") + words.EPSILON + F.col("within") + F.col("long_travel")
    loud = promised.where(F.col("time") > upto)
    others = F.col("living") - (F.col("ended") == words.INFINITY).cast("int")
    to_group = loud.where((F.col("peer") == words.GROUP) & (others > 0))
    to_one = loud.join(F.broadcast(living), ["run", "peer"], how="left_semi")
    return violations(
        to_group.unionByName(to_one),
        GUARANTEE,
        time="time",
        detail=F.format_string(
            "not quiet %.3fs after the last fault, send, view and alarm: the bound is %ss",
            F.col("time") - F.col("calm"),
            plain("within"),
        ),
        witness=[event("short_id", "number")],
    )
