"""The claim of an agent on the network that it is in: there one agent acts at a time.

The tables of two agents have names of their own, but both set marks of the same numbers, and a
device has one qdisc, a network one queue of our number. So a second agent would end faults of the
first one, which nobody would notice. The claim is the name of a unix socket: the kernel keeps such
names apart by network, and frees them when their process ends.
"""

from __future__ import annotations

import asyncio
import errno
import socket
from typing import Final

from stormcast.chaos.drivers.base import DriverError

NAME: Final = "stormcast-agent"
WAIT_SECONDS: Final = 2.0
"""Seconds that another agent may keep the claim without acting: to try its features takes one."""
POLL_SECONDS: Final = 0.05


class NetworkClaim:
    """The right of one agent to act on its own network."""

    def __init__(self, name: str = NAME) -> None:
        # The zero byte makes it an abstract name, which has no file.
        self._address = f"\0{name}"
        self._held: socket.socket | None = None

    async def take(self) -> None:
        """Take the claim, unless this agent has it; DriverError if another agent keeps it."""
        until = asyncio.get_running_loop().time() + WAIT_SECONDS
        while self._held is None and not self._try():
            if asyncio.get_running_loop().time() > until:
                raise DriverError(
                    "another agent acts on this network; end the attack, or the run, that it "
                    "acts for, or wait until that is over"
                )
            await asyncio.sleep(POLL_SECONDS)

    def give_back(self) -> None:
        """Let other agents act. May be called at any time, and twice."""
        if self._held is not None:
            self._held.close()
            self._held = None

    def _try(self) -> bool:
        made = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM | socket.SOCK_CLOEXEC)
        try:
            made.bind(self._address)
        except OSError as error:
            made.close()
            if error.errno != errno.EADDRINUSE:
                raise DriverError(f"this network cannot be claimed: {error.strerror}") from None
            return False
        self._held = made
        return True
