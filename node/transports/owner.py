"""A member, as its transport sees it."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from typing import Protocol

from stormcast.node.transports.interfaces import SocketAddress


class TransportOwner(Protocol):
    """Takes the frames that arrive, and tells its transport where members are."""

    loop: asyncio.AbstractEventLoop

    def now(self) -> float:
        """Monotonic seconds."""

    def receive(self, datagram: memoryview, now: float, /) -> int:
        """Take the frames of a datagram; return the sender's short id, 0 if none was good."""

    def on_refused(self, at: SocketAddress, kind: int, size: int) -> None:
        """Note that a datagram of that size from there was refused, whose first frame says it is of
        that kind."""

    def turn(self, *, has_more: bool = False) -> None:
        """Let what was received take effect; `has_more`: more may have arrived already."""

    def on_connection_lost(self, peer: int) -> None:
        """Note that frames from and to a peer may be lost."""

    def hosts(self) -> Iterable[SocketAddress]:
        """Return the addresses at which discovery expects members."""

    def destinations(self) -> tuple[int, ...]:
        """Return the short ids to which a frame for the group goes: members, and those of a view
        that is on its way."""

    def is_peer(self, short: int) -> bool:
        """Whether another one is in the view, or in one that is on its way; without a group
        everybody is."""

    def want_address(self, peer: int) -> None:
        """Have discovery ask where a peer is."""

    def say(self, line: str) -> None:
        """Give a line to the person who runs this member, once per change."""
