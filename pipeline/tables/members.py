"""The tables of members: incarnations, their promises, and the spans in which they lived, were
paused or stalled, or did not repair."""

from __future__ import annotations

from typing import Final

from pyspark.sql import DataFrame, Window
from pyspark.sql import functions as F

from stormcast.pipeline import words
from stormcast.pipeline.tables.by_kind import EventsByKind
from stormcast.pipeline.tables.kept import keep, made_once
from stormcast.pipeline.tables.rig import RigTables

_SETTINGS: Final = """
    bounds MAP<STRING, DOUBLE>,
    protocols MAP<STRING, STRUCT<
        xmit_interval: DOUBLE, use_mcast_xmit_req: BOOLEAN, copies: BIGINT,
        bounds: MAP<STRING, DOUBLE>>>
"""
_PROTOCOLS: Final = _SETTINGS.partition("protocols ")[2]


class MemberTables:
    """Incarnations, and spans of their lives."""

    def __init__(self, events: EventsByKind, rig: RigTables) -> None:
        self._events = events
        self._rig = rig

    @made_once
    def incarnations(self) -> DataFrame:
        """One row per incarnation: run, short_id, label, name, shown, started, killed, ended
        (infinite: it ran to the end), lives, has_left (it ended in order, and its trace says what
        it gave up), promised (bounds of unicast), protocols (settings by protocol), version (of its
        trace)."""
        by_age = Window.partitionBy("run", "name").orderBy("started", "killed", "short_id")
        never = F.lit(words.INFINITY)
        is_alone = F.count(F.lit(1)).over(Window.partitionBy("run", "name")) == 1
        changed = F.col("changes") > 0
        nothing = F.expr("CAST(map() AS MAP<STRING, DOUBLE>)")
        unpromised = F.transform_values(
            "protocols", lambda _name, settings: settings.withField("bounds", nothing)
        )
        return keep(
            self._started.join(self._done_to, ["run", "short_id"], how="left")
            .join(self._stopped, ["run", "short_id"], how="left")
            .withColumn("killed", F.coalesce("killed", never))
            # When the next incarnation of its name starts, it has ended, even if the rig recorded
            # no end.
            .withColumn("replaced", F.lead("started").over(by_age))
            .withColumn("ended", F.least("killed", "stopped", "replaced"))
            .select(
                "run",
                "short_id",
                "label",
                "name",
                F.when(is_alone, F.col("name")).otherwise(F.col("label")).alias("shown"),
                "started",
                "killed",
                "ended",
                (F.col("ended") == never).alias("lives"),
                (F.col("stopped").isNotNull() & (F.col("version") >= words.SAYS_WHAT_ENDED)).alias(
                    "has_left"
                ),
                # After a change of settings, the trace does not say what is promised.
                F.when(changed, nothing).otherwise(F.coalesce("bounds", nothing)).alias("promised"),
                F.when(changed, unpromised).otherwise(F.col("protocols")).alias("protocols"),
                "was_told",
                "text",
                "version",
            )
        )

    def living(self, as_: str = "short_id") -> DataFrame:
        """Return the members that ran to the end of their run: run, and their short id as `as_`."""
        return self.incarnations.where("lives").select("run", F.col("short_id").alias(as_))

    def answering(self, as_: str = "short_id") -> DataFrame:
        """Return the members whose messages must arrive, unless they said that they gave them up:
        those that ran to the end of their run, and those that left it in order."""
        answers = F.col("lives") | F.col("has_left")
        return self.incarnations.where(answers).select("run", F.col("short_id").alias(as_))

    @made_once
    def _started(self) -> DataFrame:
        """The names and promises of each member, from its first event."""
        parts = F.split("text", " ", 3)
        first = self._events.all.where((F.col("number") == 0) & (F.col("short_id") != words.RIG))
        return first.withColumn("told", F.from_json(F.get(parts, 2), _SETTINGS)).select(
            "run",
            "short_id",
            F.col("member").alias("label"),
            F.coalesce(F.get(parts, 0), F.col("member")).alias("name"),
            F.col("time").alias("started"),
            "told.bounds",
            F.coalesce("told.protocols", F.from_json(F.lit("{}"), _PROTOCOLS)).alias("protocols"),
            ((F.col("kind") == "start") & F.col("told").isNotNull()).alias("was_told"),
            "text",
            F.coalesce("version", F.lit(1)).alias("version"),
        )

    @made_once
    def _done_to(self) -> DataFrame:
        """By member: the time at which the rig killed it, and how often it changed settings."""
        is_kill = F.col("do").isin(*words.KILLS)
        is_change = F.col("do") == words.CHANGES_SETTINGS
        return (
            self._rig.fault_events.where((F.col("phase") == "on") & F.col("member").isNotNull())
            .groupBy("run", F.col("member").alias("short_id"))
            .agg(
                F.min(F.when(is_kill, F.col("time"))).alias("killed"),
                F.sum(is_change.cast("int")).alias("changes"),
            )
        )

    @made_once
    def _stopped(self) -> DataFrame:
        return (
            self._events.of("stop").groupBy("run", "short_id").agg(F.min("time").alias("stopped"))
        )

    @made_once
    def holds(self) -> DataFrame:
        """Spans in which a member was paused or stalled: run, short_id, do, start, end."""
        steps = self._rig.fault_events
        is_hold = F.col("do").isin(*words.UNDONE_BY) & (F.col("phase") == "on")
        holds = steps.where(is_hold & F.col("member").isNotNull()).alias("hold")
        steps = steps.alias("step")
        is_later = F.col("step.number") > F.col("hold.number")
        is_for_it = F.coalesce(F.col("step.member") == F.col("hold.member"), F.lit(True))
        by_name = (F.col("step.id") == F.col("hold.id")) & (F.col("step.phase") == "off")
        undoing = F.create_map(*(F.lit(w) for pair in words.UNDONE_BY.items() for w in pair))
        by_kind = F.col("step.do") == undoing[F.col("hold.do")]
        same_run = F.col("step.run") == F.col("hold.run")
        ends = [
            holds.join(steps, same_run & how_ended & is_later & is_for_it, how="left").select(
                "hold.run",
                "hold.number",
                "hold.member",
                "hold.do",
                "hold.time",
                F.col("step.time").alias("end"),
            )
            for how_ended in (by_name, by_kind)
        ]
        return keep(
            ends[0]
            .unionByName(ends[1])
            .groupBy("run", "number", F.col("member").alias("short_id"), "do", "time")
            .agg(F.coalesce(F.min("end"), F.lit(words.INFINITY)).alias("end"))
            .select("run", "short_id", "do", F.col("time").alias("start"), "end")
        )

    @made_once
    def freezes(self) -> DataFrame:
        """Spans in which a digest of a member was in use, and it held acks back: run, short_id,
        start, end."""
        in_turn = Window.partitionBy("run", "short_id").orderBy("number")
        is_on = F.col("lo") > 0
        # A digest may be asked for again while one is in use: acks stay frozen until the last is
        # done.
        return keep(
            self._events.of("freeze")
            .withColumn("was_on", F.coalesce(F.lag(is_on).over(in_turn), F.lit(False)))
            .where(is_on != F.col("was_on"))
            .withColumn("until", F.lead("time").over(in_turn))
            .where(is_on)
            .select(
                "run",
                "short_id",
                F.col("time").alias("start"),
                F.coalesce("until", F.lit(words.INFINITY)).alias("end"),
            )
        )

    @made_once
    def silences(self) -> DataFrame:
        """Spans in which a member's multicast retransmission may be off: run, short_id, start, end
        (by any change of settings), `on_again` (infinite: it stays off); between `surely_from` and
        `surely_to` it is. There is no row while its `xmit_interval` is unknown."""
        at_start = self.incarnations.select(
            "run",
            "short_id",
            F.col("started").alias("since"),
            F.lit(-1).cast("bigint").alias("step"),
            F.explode(F.array(*(F.col("protocols")[name] for name in words.MULTICAST))).alias("it"),
        ).where(F.col("it").isNotNull())
        repairs_at_start = at_start.select(
            "run",
            "short_id",
            "since",
            F.col("since").alias("made_by"),
            F.lit(True).alias("is_made"),
            "step",
            F.col("it.xmit_interval").alias("interval"),
        )
        change = _changed_interval(self._rig.fault_events)
        changes = change.join(at_start.select("run", "short_id").distinct(), ["run", "short_id"])
        # A member may be asked before it has recorded its start: what it was asked for counts.
        in_turn = Window.partitionBy("run", "short_id").orderBy("step")
        backwards = Window.partitionBy("run", "short_id").orderBy(F.desc("step"))
        is_on = F.coalesce(F.col("interval") > 0, F.lit(True))
        return keep(
            repairs_at_start.unionByName(changes)
            .withColumn("surely_from", F.max("made_by").over(in_turn))
            .withColumn("asked_next", F.lead("since").over(in_turn))
            .where(F.col("is_made"))
            .withColumn("until", F.lead("since").over(in_turn))
            .withColumn("on_again", F.last(F.when(is_on, F.col("since")), True).over(backwards))
            .where(F.col("interval") <= 0)
            .select(
                "run",
                "short_id",
                F.col("since").alias("start"),
                "surely_from",
                F.coalesce("asked_next", F.lit(words.INFINITY)).alias("surely_to"),
                F.coalesce("until", F.lit(words.INFINITY)).alias("end"),
                F.coalesce("on_again", F.lit(words.INFINITY)).alias("on_again"),
            )
        )


def _changed_interval(fault_events: DataFrame) -> DataFrame:
    """Return the changes of a member's multicast `xmit_interval`; null if the value is unknown.
    One that nobody confirmed may not have been made: it blames nobody, and so only counts
    (`is_made`) if it is an excuse."""
    attribute = F.coalesce("attribute", F.lit(""))
    name = F.substring_index(attribute, ".", -1)
    is_interval = name.isin("", "xmit_interval")
    # Without a protocol an attribute is one of unicast; without an attribute it may be any.
    is_of_group = (attribute == "") | attribute.rlike(rf"^({'|'.join(words.MULTICAST)}).*\.")
    is_known = F.col("value").rlike(r"^\s*(-?[0-9.]+|[0-9.]+\s*(us|ms|s|min|h))\s*$")
    interval = F.when(
        is_known, F.expr("try_cast(regexp_extract(value, '([-0-9.]+)', 1) AS DOUBLE)")
    )
    within = F.coalesce("within", F.lit(0.0))
    return fault_events.where(
        (F.col("do") == words.CHANGES_SETTINGS)
        & (F.col("phase") == "on")
        & is_interval
        & is_of_group
    ).select(
        "run",
        F.col("member").alias("short_id"),
        F.col("time").alias("since"),
        (F.col("time") + within).alias("made_by"),
        ((within < words.UNCONFIRMED) | F.coalesce(interval <= 0, F.lit(False))).alias("is_made"),
        F.col("number").alias("step"),
        interval.alias("interval"),
    )
