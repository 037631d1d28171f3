"""A member, as its transport sees it."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from typing import Protocol

from stormcast.node.transports.interfaces import SocketAddress


class TransportOwner(Protocol):
    """Takes what arrives, and says who is meant."""

    loop: asyncio.AbstractEventLoop

    def now(self) -> float:
        """Monotonic seconds."""

    def receive(self, datagram: memoryview, now: float, /) -> int:
        """Take the frames of a datagram; returns the short id of who sent one that is good."""

    def turn(self, *, has_more: bool = False) -> None:
        """Let what was received take effect; there may be more that has arrived already."""

    def on_connection_lost(self, peer: int) -> None:
        """What was under way from and to a peer may be lost."""

    def hosts(self) -> Iterable[SocketAddress]:
        """Where discovery says that members may be."""

    def destinations(self) -> tuple[int, ...]:
        """Who is meant by the group: members, and those of a view that is on its way."""

    def want_address(self, peer: int) -> None:
        """Nobody knows where a peer is: discovery should ask."""

    def say(self, line: str) -> None:
        """Tell who runs this member, once per change."""
