"""Finds what runs in docker have left whose process was killed, and removes it: containers,
networks and volumes. They carry the name of their run, which tells the process that made them, and
a word for the machine on which it ran: a daemon may serve others, too."""

from __future__ import annotations

import platform
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from stormcast.chaos.backends.docker.daemon import MOST_AT_ONCE, Daemon
from stormcast.chaos.backends.run_id import RunId

RUN: Final = "stormcast.run"
HOST: Final = "stormcast.host"
_BOOT: Final = Path("/proc/sys/kernel/random/boot_id")
_PIDS: Final = Path("/proc/self/ns/pid")


def labels_of(run: RunId) -> dict[str, str]:
    """Return the labels of all that a run makes."""
    return {RUN: str(run), HOST: this_host()}


def this_host() -> str:
    """Return a word for this machine since it was started, and the processes that we see on it."""
    try:
        return f"{_BOOT.read_text().strip()} {_PIDS.readlink()}"
    except OSError:
        return platform.node()


@dataclass(frozen=True, slots=True)
class Left:
    """The names of what is left of some runs."""

    containers: tuple[str, ...] = ()
    networks: tuple[str, ...] = ()
    volumes: tuple[str, ...] = ()

    def names(self) -> list[str]:
        """Return a line for each thing."""
        return [
            *(f"container {name}" for name in self.containers),
            *(f"docker network {name}" for name in self.networks),
            *(f"docker volume {name}" for name in self.volumes),
        ]


def _has_no_owner(run: RunId) -> bool:
    return not run.has_owner()


def leftovers(daemon: Daemon, is_left: Callable[[RunId], bool] = _has_no_owner) -> Left:
    """Return what is left of all runs of this machine for which `is_left` is true: by default, of
    those whose process is gone."""
    here = this_host()

    def is_mine(labels: Mapping[str, str] | None) -> bool:
        labels = labels or {}
        run = RunId.parse(labels.get(RUN, ""))
        return run is not None and labels.get(HOST) == here and is_left(run)

    def names(found: Sequence[Mapping[str, Any]], name: Callable[[Any], str]) -> tuple[str, ...]:
        return tuple(sorted(name(one) for one in found if is_mine(one.get("Labels"))))

    return Left(
        containers=names(daemon.containers(RUN), lambda one: one["Names"][0].lstrip("/")),
        networks=names(daemon.networks(RUN), lambda one: one["Name"]),
        volumes=names(daemon.volumes(RUN), lambda one: one["Name"]),
    )


def remove(daemon: Daemon, left: Left) -> None:
    """Remove these things: what needs another thing goes before it."""
    with ThreadPoolExecutor(MOST_AT_ONCE, thread_name_prefix="docker") as threads:
        for do, names in (
            (daemon.remove_container, left.containers),
            (daemon.remove_network, left.networks),
            (daemon.remove_volume, left.volumes),
        ):
            list(threads.map(do, names))
