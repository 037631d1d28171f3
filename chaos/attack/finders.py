"""Finds targets by the words that people name them with.

A word may begin with its kind: `container:web`. Without a kind it is looked for among all that have
names on this machine, and must mean one thing. No cluster is asked unless a word says so.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from functools import cached_property
from pathlib import Path
from typing import Any, Final

from stormcast.chaos.attack.pods import LABEL, POD, Pods
from stormcast.chaos.attack.targets import (
    Target,
    TargetError,
    check_process,
    processes_in,
    word_of,
)
from stormcast.chaos.backends.base import BackendError
from stormcast.chaos.backends.docker.daemon import Daemon, open_daemon
from stormcast.chaos.backends.docker.leftovers import RUN
from stormcast.chaos.backends.leftovers import may_have_docker
from stormcast.chaos.backends.run_id import RunId
from stormcast.node.core.errors import did_you_mean

NAMESPACES: Final = Path("/run/netns")
SERVICE: Final = "com.docker.compose.service"
PROJECT: Final = "com.docker.compose.project"
KINDS: Final = {
    "member": "a member of a run on this machine, in namespaces or in docker",
    "container": "a container, by its name or id",
    "compose": "a service of docker compose, SERVICE or PROJECT/SERVICE: all its containers",
    "netns": "a network namespace, by its name or path",
    "pid": "a process, by its number",
    POD: "a pod of the cluster of KUBECONFIG, NAME or NAMESPACE/NAME",
    LABEL: "all pods with these labels, KEY=VALUE[,KEY=VALUE] or NAMESPACE/KEY=VALUE",
}
"""Each kind of target, and what a word of it names."""


class Finder:
    """Looks for targets on this machine, and in a cluster. What docker knows is asked for once."""

    def __init__(
        self, daemon: Callable[[], Daemon] = open_daemon, pods: Pods | None = None
    ) -> None:
        self._open_daemon = daemon
        self.pods = Pods() if pods is None else pods
        self._found: dict[str, Target] = {}
        """By the word of a network state."""

    def close(self) -> None:
        """Close the connections to the daemon, if there are any."""
        if (daemon := self.__dict__.pop("_daemon", None)) is not None:
            daemon.close()

    def find(self, word: str) -> list[Target]:
        """Return what a word means: one target, or those of a service. TargetError if it means
        nothing, or more than one thing."""
        kind, colon, name = word.partition(":")
        if colon and kind in KINDS:
            if kind in _OF_DOCKER and self._daemon is None:
                # For its error, which says what to do.
                self._open_daemon()
            found = self._of_kind(kind, name)
            if not found:
                raise TargetError(f"{word}: there is no such {_NOUNS[kind]}{self._hint(name)}")
            return [self._kept(target) for target in found]
        meant = [(kind, found) for kind in _WITH_NAMES if (found := self._of_kind(kind, word))]
        if not meant:
            raise TargetError(
                f"{word}: nothing here has this name{self._hint(word)}; write "
                f"{', '.join(f'{kind}:…' for kind in KINDS)}"
            )
        spaces = {tuple(sorted(one.space for one in found)) for _kind, found in meant}
        if len(spaces) > 1:
            ways = ", ".join(f"{kind}:{word} ({found[0].what})" for kind, found in meant)
            raise TargetError(f"{word} may mean several things: write one of {ways}")
        return [self._kept(target) for target in meant[0][1]]

    def near(self, targets: Sequence[Target]) -> list[Target]:
        """Return the neighbours of targets, without these; TargetError if there are none."""
        if targets[0].pod is not None:
            raise self.pods.no_neighbours(targets)
        there = {target.space for target in targets}
        found: list[Target] = []
        for target in targets:
            for word in target.near:
                for other in self.find(word):
                    if other.space not in there:
                        there.add(other.space)
                        found.append(other)
        if not found:
            raise TargetError(
                f"nothing is known to be near {', '.join(one.what for one in targets)}; name both "
                "sides, such as: a -- b"
            )
        return found

    def processes_now(self, target: Target) -> Sequence[int]:
        """Return the processes of a target as they are now."""
        if target.container and self._daemon is not None:
            return self._daemon.processes(target.container)
        if target.is_space:
            return processes_in(Path(target.netns))
        return target.pids

    def _kept(self, target: Target) -> Target:
        """Return the target under a word that no other one has."""
        for known in self._found.values():
            if known == target or (known.what == target.what and known.space == target.space):
                return known
        word = word_of(target.word, self._found)
        self._found[word] = replace(target, word=word)
        return self._found[word]

    def _of_kind(self, kind: str, name: str) -> list[Target]:
        if not name:
            example = f"{kind}:app=web" if kind == LABEL else f"{kind}:a"
            raise TargetError(f"{kind}: it takes a name, such as {example}")
        finders: Mapping[str, Callable[[str], list[Target]]] = {
            "member": self._members,
            "container": self._containers_named,
            "compose": self._service,
            "netns": _namespaces,
            "pid": _processes,
            POD: self.pods.named,
            LABEL: self.pods.selected,
        }
        return finders[kind](name)

    def _hint(self, name: str) -> str:
        return did_you_mean(name, sorted(set(self._names())))

    def _names(self) -> Iterator[str]:
        if NAMESPACES.is_dir():
            for path in NAMESPACES.iterdir():
                run = RunId.parse(path.name)
                yield path.name if run is None else path.name.removeprefix(f"{run}-")
        for one in self._containers:
            yield from (name.lstrip("/") for name in one["Names"])
            if service := (one.get("Labels") or {}).get(SERVICE):
                yield service

    # -- Members ---------------------------------------------------------------------------------

    def _members(self, name: str) -> list[Target]:
        """Return the members of this name, of all runs whose process lives."""
        found = []
        for run, member, path in _spaces_of_runs():
            if member == name:
                near = [
                    f"netns:{other_path.name}"
                    for other, other_member, other_path in _spaces_of_runs()
                    if other == run and other_member not in (member, "bridge")
                ]
                what = f"member {name} of run {run}"
                found.append(_of_space(name, what, path, near))
        for one in self._containers:
            of = RunId.parse((one.get("Labels") or {}).get(RUN, ""))
            if of is not None and f"/{of}-{name}" in one["Names"]:
                found += self._target(one, f"member {name} of run {of}", name)
        if len(found) > 1:
            ways = ", ".join(one.what for one in found)
            raise TargetError(f"{name} is a member of several runs: {ways}; name its namespace")
        return found

    # -- Docker ----------------------------------------------------------------------------------

    @cached_property
    def _daemon(self) -> Daemon | None:
        """The daemon; None where nobody runs one."""
        if not may_have_docker():
            return None
        try:
            return self._open_daemon()
        except BackendError:
            return None

    @cached_property
    def _containers(self) -> list[dict[str, Any]]:
        """All containers that run."""
        if self._daemon is None:
            return []
        return [one for one in self._daemon.containers() if one["State"] == "running"]

    def _containers_named(self, name: str) -> list[Target]:
        return [
            target
            for one in self._containers
            if f"/{name}" in one["Names"] or (len(name) >= _SHORT and one["Id"].startswith(name))
            for own in [one["Names"][0].lstrip("/")]
            for target in self._target(one, f"container {own}", own)
        ]

    def _service(self, name: str) -> list[Target]:
        project, slash, service = name.rpartition("/")
        found = []
        for one in self._containers:
            labels = one.get("Labels") or {}
            if labels.get(SERVICE) == service and (not slash or labels.get(PROJECT) == project):
                own = one["Names"][0].lstrip("/")
                found += self._target(one, f"container {own} of service {service}", own)
        projects = {self._project(one, service) for one in self._containers} - {None}
        if not slash and len(projects) > 1:
            ways = ", ".join(f"compose:{one}/{service}" for one in sorted(filter(None, projects)))
            raise TargetError(f"{service} is a service of several projects: write one of {ways}")
        return found

    @staticmethod
    def _project(container: Mapping[str, Any], service: str) -> str | None:
        labels = container.get("Labels") or {}
        return labels.get(PROJECT) if labels.get(SERVICE) == service else None

    def _target(self, container: Mapping[str, Any], what: str, word: str) -> list[Target]:
        assert self._daemon is not None
        space = self._daemon.network_of(container["Id"])
        if not Path(space).exists():
            raise TargetError(f"{what} runs on another machine; run this command there, as root")
        return [
            Target(
                word=word,
                what=what,
                netns=space,
                pids=tuple(self._daemon.processes(container["Id"])),
                container=container["Id"],
                near=tuple(self._beside(container)),
            )
        ]

    def _beside(self, container: Mapping[str, Any]) -> Iterator[str]:
        """Yield the other containers of a container's networks."""
        own = _networks(container)
        for other in self._containers:
            if other["Id"] != container["Id"] and own & _networks(other):
                yield f"container:{other['Names'][0].lstrip('/')}"


_SHORT: Final = 6
"""The fewest characters of a container's id by which it may be named."""
_OF_DOCKER: Final = ("container", "compose")
_WITH_NAMES: Final = ("member", "compose", "container", "netns")
_NOUNS: Final = {
    "member": "member of a run that lives",
    "container": "container that runs",
    "compose": "service of compose with a container that runs",
    "netns": "network namespace",
    "pid": "process",
}


def _networks(container: Mapping[str, Any]) -> set[str]:
    found = (container.get("NetworkSettings") or {}).get("Networks") or {}
    return {one["NetworkID"] for one in found.values() if one.get("NetworkID")}


# -- Namespaces and processes --------------------------------------------------------------------


def _spaces_of_runs() -> Iterator[tuple[RunId, str, Path]]:
    """Yield run, member and path of the namespaces of runs whose process lives."""
    if not NAMESPACES.is_dir():
        return
    for path in sorted(NAMESPACES.iterdir()):
        run = RunId.parse(path.name)
        if run is not None and run.has_owner():
            yield run, path.name.removeprefix(f"{run}-"), path


def _namespaces(name: str) -> list[Target]:
    path = Path(name) if "/" in name else NAMESPACES / name
    if not path.exists():
        return []
    return [_of_space(path.name, f"network namespace {path.name}", path, ())]


def _of_space(word: str, what: str, path: Path, near: Iterable[str]) -> Target:
    return Target(
        word=word,
        what=what,
        netns=str(path),
        pids=processes_in(path),
        is_space=True,
        near=tuple(near),
    )


def _processes(name: str) -> list[Target]:
    if not name.isdigit():
        raise TargetError(f"pid:{name}: a process is named by its number")
    pid = int(name)
    check_process(pid)
    with suppress(OSError):
        Path(f"/proc/{pid}/ns/net").stat()
        return [
            Target(word=f"p{pid}", what=f"process {pid}", netns=f"/proc/{pid}/ns/net", pids=(pid,))
        ]
    raise TargetError(f"process {pid}: this user may not look at it; run this as root")
