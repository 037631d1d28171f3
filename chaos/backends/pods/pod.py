"""A pod as a run sees it, and the way to its ports."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import IO, Final, NamedTuple, Protocol

from stormcast.chaos.backends.pods.http_pool import MAX_REPLY, Request
from stormcast.node.control.client import Reply

KEEPER: Final = "keeper"
AGENT: Final = "agent"
PORTS: Final = {KEEPER: 7801, AGENT: 7802}
"""Ports of keepers and agents, for pods whose ports have no names."""
TIMEOUT_SECONDS: Final = 10.0
"""Seconds that one answer may take: longer than a keeper waits for its member."""
TOKEN_HEADER: Final = "X-Stormcast-Token"  # noqa: S105 the name of a header
"""Not `Authorization`, which the API server of Kubernetes does not pass on to a pod."""


class Port(NamedTuple):
    """A port of a pod at which requests are answered."""

    pod: str
    number: int
    address: str
    """The address of the pod."""
    is_tls: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Pod:
    """The pod of one member."""

    name: str
    ordinal: int
    addresses: tuple[str, ...]
    ports: Mapping[str, int]
    has_agent: bool
    is_tls: bool
    """Whether keeper and agent speak TLS."""
    restarts: int = 0
    """The number of times that the container of its keeper has ended."""
    last_code: int = 0
    last_reason: str = ""
    """The exit code of that container when it ended last, and the word for it of whoever runs
    containers there."""

    def port(self, what: str) -> Port:
        """Return the port of the keeper, or of the agent."""
        address = next(iter(self.addresses), "")
        return Port(self.name, self.ports[what], address, self.is_tls)


class Way(Protocol):
    """Sends requests to ports of pods."""

    def send(self, port: Port, request: Request) -> Reply:
        """Send one request to a port of a pod, and return its answer, of any status. BackendError
        when it must not be sent, UnreachableError when nothing answers in the pod, TooLongError
        when the answer has more bytes than are taken."""
        ...


def request_of(
    method: str,
    target: str,
    body: object = None,
    token: str = "",
    timeout: float = TIMEOUT_SECONDS,
    most: int = MAX_REPLY,
    into: IO[bytes] | None = None,
) -> Request:
    """Return a request to a keeper or an agent; of its answer `most` bytes are taken, and the body
    of a good one goes `into` a file, if there is one."""
    headers = {TOKEN_HEADER: token, "Content-Type": "application/json"}
    data = None if body is None else json.dumps(body).encode()
    return Request(method, target, data, headers, timeout, most, into)
