"""G1 in runs in which nothing could lose a message: there no member may raise an alarm, give a
message up, or miss a message that is not repaired."""

from __future__ import annotations

from typing import Final

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F

from stormcast.pipeline import words
from stormcast.pipeline.tables import Tables
from stormcast.pipeline.tables.kept import keep
from stormcast.pipeline.tables.records import is_multicast, is_numbered
from stormcast.pipeline.violations import event, nothing, union, violations, with_name

GUARANTEE: Final = "G1"
HARMLESS: Final = (
    "delay",
    "reorder",
    "duplicate",
    "pause",
    "resume",
    "stall",
    "consume",
    "join",
    "listen",
)
"""Faults under which every message still arrives."""
NOT_MEANT: Final = "not for this member"
"""The prefix of the reason for seqnos that a member skips because they are not for it."""
PROBE: Final = "probe-"
"""The prefix of the reason for frames that a test protocol in a member's stack dropped."""
STREAMS: Final = ("TCP", "TCP_NIO2")
SOUND: Final = {"conn_ids": "every", "queue_overflow": "none", "split_send": "false"}
"""Values of historical settings that are no flaw; of settings not listed, that is `true`."""
WITHOUT_CAUSE: Final = ", and nothing was done that could lose a message"

_LAYER: Final = """
    historical: MAP<STRING, STRING>, xmit_interval: DOUBLE, gap_alarm: DOUBLE,
    drop_when_full: BOOLEAN, receive_queue: BIGINT, max_send_buffers: BIGINT
"""
_SETTINGS: Final = f"""
    historical MAP<STRING, STRING>, protocols MAP<STRING, STRUCT<{_LAYER}>>
"""


def without_cause(tables: Tables) -> DataFrame:
    """Find losses, and reports of losses by members, in runs that give no cause for them."""
    occurring = tables.occurring
    are_reports = occurring.of_group("alarm") or occurring.any("skipped")
    if not (are_reports or occurring.unnumbered("sent")):
        return nothing(tables)
    designs = keep(_designs(tables))
    disturbed = keep(_disturbed(tables, designs))
    return union(_said(tables, disturbed), _unheard(tables, designs, disturbed))


# -- What could lose a message ---------------------------------------------------------------------


def _designs(tables: Tables) -> DataFrame:
    """Return, by each member's settings: run, short_id, loses (the settings may lose messages),
    is_on_a_stream (its transport loses nothing), gap_alarm (seconds that it waits)."""
    told = F.from_json(F.get(F.split("text", " ", 3), 2), _SETTINGS)
    layers = F.coalesce(F.map_values("told.protocols"), F.array())
    flawed = ~_is_sound(F.col("told.historical")) | F.exists(
        layers, lambda layer: ~_is_sound(layer["historical"])
    )
    intervals = (F.col("told.protocols")[name]["xmit_interval"] for name in words.MULTICAST)
    is_silent = F.lit(False)
    for interval in intervals:
        is_silent = is_silent | F.coalesce(interval <= 0, F.lit(False))
    streams = F.filter(
        F.array(*(F.col("told.protocols")[name] for name in STREAMS)), lambda layer: ~layer.isNull()
    )
    return tables.members.incarnations.withColumn("told", told).select(
        "run",
        "short_id",
        (flawed | (is_silent & F.exists(layers, _may_drop))).alias("loses"),
        ((F.size(streams) > 0) & ~F.exists(streams, _may_drop)).alias("is_on_a_stream"),
        F.coalesce(*(F.col("told.protocols")[name]["gap_alarm"] for name in words.MULTICAST)).alias(
            "gap_alarm"
        ),
    )


def _is_sound(historical: Column) -> Column:
    nothing = F.expr("CAST(map() AS MAP<STRING, STRING>)")
    sound = F.create_map(*(F.lit(word) for pair in SOUND.items() for word in pair))
    return F.forall(
        F.map_entries(F.coalesce(historical, nothing)),
        lambda told: told["value"] == F.coalesce(sound[told["key"]], F.lit("true")),
    )


def _may_drop(layer: Column) -> Column:
    """Whether these are the settings of a transport that drops beyond a bound."""
    return (
        F.coalesce(layer["drop_when_full"], F.lit(False))
        | (F.coalesce(layer["receive_queue"], F.lit(0)) != 0)
        | (F.coalesce(layer["max_send_buffers"], F.lit(0)) != 0)
    )


def _disturbed(tables: Tables, designs: DataFrame) -> DataFrame:
    """Return for each run the time at which something first could lose a message; a run without a
    row was never disturbed."""
    done = tables.rig.fault_events.where((F.col("phase") == "on") & ~F.col("do").isin(*HARMLESS))
    gone = tables.members.incarnations.where(~F.col("lives")).select(
        "run", F.col("ended").alias("time")
    )
    before, view = tables.groups.views.alias("before"), tables.groups.views.alias("view")
    # Messages to members that a view leaves out may be given up.
    left_out = before.join(
        view,
        (F.col("view.run") == F.col("before.run"))
        & (F.col("view.short_id") == F.col("before.short_id"))
        & (F.col("view.place") == F.col("before.place") + 1),
        how="inner",
    ).where(F.size(F.array_except("before.members", "view.members")) > 0)
    took = tables.of("dropped").where(F.col("text").startswith(PROBE))
    # What is late for as long as an alarm about a gap waits is as good as lost.
    late = tables.rig.fault_events.where((F.col("phase") == "on") & (F.col("late") > 0))
    totals = late.groupBy("run").agg(F.sum("late").alias("total"))
    soonest = designs.groupBy("run").agg(F.min("gap_alarm").alias("soonest"))
    long_delays = late.join(
        totals.join(soonest, "run").where(F.col("total") >= F.col("soonest")), "run", "left_semi"
    )
    by_design = designs.where("loses").select("run", F.lit(-words.INFINITY).alias("time"))
    times = (
        done.select("run", "time")
        .unionByName(gone)
        .unionByName(left_out.select("view.run", "view.time"))
        .unionByName(took.select("run", "time"))
        .unionByName(long_delays.select("run", "time"))
        .unionByName(by_design)
    )
    return times.groupBy("run").agg(F.min("time").alias("disturbed"))


# -- Reports of members ----------------------------------------------------------------------------


def _said(tables: Tables, disturbed: DataFrame) -> DataFrame:
    """Find alarms about multicasts, and messages given up, before the run was disturbed."""
    is_alarm = (F.col("kind") == "alarm") & is_multicast()
    text = F.coalesce("text", F.lit(""))
    is_loss = (F.col("kind") == "skipped") & ~text.startswith(NOT_MEANT)
    found = (
        tables.of("alarm", "skipped")
        .where(is_alarm | is_loss)
        .join(F.broadcast(disturbed), "run", how="left")
        .where(F.col("disturbed").isNull() | (F.col("time") < F.col("disturbed") - words.EPSILON))
    )
    named = with_name(with_name(found, tables, "short_id", "who"), tables, "peer", "whose")
    what = F.when(
        F.col("kind") == "alarm", F.format_string("%s raised an alarm about %s", "who", "whose")
    ).otherwise(
        F.format_string("%s gave up %d messages of %s up to %d", "who", "count", "whose", "hi")
    )
    return violations(
        named,
        GUARANTEE,
        time="time",
        detail=F.concat(what, F.lit(WITHOUT_CAUSE)),
        witness=[event("short_id", "number")],
    )


# -- Messages without a number ---------------------------------------------------------------------


def _unheard(tables: Tables, designs: DataFrame, disturbed: DataFrame) -> DataFrame:
    """Find batches without a number that were never delivered, though sender and receiver had each
    other from before to the end, over connections that lose nothing."""
    never = F.lit(words.INFINITY)
    until = F.coalesce("disturbed", never)
    runs = tables.rig.runs.join(F.broadcast(disturbed), "run", how="left").select(
        "run", "quiet", F.col("end").alias("run_end"), until.alias("until")
    )
    pairs = _pairs(tables, designs).join(F.broadcast(runs), "run")
    pair = ["run", "sender", "receiver"]
    rows = tables.of("sent", "delivered").where(~is_numbered())
    heard = (
        rows.where(F.col("kind") == "delivered")
        .groupBy(
            "run", F.col("peer").alias("sender"), F.col("short_id").alias("receiver"), "digest"
        )
        .agg(F.min_by("time", "number").alias("heard_at"), F.count("*").alias("came"))
    )
    sent = rows.where(F.col("kind") == "sent").select(
        "run", F.col("short_id").alias("sender"), "peer", "number", "time", "digest"
    )
    # Connections keep the order: a batch was due if a later one arrived in time. Of batches with
    # the same content, the one that arrived may be the first.
    first = F.min("time").over(Window.partitionBy(*pair, "digest"))
    in_time = F.when(F.col("heard_at") < F.col("until") - words.EPSILON, F.col("first"))
    newest = F.coalesce(F.max(in_time).over(Window.partitionBy(*pair)), -never)
    limit = F.when(F.col("until") == never, F.col("quiet")).otherwise(
        F.least("quiet", "until", newest)
    )
    due = (
        sent.join(F.broadcast(pairs), ["run", "sender"])
        .where(F.col("peer").isin(words.GROUP) | (F.col("peer") == F.col("receiver")))
        .join(heard, [*pair, "digest"], how="left")
        .withColumn("first", first)
        .withColumn("limit", limit)
        .where(F.col("time") > F.col("met") + words.EPSILON)
        .where(F.col("time") < F.col("limit") - words.EPSILON)
    )
    holds = tables.members.holds.select("run", F.col("short_id").alias("held"), "start", "end")
    is_held = (
        (F.col("due.run") == F.col("hold.run"))
        & F.col("held").isin(F.col("sender"), F.col("receiver"))
        & (F.col("hold.start") <= F.col("run_end"))
        & (F.col("hold.end") >= F.col("due.time"))
    )
    # Of batches with the same content as many must have arrived as were due.
    in_order = Window.partitionBy(*pair, "digest").orderBy("time", "number")
    lost = (
        due.alias("due")
        .join(holds.alias("hold"), is_held, how="left_anti")
        .withColumn("rank", F.row_number().over(in_order))
        .where(F.col("rank") > F.coalesce("came", F.lit(0)))
    )
    return violations(
        with_name(lost, tables, "receiver", "name"),
        GUARANTEE,
        time="time",
        detail=F.concat(
            F.format_string("an unnumbered batch was never delivered by %s", "name"),
            F.lit(WITHOUT_CAUSE),
        ),
        witness=[event("sender", "number")],
    )


def _pairs(tables: Tables, designs: DataFrame) -> DataFrame:
    """Return the pairs of members, both on streams and running to the end of the run, that had each
    other in their views from `met` to the end: run, sender, receiver, met."""
    steady = (
        designs.where("is_on_a_stream")
        .select("run", "short_id")
        .join(tables.members.living(), ["run", "short_id"], how="left_semi")
    )
    since = tables.groups.since.join(steady, ["run", "short_id"], how="left_semi")
    ours = since.select(
        "run",
        F.col("short_id").alias("sender"),
        F.col("other").alias("receiver"),
        F.col("time").alias("ours"),
    )
    theirs = since.select(
        "run",
        F.col("other").alias("sender"),
        F.col("short_id").alias("receiver"),
        F.col("time").alias("theirs"),
    )
    return (
        ours.join(theirs, ["run", "sender", "receiver"])
        .where(F.col("sender") != F.col("receiver"))
        .select("run", "sender", "receiver", F.greatest("ours", "theirs").alias("met"))
    )
