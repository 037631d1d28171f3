"""Real members under measurement, for a moment: every figure comes with a check that holds.

The time to measure is far too short for figures; these tests only say that there are some.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from bench import cluster
from bench.cluster import Plan
from bench.owned import PREFIX, own_name
from bench.peers import aeron, jars, jgroups
from bench.report import as_json
from bench.work import OURS, Work

pytestmark = [
    pytest.mark.root,
    pytest.mark.slow,
    pytest.mark.skipif(os.geteuid() != 0, reason="network namespaces need root"),
]

ROOT = Path(__file__).parents[2]
SECONDS = 0.3


def measured(work: Work, *teams: str, rounds: int = 1) -> tuple[dict[str, Any], list[str]]:
    """The report of a short run, and what was said meanwhile."""
    talk: list[str] = []
    plan = Plan(work=work, teams=teams, rounds=rounds, seconds=SECONDS, warm_rounds=1)
    return as_json(cluster.measure(plan, talk.append)), talk


def namespaces() -> str:
    words = ["ip", "netns", "list"]
    return subprocess.run(words, capture_output=True, text=True, check=True).stdout


@pytest.mark.parametrize("transport", ["udp", "tcp", "tcp-nio2"])
@pytest.mark.parametrize("mode", ["multicast", "unicast", "roundtrip"])
def test_our_members_yield_a_figure_and_journals_that_hold(mode: str, transport: str) -> None:
    members = 3 if mode == "multicast" else 2
    said, _talk = measured(Work(mode=mode, transport=transport, members=members, size=100), OURS)
    assert said["ours"] > 0
    assert said["check"]["holds"], said["check"]
    assert set(said["check"]["findings"]) == {"G1", "G2", "G3", "G4"}
    assert said["check"]["messages"] > 0
    assert own_name(os.getpid()) not in namespaces()


def test_under_loss_everything_arrives_all_the_same() -> None:
    said, _talk = measured(Work(mode="unicast", members=2, size=100, loss=0.05), OURS)
    assert said["ours"] > 0
    assert said["check"]["holds"], said["check"]
    assert said["rounds"]["ours"][0]["undelivered"] == 0


def test_messages_larger_than_a_frame_are_measured_too() -> None:
    said, _talk = measured(Work(mode="multicast", members=2, size=100_000), OURS)
    assert said["ours"] > 0
    assert said["check"]["holds"], said["check"]


def test_rounds_take_turns_and_the_first_of_each_is_thrown_away() -> None:
    said, talk = measured(Work(mode="unicast", members=2), OURS, "raw", rounds=2)
    turns = [line.split()[:-1] for line in talk if "journals" not in line]
    assert turns == [
        ["warm-up", "ours"],
        ["warm-up", "raw"],
        ["round", "1", "ours"],
        ["round", "1", "raw"],
        ["round", "2", "ours"],
        ["round", "2", "raw"],
    ]
    assert said["ratio"]["raw"] == pytest.approx(said["ours"] / said["peers"]["raw"], abs=0.001)
    assert [len(rounds) for rounds in said["rounds"].values()] == [2, 2]


@pytest.mark.parametrize("mode", ["multicast", "unicast"])
@pytest.mark.parametrize("transport", ["udp", "tcp"])
def test_raw_sockets_are_a_ceiling_that_is_there(mode: str, transport: str) -> None:
    said, _talk = measured(Work(mode=mode, transport=transport), "raw")
    assert said["peers"]["raw"] > 0
    assert (said["ours"], said["check"]) == (None, None)


@pytest.mark.parametrize(
    ("name", "artifact", "work"),
    [
        ("jgroups", jgroups.ARTIFACT, Work(mode="multicast", members=2)),
        ("jgroups-tuned", jgroups.ARTIFACT, Work(mode="roundtrip", members=2)),
        ("aeron-60k", aeron.ARTIFACT, Work(mode="unicast", members=2)),
    ],
)
def test_a_peer_does_the_same_work(name: str, artifact: jars.Artifact, work: Work) -> None:
    reason = jars.missing(artifact)
    if reason is None and not (jars.cache() / artifact.file).exists():
        reason = f"{artifact.file} was not fetched yet: stormcast bench unicast --peer {name}"
    if reason is not None:
        pytest.skip(reason)
    said, _talk = measured(work, name)
    assert said["failed"] == {}
    assert said["peers"][name] > 0


def test_a_peer_that_cannot_take_part_is_noted_and_ours_is_measured() -> None:
    said, talk = measured(Work(mode="multicast", members=2), OURS, "aeron")
    assert "one-way unicast" in said["failed"]["aeron"]
    assert any(line.startswith("  aeron is out") for line in talk)
    assert said["ours"] > 0


# -- As a process ----------------------------------------------------------------------------------


def bench(*words: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-m", "stormcast", "bench", *words],
        cwd=ROOT,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def wait_for(line: str, process: subprocess.Popen[str]) -> None:
    assert process.stderr is not None
    for said in process.stderr:
        if line in said:
            return
    raise AssertionError(f"it ended before it said {line!r}")


def test_an_interrupted_run_prints_what_it_has_and_leaves_nothing_behind() -> None:
    process = bench("unicast", "--rounds", "1000", "--seconds", "0.1", "--json")
    try:
        wait_for("round 3", process)
        assert own_name(process.pid) in namespaces()
        process.send_signal(signal.SIGTERM)
        out, _talk = process.communicate(timeout=30)
    finally:
        process.kill()
    said = json.loads(out)
    assert process.returncode == 130
    assert said["interrupted"]
    assert len(said["rounds"]["ours"]) >= 2
    assert f"{PREFIX}{process.pid}-" not in namespaces()


def test_what_a_killed_run_leaves_is_removed_by_the_next() -> None:
    """Its members end by themselves; the namespace has to be found."""
    process = bench("unicast", "--rounds", "1000", "--seconds", "0.1")
    try:
        wait_for("round 1", process)
        name = own_name(process.pid)
    finally:
        process.kill()
        process.communicate(timeout=30)
    deadline = time.monotonic() + 20
    words = ["ip", "netns", "pids", name]
    while subprocess.run(words, capture_output=True, text=True, check=True).stdout:
        assert time.monotonic() < deadline, "a member outlived its bench"
        time.sleep(0.1)
    assert name in namespaces()
    measured(Work(mode="unicast", members=2, size=100), "raw")
    assert name not in namespaces()


@pytest.mark.long
def test_the_table_is_measured_row_by_row(tmp_path: Path) -> None:
    words = ["--row", "100 B, 5 % loss", "--rounds", "1", "--seconds", "0.3", "--warm-up", "1"]
    process = bench("table", *words, "--out", str(tmp_path / "table"))
    out, _talk = process.communicate(timeout=240)
    assert "| round trip UDP, 100 B, 5 % loss (µs) |" in out
    assert "| memory of an idle member |" in out
    said = json.loads((tmp_path / "table.json").read_text())
    assert said["idle"]["ours"][0]["threads"] >= 1
    assert said["holds"]
