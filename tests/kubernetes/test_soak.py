"""A soak that the chart's controller plays: it outlives an upgrade, and a kill."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.helpers.kube import CLAIM, CONTROLLER_PORT, Cluster, until

pytestmark = [pytest.mark.k8s, pytest.mark.slow]

STORM = """\
name: gentle
cluster: {members: 3, stack: udp, timing: fast}
kinds: [delay, loss, partition]
window: 8s
loads: 1
rate: 5/s..10/s
sizes: [16B..100B]
"""
SOAK = {"enabled": True, "for": "1h", "storm": STORM, "chapters": "64MiB"}
PATIENCE = 180


def windows(runs: Path) -> list[dict[str, Any]]:
    path = runs / "soak" / "windows.jsonl"
    return [json.loads(line) for line in path.read_text().splitlines()] if path.is_file() else []


def controller(cluster: Cluster) -> Any:
    (pod,) = cluster.pods("controller")
    return pod


def until_more(runs: Path, number: int) -> int:
    """Wait for so many windows more than there are; returns how many there are then."""
    wanted = len(windows(runs)) + number
    until(lambda: len(windows(runs)) >= wanted, PATIENCE, f"{wanted} windows")
    return len(windows(runs))


def test_a_soak_goes_on_after_an_upgrade_and_after_a_kill(cluster: Cluster, runs: Path) -> None:
    values = {"enabled": True, "claim": CLAIM}
    cluster.install({"controller": values, "soak": SOAK}, waits=False)
    until_more(runs, 2)
    before = controller(cluster)

    # Of its pod, and so another one takes its place.
    small = {"requests": {"cpu": "50m", "memory": "128Mi"}}
    cluster.install({"controller": {**values, "resources": small}}, waits=False)
    until(
        lambda: (
            [pod.metadata.uid != before.metadata.uid for pod in cluster.pods("controller")]
            == [True]
        ),
        PATIENCE,
        "another pod",
    )
    until_more(runs, 2)

    cluster.kill(controller(cluster), "soak")
    number = until_more(runs, 2)

    assert [one["window"] for one in windows(runs)] == list(range(len(windows(runs))))
    assert {one["verdict"] for one in windows(runs)} == {"holds"}, windows(runs)
    assert len({one["process"] for one in windows(runs)}) == 3
    name = controller(cluster).metadata.name
    log = cluster.log(name, "controller")
    assert "windows are there; a new cluster begins with window" in log
    assert "began with" not in log, "the storm and the seed are the same"
    metrics = str(
        cluster.ask(controller(cluster).metadata.name, CONTROLLER_PORT, "GET", "/metrics")
    )
    (held,) = [line for line in metrics.splitlines() if 'soak_windows{verdict="holds"}' in line]
    assert float(held.rpartition(" ")[2]) >= number
    assert list((runs / "soak" / "chapters" / "announced").glob("*.json"))


def test_it_goes_when_it_is_not_wanted_any_more(cluster: Cluster) -> None:
    cluster.install({"controller": {"enabled": False, "claim": ""}, "soak": {"enabled": False}})
    until(lambda: not cluster.pods("controller"), 60, "the controller's pod is gone")
    until(cluster.is_one_group, 60, "the members of the chart are one group")
