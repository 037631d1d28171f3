"""The claim of an agent on the networks that it works on: on each of them one agent acts at a time.

The tables of two agents have names of their own, but both set marks of the same numbers, and a
device has one qdisc, a network one queue of our number. So a second agent would end faults of the
first one, which nobody would notice. The claim is the name of a unix socket in each network: the
kernel keeps such names apart by network, and frees them when their process ends.
"""

from __future__ import annotations

import asyncio
import errno
import socket
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Final

from stormcast.chaos.drivers.base import DriverError, Site
from stormcast.chaos.drivers.netlink import NetlinkError, inside

NAME: Final = "stormcast-agent"
WAIT_SECONDS: Final = 2.0
"""Seconds that another agent may keep the claim without acting: to try its features takes one."""
POLL_SECONDS: Final = 0.05
OWN: Final = Path("/proc/self/ns/net")


class NetworkClaim:
    """The right of one agent to act on the networks of its sites."""

    def __init__(self, sites: Sequence[Site], name: str = NAME) -> None:
        self._sites = tuple(sites)
        # The zero byte makes it an abstract name, which has no file.
        self._address = f"\0{name}"
        self._held: ExitStack | None = None

    @property
    def is_held(self) -> bool:
        """Whether this agent has it."""
        return self._held is not None

    async def take(self) -> None:
        """Take the claim, unless this agent has it; DriverError if another agent keeps it on one of
        these networks."""
        until = asyncio.get_running_loop().time() + WAIT_SECONDS
        while self._held is None and (taken := self._try()) is not None:
            if asyncio.get_running_loop().time() > until:
                raise DriverError(
                    f"another agent acts on the network of {taken}; end the attack, or the run, "
                    "that it acts for, or wait until that is over"
                )
            await asyncio.sleep(POLL_SECONDS)

    def give_back(self) -> None:
        """Let other agents act. May be called at any time, and twice."""
        if self._held is not None:
            self._held.close()
            self._held = None

    def _try(self) -> str | None:
        """Take all networks or none; returns the site of one that another agent has."""
        networks: set[tuple[int, int]] = set()
        with ExitStack() as held:
            for site in self._sites:
                space = Path(site.netns) if site.netns is not None else None
                try:
                    found = (space or OWN).stat()
                    # Sites may share a network.
                    if (network := (found.st_dev, found.st_ino)) in networks:
                        continue
                    made = inside(space, self._bound)
                except (OSError, NetlinkError) as error:
                    why = error.strerror if isinstance(error, OSError) else error
                    raise DriverError(
                        f"the network of {site.name} cannot be claimed: {why}"
                    ) from None
                if made is None:
                    return site.name
                held.enter_context(made)
                networks.add(network)
            self._held = held.pop_all()
        return None

    def _bound(self) -> socket.socket | None:
        """Return a socket of that name in this thread's network; None: there is one."""
        made = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM | socket.SOCK_CLOEXEC)
        try:
            made.bind(self._address)
        except OSError as error:
            made.close()
            if error.errno != errno.EADDRINUSE:
                raise
            return None
        return made
