"""What a death that nobody ordered explains of the findings that are counted from the traces."""

from __future__ import annotations

from dataclasses import replace
from math import inf
from typing import Any

import pytest
from xxhash import xxh3_64_intdigest

from stormcast.chaos.language.scenario import parse_scenario
from stormcast.chaos.oracles.evidence import Evidence
from stormcast.chaos.oracles.verdict import worst
from stormcast.chaos.session.judging import floor_findings, judge_run
from stormcast.chaos.session.record import Life, RunRecord, ViewSeen
from stormcast.chaos.session.unowed import unowed_loads
from stormcast.node import trace
from tests.oracles.story import Story

SCENARIO = parse_scenario(
    """
name: three
guarantees: [G8]
cluster: {members: 3, stack: udp}
workload:
  - {do: multicast, from: n0, count: 5, rate: 5/s}
limits: {run: 200s}
"""
)
NAMES = ("n0", "n1", "n2")
BEGIN, DEATH, END = 0.5, 45.0, 80.0


def a_run(story: Story, begin: float, **fields: Any) -> RunRecord:
    """The record of a scenario that began at this second of the traces."""
    views = {name: [ViewSeen(0.0, 1, "n0", NAMES)] for name in NAMES}
    lives = {name: Life(name, 0.0, DEATH - begin if name == "n2" else inf) for name in NAMES}
    return replace(
        RunRecord(
            traces={},
            evidence=Evidence.from_blocks(story.told(), xxh3_64_intdigest),
            events=0,
            seconds=END - begin,
            sent=5,
            delivered=5,
            bites={},
            kinds={},
            mismatches=[],
            sent_by_pair={},
            reached={},
            complete=True,
            stalled_for=0.0,
            views=views,
            lives=lives,
        ),
        **fields,
    )


def a_death(*begins: float) -> Story:
    """n2 dies, and the others never agree on a view without it. A run of several windows
    began as often."""
    story = Story()
    for begin in begins:
        story.rig.record(trace.PHASE, begin, text="begin")
    story.a_group(at=0.6).a_clean_cast().at(DEATH).exits("n2")
    return story.quiet(70.0).ends(END)


def verdict_on_g8(run: RunRecord) -> str:
    findings = judge_run(SCENARIO, run).findings
    return str(worst(one.verdict for one in findings if one.guarantee == "G8"))


@pytest.mark.parametrize("begins", [(BEGIN,), (BEGIN, 40.0)])
def test_a_death_explains_that_a_group_is_not_one_in_any_window(begins: tuple[float, ...]) -> None:
    assert verdict_on_g8(a_run(a_death(*begins), begins[-1])) == "unknown"


def test_a_death_explains_that_messages_wait() -> None:
    """To stand still is to be in time with nothing."""
    run = a_run(a_death(BEGIN), BEGIN, views={}, complete=False, stalled_for=61.0)
    assert verdict_on_g8(run) == "unknown"


def test_messages_wait_where_nobody_died() -> None:
    story = Story().a_group(at=0.6).a_clean_cast().quiet(70.0).ends(END)
    run = a_run(story, BEGIN, views={}, complete=False, stalled_for=61.0)
    assert verdict_on_g8(run) == "violated"


def test_loads_of_a_later_window_are_looked_for_in_that_window() -> None:
    """n0 multicasts to itself alone in the first window, and to all in the second."""
    story = Story()
    for begin in (BEGIN, 40.0):
        story.rig.record(trace.PHASE, begin, text="begin")
    story.at(0.6).installs(1, "n0").at(1.0).casts(1, 5, number=1)
    story.at(39.0).watches("n1", "n0", after=5).installs(2, "n0", "n1")
    story.at(40.5).casts(6, 10, number=6).at(40.6).takes(6, 10).quiet(70.0).ends(END)
    assert unowed_loads(SCENARIO, a_run(story, 40.0)) == ()
    assert unowed_loads(SCENARIO, a_run(story, BEGIN)) != ()


def test_who_comes_after_a_load_of_a_later_window_misses_nothing_of_it() -> None:
    """The load of the second window is over when n2 starts, however long ago the first began."""
    story = Story()
    for begin in (BEGIN, 40.0):
        story.rig.record(trace.PHASE, begin, text="begin")
    story.at(0.6).installs(1, "n0", "n1").at(1.0).casts(1, 5, number=1).at(1.1).takes(1, 5, "n1")
    story.at(40.5).casts(6, 10, number=6).at(40.6).takes(6, 10, "n1").quiet(70.0).ends(END)
    lives = {"n0": Life("n0", 0.0, inf), "n1": Life("n1", 0.0, inf), "n2": Life("n2", 5.0, inf)}
    reached = {("n0", name): [(0.6, 5)] for name in ("n0", "n1")}
    run = a_run(story, 40.0, lives=lives, reached=reached)
    assert floor_findings(SCENARIO, run) == []
