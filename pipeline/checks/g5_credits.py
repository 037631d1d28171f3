"""G5, credits: a sender has no more bytes sent, and not taken by a receiver, than are allowed.

A sender knows only the limits that receivers named. So each batch is compared with the bytes that
its receiver had delivered when it named the limit that the sender believed last: each comparison is
of positions in one member's own trace, and needs no clock.
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
"""The most bytes that the length of a message takes in a body: credits count payloads only."""
FRAGMENT_BYTES: Final = 24
"""Bytes of the header of a fragment."""
_CONNECTION: Final = ("run", "sender", "receiver", "conn")
"""`conn` is 0 for multicasts."""
_FLOW: Final = ("run", "sender", "receiver", "flow")


def parts(tables: Tables) -> list[DataFrame]:
    """Find limits that were believed and never named, and bytes beyond named limits."""
    # A sender may go beyond its limit without a word of credits, but only to members of its view.
    if not tables.occurring.any("credit", "view"):
        return []
    named, believed = keep(_named(tables)), keep(_believed(tables))
    return [_never_named(tables, named, believed), _beyond(tables, named, believed)]


def _said(tables: Tables, stream: int) -> DataFrame:
    return tables.of("credit").where(F.col("stream") == stream)


def _named(tables: Tables) -> DataFrame:
    """Return each limit that a receiver named, with the number of the first event that names it."""
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
    """Return each limit that a sender believed, of receivers that left a trace."""
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
    """Find batches with which more bytes were sent, and not known to be taken, than are allowed."""
    sent = keep(_sent(tables))
    marks = believed.select(
        *_FLOW,
        F.col("number").alias("at"),
        F.col("number").alias("turn"),
        F.struct("number", "limit").alias("heard"),
    )
    known = with_last(sent.withColumn("at", F.col("number")), marks, _FLOW, "heard")
    # A limit that was believed before both met again is void.
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
    """Whether a batch takes credits, and its connection is identified."""
    is_told = F.col("is_multicast") | (F.col("protocol").isin(*words.UNICAST) & (F.col("conn") > 0))
    return is_told & (F.col("flags").bitwiseAND(words.NO_FC) == 0)


def _least_payload() -> Column:
    """Return the least bytes of a batch's payloads: the record has only the size of the body."""
    is_fragment = F.col("flags").bitwiseAND(words.FRAGMENT) != 0
    header = F.when(is_fragment, FRAGMENT_BYTES).otherwise(0)
    return F.greatest(F.lit(0), F.col("bytes") - LENGTH_BYTES * F.col("count") - header)


def _sent(tables: Tables) -> DataFrame:
    """Return the batches that members sent to receivers in their view, from their meeting to the
    end: with the bytes of the connection up to each batch (`total`) and the bytes that are allowed
    (`most`)."""
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
    """Return for each sender and receiver the view (`met`: its number in the trace) since which the
    sender has had the receiver, to the end."""
    views = tables.groups.views.select("run", "short_id", "place", F.col("number").alias("met"))
    receivers = tables.members.incarnations.select("run", F.col("short_id").alias("receiver"))
    return (
        tables.groups.since.where(F.col("short_id") != F.col("other"))
        .join(views, ["run", "short_id", "place"], how="inner")
        .select("run", F.col("short_id").alias("sender"), F.col("other").alias("receiver"), "met")
        .join(F.broadcast(receivers), ["run", "receiver"], how="left_semi")
    )


def _given_up(tables: Tables) -> DataFrame:
    """Return for each connection the seqno up to which its receiver expects nothing more."""
    begins = F.when(F.col("is_multicast"), F.col("opened.lo"))
    return tables.messages.windows.groupBy(*_CONNECTION).agg(
        F.max(F.coalesce("skipped", begins)).alias("given_up")
    )


def _delivered(tables: Tables, sent: DataFrame) -> DataFrame:
    """Return the deliveries that count for credits, with the most bytes of each as `weight`."""
    first = sent.groupBy(*_CONNECTION).agg(F.min("lo").alias("first"))
    # A whole batch has the same payload as when it was sent.
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
