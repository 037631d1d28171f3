"""All members of a run in pods are frozen at one moment, or it is said that they were not."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from typing import Any

import pytest

from stormcast.chaos.backends.base import BackendError
from stormcast.chaos.backends.kubernetes import KubernetesBackend
from stormcast.chaos.backends.pods import backend, keeper_client
from stormcast.chaos.backends.pods.http_pool import Request, UnreachableError
from stormcast.chaos.backends.pods.leases import Leases
from stormcast.chaos.backends.pods.member_pod import MemberPod
from stormcast.chaos.backends.pods.run_pods import RunPods
from stormcast.node.control.client import Reply
from tests.helpers.pods import A_POD


class Keeper:
    """Keeps a member that has been started; the way to it may be slow, or shut for a while."""

    def __init__(self) -> None:
        self.slowness = 0.0
        self.shut = 0
        """How many requests do not come here."""
        self.unheard = 0
        """How many answers do not come back."""
        self.number = 1
        self.code: int | None = None
        self.is_paused = False
        self.asked: list[str] = []

    def send(self, _port: object, request: Request) -> Reply:
        time.sleep(self.slowness)
        if self.shut:
            self.shut -= 1
            raise UnreachableError("connection refused")
        self.asked.append(f"{request.method} {request.target}")
        is_pause = request.target == "/pause"
        reply = self._pause(json.loads(request.body or b"")) if is_pause else _json(self._state())
        if self.unheard:
            self.unheard -= 1
            raise UnreachableError("timed out")
        return reply

    def _state(self) -> dict[str, object]:
        return {"incarnation": self.number, "alive": self.code is None, "code": self.code}

    def _pause(self, body: Any) -> Reply:
        if self.code is not None or body["incarnation"] != self.number:
            return _json({"error": "it has ended"}, 409)
        was_running, self.is_paused = not self.is_paused, True
        return _json({"paused": True, "lapses": 0, "fresh": was_running})


def _json(value: object, status: int = 200) -> Reply:
    return Reply(status, "application/json", json.dumps(value).encode())


class Run:
    """Three members, each with a keeper."""

    def __init__(self) -> None:
        self.keepers = [Keeper() for _ in range(3)]
        self.backend: Any = KubernetesBackend()
        self.pods = {f"n{number}": member(keeper) for number, keeper in enumerate(self.keepers)}
        self.backend._pods = RunPods(self.pods, self.backend._threads)
        self.backend._leases = Leases("run-1", ())

    def freeze(self) -> None:
        self.backend.freeze()


def member(keeper: Any) -> MemberPod:
    made = MemberPod(keeper, A_POD, "n0", "token")
    made.incarnations.append(1)
    return made


@pytest.fixture
def run(monkeypatch: pytest.MonkeyPatch) -> Iterator[Run]:
    monkeypatch.setattr(keeper_client, "AGAIN_SECONDS", 0.05)
    monkeypatch.setattr(keeper_client, "BACK_SECONDS", 1.0)
    monkeypatch.setattr(backend, "FREEZE_SPREAD", 0.3)
    made = Run()
    yield made
    made.backend._threads.shutdown()


def test_each_keeper_is_asked_once(run: Run) -> None:
    run.freeze()
    assert [keeper.asked for keeper in run.keepers] == [["POST /pause"]] * 3
    run.freeze()


def test_a_member_that_was_frozen_late_went_on_while_others_did_not(run: Run) -> None:
    run.keepers[2].slowness = 0.5
    for _again in range(2):
        with pytest.raises(BackendError, match="until all members were frozen"):
            run.freeze()
        run.keepers[2].slowness = 0.0


def test_a_member_that_was_paused_before_is_not_late(run: Run) -> None:
    run.pods["n2"].is_paused = run.keepers[2].is_paused = True
    run.keepers[2].slowness = 0.5
    run.freeze()


def test_a_keeper_that_does_not_answer_for_a_moment_is_asked_again(run: Run) -> None:
    for keeper in run.keepers:
        keeper.shut = 8
    run.freeze()
    assert all(keeper.is_paused for keeper in run.keepers)


def test_a_pause_whose_answer_was_lost_may_have_begun_with_the_first_request(run: Run) -> None:
    run.keepers[1].unheard = 8
    with pytest.raises(BackendError, match="until all members were frozen"):
        run.freeze()


def test_a_keeper_that_never_answers_is_an_error(run: Run) -> None:
    run.keepers[1].shut = 10_000
    with pytest.raises(BackendError, match="does not answer"):
        run.freeze()
    assert run.pods["n1"].is_lost
    assert run.keepers[0].is_paused
    assert run.keepers[2].is_paused


def test_a_member_that_has_ended_is_told_with_its_code_and_no_error(run: Run) -> None:
    run.keepers[1].code = 3
    run.keepers[2].number = 2  # Its keeper was started anew, and has a member of its own.
    run.freeze()
    end = run.pods["n1"].end
    assert end is not None
    assert end.code == 3
    assert run.pods["n2"].is_lost
    assert not run.keepers[2].is_paused
