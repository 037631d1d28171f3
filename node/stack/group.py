"""The protocols of one member's group: their life, their frames, and their time."""

from __future__ import annotations

from collections.abc import Callable
from random import Random
from typing import Any, Final

from stormcast.node.core import wire
from stormcast.node.core.model import View
from stormcast.node.core.timers import Timers
from stormcast.node.core.wire import Head
from stormcast.node.protocols.events import Role
from stormcast.node.protocols.flow import WindowsBelow
from stormcast.node.protocols.layer import MemberContext
from stormcast.node.protocols.multicast import Multicast
from stormcast.node.protocols.port import Port
from stormcast.node.settings import StackSettings
from stormcast.node.stack.events import Adopt, Events
from stormcast.node.stack.group_protocols import make_protocols

Route = Callable[[Head, bytes, float], None]

NO_SIGN_OF_LIFE: Final = frozenset({wire.DISCOVERY, wire.MERGE3, wire.FD_SOCK2})
"""Protocols that stand below the heartbeat detector, which therefore does not see their frames."""


class Group:
    """All protocols of a member except its unicast."""

    def __init__(
        self,
        settings: StackSettings,
        role: Role,
        port: Port,
        dice: Random,
        adopt: Adopt,
        places: WindowsBelow,
        make_multicast: Callable[..., Multicast] | None = None,
    ) -> None:
        self.role = role
        self.has_left = False
        self._port = port
        self._timers: Timers[tuple[int, str]] = Timers()
        around = wire.HEAD_SIZE + wire.SEAL_STRUCT.size + wire.SEAL_TAG
        largest_body = settings.transport_config.largest_frame - around
        context = MemberContext(role, port, self._timers, settings.timing, dice, largest_body)
        self.protocols = made = make_protocols(settings, context, places, make_multicast)
        self.multicast, self.gms, self.discovery = made.multicast, made.gms, made.discovery
        self.stable, self.fd_all = made.stable, made.fd_all
        self.flow = made.flow
        """Flow control, by the number of its protocol."""
        self._layers = made.layers
        self.events = Events(made, port, adopt, self.stop)
        self.drain = self.events.drain
        """The events' own method: pass on what protocols have to say, until nothing is left."""

    # -- Life ------------------------------------------------------------------------------------

    def start(self, now: float) -> None:
        """Begin to join."""
        for layer in self._layers.values():
            layer.start(now)

    def leave(self, now: float) -> None:
        """Begin to leave."""
        self.gms.leave(now)

    def stop(self, now: float) -> None:
        """End at once, unless this member has left, and so ended already."""
        if self.has_left:
            return
        for layer in self._layers.values():
            layer.stop(now)
        self.multicast.stop(now)
        self._timers.clear()
        self.has_left = True

    def install_by_hand(self, view: View, now: float) -> None:
        """Install a view that no membership protocol made."""
        self.gms.install_by_hand(view, now)

    # -- Frames ----------------------------------------------------------------------------------

    def routes(self) -> dict[int, Route]:
        """Return the methods that take frames, by number of the protocol."""
        routes: dict[int, Route] = {
            protocol: layer.receive for protocol, layer in self._layers.items()
        }
        routes[self.multicast.protocol] = self._receive_multicast
        return routes

    def _receive_multicast(self, head: Head, body: bytes, now: float) -> None:
        self.multicast.receive(head, body, now)
        if self.stable is not None and head.kind == wire.DATA:
            self.stable.on_multicast(head.count, head.size, now)

    def heard(self, head: Head) -> None:
        """Note, for FD_ALL3, that the sender of a frame is alive."""
        fd = self.fd_all
        if fd is not None and head.source in fd.tracked and head.protocol not in NO_SIGN_OF_LIFE:
            fd.heard.add(head.source)

    def multicast_sent(self, messages: int, size: int, now: float) -> None:
        """Note that this member multicast a batch: for FD_ALL3, which then needs no heartbeat, and
        for STABLE, which counts what is multicast."""
        if self.fd_all is not None:
            self.fd_all.mcast_sent = True
        if self.stable is not None:
            self.stable.on_multicast(messages, size, now)

    def multicast_blocked(self, now: float) -> None:
        """Have the window emptied soon: the outbox has multicasts that it does not admit."""
        self.multicast.on_blocked(now)
        if self.stable is not None:
            self.stable.hurry(now)

    def set_consuming(self, consuming: bool, now: float) -> int:  # noqa: FBT001 it is the whole message
        """Set whether the application takes deliveries. Returns how many multicasts waited."""
        waited = self.multicast.set_consuming(consuming, now)
        if waited and self.stable is not None:
            self.stable.on_taken(now)
        return waited

    def on_link(self, peer: int, is_up: bool, now: float) -> None:  # noqa: FBT001 the two ends of a link
        """React to a monitored connection that was made, refused or ended."""
        fd_sock = self.protocols.fd_sock
        if fd_sock is not None:
            fd_sock.on_link(peer, is_up, now)

    def destinations(self) -> tuple[int, ...]:
        """Return the members, and those of a view that is about to be installed, except this
        member."""
        return tuple(sorted((self.multicast.members | self.multicast.coming) - {self._port.me}))

    def is_peer(self, short: int) -> bool:
        """Whether a frame for the group goes to another one."""
        return short in self.multicast.members or short in self.multicast.coming

    # -- Time ------------------------------------------------------------------------------------

    def next_deadline(self) -> float:
        """Return when `tick` has something to do."""
        timers, others = self._timers, self.multicast.timers
        due = timers.next_deadline() if timers.is_moved else timers.earliest
        other = others.next_deadline() if others.is_moved else others.earliest
        return due if due < other else other

    def tick(self, now: float) -> None:
        """Do what is due."""
        if self.multicast.timers.earliest <= now:
            self.multicast.tick(now)
        for protocol, what in self._timers.take_due(now):
            layer = self._layers.get(protocol)
            if layer is not None and not self.has_left:
                layer.on_timer(what, now)
                # Events of one timer are passed on before the next: this member may have left.
                self.drain(now)

    def finish_turn(self, now: float) -> None:
        """Send the acks of this turn, and clear suspects that were heard."""
        if self.multicast.acks_now:
            self.multicast.finish_turn(now)
        if self.fd_all is not None and self.fd_all.suspects:
            self.fd_all.notice(now)

    # -- Promises and gauges ---------------------------------------------------------------------

    def bounds(self) -> dict[str, dict[str, Any]]:
        """Return what each protocol promises, by its name."""
        multicast = self.multicast.bounds()
        if self.stable is not None:
            multicast["purge_within"] = self.stable.purge_within()
        names = self.protocols.names
        promised = {names[self.multicast.protocol]: multicast}
        return promised | {
            names[protocol]: layer.bounds() for protocol, layer in self._layers.items()
        }

    def gauge(self, now: float) -> None:
        """Record how full everything bounded is (G5)."""
        self.multicast.gauge(now)
        for layer in self._layers.values():
            layer.gauge(now)
