"""The tables of the rig's own trace: what it did to each run, and when."""

from __future__ import annotations

from typing import Final

from pyspark.sql import DataFrame, Window
from pyspark.sql import functions as F

from stormcast.pipeline import words
from stormcast.pipeline.ranges import before_this
from stormcast.pipeline.tables.by_kind import EventsByKind
from stormcast.pipeline.tables.kept import keep, made_once

_FAULT: Final = """
    id STRING, do STRING, phase STRING, member BIGINT, copies BIGINT, attribute STRING,
    value STRING, late DOUBLE, within DOUBLE
"""
_EXIT: Final = """
    name STRING, incarnation BIGINT, signal BIGINT, code BIGINT, ordered BOOLEAN, member BIGINT,
    why STRING
"""
_PROBE: Final = "id STRING, do STRING, bit BIGINT"


class RigTables:
    """Faults, bites and phases, and a table of all runs."""

    def __init__(self, events: EventsByKind) -> None:
        self._events = events

    @made_once
    def fault_events(self) -> DataFrame:
        """The rig's events about faults: run, number, time, text, and the fields of the text. A
        death that nobody ordered stands among them, as it acts on a run like a kill."""
        told = F.from_json("text", _FAULT)
        faults = (
            self._of_rig("fault")
            .withColumn("told", told)
            .select("run", "number", "time", "text", "told.*")
        )
        died = self.exits.where(~F.col("ordered")).select(
            "run",
            "number",
            "time",
            "text",
            F.concat(F.lit(f"{words.DIED}-"), F.col("number").cast("string")).alias("id"),
            F.lit(words.DIED).alias("do"),
            F.lit("on").alias("phase"),
            "member",
        )
        return keep(faults.unionByName(died, allowMissingColumns=True))

    @made_once
    def exits(self) -> DataFrame:
        """The ends of members' processes: run, number, time, text, and the fields of the text."""
        return (
            self._of_rig("exit")
            .withColumn("told", F.from_json("text", _EXIT))
            .select("run", "number", "time", "text", "told.*")
        )

    @made_once
    def deaths(self) -> DataFrame:
        """The deaths that nobody ordered: run, time, who, how."""
        number = F.coalesce("incarnation", F.lit(1))
        name = F.when(number > 1, F.concat_ws("-", "name", number.cast("string"))).otherwise(
            F.col("name")
        )
        how = F.when(F.col("signal").isNotNull(), F.format_string("signal %d", "signal")).otherwise(
            F.format_string("exit code %d", "code")
        )
        why = F.when(F.length("why") > 0, F.format_string(" (%s)", "why")).otherwise("")
        return self.exits.where(~F.col("ordered")).select(
            "run", "number", "time", name.alias("who"), F.concat(how, why).alias("how")
        )

    @made_once
    def probes(self) -> DataFrame:
        """The number of bites of each fault: run, text, id, do, bit."""
        return keep(
            self._of_rig("probe")
            .withColumn("told", F.from_json("text", _PROBE))
            .select("run", "text", "told.*")
        )

    @made_once
    def phases(self) -> DataFrame:
        """The phases of runs: run, number, phase (such as `quiet` or `end`), time."""
        return self._of_rig("phase").select("run", "number", F.col("text").alias("phase"), "time")

    def _of_rig(self, kind: str) -> DataFrame:
        return self._events.of(kind).where(F.col("short_id") == words.RIG)

    @property
    def _under_way(self) -> DataFrame:
        """run, landed: when the frames had arrived that were delayed by faults that are over;
        travel: for how many seconds the network, and faults that never ended, may delay a frame."""
        in_turn = Window.partitionBy("run").orderBy("number")
        of_fault = Window.partitionBy("run", "id").orderBy("number")
        delay = F.when(F.col("phase") == "on", F.coalesce("late", F.lit(0.0))).otherwise(0.0)
        ended = F.coalesce(F.lag("delay").over(of_fault), F.lit(0.0))
        is_over = (F.col("phase") == "off") & (F.col("ended") > 0)
        return (
            self.fault_events.withColumn("delay", delay)
            .withColumn("ended", ended)
            .withColumn("change", F.col("delay") - F.col("ended"))
            .withColumn("before", F.sum("change").over(before_this(in_turn)))
            .groupBy("run")
            .agg(
                F.max(F.when(is_over, F.col("time") + F.col("before"))).alias("landed"),
                F.sum("change").alias("travel"),
            )
        )

    @made_once
    def runs(self) -> DataFrame:
        """One row per run: the times at which it began (if that is not recorded, of its first
        event), was quiet and ended (infinite: not recorded), the time of the last event (`over`),
        and a summary of what the rig did."""
        was_done = self.fault_events.groupBy("run").agg(
            # A network that only delays frames is no fault.
            F.max(~((F.col("id") == words.NETWORK) & (F.col("do") == "delay"))).alias(
                "did_anything"
            ),
            F.max(F.col("do") == "install-view").alias("views_by_hand"),
            F.sum(
                F.when(
                    F.col("do").isin(*words.MAKES_COPIES) & (F.col("phase") == "on"),
                    F.coalesce("copies", F.lit(1)),
                ).otherwise(0)
            ).alias("copies"),
        )
        last_of = {
            phase: F.max_by("time", F.when(F.col("phase") == phase, F.col("number")))
            for phase in ("begin", "quiet", "end")
        }
        phases = self.phases.groupBy("run").agg(*(c.alias(name) for name, c in last_of.items()))
        never = F.lit(words.INFINITY)
        return keep(
            self._events.all.groupBy("run")
            .agg(
                F.count(F.lit(1)).alias("events"),
                F.min("time").alias("first"),
                F.max("time").alias("last"),
            )
            .join(was_done, "run", how="left")
            .join(phases, "run", how="left")
            .join(self._under_way, "run", how="left")
            .select(
                "run",
                "events",
                F.coalesce("begin", "first").alias("begin"),
                F.coalesce("quiet", never).alias("quiet"),
                F.coalesce("end", never).alias("end"),
                F.greatest(F.coalesce("end", never), "last").alias("over"),
                F.coalesce("landed", F.lit(-words.INFINITY)).alias("landed"),
                F.coalesce("travel", F.lit(0.0)).alias("travel"),
                F.coalesce("did_anything", F.lit(False)).alias("did_anything"),
                F.coalesce("views_by_hand", F.lit(False)).alias("views_by_hand"),
                # A network may always repeat a frame.
                (F.lit(2) + F.coalesce("copies", F.lit(0))).alias("most_copies"),
            )
        )
