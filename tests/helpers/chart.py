"""The Helm chart, rendered: its objects by kind, and what Helm says of values it does not take."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import yaml

ROOT = Path(__file__).parents[2]
CHART = ROOT / "helm" / "stormcast"
HELM = Path(sys.executable).with_name("helm")
RELEASE = "demo"
NAMESPACE = "stormcast"


class HelmError(Exception):
    """Helm would not: why."""


def helm(*words: object, text: str = "") -> str:
    """What Helm prints, given a text to read."""
    argv = [str(word) for word in (HELM, *words)]
    done = subprocess.run(argv, input=text, capture_output=True, text=True, check=False)
    if done.returncode:
        raise HelmError(done.stderr)
    return done.stdout


class Rendered(NamedTuple):
    """The objects of one release."""

    objects: list[dict[str, Any]]

    def of(self, kind: str) -> list[dict[str, Any]]:
        return [one for one in self.objects if one["kind"] == kind]

    def one(self, kind: str, component: str = "member") -> dict[str, Any]:
        """The only object of a kind and component."""
        (found,) = (one for one in self.of(kind) if component_of(one) == component)
        return found

    def pods(self) -> Iterator[dict[str, Any]]:
        """The pods, or the templates of pods, of everything that has one."""
        for one in self.objects:
            if one["kind"] == "Pod":
                yield one
            elif "template" in one.get("spec", {}):
                yield one["spec"]["template"]

    def containers(self) -> Iterator[tuple[dict[str, Any], dict[str, Any]]]:
        """Every container, and the pod that it is in."""
        for pod in self.pods():
            for one in (*pod["spec"].get("initContainers", []), *pod["spec"]["containers"]):
                yield one, pod

    def container(self, name: str) -> dict[str, Any]:
        (found,) = (one for one, _pod in self.containers() if one["name"] == name)
        return found

    def names(self) -> set[str]:
        """Of all containers."""
        return {one["name"] for one, _pod in self.containers()}

    def told(self, name: str) -> Any:
        """A file of what members and agents are told."""
        return yaml.safe_load(self.one("ConfigMap")["data"][name])


def component_of(one: Mapping[str, Any]) -> str:
    component: str = one["metadata"]["labels"]["app.kubernetes.io/component"]
    return component


def render(values: Mapping[str, Any] | None = None, *flags: object) -> Rendered:
    """The chart as it would be installed with some values."""
    return Rendered([one for one in yaml.safe_load_all(template(values, *flags)) if one])


def template(values: Mapping[str, Any] | None = None, *flags: object) -> str:
    """The same, as text."""
    words = ("template", RELEASE, CHART, "--namespace", NAMESPACE, "--values", "-", *flags)
    return helm(*words, text=yaml.safe_dump(values or {}))


def merged(one: Mapping[str, Any], other: Mapping[str, Any]) -> dict[str, Any]:
    """Two trees of values; the other one wins."""
    whole = dict(one)
    for key, value in other.items():
        known = whole.get(key)
        both = isinstance(known, dict) and isinstance(value, dict)
        whole[key] = merged(known, value) if both else value
    return whole
