"""The protocols of one member's group: makes them, and passes events from one to others.

Protocols know nothing of each other. They enqueue events, and only `on_event` passes an event on:
read it to see how a suspicion leads to a view, and a view to windows.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from random import Random
from typing import Any, Final

from stormcast.node.core import wire
from stormcast.node.core.model import View
from stormcast.node.core.timers import Timers
from stormcast.node.core.wire import Head
from stormcast.node.protocols import events as said
from stormcast.node.protocols.events import Event, Install, Role
from stormcast.node.protocols.fd_all3 import FdAll3
from stormcast.node.protocols.fd_sock2 import FdSock2
from stormcast.node.protocols.flow import Mfc, Ufc, WindowsBelow
from stormcast.node.protocols.gms import Gms
from stormcast.node.protocols.layer import Layer, MemberContext
from stormcast.node.protocols.merge3 import Merge3
from stormcast.node.protocols.multicast import Multicast
from stormcast.node.protocols.port import Port
from stormcast.node.protocols.stable import Stable
from stormcast.node.protocols.verify_suspect2 import VerifySuspect2
from stormcast.node.settings import StackSettings
from stormcast.node.settings.protocols import DISCOVERIES, RELIABLE_MULTICAST
from stormcast.node.stack.positions import MulticastPositions

Adopt = Callable[[Install, float], None]
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
        self._adopt = adopt
        self._timers: Timers[tuple[int, str]] = Timers()
        timing = settings.timing
        config = settings.multicast_config
        assert settings.multicast is not None
        assert config is not None
        self.multicast: Multicast = (make_multicast or Multicast)(
            RELIABLE_MULTICAST[settings.multicast], config, timing, port, dice
        )
        self._layers: dict[int, Layer] = {}
        self._names = {self.multicast.protocol: settings.multicast}

        around = wire.HEAD_SIZE + wire.SEAL_STRUCT.size + wire.SEAL_TAG
        largest_body = settings.transport_config.largest_frame - around
        context = MemberContext(role, port, self._timers, timing, dice, largest_body)

        def build(name: str, kind: type[Any], *more: object) -> Any:  # noqa: ANN401 of `kind`
            config = settings.of(name)
            if config is None:
                return None
            layer = kind(config, context, *more)
            self._layers[layer.protocol] = layer
            self._names[layer.protocol] = name
            return layer

        digest = self.multicast.digest
        self.gms: Gms = build("GMS", Gms, digest, _suspicion_life(settings))
        self.stable: Stable | None = build("STABLE", Stable, digest)
        self.verify: VerifySuspect2 | None = build("VERIFY_SUSPECT2", VerifySuspect2)
        self.fd_all: FdAll3 | None = build("FD_ALL3", FdAll3)
        self.fd_sock: FdSock2 | None = build("FD_SOCK2", FdSock2)
        self.merge: Merge3 | None = build("MERGE3", Merge3)
        (discovery,) = (name for name in DISCOVERIES if settings.of(name) is not None)
        self.discovery = build(discovery, DISCOVERIES[discovery])
        mfc: Mfc | None = build("MFC", Mfc)
        ufc: Ufc | None = build("UFC", Ufc)
        if mfc is not None:
            mfc.stand_on(MulticastPositions(self.multicast, port))
        if ufc is not None:
            ufc.stand_on(places)
        self.flow: dict[int, Any] = {
            layer.protocol: layer for layer in (mfc, ufc) if layer is not None
        }
        """Flow control, by the number of its protocol."""

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

    # -- Events ----------------------------------------------------------------------------------

    def on_link(self, peer: int, is_up: bool, now: float) -> None:  # noqa: FBT001 the two ends of a link
        """React to a monitored connection that was made, refused or ended."""
        if self.fd_sock is not None:
            self.fd_sock.on_link(peer, is_up, now)

    def install_by_hand(self, view: View, now: float) -> None:
        """Install a view that no membership protocol made."""
        self.gms.install_by_hand(view, now)

    def drain(self, now: float) -> None:
        """Pass events on until none is left."""
        port = self._port
        while port.events:
            events, port.events = deque(port.events), []
            try:
                while events:
                    event = events[0]
                    if isinstance(event, Install):
                        # Before the event is taken: where this fails, the next turn installs it.
                        self.multicast.hand_up_ending(event.view, event.digest, event.mutual, now)
                    self.on_event(events.popleft(), now)
            except BaseException:
                # A bug in one: the others are passed on in the next turn, before newer ones.
                port.events[:0] = events
                raise

    def on_event(self, event: Event, now: float) -> None:  # noqa: PLR0912 it is one table
        """Pass an event on to the protocols that it concerns."""
        match event:
            case said.Suspected(members):
                if self.verify is not None:
                    self.verify.on_suspected(members, now)
                else:
                    self.gms.on_confirmed(members, now)
            case said.Confirmed(members):
                self.gms.on_confirmed(members, now)
            case said.Cleared(member):
                for hears in (self.fd_all, self.fd_sock, self.verify, self.gms):
                    if hears is not None:
                        hears.on_cleared(member, now)
            case said.Vouched(member):
                # Not FD_ALL3: this member has not heard it.
                if self.verify is not None:
                    self.verify.on_cleared(member, now)
                self.gms.on_cleared(member, now)
            case said.Doubted(members):
                # Without verification they are forgotten, until a detector suspects them again.
                if self.verify is not None:
                    self.verify.on_suspected(members, now)
            case said.Discover(seconds):
                self.discovery.discover(seconds, now)
            case said.Discovered(found):
                for one in found:
                    self._port.locate(filter(None, (one.address, one.coordinator)))
                self.gms.on_discovered(found, now)
            case said.Disagreement(views, heard):
                for view in views.values():
                    self._port.locate(view.members)
                self.gms.on_disagreement(views, heard, now)
            case said.Lagging(member):
                self.gms.on_lagging(member, now)
            case said.Tentative(view):
                self._port.locate(view.members)
                self.multicast.on_tentative(view)
                if self.merge is not None:
                    self.merge.on_tentative(view, now)
            case said.SuspendStability(seconds):
                self.multicast.suspend(seconds, now)
                if self.stable is not None:
                    self.stable.suspend(seconds, now)
            case said.ResumeStability():
                self.multicast.resume(now)
                if self.stable is not None:
                    self.stable.resume(now)
            case said.Stability(digest):
                self.multicast.on_stability(digest, now)
            case said.Install():
                self._install(event, now)
            case said.BecameServer():
                self.multicast.become_server(now)
            case said.Left():
                # Here, not by the caller: no timer may find a group that is gone.
                self.stop(now)

    def _install(self, event: Install, now: float) -> None:
        """Install digest and view in one step: the same view at all layers, always in the same
        order."""
        self._port.locate(event.view.members)
        # The record first: what windows write next belongs to this view.
        self._adopt(event, now)
        self._port.contacts.on_view(event.view.members)
        for member in event.view.members:
            self._port.strangers.forget(member.short)
        self.multicast.install(event.view, event.digest, event.mutual, now)
        for layer in self._layers.values():
            layer.on_view(event.view, now)
        # Lanes may have waited for a member that is gone, or for the first view.
        self._port.woken.append(wire.GROUP)
        self._port.woken += [member.short for member in event.view.members]

    # -- Promises and gauges ---------------------------------------------------------------------

    def bounds(self) -> dict[str, dict[str, Any]]:
        """Return what each protocol promises, by its name."""
        multicast = self.multicast.bounds()
        if self.stable is not None:
            multicast["purge_within"] = self.stable.purge_within()
        promised = {self._names[self.multicast.protocol]: multicast}
        return promised | {
            self._names[protocol]: layer.bounds() for protocol, layer in self._layers.items()
        }

    def gauge(self, now: float) -> None:
        """Record how full everything bounded is (G5)."""
        self.multicast.gauge(now)
        for layer in self._layers.values():
            layer.gauge(now)


def _suspicion_life(settings: StackSettings) -> float:
    """Return for how long a confirmed suspicion counts: a suspect that is still dead is confirmed
    again by then, as detectors repeat what they suspect."""
    verify, fd_all, fd_sock = map(settings.of, ("VERIFY_SUSPECT2", "FD_ALL3", "FD_SOCK2"))
    repeats = [
        fd_all.interval if fd_all is not None else 0.0,
        fd_sock.suspect_msg_interval if fd_sock is not None else 0.0,
    ]
    return max(repeats) + (2 * verify.timeout if verify is not None else 0.0)
