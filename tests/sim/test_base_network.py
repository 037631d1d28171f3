"""A network that loses messages by itself stands in the rig's trace: judges see no scenario."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from xxhash import xxh3_64_intdigest

from stormcast.chaos.backends.sim.backend import SimBackend
from stormcast.chaos.language.scenario import parse_scenario
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
LOSSLESS = ["{delay: 20ms, jitter: 5ms}", "{duplicate: 5%, reorder: 5%, reorder_by: 5ms}"]


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


@pytest.mark.parametrize("network", LOSSLESS)
def test_of_a_network_that_loses_nothing_there_is_nothing_to_say(network: str) -> None:
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
