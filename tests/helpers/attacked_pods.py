"""A cluster of plain pods, in memory: they take an ephemeral container, whose agent is a fake."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable
from typing import Any, Final
from urllib.parse import parse_qs, unquote

from stormcast.chaos.agent.lines import Wire
from stormcast.chaos.backends.kubernetes.attached import RefusedWireError
from stormcast.chaos.backends.pods.http_pool import Request, UnreachableError
from stormcast.node.control.client import Reply
from stormcast.node.core.errors import NodeError
from tests.helpers.pods import FakeAgent

_PATH: Final = re.compile(r"/api/v1/namespaces/([^/]+)/pods(?:/([^/?]+))?(?:/([^/?]+))?(?:\?(.*))?")


def pod(number: int, name: str, *, namespace: str = "shop", **labels: str) -> dict[str, Any]:
    """The description of a pod that runs."""
    return {
        "metadata": {
            "name": name, "namespace": namespace, "uid": f"uid-{number}",
            "labels": labels,
        },
        "spec": {"containers": [{"name": "main"}]},
        "status": {
            "phase": "Running",
            "podIPs": [{"ip": f"198.18.5.{number}"}],
            "containerStatuses": [{"name": "main", "state": {"running": {}}}],
        },
    }  # fmt: skip  # one description


class AgentWire:
    """A wire to a fake agent."""

    def __init__(self, agent: FakeAgent) -> None:
        self.agent = agent
        self.is_cut = False
        self.cut_at = ""
        """The request with which the wire is cut."""
        self.closed = 0
        self._answers: list[bytes] = []

    def send(self, line: bytes) -> None:
        asked = json.loads(line)
        self.is_cut |= asked["target"] == self.cut_at
        if self.is_cut or self.closed:
            raise NodeError("the connection with its container has ended")
        status, value = self.agent.answer(asked["target"], asked["body"] or {})
        told = {"number": asked["number"], "status": status, "value": value}
        self._answers.append(json.dumps(told).encode())

    def receive(self, _seconds: float) -> bytes:
        return self._answers.pop(0)

    def close(self) -> None:
        self.closed += 1


class FakePods:
    """An API server with these pods. It answers as the real one does, and notes what changes."""

    host = "https://fake"

    def __init__(self, *pods: dict[str, Any]) -> None:
        self.pods = {(one["metadata"]["namespace"], one["metadata"]["name"]): one for one in pods}
        self.changes: list[tuple[str, str, Any]] = []
        """Method, path and body of each request that is not a mere question."""
        self.refuses: dict[tuple[str, str], Reply] = {}
        """By method and the last word of the resource: what it answers instead."""
        self.states: list[dict[str, Any]] = [{"waiting": {"reason": "ContainerCreating"}}]
        """What a new container is in at each look, before it runs."""
        self.then: dict[str, Any] = {"running": {}}
        self.wires: dict[str, AgentWire] = {}
        """By pod."""
        self.is_away = False
        self._looks: dict[str, int] = {}

    def request(self, request: Request) -> Reply:
        if self.is_away:
            raise UnreachableError("connection refused")
        found = _PATH.fullmatch(request.target)
        assert found is not None, request.target
        namespace, name, resource, words = found.groups()
        body = None if request.body is None else json.loads(request.body)
        if request.method != "GET":
            self.changes.append((request.method, request.target, body))
        if reply := self.refuses.get((request.method, resource or "pods")):
            return reply
        if name is None:
            selector = parse_qs(words or "").get("labelSelector", [""])[0]
            return _json({"items": list(self._selected(namespace, unquote(selector)))})
        if (namespace, name) not in self.pods:
            return status(404, f'pods "{name}" not found')
        return self._do(request.method, self.pods[namespace, name], body)

    def _selected(self, namespace: str, selector: str) -> Iterable[dict[str, Any]]:
        wanted = dict(pair.split("=") for pair in selector.split(",") if pair).items()
        for (space, _name), one in self.pods.items():
            if space == namespace and wanted <= one["metadata"]["labels"].items():
                yield one

    def _do(self, method: str, one: dict[str, Any], body: Any) -> Reply:
        name = one["metadata"]["name"]
        if method == "PATCH":
            (made,) = body["spec"]["ephemeralContainers"]
            one["spec"].setdefault("ephemeralContainers", []).append(made)
            self._looks[name] = 0
        elif method == "DELETE":
            if body["preconditions"]["uid"] != one["metadata"]["uid"]:
                return status(409, "the UID in the precondition does not match")
            del self.pods[one["metadata"]["namespace"], name]
        elif added := one["spec"].get("ephemeralContainers"):
            look, self._looks[name] = self._looks[name], self._looks[name] + 1
            state = self.states[look] if look < len(self.states) else self.then
            seen = {"name": added[-1]["name"], "image": added[-1]["image"], "state": state}
            one["status"]["ephemeralContainerStatuses"] = [seen]
        return _json(one)

    def attach(self, target: str) -> Wire:
        found = _PATH.fullmatch(target)
        assert found is not None
        _namespace, name, resource, words = found.groups()
        assert resource == "attach"
        assert parse_qs(words)["stdin"] == ["true"]
        if reply := self.refuses.get(("GET", "attach")):
            raise RefusedWireError(reply)
        self.wires[name] = AgentWire(FakeAgent())
        return self.wires[name]

    @property
    def opened(self) -> Callable[[], tuple[FakePods, str]]:
        """What a search for the cluster finds."""
        return lambda: (self, "shop")


def status(code: int, message: str) -> Reply:
    """An answer of the API server's own."""
    return _json({"kind": "Status", "code": code, "message": message}, code)


def _json(value: object, code: int = 200) -> Reply:
    return Reply(code, "application/json", json.dumps(value).encode())
