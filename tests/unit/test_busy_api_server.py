"""An API server that has too much to do, and says so in place of an answer."""

from __future__ import annotations

import pytest

from stormcast.chaos.backends.base import BackendError
from stormcast.chaos.backends.kubernetes import api
from stormcast.chaos.backends.kubernetes.api import Api
from stormcast.chaos.backends.pods.http_pool import UnreachableError
from stormcast.chaos.backends.pods.pod import Port, request_of
from stormcast.node.control.client import Reply

PORT = Port("demo-stormcast-0", 7801, "10.0.0.1", is_tls=True)


class Busy:
    """It turns away some requests before it takes one."""

    host = "https://fake"

    def __init__(self, turned_away: int) -> None:
        self.left = turned_away
        self.taken = 0

    def request(self, *_asked: object) -> Reply:
        if self.left:
            self.left -= 1
            # As the API server does it: a text, and no Status.
            return Reply(429, "text/plain", b"Too many requests, please try again later.")
        self.taken += 1
        return Reply(200, "application/json", b'{"items": []}')


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(api, "AWAY_SECONDS", 0.0)


def test_a_request_that_was_turned_away_is_made_again() -> None:
    """Nobody in the pod has heard of it, so it is done once."""
    server = Busy(api.AGAIN)
    assert Api(server, "default").send(PORT, request_of("POST", "/start", {})).is_ok
    assert server.taken == 1
    server.left = api.AGAIN
    assert Api(server, "default").pods("a=b") == []


def test_one_that_is_turned_away_again_and_again_is_no_answer_of_the_pod() -> None:
    with pytest.raises(UnreachableError, match="the API server is busy"):
        Api(Busy(api.AGAIN + 1), "default").send(PORT, request_of("POST", "/start", {}))
    with pytest.raises(BackendError, match="429 Too many requests"):
        Api(Busy(api.AGAIN + 1), "default").pods("a=b")
