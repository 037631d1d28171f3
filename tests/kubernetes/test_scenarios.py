"""`stormcast run --backend kubernetes`: scenarios hold, and whatever is killed, faults end."""

from __future__ import annotations

import json
import signal
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from tests.helpers.chart import CHART
from tests.helpers.kube import AGENT_PORT, Cluster, until

pytestmark = [pytest.mark.k8s, pytest.mark.slow]

SCENARIOS = sorted((CHART / "scenarios").glob("*.yaml"))
PARTED = CHART / "scenarios" / "three-parted.yaml"
LEASE = 3.0
SLACK = 2.0
CLAIM = 30.0
"""Seconds after which a keeper gives its member back when nothing is heard of a run."""


@pytest.mark.parametrize("file", SCENARIOS, ids=lambda file: file.stem)
def test_a_shipped_scenario_holds(cluster: Cluster, file: Path, tmp_path: Path) -> None:
    done = cluster.run(file, tmp_path / "run")
    assert done.returncode == 0, f"{done.stdout}\n{done.stderr}\n{cluster.troubles()}"

    verdict = json.loads(done.stdout)
    assert verdict["verdict"] == "holds"
    assert verdict["backend"] == "kubernetes"
    assert all(count > 0 for count in verdict["faults"].values())
    if verdict["resync"]:
        print(f"resync {verdict['resync']['seconds']:.2f} s")
    assert len(list((tmp_path / "run" / "trace").iterdir())) > 3


def test_the_members_of_the_chart_are_back_after_a_run(cluster: Cluster) -> None:
    until(cluster.is_one_group, 60, "one group after the runs")
    assert all(count == 0 for count in _restarts(cluster, "member"))


def test_more_members_than_pods_are_refused_before_anything_starts(
    cluster: Cluster, tmp_path: Path
) -> None:
    file = tmp_path / "four.yaml"
    file.write_text("name: four\nguarantees: [G1]\ncluster: {members: 4, stack: udp}\n")
    done = cluster.run(file, tmp_path / "run")

    assert done.returncode in (2, 3)
    assert "--set replicas=4" in done.stdout + done.stderr
    assert cluster.is_one_group()


# -- In mid-fault ----------------------------------------------------------------------------------


def test_faults_end_when_who_runs_the_scenario_is_killed(cluster: Cluster, tmp_path: Path) -> None:
    """First the network heals, then the pods are given back."""
    lapses = _agents(cluster, "lapses")
    with _running(cluster, tmp_path) as process:
        until(lambda: None not in _agents(cluster, "lease"), 60, "the fault begins")
        process.send_signal(signal.SIGKILL)
        took = until(
            lambda: _agents(cluster, "lease") == [None] * 3, LEASE + 1 + SLACK, "the lease ends"
        )

    print(f"no fault any more {took:.1f} s after SIGKILL, lease {LEASE:g} s")
    assert _agents(cluster, "lapses") == [number + 1 for number in lapses]
    took = until(cluster.is_one_group, CLAIM + 30, "the members of the chart are back")
    print(f"the members of the chart are one group {took:.1f} s later")


def test_a_run_whose_agent_is_killed_does_not_hold(cluster: Cluster, tmp_path: Path) -> None:
    """The fault was not what the scenario says, so nobody may call it passed."""
    with _running(cluster, tmp_path) as process:
        until(lambda: None not in _agents(cluster, "lease"), 60, "the fault begins")
        cluster.kill(cluster.pods()[1], "agent")
        said, errors = process.communicate(timeout=120)

    assert process.returncode == 3, f"{said}\n{errors}"
    assert "agent" in said + errors
    until(lambda: _agents(cluster, "lease") == [None] * 3, 60, "no fault any more")
    until(cluster.is_one_group, CLAIM + 30, "the members of the chart are back")
    assert all(count == 0 for count in _restarts(cluster, "member"))


@contextmanager
def _running(cluster: Cluster, folder: Path) -> Iterator[subprocess.Popen[str]]:
    """A run with a partition, ended by pid whatever becomes of the test."""
    process = cluster.begin(PARTED, folder / "run")
    try:
        yield process
    finally:
        process.kill()
        process.communicate()


def _agents(cluster: Cluster, key: str) -> list[Any]:
    """What each agent says under a key of its state."""
    return [cluster.ask(pod, AGENT_PORT, "GET", "/state")[key] for pod in cluster.names()]


def _restarts(cluster: Cluster, container: str) -> list[int]:
    return [cluster.restarts(pod, container) for pod in cluster.names()]
