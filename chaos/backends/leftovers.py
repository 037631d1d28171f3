"""What killed runs have left on this machine, for each backend that may leave anything."""

from __future__ import annotations

import os
import shutil
from contextlib import closing

from stormcast.chaos.backends.base import BackendError
from stormcast.chaos.backends.by_name import NETNS


def leftovers_of(backend: str) -> list[str]:
    """Return a line for each thing that is left of killed runs of a backend; NodeError if it
    cannot be looked for."""
    return _clean_netns(remove=False) if backend == NETNS else _clean_docker(remove=False)


def clean(backend: str) -> list[str]:
    """Remove what is left of killed runs of a backend, and return a line for each thing; NodeError
    if it cannot be looked for."""
    return _clean_netns(remove=True) if backend == NETNS else _clean_docker(remove=True)


def may_have_docker() -> bool:
    """Whether anybody can have run containers from here."""
    return bool(os.environ.get("DOCKER_HOST") or shutil.which("docker") or shutil.which("dockerd"))


def _clean_netns(*, remove: bool) -> list[str]:
    from stormcast.chaos.backends.netns import leftovers as netns  # noqa: PLC0415 only where there is netns
    from stormcast.chaos.backends.netns.running import what_is_missing  # noqa: PLC0415 as above

    if why := what_is_missing():
        # Without the programs nothing can be looked for.
        raise BackendError(why)
    return netns.clean() if remove else netns.leftovers().names()


def _clean_docker(*, remove: bool) -> list[str]:
    from stormcast.chaos.backends.docker import leftovers as docker  # noqa: PLC0415 its library takes a while
    from stormcast.chaos.backends.docker.daemon import open_daemon  # noqa: PLC0415 as above

    with closing(open_daemon()) as daemon:
        found = docker.leftovers(daemon)
        if remove:
            docker.remove(daemon, found)
        return found.names()
