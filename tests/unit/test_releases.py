"""What the API server says of a release's pods, and of others that look like them."""

from __future__ import annotations

import json
from typing import Any

import pytest

from stormcast.chaos.backends.base import BackendError
from stormcast.chaos.backends.kubernetes.api import Api
from stormcast.chaos.backends.kubernetes.release import choose_pods, member_pods
from stormcast.node.control.client import Reply


class Server:
    """An API server that has these pods, and gives them to whoever asks."""

    host = "https://fake"

    def __init__(self, *pods: dict[str, Any]) -> None:
        self._pods = pods

    def request(self, *_asked: object) -> Reply:
        return Reply(200, "application/json", json.dumps({"items": self._pods}).encode())


def pod(name: str, *containers: dict[str, Any]) -> dict[str, Any]:
    listed = containers or ({"name": "member", "state": {"running": {}}},)
    return {
        "metadata": {"name": name, "labels": {}},
        "spec": {"containers": [{"name": one["name"]} for one in listed]},
        "status": {"phase": "Running", "podIP": "10.0.0.1", "containerStatuses": list(listed)},
    }


def names(number: int, *pods: dict[str, Any]) -> list[str]:
    found = member_pods(Api(Server(*pods), "default"), "demo")
    return [one.name for one in choose_pods(found, number, "demo", "testing")]


def test_members_are_in_the_order_of_their_numbers() -> None:
    listed = [pod(f"demo-stormcast-{number}") for number in (0, 10, 2)]
    assert names(3, *listed) == ["demo-stormcast-0", "demo-stormcast-2", "demo-stormcast-10"]


def test_pods_of_others_with_the_same_labels_are_no_members() -> None:
    """As `kubectl debug --copy-to` makes one, with all labels if it is told to keep them."""
    copies = [pod("demo-stormcast-0-debug"), pod("copy-1"), pod("demo-stormcast-x")]
    own = [pod("demo-stormcast-0"), pod("demo-stormcast-1")]
    assert names(2, *copies, *own) == ["demo-stormcast-0", "demo-stormcast-1"]


def test_how_the_keeper_ended_is_not_told_by_the_container_before_it() -> None:
    ended = {"terminated": {"exitCode": 137, "reason": "OOMKilled"}}
    running: dict[str, Any] = {"running": {}}
    mesh = {"name": "mesh-proxy", "restartCount": 4, "state": running, "lastState": ended}
    member = {"name": "member", "restartCount": 0, "state": running, "lastState": {}}
    (found,) = member_pods(Api(Server(pod("demo-stormcast-0", mesh, member)), "default"), "demo")
    assert (found.restarts, found.last_code, found.last_reason) == (0, 0, "")


@pytest.mark.parametrize("state", ["running", "terminated", "waiting"])
def test_an_end_of_the_keeper_counts_from_its_first_moment_on(state: str) -> None:
    """After a second end within minutes the kubelet waits before it starts the container again."""
    ended = {"exitCode": 137, "reason": "OOMKilled"}
    states: dict[str, Any] = {
        "running": {},
        "terminated": ended,
        "waiting": {"reason": "CrashLoopBackOff"},
    }
    member = {
        "name": "member",
        "restartCount": 2 if state == "running" else 1,
        "state": {state: states[state]},
        "lastState": {"terminated": ended},
    }
    (found,) = member_pods(Api(Server(pod("demo-stormcast-0", member)), "default"), "demo")
    assert (found.restarts, found.last_code, found.last_reason) == (2, 137, "OOMKilled")


def test_a_keeper_that_waits_to_be_started_first_has_not_ended() -> None:
    state = {"waiting": {"reason": "ContainerCreating"}}
    member = {"name": "member", "restartCount": 0, "state": state, "lastState": {}}
    (found,) = member_pods(Api(Server(pod("demo-stormcast-0", member)), "default"), "demo")
    assert found.restarts == 0


def test_too_few_pods_are_answered_with_the_command_that_makes_more() -> None:
    command = "helm upgrade demo helm/stormcast --namespace testing --reuse-values --set replicas=3"
    with pytest.raises(BackendError, match=command):
        names(3, pod("demo-stormcast-0"))
