"""The scenarios that ship: each means what it says, wherever the library runs it."""

from __future__ import annotations

import zlib
from dataclasses import replace
from importlib.resources import files
from pathlib import Path

import pytest

from stormcast.chaos import faults
from stormcast.chaos.campaigns.library import (
    BY_HAND,
    DATAGRAMS,
    GROUP_STACKS,
    STREAMS,
    Side,
    has_group,
    kinds_of,
    library,
    run_side,
    run_sides,
    sides_of,
    timings_of,
)
from stormcast.chaos.faults import SHAPES
from stormcast.chaos.language.cluster import GENERATIONS, TIMINGS
from stormcast.chaos.language.scenario import Scenario, dump, load_scenario, parse_scenario
from stormcast.chaos.language.schedule import format_plan, schedule
from stormcast.chaos.language.workload import Expect, ExpectView
from stormcast.chaos.oracles.verdict import Verdict
from stormcast.chaos.session.runner import run_scenario

FOLDER = files("stormcast.chaos").joinpath("scenarios")
FILES = {
    entry.name.removesuffix(".yaml"): entry.read_text()
    for entry in sorted(FOLDER.iterdir(), key=lambda entry: entry.name)
    if entry.name.endswith(".yaml")
}
MUSEUM = {
    entry.name.removesuffix(".yaml"): entry.read_text()
    for entry in sorted(FOLDER.joinpath("museum").iterdir(), key=lambda entry: entry.name)
}
SCENARIOS = {name: parse_scenario(text, name) for name, text in FILES.items()}
ALONE = {name: one for name, one in SCENARIOS.items() if not has_group(one)}
GROUPS = {name: one for name, one in SCENARIOS.items() if has_group(one)}
QUICK = {name: one for name, one in GROUPS.items() if len(one.cluster.members) <= 20}
"""The others take seconds: `make chaos-test` runs them, and all sides of these."""


def one_side(scenario: Scenario) -> Side:
    """One of its sides; over all scenarios each stack and timing has its turn."""
    sides = list(sides_of(scenario))
    return sides[zlib.crc32(scenario.name.encode()) % len(sides)]


def group(
    *, stack: str = "udp", timing: str = "compatible", step: str = "", protocols: str = ""
) -> Scenario:
    """A scenario of a group, as little as there can be of one."""
    timeline = f"timeline:\n  - {step}\n" if step else ""
    extra = f", protocols: {protocols}" if protocols else ""
    return parse_scenario(
        "name: small\nguarantees: [G1]\n"
        f"cluster: {{members: 3, stack: {stack}, timing: {timing}{extra}}}\n{timeline}"
    )


# -- Every file ----------------------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.parametrize("timing", TIMINGS)
@pytest.mark.parametrize("generation", GENERATIONS)
@pytest.mark.parametrize("name", ALONE)
def test_a_scenario_without_a_group_holds(name: str, generation: str, timing: str) -> None:
    """Every guarantee that it names, with every fault biting. To replay one:

    .venv/bin/stormcast run chaos/scenarios/NAME.yaml --seed 1, with `unicast` and `timing` set.
    """
    scenario = ALONE[name]
    cluster = replace(scenario.cluster, unicast=generation, timing=timing)
    it_holds(replace(scenario, cluster=cluster, text=""))


@pytest.mark.slow
@pytest.mark.parametrize("name", QUICK)
def test_a_scenario_of_a_group_holds(name: str) -> None:
    """On one of its stacks and timings. To replay it: .venv/bin/stormcast run
    chaos/scenarios/NAME.yaml --seed 1, with `stack` and `timing` set."""
    it_holds(one_side(QUICK[name]).scenario)


def it_holds(scenario: Scenario) -> None:
    outcome = run_scenario(scenario, 1)
    broken = [one for one in outcome.judgement.findings if one.verdict is not Verdict.HOLDS]
    assert not broken, (scenario.cluster.stack, scenario.cluster.timing, broken)
    assert outcome.verdict is Verdict.HOLDS
    assert outcome.run.complete


@pytest.mark.parametrize("name", [*FILES, *MUSEUM])
def test_a_scenario_of_the_library_reads_as_what_it_writes(name: str) -> None:
    text = FILES.get(name) or MUSEUM[name]
    scenario = parse_scenario(text, name)
    assert parse_scenario(dump(scenario)) == scenario
    assert scenario.name == name
    assert scenario.about.endswith(".")
    assert scenario.text == text


@pytest.mark.parametrize("name", [*FILES, *MUSEUM])
def test_a_scenario_of_the_library_has_a_plan(name: str) -> None:
    scenario = parse_scenario(FILES.get(name) or MUSEUM[name], name)
    assert schedule(scenario, 1) == schedule(scenario, 1)
    plan = format_plan(scenario, 1)
    assert plan.startswith(f"{name}, seed 1: ")
    assert len(plan.splitlines()) >= 3 + len(scenario.workload) + len(scenario.timeline)


def test_the_library_is_all_there_is_but_what_is_run_by_hand() -> None:
    assert [scenario.name for scenario in library()] == [
        name for name in FILES if name not in BY_HAND
    ]
    assert set(BY_HAND) <= set(FILES)


def test_a_scenario_on_disk_reads_as_the_one_that_ships() -> None:
    with_path = load_scenario(str(FOLDER.joinpath("storm.yaml")))
    assert with_path == parse_scenario(FILES["storm"])


# -- What the library covers ---------------------------------------------------------------------


def test_the_library_asks_for_every_guarantee_of_reliable_unicast() -> None:
    asked = {guarantee for scenario in ALONE.values() for guarantee in scenario.guarantees}
    assert {"G1", "G2", "G3", "G4", "G5", "G6", "G7", "C1", "L1"} <= asked


@pytest.mark.parametrize("name", GROUPS)
def test_a_scenario_of_a_group_asks_for_all_of_its_guarantees(name: str) -> None:
    everything = {f"G{n}" for n in range(1, 9)} | {"A1", "V1", "V2", "V3", "V4", "C1", "L1"}
    assert set(GROUPS[name].guarantees) == everything


@pytest.mark.parametrize("name", GROUPS)
def test_a_scenario_of_a_group_ends_in_one_view_of_all_with_all_delivered(name: str) -> None:
    """Both within bounds that the file states, after the last fault."""
    scenario = GROUPS[name]
    members = scenario.cluster.members
    last = max((step.at + (step.duration or 0.0) for step in scenario.timeline), default=0.0)
    views = [one for one in scenario.expect if isinstance(one, ExpectView)]
    arrivals = [one for one in scenario.expect if isinstance(one, Expect)]
    assert [one for one in views if one.by > last and one.seen_by == one.view == members]
    assert [
        one
        for one in arrivals
        if one.by >= max(load.end for load in scenario.workload)
        and one.sources == one.dests == members
        and one.count is None
    ]


def test_every_shape_of_partition_and_every_model_of_loss_is_met() -> None:
    actions = [step.action for one in GROUPS.values() for step in one.timeline]
    shapes = {one.shape for one in actions if isinstance(one, faults.Partition) and not one.groups}
    assert shapes == set(SHAPES)
    for kind in (
        faults.Cut,
        faults.Loss,
        faults.GilbertElliott,
        faults.NthLoss,
        faults.Reorder,
        faults.Duplicate,
        faults.Corrupt,
        faults.Bandwidth,
        faults.Rule,
        faults.Crash,
        faults.Restart,
        faults.Pause,
        faults.Stall,
        faults.Leave,
        faults.Join,
        faults.Churn,
    ):
        assert any(isinstance(action, kind) for action in actions), kind
    assert any(step.every for one in GROUPS.values() for step in one.timeline)
    sizes = {len(one.cluster.members) for one in GROUPS.values()}
    assert {3, 4, 5, 6, 7, 8, 20, 50, 100} <= sizes


def test_every_stack_and_timing_runs_most_of_the_library() -> None:
    sides = [side for scenario in GROUPS.values() for side in sides_of(scenario)]
    for stack in GROUP_STACKS:
        for timing in TIMINGS:
            here = [side for side in sides if (side.kind, side.timing) == (stack, timing)]
            assert len(here) >= 30, (stack, timing)


# -- Which sides ---------------------------------------------------------------------------------


def test_members_on_their_own_run_every_generation_with_every_timing() -> None:
    sides = list(sides_of(SCENARIOS["one-way-cut"]))
    assert [(side.kind, side.timing) for side in sides] == [
        (generation, timing) for timing in TIMINGS for generation in GENERATIONS
    ]
    for side in sides:
        assert (side.scenario.cluster.unicast, side.scenario.cluster.timing) == (
            side.kind,
            side.timing,
        )


def test_what_is_written_for_udp_runs_on_every_stack_with_every_timing() -> None:
    sides = list(sides_of(group()))
    assert [(side.kind, side.timing) for side in sides] == [
        (stack, timing) for timing in TIMINGS for stack in GROUP_STACKS
    ]
    assert {side.scenario.cluster.stack for side in sides} == set(GROUP_STACKS)
    assert len({side.directory for side in sides}) == len(sides)


def test_what_is_written_for_tcp_runs_on_connections_only() -> None:
    assert kinds_of(group(stack="tcp")) == STREAMS


def test_what_is_written_for_another_stack_runs_there_only() -> None:
    for stack in ("mcast", "tcp-nio2", "tcp-no-retransmit"):
        assert kinds_of(group(stack=stack)) == (stack,)


def test_chosen_frames_are_taken_from_datagrams_only() -> None:
    rule = "{at: 1s, do: rule, does: drop, match: {kind: XMIT_REQ}}"
    assert kinds_of(group(step=rule)) == DATAGRAMS
    assert kinds_of(group(step=rule, stack="tcp")) == STREAMS


@pytest.mark.parametrize(
    "scenario",
    [
        group(step="{at: 1s, do: rule, does: drop, match: {protocol: STABLE}}"),
        group(
            step="{at: 1s, do: rule, does: drop, match: {kind: ACK}}",
            protocols="{MFC: {min_threshold: 40%}}",
        ),
    ],
)
def test_a_stack_has_the_protocols_that_a_file_names(scenario: Scenario) -> None:
    """MCAST has neither stability messages nor credits for multicasts."""
    assert kinds_of(scenario) == ("udp",)


def test_a_setting_of_a_protocol_is_changed_only_where_it_is() -> None:
    changed = "{at: 1s, do: set-attribute, member: n0, attribute: NAKACK2.xmit_interval, value: 1s}"
    assert kinds_of(group(step=changed)) == ("udp", *STREAMS)
    of_unicast = "{at: 1s, do: set-attribute, member: n0, attribute: xmit_interval, value: 1s}"
    assert kinds_of(group(step=of_unicast)) == GROUP_STACKS


def test_a_group_that_is_fast_is_not_run_slowly() -> None:
    assert timings_of(group()) == TIMINGS
    assert timings_of(group(timing="fast")) == ("fast",)
    assert not list(sides_of(group(timing="fast"), ["compatible"]))
    assert {side.timing for side in sides_of(group(), ["fast"])} == {"fast"}


def test_sides_on_many_cores_come_to_what_they_come_to_on_one(tmp_path: Path) -> None:
    sides = list(sides_of(SCENARIOS["last-message-lost"], ["fast"]))
    alone = [run_side(side, 3, tmp_path / "alone" / side.directory) for side in sides]
    together = sorted(
        run_sides(sides, 3, tmp_path / "together", workers=2),
        key=lambda result: sides.index(result.side),
    )
    assert [result.verdict for result in alone] == [Verdict.HOLDS] * len(sides)
    for one, other in zip(alone, together, strict=True):
        assert (one.side, one.verdict) == (other.side, other.verdict)
        traces = [sorted(Path(result.run, "trace").iterdir()) for result in (one, other)]
        assert [path.read_bytes() for path in traces[0]] == [
            path.read_bytes() for path in traces[1]
        ]


def test_every_file_of_the_library_is_in_its_page() -> None:
    """With its size, where it runs, and its story as the file tells it."""
    page = Path(__file__).parents[2].joinpath("docs", "scenarios.md").read_text()
    for name, scenario in SCENARIOS.items():
        kinds = kinds_of(scenario)
        where = "all" if len(kinds) == 5 else ", ".join(kinds)
        where += "; `fast`" if timings_of(scenario) == ("fast",) else ""
        row = f"| `{name}` | {len(scenario.cluster.members)} | {where} | {scenario.about} |"
        assert row in page, row
