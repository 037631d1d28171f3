"""What a controller tells of its runs."""

from __future__ import annotations

import json
import signal
import time
from pathlib import Path

import pytest

from stormcast.chaos.commands.controller_status import HANG_SECONDS, ControllerStatus
from stormcast.chaos.commands.listeners import table_of
from stormcast.chaos.commands.serve import serve
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
    answer = table_of(status)["/metrics"]["GET"](b"")
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


def test_a_controller_is_alive_for_as_long_as_its_run_may_take(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    now = 0.0
    monkeypatch.setattr(time, "monotonic", lambda: now)
    status = ControllerStatus(lambda _line: None)

    def is_alive() -> bool:
        return bool(table_of(status)["/livez"]["GET"](b"").status == 200)  # type: ignore[union-attr]

    status.expect(3 * HANG_SECONDS)
    now = 3.9 * HANG_SECONDS
    assert is_alive()
    now = 4.1 * HANG_SECONDS
    assert not is_alive()
    status.end("long", "holds", None)
    assert is_alive(), "the next run has not begun yet"
    now = 5.2 * HANG_SECONDS
    assert not is_alive()


def test_a_controller_learns_how_long_its_run_may_take(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    expected: list[float] = []
    monkeypatch.setattr(ControllerStatus, "expect", lambda _status, often: expected.append(often))
    monkeypatch.setattr(signal, "signal", lambda *_words: None)
    (tmp_path / "scenarios").mkdir()
    (tmp_path / "scenarios" / "short.yaml").write_text(f"{TEXT}limits: {{run: 2h, settle: 30s}}\n")
    words = ("--backend", "sim", "--once", "--runs", str(tmp_path / "runs"))
    serve([*words, "--scenarios", str(tmp_path / "scenarios")])
    assert 7230.0 in expected


def test_it_is_ready_when_it_was_told_so() -> None:
    status = ControllerStatus(lambda _line: None)
    answer = table_of(status)["/readyz"]["GET"](b"")
    assert (answer.status, json.loads(answer.body)) == (503, {"ready": False})  # type: ignore[union-attr]
    status.is_ready = True
    assert table_of(status)["/readyz"]["GET"](b"").status == 200  # type: ignore[union-attr]
