"""Any pods of a cluster: listed, given one more container, attached to, deleted."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import Any, Final
from urllib.parse import quote, urlencode

from stormcast.chaos.agent.lines import Wire
from stormcast.chaos.backends.base import BackendError
from stormcast.chaos.backends.kubernetes.api import AttachingServer, asked, refusal, value_of
from stormcast.chaos.backends.kubernetes.attached import RefusedWireError
from stormcast.chaos.backends.pods.http_pool import MAX_REPLY, Request
from stormcast.chaos.backends.pods.pod import TIMEOUT_SECONDS
from stormcast.node.control.client import Reply
from stormcast.node.core.names import one_line

_RIGHTS: Final = "docs/attack.md names"
_NO_RIGHT: Final = re.compile(r"cannot \w+ resource")
"""In what the API server says where a right is missing. Admission refuses in words of its own, and
with the same status."""
_FORBIDDEN: Final = 403
_NOT_FOUND: Final = 404
_CONFLICT: Final = 409
_MERGES: Final = {"Content-Type": "application/strategic-merge-patch+json"}
_PLAIN: Final = {"Content-Type": "application/json"}


class NoSuchPodError(BackendError):
    """There is no pod of this name."""


class AnyPods:
    """The pods of all namespaces."""

    def __init__(self, server: AttachingServer) -> None:
        self._server = server

    def get(self, namespace: str, name: str) -> dict[str, Any]:
        """Return the description of a pod; NoSuchPodError if there is none."""
        reply = self._asked("GET", _path(namespace, name))
        if reply.status == _NOT_FOUND:
            raise NoSuchPodError(f"there is no pod {name} in namespace {namespace}")
        return self._value(reply, "get", "pods", namespace)

    def listed(self, namespace: str, selector: str = "") -> list[dict[str, Any]]:
        """Return the descriptions of the pods with these labels, by name."""
        path = f"{_path(namespace)}?labelSelector={quote(selector)}"
        found = self._value(self._asked("GET", path), "list", "pods", namespace)
        items: list[dict[str, Any]] = found.get("items", [])
        return sorted(items, key=lambda pod: str(pod["metadata"]["name"]))

    def add_container(self, namespace: str, name: str, container: Mapping[str, Any]) -> None:
        """Give a pod one more container, which is started at once, and never again."""
        body = {"spec": {"ephemeralContainers": [container]}}
        path = f"{_path(namespace, name)}/ephemeralcontainers"
        reply = self._asked("PATCH", path, body, _MERGES)
        said = reply.text
        if reply.status == _FORBIDDEN and not _NO_RIGHT.search(said):
            value = reply.value()
            words = value.get("message", said) if isinstance(value, dict) else said
            raise BackendError(f"the cluster refuses the container of the agent: {one_line(words)}")
        self._value(reply, "patch", "pods/ephemeralcontainers", namespace)

    def attach(self, namespace: str, name: str, container: str) -> Wire:
        """Return a wire to the standard input and output of a container that runs."""
        streams = dict.fromkeys(("stdin", "stdout", "stderr"), "true")
        words = urlencode({"container": container, **streams})
        try:
            return self._server.attach(f"{_path(namespace, name)}/attach?{words}")
        except RefusedWireError as error:
            said = refusal(
                error.reply,
                self._server.host,
                # A cluster asks for the one or the other, by its version.
                "get and create",
                "pods/attach",
                namespace,
                _RIGHTS,
            )
            raise BackendError(said) from None

    def delete(self, namespace: str, name: str, uid: str) -> bool:
        """Delete a pod at once, whose processes then end by SIGKILL; returns whether that one was
        still there. One that has taken its name is left alone."""
        body = {"gracePeriodSeconds": 0, "preconditions": {"uid": uid}}
        reply = self._asked("DELETE", _path(namespace, name), body, _PLAIN)
        if reply.status in (_NOT_FOUND, _CONFLICT):
            return False
        self._value(reply, "delete", "pods", namespace)
        return True

    def _asked(
        self,
        method: str,
        path: str,
        body: object = None,
        headers: Mapping[str, str] = {},
    ) -> Reply:
        data = None if body is None else json.dumps(body).encode()
        return asked(self._server, Request(method, path, data, headers, TIMEOUT_SECONDS, MAX_REPLY))

    def _value(self, reply: Reply, verb: str, what: str, namespace: str) -> dict[str, Any]:
        return value_of(reply, self._server.host, verb, what, namespace, _RIGHTS)


def _path(namespace: str, name: str = "") -> str:
    return f"/api/v1/namespaces/{namespace}/pods{f'/{name}' if name else ''}"
