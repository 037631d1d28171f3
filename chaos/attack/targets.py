"""What an attack is aimed at: processes, network namespaces, containers, members of runs, pods."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from itertools import chain, count
from pathlib import Path
from typing import Final

from stormcast.chaos.agent.device_addresses import read_addresses
from stormcast.chaos.backends.run_id import start_of
from stormcast.chaos.drivers.base import Site
from stormcast.chaos.faults import Names
from stormcast.node.core.errors import ConfigError, NodeError
from stormcast.node.core.names import MAX_NAME, as_name

ARROWS: Final = ("→", "->")
BETWEEN: Final = "--"
"""Stands between groups of targets."""
_OWN: Final = Path("/proc/self/ns/net")
_FIRST: Final = Path("/proc/1/ns/net")

Run = Callable[[Sequence[str], str], str]


class TargetError(ConfigError):
    """A target that is not there, or cannot be attacked; the text says what to name instead."""


@dataclass(frozen=True, slots=True)
class PodName:
    """A pod of a cluster, as it was when it was found."""

    namespace: str
    name: str
    uid: str
    """Tells it from one that takes its name later."""
    addresses: Names

    def __str__(self) -> str:
        return f"{self.namespace}/{self.name}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Target:
    """One thing that an attack may be aimed at."""

    word: str
    """What reports and network states call it."""
    what: str
    """What it is, in words for people."""
    netns: str = ""
    """The path of its network namespace; empty for a pod."""
    pod: PodName | None = None
    """The pod that it is; None: it runs on this machine."""
    pids: tuple[int, ...] = ()
    """Its processes, as they were when it was found."""
    container: str = ""
    """The id of the container that it is."""
    is_space: bool = False
    """Whether it is a namespace, with all processes in it."""
    near: tuple[str, ...] = field(default=(), compare=False)
    """Words that name its neighbours: the other members of its run, the other containers of its
    networks."""

    @property
    def space(self) -> tuple[int, int] | tuple[str, str]:
        """The identity of its network namespace."""
        if self.pod is not None:
            return "pod", self.pod.uid
        return _identity(Path(self.netns))


@dataclass(frozen=True, slots=True)
class Groups:
    """The targets of an attack as they were named: groups, or one direction."""

    groups: tuple[tuple[str, ...], ...]
    is_directed: bool = False
    """Whether what is meant is the way from the first group to the second, and not back."""


def read_groups(words: Iterable[str]) -> Groups:
    """Read the words of a command line: `a b -- c`, or `a→b`. ConfigError if there are none."""
    groups: list[list[str]] = [[]]
    for word in words:
        if word == BETWEEN:
            groups.append([])
            continue
        parts = _directed(word)
        if len(parts) == 1:
            groups[-1].append(word)
        elif groups == [[]]:
            return _one_way(parts, [other for other in words if other != word])
        else:
            raise ConfigError(f"{word}: a direction stands alone, such as a→b")
    if not all(groups):
        raise ConfigError("name targets on both sides of --, such as: partition a b -- c")
    named = [word for group in groups for word in group]
    if len(set(named)) < len(named):
        twice = next(word for word in named if named.count(word) > 1)
        raise ConfigError(f"{twice} is named twice")
    return Groups(tuple(map(tuple, groups)))


def _directed(word: str) -> list[str]:
    for arrow in ARROWS:
        if arrow in word:
            return word.split(arrow)
    return [word]


def _one_way(parts: list[str], others: list[str]) -> Groups:
    if len(parts) != 2 or not all(parts) or others or parts[0] == parts[1]:  # noqa: PLR2004 from, to
        raise ConfigError("write one direction as a→b (or 'a->b'), with nothing beside it")
    return Groups(((parts[0],), (parts[1],)), is_directed=True)


def check_together(targets: Sequence[Target]) -> None:
    """Refuse targets that no attack can have together: twice the same one, or pods with what runs
    on this machine, which have no addresses in common."""
    for number, target in enumerate(targets):
        if target in targets[:number]:
            raise TargetError(f"{target.what} is named twice")
    pods = [target for target in targets if target.pod is not None]
    if pods and len(pods) < len(targets):
        other = next(target for target in targets if target.pod is None)
        raise TargetError(
            f"{pods[0].what} and {other.what}: an attack is on pods, or on what runs on this "
            "machine; start one for each"
        )


def word_of(name: str, taken: Iterable[str] = ()) -> str:
    """Return a word that nothing else has for a thing of any name."""
    made, used = as_name(name, MAX_NAME - len("-999")), set(taken)
    return next(
        word
        for word in chain((made,), (f"{made}-{number}" for number in count(2)))
        if word not in used
    )


def sites_of(targets: Sequence[Target], run: Run) -> list[Site]:
    """Return where an agent acts on the network of each target; TargetError for a target in this
    machine's own network, or in that of another target."""
    own = {_identity(_OWN)}
    with suppress(PermissionError):
        own.add(_identity(_FIRST))
    seen: dict[tuple[int, int] | tuple[str, str], Target] = {}
    sites = []
    for target in targets:
        if target.space in own:
            raise TargetError(
                f"{target.what} is in this machine's own network, on which no attack acts; aim at "
                "a container or a network namespace"
            )
        if (other := seen.setdefault(target.space, target)) is not target:
            raise TargetError(
                f"{target.what} and {other.what} are in one network, so nothing between them "
                "passes where an attack acts; name one of them"
            )
        sites.append(_site(target, run))
    return sites


def _site(target: Target, run: Run) -> Site:
    try:
        told = run(("nsenter", f"--net={target.netns}", "ip", "-j", "addr"), "")
    except NodeError as error:
        raise TargetError(f"{target.what}: {error}") from None
    devices = [one for one in json.loads(told or "[]") if one.get("ifname") != "lo"]
    places = {one["ifname"]: read_addresses(json.dumps([one])) for one in devices}
    addresses = tuple(address for found in places.values() for address in found)
    if not addresses:
        raise TargetError(f"{target.what} has no address in its network; nobody can reach it")
    device = next(name for name, found in places.items() if found)
    return Site(name=target.word, addresses=addresses, device=device, netns=target.netns)


def processes_in(space: Path) -> tuple[int, ...]:
    """Return the processes whose network a namespace is."""
    wanted, found = _identity(space), []
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            if _identity(folder / "ns" / "net") == wanted:
                found.append(int(folder.name))
        except OSError:
            # It has ended, or is a process of the kernel.
            continue
    return tuple(sorted(found))


def _identity(path: Path) -> tuple[int, int]:
    found = path.stat()
    return found.st_dev, found.st_ino


def check_process(pid: int) -> None:
    """Refuse processes that no attack may end or stop: this one, those that it descends from, and
    the first of the machine."""
    if pid in (1, os.getpid()) or pid in _ancestors():
        raise TargetError(f"process {pid} runs this command, or the machine; aim at another one")
    if start_of(pid) is None:
        raise TargetError(f"there is no process {pid}")


def _ancestors() -> set[int]:
    found: set[int] = set()
    pid = os.getppid()
    while pid > 1 and pid not in found:
        found.add(pid)
        try:
            text = Path(f"/proc/{pid}/stat").read_text()
        except OSError:
            break
        pid = int(text[text.rindex(")") + 2 :].split()[1])
    return found
