"""Requests to the keeper of one pod."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import IO, Any, Final, TypeVar

from stormcast.chaos.backends.base import BackendError
from stormcast.chaos.backends.pods.http_pool import MAX_REPLY, UnreachableError
from stormcast.chaos.backends.pods.pod import KEEPER, Pod, Way, request_of
from stormcast.node.control.client import Reply
from stormcast.node.core.names import one_line

BACK_SECONDS: Final = 15.0
"""Seconds for which a member is frozen, or journals are asked for, where no keeper answers: the
kubelet starts a keeper again that has ended, and the journals outlive it."""
AGAIN_SECONDS: Final = 0.5

T = TypeVar("T")


class SilentError(BackendError):
    """A keeper does not answer."""


class KeeperClient:
    """Asks the keeper of a member's pod."""

    def __init__(self, way: Way, pod: Pod, name: str, token: str) -> None:
        self._way = way
        self._pod = pod
        self._name = name
        """The name of the member."""
        self._token = token

    def ask(
        self, method: str, target: str, body: object = None, timeout: float = 10.0
    ) -> dict[str, Any]:
        """Send one request; BackendError if the keeper does not answer or refuses."""
        return self.value(self.reply(method, target, body, timeout), f"{method} {target}")

    def value(self, reply: Reply, what: str) -> dict[str, Any]:
        """Return what an answer says; BackendError, which names `what`, if it is a refusal."""
        value = reply.value()
        if not reply.is_ok or not isinstance(value, dict):
            raise BackendError(f"{self._pod.name}: {what}: {words_of(reply)}")
        return value

    def reply(
        self,
        method: str,
        target: str,
        body: object,
        timeout: float = 10.0,
        most: int = MAX_REPLY,
        into: IO[bytes] | None = None,
    ) -> Reply:
        """Send one request, and return the answer, whatever it is; SilentError if none comes."""
        port = self._pod.port(KEEPER)
        try:
            request = request_of(method, target, body, self._token, timeout, most, into)
            return self._way.send(port, request)
        except UnreachableError as error:
            raise SilentError(f"the keeper of {self._name} does not answer: {error}") from None


def patiently(ask: Callable[[], T]) -> T:
    """Return what `ask` returns; ask again for `BACK_SECONDS` while no keeper answers."""
    until = time.monotonic() + BACK_SECONDS
    while True:
        try:
            return ask()
        except SilentError:
            if time.monotonic() > until:
                raise
        time.sleep(AGAIN_SECONDS)


def words_of(reply: Reply) -> str:
    """Return what an answer says, in one line."""
    value = reply.value()
    text = value.get("error", value) if isinstance(value, dict) else value
    return one_line(text)
