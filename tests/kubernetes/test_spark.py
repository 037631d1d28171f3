"""Spark in the cluster: the chart's Job is the driver, and its executors are pods.

Runs lie on a volume that all nodes see. Nobody else's cluster has one for us, so whoever has says
where: STORMCAST_SHARED is a folder that has the same content on each node, and here.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from pathlib import Path
from typing import Any, Final

import pytest

from tests.helpers.kube import CLAIM, Cluster, until

pytestmark = [pytest.mark.k8s, pytest.mark.slow, pytest.mark.long]

RUN: Final = "order-under-loss"
SEEDS: Final = 200
JOB_SECONDS: Final = 600
SMALL: Final = {"executorMemory": "512m", "executorCpu": "100m"}


class Job:
    """The Job of the last upgrade."""

    def __init__(self, cluster: Cluster, *command: str) -> None:
        self._cluster = cluster
        self.executors: set[str] = set()
        """The names of all executors that were seen."""
        spark = {"command": list(command), "claim": CLAIM, **SMALL}
        cluster.install(
            {
                "spark": spark,
                "images": {"spark": {"tag": os.environ.get("STORMCAST_IMAGE_TAG", "")}},
            }
        )

    @property
    def driver(self) -> str:
        names = [pod.metadata.name for pod in self._pods() if not self._is_executor(pod)]
        # Of the Job of the last upgrade, whose number is the greatest.
        return max(names, key=lambda name: int(name.split("-")[3])) if names else ""

    def _pods(self) -> list[Any]:
        pods = self._cluster.pods("spark")
        self.executors |= {pod.metadata.name for pod in pods if self._is_executor(pod)}
        return pods

    @staticmethod
    def _is_executor(pod: Any) -> bool:
        return pod.metadata.labels.get("spark-role") == "executor"

    def running(self) -> list[str]:
        """The executors that run."""
        return [
            pod.metadata.name
            for pod in self._pods()
            if self._is_executor(pod) and pod.status.phase == "Running"
        ]

    def log(self) -> str:
        return self._cluster.log(self.driver, "driver") if self.driver else ""

    def end(self) -> int:
        """Wait for the driver's end; returns its exit code."""
        deadline = time.monotonic() + JOB_SECONDS
        while time.monotonic() < deadline:
            (driver,) = (pod for pod in self._pods() if pod.metadata.name == self.driver)
            (status,) = driver.status.container_statuses or [None]
            if status is not None and status.state.terminated is not None:
                return int(status.state.terminated.exit_code)
            time.sleep(0.5)
        raise AssertionError(f"no end: {self.log()}\n{self._cluster.troubles()}")


def test_runs_that_the_controller_has_left_are_judged_by_executors(
    cluster: Cluster, runs: Path
) -> None:
    values = {"enabled": True, "shipped": False, "claim": CLAIM}
    scenario = Path(__file__).parents[2] / "chaos" / "scenarios" / f"{RUN}.yaml"
    cluster.install(
        {"controller": {**values, "scenarios": {RUN: scenario.read_text()}}}, waits=False
    )
    until(lambda: bool(list(runs.glob("*/verdict.json"))), 240, "a run on the claim")
    (verdict,) = {path.resolve() for path in runs.glob("*/verdict.json")}
    cluster.install({"controller": {"enabled": False}})

    name = verdict.parent.name
    job = Job(cluster, "verify", f"/runs/{name}", "--tables", "/runs/tables", "--json")
    code = job.end()

    said = json.loads(next(line for line in job.log().splitlines() if line.startswith("{")))
    assert said["verdict"] == json.loads(verdict.read_text())["verdict"] == "holds", job.log()
    assert code == 0
    assert len(job.executors) == 2
    assert json.loads((verdict.parent / "verify" / "verdict.json").read_text()) == said
    assert not list((runs / "tables").iterdir())
    until(lambda: not job.running(), 60, "the executors are gone")


def test_a_search_loses_nothing_with_an_executor(cluster: Cluster, runs: Path) -> None:
    """Its rows are those that this machine finds by itself."""
    seeds = ("--seeds", str(SEEDS), "--from", "300")
    job = Job(cluster, "search", *seeds, "--out", "/runs/search", "--json")
    until(lambda: len(list(runs.glob("search/rows/*"))) >= 2, JOB_SECONDS, "two parts begin")
    victim = job.running()[0]
    cluster.core.delete_namespaced_pod(victim, cluster.namespace, grace_period_seconds=0)
    code = job.end()

    assert code == 0, job.log()
    found = rows(runs / "search")
    assert sorted(found) == list(range(300, 300 + SEEDS))
    assert len(job.executors) >= 3, "another one took the place of the one that was killed"

    here = runs / "here"
    words = [sys.executable, "-m", "stormcast", "search", *seeds, "--out", str(here)]
    subprocess.run(words, check=True, capture_output=True)
    assert rows(here) == found


def rows(out: Path) -> dict[int, dict[str, Any]]:
    """By seed, but for how long each took."""
    lines = (line for path in out.glob("rows/*") for line in path.read_text().splitlines(True))
    whole = [json.loads(line) for line in lines if line.endswith("\n")]
    return {row["seed"]: {**row, "seconds": None} for row in whole}
