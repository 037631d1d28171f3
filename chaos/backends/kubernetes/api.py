"""The API server, as far as this backend needs it: list pods, read a Secret, and ask ports of pods.

Requests are made by hand over the connection pool of the `kubernetes` package, which can find a
cluster and authenticate. Every error is one line with its remedy.
"""

from __future__ import annotations

import time
from dataclasses import replace
from pathlib import Path
from typing import Any, Final, Protocol

import yaml

from stormcast.chaos.agent.lines import Wire
from stormcast.chaos.backends.base import BackendError
from stormcast.chaos.backends.kubernetes.attached import AttachedWire
from stormcast.chaos.backends.pods.http_pool import (
    MAX_REPLY,
    Request,
    UnreachableError,
    send,
    short,
)
from stormcast.chaos.backends.pods.pod import TIMEOUT_SECONDS, Port, Way
from stormcast.node.control.client import Reply
from stormcast.node.core.names import one_line

OF_POD: Final = Path("/var/run/secrets/kubernetes.io/serviceaccount")
"""The folder in a pod with the credentials of its service account."""
DEFAULT_NAMESPACE: Final = "default"
_SHOWN: Final = 200
_UNAUTHORIZED: Final = 401
_FORBIDDEN: Final = 403
_NOT_FOUND: Final = 404
_TOO_MANY: Final = 429
AGAIN: Final = 3
"""Retries of a request that the API server turned away, having too much to do (429)."""
AWAY_SECONDS: Final = 0.5
"""Seconds before each retry: all retries of a request together take less than a lease."""
_RIGHTS: Final = "the chart's Role has"
_VERBS: Final = {"GET": "get", "POST": "create", "PUT": "update", "DELETE": "delete"}


def name_of(port: Port) -> str:
    """Return the name by which the API server, and the rules of a Role, know a port of a pod."""
    return f"{'https:' if port.is_tls else ''}{port.pod}:{port.number}"


class ApiServer(Protocol):
    """Sends requests to the API server; UnreachableError when it does not answer, TooLongError when
    its answer has too many bytes."""

    host: str

    def request(self, request: Request) -> Reply: ...


class AttachingServer(ApiServer, Protocol):
    """An API server that also connects its clients with containers."""

    def attach(self, target: str) -> Wire:
        """Return a wire to the standard input and output of a container; BackendError, or
        RefusedWireError, if there is none."""
        ...


class Api:
    """Questions to the API server about one namespace, and to its pods."""

    def __init__(self, server: ApiServer, namespace: str, way: Way | None = None) -> None:
        self.namespace = namespace
        self._server = server
        self._way = way
        """To the ports of pods; None: through the API server."""

    def pods(self, selector: str) -> list[dict[str, Any]]:
        """Return the pods with these labels."""
        path = f"/api/v1/namespaces/{self.namespace}/pods?labelSelector={selector}"
        found = self._get(path, "list", "pods")
        items: list[dict[str, Any]] = found.get("items", [])
        return items

    def secret(self, name: str) -> dict[str, str]:
        """Return the values of a Secret, in base64 as they are kept."""
        path = f"/api/v1/namespaces/{self.namespace}/secrets/{name}"
        data: dict[str, str] = self._get(path, "get", "secrets").get("data") or {}
        return data

    def _get(self, path: str, verb: str, what: str) -> dict[str, Any]:
        reply = asked(self._server, Request("GET", path, None, {}, TIMEOUT_SECONDS, MAX_REPLY))
        return value_of(reply, self._server.host, verb, what, self.namespace, _RIGHTS)

    def send(self, port: Port, request: Request) -> Reply:
        """Send one request to a port of a pod (see `Way`)."""
        if self._way is not None:
            return self._way.send(port, request)
        path = f"/api/v1/namespaces/{self.namespace}/pods/{name_of(port)}/proxy{request.target}"
        reply = _patiently(self._server, replace(request, target=path))
        if reply.status == _TOO_MANY:
            raise UnreachableError(f"{port.pod} port {port.number}: the API server is busy")
        status = _status_of(reply)
        if status is None:
            return reply
        if reply.status in (_UNAUTHORIZED, _FORBIDDEN):
            verb = _VERBS.get(request.method, request.method)
            said = refusal(reply, self._server.host, verb, "pods/proxy", self.namespace, _RIGHTS)
            raise BackendError(said)
        raise UnreachableError(f"{port.pod} port {port.number}: {status}")


def asked(server: ApiServer, request: Request) -> Reply:
    """Return the API server's answer to a question of its own; BackendError if there is none."""
    try:
        return _patiently(server, request)
    except UnreachableError as error:
        raise BackendError(
            f"no cluster answers at {server.host}: {error}; is KUBECONFIG the right one?"
        ) from None


def value_of(
    reply: Reply, host: str, verb: str, what: str, namespace: str, rights: str
) -> dict[str, Any]:
    """Return what a good answer says; BackendError for any other (see `refusal`)."""
    value = reply.value()
    if not reply.is_ok or not isinstance(value, dict):
        raise BackendError(refusal(reply, host, verb, what, namespace, rights))
    return value


def refusal(reply: Reply, host: str, verb: str, what: str, namespace: str, rights: str) -> str:
    """Return why the API server refused, with the remedy; `rights`: where the rights are named that
    are enough."""
    said = _status_of(reply) or one_line(reply.text, _SHOWN)
    where = f"namespace {namespace}"
    if reply.status == _UNAUTHORIZED:
        return f"the cluster at {host} does not know who asks: log in anew ({said})"
    if reply.status == _FORBIDDEN:
        return f"you may not {verb} {what} in {where}: have the rights that {rights} ({said})"
    if reply.status == _NOT_FOUND:
        return f"{said or what} in {where}; is the namespace the right one?"
    return f"{verb} {what} in {where}: {reply.status} {said}"


def _patiently(server: ApiServer, request: Request) -> Reply:
    """Send a request to the API server, and again if the server turns it away: then it has reached
    nobody. No pod answers with that status."""
    reply = server.request(request)
    for _turn in range(AGAIN):
        if reply.status != _TOO_MANY:
            break
        time.sleep(AWAY_SECONDS)
        reply = server.request(request)
    return reply


def _status_of(reply: Reply) -> str | None:
    """Return the API server's own error message; None for success, or an answer of the pod."""
    if reply.is_ok or b'"Status"' not in reply.body:
        return None
    value = reply.value()
    if not isinstance(value, dict) or value.get("kind") != "Status":
        return None
    return one_line(value.get("message") or value.get("reason") or reply.status)


# -- Which cluster -------------------------------------------------------------------------------


def open_api(kubeconfig: str = "") -> tuple[AttachingServer, str]:
    """Return the API server and its default namespace, as configured by the file `kubeconfig`, the
    pod that this runs in, or else the usual places of a kubeconfig."""
    try:
        # Imported only here: it takes half a second, and only this backend needs it.
        from kubernetes.client import Configuration  # noqa: PLC0415 slow to import, and optional
        from kubernetes.config import (  # noqa: PLC0415 slow to import, and optional
            ConfigException,
            list_kube_config_contexts,
            load_incluster_config,
            load_kube_config,
        )
    except ImportError:
        raise BackendError(
            "the package kubernetes is not installed: pip install stormcast[chaos]"
        ) from None
    settings = Configuration()
    try:
        if not kubeconfig and (OF_POD / "token").exists():
            load_incluster_config(client_configuration=settings)  # type: ignore[no-untyped-call]
            return _Pool(settings), (OF_POD / "namespace").read_text().strip()
        load_kube_config(kubeconfig or None, client_configuration=settings)  # type: ignore[no-untyped-call]
        _all, active = list_kube_config_contexts(kubeconfig or None)  # type: ignore[no-untyped-call]
    except (ConfigException, yaml.YAMLError, OSError, ValueError, TypeError) as error:
        said = one_line(error)
        raise BackendError(
            f"no cluster is configured: {said}; set KUBECONFIG to a file that names one"
        ) from None
    namespace = (active or {}).get("context", {}).get("namespace") or DEFAULT_NAMESPACE
    return _Pool(settings), namespace


class _Pool:
    """Connections to the API server, for several threads."""

    def __init__(self, settings: Any) -> None:  # noqa: ANN401 the package has no types
        from kubernetes.client.rest import RESTClientObject  # noqa: PLC0415 slow to import, and optional

        settings.retries = False
        self.host: str = settings.host
        self._settings = settings
        self._pool = RESTClientObject(settings).pool_manager

    def request(self, request: Request) -> Reply:
        from urllib3.exceptions import HTTPError  # noqa: PLC0415 slow to import, and optional

        proof = {auth["key"]: auth["value"] for auth in self._settings.auth_settings().values()}
        try:
            proven = replace(request, headers={**request.headers, **proof})
            return send(self._pool, self.host, proven)
        except HTTPError as error:
            raise UnreachableError(short(error)) from None
        except ValueError:
            # Its text has the header, and so the token.
            raise BackendError(
                f"the cluster at {self.host} cannot be asked: the token has a line break, or the "
                "address a character that none can have; mend the file that KUBECONFIG names"
            ) from None

    def attach(self, target: str) -> Wire:
        return AttachedWire(self._settings, self.host + target)
