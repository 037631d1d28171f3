"""The way to keepers and agents in containers: their addresses in the network of the run."""

from __future__ import annotations

import threading
from dataclasses import replace
from typing import IO, TYPE_CHECKING, Final

from stormcast.chaos.backends.base import BackendError
from stormcast.chaos.backends.docker.daemon import Daemon
from stormcast.chaos.backends.pods.connections import CONNECTIONS, Connections
from stormcast.chaos.backends.pods.http_pool import MAX_REPLY, UnreachableError, send, short
from stormcast.chaos.backends.pods.pod import KEEPER, PORTS, TIMEOUT_SECONDS, Pod, Port, request_of
from stormcast.node.control.client import Reply

if TYPE_CHECKING:
    from urllib3 import HTTPConnectionPool

OUT_OF_MEMORY: Final = "OOMKilled"


class Ends:
    """How the containers of keepers have ended, and what starts them again: journals outlive a
    container, and a keeper is asked for them."""

    def __init__(self, daemon: Daemon) -> None:
        self._daemon = daemon
        self._lock = threading.Lock()
        self._seen: dict[str, tuple[int, int, str]] = {}
        """By container: how often it ended, and exit code and reason of the last time."""

    def of(self, container: str) -> tuple[int, int, str]:
        """Return how often a container has ended, and exit code and reason of the last time."""
        return self._seen.get(container, (0, 0, ""))

    def seen_at(self, pod: Pod) -> Pod:
        """Return a pod with what was seen of its container's ends."""
        number, code, why = self.of(pod.name)
        return replace(pod, restarts=number, last_code=code, last_reason=why)

    def look(self, container: str) -> str:
        """Start a container again if it has ended; return how it did, or nothing if it runs."""
        with self._lock:
            state = self._daemon.state(container)
            if state["Status"] not in ("exited", "dead"):
                return ""
            number = self.of(container)[0] + 1
            why = OUT_OF_MEMORY if state.get("OOMKilled") else ""
            self._seen[container] = number, int(state["ExitCode"]), why
            said = f"its container has ended with {state['ExitCode']}{why and f' ({why})'}"
            self._daemon.start(container)
            return said


class ContainerWay:
    """Requests to ports of pods."""

    def __init__(self, ends: Ends) -> None:
        self._ends = ends
        self._connections = Connections(_pool)

    def ask(
        self,
        port: Port,
        method: str,
        target: str,
        body: object = None,
        token: str = "",
        timeout: float = TIMEOUT_SECONDS,
        most: int = MAX_REPLY,
        into: IO[bytes] | None = None,
    ) -> Reply:
        """Send one request to a port of a pod (see `Way`)."""
        from urllib3.exceptions import HTTPError  # noqa: PLC0415 slow to import, and optional

        request = request_of(method, target, body, token, timeout, most, into)
        try:
            return send(self._connections.to(port), "", request)
        except HTTPError as error:
            why = short(error)
        if port.number == PORTS[KEEPER]:
            try:
                why = self._ends.look(port.pod) or why
            except BackendError as error:
                why = str(error)
        raise UnreachableError(f"{port.pod} port {port.number}: {why}")

    def close(self) -> None:
        """Close all connections that are not in use."""
        self._connections.close()


def _pool(port: Port) -> HTTPConnectionPool:
    from urllib3 import HTTPConnectionPool  # noqa: PLC0415 slow to import, and optional

    return HTTPConnectionPool(port.address, port.number, maxsize=CONNECTIONS, block=True)
