"""The connections that a control endpoint keeps: a bound, and the oldest idle one ends when a new
one needs its place.

Strangers can open connections and say nothing. So a newcomer is turned away only while everyone
else is being answered.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass

from stormcast.node.admission import Bounds, in_the_way
from stormcast.node.descriptors import own_shares


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """Bounds on connections, and on the seconds that each may take."""

    connections: int

    per_address: int = 8
    """Of one client address: an API server, through which requests for a pod come, has a few."""

    first_byte: float = 2.0
    """From the connection to the first byte of its first request: a client connects to ask."""

    idle: float = 75.0
    """From an answer to the next request: longer than a scraper's interval of a minute."""

    request: float = 10.0
    """From the first byte of a request to its last, and the same for the client to take an
    answer."""

    @property
    def bounds(self) -> Bounds:
        """The bounds on the number of connections."""
        return Bounds(self.connections, self.per_address)


def control_limits() -> Limits:
    """Return the limits of a control endpoint, as many connections as this process can spare."""
    return Limits(connections=own_shares().control)


def probe_limits() -> Limits:
    """Return those of a listener for probes: kubelets connect anew for each question, and one
    address asks few at a time."""
    return Limits(connections=own_shares().probes, per_address=4, idle=10.0)


class Kept:
    """One connection that is kept."""

    __slots__ = ("address", "is_known", "is_working", "task", "transport")

    def __init__(
        self, address: str, task: asyncio.Task[None], transport: asyncio.WriteTransport
    ) -> None:
        self.address = address
        """The client's; "" on a unix socket."""
        self.task = task
        self.transport = transport
        self.is_known = False
        """Whether it has asked something for which strangers lack the token."""
        self.is_working = False
        """Whether its request has arrived whole and is being answered."""


class Connections:
    """All connections of one endpoint; those that are idle for longest come first."""

    def __init__(self, limits: Limits) -> None:
        self.limits = limits
        self.evicted = 0
        self._kept: dict[Kept, None] = {}

    def admit(self, one: Kept) -> bool:
        """Keep a connection, and end another one if there is no room; return False if every other
        is being answered."""
        kept_at = ((kept, kept.address) for kept in self._kept)
        others = in_the_way(kept_at, one.address, self.limits.bounds)
        if others:
            may_end = [kept for kept in others if not (kept.is_known and kept.is_working)]
            if not may_end:
                return False
            # Of equals the first, which is idle for longest.
            self._evict(min(may_end, key=lambda kept: (kept.is_working, kept.is_known)))
        self._kept[one] = None
        return True

    def _evict(self, kept: Kept) -> None:
        self.evicted += 1
        self.discard(kept)
        # Not `close`, which waits for a client that does not read.
        kept.transport.abort()
        kept.task.cancel()

    def rest(self, kept: Kept) -> None:
        """Note that a connection is idle from now on."""
        kept.is_working = False
        if kept in self._kept:
            del self._kept[kept]
            self._kept[kept] = None

    def discard(self, kept: Kept) -> None:
        """Forget a connection that has ended."""
        self._kept.pop(kept, None)

    def tasks(self) -> list[asyncio.Task[None]]:
        """Return the tasks that serve the connections."""
        return [kept.task for kept in self._kept]
