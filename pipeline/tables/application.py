"""The tables of messages that applications offered and were handed."""

from __future__ import annotations

from typing import Final

from pyspark.sql import DataFrame, Window
from pyspark.sql import functions as F

from stormcast.pipeline import words
from stormcast.pipeline.ranges import before_this, with_last
from stormcast.pipeline.tables import hand_over, outgoing
from stormcast.pipeline.tables.by_kind import EventsByKind
from stormcast.pipeline.tables.kept import given, keep, made_once
from stormcast.pipeline.tables.members import MemberTables
from stormcast.pipeline.tables.messages import NUMBERING, MessageTables
from stormcast.pipeline.tables.records import is_multicast
from stormcast.pipeline.tables.rig import RigTables

_CONNECTION: Final = ("run", "sender", "dest", "conn")
_GIVEN_UP: Final = (
    "run string, sender bigint, dest bigint, conn bigint, entry bigint, lo bigint, hi bigint"
)
DROPPED_BY_VIEW: Final = "view"
"""The reason with which a window is removed because its sender is in the view no more."""


class ApplicationTables:
    """Messages on their way from one application to the other."""

    def __init__(
        self, events: EventsByKind, rig: RigTables, members: MemberTables, messages: MessageTables
    ) -> None:
        self._events = events
        self._messages = messages
        self._rig = rig
        self._members = members

    @made_once
    def both_ends(self) -> DataFrame:
        """The events of messages on their way, of members whose traces also record what
        applications offered and were handed."""
        events = self._events.of("offered", "cut", "sent", "abandoned", "delivered", "handed")
        return events.join(F.broadcast(self._tell), ["run", "short_id"], how="left_semi")

    @property
    def _tell(self) -> DataFrame:
        told = F.col("version") >= words.SAYS_BOTH_ENDS
        return self._members.incarnations.where(told).select("run", "short_id")

    @made_once
    def outgoing(self) -> DataFrame:
        """Messages that left, by the application's own numbers (see `outgoing.left`)."""
        return keep(outgoing.left(self.both_ends, self._events.occurring))

    @made_once
    def given_up(self) -> DataFrame:
        """What senders reported as given up of what had left (NUMBERING, lo, hi): of the life of a
        connection, or the stream, that had sent last by then, and no more than that had sent by
        then."""
        if not self._events.occurring.any("abandoned"):
            return given(self._events.all.sparkSession, (), _GIVEN_UP)
        in_turn = Window.partitionBy(*NUMBERING).orderBy("number")
        upto_here = in_turn.rowsBetween(Window.unboundedPreceding, Window.currentRow)
        marks = self._messages.sent.select(
            *_CONNECTION,
            F.col("number").alias("at"),
            F.col("number").alias("turn"),
            F.struct("entry", F.max("hi").over(upto_here).alias("hi")).alias("sent"),
        )
        told = outgoing.told_by_senders(self.both_ends, "abandoned").where(
            F.col("protocol").isNotNull()
        )
        found = with_last(told.withColumn("at", F.col("number")), marks, _CONNECTION, "sent")
        return keep(
            found.withColumn("entry", F.col("sent.entry"))
            .withColumn("hi", F.least("hi", "sent.hi"))
            .where(F.col("entry").isNotNull() & (F.col("lo") <= F.col("hi")))
            .select(*NUMBERING, "lo", "hi")
        )

    @made_once
    def hand_over(self) -> DataFrame:
        """Wrong hand-overs from windows to applications (see `hand_over.faults`)."""
        living = self._members.incarnations.where("lives")
        return keep(
            hand_over.faults(
                self.both_ends,
                living,
                self._rig.runs,
                self._tell,
                self._windows if self._events.occurring.in_pieces() else None,
            )
        )

    @property
    def _windows(self) -> DataFrame:
        """Windows on multicasts: run, source, receiver, epoch, `part` (how many windows on the same
        stream had ended before because a view dropped the sender)."""
        key = ["run", "source", "receiver", "epoch"]
        is_removal = F.col("stream") == words.RECEIVER_REMOVED
        dropped = (
            self._events.of("conn")
            .where(is_multicast() & is_removal & (F.col("text") == DROPPED_BY_VIEW))
            .select(
                "run", F.col("peer").alias("source"), F.col("short_id").alias("receiver"), "epoch"
            )
            .distinct()
            .withColumn("dropped", F.lit(1))
        )
        before = before_this(Window.partitionBy("run", "source", "receiver").orderBy("first"))
        return (
            self._messages.windows.where("is_multicast")
            .withColumnRenamed("sender", "source")
            .select(*key, "first")
            .join(dropped, key, how="left")
            .withColumn("part", F.coalesce(F.sum("dropped").over(before), F.lit(0)))
            .select(*key, "part")
        )
