"""The search over whole groups: what is drawn can be judged, and reaches what it should."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from functools import cache
from itertools import pairwise

import pytest

from stormcast.chaos import faults
from stormcast.chaos.campaigns.generate import cell_of, is_group, least_of
from stormcast.chaos.campaigns.generate import generate as drawn_of
from stormcast.chaos.campaigns.generate.extras.later import LATEST
from stormcast.chaos.campaigns.generate.groups import (
    END_SECONDS,
    KINDS,
    MIN_BITES,
    MIN_MESSAGES,
    MIN_OWED,
    SETTLE_SECONDS,
    SPARSE,
    STACKS,
)
from stormcast.chaos.campaigns.generate.groups.plots import PLOTS
from stormcast.chaos.campaigns.generate.groups.staged import STAGED, SWITCHING
from stormcast.chaos.language.scenario import GUARANTEES, Scenario
from stormcast.chaos.language.stacks import settings_of
from stormcast.chaos.language.timeline import WORDS, Step
from stormcast.chaos.session.runner import run_scenario
from stormcast.node.core import wire
from stormcast.node.settings import StackSettings

SEEDS = [seed for seed in range(1000) if is_group(seed)]


generate = cache(drawn_of)
"""Every test looks at the same scenarios."""


def words(steps: Iterable[Step]) -> set[str]:
    return {WORDS[type(step.action)] for step in steps}


def retransmits(scenario: Scenario, settings: StackSettings) -> bool:
    """Whether repairs are on, and never switched off."""
    assert settings.multicast_config is not None
    return settings.multicast_config.retransmits and not any(
        isinstance(step.action, faults.SetAttribute) and not step.action.value
        for step in scenario.timeline
    )


def test_two_seeds_of_three_are_of_groups() -> None:
    assert [seed for seed in range(6) if is_group(seed)] == [0, 1, 3, 4]
    assert least_of(1) == (MIN_MESSAGES, MIN_OWED, MIN_BITES)


def test_a_seed_is_led_by_the_fault_of_its_cell() -> None:
    for seed in SEEDS:
        stack, leading = cell_of(seed)
        scenario = generate(seed)
        assert scenario.cluster.stack == stack
        assert leading in words(scenario.timeline)


def test_a_leading_fault_is_among_members_that_are_there() -> None:
    """Of 3,000 seeds, 23 had no step of their leading fault: its member had yet to join."""
    for seed in range(3000):
        _stack, leading = cell_of(seed)
        if is_group(seed) and leading in {"forget", "install-view"}:
            assert leading in words(drawn_of(seed).timeline), seed


def test_a_plot_that_is_named_was_drawn() -> None:
    """All members switch only where they may, and a last multicast is lost where it is repaired."""
    for scenario in _plotted("switch all"):
        switched = {
            step.action.member
            for step in scenario.timeline
            if isinstance(step.action, faults.SetAttribute)
            and step.action.attribute == "NAKACK2.xmit_interval"
        }
        assert switched == {*scenario.cluster.members}
    for scenario in _plotted("last is lost"):
        rules = [step.action for step in scenario.timeline if isinstance(step.action, faults.Rule)]
        assert any(rule.match.kinds == ("HIGHEST_SEQNO",) for rule in rules)


def test_all_members_send_multicasts_that_are_owed() -> None:
    for seed in SEEDS:
        first = generate(seed).workload[0]
        assert (first.do, first.sources) == ("multicast", generate(seed).cluster.members)
        assert "NO_RELIABILITY" not in first.flags


def test_all_that_a_group_promises_is_judged() -> None:
    for seed in SEEDS:
        assert set(generate(seed).guarantees) == set(GUARANTEES) - {"S1", "T1"}


def test_every_stack_accepts_what_is_drawn_for_it() -> None:
    for seed in SEEDS:
        settings = settings_of(generate(seed))
        assert settings.has_group


def test_the_leader_of_a_merge_waits_for_longer_than_two_round_trips() -> None:
    for seed in range(6000):
        if is_group(seed):
            scenario = drawn_of(seed)
            path = scenario.network
            round_trip = 2 * (path.delay + path.jitter)
            assert settings_of(scenario).of("GMS").merge_timeout > 2 * round_trip, seed


def test_what_is_broken_is_mended_within_the_run() -> None:
    """Only then is the last view, and whatever else is settled, there to be judged."""
    for seed in SEEDS:
        scenario = generate(seed)
        # Pieces of one outside of the view are kept for a minute: such a run must outlast that.
        outlasts = "(outside amid a message" in scenario.about
        is_later = {"late steps", "second wave"} & {*scenario.about[:-1].split(", with ")}
        latest = 100.0 if outlasts else LATEST - END_SECONDS if is_later else 2.0
        for step in scenario.timeline:
            assert 0.0 <= step.at <= END_SECONDS + latest
            if not isinstance(step.action, faults.Crash | faults.Leave):
                assert (step.duration is not None) == isinstance(
                    step.action, faults.NetworkFault | faults.Pause | faults.Stall | faults.Churn
                )
        assert is_later or all(load.end <= END_SECONDS + 0.1 for load in scenario.workload)
        assert scenario.limits.settle == SETTLE_SECONDS


def test_at_least_two_members_are_left() -> None:
    for seed in SEEDS:
        scenario = generate(seed)
        gone = [
            step
            for step in scenario.timeline
            if isinstance(step.action, faults.Crash | faults.Leave) and step.duration is None
        ]
        assert len(scenario.cluster.members) - len(gone) >= 2


def test_who_comes_late_does_come() -> None:
    for seed in SEEDS:
        scenario = generate(seed)
        joining = {
            step.action.member for step in scenario.timeline if isinstance(step.action, faults.Join)
        }
        assert set(scenario.cluster.late) <= joining
        assert len(scenario.cluster.members) - len(scenario.cluster.late) >= 2


def test_where_nothing_is_repaired_no_rule_takes_multicasts_away() -> None:
    """But for a single one, long before its sender's last: an alarm tells of that one."""
    for seed in SEEDS:
        scenario = generate(seed)
        if retransmits(scenario, settings_of(scenario)):
            continue
        for step in scenario.timeline:
            rule = step.action
            if isinstance(rule, faults.Rule) and "DATA" in rule.match.kinds:
                is_single = rule.times == 1 and step.at <= END_SECONDS / 2
                assert rule.does not in {"drop", "corrupt"} or is_single


def _plotted(words: str) -> list[Scenario]:
    """The scenarios with a plot."""
    found = [scenario for seed in SEEDS if f"({words})" in (scenario := generate(seed)).about]
    assert len(found) >= 3
    return found


def test_a_stall_outlasts_the_life_of_an_idle_connection() -> None:
    """And what waits meanwhile is more than the credits of its receiver."""
    for scenario in _plotted("blocked for long"):
        life = dict(scenario.cluster.settings)
        stalls = [step for step in scenario.timeline if isinstance(step.action, faults.Stall)]
        longest = max(step.duration or 0.0 for step in stalls)
        assert longest > life["conn_expiry_timeout"] + life["conn_close_timeout"]
        budget = dict(dict(scenario.cluster.protocols)["UFC"])["max_credits"]
        assert max(load.count * load.size[0] for load in scenario.workload) > budget


def test_a_partition_may_end_between_the_idle_time_and_the_detection_of_the_silent() -> None:
    for scenario in _plotted("parted unnoticed"):
        timeout = dict(dict(scenario.cluster.protocols)["FD_ALL3"])["timeout"]
        life = dict(scenario.cluster.settings)
        if scenario.cluster.stack.startswith("tcp"):
            continue
        idle = life["conn_expiry_timeout"] + life["conn_close_timeout"]
        assert any(
            isinstance(step.action, faults.Partition | faults.Cut)
            and idle < (step.duration or 0.0) < timeout
            for step in scenario.timeline
        )


def test_nothing_is_held_back_for_longer_than_it_may_take() -> None:
    """A late frame of a connection that is forgotten would be taken for a new one's, and what is
    merely late would raise an alarm: no checker could complain of either."""
    for seed in SEEDS:
        scenario = generate(seed)
        limits = [
            limit
            for limit in (
                dict(scenario.cluster.settings).get("conn_close_timeout"),
                dict(scenario.cluster.multicast_settings).get("gap_alarm"),
            )
            if isinstance(limit, float)
        ]
        for step in scenario.timeline:
            match step.action:
                case faults.Rule(does="hold"):
                    held = step.duration or 0.0
                case faults.Rule(does="delay", delay=delay):
                    held = delay
                case faults.Reorder(by=by):
                    held = by
                case _:
                    continue
            assert all(held < limit for limit in limits)


def test_unfinished_messages_may_take_as_much_as_the_largest_one() -> None:
    for scenario in _plotted("all send large"):
        frag = dict(dict(scenario.cluster.protocols)["FRAG"])
        largest = max(load.size[1] for load in scenario.workload)
        assert largest <= frag["max_message_size"] < frag["max_open_bytes"] < 4 * largest


def test_all_leave_and_come_back() -> None:
    for scenario in _plotted("all leave"):
        gone = {
            step.action.member
            for step in scenario.timeline
            if isinstance(step.action, faults.Leave | faults.Crash) and step.duration is not None
        }
        assert set(scenario.cluster.members) <= gone


def test_timelines_are_in_order_of_time() -> None:
    for seed in SEEDS:
        times = [step.at for step in generate(seed).timeline]
        assert all(one <= other for one, other in pairwise(times))


def test_rules_are_aimed_at_frames_that_there_are() -> None:
    for protocol, kinds in SPARSE.items():
        assert protocol in wire.PROTOCOL_BY_NAME
        assert set(kinds) <= set(wire.KIND_BY_NAME)


def test_draws_reach_every_corner() -> None:
    """Of 500 groups, at least three have each of these."""
    drawn: Counter[str] = Counter()
    for seed in SEEDS:
        scenario = generate(seed)
        cluster = scenario.cluster
        drawn.update(cluster.timing for _ in (1,))
        drawn.update(name for name, _value in cluster.multicast_settings)
        drawn.update(f"unicast {name}" for name, _value in cluster.settings)
        drawn["first conn"] += cluster.unicast_first_conn is not None
        drawn[scenario.about.partition("(")[2].partition(")")[0]] += 1
        drawn.update(f"{name}.{key}" for name, values in cluster.protocols for key, _ in values)
        drawn.update(flag for load in scenario.workload for flag in load.flags)
        drawn.update({load.do for load in scenario.workload})
        drawn[f"members {len(cluster.members)}"] += 1
        drawn["late"] += bool(cluster.late)
        drawn["one-by-one"] += cluster.joins == "one-by-one"
        drawn["large"] += any(load.size[1] > 10_000 for load in scenario.workload)
        drawn["oob"] += any(load.oob_every for load in scenario.workload)
        for step in scenario.timeline:
            action = step.action
            drawn["flapping"] += step.every is not None
            if isinstance(action, faults.Partition):
                drawn[action.shape] += 1
            if isinstance(action, faults.Rule):
                drawn.update(f"{action.does} {kind}" for kind in action.match.kinds)
                drawn.update(action.match.kinds)
            if isinstance(action, faults.SetAttribute):
                drawn[f"{action.attribute} {action.value}"] += 1
            if isinstance(action, faults.Crash | faults.Leave | faults.Pause):
                drawn[f"{WORDS[type(action)]} {action.member}"] += 1
    expected = {
        "compatible", "fast", "late", "one-by-one", "large", "oob", "flapping", "unicast",
        "members 3", "members 4", "members 5", "members 6",
        *faults.SHAPES,
        "drop VIEW", "hold VIEW", "hold DATA", "drop DATA",
        "drop HIGHEST_SEQNO", "hold STABILITY", "hold GOSSIP",
        "JOIN_REQ", "JOIN_RSP", "VIEW_ACK", "MERGE_REQ", "LEAVE_REQ", "BASELINE",
        "ACK",
        "XMIT_REQ", "HEARTBEAT", "INFO", "CREDIT",
        "NAKACK2.xmit_interval 0.0", "NAKACK2.xmit_interval 0.25",
        "crash coordinator", "leave coordinator", "pause coordinator", "crash random-participant",
        "DONT_LOOPBACK", "OOB", "NO_FC", "NO_RELIABILITY", "DONT_BUNDLE",
        "window_messages", "window_bytes", "ack_threshold", "become_server_queue_size",
        "max_unknown_messages", "gap_alarm", "resend_last_seqno", "use_mcast_xmit_req",
        "xmit_from_random_member", "slow_member_timeout", "max_xmit_req_size",
        "MFC.max_credits", "UFC.max_credits", "FRAG.frag_size", "STABLE.max_messages",
        "GMS.merge_timeout", "GMS.view_ack_collection_timeout",
        "FRAG.max_open_messages", "FRAG.max_open_bytes", "FRAG.max_message_size", "FD_ALL3.timeout",
        "unicast conn_expiry_timeout", "unicast conn_close_timeout", "unicast window_messages",
        "first conn",
        *(plot.__name__.strip("_").replace("_", " ") for plot in (*PLOTS, *STAGED, *SWITCHING)),
    }  # fmt: skip  # a list of words
    assert {name for name, count in drawn.items() if count >= 3} >= expected


@pytest.mark.slow
@pytest.mark.parametrize("stack", STACKS)
def test_a_group_of_each_stack_is_met_and_holds(stack: str) -> None:
    """One scenario of each stack, replayed: the same run, event for event."""
    seed = next(seed for seed in SEEDS if cell_of(seed)[0] == stack)
    outcome = run_scenario(generate(seed), seed, min_bites=0)
    again = run_scenario(generate(seed), seed, min_bites=0)
    assert outcome.run.traces == again.run.traces
    assert str(outcome.verdict) == "holds", f"stormcast search --from {seed} --seeds 1"
    assert len({life.name for life in outcome.run.lives.values()}) >= 3
    assert set(outcome.run.kinds.values()) <= set(KINDS)
