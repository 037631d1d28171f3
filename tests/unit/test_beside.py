"""Two soaks or runs side by side: which figures they have, and what is no soak and no run."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from stormcast.chaos.language.scenario import parse_scenario
from stormcast.chaos.session.costs import costs_of
from stormcast.chaos.session.outcome import write_run
from stormcast.chaos.session.runner import run_scenario
from stormcast.chaos.soak.beside import lines_of, read_side
from stormcast.chaos.soak.directory import SoakDirectory
from stormcast.chaos.soak.storm_file import parse_storm
from stormcast.node.core.errors import ConfigError

RUN = """
name: pair
guarantees: [G1]
cluster: {{members: 2, unicast: {unicast}, timing: compatible, max_batch: 10}}
network: {{loss: 1%}}
workload:
  - {{do: unicast, from: n0, to: n1, count: 200, rate: 400/s, size: 16B, burst: 10}}
"""
STORM = "cluster: {{members: 3, stack: {stack}}}\nkinds: [loss]\n"


def a_run(folder: Path, unicast: str, seed: int = 1) -> Path:
    outcome = run_scenario(parse_scenario(RUN.format(unicast=unicast)), seed)
    folder.mkdir()
    write_run(outcome, folder)
    return folder


def a_soak(folder: Path, stack: str, windows: list[dict[str, Any]], seed: int = 3) -> Path:
    SoakDirectory(folder).begin(parse_storm(STORM.format(stack=stack)), seed, "sim")
    (folder / "windows.jsonl").write_text("".join(json.dumps(one) + "\n" for one in windows))
    return folder


def a_window(number: int, acks: int, verdict: str = "holds") -> dict[str, Any]:
    costs = dict.fromkeys(
        ("frames", "requests", "resent", "syncs", "unacked", "unacked_bytes"), number
    )
    return {
        "window": number,
        "verdict": verdict,
        "seconds": 60.0,
        "sent": 1000,
        "faults": {},
        "weights": {"n0-1": {"memory": 8 << 20}, "judge": {"memory": 99 << 20}},
        "costs": {**costs, "acks": acks, "resync": None},
    }


def test_two_runs_have_the_figures_of_their_traces(tmp_path: Path) -> None:
    first, second = (read_side(a_run(tmp_path / one, one)) for one in ("UNICAST", "UNICAST3"))
    assert first.played == second.played
    found = {line.name: line for line in lines_of(first, second)}
    acks = found["acks per 1,000"]
    outcome = run_scenario(parse_scenario(RUN.format(unicast="UNICAST")), 1)
    assert acks.values[0] == (5 * costs_of(outcome.run).acks,)
    assert acks.ratio is not None
    assert acks.ratio < 0.5
    assert "memory of the largest member, MiB" not in found, "nobody weighs simulated members"
    assert first.verdicts == {"holds": 1}


def test_another_seed_is_another_storm(tmp_path: Path) -> None:
    first, second = (read_side(a_run(tmp_path / str(n), "UNICAST3", seed=n)) for n in (1, 2))
    assert first.played != second.played


def test_two_soaks_have_a_value_for_each_window(tmp_path: Path) -> None:
    first = read_side(a_soak(tmp_path / "a", "udp", [a_window(n, 10 * n) for n in range(1, 10)]))
    second = read_side(
        a_soak(tmp_path / "b", "mcast", [a_window(n, 30 * n, "unknown") for n in range(1, 4)])
    )
    assert first.played == second.played, "they differ in their protocols alone"
    assert (first.verdicts, second.verdicts) == ({"holds": 9}, {"unknown": 3})
    found = {line.name: line.as_json() for line in lines_of(first, second)}
    acks = found["acks per 1,000"]
    assert acks["first"] == {"median": 50, "interval": [20, 80], "parts": 9}
    assert acks["second"] == {"median": 60, "interval": None, "parts": 3}
    assert acks["ratio"] == 1.2
    assert found["memory of the largest member, MiB"]["first"]["median"] == 8
    assert "seconds until all is well after the last heal" not in found


def test_soaks_of_other_members_or_seeds_were_not_played_alike(tmp_path: Path) -> None:
    windows = [a_window(1, 1)]
    first = read_side(a_soak(tmp_path / "a", "udp", windows))
    assert first.played != read_side(a_soak(tmp_path / "b", "udp", windows, seed=4)).played
    assert first.played == read_side(a_soak(tmp_path / "c", "tcp", windows)).played


def test_a_soak_of_an_older_version_has_nothing_to_compare(tmp_path: Path) -> None:
    old = a_window(1, 1)
    del old["costs"]
    with pytest.raises(ConfigError, match="its windows have no costs: an older version"):
        read_side(a_soak(tmp_path / "a", "udp", [old]))


@pytest.mark.parametrize("name", ["nowhere", "empty", "odd"])
def test_what_is_no_soak_and_no_run_is_refused(tmp_path: Path, name: str) -> None:
    (tmp_path / "empty").mkdir()
    (tmp_path / "odd").mkdir()
    (tmp_path / "odd" / "verdict.json").write_text("[]")
    with pytest.raises(ConfigError, match=f"{name} (is no run and no soak|holds no traces)"):
        read_side(tmp_path / name)
