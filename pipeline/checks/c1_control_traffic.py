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
from stormcast.pipeline.promises import (
    of_protocol,
    of_unicast,
    unhindered,
    with_longest,
    with_promises,
)
from stormcast.pipeline.tables import Tables
from stormcast.pipeline.tables.kept import keep
from stormcast.pipeline.tables.records import is_multicast
from stormcast.pipeline.violations import event, plain, union, violations

GUARANTEE: Final = "C1"
TRAFFIC: Final = ("sent", "acked", "requested", "retransmitted", "sync")


def control_traffic(tables: Tables) -> DataFrame:
    """Find control traffic beyond what the members' own settings promise."""
    return union(
        *([_hasty_syncs(tables)] if tables.occurring.of_one("sync") else ()),
        *c1_requests.parts(tables),
        *c1_resends.parts(tables),
        *c1_multicast.parts(tables),
        *c1_credits.parts(tables),
        _not_quiet(tables),
        *c1_ageing.parts(tables),
    )


def _hasty_syncs(tables: Tables) -> DataFrame:
    in_turn = Window.partitionBy("run", "short_id", "peer").orderBy("number")
    syncs = tables.of("sync").where(~is_multicast())
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
    calm = tables.groups.calm.select("run", "calm", "long_travel")
    late = (
        tables.of(*TRAFFIC)
        .join(F.broadcast(calm), "run", how="inner")
        .where(F.col("time") > F.col("calm") + words.EPSILON)
    )
    promised = with_promises(late, tables, "short_id").withColumn(
        "within", of_protocol("quiet_within")
    )
    is_loud = F.col("time") > F.col("calm") + words.EPSILON + F.col("within") + F.col("long_travel")
    loud = keep(promised.where(is_loud))
    key = ["run", "short_id", "number"]
    both = with_longest(loud, tables, _hearers(tables, loud), key, "quiet_within")
    return violations(
        both.where(is_loud),
        GUARANTEE,
        time="time",
        detail=F.format_string(
            "not quiet %.3fs after the last fault, send, view and alarm: the bound is %ss",
            F.col("time") - F.col("calm"),
            plain("within"),
        ),
        witness=[event("short_id", "number")],
    )


def _hearers(tables: Tables, loud: DataFrame) -> DataFrame:
    """Return the living members that events are for: of those to the group all but their writer."""
    living = F.broadcast(tables.members.living("hearer"))
    is_of_group = (F.col("peer") == words.GROUP) & (F.col("hearer") != F.col("short_id"))
    return (
        loud.select("run", "short_id", "number", "protocol", "peer")
        .join(living, "run", how="inner")
        .where(is_of_group | (F.col("peer") == F.col("hearer")))
    )
