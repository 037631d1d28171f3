"""Lost multicasts: their batches, and whether their loss was reported."""

from __future__ import annotations

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from stormcast.pipeline import words
from stormcast.pipeline.ranges import with_last
from stormcast.pipeline.tables import Tables
from stormcast.pipeline.tables.records import is_multicast


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
    receiver raised an alarm about this gap or, in the same window, about one before it, after which
    retransmission stayed off while the sender was there. A silent loss is never excused."""
    was_disturbed = tables.rig.runs.where("did_anything").select("run")
    silences = F.broadcast(tables.members.silences.withColumnRenamed("short_id", "receiver"))
    in_time = F.col("alarmed") >= F.col("batch.time") - words.EPSILON
    is_before = F.col("alarm_lo") <= F.col("gap")
    pair = ["run", "sender", "receiver"]
    # An alarm without an epoch may be of any window.
    is_of_window = F.col("alarm_epoch").isin(0, F.coalesce("epoch", F.lit(0)))
    is_named = F.col("gap") <= F.col("alarm_hi")
    alarmed = losses.select(*pair, "gap", "batch").join(
        _unrepaired_alarms(tables, silences), pair, how="inner"
    )
    told = (
        _with_epoch(tables, alarmed.where(in_time & is_before))
        .where(is_of_window | is_named)
        .dropDuplicates([*pair, "gap"])
    )
    in_silence = (F.col("batch.time") >= F.col("start")) & (F.col("batch.time") < F.col("end"))
    return (
        told.join(was_disturbed, "run", how="left_semi")
        .join(silences, ["run", "receiver"])
        .where(in_silence)
        .select(*pair, "gap")
    )


def _unrepaired_alarms(tables: Tables, silences: DataFrame) -> DataFrame:
    """Return the alarms about multicasts after which the receiver never repaired while the sender
    was there. What is missing when windows repair again is repaired like any other loss."""
    senders = tables.members.incarnations.select(
        "run", F.col("short_id").alias("sender"), F.col("ended").alias("sender_ended")
    )
    in_silence = (F.col("alarmed") >= F.col("start")) & (F.col("alarmed") < F.col("end"))
    return (
        tables.of("alarm")
        .where(is_multicast())
        .select(
            F.col("run"),
            F.col("short_id").alias("receiver"),
            F.col("peer").alias("sender"),
            F.col("time").alias("alarmed"),
            F.col("lo").alias("alarm_lo"),
            F.col("hi").alias("alarm_hi"),
            F.col("epoch").alias("alarm_epoch"),
        )
        .join(silences, ["run", "receiver"])
        .join(F.broadcast(senders), ["run", "sender"])
        .where(in_silence & (F.col("on_again") >= F.col("sender_ended")))
        .drop("start", "end", "on_again", "sender_ended")
    )


def _with_epoch(tables: Tables, losses: DataFrame) -> DataFrame:
    """Add `epoch`, that of the receiver's last window that begins below the lost seqno."""
    key = ["run", "sender", "receiver", "gap"]
    windows = windows_of_pairs(tables).select("run", "sender", "receiver", "epoch", "nth", "offset")
    found = (
        losses.select(*key)
        .distinct()
        .join(windows, key[:3], how="inner")
        .where(F.col("offset") < F.col("gap"))
        .groupBy(*key)
        .agg(F.max_by("epoch", "nth").alias("epoch"))
    )
    return losses.join(found, key, how="left")


def windows_of_pairs(tables: Tables) -> DataFrame:
    """Return the windows on multicasts: run, sender, receiver, epoch, `nth` (their order), offset
    (after which each begins)."""
    return tables.messages.windows.where("is_multicast").select(
        *("run", "sender", "receiver", "epoch"),
        F.col("first").alias("nth"),
        F.coalesce("opened.lo", F.lit(0)).cast("bigint").alias("offset"),
    )


def with_standstill(tables: Tables, missing: DataFrame) -> DataFrame:
    """Add to missing ranges (`gap_lo`) the last delivery in order below each, `stands_at`: what is
    missing above it, up to the next one, waits behind the first gap, and may not be lost."""
    is_regular = F.col("flags").bitwiseAND(words.OOB) == 0
    pair = ["run", "sender", "receiver"]
    # Few pairs miss anything.
    delivered = tables.messages.delivered.where(F.col("is_multicast") & F.col("is_genuine")).join(
        F.broadcast(missing.select(*pair).distinct()), pair, how="left_semi"
    )
    marks = delivered.where(is_regular).select(
        *pair,
        F.col("lo").alias("at"),
        F.col("number").alias("turn"),
        F.struct("lo").alias("regular"),
    )
    points = missing.withColumn("at", F.col("gap_lo"))
    return (
        with_last(points, marks, pair, "regular")
        .withColumn("stands_at", F.coalesce("regular.lo", F.lit(0)))
        .drop("regular")
    )
