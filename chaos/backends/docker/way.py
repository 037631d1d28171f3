"""The way to keepers and agents in containers: their addresses in the network of the run."""

from __future__ import annotations

import threading
from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final

from stormcast.chaos.backends.base import BackendError
from stormcast.chaos.backends.docker.containers import agent_of
from stormcast.chaos.backends.docker.daemon import Daemon
from stormcast.chaos.backends.pods.connections import CONNECTIONS, Connections
from stormcast.chaos.backends.pods.http_pool import Request, UnreachableError, send, short
from stormcast.chaos.backends.pods.pod import Pod, Port
from stormcast.node.control.client import Reply

if TYPE_CHECKING:
    from urllib3 import HTTPConnectionPool

CONNECT_SECONDS: Final = 2.0
"""Seconds until there is a connection: it does not leave this machine."""
OUT_OF_MEMORY: Final = "OOMKilled"


class Ends:
    """How the containers of pods have ended. It starts them again, as a kubelet does: journals
    outlive a container, and a keeper is asked for them."""

    def __init__(self, daemon: Daemon) -> None:
        self.is_begun = False
        """Whether all pods have answered once: one that never did is not started again."""
        self._daemon = daemon
        self._lock = threading.Lock()
        self._seen: dict[str, tuple[int, int, str]] = {}
        """By pod: how often its keeper's container ended, and exit code and reason at last."""

    def seen_at(self, pod: Pod) -> Pod:
        """Return a pod with what was seen of its keeper's ends."""
        number, code, why = self._seen.get(pod.name, (0, 0, ""))
        return replace(pod, restarts=number, last_code=code, last_reason=why)

    def look(self, pod: str) -> str:
        """Start the containers of a pod again that have ended; return which one has, and how, or
        nothing if both run."""
        if not self.is_begun:
            return ""
        with self._lock:
            keeper, agent = self._daemon.state(pod), self._daemon.state(agent_of(pod))
            if has_ended(keeper):
                number = self._seen.get(pod, (0, 0, ""))[0] + 1
                self._seen[pod] = number, int(keeper["ExitCode"]), _why(keeper)
            if has_ended(agent):
                self._daemon.start(agent_of(pod))
                # The agent's container has another network now, which the keeper's is to join.
                self._daemon.restart(pod)
                return f"the container of its agent {_words(agent)}"
            if has_ended(keeper):
                self._daemon.start(pod)
                return f"its container {_words(keeper)}"
            return ""


def has_ended(state: Mapping[str, Any]) -> bool:
    """Whether a container was started, and runs no more."""
    return state["Status"] in ("exited", "dead")


def _why(state: Mapping[str, Any]) -> str:
    return OUT_OF_MEMORY if state.get("OOMKilled") else ""


def _words(state: Mapping[str, Any]) -> str:
    return f"has ended with {state['ExitCode']}{f' ({_why(state)})' if _why(state) else ''}"


class ContainerWay:
    """Requests to ports of pods."""

    def __init__(self, ends: Ends) -> None:
        self._ends = ends
        self._connections = Connections(_pool)

    def send(self, port: Port, request: Request) -> Reply:
        """Send one request to a port of a pod (see `Way`)."""
        from urllib3.exceptions import HTTPError  # noqa: PLC0415 slow to import, and optional

        request = replace(request, connecting=CONNECT_SECONDS)
        try:
            return send(self._connections.to(port), "", request)
        except HTTPError as error:
            why = short(error)
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
