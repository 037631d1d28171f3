"""Two soaks or runs side by side: which figures they have, and what is no soak and no run."""

from __future__ import annotations

from pathlib import Path

import pytest

from stormcast.chaos.language.scenario import parse_scenario
from stormcast.chaos.session.costs import costs_of
from stormcast.chaos.session.outcome import write_run
from stormcast.chaos.session.runner import run_scenario
from stormcast.chaos.soak.beside import lines_of, read_side
from stormcast.node.core.errors import ConfigError
from tests.helpers.soaks import a_soak, a_window, disputed

RUN = """
name: pair
guarantees: [G1]
cluster: {{members: 2, unicast: {unicast}, timing: compatible, max_batch: 10}}
network: {{loss: 1%}}
workload:
  - {{do: unicast, from: n0, to: n1, count: 200, rate: 400/s, size: 16B, burst: 10}}
"""


def a_run(folder: Path, unicast: str, seed: int = 1) -> Path:
    outcome = run_scenario(parse_scenario(RUN.format(unicast=unicast)), seed)
    folder.mkdir()
    write_run(outcome, folder)
    return folder


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


def test_a_window_about_which_the_judges_disagree_is_unknown(tmp_path: Path) -> None:
    """Spark differs on the chapter of the windows 2 and 3, and has not judged that of window 4."""
    soak = a_soak(tmp_path / "a", "udp", [a_window(n, 1) for n in range(1, 5)])
    disputed(soak, 2, 3)
    side = read_side(soak)
    assert [part["verdict"] for part in side.parts] == ["holds", "unknown", "unknown", "holds"]
    assert (side.verdicts, side.whole) == ({"holds": 2, "unknown": 2}, "unknown")


def test_a_soak_as_a_whole_is_no_better_than_it_says_itself(tmp_path: Path) -> None:
    soak = a_soak(tmp_path / "a", "udp", [a_window(1, 1)])
    assert read_side(soak).whole == "holds"
    (soak / "status.json").write_text('{"verdict": "unknown"}')
    assert read_side(soak).whole == "unknown"
    (soak / "status.json").write_text('{"verdict": "passed"}')
    assert read_side(soak).whole == "unknown", "nobody knows what that word means"


def test_a_window_that_broke_off_counts_among_verdicts_and_has_no_figures(tmp_path: Path) -> None:
    broken = a_window(2, 1, "unknown")
    del broken["costs"]
    soak = a_soak(tmp_path / "a", "udp", [a_window(1, 1), broken])
    side = read_side(soak)
    assert side.verdicts == {"holds": 1, "unknown": 1}
    (messages, *_others) = lines_of(side, side)
    assert messages.by_part[0] == (1000.0, None)
    assert messages.values[0] == (1000.0,)


@pytest.mark.parametrize("cost", [float("nan"), float("inf"), "many"])
def test_a_cost_that_is_no_number_is_refused(tmp_path: Path, cost: object) -> None:
    window = a_window(1, 1)
    window["costs"]["frames"] = cost
    with pytest.raises(ConfigError, match="its files cannot be read"):
        read_side(a_soak(tmp_path / "a", "udp", [window]))


@pytest.mark.parametrize("name", ["nowhere", "empty", "odd"])
def test_what_is_no_soak_and_no_run_is_refused(tmp_path: Path, name: str) -> None:
    (tmp_path / "empty").mkdir()
    (tmp_path / "odd").mkdir()
    (tmp_path / "odd" / "verdict.json").write_text("[]")
    with pytest.raises(ConfigError, match=f"{name} (is no run and no soak|holds no traces)"):
        read_side(tmp_path / name)
