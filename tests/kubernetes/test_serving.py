"""The controller: runs what its ConfigMap says, with no more rights than its Role has."""

from __future__ import annotations

from typing import Any

import pytest

from tests.helpers.kube import AGENT_PORT, CONTROLLER_PORT, Cluster, scenario, until

pytestmark = [pytest.mark.k8s, pytest.mark.slow]

NAME = "three-parted"
LEASE = 3.0
SLACK = 2.0


def _controller(cluster: Cluster) -> Any:
    (pod,) = cluster.pods("controller")
    return pod


def _log(cluster: Cluster) -> str:
    return cluster.log(_controller(cluster).metadata.name, "controller")


def _leases(cluster: Cluster) -> list[float | None]:
    return [cluster.ask(pod, AGENT_PORT, "GET", "/state")["lease"] for pod in cluster.names()]


def test_a_controller_that_is_killed_in_mid_fault_leaves_no_fault(cluster: Cluster) -> None:
    """Then it is started again, runs the scenario from the start, and says that it holds."""
    values = {"enabled": True, "shipped": False, "scenarios": {NAME: scenario(NAME).read_text()}}
    cluster.install({"controller": values}, waits=False)
    until(lambda: len(cluster.pods("controller")) == 1, 60, "the controller's pod")
    until(lambda: None not in _leases(cluster), 120, "the fault begins")

    cluster.kill(_controller(cluster), "serve")
    took = until(lambda: _leases(cluster) == [None] * 3, LEASE + 1 + SLACK, "the lease ends")

    print(f"no fault any more {took:.1f} s after the kill, lease {LEASE:g} s")
    until(lambda: f"holds       {NAME}" in _log(cluster), 180, f"a verdict: {_log(cluster)}")


def test_its_verdicts_are_metrics(cluster: Cluster) -> None:
    pod = _controller(cluster).metadata.name
    text: str = cluster.ask(pod, CONTROLLER_PORT, "GET", "/metrics")

    assert f'stormcast_runs_total{{scenario="{NAME}",verdict="holds"}} 1.0' in text
    assert f'stormcast_runs_total{{scenario="{NAME}",verdict="violated"}} 0.0' in text
    assert cluster.ask(pod, CONTROLLER_PORT, "GET", "/readyz") == {"ready": True}


def test_it_goes_when_it_is_not_wanted_any_more(cluster: Cluster) -> None:
    cluster.install({"controller": {"enabled": False}})

    until(lambda: not cluster.pods("controller"), 60, "the controller's pod is gone")
    until(cluster.is_one_group, 60, "the members of the chart are one group")
