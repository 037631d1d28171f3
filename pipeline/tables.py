"""The tables that checks and reports share, derived from the events of any number of runs.

Everything is keyed by `run`. Members are named by their short ids, as in the records; `members` has
their labels. A *lane* is what numbers messages: one life of a sender's half of a connection (to the
member `lane`, with `conn` and `entry`), or all that a member multicasts (all three are 0 there). A
*window* is one life of a receiver's side of it (`conn`, `epoch`). Rows are ranges, as in the trace.
"""

from __future__ import annotations

from collections.abc import Collection
from functools import cached_property
from typing import Final

from pyspark import StorageLevel
from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F

from stormcast.pipeline import hand_over, outgoing, words
from stormcast.pipeline.groups import Groups
from stormcast.pipeline.ranges import before_this

LANE: Final = ("run", "sender", "lane", "conn", "entry")
"""`lane` is the receiver, or 0: the group."""
WINDOW: Final = ("run", "sender", "receiver", "conn", "epoch")

_SETTINGS: Final = """
    bounds MAP<STRING, DOUBLE>,
    protocols MAP<STRING, STRUCT<
        xmit_interval: DOUBLE, use_mcast_xmit_req: BOOLEAN, bounds: MAP<STRING, DOUBLE>>>
"""
_FAULT: Final = """
    id STRING, do STRING, phase STRING, member BIGINT, copies BIGINT, attribute STRING, value STRING
"""
_PROBE: Final = "id STRING, do STRING, bit BIGINT"
_RANGE: Final = ("number", "time", "lo", "hi", "count", "bytes", "digest", "flags")


def is_multicast() -> Column:
    """Whether a record is of messages to the group, or of a window on them."""
    return F.coalesce(F.col("protocol").isin(*words.MULTICAST), F.lit(False))


def is_numbered() -> Column:
    """Whether messages have seqnos; those without (NO_RELIABILITY) name no protocol."""
    return F.col("protocol").isNotNull()


def _kind(*kinds: str) -> Column:
    return F.col("kind").isin(*kinds)


class Tables:
    """What the events of some runs say, each table made when it is first asked for."""

    def __init__(self, events: DataFrame) -> None:
        self.events = self.keep(on_one_clock(events))

    def keep(self, table: DataFrame) -> DataFrame:
        """Compute a table now and once, however many checks read it.

        What reads it has a plan that begins here: plans that contain all plans before them are
        what takes the time of a small run.
        """
        return table.localCheckpoint(storageLevel=StorageLevel.MEMORY_AND_DISK)

    def without(self, runs: Collection[str]) -> Tables:
        """The tables of the other runs."""
        return Tables(self.events.where(~F.col("run").isin(*runs))) if runs else self

    @cached_property
    def groups(self) -> Groups:
        """What is derived of views and multicasts."""
        return Groups(self)

    # -- The rig -----------------------------------------------------------------------------

    @cached_property
    def fault_events(self) -> DataFrame:
        """What the rig recorded: run, number, time, text, and the fields of the text."""
        told = F.from_json("text", _FAULT)
        return self.keep(
            self._of_rig("fault")
            .withColumn("told", told)
            .select("run", "number", "time", "text", "told.*")
        )

    @cached_property
    def faults(self) -> DataFrame:
        """One row per fault that began: run, id, do, member, start, end (null: never, or at once),
        bit (how often it had an effect; null: nobody counted)."""
        of_fault = Window.partitionBy("run", "id").orderBy(F.desc("number"))
        ended = F.when(F.col("phase") == "off", F.col("time"))
        return self.keep(
            self.fault_events.withColumn("end", F.last(ended, True).over(before_this(of_fault)))
            .where(F.col("phase") == "on")
            .join(self.probes.select("run", "id", "bit"), ["run", "id"], how="left")
            .select("run", "id", "do", "member", F.col("time").alias("start"), "end", "bit")
        )

    @cached_property
    def probes(self) -> DataFrame:
        """How often each fault had an effect: run, id, do, bit."""
        return self.keep(
            self._of_rig("probe")
            .withColumn("told", F.from_json("text", _PROBE))
            .select("run", "text", "told.*")
        )

    @cached_property
    def phases(self) -> DataFrame:
        """run, phase (`quiet`, `end`), time."""
        return self._of_rig("phase").select("run", "number", F.col("text").alias("phase"), "time")

    def _of_rig(self, kind: str) -> DataFrame:
        return self.events.where(_kind(kind) & (F.col("short_id") == words.RIG))

    @cached_property
    def runs(self) -> DataFrame:
        """One row per run: when it was quiet and ended (infinite: never said), what was done."""
        was_done = self.fault_events.groupBy("run").agg(
            F.lit(True).alias("did_anything"),
            F.max(F.col("text").contains('"install-view"')).alias("views_by_hand"),
            F.sum(
                F.when(
                    F.col("do").isin(*words.MAKES_COPIES) & (F.col("phase") == "on"),
                    F.coalesce("copies", F.lit(1)),
                ).otherwise(0)
            ).alias("copies"),
        )
        last_of = {
            phase: F.max_by("time", F.when(F.col("phase") == phase, F.col("number")))
            for phase in ("quiet", "end")
        }
        phases = self.phases.groupBy("run").agg(*(c.alias(name) for name, c in last_of.items()))
        never = F.lit(words.INFINITY)
        return self.keep(
            self.events.groupBy("run")
            .agg(F.count(F.lit(1)).alias("events"))
            .join(was_done, "run", how="left")
            .join(phases, "run", how="left")
            .select(
                "run",
                "events",
                F.coalesce("quiet", never).alias("quiet"),
                F.coalesce("end", never).alias("end"),
                F.coalesce("did_anything", F.lit(False)).alias("did_anything"),
                F.coalesce("views_by_hand", F.lit(False)).alias("views_by_hand"),
                # A network may always repeat a frame.
                (F.lit(2) + F.coalesce("copies", F.lit(0))).alias("most_copies"),
            )
        )

    # -- Members -----------------------------------------------------------------------------

    @cached_property
    def members(self) -> DataFrame:
        """One row per incarnation: run, short_id, label, shown, started, ended (infinite: it ran to
        the end), lives, promised (bounds of unicast), protocols (settings by protocol), version (of
        its trace)."""
        by_age = Window.partitionBy("run", "name").orderBy("started", "killed", "short_id")
        never = F.lit(words.INFINITY)
        is_alone = F.count(F.lit(1)).over(Window.partitionBy("run", "name")) == 1
        changed = F.col("changes") > 0
        nothing = F.expr("CAST(map() AS MAP<STRING, DOUBLE>)")
        unpromised = F.transform_values(
            "protocols", lambda _name, settings: settings.withField("bounds", nothing)
        )
        return self.keep(
            self._started.join(self._done_to, ["run", "short_id"], how="left")
            .join(self._stopped, ["run", "short_id"], how="left")
            .withColumn("killed", F.coalesce("killed", never))
            # Its name starts again: it is gone, whatever the rig knows of it.
            .withColumn("replaced", F.lead("started").over(by_age))
            .withColumn("ended", F.least("killed", "stopped", "replaced"))
            .select(
                "run",
                "short_id",
                "label",
                F.when(is_alone, F.col("name")).otherwise(F.col("label")).alias("shown"),
                "started",
                "killed",
                "ended",
                (F.col("ended") == never).alias("lives"),
                # What is promised after settings changed is written nowhere.
                F.when(changed, nothing).otherwise(F.coalesce("bounds", nothing)).alias("promised"),
                F.when(changed, unpromised).otherwise(F.col("protocols")).alias("protocols"),
                "was_told",
                "text",
                "version",
            )
        )

    @cached_property
    def _started(self) -> DataFrame:
        """Who each member is, and what it promises, from its first event."""
        parts = F.split("text", " ", 3)
        first = self.events.where((F.col("number") == 0) & (F.col("short_id") != words.RIG))
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

    @cached_property
    def _done_to(self) -> DataFrame:
        """What the rig did to members: when it killed them, how often it changed settings."""
        is_kill = F.col("do").isin(*words.KILLS)
        is_change = F.col("do") == words.CHANGES_SETTINGS
        return (
            self.fault_events.where((F.col("phase") == "on") & F.col("member").isNotNull())
            .groupBy("run", F.col("member").alias("short_id"))
            .agg(
                F.min(F.when(is_kill, F.col("time"))).alias("killed"),
                F.sum(is_change.cast("int")).alias("changes"),
            )
        )

    @cached_property
    def _stopped(self) -> DataFrame:
        return (
            self.events.where(_kind("stop"))
            .groupBy("run", "short_id")
            .agg(F.min("time").alias("stopped"))
        )

    @cached_property
    def holds(self) -> DataFrame:
        """Stretches in which a member was paused or stalled: run, short_id, do, start, end."""
        steps = self.fault_events
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
        return self.keep(
            ends[0]
            .unionByName(ends[1])
            .groupBy("run", "number", F.col("member").alias("short_id"), "do", "time")
            .agg(F.coalesce(F.min("end"), F.lit(words.INFINITY)).alias("end"))
            .select("run", "short_id", "do", F.col("time").alias("start"), "end")
        )

    @cached_property
    def silences(self) -> DataFrame:
        """Stretches in which a member's multicast protocol asks for nothing that is missing: run,
        short_id, start, end. Where nothing says how often it repairs there is no row."""
        at_start = self.members.select(
            "run",
            "short_id",
            F.col("started").alias("since"),
            F.lit(-1).cast("bigint").alias("step"),
            F.explode(F.array(*(F.col("protocols")[name] for name in words.MULTICAST))).alias("it"),
        ).where(F.col("it").isNotNull())
        repairs_at_start = at_start.select(
            "run", "short_id", "since", "step", F.col("it.xmit_interval").alias("interval")
        )
        change = _changed_interval(self.fault_events)
        changes = change.join(at_start.select("run", "short_id").distinct(), ["run", "short_id"])
        in_turn = Window.partitionBy("run", "short_id").orderBy("since", "step")
        return self.keep(
            repairs_at_start.unionByName(changes)
            .withColumn("until", F.lead("since").over(in_turn))
            .where(F.col("interval") <= 0)
            .select(
                "run",
                "short_id",
                F.col("since").alias("start"),
                F.coalesce("until", F.lit(words.INFINITY)).alias("end"),
            )
        )

    @cached_property
    def calm(self) -> DataFrame:
        """run, calm: from here on the rig did nothing, no view changed, and nobody raised an alarm
        about multicasts, which has what is missing asked for after all."""
        alarms = self.events.where(_kind("alarm") & is_multicast()).select("run", "time")
        changes = self.views.select("run", "time").unionByName(alarms)
        last = changes.groupBy("run").agg(F.max("time").alias("changed"))
        calm = F.greatest("quiet", F.coalesce("changed", F.lit(0.0)))
        return self.runs.join(last, "run", how="left").select("run", calm.alias("calm"))

    @cached_property
    def views(self) -> DataFrame:
        """Views that members installed: run, short_id, place (from 0), number, time, view, creator,
        stream, members (short ids by rank). Those that a test handed in are none."""
        in_turn = Window.partitionBy("run", "short_id").orderBy("number")
        words_of = F.filter(F.split(F.coalesce("text", F.lit("")), ","), lambda word: word != "")
        shorts = F.transform(words_of, lambda word: F.conv(word, 16, 10).cast("bigint"))
        return self.keep(
            self.events.where(_kind("view") & (F.col("peer") != 0)).select(
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

    # -- Lanes and windows -------------------------------------------------------------------

    @cached_property
    def sending(self) -> DataFrame:
        """What senders recorded of numbered messages, each row with its lane: sent, purged, conn,
        and of unicast retransmitted."""
        is_conn = _kind("conn") & (F.col("stream") <= words.SENDER_REMOVED)
        of_unicast = ~is_multicast() & (_kind("sent", "purged", "retransmitted") | is_conn)
        of_group = is_multicast() & (_kind("sent") | (_kind("purged") & (F.col("conn") == 0)))
        half = Window.partitionBy("run", "short_id", "peer", "conn").orderBy("number")
        # An entry that closes and opens again is the same one; after its removal a new one begins.
        is_removal = _kind("conn") & (F.col("stream") == words.SENDER_REMOVED)
        removals = F.coalesce(F.sum(is_removal.cast("int")).over(before_this(half)), F.lit(0))
        columns = ("kind", "protocol", "stream", "view", "text", *_RANGE)
        rows = self.events.where(is_numbered() & (of_unicast | of_group))
        return self.keep(
            rows.select(
                "run",
                F.col("short_id").alias("sender"),
                F.when(is_multicast(), words.GROUP).otherwise(F.col("peer")).alias("lane"),
                F.when(is_multicast(), 0).otherwise(F.col("conn")).alias("conn"),
                removals.alias("entry"),
                is_multicast().alias("is_multicast"),
                *columns,
            )
        )

    @cached_property
    def sent(self) -> DataFrame:
        """Numbered batches, each with its lane."""
        return self.sending.where(_kind("sent"))

    @cached_property
    def receiving(self) -> DataFrame:
        """What receivers recorded of numbered messages, each row with its window: delivered, acked,
        requested, skipped, conn."""
        is_conn = _kind("conn") & (F.col("stream") >= words.RECEIVER_OPEN)
        kinds = _kind("delivered", "acked", "requested", "skipped") | is_conn
        return self.events.where(is_numbered() & kinds).select(
            "run",
            F.col("peer").alias("sender"),
            F.col("short_id").alias("receiver"),
            F.when(is_multicast(), 0).otherwise(F.col("conn")).alias("conn"),
            "epoch",
            is_multicast().alias("is_multicast"),
            "kind",
            "protocol",
            "stream",
            "stream_word",
            "view",
            *_RANGE,
        )

    @cached_property
    def windows(self) -> DataFrame:
        """One row per window: when first heard of, opened and removed, and its sums."""
        is_open = _kind("conn") & (F.col("stream") == words.RECEIVER_OPEN)
        is_removed = _kind("conn") & (F.col("stream") == words.RECEIVER_REMOVED)
        is_control = _kind("requested", "acked")
        return self.keep(
            self.receiving.groupBy(*WINDOW, "is_multicast").agg(
                F.min("number").alias("first"),
                F.min(F.when(is_open, F.struct("number", "time", "lo", "view"))).alias("opened"),
                F.max(F.when(is_removed, F.struct("number", "time"))).alias("removed"),
                F.max(F.when(_kind("skipped"), F.col("hi"))).alias("skipped"),
                F.sum(F.when(_kind("delivered"), F.col("count")).otherwise(0)).alias("delivered"),
                F.sum(_kind("acked").cast("int")).alias("acks"),
                F.sum(_kind("requested").cast("int")).alias("requests"),
                F.min(F.when(_kind("acked"), F.col("time"))).alias("first_ack"),
                F.min_by("protocol", F.when(is_control, F.col("number"))).alias("protocol"),
            )
        )

    @cached_property
    def removed_entries(self) -> DataFrame:
        """Lives of sender entries that ended: their lane, number and time of the removal, text
        (why), how many messages were `unacked`, and `closed_as`: why it was closing before; empty
        where it was not, and so had no time to repeat things."""
        in_turn = Window.partitionBy(*LANE).orderBy("number")
        was_closing = F.lag("stream").over(in_turn) == words.SENDER_CLOSING
        closed_as = F.when(was_closing, F.lag("text").over(in_turn))
        return self.keep(
            self.sending.where(_kind("conn"))
            .withColumn("closed_as", F.coalesce(closed_as, F.lit("")))
            .where(F.col("stream") == words.SENDER_REMOVED)
            .select(
                *LANE,
                "number",
                "time",
                "text",
                "protocol",
                "closed_as",
                F.col("lo").alias("unacked"),
            )
        )

    @cached_property
    def placed(self) -> DataFrame:
        """Each delivery and request with `batch`, what was sent under its first (its last) seqno.

        `is_genuine`: the batch has its digest, holds all of it, and was sent before. Of several
        lives of one sender entry the newest counts that sent it so. The batch of a seqno is the
        last one that begins at or before it: one sort of a lane, and no join by range.
        """
        points = self.receiving.where(_kind("delivered", "requested")).withColumn(
            "lane", F.when(F.col("is_multicast"), words.GROUP).otherwise(F.col("receiver"))
        )
        lives = (
            self.sending.where(~F.col("is_multicast"))
            .groupBy("run", "sender", "lane", "conn")
            .agg(F.max("entry").alias("newest"))
        )
        newest = F.coalesce("newest", F.lit(0))
        several = (
            points.join(lives, ["run", "sender", "lane", "conn"], how="left")
            .withColumn("entry", F.explode(F.sequence(F.lit(0), newest.cast("int"))))
            .withColumn("entry", F.col("entry").cast("bigint"))
            .withColumn("lives", newest + 1)
            .drop("newest")
        )
        at = F.when(_kind("requested"), F.col("hi")).otherwise(F.col("lo"))
        told = several.withColumn("at", at)
        sent = self.sent.select(*LANE, *_RANGE, "kind", F.col("lo").alias("at"))
        both = told.unionByName(sent, allowMissingColumns=True)
        upto = Window.partitionBy(*LANE).orderBy("at", F.col("kind") != "sent", "number")
        batch = F.last(F.when(_kind("sent"), F.struct(*_RANGE)), True).over(upto)
        candidates = (
            both.withColumn("batch", batch)
            .where(~_kind("sent"))
            .withColumn("batch", F.when(F.col("batch.hi") >= F.col("at"), F.col("batch")))
            .withColumn("is_genuine", F.coalesce(_is_genuine(), F.lit(False)))
            .drop("at")
        )
        return self.keep(_newest_that_fits(candidates))

    @cached_property
    def delivered(self) -> DataFrame:
        """Deliveries of numbered messages, each with its window and its batch."""
        return self.placed.where(_kind("delivered"))

    # -- From one application to the other ---------------------------------------------------

    @cached_property
    def of_both_ends(self) -> DataFrame:
        """What members recorded of messages on their way, if their traces say what applications
        offered and were handed."""
        tell = self.members.where(F.col("version") >= words.SAYS_BOTH_ENDS)
        kinds = _kind("offered", "cut", "sent", "abandoned", "delivered", "handed")
        return self.events.where(kinds).join(
            F.broadcast(tell.select("run", "short_id")), ["run", "short_id"], how="left_semi"
        )

    @cached_property
    def outgoing(self) -> DataFrame:
        """What left, by the application's own numbers (see `outgoing.left`)."""
        return self.keep(outgoing.left(self))

    @cached_property
    def hand_over(self) -> DataFrame:
        """What is wrong between windows and applications (see `hand_over.faults`)."""
        return self.keep(hand_over.faults(self))


_PROTOCOLS: Final = _SETTINGS.partition("protocols ")[2]


def on_one_clock(events: DataFrame) -> DataFrame:
    """The events with the times of members whose clock began at another moment than the rig's
    shifted by the difference of their wall clocks.

    One that agrees is left alone, because a monotonic clock is the better one.
    """
    began = F.unix_micros("wall_time") / 1e6 - F.col("time")
    clocks = events.where(F.col("number") == 0).select("run", "short_id", began.alias("began"))
    rig = clocks.where(F.col("short_id") == words.RIG).select(
        "run", F.col("began").alias("rig_began")
    )
    ahead = F.col("began") - F.col("rig_began")
    shifts = (
        clocks.join(rig, "run", how="inner")
        .where(F.abs(ahead) > words.CLOCKS_AGREE)
        .groupBy("run", "short_id")
        .agg(F.first(ahead).alias("shift"))
    )
    return (
        events.join(F.broadcast(shifts), ["run", "short_id"], how="left")
        .withColumn("time", F.col("time") + F.coalesce("shift", F.lit(0.0)))
        .drop("shift")
    )


def _is_genuine() -> Column:
    """Whether a delivery is of its batch: of that digest, all of it, sent before."""
    return (
        (F.col("batch.digest") == F.col("digest"))
        & (F.col("batch.hi") >= F.col("hi"))
        & (F.col("batch.time") <= F.col("time") + words.EPSILON)
    )


def _newest_that_fits(candidates: DataFrame) -> DataFrame:
    """Of the lives of an entry that may have sent something, the newest that did."""
    single = candidates.where(F.col("lives") == 1).drop("lives")
    fits = F.struct("is_genuine", F.col("batch").isNotNull(), "entry")
    by_event = Window.partitionBy("run", "receiver", "number").orderBy(F.desc("fits"))
    several = (
        candidates.where(F.col("lives") > 1)
        .drop("lives")
        .withColumn("fits", fits)
        .withColumn("rank", F.row_number().over(by_event))
        .where(F.col("rank") == 1)
        .drop("fits", "rank")
    )
    return single.unionByName(several)


def _changed_interval(fault_events: DataFrame) -> DataFrame:
    """Changes of how often a member repairs multicasts; an interval of null: who knows."""
    attribute = F.coalesce("attribute", F.lit(""))
    name = F.substring_index(attribute, ".", -1)
    protocol = F.when(attribute.contains("."), F.regexp_replace(attribute, r"\.[^.]*$", ""))
    is_interval = name.isin("", "xmit_interval")
    is_of_group = F.coalesce(protocol, F.lit("")).rlike(rf"^($|{'|'.join(words.MULTICAST)})")
    number = F.regexp_extract("value", r"^\s*(-?[0-9.]+)\s*(us|ms|s|min|h)?\s*$", 1)
    return fault_events.where(
        (F.col("do") == words.CHANGES_SETTINGS)
        & (F.col("phase") == "on")
        & is_interval
        & is_of_group
    ).select(
        "run",
        F.col("member").alias("short_id"),
        F.col("time").alias("since"),
        F.col("number").alias("step"),
        F.when(
            number != "", F.expr("try_cast(regexp_extract(value, '([-0-9.]+)', 1) AS DOUBLE)")
        ).alias("interval"),
    )
