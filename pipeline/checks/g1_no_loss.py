"""G1, no loss: a message that was accepted for a member that stays is handed to its application, or
the sender is told of its loss."""

from __future__ import annotations

from typing import Final

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F

from stormcast.pipeline import words
from stormcast.pipeline.checks import application
from stormcast.pipeline.checks.g1_alarms import without_cause
from stormcast.pipeline.checks.g1_held import lost_with_windows
from stormcast.pipeline.losses import excused, windows_of_pairs, with_batch, with_standstill
from stormcast.pipeline.ranges import (
    before_this,
    first_gaps,
    gaps,
    reached_before,
    spans,
    with_last,
)
from stormcast.pipeline.tables import Tables
from stormcast.pipeline.tables.kept import keep
from stormcast.pipeline.tables.messages import NUMBERING
from stormcast.pipeline.violations import event, union, violations, with_name

GUARANTEE: Final = "G1"
CLOSE_AT_ONCE: Final = ("UNICAST", "UNICAST2")
"""Protocols that remove a connection at the view that lacks the peer; later ones flush it."""
GIVEN_UP: Final = ("aged", "forgot")
"""Reasons for which a connection may be removed at once, with all messages that it still held."""
FLUSHED: Final = ("idle", "close", "closed", "view")
"""Reasons for which a connection may be removed only after it was closing, which gave it time to
repeat these messages."""


def no_loss(tables: Tables) -> DataFrame:
    """Find messages that were lost on their way from one application to the other, though sender
    and receiver stayed."""
    removed, occurring = keep(_removed(tables)), tables.occurring
    return union(
        application.not_sent(tables, GUARANTEE),
        *([application.split(tables, GUARANTEE)] if occurring.any("cut") else ()),
        _unicast(tables, removed),
        *([_thrown_away(tables, removed)] if occurring.any("abandoned") else ()),
        *([_multicast(tables), _own(tables)] if occurring.of_group("sent") else ()),
        application.handed_over(tables, GUARANTEE),
        lost_with_windows(tables),
        without_cause(tables),
    )


def _unicast(tables: Tables, removed: DataFrame) -> DataFrame:
    """Find unicast batches that were not wholly delivered."""
    batch_key = [*NUMBERING, "batch_lo"]
    is_to_self = (F.col("sender") == F.col("dest")) & _is_muted()
    owed_batches = (
        tables.messages.sent.where(~F.col("is_multicast") & ~is_to_self)
        .join(F.broadcast(tables.members.answering("sender")), ["run", "sender"], how="left_semi")
        .join(F.broadcast(tables.members.living("dest")), ["run", "dest"], how="left_semi")
    )
    parts = (
        tables.messages.delivered.where(~F.col("is_multicast") & F.col("is_genuine"))
        .withColumn("batch_lo", F.col("batch.lo"))
        .withColumn(
            "is_whole", (F.col("lo") == F.col("batch.lo")) & (F.col("hi") == F.col("batch.hi"))
        )
    )
    # Nearly all batches are delivered whole: only the others are put together from their parts.
    whole = parts.where("is_whole").select(*batch_key)
    told = owed_batches.withColumn("batch_lo", F.col("lo"))
    rest = told.join(whole, batch_key, how="left_anti").select(
        *batch_key, "number", "time", F.col("lo").alias("first"), F.col("hi").alias("last")
    )
    # A range that was recorded as sent twice is one batch.
    wanted = keep(rest.dropDuplicates(batch_key))
    partial = parts.where(~F.col("is_whole"))
    lost = first_gaps(partial, wanted, batch_key)
    removals = removed.select(
        *NUMBERING, F.col("number").alias("removal"), F.col("text").alias("why"), "is_given_up"
    )
    found = keep(
        lost.join(wanted.select(*batch_key, "first", "last"), batch_key).join(
            F.broadcast(removals), [*NUMBERING], how="left"
        )
    )
    is_given_up = F.coalesce("is_given_up", F.lit(False))
    return union(
        _forgotten(tables, found.where(~is_given_up)),
        _untold(tables, found.where(is_given_up), partial),
    )


def _forgotten(tables: Tables, lost: DataFrame) -> DataFrame:
    """Report lost batches, each with the purge or removal by which its sender forgot it, if any."""
    purges = tables.messages.sending.where(
        (F.col("kind") == "purged") & ~F.col("is_multicast")
    ).select(
        *NUMBERING,
        F.col("lo").alias("at"),
        F.col("number").alias("turn"),
        F.struct("number", "hi").alias("purge"),
    )
    found = with_last(lost.withColumn("at", F.col("gap")), purges, NUMBERING, "purge").withColumn(
        "purge", F.when(F.col("purge.hi") >= F.col("gap"), F.col("purge"))
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


def _removed(tables: Tables) -> DataFrame:
    """Return the removed sender entries, with `is_held_to`: removed for silence though the peer is
    in the sender's view, which is wrong, as only the view may give a member up; and `is_given_up`:
    the sender was right to remove the entry with undelivered messages."""
    views = tables.groups.views.select(
        "run",
        F.col("short_id").alias("sender"),
        F.col("time").alias("at"),
        F.col("number").alias("turn"),
        F.struct("members").alias("view"),
    )
    at = F.col("time") + words.EPSILON
    text = F.coalesce("text", F.lit(""))
    # A command may forget a connection that is closing.
    was_idle = (text == "closed") & (F.col("closed_as") == "idle")
    is_silent = (text == "aged") | was_idle
    has_peer = F.coalesce(F.array_contains("view.members", F.col("dest")), F.lit(False))
    removed = tables.messages.removed_entries
    wrong = _without_proof(tables, removed).withColumn("is_wrong", F.lit(True))
    is_proven = F.col("is_wrong").isNull()
    at_once = (text == "view") & F.col("protocol").isin(*CLOSE_AT_ONCE) & is_proven
    stopped = (text == "stop") & is_proven
    flushed = text.isin(*FLUSHED) & (F.col("closed_as") != "")
    return (
        with_last(removed.withColumn("at", at), views, ["run", "sender"], "view")
        .join(F.broadcast(wrong), ["run", "sender", "number"], how="left")
        .withColumn("was_idle", was_idle)
        .withColumn("is_held_to", is_silent & has_peer)
        .withColumn(
            "is_given_up",
            stopped | at_once | (~F.col("is_held_to") & (text.isin(*GIVEN_UP) | flushed)),
        )
        .drop("view", "is_wrong")
    )


def _without_proof(tables: Tables, removed: DataFrame) -> DataFrame:
    """Return removals (run, sender, number) because of a view, or at a stop, that the sender's own
    trace does not confirm: it had the receiver in its view all the time, or went on afterwards."""
    key = ["run", "sender", "number"]
    why = removed.select(*key, "dest", "time", "text", "protocol")
    stops = keep(why.where("text = 'stop'"))
    is_at_once = (F.col("text") == "view") & F.col("protocol").isin(*CLOSE_AT_ONCE)
    parted = keep(why.where(is_at_once))
    last = tables.events.groupBy("run", F.col("short_id").alias("sender")).agg(
        F.max("time").alias("last")
    )
    went_on = stops.join(last, ["run", "sender"], how="inner").where(
        F.col("last") > F.col("time") + words.EPSILON
    )
    in_turn = Window.partitionBy("run", "short_id").orderBy(F.desc("place"))
    views = tables.groups.views.select(
        "run",
        F.col("short_id").alias("sender"),
        F.col("time").alias("begun"),
        F.coalesce(F.lag("time").over(in_turn), F.lit(words.INFINITY)).alias("over"),
        "members",
    )
    begin, end = F.col("time") - words.EPSILON, F.col("time") + words.EPSILON
    was_held = (F.col("begun") <= end) & (F.col("over") >= begin)
    lacks_it = ~F.array_contains("members", F.col("dest"))
    stayed = (
        parted.join(views, ["run", "sender"], how="inner")
        .groupBy(*key)
        .agg(
            F.max(F.col("begun") < begin).alias("had_a_view"),
            F.max(was_held & lacks_it).alias("was_outside"),
        )
        .where(F.col("had_a_view") & ~F.col("was_outside"))
    )
    return keep(went_on.select(*key).unionByName(stayed.select(*key)))


def _untold(tables: Tables, lost: DataFrame, parts: DataFrame) -> DataFrame:
    """Find messages that were rightly given up, but without a report to the application. `parts`
    are the deliveries of batches that were not delivered whole."""
    tell = tables.members.incarnations.where(F.col("version") >= words.SAYS_BOTH_ENDS).select(
        "run", F.col("short_id").alias("sender")
    )
    given_up = keep(lost.join(F.broadcast(tell), ["run", "sender"], how="left_semi"))
    told = tables.application.given_up.join(
        given_up.select(*NUMBERING).distinct(), [*NUMBERING], how="left_semi"
    )
    covered = parts.select(*NUMBERING, "lo", "hi").unionByName(told.select(*NUMBERING, "lo", "hi"))
    batches = given_up.withColumn("at", F.col("first"))
    points = with_last(batches, spans(covered, NUMBERING), NUMBERING, "span")
    is_begun = F.coalesce(F.col("span.hi") >= F.col("first"), F.lit(False))
    untold = points.withColumn(
        "gap", F.when(is_begun, F.col("span.hi") + 1).otherwise(F.col("first"))
    )
    return violations(
        untold.where(F.col("gap") <= F.col("last")),
        GUARANTEE,
        time="time",
        detail=F.format_string(
            "seqno %d was given up with its connection (%s), and its application was not told",
            "gap",
            "why",
        ),
        witness=[event("sender", "number"), event("sender", "removal")],
    )


def _thrown_away(tables: Tables, removed: DataFrame) -> DataFrame:
    """Find waiting messages that were given up with a connection that was removed wrongly: closed
    as idle while messages waited and all sent ones were acked, or to a member of the view. What
    waits while there is no connection is given up without a removal in that moment."""
    pair = ["run", "sender", "dest"]
    given_up = (
        tables.application.outgoing.where("is_abandoned")
        .join(F.broadcast(tables.members.answering("sender")), ["run", "sender"], how="left_semi")
        .join(F.broadcast(tables.members.living("dest")), ["run", "dest"], how="left_semi")
        .withColumn("at", F.col("time") + words.EPSILON)
    )
    marks = removed.select(
        *pair,
        F.col("time").alias("at"),
        F.col("number").alias("turn"),
        F.struct("number", "time", "was_idle", "unacked", "is_held_to").alias("removal"),
    )
    is_of_this_moment = F.col("removal.time") >= F.col("time") - words.EPSILON
    has_waited = F.col("removal.was_idle") & (F.col("removal.unacked") == 0)
    found = with_last(given_up, marks, pair, "removal").where(
        is_of_this_moment & (has_waited | F.col("removal.is_held_to"))
    )
    return violations(
        with_name(found, tables, "dest", "name"),
        GUARANTEE,
        time="time",
        detail=F.format_string(
            "%d messages that waited for %s were given up, because the connection was idle",
            "count",
            "name",
        ),
        witness=[event("sender", "removal.number"), event("sender", "number")],
    )


def _is_muted() -> Column:
    return F.col("flags").bitwiseAND(words.DONT_LOOPBACK) != 0


def _multicast(tables: Tables) -> DataFrame:
    """Find the first multicast of each sender that a member had to deliver, and did not. What is
    excused is put among the deliveries, so that what follows it is judged, too."""
    pair = ["run", "sender", "receiver"]
    delivered = tables.messages.delivered.where(F.col("is_multicast") & F.col("is_genuine"))
    free = _holes(tables).unionByName(_given_up_by_leavers(tables))
    pairs = tables.groups.owed.select(*pair)
    parts = delivered.select(*pair, "lo", "hi").unionByName(
        free.join(pairs, ["run", "sender"], how="inner").select(*pair, "lo", "hi")
    )
    lost = keep(with_batch(tables, first_gaps(parts, tables.groups.owed, pair)))
    told = keep(excused(tables, lost).select(*pair))
    silent = lost.join(told, pair, how="left_anti")
    if not told.isEmpty():
        silent = silent.unionByName(_silent_above(tables, parts, told), allowMissingColumns=True)
    return _multicast_losses(tables, silent)


def _silent_above(tables: Tables, parts: DataFrame, told: DataFrame) -> DataFrame:
    """Return for pairs whose first loss was reported the first one that was not. `parts` are the
    deliveries, and what is excused."""
    pair = ["run", "sender", "receiver"]
    of_window = [*pair, "epoch"]
    windows = keep(windows_of_pairs(tables).join(told, pair, how="left_semi"))
    later = before_this(Window.partitionBy(*pair).orderBy(F.desc("nth")))
    taken_over = F.coalesce(F.min("offset").over(later), F.col("last"))
    wanted = keep(
        windows.join(tables.groups.owed.select(*pair, "first", "last"), pair, how="inner")
        .withColumn("last", F.least("last", taken_over))
        .withColumn("first", F.greatest("first", F.col("offset") + 1))
        .where(F.col("first") <= F.col("last"))
        .select(*of_window, "first", "last")
    )
    had = parts.join(wanted.select(*of_window), pair, how="inner").select(*of_window, "lo", "hi")
    missing = with_standstill(tables, keep(gaps(had, wanted, of_window)))
    firsts = (
        missing.groupBy(*of_window, "stands_at").agg(F.min("gap_lo").alias("gap")).drop("epoch")
    )
    above = keep(with_batch(tables, firsts))
    key = [*pair, "gap"]
    silent = above.join(excused(tables, above).select(*key), key, how="left_anti")
    first = Window.partitionBy(*pair).orderBy("gap")
    return silent.withColumn("nth", F.row_number().over(first)).where("nth = 1").drop("nth")


def _holes(tables: Tables) -> DataFrame:
    """Return the seqnos between the batches of each sender that no batch has (run, sender, lo, hi):
    a seqno that was never given to a message cannot be lost."""
    reached = F.coalesce(
        reached_before(Window.partitionBy("run", "sender").orderBy("lo", "hi")), F.lit(0)
    )
    return (
        tables.groups.multicasts.select("run", "sender", "lo", "hi")
        .withColumn("reached", reached)
        .where(F.col("lo") > F.col("reached") + 1)
        .select("run", "sender", (F.col("reached") + 1).alias("lo"), (F.col("lo") - 1).alias("hi"))
    )


def _given_up_by_leavers(tables: Tables) -> DataFrame:
    """Return the multicasts that each leaver said it gave up: run, sender, lo, hi."""
    left = tables.members.incarnations.where("has_left").select(
        "run", F.col("short_id").alias("sender")
    )
    told = tables.application.given_up.where(F.col("dest") == words.GROUP)
    return told.join(F.broadcast(left), ["run", "sender"], how="left_semi").select(
        "run", "sender", "lo", "hi"
    )


def _multicast_losses(tables: Tables, lost: DataFrame) -> DataFrame:
    """Report lost multicasts, each with the cause, if it can be seen."""
    pair = ["run", "sender", "receiver"]
    current = (
        tables.messages.windows.where(F.col("is_multicast") & F.col("removed").isNull())
        .groupBy(*pair)
        .agg(F.max_by(F.struct("opened"), "first").alias("window"))
    )
    purges = tables.messages.sending.where(
        (F.col("kind") == "purged") & F.col("is_multicast")
    ).select(
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
    """Find multicasts that their own sender did not deliver."""
    stream = ["run", "sender"]
    is_own = F.col("is_multicast") & F.col("is_genuine") & (F.col("sender") == F.col("receiver"))
    delivered = tables.messages.delivered.where(is_own).select(*stream, "lo", "hi")
    muted = tables.messages.sent.where(F.col("is_multicast") & _is_muted()).select(
        *stream, "lo", "hi"
    )
    wanted = tables.groups.streams.join(
        F.broadcast(tables.members.living("sender")), stream, how="left_semi"
    ).select(*stream, F.lit(1).cast("bigint").alias("first"), F.col("high").alias("last"))
    parts = delivered.unionByName(muted).unionByName(_holes(tables))
    lost = with_batch(tables, first_gaps(parts, wanted, stream))
    return violations(
        lost,
        GUARANTEE,
        time="batch.time",
        detail=F.format_string("multicast %d was never delivered to its own sender", "gap"),
        witness=[event("sender", "batch.number")],
    )
