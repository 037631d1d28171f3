"""G8 by both judges: what was expected by when, counted from the same traces in two ways."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from random import Random

import pytest
from pyspark.sql import SparkSession
from pyspark.sql.functions import col, when
from pyspark.sql.functions import round as rounded

from stormcast.chaos.campaigns.generate import generate, is_group
from stormcast.chaos.language.scenario import Expect, ExpectView, Scenario, parse_scenario
from stormcast.chaos.session.judging import expectation_findings, one_group_finding
from stormcast.chaos.session.record import RunRecord
from stormcast.chaos.session.simulation import simulate
from stormcast.findings import Finding, Verdict
from stormcast.node import trace
from stormcast.pipeline import files
from stormcast.pipeline.checks.g8_back_in_time import back_in_time
from stormcast.pipeline.findings import THE_RUN
from stormcast.pipeline.load import load
from stormcast.pipeline.questions import Arrivals, Expectations, OneView, Question
from stormcast.pipeline.verdict import Verifier
from stormcast.verify import expectations_of
from tests.oracles.parted import BY, PARTED
from tests.oracles.story import Story
from tests.pipeline.batch import export_run, write_run

pytestmark = pytest.mark.slow

LARGE = """
name: pieces-and-a-parting
guarantees: [G1, G8]
cluster: {members: 4, stack: udp, timing: fast, protocols: {FRAG: {frag_size: 2000}}}
network: {bandwidth: 8Mbit/s}
workload:
  - {do: multicast, from: all, count: 8, rate: 4/s, size: 10KB..100KB, start: 1s}
  - {do: unicast, from: n1, to: [n2, n3], count: 20, rate: 20/s, size: 16B..50KB, start: 1s}
  - {do: unicast, from: n2, to: n1, count: 40, rate: 20/s, flags: NO_RELIABILITY, start: 1s}
timeline:
  - {at: 1500ms, do: loss, rate: 10%, for: 2s}
  - {at: 2s, do: partition, groups: [[n0, n1], [n2, n3]], for: 4s}
  - {at: 9s, do: restart, member: n0}
  - {at: 11s, do: leave, member: n3}
limits: {run: 120s}
"""
WITHOUT_A_GROUP = """
name: crash-without-a-group
guarantees: [G1, G8]
cluster: {members: 3, timing: fast}
network: {delay: 100ms}
workload:
  - {do: unicast, from: all, to: others, count: 200, rate: 50/s, size: 16B..5KB}
timeline:
  - {at: 1s, do: crash, member: n1, for: 1s}
  - {at: 3s, do: crash, member: n2}
"""
TWICE = """
name: twice-or-never
guarantees: [G8]
cluster: {members: 3, stack: udp, timing: fast, max_batch: 1}
workload:
  - {do: unicast, from: n0, to: all, count: 80, rate: 50/s, start: 1s, flags: NO_RELIABILITY}
  - {do: multicast, from: n1, count: 80, rate: 50/s, start: 1s, flags: NO_RELIABILITY}
  - {do: unicast, from: n1, to: all, count: 20, rate: 20/s, start: 1s, flags: DONT_LOOPBACK}
timeline:
  - {at: 0s, do: loss, rate: 40%, for: 20s}
  - {at: 0s, do: duplicate, rate: 100%, for: 20s}
limits: {run: 60s}
"""
EXPECTED = 24
"""Expectations of each run."""
AT_THE_END = -1.0


def scenarios(first: int, number: int) -> dict[str, Scenario]:
    """Scenarios as the search draws them, one with large messages, and one without a group."""
    seeds = [seed for seed in range(first, first + 3 * number) if is_group(seed)][:number]
    drawn = {f"seed-{seed}": generate(seed) for seed in seeds}
    written = {"large": LARGE, "no-group": WITHOUT_A_GROUP, "twice": TWICE}
    return {f"{name}-{first}": parse_scenario(text) for name, text in written.items()} | drawn


def expecting(scenario: Scenario, run: RunRecord, dice: Random) -> Scenario:
    """The scenario with expectations of which some are met, each at a time of its own."""
    names = tuple(sorted({life.name for life in run.lives.values()}))
    most = max(run.sent_by_pair.values(), default=1)
    times = sorted({round(dice.uniform(0, run.seconds), 3) for _ in range(EXPECTED)})
    expected: list[Expect | ExpectView] = []
    for by in times:
        some = tuple(sorted(dice.sample(names, dice.randint(1, len(names)))))
        others = tuple(sorted(dice.sample(names, dice.randint(1, len(names)))))
        if run.views and dice.random() < 0.4:
            living = {life.name for life in run.lives.values() if life.start <= by < life.end}
            view = tuple(sorted(living)) if dice.random() < 0.7 and living else others
            expected.append(ExpectView(by=by, seen_by=dice.choice((some, view)), view=view))
            continue
        count = dice.choice((None, None, None, dice.randint(1, most)))
        expected.append(Expect(by=by, sources=some[:1], dests=others[:2], count=count))
    return replace(scenario, expect=tuple(expected), guarantees=("G8",), text="")


def by_members(scenario: Scenario, run: RunRecord) -> set[float]:
    """The times of what was not met, as the run's own judge says."""
    found = {
        expect.by
        for expect, finding in zip(
            scenario.expect, expectation_findings(scenario, run), strict=True
        )
        if finding.verdict is Verdict.VIOLATED
    }
    if run.views and one_group_finding(run).verdict is Verdict.VIOLATED:
        found.add(AT_THE_END)
    return found


def by_spark(
    spark: SparkSession, traces: Mapping[str, Path], expected: Mapping[str, Expectations]
) -> dict[str, set[float]]:
    """The times of what was not met, by run, as Spark says."""
    tables, defects = load(spark, files.find_all(traces))
    assert not defects
    rows = back_in_time(tables, expected).join(tables.rig.runs, "run")
    at_end = col("detail").endswith(" at the end")
    by = when(at_end, AT_THE_END).otherwise(rounded(col("time") - col("begin"), 3))
    found: dict[str, set[float]] = {run: set() for run in expected}
    for row in rows.select("run", by.alias("by")).collect():
        found[row.run].add(row.by)
    return found


def differences(
    spark: SparkSession, first: int, number: int, folder: Path
) -> tuple[dict[str, tuple[list[float], list[float]]], int, int]:
    """What only the run's own judge, and only Spark, found not met; how much was and was not."""
    ours, expected, traces = {}, {}, {}
    for name, scenario in scenarios(first, number).items():
        run = simulate(scenario, first)
        asked = expecting(scenario, run, Random(f"{name} {first}"))
        ours[name], expected[name] = by_members(asked, run), expectations_of(asked)
        traces[name] = export_run(write_run(run.traces, folder / name))
    theirs = by_spark(spark, traces, expected)
    differ = {
        name: (sorted(ours[name] - theirs[name]), sorted(theirs[name] - ours[name]))
        for name in ours
        if ours[name] != theirs[name]
    }
    missed = sum(map(len, ours.values()))
    return differ, missed, sum(len(one.awaited) for one in expected.values()) - missed


def test_two_judges_agree_on_what_was_expected(spark: SparkSession, tmp_path: Path) -> None:
    differ, missed, met = differences(spark, 40, 23, tmp_path)

    assert differ == {}
    assert missed > 100
    assert met > 100


# -- Told by hand ----------------------------------------------------------------------------------


def waiting(*, end: float, peer: str = "n1") -> Story:
    """At the end something waits in an outbox; the last delivery is at 1.1 s."""
    story = Story().a_clean_exchange().at(2.0).opens("n0", "n2").at(end - 0.1)
    return story.gauges(trace.OUTBOX_BYTES, 10, 1 << 20, "n0", peer).quiet(end - 1).ends(end)


SIX = Expectations(awaited=(Arrivals(by=9.0, sources=("n0",), dests=("n1",), count=6),))
FIVE = Expectations(awaited=(Arrivals(by=9.0, sources=("n0",), dests=("n1",), count=5),))
SOON = Expectations(awaited=(Arrivals(by=0.05, sources=("n0",), dests=("n1",)),))
A_VIEW = Expectations(awaited=(OneView(by=9.0, seen_by=("n0",), members=("n0", "n1")),))
NOTHING = Expectations()
G8 = ("G1", "G8")
LATE = Finding("G8", Verdict.VIOLATED, "not delivered in time", by=THE_RUN)


def clean() -> Story:
    return Story().a_clean_exchange().quiet(15.0).ends(20.0)


TOLD: dict[str, tuple[Story, dict[str, object], str, str]] = {
    "stands-still": (waiting(end=100.0), {"expected": NOTHING}, "violated", "in the last 98.9s"),
    "stood-still-at-its-interruption": (
        waiting(end=100.0),
        {"expected": NOTHING, "is_interrupted": True},
        "unknown",
        "in the last 98.9s",
    ),
    "waits-for-a-moment": (waiting(end=50.0), {"expected": NOTHING}, "holds", ""),
    "waits-for-nobody": (waiting(end=100.0, peer="ghost"), {"expected": NOTHING}, "holds", ""),
    "too-few": (clean(), {"expected": SIX}, "violated", "n1 had 5 of 6 from n0 by t=9"),
    "enough": (clean(), {"expected": FIVE}, "holds", ""),
    "too-late": (clean(), {"expected": SOON}, "violated", "n1 had 0 of 5 from n0 by t=0.05"),
    "no-view": (clean(), {"expected": A_VIEW}, "violated", "not one view of n0 n1 at t=9"),
    "interrupted": (clean(), {"expected": SIX, "is_interrupted": True}, "unknown", "5 of 6"),
    "after-a-death": (
        Story().a_clean_exchange().at(3.0).exits("n1").quiet(15.0).ends(20.0),
        {"expected": SIX},
        "unknown",
        "nothing in the scenario did that",
    ),
    "asked-and-nothing-expected": (clean(), {"expected": NOTHING}, "holds", ""),
    "no-scenario": (clean(), {}, "", ""),
    "the-run-says-otherwise": (clean(), {"expected": FIVE, "own": (LATE,)}, "holds", ""),
}


def test_what_is_told_by_hand(spark: SparkSession, tmp_path: Path) -> None:
    """Standstills, expectations with their times, and what weakens them."""
    traces = {
        name: export_run(write_run(story.told(), tmp_path / name))
        for name, (story, *_rest) in TOLD.items()
    }
    questions = [
        Question(run=name, traces=traces[name], guarantees=G8, **more)  # type: ignore[arg-type]
        for name, (_story, more, *_rest) in TOLD.items()
    ]
    tables, defects = load(spark, files.find_all(traces))
    judged = Verifier(tables, questions, lambda _text: None).judge(defects)
    for judgement in judged:
        name = judgement.question.run
        _story, _more, verdict, detail = TOLD[name]
        assert judgement.verdicts().get("G8", "") == verdict, name
        found = [one.detail for one in judgement.findings if one.guarantee == "G8"]
        assert not detail or detail in found[0], name
        assert ("G8" in judgement.not_judged) == (name == "no-scenario")
    (doubted,) = [one for one in judged if one.question.run == "the-run-says-otherwise"]
    assert str(doubted.verdict) == "unknown"
    assert "G8 was violated when it ran" in doubted.findings[-1].detail


def test_what_is_owed_no_more_stands_in_for_nothing(spark: SparkSession, tmp_path: Path) -> None:
    """By the same traces as the run's own judge: `tests/unit/test_facts.py`."""
    traces = {
        name: export_run(write_run(one.story.told(), tmp_path / name))
        for name, one in PARTED.items()
    }
    awaited = (Arrivals(by=BY, sources=("n0",), dests=("n1",)),)
    tables, _defects = load(spark, files.find_all(traces))
    found = back_in_time(tables, {run: Expectations(awaited=awaited) for run in traces})
    late = {row.run: row.detail for row in found.collect() if " of " in row.detail}
    assert late == {
        name: f"n1 had {one.had} of {one.wanted} from n0 by t=9"
        for name, one in PARTED.items()
        if one.had < one.wanted
    }
