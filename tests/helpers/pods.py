"""A cluster that is none: an API server in memory, whose pods are keepers on loopback."""

from __future__ import annotations

import base64
import http.client
import json
import re
import ssl
import sys
import time
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from pathlib import Path
from types import TracebackType
from typing import Any, Final, Self
from urllib.parse import unquote

from stormcast.chaos.backends.kubernetes.release import ReleasePod
from stormcast.chaos.backends.netns.process import Process, environment, until
from stormcast.chaos.backends.pods.http_pool import Request, UnreachableError
from stormcast.chaos.backends.pods.pod import PORTS
from stormcast.chaos.language.features import FEATURES
from stormcast.node.control.answers import Answer, as_json, parse_body
from stormcast.node.control.client import Reply
from tests.helpers.certificates import Files
from tests.helpers.endpoint import Endpoint
from tests.helpers.tokens import token_file

A_POD: Final = ReleasePod(
    name="demo-stormcast-0",
    ordinal=0,
    addresses=("10.0.0.1",),
    ports=PORTS,
    has_agent=False,
    is_tls=False,
    secret="",
    trouble="",
)
"""The first pod of a release, without an agent."""

TOKEN: Final = "0123456789abcdef-pods"  # noqa: S105 of a test
_PROXY: Final = re.compile(r"/api/v1/namespaces/([^/]+)/pods/(https:)?([^/:]+):(\d+)/proxy(/.*)")
_AGENT_PORT: Final = 7802


def address_of(number: int) -> str:
    """Where the member of a pod is: an address of loopback, so that all have one port."""
    return f"127.0.77.{number + 1}"


class FakeAgent:
    """Says yes, and keeps what it was told; nothing acts."""

    def __init__(self) -> None:
        self.id = "an-agent"
        self.lapses = 0
        self.states: list[str] = []
        self.until = 0.0
        self.renewals = 0
        self.bites: dict[str, dict[str, int]] = {}

    def answer(self, target: str, asked: Mapping[str, Any]) -> tuple[int, object]:
        if target == "/features":
            return 200, dict.fromkeys(FEATURES)
        if target == "/bites":
            return 200, self.bites
        if 0.0 < self.until < time.monotonic():
            self.until, self.lapses = 0.0, self.lapses + 1
            if target == "/renew":
                return 409, {"error": "the lease has lapsed"}
        if target == "/apply":
            self.states.append(asked["state"])
        if target == "/renew":
            self.renewals += 1
        if target == "/apply" or (target == "/renew" and self.until):
            self.until = time.monotonic() + asked["lease"]
        if target == "/clear":
            self.until = 0.0
        left = self.until - time.monotonic() if self.until else None
        return 200, {"agent": self.id, "lease": left, "lapses": self.lapses}

    def served(self, host: str, files: Files) -> Endpoint:
        """The same over TLS."""

        def answer(target: str) -> Callable[[object], Answer]:
            def say(body: object) -> Answer:
                status, value = self.answer(target, parse_body(body))
                return as_json(value, status)

            return say

        asked = dict.fromkeys(("/apply", "/renew", "/clear", "/release"), "POST")
        asked |= dict.fromkeys(("/features", "/state", "/bites"), "GET")
        table = {target: {method: answer(target)} for target, method in asked.items()}
        return Endpoint(table, token=TOKEN, tls=files.settings, host=host)


class FakeCluster:
    """A door to the API server of a cluster with one release. With a certificate its keepers and
    agents speak TLS, at the addresses of their pods."""

    host = "https://fake"

    def __init__(
        self, folder: Path, number: int, release: str = "demo", files: Files | None = None
    ) -> None:
        self.release = release
        self.agents = [FakeAgent() for _ in range(number)]
        self.troubles: dict[int, dict[str, Any]] = {}
        """Statuses of pods that do not run."""
        self.refused: dict[str, str] = {}
        """What the API server does not allow: resource to its message."""
        self.keepers: list[Process] = []
        self._folder = folder
        self._files = files
        self._undo = ExitStack()
        self._ports: list[int] = []
        self._agent_ports = [_AGENT_PORT] * number
        self._default = folder / "member.yaml"

    def __enter__(self) -> Self:
        self._default.write_text("stack: tcp\nprotocols: {TCP: {bind_port: 0}}\n")
        for number in range(len(self.agents)):
            self._keep(number)
        for number in range(len(self.agents)):
            until(lambda n=number: self._port(n) > 0, 20.0, self.logs)  # type: ignore[misc]
        self._ports = [self._port(number) for number in range(len(self.agents))]
        if self._files is not None:
            self._agent_ports = [
                self._undo.enter_context(agent.served(address_of(number), self._files)).port
                for number, agent in enumerate(self.agents)
            ]
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._undo.close()
        for keeper in self.keepers:
            keeper.kill()

    def _keep(self, number: int) -> None:
        words = (
            sys.executable,
            "-m",
            "stormcast",
            "keep",
            "--folder",
            f"pod-{number}",
            "--listen",
            f"{self._host(number)}:0",
            "--token-file",
            str(token_file(self._folder, TOKEN)),
            "--config",
            str(self._default),
            "--start",
        )
        if self._files is not None:
            words += ("--certificate-file", str(self._files.certificate))
            words += ("--private-key-file", str(self._files.key))
        told = {"STORMCAST_BIND_ADDR": address_of(number)}
        told["STORMCAST_CLUSTER"] = f"default-{self._folder.name}"
        self.keepers.append(Process(words, self._folder, f"keeper-{number}", environment(told)))

    def start_keeper_again(self, number: int) -> None:
        """As a kubelet does with a container that has ended: its volumes are as they were."""
        self.keepers[number].kill()
        self.keepers[number].log.unlink()
        self._keep(number)
        self.keepers[number] = self.keepers.pop()
        until(lambda: self._port(number) > 0, 20.0, self.logs)
        self._ports[number] = self._port(number)

    def _port(self, number: int) -> int:
        found = re.search(r"listens on https?://127\.[\d.]+:(\d+)", self.keepers[number].tail(1000))
        return int(found[1]) if found else 0

    def _host(self, number: int) -> str:
        return "127.0.0.1" if self._files is None else address_of(number)

    def logs(self) -> str:
        return "\n".join(keeper.tail(30) for keeper in self.keepers)

    def keeper(self, number: int, target: str = "/state") -> Any:
        """What a keeper says of itself."""
        return self._to_keeper(number, "GET", target, None, TOKEN, 5.0).value()

    # -- The API server --------------------------------------------------------------------------

    def request(self, request: Request) -> Reply:
        reply = self._answer(
            request.method, request.target, request.body, request.headers, request.timeout
        )
        if request.into is None or not reply.is_ok:
            return reply
        request.into.write(reply.body)
        return Reply(reply.status, reply.kind, b"")

    def _answer(
        self,
        method: str,
        path: str,
        body: bytes | None,
        headers: Mapping[str, str],
        timeout: float,
    ) -> Reply:
        resource = next((word for word in ("proxy", "secrets", "pods") if word in path), "")
        if resource in self.refused:
            return _status(403, self.refused[resource])
        if proxied := _PROXY.fullmatch(path):
            _namespace, scheme, pod, port, target = proxied.groups()
            assert bool(scheme) == (self._files is not None)
            return self._proxy(pod, int(port), method, target, body, headers, timeout)
        if "/secrets/" in path:
            name = path.rpartition("/")[2]
            if name != f"{self.release}-stormcast-token":
                return _status(404, f'secrets "{name}" not found')
            return _json({"data": {"token": base64.b64encode(TOKEN.encode()).decode()}})
        wanted = dict(pair.split("=") for pair in unquote(path.partition("=")[2]).split(","))
        is_ours = wanted.get("app.kubernetes.io/instance", self.release) == self.release
        pods = [self._pod(number) for number in range(len(self.agents))]
        return _json({"kind": "PodList", "items": pods if is_ours else []})

    def _pod(self, number: int) -> dict[str, Any]:
        running = {
            "phase": "Running",
            "podIP": address_of(number),
            "podIPs": [{"ip": address_of(number)}],
            "containerStatuses": [{"name": "member", "state": {"running": {}}}],
        }
        port = self._ports[number] if self._ports else 7801
        return {
            "metadata": {
                "name": f"{self.release}-stormcast-{number}",
                "labels": {"app.kubernetes.io/instance": self.release},
            },
            "spec": {
                "initContainers": [
                    {
                        "name": "agent",
                        "ports": [{"name": "agent", "containerPort": self._agent_ports[number]}],
                    }
                ],
                "containers": [
                    {"name": "member", "ports": [{"name": "keeper", "containerPort": port}]}
                ],
                "volumes": [
                    {"name": "token", "secret": {"secretName": f"{self.release}-stormcast-token"}},
                    *([{"name": "tls", "secret": {}}] if self._files is not None else []),
                ],
            },
            "status": self.troubles.get(number, running),
        }

    def _proxy(
        self,
        pod: str,
        port: int,
        method: str,
        target: str,
        body: bytes | None,
        headers: Mapping[str, str],
        timeout: float,
    ) -> Reply:
        number = int(pod.rpartition("-")[2])
        token = headers.get("X-Stormcast-Token", "")
        if port == self._agent_ports[number]:
            assert token == TOKEN
            status, value = self.agents[number].answer(target, json.loads(body or b"{}"))
            return _json(value, status)
        return self._to_keeper(number, method, target, body, token, timeout)

    def _to_keeper(
        self,
        number: int,
        method: str,
        target: str,
        body: bytes | None,
        token: str,
        timeout: float,
    ) -> Reply:
        at = (self._host(number), self._ports[number])
        connection = http.client.HTTPConnection(*at, timeout=timeout)
        if self._files is not None:
            # As the API server does it: encrypted, and nothing verified.
            unverified = ssl._create_unverified_context()  # noqa: S323 so it is
            connection = http.client.HTTPSConnection(*at, timeout=timeout, context=unverified)
        try:
            connection.request(method, target, body, {"X-Stormcast-Token": token})
            answer = connection.getresponse()
            return Reply(answer.status, answer.getheader("Content-Type") or "", answer.read())
        except OSError as error:
            return _status(503, f"error trying to reach service: {error}")
        finally:
            connection.close()


class ShutDoor:
    """A way to nobody."""

    host = "https://nowhere:6443"

    def request(self, *_args: object) -> Reply:
        raise UnreachableError("connection refused")


def _json(value: object, status: int = 200) -> Reply:
    return Reply(status, "application/json", json.dumps(value).encode())


def _status(code: int, message: str) -> Reply:
    return _json({"kind": "Status", "code": code, "message": message}, code)
