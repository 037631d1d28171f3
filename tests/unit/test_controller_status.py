"""What a controller tells of its runs."""

from __future__ import annotations

import json
from pathlib import Path

from stormcast.chaos.commands.controller_status import ControllerStatus
from stormcast.chaos.language.scenario import parse_scenario
from stormcast.chaos.session.outcome import RunOutcome
from stormcast.chaos.session.runner import run_scenario

DOCS = Path(__file__).parents[2] / "docs"
TEXT = """\
name: short
guarantees: [G1]
cluster: {members: 2}
workload: [{do: unicast, count: 20}]
timeline: [{at: 100ms, do: loss, rate: 50%, for: 500ms}]
"""


def outcome() -> RunOutcome:
    return run_scenario(parse_scenario(TEXT), 1)


def metrics(status: ControllerStatus) -> str:
    answer = status.table()["/metrics"]["GET"](b"")
    return answer.body.decode()  # type: ignore[union-attr]


def test_the_docs_list_every_metric_with_what_it_means() -> None:
    status = ControllerStatus(lambda _line: None)
    listed = {
        family.name + ("_total" if family.type == "counter" else ""): family.documentation
        for family in status.registry.collect()
    }
    text = (DOCS / "kubernetes.md").read_text()
    table = text.partition("<!-- metrics -->")[2].partition("<!-- /metrics -->")[0]
    told = {
        cells[1].strip(" `"): cells[2].partition(" Labels:")[0].strip()
        for line in table.splitlines()
        if line.startswith("| `") and (cells := line.split("|"))
    }
    assert told == listed


def test_figures_are_those_of_the_last_run() -> None:
    status = ControllerStatus(lambda _line: None)
    status.know(["short"])
    status.begin("short")
    assert 'stormcast_run_active{scenario="short"} 1.0' in metrics(status)
    first = outcome()
    status.end("short", "holds", first)
    assert f'fault="f1",scenario="short"}} {first.run.bites["f1"]:.1f}' in metrics(status)
    assert 'stormcast_runs_total{scenario="short",verdict="holds"} 1.0' in metrics(status)
    status.end("short", "error", None)
    text = metrics(status)
    assert "f1" not in text, "the last run has none"
    assert 'verdict="error"} 1.0' in text
    assert 'stormcast_run_active{scenario="short"} 0.0' in text


def test_it_is_ready_when_it_was_told_so() -> None:
    status = ControllerStatus(lambda _line: None)
    answer = status.table()["/readyz"]["GET"](b"")
    assert (answer.status, json.loads(answer.body)) == (503, {"ready": False})  # type: ignore[union-attr]
    status.is_ready = True
    assert status.table()["/readyz"]["GET"](b"").status == 200  # type: ignore[union-attr]
