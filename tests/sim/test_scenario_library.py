"""The scenarios that ship: each means what it says, on every generation and timing."""

from __future__ import annotations

from dataclasses import replace
from importlib.resources import files

import pytest

from chaos.cli import library
from chaos.cluster import GENERATIONS, TIMINGS
from chaos.oracles.verdict import Verdict
from chaos.runner import run_scenario
from chaos.scenario import Scenario, dump, load_scenario, parse_scenario
from chaos.schedule import format_plan, schedule

FOLDER = files("chaos").joinpath("scenarios")
FILES = {
    entry.name.removesuffix(".yaml"): entry.read_text()
    for entry in sorted(FOLDER.iterdir(), key=lambda entry: entry.name)
    if entry.name.endswith(".yaml")
}
MUSEUM = {
    entry.name.removesuffix(".yaml"): entry.read_text()
    for entry in sorted(FOLDER.joinpath("museum").iterdir(), key=lambda entry: entry.name)
}


def on(scenario: Scenario, generation: str, timing: str) -> Scenario:
    cluster = replace(scenario.cluster, unicast=generation, timing=timing)
    return replace(scenario, cluster=cluster, text="")


@pytest.mark.slow
@pytest.mark.parametrize("timing", TIMINGS)
@pytest.mark.parametrize("generation", GENERATIONS)
@pytest.mark.parametrize("name", FILES)
def test_a_scenario_of_the_library_holds(name: str, generation: str, timing: str) -> None:
    """Every guarantee that it names, with every fault biting. To replay one:

    .venv/bin/stormcast run chaos/scenarios/NAME.yaml --seed 1, with `unicast` and `timing` set.
    """
    outcome = run_scenario(on(parse_scenario(FILES[name], name), generation, timing), 1)
    broken = [one for one in outcome.judgement.findings if one.verdict is not Verdict.HOLDS]
    assert not broken
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


def test_the_library_is_all_there_is_but_what_has_a_command_of_its_own() -> None:
    assert [scenario.name for scenario in library()] == [name for name in FILES if name != "storm"]


def test_the_library_asks_for_every_guarantee_of_reliable_unicast() -> None:
    asked = {guarantee for scenario in library() for guarantee in scenario.guarantees}
    assert {"G1", "G2", "G3", "G4", "G5", "G6", "G7", "C1", "L1"} <= asked


def test_a_scenario_on_disk_reads_as_the_one_that_ships() -> None:
    with_path = load_scenario(str(FOLDER.joinpath("storm.yaml")))
    assert with_path == parse_scenario(FILES["storm"])
