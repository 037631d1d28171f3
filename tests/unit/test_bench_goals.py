"""Whether a goal is met, and what the table says about it."""

from __future__ import annotations

from typing import Any

import pytest

from bench.goals import ROW, ROWS, Goal, Row, judge, judge_idle
from bench.sweep import Sweep
from bench.sweep import markdown as sweep_markdown
from bench.table import IDLE_ROW, Table, markdown, table_json
from bench.work import MODES, PEERS, Work

FAST = Row(
    name="fast",
    work=Work(mode="multicast"),
    peers=("jgroups",),
    goals=(Goal(factor=1.3, against="jgroups"),),
)
LOSSY = Row(
    name="lossy",
    work=Work(mode="unicast", loss=0.05),
    peers=(),
    goals=(Goal(factor=0.3, against=f"{ROW}fast"),),
)
TRIPS = Row(
    name="trips",
    work=Work(mode="roundtrip"),
    peers=("jgroups",),
    goals=(
        Goal(factor=1.0, against="jgroups", figure="p99_us", is_ceiling=True),
        Goal(factor=10_000, figure="count_in_5_s"),
    ),
)


def report(ours: float | None, *, holds: bool = True, **peers: float | None) -> dict[str, Any]:
    return {
        "ours": ours,
        "peers": peers,
        "ratio": {name: ours / value if ours and value else None for name, value in peers.items()},
        "spread": {"ours": 0.1},
        "details": {},
        "failed": {},
        "check": {"holds": holds, "findings": {"G1": "violated"}},
    }


def met(row: Row, said: dict[str, Any]) -> list[bool | None]:
    return [each.is_met for each in judge(row, {row.name: said})]


def test_a_share_of_a_peer_is_met_at_the_bound_and_missed_just_below() -> None:
    assert met(FAST, report(130, jgroups=100)) == [True]
    assert met(FAST, report(129.9, jgroups=100)) == [False]


def test_without_the_peers_figure_a_goal_is_unknown_not_met() -> None:
    assert met(FAST, report(130, jgroups=None)) == [None]
    assert met(FAST, report(None, jgroups=100)) == [None]


def test_a_figure_whose_check_failed_meets_nothing() -> None:
    assert met(FAST, report(1000, holds=False, jgroups=100)) == [None]
    assert met(FAST, {**report(1000, jgroups=100), "check": None}) == [None]


def test_another_row_is_the_measure_of_goodput_under_loss() -> None:
    said = {"fast": report(1000), "lossy": report(300)}
    assert [each.is_met for each in judge(LOSSY, said)] == [True]
    said["lossy"] = report(299)
    assert [each.is_met for each in judge(LOSSY, said)] == [False]
    assert [each.is_met for each in judge(LOSSY, {"lossy": report(299)})] == [None]
    said["fast"] = report(1000, holds=False)
    assert [each.is_met for each in judge(LOSSY, said)] == [None]


def test_a_ceiling_is_met_at_or_below() -> None:
    def said(ours: float, theirs: float, count: int) -> dict[str, Any]:
        details = {
            "ours": {"p99_us": ours, "count_in_5_s": count},
            "jgroups": {"p99_us": theirs, "count_in_5_s": 51},
        }
        return {**report(50, jgroups=50), "details": details}

    assert met(TRIPS, said(200, 200, 10_000)) == [True, True]
    assert met(TRIPS, said(200.1, 200, 9_999)) == [False, False]


def test_of_idle_members_the_largest_counts() -> None:
    members = [{"rss_mb": 30.0, "threads": 1}, {"rss_mb": 45.1, "threads": 1}]
    assert [each.is_met for each in judge_idle(members)] == [False, True]
    assert [each.is_met for each in judge_idle(members[:1])] == [True, True]


def test_every_goal_is_measured_against_who_takes_part() -> None:
    names = {row.name for row in ROWS}
    for row in ROWS:
        assert set(row.peers) <= set(PEERS)
        for goal in row.goals:
            if goal.against.startswith(ROW):
                assert goal.against.removeprefix(ROW) in names
            else:
                assert goal.against in {"", *row.peers}
    assert {row.work.mode for row in ROWS} == set(MODES)


def test_the_table_says_what_is_met_and_what_is_not() -> None:
    table = Table(rows=[FAST], reports={"fast": report(120, jgroups=100.0)})
    assert "| fast | 120 | 10% | 100 (× 1.20) |  |  |  |  | ≥ 1.3 × jgroups | **no** |" in markdown(
        table
    )
    said = table_json(table)
    assert (said["met"], said["holds"]) == (False, True)
    assert said["goals"]["fast"][0]["goal"] == "≥ 1.3 × jgroups"
    assert {"commit", "python", "machine"} <= set(said)


def test_the_table_names_a_figure_that_does_not_count() -> None:
    table = Table(rows=[FAST], reports={"fast": report(120, holds=False, jgroups=100.0)})
    assert "| fast |  |  | 100 |  |  |  |  |" in markdown(table)
    assert "does not count" in markdown(table)
    assert not table.holds
    assert table.is_met is None


@pytest.mark.parametrize("problems", [{"fast": "no java"}, {}])
def test_all_goals_are_met_only_when_all_rows_were_measured(problems: dict[str, str]) -> None:
    table = Table(rows=[FAST], reports={"fast": report(140, jgroups=100.0)}, problems=problems)
    assert table.is_met is (None if problems else True)
    table.idle = {"ours": [{"rss_mb": 46.0, "threads": 1}]}
    assert table.is_met is False
    assert IDLE_ROW in markdown(table)


def test_a_peer_that_could_not_be_measured_is_a_problem() -> None:
    alone = {**report(120), "failed": {"jgroups": "no java"}}
    table = Table(rows=[FAST], reports={"fast": alone})
    assert table.has_problems
    assert "fast: jgroups is out: no java" in markdown(table)
    assert not Table(rows=[FAST], reports={"fast": report(120, jgroups=100.0)}).has_problems


def test_a_sweep_shows_no_figure_that_does_not_count() -> None:
    good = {**report(120), "failed": {"jgroups": "no java"}}
    bad = report(130, holds=False)
    sweep = Sweep(reports=[("loss", FAST.work, good), ("loss", FAST.work, bad)])
    said = sweep_markdown(sweep, ["ours", "jgroups"])
    assert "| 120 | 0.1 | 10% |  | hold |" in said
    assert "|  |  |  |  | **failed** |" in said
    assert "jgroups is out: no java" in said
    assert sweep.has_problems
    assert not sweep.holds
