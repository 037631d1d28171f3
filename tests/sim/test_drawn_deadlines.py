"""Deadlines of drawn scenarios: where they are set, and that they are later than is promised."""

from __future__ import annotations

from dataclasses import replace
from functools import cache

import pytest

from stormcast.chaos import faults
from stormcast.chaos.campaigns.generate import generate
from stormcast.chaos.campaigns.generate.extras.deadlines import REGROUPED, gives_nothing_up
from stormcast.chaos.campaigns.search import outcome_of
from stormcast.chaos.language.scenario import Scenario
from stormcast.chaos.language.stacks import settings_of
from stormcast.chaos.language.timeline import Step
from stormcast.chaos.oracles.verdict import Verdict
from stormcast.chaos.session.runner import run_scenario
from stormcast.chaos.session.settling import hold_seconds, regroup_seconds


@cache
def expecting() -> dict[int, Scenario]:
    """The scenarios with deadlines, by seed."""
    return {seed: scenario for seed in range(1600) if (scenario := generate(seed)).expect}


def groups() -> list[Scenario]:
    return [scenario for scenario in expecting().values() if scenario.needs]


CRASH = Step(at=1.0, action=faults.Crash(member="n1"), duration=2.0)


def with_steps(*steps: Step) -> Scenario:
    """A group that has a deadline, with other steps than it has."""
    return replace(groups()[0], timeline=steps)


def test_a_search_judges_deadlines() -> None:
    """Of deliveries, and of groups also of views: each after the last step and the last load."""
    assert len(groups()) >= 8
    assert len(expecting()) - len(groups()) >= 8
    for scenario in expecting().values():
        ends = [step.at + (step.duration or 0.0) for step in scenario.timeline]
        ends += [load.end for load in scenario.workload]
        assert len(scenario.expect) == 1 + bool(scenario.needs)
        assert all(max(ends) < one.by <= scenario.limits.run for one in scenario.expect)


@pytest.mark.parametrize(
    "action",
    [
        faults.Delay(sources=("n0",), dests=("n1",), delay=0.2, jitter=0.1),
        faults.Reorder(sources=("n0",), dests=("n1",), rate=0.3, by=0.5),
    ],
)
def test_there_is_no_deadline_where_a_newcomer_may_be_alone_because_answers_are_late(
    action: faults.Delay | faults.Reorder,
) -> None:
    """What it sends then is for nobody else. (Found by a search: seed 8146034149.)"""
    slow = Step(at=0.5, action=action, duration=3.0)
    assert gives_nothing_up(with_steps(CRASH))
    assert gives_nothing_up(with_steps(slow))
    assert not gives_nothing_up(with_steps(CRASH, slow))
    far = replace(groups()[0].network, delay=0.2)
    assert not gives_nothing_up(replace(with_steps(CRASH), network=far))


@pytest.mark.parametrize(
    "action",
    [
        faults.Forget(member="n0", peer="n1", half="both"),
        faults.Close(member="n0", peer="n1"),
        faults.InstallView(at_members=("n0",), members=("n0",)),
        faults.SetAttribute(member="n0", attribute="max_retransmit_time", value=3.0),
        faults.SetAttribute(member="n0", attribute="NAKACK2.xmit_interval", value=0.0),
        faults.Crash(member="n1"),
        faults.Leave(member="coordinator"),
    ],
)
def test_no_deadline_is_set_where_a_message_may_be_given_up_or_a_member_stays_away(
    action: faults.Action,
) -> None:
    assert not gives_nothing_up(with_steps(Step(at=1.0, action=action)))


def test_who_comes_back_is_no_reason() -> None:
    assert gives_nothing_up(with_steps(CRASH))
    back = Step(at=3.0, action=faults.Restart(member="n1"))
    assert gives_nothing_up(with_steps(back))


@pytest.mark.parametrize("action", [faults.Partition(shape="halves"), faults.Pause(member="n0")])
def test_who_may_not_find_the_others_when_it_is_started_is_one(action: faults.Action) -> None:
    """It would be alone for the rest of its load, which is then for nobody else: seed 751 was."""
    other = Step(at=1.0, action=action, duration=2.0)
    assert gives_nothing_up(with_steps(other))
    assert not gives_nothing_up(with_steps(CRASH, other))


@pytest.mark.parametrize("setting", ["max_rank_to_reply", "max_join_attempts"])
def test_so_is_a_setting_by_which_who_is_started_hears_of_nobody(setting: str) -> None:
    """Only the coordinator would answer, and it has just died: so it was in seed 4400790."""
    protocol = "PING" if setting == "max_rank_to_reply" else "GMS"
    crashed = with_steps(CRASH)
    cluster = replace(crashed.cluster, protocols=((protocol, ((setting, 1),)),))
    assert not gives_nothing_up(replace(crashed, cluster=cluster))
    assert gives_nothing_up(replace(crashed, cluster=cluster, timeline=()))


def test_a_small_queue_of_the_transport_has_none() -> None:
    """Too few frames of a member left in a minute, and it was given up, in seed 6600000965."""
    calm = with_steps()
    cluster = replace(calm.cluster, protocols=(("UDP", (("queue_frames", 30),)),))
    assert not gives_nothing_up(replace(calm, cluster=cluster))


def test_a_group_on_a_network_that_always_loses_frames_has_none() -> None:
    """It may part although no fault acts: so it did in seed 5500429."""
    calm = with_steps()
    assert gives_nothing_up(calm)
    assert not gives_nothing_up(replace(calm, network=faults.Link(corrupt=0.09)))


def test_so_is_a_load_that_is_sent_while_some_are_away() -> None:
    """It is never for these: so it was in seed 606060174."""
    parted = with_steps(Step(at=1.0, action=faults.Partition(shape="halves"), duration=2.0))
    assert gives_nothing_up(parted)
    late = replace(parted.workload[0], start=4.0)
    assert not gives_nothing_up(replace(parted, workload=(*parted.workload, late)))


def test_so_is_one_that_is_sent_while_mcast_may_suspect_a_member_that_takes_nothing() -> None:
    """It was excluded, and the load never for it, in seed 8754887739."""
    stalled = with_steps(Step(at=1.0, action=faults.Stall(member="n1"), duration=3.0))
    late = replace(stalled.workload[0], start=2.0)
    loaded = replace(stalled, workload=(*stalled.workload, late))
    assert stalled.cluster.stack != "mcast"
    assert gives_nothing_up(loaded)
    assert not gives_nothing_up(replace(loaded, cluster=replace(loaded.cluster, stack="mcast")))


@pytest.mark.parametrize("setting", ["window_messages", "window_bytes"])
def test_so_is_a_load_behind_another_one_in_a_narrow_window(setting: str) -> None:
    """It began before the others parted, and was sent after: so it was in seed 3701298706."""
    parted = with_steps(Step(at=1.0, action=faults.Partition(shape="halves"), duration=2.0))
    one = replace(parted.workload[0], do="multicast", dests=parted.cluster.members, start=0.1)
    two = replace(one, start=0.2)
    plain = replace(parted.cluster, multicast_settings=(), protocols=())
    narrow = replace(plain, multicast_settings=((setting, 4),))
    assert gives_nothing_up(replace(parted, workload=(one, two), cluster=plain))
    assert gives_nothing_up(replace(parted, workload=(one,), cluster=narrow))
    assert not gives_nothing_up(replace(parted, workload=(one, two), cluster=narrow))
    assert gives_nothing_up(replace(parted, workload=(one, two), cluster=narrow, timeline=()))


@pytest.mark.parametrize(
    ("protocol", "setting"),
    [("MFC", "max_credits"), ("FRAG", "max_open_messages"), ("FRAG", "max_open_bytes")],
)
def test_so_is_one_behind_another_that_waits_for_credits_or_for_room(
    protocol: str, setting: str
) -> None:
    """So it was in seed 893449638."""
    parted = with_steps(Step(at=1.0, action=faults.Partition(shape="halves"), duration=2.0))
    one = replace(parted.workload[0], do="multicast", dests=parted.cluster.members, start=0.1)
    two = replace(one, start=0.2)
    plain = replace(parted.cluster, multicast_settings=(), protocols=())
    few = replace(plain, protocols=((protocol, ((setting, 9000),)),))
    assert gives_nothing_up(replace(parted, workload=(one, two), cluster=plain))
    assert gives_nothing_up(replace(parted, workload=(one,), cluster=few))
    assert not gives_nothing_up(replace(parted, workload=(one, two), cluster=few))


def test_messages_in_pieces_have_deadlines_too() -> None:
    """Whoever comes amid such a message is not owed it, and all others are."""
    large = [
        seed for seed, scenario in expecting().items() if scenario.needs and in_pieces(scenario)
    ]
    assert len(large) >= 3
    for seed in large:
        assert outcome_of(seed).outcome.verdict is Verdict.HOLDS, seed


def in_pieces(scenario: Scenario) -> bool:
    frag = settings_of(scenario).of("FRAG")
    return frag is not None and scenario.largest > frag.frag_size


@pytest.mark.slow
def test_a_group_is_promised_to_be_one_before_its_deadline() -> None:
    """By what its members themselves say, in vain merges and all."""
    for scenario in groups()[:12]:
        quiet = replace(scenario, timeline=(), workload=(), expect=())
        evidence = run_scenario(quiet, 1, min_bites=0).run.evidence
        assert regroup_seconds(evidence) + hold_seconds(evidence) < REGROUPED


@pytest.mark.slow
def test_what_a_seed_expects_is_judged() -> None:
    seed, scenario = next((seed, one) for seed, one in expecting().items() if one.needs)
    outcome = outcome_of(seed).outcome
    assert outcome.scenario == scenario
    assert outcome.verdict is Verdict.HOLDS
    told = [one.detail for one in outcome.judgement.findings if one.guarantee == "G8"]
    assert f"delivered by t={scenario.limits.run:g}" in told
