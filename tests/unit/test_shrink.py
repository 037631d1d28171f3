"""Shrinking: what is left is what the failure needs, and it is still the same failure."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
from xxhash import xxh3_64_intdigest

from stormcast.chaos import faults
from stormcast.chaos.backends.base import Unsupported
from stormcast.chaos.campaigns.fingerprint import kind_of
from stormcast.chaos.campaigns.shrink import shrink
from stormcast.chaos.campaigns.shrink.failure import NothingToShrink
from stormcast.chaos.campaigns.shrink.trials import OutOfTime, Trials
from stormcast.chaos.campaigns.shrunk import regression
from stormcast.chaos.language.scenario import Budget, Scenario, dump, load_scenario, parse_scenario
from stormcast.chaos.language.schedule import schedule
from stormcast.chaos.oracles.evidence import Evidence
from stormcast.chaos.oracles.verdict import Finding, Judgement, Verdict, worst
from stormcast.chaos.session.outcome import RunOutcome
from stormcast.chaos.session.record import RunRecord
from stormcast.node.core.errors import ConfigError, NodeError

pytestmark = pytest.mark.slow
"""Each is a search of some hundred scenarios."""

LARGE = """\
name: large
about: More than it takes.
guarantees: [G1, G2, G3]
cluster:
  {members: [ann, bob, cy, di], timing: fast, settings: {conn_close_timeout: 10s}, max_batch: 7}
network: {delay: 5ms, loss: 1%}
workload:
  - {do: unicast, from: ann, to: others, count: 40, rate: 37/s, size: 10B..2KiB, burst: 5}
  - {do: unicast, from: [bob, di], to: cy, count: 300, rate: 100/s, start: 2s}
  - {do: unicast, from: cy, to: all, count: 9}
timeline:
  - {at: 1s, do: loss, name: noise, rate: 37%, to: [bob, cy]}
  - {at: 1500ms, do: pause, member: di}
  - {at: 2s, do: partition, name: apart, groups: [[ann, bob], [cy, di]]}
  - {at: 2500ms, do: heal, name: noise}
  - {at: 2750ms, do: crash, member: cy, for: 2s}
  - {at: 3s, do: resume, member: di}
  - {at: 3s, do: heal}
expect:
  - {by: 50s, delivered: {from: ann, to: bob, count: 20}}
budget: {acks: 50%, syncs: 4}
limits: {run: 90s, settle: 31s}
"""
SCENARIOS = sorted((Path(__file__).parents[2] / "chaos" / "scenarios").rglob("*.yaml"))

Claim = Callable[[Scenario], bool]


def outcome(scenario: Scenario, *findings: Finding, seconds: float | None = None) -> RunOutcome:
    """What a run of a scenario might have come to."""
    sent = sum(load.count for load in scenario.workload)
    run = RunRecord(
        traces={},
        evidence=Evidence.from_blocks({}, xxh3_64_intdigest),
        events=sent,
        seconds=scenario.limits.run if seconds is None else seconds,
        sent=sent,
        delivered=sent,
        bites={},
        kinds={},
        mismatches=[],
        sent_by_pair={},
        reached={},
        complete=True,
        stalled_for=0.0,
    )
    return RunOutcome(scenario, 1, Judgement(worst(one.verdict for one in findings), findings), run)


def violated(guarantee: str = "G1", detail: str = "it broke", *witness: str) -> Finding:
    return Finding(guarantee, Verdict.VIOLATED, detail, witness)


HOLDS = Finding("G1", Verdict.HOLDS, "no violation found")


class Lab:
    """Runs scenarios that fail where a claim says so, and notes which were tried."""

    def __init__(self, fails: Claim, finding: Finding | None = None) -> None:
        self.fails = fails
        self.finding = finding or violated()
        self.tried: list[Scenario] = []

    def __call__(self, scenario: Scenario) -> RunOutcome:
        self.tried.append(scenario)
        return outcome(scenario, self.finding if self.fails(scenario) else HOLDS)


def shrunk(text: str, fails: Claim, finding: Finding | None = None) -> Scenario:
    return shrink(Trials(parse_scenario(text), None, Lab(fails, finding))).scenario


def has(scenario: Scenario, kind: type) -> bool:
    return any(isinstance(step.action, kind) for step in scenario.timeline)


# -- What goes -------------------------------------------------------------------------------------


def test_what_always_fails_shrinks_to_nothing() -> None:
    assert (
        dump(shrunk(LARGE, lambda _: True))
        == "name: large\nguarantees: G1\ncluster: {members: 1}\n"
    )


def test_only_what_the_failure_needs_is_left_with_names_that_need_no_list() -> None:
    """A loss on the way to who is crashed, and a load that sends to it."""

    def fails(scenario: Scenario) -> bool:
        crashed = {
            step.action.member
            for step in scenario.timeline
            if isinstance(step.action, faults.Crash)
        }
        lossy = {
            dest
            for step in scenario.timeline
            if isinstance(step.action, faults.Loss)
            for dest in step.action.dests
        }
        sent = {dest for load in scenario.workload for _source, dest in load.pairs()}
        return bool(crashed & lossy & sent)

    left = shrunk(LARGE, fails)
    assert left.cluster.members == ("n0", "n1")
    assert [load.count for load in left.workload] == [1]
    assert [type(step.action) for step in left.timeline] == [faults.Loss, faults.Crash]
    assert [step.at for step in left.timeline] == [0.0, 0.0]
    assert (left.cluster.timing, left.cluster.settings, left.cluster.max_batch) == (
        "compatible",
        (),
        None,
    )
    assert (left.network, left.expect, left.budget) == (faults.Link(), (), None)
    assert fails(left)


def test_a_fault_goes_together_with_its_cure() -> None:
    """Without the fault its cure is no scenario; without the cure, says the claim, it holds."""
    text = """\
name: x
guarantees: [G1]
cluster: {members: 2}
timeline:
  - {at: 1s, do: cut, name: deaf, from: n0, to: n1}
  - {at: 2s, do: crash, member: n1}
  - {at: 3s, do: heal, name: deaf}
"""

    def fails(scenario: Scenario) -> bool:
        is_cured = has(scenario, faults.Cut) == has(scenario, faults.Heal)
        return len(scenario.cluster.members) == 2 and has(scenario, faults.Crash) and is_cured

    assert [type(step.action) for step in shrunk(text, fails).timeline] == [faults.Crash]


def test_a_member_keeps_its_name_where_the_failure_needs_it() -> None:
    """Identities come from names: what becomes of a frame may depend on them."""
    assert shrunk(LARGE, lambda s: "di" in s.cluster.members).cluster.members == ("di",)


def test_what_must_keep_its_distance_moves_together() -> None:
    text = """\
name: x
guarantees: [G1]
cluster: {members: 2}
workload:
  - {do: unicast, from: n0, to: n1, count: 1, start: 2s}
timeline:
  - {at: 2250ms, do: crash, member: n1}
"""

    def fails(scenario: Scenario) -> bool:
        begins = [load.start for load in scenario.workload]
        crashes = [step.at for step in scenario.timeline]
        return bool(begins and crashes) and 0.2 <= crashes[0] - begins[0] <= 0.3

    left = shrunk(text, fails)
    assert left.workload[0].start == 0.0
    assert 0.2 <= left.timeline[0].at <= 0.25


@pytest.mark.parametrize("least", [1, 2, 7, 39, 40])
def test_a_number_ends_where_one_less_would_hold(least: int) -> None:
    left = shrunk(LARGE, lambda scenario: any(load.count >= least for load in scenario.workload))
    assert [load.count for load in left.workload] == [least]


def test_a_length_ends_near_where_less_would_hold() -> None:
    def fails(scenario: Scenario) -> bool:
        return any(
            isinstance(step.action, faults.Crash) and (step.duration or 0.0) > 0.7
            for step in scenario.timeline
        )

    (step,) = shrunk(LARGE, fails).timeline
    assert step.duration is not None
    assert 0.7 < step.duration <= 0.75


def test_what_depends_on_the_order_of_things_moves_to_the_beginning_in_this_order() -> None:
    def fails(scenario: Scenario) -> bool:
        crash = [step.at for step in scenario.timeline if isinstance(step.action, faults.Crash)]
        begins = [load.start for load in scenario.workload if load.count > 200]
        return bool(crash and begins) and crash[0] > begins[0] + 0.2

    left = shrunk(LARGE, fails)
    assert left.workload[0].start == 0.0
    assert 0.2 < left.timeline[0].at <= 0.25


def test_times_are_tried_in_whole_milliseconds() -> None:
    lab = Lab(lambda scenario: any(step.at > 0 for step in scenario.timeline))
    left = shrink(Trials(parse_scenario(LARGE), None, lab)).scenario
    assert [step.at for step in left.timeline] == [0.001]


# -- What stays ------------------------------------------------------------------------------------


def test_nothing_is_tried_twice_and_everything_could_be_a_file() -> None:
    lab = Lab(lambda scenario: has(scenario, faults.Partition))
    shrink(Trials(parse_scenario(LARGE), None, lab))
    texts = [dump(scenario) for scenario in lab.tried]
    assert len(texts) == len(set(texts)) > 20
    assert [parse_scenario(text) for text in texts] == lab.tried


@pytest.mark.parametrize(
    ("finding", "other"),
    [
        (violated("G1"), violated("G2")),
        (violated("G1", "seqno 5 was lost"), violated("G1", "seqno 5 was sent twice")),
        (
            violated("G8", "not in time", "bob had 3 of 9 from ann"),
            violated("G8", "not in time", "bob without a view"),
        ),
    ],
)
def test_another_failure_is_not_taken_for_this_one(finding: Finding, other: Finding) -> None:
    """With the crash it is one, and without it another."""

    def run(scenario: Scenario) -> RunOutcome:
        return outcome(scenario, finding if has(scenario, faults.Crash) else other)

    left = shrink(Trials(parse_scenario(LARGE), None, run)).scenario
    assert [type(step.action) for step in left.timeline] == [faults.Crash]


def test_the_guarantee_that_was_asked_for_is_the_one_that_stays_violated() -> None:
    def run(scenario: Scenario) -> RunOutcome:
        lost = [violated("G1")] if has(scenario, faults.Crash) else []
        return outcome(scenario, *lost, *([violated("G3")] if has(scenario, faults.Pause) else []))

    for guarantee, kind in (("G1", faults.Crash), ("G3", faults.Pause)):
        trials = Trials(parse_scenario(LARGE), guarantee, run)
        assert [type(step.action) for step in shrink(trials).scenario.timeline] == [kind]
    with pytest.raises(NothingToShrink, match=r"^the run violates G1, G3, but not G2$"):
        Trials(parse_scenario(LARGE), "G2", run)


def test_a_deadline_is_not_moved_and_its_names_not_changed() -> None:
    """Expecting it earlier, or of others, would be another expectation."""
    left = shrunk(LARGE, lambda scenario: bool(scenario.expect), violated("G8", "late"))
    assert [(one.by, one.count) for one in left.expect] == [(50.0, 20)]
    assert left.limits.run >= 50.0


@pytest.mark.parametrize("fault", ["crash, member: n1", "partition, groups: [[n0], [n1]]"])
def test_a_deadline_is_not_missed_by_keeping_the_cluster_broken(fault: str) -> None:
    """Without its end the fault would last until the load is over: nobody could be in time."""
    text = (
        "name: x\nguarantees: [G8]\ncluster: {members: 2}\n"
        "workload:\n  - {do: unicast, from: n0, to: n1, count: 400, rate: 10/s}\n"
        f"timeline:\n  - {{at: 1s, do: {fault}, for: 2s}}\n"
        "expect:\n  - {by: 41s, delivered: all}\n"
    )

    def fails(scenario: Scenario) -> bool:
        is_long = any(load.end > 30 for load in scenario.workload)
        return is_long and bool(scenario.timeline and scenario.expect)

    late, lost = violated("G8", "late"), violated("G1", "lost")
    assert all(step.duration for step in shrunk(text, fails, late).timeline)
    assert not any(step.duration for step in shrunk(text, fails, lost).timeline)


def test_a_run_that_ends_before_the_deadline_does_not_show_that_it_is_missed() -> None:
    def run(scenario: Scenario) -> RunOutcome:
        ends = max((load.end for load in scenario.workload), default=0.0)
        late = [violated("G8", "late")] if scenario.expect else []
        return outcome(scenario, *late, seconds=ends + scenario.limits.settle)

    text = (
        "name: x\nguarantees: [G8]\ncluster: {members: 2}\n"
        "workload:\n  - {do: unicast, from: n0, to: n1, count: 400, rate: 10/s}\n"
        "expect:\n  - {by: 41s, delivered: all}\n"
    )
    (load,) = shrink(Trials(parse_scenario(text), None, run)).scenario.workload
    assert 21.0 <= load.end < 22.0


def test_a_budget_keeps_its_shares_and_messages_enough_to_judge_them() -> None:
    """One ack for one message is above any budget below 100 %."""
    text = LARGE.replace(
        "from: ann, to: others, count: 40, rate: 37/s", "from: ann, to: bob, count: 40"
    )

    def fails(scenario: Scenario) -> bool:
        return scenario.budget is not None and scenario.budget.acks is not None

    left = shrunk(text, fails, violated("C1", "30 acks"))
    assert left.budget == Budget(acks=0.5)
    assert sum(load.count for load in left.workload) == 20  # of which ten may be acked


def test_what_a_file_says_is_not_left_to_the_seed() -> None:
    left = shrunk(LARGE, lambda scenario: has(scenario, faults.Partition))
    (step,) = left.timeline
    assert isinstance(step.action, faults.Partition)
    assert step.action.groups
    assert len(schedule(left, 1)) == 2


def test_a_word_that_is_also_a_name_stays_a_word() -> None:
    """Members called `a` and `was` become n0 and n1; the words of the finding do not."""
    text = "name: x\nguarantees: [G1]\ncluster: {members: [a, was, rest]}\n"
    left = shrunk(text, lambda s: len(s.cluster.members) > 1, violated("G1", "a message was lost"))
    assert left.cluster.members == ("n0", "n1")


# -- How it ends -----------------------------------------------------------------------------------


def test_when_the_time_is_up_the_smallest_so_far_is_kept() -> None:
    lab = Lab(lambda scenario: has(scenario, faults.Crash))
    trials = Trials(parse_scenario(LARGE), None, lab, lambda: len(lab.tried) > 5)
    with pytest.raises(OutOfTime):
        shrink(trials)
    assert len(lab.tried) == 6
    assert trials.best.size.size_bytes < trials.first.size.size_bytes
    assert lab.fails(trials.best.scenario)


def test_each_run_is_told() -> None:
    told: list[int] = []
    lab = Lab(lambda scenario: has(scenario, faults.Crash))
    trials = Trials(parse_scenario(LARGE), None, lab, tell=lambda one: told.append(one.tally.runs))
    shrink(trials)
    assert told == list(range(1, len(lab.tried)))
    assert 0 < trials.tally.kept < trials.tally.runs


def test_a_run_that_breaks_off_is_counted_and_is_not_the_failure() -> None:
    def run(scenario: Scenario) -> RunOutcome:
        if not has(scenario, faults.Crash):
            raise NodeError("timers that are always due")
        return outcome(scenario, violated())

    trials = Trials(parse_scenario(LARGE), None, run)
    assert has(shrink(trials).scenario, faults.Crash)
    assert trials.tally.crashes
    assert set(trials.tally.crashes) == {"NodeError('timers that are always due')"}


@pytest.mark.parametrize("refusal", [ConfigError("no such setting"), Unsupported("no multicast")])
def test_what_cannot_be_run_is_passed_over(refusal: Exception) -> None:
    def run(scenario: Scenario) -> RunOutcome:
        if not scenario.cluster.settings:
            raise refusal
        return outcome(scenario, violated())

    trials = Trials(parse_scenario(LARGE), None, run)
    assert shrink(trials).scenario.cluster.settings
    assert trials.tally.crashes == []


@pytest.mark.parametrize(
    ("finding", "why", "verdict"),
    [
        (HOLDS, "the run holds", Verdict.HOLDS),
        (
            Finding("run", Verdict.UNKNOWN, "nothing was sent"),
            "the run is unknown: run: nothing was sent",
            Verdict.UNKNOWN,
        ),
    ],
)
def test_what_does_not_fail_is_not_shrunk(finding: Finding, why: str, verdict: Verdict) -> None:
    with pytest.raises(NothingToShrink) as nothing:
        Trials(parse_scenario(LARGE), None, lambda scenario: outcome(scenario, finding))
    assert (str(nothing.value), nothing.value.verdict) == (why, verdict)


def test_a_regression_file_says_what_it_shows_and_reads_as_what_was_found() -> None:
    """Whatever stands in a witness: quotes and colons are no end of the text."""
    finding = violated("G1", 'seqno 5: "lost"', "n0#3 t=1.000 sent: {to: n1} # 5")
    trials = Trials(parse_scenario(LARGE), None, Lab(lambda _: True, finding))
    found = shrink(trials)
    text = regression(found, trials.first.size, 7, "stormcast run x.yaml --seed 7")
    assert text.startswith("# Expected: violated, G1, with seed 7.\n#   stormcast run x.yaml --s")
    assert "# Before it was shrunk: 4 members, 3 loads, 7 steps, 349 messages" in text
    read = parse_scenario(text)
    assert read.name == "large-minimal"
    assert read.about == (
        'Seed 7 violates G1: seqno 5: "lost". Witness: n0#3 t=1.000 sent: {to: n1} # 5'
    )
    assert replace(read, name="large", about="") == found.scenario


@pytest.mark.parametrize("name", ["x" * 80, "x-minimal", "x" * 71 + "-y-minimal"])
def test_a_regression_file_has_a_name_that_may_be_one(name: str) -> None:
    scenario = replace(parse_scenario(LARGE), name=name[:80])
    trials = Trials(scenario, None, Lab(lambda _: True))
    read = parse_scenario(regression(trials.best, trials.first.size, 1, "again"))
    assert read.name.endswith("-minimal")
    assert not read.name.endswith("-minimal-minimal")


# -- Every file there is ---------------------------------------------------------------------------


@pytest.mark.parametrize("path", SCENARIOS, ids=lambda path: path.stem)
def test_every_part_of_every_scenario_can_go(path: Path) -> None:
    scenario = load_scenario(path)
    left = shrink(Trials(scenario, None, Lab(lambda _: True))).scenario
    assert dump(left) == f"name: {scenario.name}\nguarantees: G1\ncluster: {{members: 1}}\n"


# -- Kinds of failures -----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("seqno 25 was lost", "seqno 3 was lost"),
        ("seqnos 2..25 were lost", "seqno 3 were lost"),
        ("n0 waits for n1", "n2 waits for n0"),
        ("not one view of n0-1 n1-1 n2-1 at t=71", "not one view of n0-2 n1-1 at t=3.5"),
        ("12 acks (0.25 per message)", "3 acks (1 per message)"),
        ("heard n0, n1 and n2", "heard n1"),
    ],
)
def test_names_and_numbers_make_no_other_failure(one: str, other: str) -> None:
    names = ("n0", "n1", "n2")
    assert kind_of(one, names) == kind_of(other, names)


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("seqno 25 was lost", "seqno 25 was repeated"),
        ("in view 1 by n0", "without a view"),
        ("n0 waits for n1", "n0 waits"),
    ],
)
def test_other_words_are_another_failure(one: str, other: str) -> None:
    assert kind_of(one, ("n0", "n1")) != kind_of(other, ("n0", "n1"))
