"""Lost multicasts: their batches, and whether their loss was reported."""

from __future__ import annotations

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from stormcast.pipeline import words
from stormcast.pipeline.ranges import with_last
from stormcast.pipeline.tables import Tables
from stormcast.pipeline.tables.records import is_kind, is_multicast


def with_batch(tables: Tables, losses: DataFrame) -> DataFrame:
    """Add to losses (`gap`) the batch that was lost; a seqno that no batch had is dropped."""
    marks = tables.groups.multicasts.select(
        "run",
        "sender",
        F.col("lo").alias("at"),
        F.col("number").alias("turn"),
        F.struct("number", "time", "hi").alias("batch"),
    )
    found = with_last(losses.withColumn("at", F.col("gap")), marks, ["run", "sender"], "batch")
    return found.where(F.col("batch.hi") >= F.col("gap"))


def excused(tables: Tables, losses: DataFrame) -> DataFrame:
    """Return the losses that were reported: retransmission is off, the run had faults, and the
    receiver raised an alarm about this gap or one before it. A silent loss is never excused."""
    was_disturbed = tables.rig.runs.where("did_anything").select("run")
    alarms = tables.events.where(is_kind("alarm") & is_multicast()).select(
        F.col("run"),
        F.col("short_id").alias("receiver"),
        F.col("peer").alias("sender"),
        F.col("time").alias("alarmed"),
        F.col("lo").alias("alarm_lo"),
    )
    in_time = F.col("alarmed") >= F.col("batch.time") - words.EPSILON
    is_before = F.col("alarm_lo") <= F.col("gap")
    pair = ["run", "sender", "receiver"]
    told = (
        losses.select(*pair, "gap", "batch")
        .join(alarms, pair, how="inner")
        .where(in_time & is_before)
        .dropDuplicates([*pair, "gap"])
    )
    in_silence = (F.col("batch.time") >= F.col("start")) & (F.col("batch.time") < F.col("end"))
    return (
        told.join(was_disturbed, "run", how="left_semi")
        .join(
            tables.members.silences.withColumnRenamed("short_id", "receiver"), ["run", "receiver"]
        )
        .where(in_silence)
        .select(*pair, "gap")
    )
