"""Checks frames from the network, and gives each to its protocol.

Nothing passes from layer to layer: a frame names its protocol. If there are test protocols, the
frame first passes those that stand below its protocol.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import partial
from typing import TYPE_CHECKING, Final

from stormcast.node.core import wire
from stormcast.node.core.errors import BadFrame, RepeatedFrame
from stormcast.node.core.model import Payload
from stormcast.node.core.wire import GROUP, Head

if TYPE_CHECKING:
    from stormcast.node.keys.seals import Seals
    from stormcast.node.protocols.port import Port
    from stormcast.node.protocols.unicast import Unicast
    from stormcast.node.stack.group import Group
    from stormcast.node.stack.testing import TestProtocols
    from stormcast.node.stack.unreliable import Unreliable

Route = Callable[[Head, bytes, float], None]

NOT_TAKEN: Final = -1
"""Returned in place of a sender: there were good frames, or repeats of such, but no protocol of
this member took one. Their source does not show where their sender is, as anybody can have recorded
them."""
MOST_REPEATS: Final = 128
"""Repeated frames of one datagram that are skipped; a packet of 9,000 bytes has fewer. Each takes
time of the processor, and a datagram of 64 KiB could hold 600."""


class Receiver:
    """Takes datagrams for one member."""

    def __init__(
        self,
        port: Port,
        unicast: Unicast,
        unreliable: Unreliable,
        group: Group | None,
        test_protocols: TestProtocols,
        forget_remembered: Callable[[], None],
        seals: Seals | None = None,
    ) -> None:
        self.is_open = True
        self.refusal = ""
        """The reason for which the last bad frame was refused."""
        self._port = port
        self._unpack: Callable[[Payload, int], tuple[Head, bytes]] = port.codec.unpack_untrusted
        self._around = wire.HEAD_SIZE
        """Bytes of a frame besides those of its body."""
        if seals is not None:
            self._unpack = partial(seals.unpack_untrusted, port.codec)
            self._around += seals.overhead
            if group is not None:
                seals.on_view(())
        self._group = group
        self._unicast = unicast
        self._test_protocols = test_protocols
        self._forget_remembered = forget_remembered
        shared: dict[int, Route] = {wire.NONE: unreliable.receive}
        if group is not None:
            shared |= group.routes()
        self._group_routes = shared
        """By number of a protocol: the method that takes its frames for the group."""
        self._routes: dict[int, Route] = {unicast.protocol: unicast.receive} | shared
        """The same for frames to this member alone."""
        self._trusted = port.contacts.trusted

    def receive(self, datagram: Payload, now: float) -> int:
        """Take the frames of one datagram. What is not a frame for this member is counted, and
        changes nothing. Returns the short id of the sender of the last frame that was taken;
        NOT_TAKEN if none was, and 0 if no frame was good."""
        if not self.is_open:
            return 0
        at, end, source, repeats = 0, len(datagram), 0, 0
        while at < end:
            try:
                head, body = self._unpack(datagram, at)
                at += self._around + head.size
                source = source or NOT_TAKEN
                if self._accept(head, body, now):
                    source = head.source
            except RepeatedFrame as repeated:
                # Anybody can send it again, and that takes neither the frames behind it from this
                # member, nor the connection on which it came.
                self._port.drop(repeated.reason)
                at = repeated.end
                source = source or NOT_TAKEN
                repeats += 1
                if repeats == MOST_REPEATS:
                    break
            except BadFrame as bad:
                self.refusal = bad.reason
                self._port.drop(bad.reason)
                break
        if self._port.events:
            self._drain(now)
        if self._port.strangers.is_over:
            self._forget_strangers(now)
        return source

    def _forget_strangers(self, now: float) -> None:
        """Give up what is kept of strangers, until no more is kept than the budget admits."""
        strangers = self._port.strangers
        self._forget_remembered()
        for peer in strangers.senders():
            self._unicast.forget_stranger(peer, now)
            if self._group is not None:
                self._group.multicast.forget_stranger(peer)
            if not strangers.is_over:
                break

    def _accept(self, head: Head, body: bytes, now: float) -> bool:
        """Give a frame to its protocol; return whether there is one that takes it."""
        source = head.source
        me = self._port.me
        if head.dest == me:
            route = self._routes.get(head.protocol)
        elif head.dest == GROUP:
            route = self._group_routes.get(head.protocol)
        else:
            self._port.drop("other-destination")
            return False
        if source == me or not source:
            self._port.drop("bad-source")
            return False
        if route is None:
            self._port.drop("protocol")
            return False
        if self._test_protocols.is_on:
            self._count(head)
            self.pass_up(self._test_protocols.up(head, body, now), now)
        else:
            # As `_arrive`, but without a call: this is where every frame passes.
            if self._group is not None:
                if source not in self._trusted:
                    self._count(head)
                self._group.heard(head)
            route(head, body, now)
            if self._port.events:
                self._drain(now)
        return True

    def _count(self, head: Head) -> None:
        """Count a frame of a stranger: it may be answered by as much."""
        if self._group is not None and head.source not in self._trusted:
            self._port.contacts.heard(head.source, wire.HEAD_SIZE + head.size)

    def pass_up(self, frames: Iterable[tuple[Head, bytes]], now: float) -> None:
        """Give frames that test protocols let pass to their protocols: not only the one that just
        came, but also others that were held back. A bad frame must not stop the others."""
        for head, body in frames:
            routes = self._routes if head.dest == self._port.me else self._group_routes
            try:
                self._arrive(routes[head.protocol], head, body, now)
            except BadFrame as bad:
                self._port.drop(bad.reason)

    def _arrive(self, route: Route, head: Head, body: bytes, now: float) -> None:
        if self._group is not None:
            self._group.heard(head)
        route(head, body, now)
        if self._port.events:
            self._drain(now)

    def _drain(self, now: float) -> None:
        if self._group is not None:
            self._group.drain(now)
