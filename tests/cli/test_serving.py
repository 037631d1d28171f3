"""`stormcast serve` and the run directories that it keeps."""

from __future__ import annotations

import errno
from pathlib import Path
from typing import Any

import pytest

from stormcast.chaos.backends.base import Unsupported
from stormcast.chaos.language.scenario import Scenario
from stormcast.chaos.session.outcome import RunOutcome
from stormcast.chaos.session.runner import run_scenario
from tests.helpers.shell import Shell

GOOD = """\
guarantees: [G1]
cluster: {members: 2, stack: unicast-only}
workload: [{do: unicast, from: n0, to: n1, count: 20, rate: 20/s}]
"""
SERVE = ("serve", "--backend", "sim", "--scenarios", "served", "--once", "--keep", 2)


@pytest.fixture(name="folder", autouse=True)
def _folder(tmp_path: Path) -> Path:
    """A folder of two scenarios; it is where the commands run."""
    folder = tmp_path / "served"
    folder.mkdir()
    for name in ("a-good", "b-bad"):
        (folder / f"{name}.yaml").write_text(f"name: {name}\n{GOOD}")
    return folder


def kept() -> list[str]:
    runs = Path("runs")
    return sorted(path.name for path in runs.iterdir() if path.name not in (".served", "latest"))


@pytest.mark.parametrize("leaves", ["directory", "begun"])
def test_runs_that_left_nothing_push_out_no_other(
    shell: Shell, monkeypatch: pytest.MonkeyPatch, leaves: str
) -> None:
    """They were refused, or killed as they began."""

    def refuse(scenario: Scenario, seed: int, *, out: Path, **more: Any) -> RunOutcome:
        if scenario.name == "a-good":
            return run_scenario(scenario, seed, out=out, **more)
        if leaves == "begun":
            (out / "begun").write_text("")
        raise Unsupported("not here")

    monkeypatch.setattr("stormcast.chaos.commands.serve.run_scenario", refuse)
    for seed in (1, 2, 3):
        assert shell(*SERVE, "--seed", seed).code == 3
    assert kept() == ["a-good-2", "a-good-3"]


def test_a_run_that_a_killed_controller_left_counts(shell: Shell) -> None:
    """Its logs are all that is left of it."""
    for place in ("runs/.served/killed-1", "runs/killed-1/begun", "runs/killed-1/logs/n0/log"):
        Path(place).parent.mkdir(parents=True, exist_ok=True)
        Path(place).write_text("")
    shell("serve", "--backend", "sim", "--scenarios", "served", "--once", "--keep", 3)
    assert kept() == ["a-good-1", "b-bad-1", "killed-1"]


def test_what_the_simulator_cannot_do_is_refused_before_it_has_a_directory(
    shell: Shell, folder: Path
) -> None:
    (folder / "b-bad.yaml").write_text(f"name: b-bad\nneeds: [clock-skew]\n{GOOD}")
    assert shell(*SERVE).code == 3
    assert kept() == ["a-good-1"]


def test_a_directory_that_cannot_be_removed_ends_no_controller(
    shell: Shell, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(_path: Path, **_more: object) -> None:
        raise PermissionError(errno.EACCES, "Permission denied")

    monkeypatch.setattr("stormcast.chaos.commands.serve.shutil.rmtree", fail)
    said = shell(*SERVE[:-1], 1)
    assert said.code == 0
    assert "run directories beyond --keep stay" in said.err
