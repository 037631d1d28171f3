"""Which ends of a member in a pod are those that it was told to."""

from __future__ import annotations

import json
import signal
from typing import Any

import pytest

from stormcast.chaos.backends.kubernetes.api import Reply
from stormcast.chaos.backends.kubernetes.pods import MemberPod
from tests.helpers.pods import A_POD


class Keeper:
    """Keeps a member that ends with this code."""

    def __init__(self, code: int) -> None:
        self._state = {"incarnation": 1, "alive": False, "code": code}

    def ask(self, *_asked: Any) -> Reply:
        return Reply(200, "application/json", json.dumps(self._state).encode())


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
