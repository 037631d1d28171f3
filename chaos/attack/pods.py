"""Finds pods of a cluster: any that KUBECONFIG leads to, by name or by labels."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Mapping, Sequence
from functools import cached_property
from typing import Any, Final

from stormcast.chaos.attack.targets import BETWEEN, PodName, Target, TargetError
from stormcast.chaos.backends.base import BackendError
from stormcast.chaos.backends.kubernetes.any_pods import AnyPods, NoSuchPodError
from stormcast.chaos.backends.kubernetes.api import AttachingServer, open_api
from stormcast.chaos.backends.kubernetes.pod_status import trouble_of
from stormcast.chaos.backends.kubernetes.release_access import NAMESPACE_VARIABLE
from stormcast.node.core.errors import did_you_mean

POD: Final = "pod"
LABEL: Final = "label"
_SHOWN: Final = 5
"""Pods that an error lists."""
_NAMESPACE: Final = re.compile(r"[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?")
_NAME: Final = re.compile(r"[a-z0-9]([a-z0-9.-]{0,251}[a-z0-9])?")
_REQUIREMENT: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9._/-]*=[A-Za-z0-9._-]*")


class Pods:
    """The pods of a cluster, which is looked for when a target is first named."""

    def __init__(self, open_cluster: Callable[[], tuple[AttachingServer, str]] = open_api) -> None:
        """`open_cluster`: returns the API server, and the namespace of its context."""
        self._open = open_cluster

    @cached_property
    def cluster(self) -> AnyPods:
        """The pods of all namespaces."""
        return AnyPods(self._opened[0])

    @cached_property
    def _opened(self) -> tuple[AttachingServer, str]:
        server, namespace = self._open()
        return server, os.environ.get(NAMESPACE_VARIABLE) or namespace

    def named(self, text: str) -> list[Target]:
        """Return the pod NAME or NAMESPACE/NAME; TargetError if it is not there, or does not
        run."""
        first, slash, name = text.rpartition("/")
        namespace = self._namespace(first) if slash else self._opened[1]
        if not _NAME.fullmatch(name):
            raise TargetError(f"pod:{text}: a pod's name has small letters, digits, dashes, dots")
        try:
            found = self.cluster.get(namespace, name)
        except NoSuchPodError as error:
            raise TargetError(f"{error}{self._hint(namespace, name)}") from None
        if why := _why_not(found):
            raise TargetError(f"pod {namespace}/{name} cannot be attacked: {why}")
        return [_target(found)]

    def selected(self, text: str) -> list[Target]:
        """Return the pods with labels that run; TargetError if there is none."""
        first, slash, rest = text.partition("/")
        # The prefix of a label's key is a domain, such as app.kubernetes.io; a namespace has no
        # dot.
        is_namespace = bool(slash) and "." not in first and "=" not in first
        namespace = self._namespace(first) if is_namespace else self._opened[1]
        selector = rest if is_namespace else text
        if not all(map(_REQUIREMENT.fullmatch, selector.split(","))):
            raise TargetError(
                f"label:{text}: write KEY=VALUE[,KEY=VALUE], or NAMESPACE/KEY=VALUE, such as "
                "label:shop/app=web"
            )
        found = self.cluster.listed(namespace, selector)
        able = [pod for pod in found if not _why_not(pod)]
        if not able:
            raise TargetError(f"label:{text}: {self._none_of(namespace, selector, found)}")
        return [_target(pod) for pod in able]

    def no_neighbours(self, targets: Sequence[Target]) -> TargetError:
        """Return the error for pods that are attacked alone. Nothing tells which others they talk
        with, and each pod of an attack keeps a container of it, so none is taken unasked."""
        there = {target.pod for target in targets}
        pod = targets[0].pod
        assert pod is not None
        others = [one for one in self._targets_in(pod.namespace) if one.pod not in there]
        beside = ", ".join(f"{POD}:{one.pod}" for one in others[:_SHOWN]) or "no other pod"
        more = f" and {len(others) - _SHOWN} more" if len(others) > _SHOWN else ""
        return TargetError(
            f"name both sides, such as: {POD}:{pod} {BETWEEN} {LABEL}:app=db; pods have no "
            f"neighbours that an attack takes by itself (in namespace {pod.namespace} there is "
            f"{beside}{more})"
        )

    def _targets_in(self, namespace: str) -> list[Target]:
        try:
            found = self.cluster.listed(namespace)
        except BackendError:
            # Who may not list pods is told without a list.
            return []
        return [_target(pod) for pod in found if not _why_not(pod)]

    @staticmethod
    def _none_of(namespace: str, selector: str, found: Sequence[Mapping[str, Any]]) -> str:
        if not found:
            return f"no pod in namespace {namespace} has the labels {selector}"
        why = f"{found[0]['metadata']['name']}: {_why_not(found[0])}"
        return f"none of {len(found)} pods in namespace {namespace} can be attacked ({why})"

    @staticmethod
    def _namespace(text: str) -> str:
        if not _NAMESPACE.fullmatch(text):
            raise TargetError(f"{text}: a namespace has small letters, digits and dashes")
        return text

    def _hint(self, namespace: str, name: str) -> str:
        near = did_you_mean(name, [one.pod.name for one in self._targets_in(namespace) if one.pod])
        return f"; {near}" if near else ""


def _target(found: Mapping[str, Any]) -> Target:
    meta, status = found["metadata"], found.get("status", {})
    addresses = tuple(str(one["ip"]) for one in status.get("podIPs", ()))
    pod = PodName(str(meta["namespace"]), str(meta["name"]), str(meta["uid"]), addresses)
    return Target(word=pod.name, what=f"pod {pod}", pod=pod)


def _why_not(found: Mapping[str, Any]) -> str:
    """Return why a pod cannot be attacked; empty if it can. A container of it that crashes is no
    reason: its network is there."""
    meta, status = found["metadata"], found.get("status", {})
    if meta.get("deletionTimestamp") or status.get("phase") != "Running":
        why = trouble_of(meta, status)
        return why or f"it is {str(status.get('phase', 'unknown')).lower()}"
    if found.get("spec", {}).get("hostNetwork"):
        return "it is in the network of its node, on which no attack acts"
    if not status.get("podIPs"):
        return "it has no address yet"
    return ""
