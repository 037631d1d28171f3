"""Keeps what turns lead to besides frames and deliveries, until it is taken."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple

from stormcast.node.core.model import Address, View
from stormcast.node.protocols.port import Abandoned

if TYPE_CHECKING:
    from stormcast.node.protocols.port import Port
    from stormcast.node.stack.before_leaving import BeforeLeaving
    from stormcast.node.stack.outbox import Outbox


class News(NamedTuple):
    """The results of turns besides frames and deliveries."""

    views: list[View]
    """Views that were installed, in order."""
    links: list[tuple[int, bool]]
    """Monitored connections to open (True) or to close, by peer."""
    located: list[Address]
    """Members that were named, and say where they are."""
    abandoned: list[Abandoned]
    """Messages that were accepted and have been given up."""
    proved: Sequence[Address] = ()
    """Strangers that were proved to be where they say."""
    doubted: Sequence[int] = ()
    """Short ids of strangers that proved it before, and have to prove it again."""


class PendingNews:
    """The news of one member that nobody has taken yet."""

    def __init__(self, port: Port, outbox: Outbox, before_leaving: BeforeLeaving) -> None:
        self.views: list[View] = []
        """Views that were installed since `take`, in order."""
        self._port = port
        self._outbox = outbox
        self._before_leaving = before_leaving

    def is_any(self) -> bool:
        """Whether `take` would return anything, or this member has left."""
        port = self._port
        return bool(
            self.views
            or self._outbox.has_abandoned
            or port.links
            or port.located
            or port.proved
            or port.doubted
            or self._before_leaving.has_left
        )

    def take(self) -> News:
        """Return the results since the last call, besides frames and deliveries."""
        port = self._port
        views, self.views = self.views, []
        links, port.links = port.links, []
        located, port.located = port.located, {}
        proved, port.proved = port.proved, []
        doubted, port.doubted = port.doubted, []
        abandoned = self._outbox.take_abandoned()
        return News(views, links, list(located.values()), abandoned, proved, doubted)
