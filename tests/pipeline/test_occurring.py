"""Checks whose records do not occur are left out: they would have found nothing."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import NamedTuple

import pytest
from pyspark.sql import Column, DataFrame, SparkSession, functions

from stormcast.pipeline import words
from stormcast.pipeline.checks import (
    a1_agreement,
    application,
    c1_ageing,
    c1_control_traffic,
    c1_credits,
    c1_multicast,
    c1_requests,
    c1_resends,
    g1_alarms,
    g1_no_loss,
    g2_once,
    g4_intact,
    g5_credits,
    g6_multicast,
    g7_connections,
    l1_answers,
    l1_lanes,
    s1_unread,
    v_views,
)
from stormcast.pipeline.schema import EVENTS
from stormcast.pipeline.tables import Tables
from stormcast.pipeline.tables.kept import keep
from stormcast.pipeline.tables.occurring import Occurring
from stormcast.pipeline.tables.records import is_fragment, is_kind, is_multicast, is_numbered
from tests.oracles.sentence_corpus import CASES
from tests.pipeline.batch import write_batch
from tests.pipeline.conftest import as_for_many

Part = Callable[[Tables], DataFrame | list[DataFrame]]


class Guard(NamedTuple):
    """What need not be looked for where some records do not occur."""

    name: str
    records: Column
    parts: tuple[Part, ...]


OF_APPLICATIONS: tuple[Part, ...] = (
    lambda tables: application.not_sent(tables, "G1"),
    lambda tables: application.sent_again(tables, "G2"),
    *(
        partial(application.handed_over, guarantee=guarantee)
        for guarantee in ("G1", "G2", "G3", "G4")
    ),
)


def guards() -> list[Guard]:
    """Made when Spark runs, as columns are."""
    of_group = is_multicast()
    return [
        Guard("credits", is_kind("credit"), (c1_credits.parts,)),
        Guard("credits and views", is_kind("credit", "view"), (g5_credits.parts,)),
        Guard("resends", is_kind("retransmitted"), (c1_ageing.parts,)),
        Guard(
            "resends to one",
            is_kind("retransmitted") & ~of_group,
            (c1_resends._unicast, c1_resends._in_the_middle),
        ),
        Guard(
            "resends to the group", is_kind("retransmitted") & of_group, (c1_resends._multicast,)
        ),
        Guard("requests", is_kind("requested"), (c1_requests.parts,)),
        Guard("acks", is_kind("acked"), (c1_requests._many_acks,)),
        Guard("requests of group", is_kind("requested") & of_group, (c1_multicast.parts,)),
        Guard("announcements", is_kind("sync") & of_group, (c1_multicast._announced,)),
        Guard("syncs", is_kind("sync") & ~of_group, (c1_control_traffic._hasty_syncs,)),
        Guard("alarms", is_kind("alarm") & of_group, (c1_multicast.parts,)),
        Guard(
            "pieces",
            is_kind("cut")
            | is_fragment()
            | (is_kind("handed") & (functions.col("stream") == words.JOINED)),
            OF_APPLICATIONS,
        ),
        Guard("cuts", is_kind("cut"), (lambda tables: application.split(tables, "G1"),)),
        Guard(
            "given up",
            is_kind("abandoned"),
            (
                lambda tables: g1_no_loss._thrown_away(tables, g1_no_loss._removed(tables)),
                g1_no_loss.no_loss,
                *OF_APPLICATIONS,
            ),
        ),
        Guard(
            "multicasts",
            is_kind("sent") & of_group,
            (g1_no_loss._multicast, g1_no_loss._own),
        ),
        Guard(
            "reports, and what has no number",
            (is_kind("alarm") & of_group) | is_kind("skipped") | (is_kind("sent") & ~is_numbered()),
            (g1_alarms.without_cause,),
        ),
        Guard(
            "delivered multicasts",
            is_kind("delivered") & of_group,
            (g2_once._multicasts, g7_connections._of_a_stranger, a1_agreement.agreement),
        ),
        Guard(
            "delivered without a number",
            is_kind("delivered") & ~is_numbered(),
            (g4_intact._unnumbered,),
        ),
        Guard("drops", is_kind("dropped"), (g4_intact._mixed,)),
        Guard(
            "purged multicasts",
            is_kind("purged") & of_group,
            (lambda tables: g6_multicast.purged_early(tables, "G6"),),
        ),
        Guard(
            "views",
            is_kind("view"),
            (
                v_views.one_list,
                v_views.own_views,
                v_views.growing_ids,
                v_views.one_view,
                a1_agreement.agreement,
            ),
        ),
        Guard(
            "lanes that wait, and multicasts",
            is_kind("blocked") | (is_kind("sent") & of_group),
            (lambda tables: l1_lanes.parts(tables, "L1"),),
        ),
        Guard(
            "answers",
            is_kind("answered"),
            (lambda tables: l1_answers.answered_in_part(tables, "L1"),),
        ),
        Guard("strangers", is_kind("overheard"), (s1_unread.unread,)),
    ]


OF_SEVERAL = (c1_requests.parts, c1_multicast.parts, g1_no_loss.no_loss, *OF_APPLICATIONS)
"""Parts that also look for other records than those of one guard."""


class Everything(Occurring):
    """Says of each kind that it occurs, so that every check is done."""

    def any(self, *_kinds: str) -> bool:
        return True

    def of_group(self, *_kinds: str) -> bool:
        return True

    def of_one(self, *_kinds: str) -> bool:
        return True

    def unnumbered(self, *_kinds: str) -> bool:
        return True

    def in_pieces(self) -> bool:
        return True


@pytest.fixture(scope="module")
def events(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> DataFrame:
    """All runs of the corpus, of which most are broken."""
    directory: Path = tmp_path_factory.mktemp("corpus")
    batch = write_batch(((case.name, case.blocks) for case in CASES.values()), directory / "batch")
    return keep(spark.read.schema(EVENTS).parquet(str(batch)))


def found(part: Part, tables: Tables) -> set[tuple[object, ...]]:
    parts = part(tables)
    rows = [each.collect() for each in (parts if isinstance(parts, list) else [parts])]
    return {(row.run, row.member, row.position, row.detail) for some in rows for row in some}


@pytest.mark.long
def test_nothing_is_found_where_the_records_of_a_check_do_not_occur(
    spark: SparkSession, events: DataFrame
) -> None:
    """Of every broken run, these records are taken away, and the check is done all the same."""
    for name, records, parts in guards():
        with as_for_many(spark):
            rest = events.where(~functions.coalesce(records, functions.lit(False)))
            knowing, unknowing = Tables(rest), Tables(rest)
            unknowing._by_kind.__dict__["occurring"] = Everything(rest)
            for part in parts:
                rest_of_it = found(part, knowing) if part in OF_SEVERAL else set()
                assert found(part, unknowing) == rest_of_it, name


def test_what_occurs_is_known_by_kind(events: DataFrame) -> None:
    occurring = Occurring(events.where(is_kind("sent", "view")))

    assert occurring.any("sent")
    assert occurring.any("alarm", "view")
    assert occurring.of_group("sent")
    assert occurring.of_one("sent")
    assert occurring.unnumbered("sent")
    assert occurring.in_pieces()
    assert not occurring.any("alarm")
    assert not occurring.of_group("delivered")
    assert not occurring.of_group("view")
    assert not Occurring(events.where(is_multicast())).of_one("sent")
    for kind, of_pieces in (("cut", True), ("view", False), ("offered", False)):
        assert Occurring(events.where(is_kind(kind))).in_pieces() == of_pieces
    assert not Occurring(events.where(is_numbered())).unnumbered("sent")
