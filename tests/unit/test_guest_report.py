"""The page of a run with guests: operations over time, from files that are not trusted."""

from __future__ import annotations

import json
from hashlib import sha256
from pathlib import Path
from typing import Any

import pytest

from stormcast.pipeline.report.history_file import HISTORY, Span, read_clients
from stormcast.pipeline.report.writing import write_report

LINES = b"""\
{"process": 0, "type": "invoke", "f": "add", "value": 1, "time": 1.0}
{"process": 0, "type": "ok", "f": "add", "time": 1.5}
{"process": 1, "type": "invoke", "f": "add", "value": 2, "time": 2}
not a line
{"process": 0, "type": "invoke", "f": "read", "time": "<b>"}
"""


def kept(folder: Path, **more: Any) -> dict[str, Any]:
    (folder / HISTORY).write_bytes(LINES)
    (folder / "scenario.yaml").write_text("name: one\nguests: {a: {command: serve}}\n")
    verdict = {
        "scenario": "one",
        "verdict": "violated",
        "guarantees": {"H2": "violated"},
        "findings": [
            {"guarantee": "H2", "verdict": "violated", "detail": "lost <1>", "witness": [], "at": 3}
        ],
        "backend": "netns",
        "seed": 1,
        "faults": {"f1": 3},
        "virtual_seconds": 4.0,
        "guests": ["a"],
        "model": "set",
        "file": "my scenario.yaml",
        "windows": [{"fault": "f1", "start": 1.0, "end": 2.0}],
        "history_digest": sha256(LINES).hexdigest(),
    } | more
    (folder / "verdict.json").write_text(json.dumps(verdict))
    return verdict


def test_operations_are_joined_and_what_is_none_is_left_out(tmp_path: Path) -> None:
    clients = read_clients(tmp_path, kept(tmp_path))
    assert clients is not None
    assert clients.spans == (Span("0", 1.0, 1.5, "ok"), Span("1", 2.0, None, "info"))


def test_the_page_has_the_operations_the_faults_and_the_violation(tmp_path: Path) -> None:
    kept(tmp_path)
    write_report(tmp_path)
    page = (tmp_path / "report.html").read_text()
    for wanted in ('class="op-ok"', 'class="band"', 'class="breach"', "1 ok, 0 fail, 1 info"):
        assert wanted in page
    assert "stormcast run &#39;my scenario.yaml&#39; --seed 1" in page or (
        "stormcast run 'my scenario.yaml' --seed 1" in page
    )
    assert "lost <1>" not in page


@pytest.mark.parametrize(
    "said", [{"windows": 7}, {"windows": [3, {"start": "x"}]}, {"model": None}]
)
def test_whatever_the_verdict_says_there_is_a_page(tmp_path: Path, said: dict[str, Any]) -> None:
    kept(tmp_path, **said)
    write_report(tmp_path)
    assert "op-ok" in (tmp_path / "report.html").read_text()


def test_another_history_is_not_shown(tmp_path: Path) -> None:
    kept(tmp_path, history_digest="0" * 64)
    write_report(tmp_path)
    page = (tmp_path / "report.html").read_text()
    assert "not the one that was judged" in page
    assert 'class="op-ok"' not in page
