"""G5, credits: no more of one sender is sent and not taken by one receiver than was allowed.

What a sender can know of what was taken is what receivers named. So each batch is held against what
its receiver had delivered when it named the limit that the sender believed last: both are places in
one member's own trace, and no clock is asked.
"""

from __future__ import annotations

from typing import Final

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F

from stormcast.pipeline import words
from stormcast.pipeline.ranges import total_upto, with_last
from stormcast.pipeline.tables import Tables
from stormcast.pipeline.tables.kept import keep
from stormcast.pipeline.violations import event, plain, violations, with_name

GUARANTEE: Final = "G5"
LENGTH_BYTES: Final = 4
"""What a message's length takes of a body, at most: credits count payloads."""
FRAGMENT_BYTES: Final = 24
"""What the header of a fragment takes."""
_CONNECTION: Final = ("run", "sender", "receiver", "conn")
"""`conn` is 0 for multicasts."""
_FLOW: Final = ("run", "sender", "receiver", "flow")


def parts(tables: Tables) -> list[DataFrame]:
    """Limits that nobody named, and bytes beyond those that were."""
    named, believed = keep(_named(tables)), keep(_believed(tables))
    return [_never_named(tables, named, believed), _beyond(tables, named, believed)]


def _said(tables: Tables, stream: int) -> DataFrame:
    return tables.events.where((F.col("kind") == "credit") & (F.col("stream") == stream))


def _named(tables: Tables) -> DataFrame:
    """Each limit that a receiver named, and where it did so first."""
    return (
        _said(tables, words.NAMED)
        .groupBy(
            "run",
            F.col("peer").alias("sender"),
            F.col("short_id").alias("receiver"),
            F.col("protocol").alias("flow"),
            F.col("hi").alias("limit"),
        )
        .agg(F.min("number").alias("named"))
    )


def _believed(tables: Tables) -> DataFrame:
    """Each limit that a sender took for true, of receivers that left a trace."""
    receivers = tables.members.incarnations.select("run", F.col("short_id").alias("receiver"))
    return (
        _said(tables, words.BELIEVED)
        .select(
            "run",
            F.col("short_id").alias("sender"),
            F.col("peer").alias("receiver"),
            F.col("protocol").alias("flow"),
            F.col("hi").alias("limit"),
            "number",
            "time",
        )
        .join(F.broadcast(receivers), ["run", "receiver"], how="left_semi")
    )


def _never_named(tables: Tables, named: DataFrame, believed: DataFrame) -> DataFrame:
    found = believed.join(named, [*_FLOW, "limit"], how="left_anti")
    return violations(
        with_name(found, tables, "receiver", "name"),
        GUARANTEE,
        time="time",
        detail=F.format_string(
            "a limit of %d bytes was believed, and %s never named it", "limit", "name"
        ),
        witness=[event("sender", "number")],
    )


def _beyond(tables: Tables, named: DataFrame, believed: DataFrame) -> DataFrame:
    """Batches with which more was sent than could be known to be taken."""
    sent = keep(_sent(tables))
    marks = believed.select(
        *_FLOW,
        F.col("number").alias("at"),
        F.col("number").alias("turn"),
        F.struct("number", "limit").alias("heard"),
    )
    known = with_last(sent.withColumn("at", F.col("number")), marks, _FLOW, "heard")
    # What was believed before they met again holds no more.
    is_current = F.coalesce(F.col("heard.number") > F.col("met"), F.lit(False))
    limited = known.withColumn("limit", F.when(is_current, F.col("heard.limit")))
    placed = limited.join(named, [*_FLOW, "limit"], how="left").where(
        F.col("limit").isNull() | F.col("named").isNotNull()
    )
    had = total_upto(
        placed.withColumn("at", F.coalesce("named", F.lit(-1))),
        _delivered(tables, sent),
        _CONNECTION,
        "had",
    )
    too_many = F.col("total") - F.col("had")
    found = had.where(too_many > F.col("most"))
    return violations(
        with_name(found, tables, "receiver", "name"),
        GUARANTEE,
        time="time",
        detail=F.format_string(
            "%d bytes were sent and not taken by %s: %s are allowed",
            too_many,
            "name",
            plain("most"),
        ),
        witness=[event("receiver", "named"), event("sender", "number")],
    )


def _is_counted() -> Column:
    """Whether a batch takes credits, and its connection can be told from others."""
    is_told = F.col("is_multicast") | (F.col("protocol").isin(*words.UNICAST) & (F.col("conn") > 0))
    return is_told & (F.col("flags").bitwiseAND(words.NO_FC) == 0)


def _least_payload() -> Column:
    """Bytes of the messages of a batch, of which the record has the whole body."""
    is_fragment = F.col("flags").bitwiseAND(words.FRAGMENT) != 0
    header = F.when(is_fragment, FRAGMENT_BYTES).otherwise(0)
    return F.greatest(F.lit(0), F.col("bytes") - LENGTH_BYTES * F.col("count") - header)


def _sent(tables: Tables) -> DataFrame:
    """What each member sent to those that it has in its view to the end, since it has them: with
    the bytes of the connection up to each batch (`total`) and what is allowed (`most`)."""
    flow = F.when(F.col("is_multicast"), "MFC").otherwise("UFC")
    promises = tables.members.incarnations.select(
        "run", F.col("short_id").alias("sender"), "protocols"
    )
    most = F.col("protocols")[F.col("flow")]["bounds"]["most_untaken"]
    batches = (
        tables.messages.sent.where(_is_counted())
        .withColumn("flow", flow)
        .join(F.broadcast(promises), ["run", "sender"], how="inner")
        .withColumn("most", most)
        .where(F.col("most").isNotNull())
        .drop("protocols")
    )
    meetings = F.broadcast(_meetings(tables))
    to_group = batches.where("is_multicast").join(meetings, ["run", "sender"], how="inner")
    to_one = batches.where(~F.col("is_multicast")).join(
        meetings.withColumn("dest", F.col("receiver")), ["run", "sender", "dest"], how="inner"
    )
    up_to_now = (
        Window.partitionBy(*_CONNECTION)
        .orderBy("number")
        .rowsBetween(Window.unboundedPreceding, Window.currentRow)
    )
    return (
        to_group.unionByName(to_one)
        .where(F.col("number") > F.col("met"))
        .join(_given_up(tables), [*_CONNECTION], how="left")
        .where(F.col("lo") > F.coalesce("given_up", F.lit(0)))
        .withColumn("total", F.sum(_least_payload()).over(up_to_now))
        .select(*_CONNECTION, "flow", "number", "time", "lo", "met", "most", "total")
    )


def _meetings(tables: Tables) -> DataFrame:
    """Since which view (`met`: its number in the trace) a sender has had a receiver, to the end."""
    views = tables.groups.views.select("run", "short_id", "place", F.col("number").alias("met"))
    receivers = tables.members.incarnations.select("run", F.col("short_id").alias("receiver"))
    return (
        tables.groups.since.where(F.col("short_id") != F.col("other"))
        .join(views, ["run", "short_id", "place"], how="inner")
        .select("run", F.col("short_id").alias("sender"), F.col("other").alias("receiver"), "met")
        .join(F.broadcast(receivers), ["run", "receiver"], how="left_semi")
    )


def _given_up(tables: Tables) -> DataFrame:
    """The seqno of each connection up to which its receiver expects nothing more."""
    begins = F.when(F.col("is_multicast"), F.col("opened.lo"))
    return tables.messages.windows.groupBy(*_CONNECTION).agg(
        F.max(F.coalesce("skipped", begins)).alias("given_up")
    )


def _delivered(tables: Tables, sent: DataFrame) -> DataFrame:
    """What receivers delivered of what counts, with its bytes at most as `weight`."""
    first = sent.groupBy(*_CONNECTION).agg(F.min("lo").alias("first"))
    # A whole batch has what it had when it was sent.
    most = F.when(F.col("stream") == words.WHOLE, _least_payload()).otherwise(F.col("bytes"))
    return (
        tables.messages.receiving.where((F.col("kind") == "delivered") & _is_counted())
        .join(first, [*_CONNECTION], how="inner")
        .where(F.col("hi") >= F.col("first"))
        .select(
            *_CONNECTION,
            F.col("number").alias("at"),
            F.col("number").alias("turn"),
            most.alias("weight"),
        )
    )
