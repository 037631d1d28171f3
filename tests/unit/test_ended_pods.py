"""Which ends of a member in a pod are those that it was told to."""

from __future__ import annotations

import json
import signal
from typing import Any

import pytest

from stormcast.chaos.backends.base import MemberError
from stormcast.chaos.backends.kubernetes import KubernetesBackend
from stormcast.chaos.backends.pods.member_pod import MemberPod
from stormcast.chaos.backends.pods.run_pods import RunPods
from stormcast.node.control.client import Reply
from tests.helpers.pods import A_POD


class Keeper:
    """Keeps a member that ends with this code."""

    def __init__(self, code: int) -> None:
        self.state: dict[str, Any] = {"incarnation": 1, "alive": False, "code": code}
        self.status = 200

    def send(self, *_asked: object) -> Reply:
        return Reply(self.status, "application/json", json.dumps(self.state).encode())


@pytest.mark.parametrize(
    ("code", "is_ordered"),
    [(0, True), (4, True), (-signal.SIGTERM, True), (3, False), (-signal.SIGKILL, False)],
)
def test_who_leaves_has_done_so_also_without_an_answer_but_not_by_a_failure(
    code: int, is_ordered: bool
) -> None:
    pod = MemberPod(Keeper(code), A_POD, "n0", "token")  # type: ignore[arg-type]
    pod.incarnations.append(1)
    pod.stop()
    assert not pod.is_alive()
    assert pod.end is not None
    assert pod.end.is_ordered is is_ordered


def test_whether_one_lives_that_does_not_answer_is_asked_anew() -> None:
    """The answer of a moment ago is kept: a run would break off for a member that has ended."""
    keeper, backend = Keeper(0), KubernetesBackend()
    pod = MemberPod(keeper, A_POD, "n0", "token")  # type: ignore[arg-type]
    pod.incarnations.append(1)
    backend._pods = RunPods({"n0": pod}, backend._threads)
    keeper.state["alive"], keeper.state["code"] = True, None
    assert backend.is_alive("n0")
    keeper.state["alive"], keeper.state["code"] = False, 0
    keeper.status = 503
    with pytest.raises(MemberError):
        backend.ask("n0", "GET", "/state")
    keeper.status = 200
    assert not backend.is_alive("n0")
