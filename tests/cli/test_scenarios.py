"""`stormcast scenarios` and `init`, and running what ships by its name."""

from __future__ import annotations

from pathlib import Path

import pytest

from stormcast.chaos.language.shipped import shipped
from tests.helpers.shell import Shell

ROOT = Path(__file__).parents[2]


@pytest.fixture
def shell(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> Shell:
    monkeypatch.chdir(tmp_path)
    return Shell(tmp_path, capsys)


def test_each_has_a_line(shell: Shell) -> None:
    said = shell("scenarios")
    assert said.code == 0
    lines = [line.split()[0] for line in said.out.splitlines() if line.startswith("  ")]
    assert lines == [one.name for one in shipped()]
    asked = shell("scenarios", "--json").json
    assert [one["name"] for one in asked] == lines
    assert all(one["about"] for one in asked)


def test_one_is_shown_as_its_file_has_it(shell: Shell) -> None:
    said = shell("scenarios", "--show", "order-of-unicasts")
    file = ROOT / "chaos" / "scenarios" / "live" / "order-of-unicasts.yaml"
    assert said.out == file.read_text()
    refused = shell("scenarios", "--show", "order-of-unicast")
    assert refused.code == 2
    assert "did you mean order-of-unicasts?" in refused.err


def test_what_ships_is_run_by_its_name(shell: Shell) -> None:
    said = shell("run", "first-message-lost", "--json")
    assert said.code == 0
    assert said.json["verdict"] == "holds"
    assert (shell.folder / "runs" / "first-message-lost-1" / "verdict.json").exists()
    assert shell("plan", "first-message-lost").code == 0
    refused = shell("run", "first-message-los")
    assert (refused.code, refused.err.count("\n")) == (2, 1)


@pytest.mark.slow
def test_a_first_scenario_holds_and_is_kept(shell: Shell) -> None:
    made = shell("init", "mine.yaml")
    assert (made.code, made.err) == (0, "run it: stormcast run mine.yaml\n")
    ran = shell("run", "mine.yaml", "--json").json
    assert ran["verdict"] == "holds"
    before = Path("mine.yaml").read_text()
    again = shell("init", "mine.yaml")
    assert (again.code, again.err) == (2, "stormcast: mine.yaml is there already: name another\n")
    assert Path("mine.yaml").read_text() == before


@pytest.mark.parametrize("name", ["mine.txt", "nowhere/mine.yaml"])
def test_a_file_that_cannot_be_is_refused(shell: Shell, name: str) -> None:
    refused = shell("init", name)
    assert refused.code == 2
    assert name in refused.err
    assert not any(shell.folder.iterdir())
