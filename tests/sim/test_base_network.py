"""What a network does by itself stands in the rig's trace: judges see no scenario."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from xxhash import xxh3_64_intdigest

from stormcast.chaos.backends.sim.backend import SimBackend
from stormcast.chaos.language.scenario import parse_scenario
from stormcast.chaos.session.runner import run_scenario
from stormcast.chaos.session.session import play
from stormcast.chaos.session.simulation import simulate
from stormcast.node.trace import FAULT, PHASE, read_blocks_untrusted

TEXT = """
name: plain
about: Two members, and a network that is what it is.
guarantees: [G1]
cluster: {{members: 2}}
network: {network}
workload:
  - {{do: unicast, from: n0, to: n1, count: 20, rate: 10/s, size: 100B}}
limits: {{run: 60s}}
"""
LOSSY = ["{loss: 1%}", "{corrupt: 1%}", "{bandwidth: 10Mbit/s}"]
HARMLESS = ["{delay: 1ms}", "{duplicate: 5%}"]
SLOW = [
    ("{delay: 20ms, jitter: 5ms}", "delay", 0.025),
    ("{reorder: 5%, reorder_by: 1500ms}", "delay", 1.5),
    ("{delay: 400ms, jitter: 100ms, reorder: 5%, reorder_by: 1s, loss: 1%}", "network", 1.5),
]
SLOW_STORIES = [
    ("{delay: 400ms}", ""),
    ("{reorder: 20%, reorder_by: 1500ms}", ""),
    ("{delay: 1ms}", "timeline: [{at: 500ms, do: delay, delay: 900ms, for: 600ms}]"),
    (
        "{delay: 1ms}",
        "timeline: [{at: 500ms, do: rule, does: delay, delay: 900ms, for: 600ms}]",
    ),
]
"""Networks, and timelines, that keep frames for much longer than members wait to repair."""
PATIENT = """
name: slow
about: Two members that repair often, and frames that are long under way.
guarantees: [G1, G2, G3, G4, G5, G6, G7, C1, L1]
cluster: {{members: 2, settings: {{xmit_interval: 50ms}}}}
network: {network}
workload:
  - {{do: unicast, from: n0, to: n1, count: 20, rate: 20/s, size: 100B}}
{timeline}
limits: {{run: 60s}}
"""
SLOW_GROUP = """
name: slow-group
about: Three members whose acks take two seconds.
guarantees: [G1, G2, G3, C1, L1]
cluster:
  {members: 3, stack: mcast, timing: compatible, protocols: {MCAST: {xmit_interval: 50ms}}}
network: {delay: 2s}
workload:
  - {do: multicast, from: n0, count: 50, rate: 20/s}
limits: {run: 60s}
"""


def _said(rig: bytes) -> list[tuple[float, dict[str, object]]]:
    return [
        (event.time, json.loads(block.text(event)))
        for block in read_blocks_untrusted(rig, xxh3_64_intdigest)
        for event in block.events
        if event.kind == FAULT
    ]


@pytest.mark.parametrize("network", LOSSY)
def test_the_simulator_says_that_its_network_loses(network: str) -> None:
    run = simulate(parse_scenario(TEXT.format(network=network)), 1)

    assert _said(run.traces["rig"]) == [(0.0, {"id": "network", "do": "network", "phase": "on"})]


@pytest.mark.parametrize(("network", "do", "late"), SLOW)
def test_the_simulator_says_for_how_long_its_network_keeps_frames(
    network: str, do: str, late: float
) -> None:
    run = simulate(parse_scenario(TEXT.format(network=network)), 1)

    said = {"id": "network", "do": do, "phase": "on", "late": late}
    assert _said(run.traces["rig"]) == [(0.0, said)]


@pytest.mark.parametrize(("network", "timeline"), SLOW_STORIES)
def test_what_is_late_is_answered_later_and_no_violation(network: str, timeline: str) -> None:
    run = run_scenario(parse_scenario(PATIENT.format(network=network, timeline=timeline)), 1)

    assert str(run.judgement.verdict) == "holds", run.judgement.findings


def test_what_all_have_is_purged_later_on_a_slow_network() -> None:
    run = run_scenario(parse_scenario(SLOW_GROUP), 1)

    assert str(run.judgement.verdict) == "holds", run.judgement.findings


@pytest.mark.parametrize("delay", [1.0, 9.0])
def test_a_run_goes_on_until_what_a_fault_delayed_has_come(delay: float) -> None:
    """A member acks the late frame, which it has: C1 is judged from there on."""
    timeline = f"timeline: [{{at: 500ms, do: delay, delay: {delay:g}s, for: 600ms}}]"
    scenario = parse_scenario(PATIENT.format(network="{delay: 1ms}", timeline=timeline))

    run = simulate(scenario, 1)

    ends = [event.time for event in run.evidence.rig.trace.events if event.kind == PHASE]
    assert run.evidence.calm == pytest.approx(1.1 + delay, abs=0.01)
    assert ends[-1] > run.evidence.calm + 0.65


@pytest.mark.parametrize("network", HARMLESS)
def test_of_a_network_that_loses_and_delays_nothing_there_is_nothing_to_say(network: str) -> None:
    run = simulate(parse_scenario(TEXT.format(network=network)), 1)

    assert _said(run.traces["rig"]) == []


def test_a_session_says_so_before_the_scenario_begins(tmp_path: Path) -> None:
    """Whatever backend it is over."""
    scenario = parse_scenario(TEXT.format(network="{loss: 1%}"))

    run = play(scenario, 1, SimBackend(), tmp_path)

    ((time, text),) = _said(run.traces["rig"])
    assert text == {"id": "network", "do": "network", "phase": "on"}
    assert time <= min(
        event.time
        for block in read_blocks_untrusted(run.traces["rig"], xxh3_64_intdigest)
        for event in block.events
        if event.kind == PHASE
    )
