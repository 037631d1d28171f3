"""Extras that bring what no other draw does: each brings what it says, and what can be judged."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import cache
from itertools import islice
from random import Random

import pytest

from stormcast.chaos import faults
from stormcast.chaos.campaigns.generate import generate, is_group
from stormcast.chaos.campaigns.generate.extras import EXTRAS, Extra, with_extras
from stormcast.chaos.campaigns.generate.extras.changes import never_repairs
from stormcast.chaos.campaigns.generate.extras.deadlines import comes_back
from stormcast.chaos.campaigns.generate.extras.later import LATEST
from stormcast.chaos.campaigns.generate.extras.members import departures
from stormcast.chaos.campaigns.generate.extras.tuning import OUTBOXES, SLOWEST_REPAIR
from stormcast.chaos.campaigns.search import run_seed
from stormcast.chaos.language.cluster import GENERATIONS
from stormcast.chaos.language.scenario import Scenario
from stormcast.chaos.language.stacks import settings_of
from stormcast.chaos.language.timeline import Step
from stormcast.chaos.oracles.verdict import Verdict
from stormcast.node.member.loads import FLAGS

SEEDS = range(1500)
drawn = cache(generate)
"""Every test looks at the same scenarios."""


def with_extra(name: str) -> Iterator[tuple[int, Scenario]]:
    """Yield the seeds that have an extra, and their scenarios."""
    return ((seed, drawn(seed)) for seed in SEEDS if f", with {name}" in drawn(seed).about)


def scenarios(name: str) -> list[Scenario]:
    found = [scenario for _seed, scenario in with_extra(name)]
    assert len(found) >= 20
    return found


def test_groups_over_datagrams_have_every_unicast() -> None:
    met = {(one.cluster.stack, one.cluster.unicast) for one in scenarios("other unicast")}
    assert met == {(stack, unicast) for stack in ("udp", "mcast") for unicast in GENERATIONS}


def test_an_extra_that_the_settings_do_not_allow_is_left_out(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """As another unicast is where the settings are of the one that the stack has."""

    def refused(scenario: Scenario, _random: Random) -> Scenario:
        return replace(scenario, cluster=replace(scenario.cluster, settings=(("no_such", 1),)))

    extra = Extra(refused, 1.0, lambda _scenario: True)
    monkeypatch.setattr("stormcast.chaos.campaigns.generate.extras.EXTRAS", (extra,))
    assert with_extras(drawn(0), 0, 0) == drawn(0)


def test_all_that_is_drawn_is_accepted() -> None:
    for seed in SEEDS:
        settings_of(drawn(seed))


def test_members_of_unicast_alone_depart_and_come_late() -> None:
    met: Counter[str] = Counter()
    for scenario in scenarios("departures"):
        assert not scenario.needs
        steps = [step for step in scenario.timeline if isinstance(step.action, DEPARTURES)]
        met.update(type(step.action).__name__ for step in steps)
        met["late"] += bool(scenario.cluster.late)
        gone = [step for step in steps if step.duration is None]
        met["for good"] += bool(gone)
        assert len(scenario.cluster.members) - len(gone) >= 2
    assert {what for what, count in met.items() if count >= 3} >= {
        "Leave",
        "Crash",
        "Churn",
        "late",
        "for good",
    }


def test_a_late_member_comes_before_others_go_for_good() -> None:
    """All messages may be between the two, and then none would be sent."""
    plain = next(drawn(seed) for seed in SEEDS if len(drawn(seed).cluster.members) > 2)
    plain, met = replace(plain, timeline=()), 0
    for number in range(400):
        scenario = departures(plain, Random(number))
        gone = [step.at for step in scenario.timeline if not comes_back(step, scenario)]
        comes = [step.at for step in scenario.timeline if isinstance(step.action, faults.Join)]
        if gone and comes:
            met += 1
            assert comes < gone
    assert met >= 20


def test_nobody_goes_for_good_before_anything_could_be_sent() -> None:
    """Here the sender pauses for as long as its late receiver would have been there."""
    scenario = generate(6318795662, attempt=2)
    (sender,) = {name for load in scenario.workload for name in load.sources}
    (pause,) = [step for step in scenario.timeline if isinstance(step.action, faults.Pause)]
    assert pause.action == faults.Pause(member=sender)
    assert scenario.cluster.late == scenario.workload[0].dests
    assert all(comes_back(step, scenario) for step in scenario.timeline)
    assert run_seed(6318795662).verdict is Verdict.HOLDS


DEPARTURES = (faults.Leave, faults.Crash, faults.Churn)


def test_unicast_alone_has_all_flags_and_owes_something() -> None:
    met: set[str] = set()
    for scenario in scenarios("all flags"):
        first, *rest = scenario.workload
        assert "NO_RELIABILITY" not in first.flags
        met.update(first.flags, *(load.flags for load in rest))
    assert met == {*FLAGS}


def test_steps_begin_late_amid_messages() -> None:
    for scenario in scenarios("late steps"):
        late = [step for step in scenario.timeline if step.at > 8.0]
        assert late
        ends = max(load.end for load in scenario.workload)
        assert all(step.at < ends or step.at > LATEST + 3.0 for step in late)


def test_a_second_wave_begins_when_the_last_step_ends() -> None:
    for scenario in scenarios("second wave"):
        if ", with rare rules" in scenario.about:
            continue
        end = max(step.at + (step.duration or 0.0) for step in scenario.timeline)
        assert max(load.start for load in scenario.workload) >= end - 1.0


def test_rules_strike_repeats_flags_and_seqnos() -> None:
    met: Counter[str] = Counter()
    for scenario in scenarios("rare rules"):
        for step in scenario.timeline:
            if isinstance(rule := step.action, faults.Rule):
                match = rule.match
                met["repeats"] += match.transmission is not None and match.transmission[0] > 0
                met["flags"] += bool(match.flags)
                met["seqnos"] += match.seqno is not None
                is_taking = rule.does in {"drop", "corrupt"} and rule.times != 1
                takes_data = not match.kinds or "DATA" in match.kinds
                assert not (never_repairs(scenario) and is_taking and takes_data)
    assert min(met[what] for what in ("repeats", "flags", "seqnos")) >= 10


def test_a_poor_network_is_so_all_the_time() -> None:
    links = [scenario.network for scenario in scenarios("poor network")]
    for is_poor in POOR.values():
        assert sum(map(is_poor, links)) >= 10


POOR: dict[str, Callable[[faults.Link], bool]] = {
    "duplicate": lambda link: link.duplicate > 0,
    "reorder": lambda link: link.reorder > 0 and link.reorder_by > 0,
    "corrupt": lambda link: link.corrupt > 0,
    "bandwidth": lambda link: link.bandwidth is not None,
}


def test_settings_are_drawn_that_nothing_else_draws() -> None:
    met: Counter[str] = Counter()
    for scenario in scenarios("rare settings"):
        cluster = scenario.cluster
        met.update(name for name, _value in (*cluster.settings, *cluster.multicast_settings))
        met.update(f"{name}.{key}" for name, values in cluster.protocols for key, _value in values)
    assert {name for name, count in met.items() if count >= 2} >= {
        "max_xmit_req_ranges", "xmit_interval", "join_sync_interval",
        "resend_last_seqno_max_times", "FD_ALL3.msg_counts_as_heartbeat", "GMS.max_join_attempts",
        "GMS.repeat_interval", "GMS.join_stability_timeout", "STABLE.max_bytes",
        "STABLE.repeat_interval", "PING.max_rank_to_reply", "STATIC.break_on_coord_rsp",
        "UDP.queue_frames", "TCP.receive_queue", "TCP_NIO2.queue_frames",
    }  # fmt: skip  # a list of words


def test_small_queues_are_drawn_where_all_can_be_repaired() -> None:
    """A view has to leave a coordinator in one turn, and what is repeated for a dead member has to
    end; and a run has time for what four frames in three seconds repair."""
    met: dict[bool, set[object]] = {True: set(), False: set()}
    for scenario in scenarios("rare settings"):
        assert scenario.limits.run >= SLOWEST_REPAIR
        settings = [pair for _name, values in scenario.cluster.protocols for pair in values]
        queues = {value for name, value in settings if name in ("queue_frames", "receive_queue")}
        met[bool(scenario.needs)] |= queues
        if dict(scenario.cluster.settings).get("max_retransmit_time") == 0:
            assert not queues
    assert met == {True: {30}, False: {4, 30}}


def test_outboxes_are_small() -> None:
    met = {scenario.cluster.outbox_bytes for scenario in scenarios("small outbox")}
    assert met == {*OUTBOXES}


def test_no_small_outbox_waits_for_a_member_that_is_away_for_good() -> None:
    """The load to it did not end in seed 4567995452: each outbox was given up after a minute."""
    small = next(extra for extra in EXTRAS if extra.name == "small outbox")
    gone = Step(at=1.0, action=faults.Crash(member="n1"))
    unicast = replace(next(s for s in map(drawn, SEEDS) if not s.needs), timeline=(gone,))
    group = replace(next(s for s in map(drawn, SEEDS) if s.needs), timeline=(gone,))
    back = Step(at=2.0, action=faults.Restart(member="n1"))
    assert not small.fits(unicast)
    assert small.fits(replace(unicast, timeline=(gone, back)))
    assert small.fits(group)


@pytest.mark.slow
@pytest.mark.parametrize("extra", [extra.name for extra in EXTRAS[-10:-1]])
def test_a_seed_with_it_holds(extra: str) -> None:
    for seed, _scenario in islice(with_extra(extra), 2):
        result = run_seed(seed)
        assert result.verdict is Verdict.HOLDS, f"stormcast search --from {seed} --seeds 1"
        assert is_group(seed) or extra != "other unicast"
