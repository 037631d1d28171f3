"""What became of a run, read from its traces alone, is what its members say."""

from __future__ import annotations

from dataclasses import replace
from math import inf
from pathlib import Path
from typing import Any

import pytest
from xxhash import xxh3_64_intdigest

from stormcast.chaos.backends.sim.backend import SimBackend
from stormcast.chaos.language.scenario import Scenario, parse_scenario
from stormcast.chaos.oracles.evidence import Evidence
from stormcast.chaos.oracles.history import Member
from stormcast.chaos.oracles.owed import unowed_multicasts
from stormcast.chaos.oracles.verdict import Verdict
from stormcast.chaos.session.facts import facts_of, resync_of
from stormcast.chaos.session.judging import expectation_findings, judge_run
from stormcast.chaos.session.record import ResyncTimes
from stormcast.chaos.session.runner import run_scenario
from stormcast.chaos.session.session import play
from stormcast.chaos.session.simulation import simulate
from stormcast.node.trace import HANDED, pack_block, pack_text, read_blocks_untrusted
from tests.oracles.parted import BY, PARTED
from tests.oracles.story import Story

GROUP = """
name: what-befalls-a-group
guarantees: [G1]
cluster: {members: 4, stack: udp, timing: fast}
workload:
  - {do: multicast, from: all, count: 60, rate: 20/s, size: 16B, start: 4s}
  - {do: multicast, from: n0, count: 20, rate: 20/s, size: 16B, start: 4s, flags: DONT_LOOPBACK}
  - {do: unicast, from: all, to: [n0, n1], count: 30, rate: 10/s, size: 16B, start: 4s}
timeline:
  - {at: 4500ms, do: loss, rate: 20%, for: 1s}
  - {at: 5s, do: partition, groups: [[n0, n1], [n2, n3]], for: 6s}
  - {at: 5500ms, do: crash, member: n1}
  - {at: 6s, do: leave, member: n3}
  - {at: 14s, do: restart, member: n1}
limits: {run: 60s}
"""
PAIR = """
name: a-pair-without-a-group
guarantees: [G1]
cluster: {members: 2, timing: fast}
workload:
  - {do: unicast, from: all, to: all, count: 100, rate: 50/s, size: 16B}
timeline:
  - {at: 500ms, do: cut, from: n0, to: n1, for: 1s}
  - {at: 2s, do: crash, member: n1, for: 1s}
limits: {run: 60s}
"""
LARGE = """
name: messages-in-pieces
guarantees: [G1, G8]
cluster: {members: 3, stack: udp, timing: fast, protocols: {FRAG: {frag_size: 2000}}}
network: {bandwidth: 8Mbit/s}
workload:
  - {do: multicast, from: n0, count: 6, rate: 20/s, size: 100KB, start: 2s}
  - {do: unicast, from: n1, to: n2, count: 20, rate: 20/s, size: 16B..50KB, start: 2s}
timeline:
  - {at: 2500ms, do: loss, rate: 10%, for: 2s}
  - {at: 7s, do: crash, member: n0}
limits: {run: 120s}
"""


def evidence_of(traces: dict[str, bytes]) -> Evidence:
    return Evidence.from_blocks(traces, xxh3_64_intdigest)


class Watched(SimBackend):
    """The simulator, which notes when members start and end, and what they say at the end."""

    def __init__(self) -> None:
        super().__init__()
        self.lives: list[tuple[str, float, float]] = []
        self.said: dict[str, Any] = {}

    def start(self, name: str) -> None:
        super().start(name)
        self.lives.append((name, self.now(), inf))

    def kill(self, name: str) -> None:
        self.lives = [
            (one, start, min(end, self.now()) if one == name else end)
            for one, start, end in self.lives
        ]
        super().kill(name)

    def freeze(self) -> None:
        self.said = {
            name: self.ask(name, "GET", "/state")
            for name in self._plan.names
            if self.is_alive(name)
        }
        super().freeze()


@pytest.mark.slow
@pytest.mark.parametrize("text", [GROUP, PAIR, LARGE], ids=["group", "pair", "large"])
@pytest.mark.parametrize("seed", range(4))
def test_the_traces_say_what_the_members_say(text: str, seed: int, tmp_path: Path) -> None:
    """Who lived and when, the last view, and what arrived of whom."""
    backend = Watched()

    run = play(parse_scenario(text), seed, backend, tmp_path)

    begin = run.evidence.begin
    lives = [(life.name, life.start, life.end) for life in run.lives.values() if life.name != "n3"]
    assert sorted(lives) == sorted(
        (name, round(start - begin, 9), round(end - begin, 9))
        for name, start, end in backend.lives
        if name != "n3"
    )
    once = [name for name in backend.said if [life[0] for life in lives].count(name) == 1]
    assert once
    for name in once:
        view = backend.said[name]["view"]
        if view is not None:
            assert run.views[f"{name}-1"][-1].number == view["number"]
        arrived = backend.said[name]["workload"]["received_from"]
        for source in once:
            told = sum(n for who, n in arrived.items() if who.startswith(f"{source}:"))
            assert run.reached.get((source, name), [(0.0, 0)])[-1][1] == told


def test_a_message_in_pieces_has_arrived_when_it_is_whole() -> None:
    """A count of pieces would say after the first message of 50 pieces that 20 messages came."""
    text = LARGE.replace("count: 6, rate", "count: 20, rate").replace("at: 7s", "at: 100s")
    run = simulate(parse_scenario(text), 3)

    assert run.sent == 40
    assert run.delivered == 20 * 3 + 20
    assert run.sent_by_pair["n0", "n1"] == run.sent_by_pair["n1", "n2"] == 20
    assert [count for _time, count in run.reached["n0", "n1"]] == [*range(1, 21)]
    assert run.reached["n1", "n2"][-1][1] == 20
    times = [time for time, _count in run.reached["n0", "n1"]]
    late = (
        f"expect:\n  - {{by: {times[9] + 0.01:.3f}s, delivered: {{from: n0, to: n1, count: 10}}}}\n"
    )
    soon = (
        f"expect:\n  - {{by: {times[9] - 0.01:.3f}s, delivered: {{from: n0, to: n1, count: 10}}}}\n"
    )
    verdicts = [
        run_scenario(parse_scenario(text + expected), 3).judgement.of("G8").verdict
        for expected in (late, soon)
    ]
    assert verdicts == [Verdict.HOLDS, Verdict.VIOLATED]


def test_times_count_from_the_start_of_the_scenario() -> None:
    run = simulate(parse_scenario(PAIR), 1)

    late = facts_of(evidence_of(run.traces), start=10.0)

    assert late.lives["n0-1"].start == -10.0
    assert late.reached["n0", "n1"][0][0] == pytest.approx(run.reached["n0", "n1"][0][0] - 10)


def test_what_is_still_missing_at_a_heal_says_how_long_the_repair_took() -> None:
    """Cut off for a second: the first delivery comes at once, what was lost a little later."""
    scenario = without_crash(parse_scenario(PAIR))
    run = simulate(scenario, 1)

    resync = resync_of(evidence_of(run.traces), healed=1.5)

    assert resync.after == 1.5
    assert resync.one_view is None, "nobody formed a group"
    assert resync.first_delivery is not None
    assert 0 < resync.first_delivery <= resync.repaired < 1.0
    assert resync.seconds == resync.repaired


def test_a_pair_that_never_hears_of_each_other_again_has_no_resync_time() -> None:
    scenario = without_crash(
        parse_scenario(PAIR.replace(", for: 1s}\n  - {at: 2s", "}\n  - {at: 2s"))
    )
    for_ever = replace(scenario, limits=replace(scenario.limits, run=2.0, settle=0.0))
    traces = simulate(for_ever, 1).traces
    cut_off = {label: until(blocks, 2.0) for label, blocks in traces.items()}

    resync = resync_of(evidence_of(cut_off), healed=1.0)

    assert resync == ResyncTimes(after=1.0, first_delivery=None, repaired=0.0, one_view=None)
    assert resync.as_json()["seconds"] is None


def test_a_view_that_comes_after_the_end_is_none_that_the_group_waited_for() -> None:
    story = Story()
    story.a_group().a_clean_cast().at(4.0).installs(2, "n0", "n1", "n2")
    story.ends(20.0).at(20.1).installs(3, "n0", "n2")

    resync = resync_of(evidence_of(story.told()), healed=3.0)

    assert resync.one_view == pytest.approx(1.0)


def test_members_of_another_host_are_dated_by_the_clock_of_the_rig() -> None:
    """A host that booted an hour earlier shows an hour more; both agree on the time of day."""
    run = simulate(parse_scenario(PAIR), 1)
    here = evidence_of(run.traces)

    apart = evidence_of({**run.traces, "n0-1": shifted(run.traces["n0-1"], 3600.0)})

    assert facts_of(apart).lives == facts_of(here).lives
    assert [e.time for e in member_of(apart, "n0-1").events] == pytest.approx(
        [e.time for e in member_of(here, "n0-1").events]
    )


def test_a_wall_clock_that_was_set_a_little_moves_nothing() -> None:
    run = simulate(parse_scenario(PAIR), 1)

    little = evidence_of({**run.traces, "n0-1": shifted(run.traces["n0-1"], 0.0, wall=0.4)})

    assert facts_of(little).lives == run.lives


# -- Helpers -------------------------------------------------------------------------------------


def without_crash(scenario: Scenario) -> Scenario:
    return replace(scenario, timeline=scenario.timeline[:1])


def member_of(evidence: Evidence, label: str) -> Member:
    return next(member for member in evidence.members.values() if member.label == label)


def until(blocks: bytes, time: float) -> bytes:
    """What of a trace was written before a time."""
    return rewritten(blocks, 0.0, 0.0, time)


def shifted(blocks: bytes, by: float, wall: float = 0.0) -> bytes:
    """A trace as a host writes it whose clock shows so much more at the same time of day."""
    return rewritten(blocks, by, wall)


def rewritten(blocks: bytes, by: float, wall: float, end: float = inf) -> bytes:
    made: list[bytes] = []
    number = 0
    for block in read_blocks_untrusted(blocks, xxh3_64_intdigest):
        events = [e._replace(time=e.time + by) for e in block.events if e.time <= end]
        zero = block.wall_ns - round((by - wall) * 1e9)
        texts = b"".join(map(pack_text, block.texts))
        made.append(pack_block(block.member, number, zero, events, texts, xxh3_64_intdigest))
        number += len(events)
    return b"".join(made)


def test_a_trace_with_a_hole_says_nothing_of_what_was_expected() -> None:
    """Neither in time nor late, neither one view nor two: the machine lost it, and no protocol."""
    text = LARGE.replace("at: 7s", "at: 100s")
    scenario = parse_scenario(f"{text}expect:\n  - {{by: 60s, delivered: all}}\n")
    run = simulate(scenario, 3)
    first, *_, last = read_blocks_untrusted(run.traces["n1-1"], xxh3_64_intdigest)
    holed = run.traces["n1-1"][: first.size] + run.traces["n1-1"][-last.size :]
    evidence = evidence_of({**run.traces, "n1-1": holed})
    facts = facts_of(evidence, run.evidence.begin)
    broken = replace(
        run, evidence=evidence, reached=facts.reached, views=facts.views, lives=facts.lives
    )

    assert judge_run(scenario, run).verdict is Verdict.HOLDS
    judgement = judge_run(scenario, broken)
    assert judgement.verdict is Verdict.UNKNOWN
    assert all("missing" in one.detail for one in judgement.findings if one.guarantee == "G8")


OVERLAP = """
name: two-hold-one
guarantees: [G1]
cluster: {members: 2, timing: fast}
workload:
  - {do: unicast, from: n0, to: n1, count: 100, rate: 20/s, size: 16B}
timeline:
  - {at: 1s, do: HOLD, member: n1, for: 3s, name: long}
  - {at: 2s, do: HOLD, member: n1, for: 1s, name: short}
  - {at: 3500ms, do: HOLD, member: n1, for: 1s, name: late}
limits: {run: 60s}
"""


@pytest.mark.parametrize("hold", ["pause", "stall"])
def test_of_two_faults_that_hold_a_member_the_newer_takes_over(hold: str) -> None:
    """The older one has its end in the rig's trace then: judges excuse nobody for ever."""
    run = simulate(parse_scenario(OVERLAP.replace("HOLD", hold)), 1)

    (member,) = [one for one in run.evidence.members.values() if one.name == "n1"]
    begin = run.evidence.begin
    spans = member.paused if hold == "pause" else member.stalled
    told = sorted((round(span.start - begin, 3), round(span.end - begin, 3)) for span in spans)
    assert told == [(1.0, 2.0), (2.0, 3.0), (3.5, 4.5)]
    assert all(run.bites[name] >= 1 for name in ("long", "short", "late"))
    handed = [event.time - begin for event in member.events if event.kind == HANDED]
    assert not [time for time in handed if 1.3 < time < 3.0 or 3.8 < time < 4.5]


@pytest.mark.parametrize("name", PARTED)
def test_what_is_owed_no_more_stands_in_for_nothing(name: str) -> None:
    """Messages are told apart: those that had not arrived when two parted may come later."""
    facts = facts_of(evidence_of(PARTED[name].story.told()))

    reached = facts.reached_of_sent["n0", "n1"]
    assert facts.sent_by_pair["n0", "n1"] == PARTED[name].wanted
    assert [count for time, count in reached if time <= BY][-1] == PARTED[name].had


TWICE = """
name: half-is-lost-and-half-comes-twice
guarantees: [G8]
cluster: {members: 2, stack: udp, timing: fast, max_batch: 1}
workload:
  - {do: unicast, from: n0, to: all, count: 200, rate: 50/s, start: 1s, flags: NO_RELIABILITY}
  - {do: unicast, from: n1, to: all, count: 20, rate: 20/s, start: 1s, flags: DONT_LOOPBACK}
timeline:
  - {at: 0s, do: loss, from: n0, to: n1, rate: 45%, for: 20s}
  - {at: 0s, do: duplicate, from: n0, to: n1, rate: 100%, for: 20s}
expect:
  - {by: 15s, delivered: {from: n0, to: n1, count: 200}}
  - {by: 15s, delivered: {from: n0, to: n1, count: 60}}
  - {by: 15s, delivered: {from: n1, to: all}}
limits: {run: 30s}
"""


def test_a_message_that_comes_twice_counts_once() -> None:
    scenario = parse_scenario(TWICE)
    run = simulate(scenario, 1)

    assert 60 < run.reached["n0", "n1"][-1][1] < 150 < run.delivered
    said = [finding.verdict for finding in expectation_findings(scenario, run)]
    assert said == [Verdict.VIOLATED, Verdict.HOLDS, Verdict.HOLDS]


def test_what_a_sender_keeps_from_itself_is_owed_to_nobody() -> None:
    run = simulate(parse_scenario(TWICE), 1)

    assert ("n1", "n1") not in run.sent_by_pair
    assert run.sent_by_pair["n1", "n0"] == 20


def test_a_message_in_pieces_was_never_for_who_came_amid_it() -> None:
    story = Story().installs(1, "n0", "n1").installs(1, "n2")
    story.at(1.0).offers(1, to="").cuts(1, 3, to="").casts(1, number=1, piece=True, muted=True)
    story.at(2.0).installs(2, "n0", "n1", "n2", merge=True).at(3.0)
    for seqno in (2, 3):
        story.casts(seqno, number=1, piece=True, muted=True)
    evidence = evidence_of(story.quiet(15.0).ends(20.0).told())
    n0, _n1, n2 = sorted(evidence.members.values(), key=lambda member: member.label)

    unowed = unowed_multicasts(evidence, n0, [1], 0)

    assert unowed is not None
    assert unowed.missing == (n2,)
    assert not unowed.is_alone
