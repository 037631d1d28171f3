"""What is asked of a docker daemon: who may do what in which container, and what is read of it.
The daemon is none here (tests/integration/test_docker_backend.py has a real one)."""

from __future__ import annotations

import gc
import io
import json
import tarfile
from ipaddress import ip_address, ip_network
from itertools import combinations
from pathlib import Path
from typing import Any, cast

import pytest
import yaml

from stormcast.chaos.backends.base import BackendError
from stormcast.chaos.backends.docker.containers import (
    KEYS,
    MOUNT,
    RANGE,
    ROOT,
    SUBNETS,
    USER,
    PodNames,
    Subnets,
    agent_settings,
    files_of_pod,
    keeper_settings,
    pod_of,
)
from stormcast.chaos.backends.docker.daemon import Daemon, open_daemon
from stormcast.chaos.backends.docker.leftovers import labels_of, leftovers
from stormcast.chaos.backends.docker.way import Ends
from stormcast.chaos.backends.run_id import RunId
from tests.helpers.chart import ROOT as REPOSITORY

RUN = RunId(41, 7, 1)
NAMES = PodNames(RUN, "n1")


def test_subnets_are_apart_and_inside_of_the_range_for_tests() -> None:
    found = [ip_network(Subnets.at(index, ipv6=False).v4) for index in (0, 1, 2, SUBNETS - 1)]
    assert all(one.subnet_of(cast("Any", RANGE)) for one in found)
    assert not any(one.overlaps(other) for one, other in combinations(found, 2))


@pytest.mark.parametrize("ipv6", [False, True])
def test_each_pod_has_its_own_addresses_and_none_that_of_the_gateway(*, ipv6: bool) -> None:
    subnets = Subnets.at(3, ipv6=ipv6)
    pods = [pod_of(NAMES, ordinal, subnets) for ordinal in range(256)]
    addresses = [address for pod in pods for address in pod.addresses]
    assert len(set(addresses)) == len(addresses) == 256 * (1 + ipv6)
    assert not set(addresses) & set(subnets.gateways.values())
    for pod in pods:
        assert ip_address(pod.addresses[0]).version == (6 if ipv6 else 4)
        for address in pod.addresses:
            assert any(ip_address(address) in ip_network(subnet) for subnet in subnets.gateways)


def test_nobody_is_privileged_and_only_the_agent_may_act_on_the_network() -> None:
    agent, agent_host = agent_settings(NAMES, "chaos")
    keeper, keeper_host = keeper_settings(NAMES, "node", "198.18.0.2")
    for host in (agent_host, keeper_host):
        assert host["cap_drop"] == ["ALL"]
        assert host["read_only"] is True
        assert host["security_opt"] == ["no-new-privileges"]
        assert not {"privileged", "pid_mode", "ipc_mode", "devices"} & set(host)
    assert agent_host["cap_add"] == ["NET_ADMIN", "NET_RAW"]
    assert "cap_add" not in keeper_host
    assert keeper_host["network_mode"] == f"container:{NAMES.agent}"
    assert "network_mode" not in agent_host, "it is on the network of the run"
    assert keeper["user"] == f"{USER}:{USER}"
    assert next(iter(agent_host["binds"].values()))["mode"] == "ro"
    assert not [word for word in (*agent["command"], *keeper["command"]) if "token=" in word]


def test_each_secret_is_for_its_reader_alone() -> None:
    packed = files_of_pod("n1", "198.18.0.2", "secret", b"a key")
    with tarfile.open(fileobj=io.BytesIO(packed)) as tar:
        found = {entry.name: entry for entry in tar}
        text = tar.extractfile("agent/agent.yaml")
        assert text is not None
        settings = json.loads(text.read())
    assert all(not entry.mode & 0o077 for entry in found.values())
    assert found["agent/token"].uid == ROOT
    assert found["keeper/token"].uid == found["members"].uid == USER
    assert found[KEYS.removeprefix(f"{MOUNT}/")].uid == USER
    assert settings["control"] == "198.18.0.2:7802"
    assert settings["sites"] == [{"name": "n1"}]


class FakeDaemon:
    """Containers as a daemon tells of them, and what it was told to do."""

    def __init__(self, **states: dict[str, Any]) -> None:
        self.states = {name.replace("_", "-"): state for name, state in states.items()}
        self.did: list[str] = []
        self.things: dict[str, list[dict[str, Any]]] = {}

    def state(self, name: str) -> dict[str, Any]:
        return self.states[name]

    def start(self, name: str) -> None:
        self.did.append(f"start {name}")
        self.states[name] = RUNS

    def restart(self, name: str) -> None:
        self.did.append(f"restart {name}")
        self.states[name] = RUNS

    def containers(self, _label: str) -> list[dict[str, Any]]:
        return self.things.get("containers", [])

    def networks(self, _label: str) -> list[dict[str, Any]]:
        return self.things.get("networks", [])

    def volumes(self, _label: str) -> list[dict[str, Any]]:
        return self.things.get("volumes", [])


RUNS = {"Status": "running", "ExitCode": 0}
POD = pod_of(PodNames(RUN, "n0"), 0, Subnets.at(0, ipv6=False))


def ends(keeper: dict[str, Any], agent: dict[str, Any]) -> tuple[Ends, FakeDaemon]:
    daemon = FakeDaemon()
    daemon.states = {POD.name: keeper, f"{POD.name}-agent": agent}
    found = Ends(cast("Daemon", daemon))
    found.is_begun = True
    return found, daemon


def test_a_keeper_that_has_ended_is_started_again_and_its_end_is_remembered() -> None:
    found, daemon = ends({"Status": "exited", "ExitCode": 137, "OOMKilled": True}, RUNS)
    assert found.look(POD.name) == "its container has ended with 137 (OOMKilled)"
    assert daemon.did == [f"start {POD.name}"]
    assert found.look(POD.name) == ""
    seen = found.seen_at(POD)
    assert (seen.restarts, seen.last_code, seen.last_reason) == (1, 137, "OOMKilled")


def test_with_an_agent_the_keeper_is_started_anew_in_the_agents_network() -> None:
    found, daemon = ends(RUNS, {"Status": "exited", "ExitCode": 1})
    assert found.look(POD.name) == "the container of its agent has ended with 1"
    assert daemon.did == [f"start {POD.name}-agent", f"restart {POD.name}"]
    assert found.seen_at(POD).restarts == 0, "its keeper has not ended by itself"


def test_what_never_answered_is_not_started_again() -> None:
    found, daemon = ends({"Status": "exited", "ExitCode": 2}, RUNS)
    found.is_begun = False
    assert found.look(POD.name) == ""
    assert not daemon.did


def test_leftovers_are_those_of_this_machines_runs_without_a_process() -> None:
    def things(name: str, labels: dict[str, str] | None) -> dict[str, Any]:
        return {"Name": name, "Names": [f"/{name}"], "Labels": labels}

    dead, alive = RunId(2**22 + 1, 7, 1), RunId.next()
    found = [
        things("dead", labels_of(dead)),
        things("alive", labels_of(alive)),
        things("elsewhere", labels_of(dead) | {"stormcast.host": "another machine"}),
        things("odd", {"stormcast.run": "x"}),
        things("none", None),
    ]
    daemon = FakeDaemon()
    daemon.things = {"containers": found, "networks": found, "volumes": found}
    left = leftovers(cast("Daemon", daemon))
    assert left.names() == ["container dead", "docker network dead", "docker volume dead"]


def test_where_no_daemon_listens_no_socket_stays_open(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Whoever asks goes on without docker: what stayed open would be found by chance, later."""
    monkeypatch.setenv("DOCKER_HOST", f"unix://{tmp_path}/nobody.sock")

    def sockets() -> int:
        return sum(one.is_socket() for one in Path("/proc/self/fd").iterdir())

    gc.collect()
    gc.disable()
    try:
        before = sockets()
        with pytest.raises(BackendError, match="no docker daemon answers: start it"):
            open_daemon()
        assert sockets() == before
    finally:
        gc.enable()


def test_the_compose_file_has_the_images_of_this_version_and_no_way_out() -> None:
    found = yaml.safe_load((REPOSITORY / "docker" / "compose.yaml").read_text())
    for service in found["services"].values():
        assert service["image"].startswith("stormcast-node:${TAG:-")
        assert service["cap_drop"] == ["ALL"]
        assert service["read_only"] is True
    (network,) = found["networks"].values()
    assert network["internal"] is True
    (subnet,) = (one["subnet"] for one in network["ipam"]["config"])
    assert ip_network(subnet).subnet_of(cast("Any", RANGE))
    taken = [ip_network(Subnets.at(index, ipv6=False).v4) for index in range(SUBNETS)]
    # A run takes the first that is free: this one is among the last.
    assert not any(one.overlaps(ip_network(subnet)) for one in taken[: SUBNETS - 2])
