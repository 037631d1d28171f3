"""The hellos of one connection, in order. Without keys each end says one.

With keys a hello counts for the connection on which it was said, and for no other: each end draws a
nonce, which the other one must repeat under seal, and each hello says its role. So whoever has not
the key can hand hellos on, and nothing acts on them: the end that accepted believes the other one
with the third hello, PROVE, the end that dialled with the second.
"""

from __future__ import annotations

import os
from typing import Final

from stormcast.node.core.errors import BadFrame
from stormcast.node.core.model import Address
from stormcast.node.transports.handshake import (
    ACCEPT,
    DIAL,
    NONCE_SIZE,
    PLAIN,
    PROVE,
    WATCH,
    WATCHED,
    Hello,
)

CLEAR: Final = (PLAIN, PLAIN)
SEALED: Final = (DIAL, ACCEPT, PROVE)
WATCHING: Final = (WATCH, WATCHED)
"""The roles of the hellos that the two ends say by turns, the end that dialled first."""


class Exchange:
    """The progress of the hellos of one connection."""

    __slots__ = ("_drawn", "_heard", "_roles", "_step", "claimed")

    def __init__(self, roles: tuple[int, ...]) -> None:
        self._roles = roles
        self._step = 0
        self._drawn = b"" if roles is CLEAR else os.urandom(NONCE_SIZE)
        self._heard = b""
        self.claimed: Address | None = None
        """The member that the other end claims to be."""

    @property
    def is_over(self) -> bool:
        """Whether both ends have said all that they had to say."""
        return self._step == len(self._roles)

    def say(self, cluster: int, serial: int, own: Address) -> Hello:
        """Return the next hello of this end."""
        role = self._roles[self._step]
        self._step += 1
        return Hello(cluster, serial, own, role, self._drawn, self._heard)

    def take_untrusted(self, hello: Hello) -> bool:
        """Take the next hello of the other end; BadFrame if it was not said on this connection.
        Return whether it was the last of that end, which is now who it says it is."""
        step = self._step
        if hello.role != self._roles[step]:
            raise BadFrame("hello-role")
        if (step and hello.echo != self._drawn) or self.claimed not in (None, hello.address):
            raise BadFrame("hello-echo")
        self._heard, self.claimed = hello.nonce, hello.address
        self._step = step + 1
        return len(self._roles) - self._step <= 1
