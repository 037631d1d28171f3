"""Two trees in turns: the order, the ratios, and what is said of a tree that cannot."""

from __future__ import annotations

import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest

from bench import pairs
from bench.errors import BenchError
from bench.machine import ROOT
from bench.pairs import PARTS, Part, Row, measure_in, measure_pairs

THERE = Path("/there")


def rates(said: Mapping[str, Any]) -> Mapping[str, float]:
    return {name: float(rate) for name, rate in said.items()}


def test_the_trees_take_turns_and_a_row_has_the_ratio_of_each_pair() -> None:
    asked: list[Path] = []
    figures = {ROOT: iter((200.0, 300.0, 90.0)), THERE: iter((100.0, 100.0, 100.0))}

    def measure(tree: Path, _words: Sequence[str]) -> Mapping[str, Any]:
        asked.append(tree)
        return {"one": next(figures[tree])}

    part = Part(name="part", words=("bench",), read=rates)
    (row,) = measure_pairs([part], THERE, 3, measure, lambda _text: None)
    assert asked == [ROOT, THERE, THERE, ROOT, ROOT, THERE]
    assert row.ratios == [2.0, 3.0, 0.9]
    said = row.as_json()
    assert (said["ratio"], said["here"], said["there"]) == (2.0, 200.0, 100.0)
    assert said["middle_half"] == [1.45, 2.5]


def test_a_row_that_one_tree_has_not_is_left_out() -> None:
    def measure(tree: Path, _words: Sequence[str]) -> Mapping[str, Any]:
        return {"both": 1.0} | ({"new": 1.0} if tree == ROOT else {})

    part = Part(name="part", words=("bench",), read=rates)
    rows = list(measure_pairs([part], THERE, 1, measure, lambda _text: None))
    assert [row.name for row in rows] == ["both"]
    assert "1 pairs" in str(rows[0])


def test_the_figures_of_each_part_are_found_in_what_it_prints() -> None:
    said: dict[str, Mapping[str, Any]] = {
        "core": {
            "messages_per_second": {"100": 5},
            "groups": [{"stack": "udp", "members": 3, "size": 100, "deliveries_per_second": 7}],
        },
        "sim": {
            "by_timing": {"fast": {"events_per_second": 9}},
            "groups": {"steady": {"virtual_seconds": 6.0, "seconds": 3.0}},
        },
        "search": {"seeds": 200, "events": 5000, "seconds": 10.0},
    }
    found = {part.name: part.read(said.get(part.name, {"ours": 3})) for part in PARTS}
    assert found["core"] == {"core 100 B": 5.0, "core udp 3 x 100 B": 7.0}
    assert found["sim"] == {"sim fast": 9.0, "sim steady": 2.0}
    assert found["search"] == {"search": 20.0, "search, events": 500.0}
    assert found["unicast udp 100 B"] == {"unicast udp 100 B": 3.0}


def test_a_tree_runs_its_own_code_and_says_why_it_cannot(tmp_path: Path) -> None:
    package = tmp_path / "stormcast"
    package.mkdir()
    (package / "__init__.py").write_text("")
    main = package / "__main__.py"
    main.write_text('import json, sys; print(json.dumps({"told": sys.argv[1:]}))\n')
    assert measure_in(tmp_path, ["bench", "core"]) == {"told": ["bench", "core"]}
    main.write_text('import sys; print("no such thing", file=sys.stderr); sys.exit(2)\n')
    with pytest.raises(BenchError, match="stormcast bench core: exit 2: no such thing"):
        measure_in(tmp_path, ["bench", "core"])


def test_a_commit_is_checked_out_and_removed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def git(*words: str) -> None:
        who = ("-c", "user.name=t", "-c", "user.email=t@example.invalid")
        subprocess.run(["git", "-C", str(tmp_path), *who, *words], check=True, capture_output=True)  # noqa: S607 git, in a folder of the test

    git("init")
    (tmp_path / "file").write_text("old")
    git("add", "file")
    git("commit", "-m", "old")
    (tmp_path / "file").write_text("new")
    monkeypatch.setattr(pairs, "ROOT", tmp_path)
    with pairs.checked_out("HEAD") as tree:
        assert (tree / "file").read_text() == "old"
    assert not tree.exists()
    with (
        pytest.raises(BenchError, match="git worktree add: fatal: invalid reference: nowhere"),
        pairs.checked_out("nowhere"),
    ):
        pass


def test_one_pair_has_no_spread() -> None:
    assert Row(name="r", here=[3.0], there=[2.0]).as_json()["middle_half"] == [1.5, 1.5]
