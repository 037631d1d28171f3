"""How long faults take: what is asked of a backend, and what is said of it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from bench.cli import bench
from bench.in_force import Row, measure
from stormcast.chaos.language.network_state import NetworkState


class Notes:
    """A backend that notes what was asked of it."""

    def __init__(self) -> None:
        self.kinds: list[list[str]] = []
        self.members: tuple[str, ...] = ()

    def open(self, plan: Any) -> None:
        self.members = plan.names

    def apply(self, state: NetworkState) -> None:
        assert state.members == self.members
        self.kinds.append([type(fault).__name__ for fault in state.faults.values()])


def test_each_fault_begins_and_ends_in_every_round_and_the_first_request_stands_apart() -> None:
    backend: Any = Notes()
    first, rows = measure(backend, 3, 2, Path())
    each = [["Partition"], [], ["Loss"], [], ["Delay"], [], ["Bandwidth"], []]
    assert backend.kinds == [[], *each, *each]
    assert first >= 0
    assert [(len(row.begin), len(row.end)) for row in rows] == [(2, 2)] * 4


def test_a_row_has_the_median_and_all_that_came() -> None:
    row = Row("loss", (3.0, 1.0, 2.0), (5.0, 5.0, 9.0))
    assert row.as_json()["begin_ms"] == {"median": 2.0, "least": 1.0, "most": 3.0}
    assert "2.0 (1.0 to 3.0)" in str(row)
    assert "5.0 (5.0 to 9.0)" in str(row)


@pytest.mark.parametrize("words", [("--backend", "sim"), ("--backend", "netns", "--members", "1")])
def test_what_cannot_be_measured_is_refused(
    words: tuple[str, ...], capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as end:
        bench(["faults", *words])
    assert end.value.code == 2
    assert words[-2] in capsys.readouterr().err


def test_no_cluster_is_no_crash(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("KUBECONFIG", str(tmp_path / "nothing"))
    assert bench(["faults", "--backend", "kubernetes"]) == 3
    said = capsys.readouterr().err
    assert said.startswith("stormcast bench faults: no cluster")
    assert said.count("\n") == 1
