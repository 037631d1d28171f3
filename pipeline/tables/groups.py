"""The tables of groups: which members are together, and which multicasts they must deliver."""

from __future__ import annotations

from pyspark.sql import DataFrame, Window
from pyspark.sql import functions as F

from stormcast.pipeline import words
from stormcast.pipeline.ranges import with_last
from stormcast.pipeline.tables.by_kind import EventsByKind
from stormcast.pipeline.tables.kept import keep, made_once
from stormcast.pipeline.tables.members import MemberTables
from stormcast.pipeline.tables.messages import MessageTables
from stormcast.pipeline.tables.records import is_multicast
from stormcast.pipeline.tables.rig import RigTables


class GroupTables:
    """Tables that are derived from views and multicasts together."""

    def __init__(
        self, events: EventsByKind, rig: RigTables, members: MemberTables, messages: MessageTables
    ) -> None:
        self._events = events
        self._rig = rig
        self._members = members
        self._messages = messages

    @made_once
    def views(self) -> DataFrame:
        """Views that members installed: run, short_id, place (from 0), number, time, view, creator,
        stream, members (short ids by rank). Views that a test handed in are left out."""
        in_turn = Window.partitionBy("run", "short_id").orderBy("number")
        words_of = F.filter(F.split(F.coalesce("text", F.lit("")), ","), lambda word: word != "")
        shorts = F.transform(words_of, lambda word: F.conv(word, 16, 10).cast("bigint"))
        return keep(
            self._events.of("view")
            .where(F.col("peer") != 0)
            .select(
                "run",
                "short_id",
                (F.row_number().over(in_turn) - 1).alias("place"),
                "number",
                "time",
                F.col("lo").alias("view"),
                F.col("peer").alias("creator"),
                "stream",
                shorts.alias("members"),
                "text",
            )
        )

    @made_once
    def calm(self) -> DataFrame:
        """run, calm: the time from which on the rig did nothing, what faults delayed had arrived,
        no member sent, no view changed, and no member raised an alarm about multicasts, which makes
        it request missing ones.

        long_travel: for how many seconds more a network that delays may make an exchange last: a
        message travels, its answer does, and so do repetitions until the answer comes."""
        sends = self._events.of("sent").select("run", "time")
        alarms = self._events.of("alarm").where(is_multicast()).select("run", "time")
        changes = self.views.select("run", "time").unionByName(alarms).unionByName(sends)
        last = changes.groupBy("run").agg(F.max("time").alias("changed"))
        calm = F.greatest("quiet", "landed", F.coalesce("changed", F.lit(0.0)))
        return self._rig.runs.join(last, "run", how="left").select(
            "run", calm.alias("calm"), (3 * F.col("travel")).alias("long_travel")
        )

    @made_once
    def rest(self) -> DataFrame:
        """run, long_travel, rest: the time from which on the run was calm, and no member that stays
        was paused or stalled, or had a digest in use."""
        holds = self._members.holds.select("run", "short_id", "end")
        spans = holds.unionByName(self._members.freezes.select("run", "short_id", "end"))
        last = (
            spans.join(F.broadcast(self._members.living()), ["run", "short_id"], how="left_semi")
            .groupBy("run")
            .agg(F.max("end").alias("held"))
        )
        rest = F.greatest("calm", F.coalesce("held", F.lit(0.0)))
        return self.calm.join(last, "run", how="left").select(
            "run", "long_travel", rest.alias("rest")
        )

    @made_once
    def multicasts(self) -> DataFrame:
        """Batches of multicasts."""
        return self._messages.sent.where("is_multicast")

    @made_once
    def streams(self) -> DataFrame:
        """One row per member that multicast: run, sender, high (the last seqno sent)."""
        high = F.max_by("hi", "number").alias("high")
        return keep(self.multicasts.groupBy("run", "sender").agg(high))

    @made_once
    def since(self) -> DataFrame:
        """The view since which each member has had another one without a break, to its last view:
        run, short_id, other, place, time."""
        return self._unbroken.where(F.col("upto") == F.col("last")).drop("upto", "last")

    @made_once
    def _unbroken(self) -> DataFrame:
        """Sequences of a member's views that all have another one: run, short_id, other, place and
        time of the first, `upto`: the place of the last, `last`: that of the member's last view."""
        own = Window.partitionBy("run", "short_id")
        by_other = Window.partitionBy("run", "short_id", "other").orderBy("place")
        told = self.views.withColumn("last", F.max("place").over(own)).select(
            "run", "short_id", "place", "time", "last", F.explode("members").alias("other")
        )
        # In an unbroken sequence of views, place minus row number is constant.
        runs = told.withColumn("unbroken", F.col("place") - F.row_number().over(by_other))
        return (
            runs.groupBy("run", "short_id", "other", "unbroken", "last")
            .agg(
                F.min("place").alias("place"),
                F.min_by("time", "place").alias("time"),
                F.max("place").alias("upto"),
            )
            .select("run", "short_id", "other", "place", "time", "upto", "last")
        )

    @made_once
    def sent_in(self) -> DataFrame:
        """The seqnos that each member multicast in each of its views: run, sender, place (-1:
        before the first view), first, last."""
        batches = self.multicasts.select("run", "sender", "number", "lo", "hi", "view")
        return keep(
            self.with_place(batches)
            .groupBy("run", "sender", "place")
            .agg(F.min("lo").alias("first"), F.max("hi").alias("last"))
        )

    def with_place(self, records: DataFrame) -> DataFrame:
        """Add to records of senders (`number`, `view`) the place of the view that they were made
        in; -1: before the first one. A record names its view, which may be recorded after it in the
        same turn; a record that names none belongs to the view recorded before it."""
        own_views = self.views.withColumnRenamed("short_id", "sender")
        named = own_views.groupBy(
            "run", "sender", F.col("view").bitwiseAND(words.VIEW_MASK).alias("view")
        ).agg(F.max("place").alias("named"))
        marks = own_views.select(
            "run",
            "sender",
            F.col("number").alias("at"),
            F.col("number").alias("turn"),
            F.struct("place").alias("held"),
        )
        place = F.coalesce(
            F.when(F.col("view") != 0, F.col("named")), F.col("held.place"), F.lit(-1)
        ).cast("bigint")
        points = records.withColumn("at", F.col("number"))
        return (
            with_last(points, marks, ["run", "sender"], "held")
            .join(F.broadcast(named), ["run", "sender", "view"], how="left")
            .withColumn("place", place)
            .drop("held", "named")
        )

    @made_once
    def owed(self) -> DataFrame:
        """The multicasts that each member must have delivered: run, sender, receiver, first..last.

        They begin with the first one sent since the view from which on the sender always had the
        receiver; but multicasts that were sent before the receiver had the sender, and are below
        the beginning of its window, do not count.
        """
        pair = ["run", "sender", "receiver"]
        own = F.col("first")
        met_at = F.coalesce(F.col("late.lo"), F.col("high") + 1)
        begins = F.coalesce(F.col("offset") + 1, F.lit(1))
        return (
            self.owed_pairs.join(self._first_in_view, pair, how="inner")
            .join(self._first_when_met, pair, how="inner")
            .join(self._openings, pair, how="left")
            .join(self.streams, ["run", "sender"], how="inner")
            .select(
                *pair,
                F.greatest(own, F.least(begins, met_at)).alias("first"),
                F.col("high").alias("last"),
            )
            .where(F.col("first") <= F.col("last"))
        )

    @made_once
    def together(self) -> DataFrame:
        """Pairs of living members that have each other at the end: `place` is the sender's view
        since which it has the receiver, `met` the time since which the receiver has the sender."""
        living = self._members.living()
        have = self.since.join(F.broadcast(living), ["run", "short_id"], how="left_semi")
        ours = have.select(
            "run", F.col("short_id").alias("sender"), F.col("other").alias("receiver"), "place"
        )
        theirs = have.select(
            "run",
            F.col("other").alias("sender"),
            F.col("short_id").alias("receiver"),
            F.col("time").alias("met"),
        )
        both = ours.join(theirs, ["run", "sender", "receiver"], how="inner")
        return keep(both.where(F.col("sender") != F.col("receiver")))

    @made_once
    def owed_pairs(self) -> DataFrame:
        """Pairs of which the receiver owes it to the sender to deliver multicasts: those that are
        together; and those that were, until the sender left. Columns as in `together`."""
        left = self._members.incarnations.where("has_left").select(
            "run", F.col("short_id").alias("sender")
        )
        receivers = self._members.living("receiver")
        ours = self.since.select(
            "run", F.col("short_id").alias("sender"), F.col("other").alias("receiver"), "place"
        )
        # The receiver goes on without the sender: what counts is the last time that it had it.
        theirs = self._unbroken.groupBy(
            "run", F.col("other").alias("sender"), F.col("short_id").alias("receiver")
        ).agg(F.max_by("time", "upto").alias("met"))
        until_left = (
            ours.join(F.broadcast(left), ["run", "sender"], how="left_semi")
            .join(F.broadcast(receivers), ["run", "receiver"], how="left_semi")
            .where(F.col("sender") != F.col("receiver"))
            .join(theirs, ["run", "sender", "receiver"], how="inner")
        )
        return keep(self.together.unionByName(until_left.select(*self.together.columns)))

    @made_once
    def _first_in_view(self) -> DataFrame:
        """The first seqno that each sender sent since the view from which on it has a receiver."""
        pairs = self.owed_pairs.select("run", "sender", "receiver", F.col("place").alias("since"))
        return (
            pairs.join(self.sent_in, ["run", "sender"], how="inner")
            .where(F.col("place") >= F.col("since"))
            .groupBy("run", "sender", "receiver")
            .agg(F.min("first").alias("first"))
        )

    @made_once
    def _first_when_met(self) -> DataFrame:
        """The first batch that each sender sent after a receiver had the sender."""
        points = self.owed_pairs.select(
            "run", "sender", "receiver", (F.lit(-words.EPSILON) - F.col("met")).alias("at")
        )
        # Times are negated: so the last batch in this order is the first after the meeting.
        marks = self.multicasts.select(
            "run",
            "sender",
            (-F.col("time")).alias("at"),
            (-F.col("number")).alias("turn"),
            F.struct("lo").alias("late"),
        )
        return with_last(points, marks, ["run", "sender"], "late")

    @made_once
    def _openings(self) -> DataFrame:
        """The seqno after which the window of a receiver began when it met a sender."""
        windows = self._messages.windows.where(F.col("is_multicast") & F.col("opened").isNotNull())
        removed_at = F.coalesce(F.col("removed.time"), F.lit(words.INFINITY))
        pair = ["run", "sender", "receiver"]
        return (
            self.owed_pairs.join(windows, pair, how="inner")
            .where(removed_at > F.col("met") + words.EPSILON)
            .groupBy(*pair)
            .agg(F.min_by("opened.lo", "first").alias("offset"))
        )
