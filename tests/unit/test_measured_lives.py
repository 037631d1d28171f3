"""Lives and views of a measured run, from rows as Spark collects them."""

from __future__ import annotations

import json
from dataclasses import replace
from math import inf

from stormcast.pipeline.gather import deaths_of, lives_of, views_of
from stormcast.pipeline.measure import VIEWS, _Extent, _KnownRun
from stormcast.pipeline.rows import LifeRow, Noted, ViewRow

NAMES = {"n0-1": "n0", "n1-1": "n1"}
SHORTS = {1: "n0-1", 2: "n1-1"}


def lives(*noted: Noted) -> dict[str, float | None]:
    rows = [LifeRow(label, NAMES[label], short, 0.0, 9.0, None) for short, label in SHORTS.items()]
    return {life.label: life.end for life in lives_of(rows, (), deaths_of(noted))}


def test_a_death_that_nobody_ordered_ends_a_life() -> None:
    died = {"name": "n1", "signal": 9, "ordered": False, "member": 2}
    assert lives(Noted("exit", 5.0, json.dumps(died))) == {"n0-1": None, "n1-1": 5.0}


def test_an_end_that_was_ordered_is_told_by_its_fault() -> None:
    ended = {"name": "n1", "signal": 9, "ordered": True, "member": 2}
    assert lives(Noted("exit", 5.0, json.dumps(ended))) == {"n0-1": None, "n1-1": None}


def test_of_a_group_whose_views_are_not_all_known_nobody_says_that_it_is_one() -> None:
    rows = [
        ViewRow(label, number, float(number), 1, False, "1,2")
        for number in range(1, VIEWS // 2 + 1)
        for label in NAMES
    ]
    views, spans = views_of(rows, NAMES, SHORTS)
    run = _KnownRun(
        run="r",
        extent=_Extent(0, 0.0, 0.0, 0.0, 0.0),
        marks={},
        faults=[],
        names=NAMES,
        shorts=SHORTS,
        lives=lives_of(
            [
                LifeRow(label, NAMES[label], short, 0.0, 9.0, None)
                for short, label in SHORTS.items()
            ],
            (),
            {},
        ),
        views=views,
        view_spans=spans,
        views_until=float(VIEWS // 2),
        pairs=(),
    )
    assert run.one_view_at(10.0) == 10.0
    assert run.one_view_at(VIEWS // 2 + 1.0) is None
    assert replace(run, views_until=inf).one_view_at(VIEWS // 2 + 1.0) == VIEWS // 2 + 1.0
