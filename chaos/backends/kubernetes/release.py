"""A release of the chart: its member pods, their state, and the token of their keepers."""

from __future__ import annotations

import base64
import binascii
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final
from urllib.parse import quote

from stormcast.chaos.backends.base import BackendError
from stormcast.chaos.backends.kubernetes.api import Api
from stormcast.chaos.backends.kubernetes.pod_status import trouble_of
from stormcast.chaos.backends.pods.pod import AGENT, PORTS, Pod

NAME: Final = "app.kubernetes.io/name"
INSTANCE: Final = "app.kubernetes.io/instance"
COMPONENT: Final = "app.kubernetes.io/component"
MEMBER: Final = "member"
"""The component, and the name of the keeper's container."""
TOKEN_VOLUME: Final = "token"  # noqa: S105 the name of a volume
TOKEN_KEY: Final = "token"  # noqa: S105 the name of a key
TLS_VOLUME: Final = "tls"
"""The volume with the certificate of keepers and agents."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ReleasePod(Pod):
    """A pod of a release, as the API server sees it."""

    secret: str
    """The name of the Secret with the token of its keeper and agent."""
    trouble: str
    """The reason why its containers do not run; empty if they do."""


def find_release(api: Api, release: str = "") -> str:
    """Return the release's name if it has members; without a name, that of the only release."""
    found = api.pods(_selector({NAME: "stormcast", COMPONENT: MEMBER}))
    names = sorted({str(pod["metadata"]["labels"].get(INSTANCE, "")) for pod in found})
    where = f"in namespace {api.namespace}"
    if not names:
        raise BackendError(
            f"no member of stormcast runs {where}: helm install NAME helm/stormcast, or choose "
            "another namespace (STORMCAST_NAMESPACE)"
        )
    if release and release not in names:
        raise BackendError(f"release {release} has no members {where}; there is {', '.join(names)}")
    if not release and len(names) > 1:
        raise BackendError(
            f"{len(names)} releases have members {where}: {', '.join(names)}; set "
            "STORMCAST_RELEASE to one of them"
        )
    return release or names[0]


def member_pods(api: Api, release: str) -> list[ReleasePod]:
    """Return the member pods of a release, in order of their numbers. Others may have the labels,
    too, such as a copy that somebody made to look into a pod: they have other names."""
    found = api.pods(_selector({NAME: "stormcast", INSTANCE: release, COMPONENT: MEMBER}))
    own = re.compile(rf"{re.escape(release)}-stormcast-[0-9]+")
    pods = [_pod(one) for one in found if own.fullmatch(str(one["metadata"]["name"]))]
    return sorted(pods, key=lambda pod: pod.ordinal)


def choose_pods(
    pods: Sequence[ReleasePod], number: int, release: str, namespace: str
) -> list[ReleasePod]:
    """Return the first `number` pods; BackendError if there are fewer, or one does not run."""
    if len(pods) < number:
        raise BackendError(
            f"the scenario has {number} members, and release {release} {len(pods)} pods: "
            f"helm upgrade {release} helm/stormcast --namespace {namespace} --reuse-values "
            f"--set replicas={number}"
        )
    chosen = list(pods[:number])
    for pod in chosen:
        if pod.trouble:
            raise BackendError(f"pod {pod.name} does not run: {pod.trouble}")
    return chosen


def read_token(api: Api, pod: ReleasePod) -> str:
    """Read the token that keepers and agents require; BackendError if the Secret has none."""
    value = api.secret(pod.secret).get(TOKEN_KEY, "")
    try:
        token = base64.b64decode(value, validate=True).decode("ascii").strip()
    except (binascii.Error, UnicodeDecodeError):
        token = ""
    if not token:
        raise BackendError(
            f"Secret {pod.secret} in namespace {api.namespace} has no key {TOKEN_KEY}; keepers ask "
            "for it"
        )
    return token


def _selector(labels: Mapping[str, str]) -> str:
    return quote(",".join(f"{key}={value}" for key, value in labels.items()))


# -- Reading the API server's description of a pod -----------------------------------------------


def _pod(found: Mapping[str, Any]) -> ReleasePod:
    meta, spec, status = found["metadata"], found["spec"], found.get("status", {})
    name = str(meta["name"])
    containers = [*spec.get("initContainers", ()), *spec.get("containers", ())]
    named = {
        str(port["name"]): int(port["containerPort"])
        for container in containers
        for port in container.get("ports", ())
        if "name" in port
    }
    secrets = [
        str(volume["secret"]["secretName"])
        for volume in spec.get("volumes", ())
        if volume.get("name") == TOKEN_VOLUME and "secret" in volume
    ]
    addresses = tuple(str(one["ip"]) for one in status.get("podIPs", ()) if "ip" in one)
    return ReleasePod(
        name=name,
        ordinal=int(name.rpartition("-")[2]),
        addresses=addresses or tuple(filter(None, (status.get("podIP"),))),
        ports=PORTS | {key: port for key, port in named.items() if key in PORTS},
        has_agent=any(container["name"] == AGENT for container in containers),
        is_tls=any(volume.get("name") == TLS_VOLUME for volume in spec.get("volumes", ())),
        secret=secrets[0] if secrets else f"{name.rpartition('-')[0]}-token",
        trouble=trouble_of(meta, status),
        **_last_end(status),
    )


def _last_end(status: Mapping[str, Any]) -> dict[str, Any]:
    """Return how often the container of the keeper ended, and how at last. It is not always the
    first one: a service mesh puts its own before it."""
    for one in status.get("containerStatuses", ()):
        if one.get("name") == MEMBER:
            state = one.get("state", {})
            last = state.get("terminated") or one.get("lastState", {}).get("terminated") or {}
            # Not counted yet: the kubelet may wait for minutes before it starts the next one.
            is_down = bool(last) and "running" not in state
            return {
                "restarts": int(one.get("restartCount", 0)) + is_down,
                "last_code": int(last.get("exitCode", 0)),
                "last_reason": str(last.get("reason", "")),
            }
    return {}
