"""Connections to the ports of pods, kept and shared by several threads."""

from __future__ import annotations

from collections.abc import Callable
from threading import Lock
from typing import TYPE_CHECKING, Final

from stormcast.chaos.backends.pods.pod import Port

if TYPE_CHECKING:
    from urllib3 import HTTPConnectionPool

CONNECTIONS: Final = 4
"""To one port of one pod: a run asks from a few threads, and a keeper takes eight of an address."""


class Connections:
    """A pool of connections for each port."""

    def __init__(self, make: Callable[[Port], HTTPConnectionPool]) -> None:
        self._make = make
        self._pools: dict[Port, HTTPConnectionPool] = {}
        self._lock = Lock()

    def to(self, port: Port) -> HTTPConnectionPool:
        """Return the pool of a port, made when it is first needed."""
        with self._lock:
            if port not in self._pools:
                self._pools[port] = self._make(port)
            return self._pools[port]

    def close(self) -> None:
        """Close all connections that are not in use; new requests make new ones."""
        with self._lock:
            pools, self._pools = self._pools, {}
        for pool in pools.values():
            pool.close()
