"""Hand-overs from windows to applications: every delivery is handed over, once, whole, in order.

Two sides are compared: the deliveries of a connection, and the messages that its receiver's
application was handed. Both are ranges, cut differently. Each range has a *place*: the number of
messages of its side before it. The sides agree if they have the same seqno at each place; this is
checked where either side has a new range. Messages in pieces have no place of their own: they are
handed over at the place of their last piece.
"""

from __future__ import annotations

from typing import Final

from pyspark.sql import Column, DataFrame, Window, WindowSpec
from pyspark.sql import functions as F

from stormcast.pipeline import words
from stormcast.pipeline.ranges import before_this, spans, with_last
from stormcast.pipeline.tables.kept import keep
from stormcast.pipeline.tables.outgoing import DEST, cuts, told_by_senders
from stormcast.pipeline.tables.records import is_fragment

INCOMING: Final = ("run", "receiver", "source", "protocol", "conn")
"""`protocol` is empty for messages without numbers."""
_MESSAGE: Final = ("run", "source", "dest", "protocol", "conn", "first")
NEVER: Final = (1 << 63) - 1
"""Stands for the number of an event that never came."""
_OVER: Final = -1
"""Stands for the number of an event after the last one of a side."""
UNSAID_SECONDS: Final = 0.5
"""In so many seconds before the end of a run, hand-overs may be missing from traces."""
_SIDE: Final = ("number", "time", "first", "last", "place")
_FAULT: Final = ("guarantee", "time", "detail", "other", "before", "receiver", "number")


def faults(
    both_ends: DataFrame,
    living: DataFrame,
    runs: DataFrame,
    tell: DataFrame,
    windows: DataFrame | None,
) -> DataFrame:
    """Find wrong hand-overs: run, guarantee, time, detail, and the events that show them: `before`
    of member `other` (null: none) and `number` of the receiver. `tell` are the members whose traces
    record what their applications offered (run, short_id), `windows` those on multicasts (run,
    source, receiver, epoch) with the `part` in which pieces are kept together; None where no
    message is in pieces.

    Only the first difference of each connection counts: after it the sides cannot be compared. But
    what was never handed over is found in any case."""
    moves = keep(_moves(both_ends))
    found = _differences(moves, living, runs)
    if windows is not None:
        found = found.unionByName(_joined_wrongly(moves))
    first = F.min_by(F.struct(*(name for name in _FAULT if name != "receiver")), "turn")
    firsts = keep(found.groupBy(*INCOMING).agg(first.alias("fault")))
    walked = firsts.select("run", "fault.*", "receiver").select("run", *_FAULT)
    others = firsts.where(F.col("fault.guarantee") != "G1").select(*INCOMING)
    lost = _lost_beside(moves.join(others, [*INCOMING], how="left_semi"), living, runs)
    if windows is None:
        return walked.unionByName(lost)
    large = keep(whole(both_ends))
    return (
        walked.unionByName(lost)
        .unionByName(_otherwise_than_cut(both_ends, large, moves, tell))
        .unionByName(_never_joined(large, moves, living, runs, windows))
    )


def _moves(both_ends: DataFrame) -> DataFrame:
    """Return deliveries and hand-overs, `first` to `last`, each with its place."""
    is_handed = F.col("kind") == "handed"
    # Batches without numbers count from 1, each separately.
    counts_itself = F.col("protocol").isNull() & ~is_handed
    one_side = Window.partitionBy(*INCOMING, "is_handed").orderBy("number")
    size = F.when(F.col("is_large"), 0).otherwise(F.col("last") - F.col("first") + 1)
    return (
        both_ends.where(F.col("kind").isin("delivered", "handed"))
        .withColumn("is_handed", is_handed)
        .withColumn(
            "is_large", F.when(is_handed, F.col("stream") == words.JOINED).otherwise(is_fragment())
        )
        .withColumn("first", F.when(counts_itself, 1).otherwise(F.col("lo")))
        .withColumn("last", F.when(counts_itself, F.col("count")).otherwise(F.col("hi")))
        .select(
            "run",
            F.col("short_id").alias("receiver"),
            F.col("peer").alias("source"),
            F.coalesce("protocol", F.lit("")).alias("protocol"),
            *("conn", "number", "time", "is_handed", "is_large", "first", "last"),
            *("bytes", "digest", "epoch"),
            size.alias("size"),
        )
        .withColumn("place", F.coalesce(F.sum("size").over(before_this(one_side)), F.lit(0)))
    )


# -- Messages that are handed over as they were delivered ------------------------------------------


def _differences(moves: DataFrame, living: DataFrame, runs: DataFrame) -> DataFrame:
    """Find for each connection the first place at which the two sides differ, with its `turn`: the
    number of the event that showed it."""
    side = F.struct(*_SIDE)
    # The frame is by value, not by row, so that it contains all rows with the same place.
    upto = (
        Window.partitionBy(*INCOMING)
        .orderBy("place")
        .rangeBetween(Window.unboundedPreceding, Window.currentRow)
    )
    plain = moves.where(~F.col("is_large")).select(*INCOMING, "is_handed", *_SIDE)
    plain = plain.unionByName(_ends(moves), allowMissingColumns=True)
    differing = _differing(plain, upto)
    both = (
        plain.join(differing, [*INCOMING], how="left_semi")
        .withColumn("due", F.last(F.when(~F.col("is_handed"), side), True).over(upto))
        .withColumn("given", F.last(F.when(F.col("is_handed"), side), True).over(upto))
    )
    what = _what(
        F.col("due.number"),
        F.col("due.first") - F.col("due.place"),
        F.col("given.number"),
        F.col("given.first") - F.col("given.place"),
    )
    found = (
        both.withColumn("what", what)
        .where(F.col("what").isNotNull())
        .withColumn("due_at", _at("due"))
        .withColumn("given_at", _at("given"))
        .groupBy(*INCOMING)
        .agg(F.min_by(F.struct("what", "due", "given", "due_at", "given_at"), "place").alias("it"))
        .select(*INCOMING, "it.*")
    )
    receivers = living.select("run", F.col("short_id").alias("receiver"))
    owed = (
        found.join(F.broadcast(receivers), ["run", "receiver"], how="left_semi")
        .join(_said_until(runs), "run", how="inner")
        .where(F.col("due.time") <= F.col("said_until"))
        .drop("said_until")
    )
    judged = found.where(F.col("what") != "left over").unionByName(
        owed.where(F.col("what") == "left over")
    )
    return _as_faults(moves, keep(judged))


def _differing(sides: DataFrame, upto: WindowSpec) -> DataFrame:
    """Return the connections whose sides differ anywhere. Most do not, and to know that of millions
    of ranges takes a number and an offset of each side, in place of all that shows a difference."""
    # A side that is over has no number, which must not be taken for that of its last range.
    told = {
        "number": F.coalesce("number", F.lit(_OVER)),
        "offset": F.coalesce(F.col("first") - F.col("place"), F.lit(0)),
    }
    last = {
        f"{side}_{name}": F.last(F.when(is_of_side, value), True).over(upto)
        for side, is_of_side in (("due", ~F.col("is_handed")), ("given", F.col("is_handed")))
        for name, value in told.items()
    }
    what = _what(
        F.nullif(F.col("due_number"), F.lit(_OVER)),
        F.col("due_offset"),
        F.nullif(F.col("given_number"), F.lit(_OVER)),
        F.col("given_offset"),
    )
    return keep(sides.withColumns(last).where(what.isNotNull()).select(*INCOMING).distinct())


def _what(due: Column, due_offset: Column, given: Column, given_offset: Column) -> Column:
    """Return how the sides differ at a place, by the numbers of the events that reached it, and by
    how far their seqnos are above it; null: they do not."""
    is_due, is_given = due.isNotNull(), given.isNotNull()
    is_late = F.coalesce(due > given, F.lit(False))
    return (
        F.when(is_given & (~is_due | is_late), "undelivered")
        .when(is_given & is_due & (given_offset != due_offset), "other")
        .when(is_due & ~is_given, "left over")
    )


def _said_until(runs: DataFrame) -> DataFrame:
    """Return the time until which hand-overs are recorded: run, said_until."""
    return F.broadcast(runs.select("run", (F.col("end") - UNSAID_SECONDS).alias("said_until")))


def _ends(moves: DataFrame) -> DataFrame:
    """Return the place at which each side of a connection ends, as a row without a range."""
    handed = F.sum(F.when(F.col("is_handed"), F.col("size")).otherwise(0))
    delivered = F.sum(F.when(F.col("is_handed"), 0).otherwise(F.col("size")))
    sides = F.array(
        F.struct(F.lit(False).alias("is_handed"), delivered.alias("place")),
        F.struct(F.lit(True).alias("is_handed"), handed.alias("place")),
    )
    return (
        moves.groupBy(*INCOMING)
        .agg(sides.alias("sides"))
        .select(*INCOMING, F.explode("sides").alias("side"))
        .select(*INCOMING, "side.*")
    )


def _at(side: str) -> Column:
    """Return the seqno of one side at this place."""
    return F.col(f"{side}.first") + F.col("place") - F.col(f"{side}.place")


def _as_faults(moves: DataFrame, found: DataFrame) -> DataFrame:
    """Return the differences as violations, each with the guarantee that it breaks."""
    in_order = (
        Window.partitionBy(*INCOMING)
        .orderBy("first", "number")
        .rowsBetween(Window.unboundedPreceding, Window.currentRow)
    )
    handed = (
        moves.where("is_handed")
        .join(found.select(*INCOMING), [*INCOMING], how="left_semi")
        .select(
            *INCOMING,
            F.col("first").alias("at"),
            F.col("number").alias("turn"),
            F.struct(F.max("last").over(in_order).alias("last")).alias("upto"),
        )
    )
    earlier = moves.where("is_handed").select(
        *INCOMING,
        F.col("first").alias("lo"),
        F.col("last").alias("hi"),
        F.col("number").alias("had"),
    )
    again = (
        found.where(F.col("what") == "undelivered")
        .select(*INCOMING, "given_at", F.col("given.number").alias("turn"))
        .join(earlier, [*INCOMING], how="inner")
        .where(F.col("had") < F.col("turn"))
        .where(F.col("given_at").between(F.col("lo"), F.col("hi")))
        .groupBy(*INCOMING)
        .agg(F.min("had").alias("had"))
    )
    told = with_last(found.withColumn("at", F.col("due_at")), handed, INCOMING, "upto").join(
        again, [*INCOMING], how="left"
    )
    is_again = (F.col("what") == "undelivered") & F.col("had").isNotNull()
    is_ever_handed = F.coalesce(F.col("upto.last") >= F.col("due_at"), F.lit(False))
    is_other = F.col("what") == "other"
    guarantee = (
        F.when(is_again, "G2")
        .when(F.col("what") == "undelivered", "G4")
        .when(is_other & (F.col("given_at") < F.col("due_at")), "G2")
        .when(is_other & is_ever_handed, "G3")
        .otherwise("G1")
    )
    too_early = F.format_string("%d was handed over when %d was next", "given_at", "due_at")
    detail = (
        F.when(
            F.col("guarantee") == "G4",
            F.format_string("%d..%d were handed over and not delivered", "given_at", "given.last"),
        )
        .when(is_again, F.format_string("%d was handed over for the second time", "given_at"))
        .when(F.col("guarantee") == "G2", F.concat(too_early, F.lit(": for the second time")))
        .when(F.col("guarantee") == "G3", too_early)
        .otherwise(
            F.format_string("%d was delivered, and the application was never handed it", "due_at")
        )
    )
    is_lost = F.col("guarantee") == "G1"
    return told.withColumn("guarantee", guarantee).select(
        *INCOMING,
        F.coalesce("given.number", F.lit(NEVER)).alias("turn"),
        "guarantee",
        F.when(is_lost, F.col("due.time")).otherwise(F.col("given.time")).alias("time"),
        detail.alias("detail"),
        F.col("receiver").alias("other"),
        F.when(is_other, F.col("due.number")).when(is_again, F.col("had")).alias("before"),
        F.coalesce("given.number", "due.number").alias("number"),
    )


def _lost_beside(moves: DataFrame, living: DataFrame, runs: DataFrame) -> DataFrame:
    """Find the first delivery that was never handed over, of connections on which hand-overs went
    wrong otherwise: seqnos are compared, whatever their order (G1). Messages without numbers cannot
    be compared so."""
    plain = moves.where(~F.col("is_large") & (F.col("protocol") != ""))
    handed = plain.where("is_handed").select(
        *INCOMING, F.col("first").alias("lo"), F.col("last").alias("hi")
    )
    receivers = living.select("run", F.col("short_id").alias("receiver"))
    due = (
        plain.where(~F.col("is_handed"))
        .join(F.broadcast(receivers), ["run", "receiver"], how="left_semi")
        .join(_said_until(runs), "run", how="inner")
        .where(F.col("time") <= F.col("said_until"))
        .withColumn("at", F.col("first"))
    )
    reached = F.coalesce("span.hi", F.lit(0))
    missing = F.greatest("first", reached + 1)
    by_turn = F.struct("missing", "time", "number")
    return (
        with_last(due, spans(handed, INCOMING), INCOMING, "span")
        .withColumn("missing", missing)
        .where(F.col("missing") <= F.col("last"))
        .groupBy(*INCOMING)
        .agg(F.min_by(by_turn, "number").alias("it"))
        .select(
            "run",
            F.lit("G1").alias("guarantee"),
            "it.time",
            F.format_string(
                "%d was delivered, and the application was never handed it", "it.missing"
            ).alias("detail"),
            F.col("receiver").alias("other"),
            F.lit(None).cast("bigint").alias("before"),
            "receiver",
            "it.number",
        )
    )


# -- Messages in pieces --------------------------------------------------------------------------


def _joined_wrongly(moves: DataFrame) -> DataFrame:
    """Find messages that were joined before all of their pieces were delivered, or more often than
    these, or not in the place of their last piece: before what was delivered ahead of it, or after
    what was delivered behind it."""
    in_turn = Window.partitionBy(*INCOMING, "is_handed", "first").orderBy("number")
    large = (
        moves.where("is_large")
        .withColumn("nth", F.row_number().over(in_turn))
        .withColumn("before", F.lag("number").over(in_turn))
    )
    joined = large.where("is_handed")
    by_turn = before_this(Window.partitionBy(*INCOMING).orderBy("number"))
    marks = joined.select(
        *INCOMING,
        "nth",
        F.col("first").alias("at"),
        F.col("number").alias("turn"),
        F.struct("number", "last").alias("whole"),
    )
    pieces = large.where(~F.col("is_handed")).withColumn("at", F.col("first"))
    had = (
        with_last(pieces, marks, [*INCOMING, "nth"], "whole")
        .where(F.col("whole.last") >= F.col("first"))
        .groupBy(*INCOMING, F.col("whole.number").alias("number"))
        .agg(
            F.count(F.lit(1)).alias("pieces"),
            F.max("number").alias("last_piece"),
            F.max("place").alias("behind"),
        )
    )
    is_whole = F.col("pieces") == F.col("last") - F.col("first") + 1
    is_its_turn = (
        (F.col("last_piece") < F.col("number"))
        & (F.col("behind") == F.col("place"))
        & (F.col("last_piece") > F.coalesce("passed", F.lit(-1)))
    )
    is_again = F.col("before").isNotNull()
    what = F.format_string("the message of %d..%d was handed over", "first", "last")
    return (
        joined.join(had, [*INCOMING, "number"], how="left")
        .withColumn("passed", F.max("last_piece").over(by_turn))
        .where(~F.coalesce(is_whole & is_its_turn, F.lit(False)))
        .select(
            *INCOMING,
            F.col("number").alias("turn"),
            F.when(is_again, "G2").otherwise("G3").alias("guarantee"),
            "time",
            F.concat(what, F.when(is_again, " twice").otherwise(" when it was not its turn")).alias(
                "detail"
            ),
            F.col("receiver").alias("other"),
            "before",
            "number",
        )
    )


def whole(both_ends: DataFrame) -> DataFrame:
    """Return messages of which all pieces left, on one connection, each once and without a gap:
    run, source, dest, protocol, conn, first, last, cut, is_muted."""
    is_muted = F.col("flags").bitwiseAND(words.DONT_LOOPBACK) != 0
    is_whole = F.col("pieces") == F.col("last") - F.col("first") + 1
    return (
        told_by_senders(both_ends, "sent")
        .where(is_fragment() & F.col("protocol").isNotNull())
        .groupBy(*DEST, "trim", "protocol", "conn")
        .agg(
            F.count(F.lit(1)).alias("pieces"),
            F.min("lo").alias("first"),
            F.max("hi").alias("last"),
            F.max(is_muted).alias("is_muted"),
        )
        .join(cuts(both_ends), [*DEST, "trim"], how="inner")
        .where(is_whole & (F.col("pieces") == F.col("cut.count")))
        .select(
            "run",
            F.col("sender").alias("source"),
            *("dest", "protocol", "conn", "first", "last", "cut", "is_muted"),
        )
    )


def _with_dest(moves: DataFrame) -> DataFrame:
    """Add `dest`, the destination for which the sender numbered the messages."""
    is_multicast = F.col("protocol").isin(*words.MULTICAST)
    return moves.withColumn("dest", F.when(is_multicast, words.GROUP).otherwise(F.col("receiver")))


def _otherwise_than_cut(
    both_ends: DataFrame, large: DataFrame, moves: DataFrame, tell: DataFrame
) -> DataFrame:
    """Find messages that were joined and are none that was cut: of other bytes, without a piece, or
    with pieces of another message (G4)."""
    senders = tell.select("run", F.col("short_id").alias("source"))
    joined = _with_dest(moves.where(F.col("is_handed") & F.col("is_large"))).join(
        F.broadcast(senders), ["run", "source"], how="left_semi"
    )
    as_cut = large.select(*_MESSAGE, "last", "cut.bytes", "cut.digest")
    wrong = joined.join(as_cut, [*as_cut.columns], how="left_anti")
    pieces = (
        told_by_senders(both_ends, "sent")
        .where(is_fragment() & F.col("protocol").isNotNull())
        .join(cuts(both_ends), [*DEST, "trim"], how="inner")
        .withColumnsRenamed({"sender": "source", "lo": "first"})
        .groupBy(*_MESSAGE)
        .agg(F.max("cut.number").alias("cut_number"))
    )
    return wrong.join(pieces, [*_MESSAGE], how="left").select(
        "run",
        F.lit("G4").alias("guarantee"),
        "time",
        F.format_string(
            "a message of %d..%d was joined otherwise than it was cut", "first", "last"
        ).alias("detail"),
        F.col("source").alias("other"),
        F.col("cut_number").alias("before"),
        "receiver",
        "number",
    )


def _never_joined(
    large: DataFrame, moves: DataFrame, living: DataFrame, runs: DataFrame, windows: DataFrame
) -> DataFrame:
    """Find messages that a living member did not hand over, but delivered all pieces of (G1)."""
    receivers = living.select(
        "run", F.col("short_id").alias("receiver"), F.col("shown").alias("name")
    )
    by = ["run", "source", "dest", "protocol", "conn"]
    marks = large.select(
        *by,
        F.col("first").alias("at"),
        F.col("first").alias("turn"),
        F.struct("first", "last", "cut", "is_muted").alias("whole"),
    )
    of_large = _with_dest(moves.where("is_large"))
    pieces = of_large.where(~F.col("is_handed")).withColumn("at", F.col("first"))
    is_last = F.col("first") == F.col("whole.last")
    had = (
        with_last(pieces, marks, by, "whole")
        .where(F.col("whole.last") >= F.col("first"))
        .join(windows, ["run", "source", "receiver", "epoch"], how="left")
        # Pieces of a unicast are kept over several windows of its connection. Pieces of a multicast
        # outlive a window that is replaced, and go with a view that drops the sender.
        .withColumn("part", F.coalesce("part", -1 - F.col("epoch")))
        .withColumn("part", F.when(F.col("dest") == words.GROUP, F.col("part")).otherwise(0))
        .groupBy(*by, "receiver", "part", "whole")
        .agg(
            F.count_distinct("first").alias("pieces"),
            F.max(F.when(is_last, F.col("number"))).alias("number"),
            F.max("time").alias("came"),
        )
        .select(*by, "receiver", "pieces", "number", "came", "whole.*")
    )
    joined = of_large.where("is_handed").select(*_MESSAGE, "receiver")
    is_for_others = F.col("is_muted") & (F.col("receiver") == F.col("source"))
    return (
        had.where((F.col("pieces") == F.col("last") - F.col("first") + 1) & ~is_for_others)
        .join(joined, [*_MESSAGE, "receiver"], how="left_anti")
        .join(F.broadcast(receivers), ["run", "receiver"], how="inner")
        .join(_said_until(runs), "run", how="inner")
        .where(F.col("came") <= F.col("said_until"))
        .select(
            "run",
            F.lit("G1").alias("guarantee"),
            F.col("cut.time").alias("time"),
            F.format_string(
                "all %d pieces of message %d were delivered by %s, and its application was never "
                "handed it",
                "pieces",
                "cut.lo",
                "name",
            ).alias("detail"),
            F.col("source").alias("other"),
            F.col("cut.number").alias("before"),
            "receiver",
            "number",
        )
    )
