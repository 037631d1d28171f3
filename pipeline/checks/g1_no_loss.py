"""G1, no loss: what was sent to a member that stays is delivered."""

from __future__ import annotations

from typing import Final

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from pipeline import words
from pipeline.groups import excused, with_batch
from pipeline.ranges import first_gaps, with_last
from pipeline.tables import LANE, Tables
from pipeline.violations import event, union, violations, with_name

GUARANTEE: Final = "G1"
CLOSE_AT_ONCE: Final = ("UNICAST", "UNICAST2")
"""Protocols that remove a connection with the view that lacks the peer; later ones flush it."""
GIVEN_UP: Final = ("aged", "forgot", "stop")
"""Reasons for which a connection may be removed at once, with all that it still held."""
FLUSHED: Final = ("idle", "close", "closed", "view")
"""Reasons for which it may be removed only after it was closing, and so had time to repeat it."""


def no_loss(tables: Tables) -> DataFrame:
    """Batches that were not wholly delivered, though nobody who could be blamed was gone."""
    return union(_unicast(tables), _multicast(tables), _own(tables))


def _unicast(tables: Tables) -> DataFrame:
    batch_key = [*LANE, "batch_lo"]
    is_to_self = (F.col("sender") == F.col("lane")) & _is_muted()
    owed_batches = (
        tables.sent.where(~F.col("is_multicast") & ~is_to_self)
        .join(_living(tables, "sender"), ["run", "sender"], how="left_semi")
        .join(_living(tables, "lane"), ["run", "lane"], how="left_semi")
        .join(F.broadcast(_given_up(tables)), [*LANE], how="left_anti")
    )
    parts = (
        tables.delivered.where(~F.col("is_multicast") & F.col("is_genuine"))
        .withColumn("batch_lo", F.col("batch.lo"))
        .withColumn(
            "is_whole", (F.col("lo") == F.col("batch.lo")) & (F.col("hi") == F.col("batch.hi"))
        )
    )
    # Nearly everything is delivered whole: only the rest has to be put together from its parts.
    whole = parts.where("is_whole").select(*batch_key)
    told = owed_batches.withColumn("batch_lo", F.col("lo"))
    rest = told.join(whole, batch_key, how="left_anti").select(
        *batch_key, "number", "time", F.col("lo").alias("first"), F.col("hi").alias("last")
    )
    # A range that was recorded as sent twice is one batch.
    wanted = rest.dropDuplicates(batch_key)
    lost = first_gaps(parts.where(~F.col("is_whole")), tables.keep(wanted), batch_key)
    return _forgotten(tables, lost)


def _forgotten(tables: Tables, lost: DataFrame) -> DataFrame:
    """With how the sender came to forget what was lost, if it did."""
    purges = tables.sending.where((F.col("kind") == "purged") & ~F.col("is_multicast")).select(
        *LANE,
        F.col("lo").alias("at"),
        F.col("number").alias("turn"),
        F.struct("number", "hi").alias("purge"),
    )
    removals = tables.removed_entries.select(
        *LANE, F.col("number").alias("removal"), F.col("text").alias("why")
    )
    found = (
        with_last(lost.withColumn("at", F.col("gap")), purges, LANE, "purge")
        .withColumn("purge", F.when(F.col("purge.hi") >= F.col("gap"), F.col("purge")))
        .join(removals, [*LANE], how="left")
    )
    was_purged, was_removed = F.col("purge").isNotNull(), F.col("removal").isNotNull()
    how = (
        F.when(was_purged, "; the sender dropped it as acked")
        .when(
            was_removed,
            F.format_string("; the sender removed the connection (%s) without flushing it", "why"),
        )
        .otherwise("")
    )
    forgot = F.when(was_purged, F.col("purge.number")).otherwise(F.col("removal"))
    return violations(
        found,
        GUARANTEE,
        time="time",
        detail=F.concat(F.format_string("seqno %d was sent and never delivered", "gap"), how),
        witness=[event("sender", "number"), event("sender", forgot)],
    )


def _given_up(tables: Tables) -> DataFrame:
    """Lanes whose sender was right to remove them with undelivered messages in them."""
    at_once = (F.col("text") == "view") & F.col("protocol").isin(*CLOSE_AT_ONCE)
    flushed = F.col("text").isin(*FLUSHED) & F.col("was_closing")
    return tables.removed_entries.where(at_once | F.col("text").isin(*GIVEN_UP) | flushed).select(
        *LANE
    )


def _living(tables: Tables, as_: str) -> DataFrame:
    living = tables.members.where("lives").select("run", F.col("short_id").alias(as_))
    return F.broadcast(living)


def _is_muted() -> Column:
    return F.col("flags").bitwiseAND(words.DONT_LOOPBACK) != 0


def _multicast(tables: Tables) -> DataFrame:
    """The first multicast of each sender that a member had to deliver, and did not."""
    pair = ["run", "sender", "receiver"]
    parts = tables.delivered.where(F.col("is_multicast") & F.col("is_genuine"))
    lost = tables.keep(with_batch(tables, first_gaps(parts, tables.groups.owed, pair)))
    unexcused = lost.join(excused(tables, lost).select(*pair), pair, how="left_anti")
    return _multicast_losses(tables, unexcused)


def _multicast_losses(tables: Tables, lost: DataFrame) -> DataFrame:
    """With how they came to be lost, if that can be seen."""
    pair = ["run", "sender", "receiver"]
    current = (
        tables.windows.where(F.col("is_multicast") & F.col("removed").isNull())
        .groupBy(*pair)
        .agg(F.max_by(F.struct("opened"), "first").alias("window"))
    )
    purges = tables.sending.where((F.col("kind") == "purged") & F.col("is_multicast")).select(
        "run",
        "sender",
        F.col("lo").alias("at"),
        F.col("number").alias("turn"),
        F.struct("number", "hi").alias("purge"),
    )
    with_window = lost.join(current, pair, how="left").withColumn("at", F.col("gap"))
    found = with_last(with_window, purges, ["run", "sender"], "purge")
    was_purged = F.col("purge.hi") >= F.col("gap")
    begins = F.col("window.opened.lo")
    is_above = begins >= F.col("gap")
    detail = F.concat(
        F.format_string("multicast %d was never delivered by %s", "gap", "name"),
        F.when(F.col("window").isNull(), ", which has no window for its sender")
        .when(is_above, F.format_string(": its window begins after %d", begins))
        .otherwise(""),
        F.when(was_purged, "; the sender dropped it as delivered by all").otherwise(""),
    )
    return violations(
        with_name(found, tables, "receiver", "name"),
        GUARANTEE,
        time="batch.time",
        detail=detail,
        witness=[
            event("sender", "batch.number"),
            event("receiver", F.when(is_above, F.col("window.opened.number"))),
            event("sender", F.when(was_purged, F.col("purge.number"))),
        ],
    )


def _own(tables: Tables) -> DataFrame:
    """A sender delivers its own multicasts, whoever else is in its view."""
    stream = ["run", "sender"]
    is_own = F.col("is_multicast") & F.col("is_genuine") & (F.col("sender") == F.col("receiver"))
    delivered = tables.delivered.where(is_own).select(*stream, "lo", "hi")
    muted = tables.sent.where(F.col("is_multicast") & _is_muted()).select(*stream, "lo", "hi")
    wanted = tables.groups.streams.join(_living(tables, "sender"), stream, how="left_semi").select(
        *stream, F.lit(1).cast("bigint").alias("first"), F.col("high").alias("last")
    )
    lost = with_batch(tables, first_gaps(delivered.unionByName(muted), wanted, stream))
    return violations(
        lost,
        GUARANTEE,
        time="batch.time",
        detail=F.format_string("multicast %d was never delivered to its own sender", "gap"),
        witness=[event("sender", "batch.number")],
    )
