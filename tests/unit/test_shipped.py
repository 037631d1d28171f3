"""The scenarios that ship, by name."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest

from stormcast.chaos.language.scenario import load_scenario
from stormcast.chaos.language.shipped import (
    FOLDERS,
    NoScenarioError,
    find_shipped,
    open_scenario,
    shipped,
)

ROOT = Path(__file__).parents[2] / "chaos" / "scenarios"


def test_every_file_ships_under_its_name() -> None:
    names = Counter(one.name for one in shipped())
    assert max(names.values()) == 1
    assert sorted(names) == sorted(path.stem for path in ROOT.rglob("*.yaml"))
    assert {path.parent for path in ROOT.rglob("*.yaml")} == {
        (ROOT / folder).resolve() for folder in FOLDERS
    }


def test_every_file_has_the_name_that_stands_in_it_and_says_what_it_is_about() -> None:
    for one in shipped():
        scenario = one.read()
        assert scenario.name == one.name
        assert scenario.about


def test_a_name_and_a_path_are_told_apart(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    by_name = open_scenario("order-under-loss")
    assert by_name == load_scenario(ROOT / "order-under-loss.yaml")
    assert open_scenario(str(ROOT / "order-under-loss.yaml")) == by_name
    monkeypatch.chdir(tmp_path)
    own = by_name.text.replace("name: order-under-loss", "name: own")
    for name in ("order-under-loss", "mine.yaml"):
        (tmp_path / name).write_text(own)
        assert open_scenario(name).name == "own"
    with pytest.raises(FileNotFoundError):
        open_scenario("other.yaml")


@pytest.mark.parametrize(
    ("name", "remedy"),
    [
        ("order-under-los", "did you mean order-under-loss?"),
        ("zzz", "stormcast scenarios lists them"),
    ],
)
def test_a_name_of_nothing_is_told_the_nearest(name: str, remedy: str) -> None:
    with pytest.raises(NoScenarioError, match=f"no file {name}, .*: ") as caught:
        find_shipped(name)
    assert str(caught.value).endswith(remedy)
