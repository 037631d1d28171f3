"""Passes what one protocol of a group has to say on to others.

Protocols know nothing of each other. They enqueue events, and only `on_event` passes an event on:
read it to see how a suspicion leads to a view, and a view to windows.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable

from stormcast.node.core import wire
from stormcast.node.protocols import events as said
from stormcast.node.protocols.events import Event, Install
from stormcast.node.protocols.port import Port
from stormcast.node.stack.group_protocols import GroupProtocols

Adopt = Callable[[Install, float], None]


class Events:
    """The events of one member's group, on their way."""

    def __init__(
        self,
        protocols: GroupProtocols,
        port: Port,
        adopt: Adopt,
        end: Callable[[float], None],
    ) -> None:
        self._protocols = protocols
        self._port = port
        self._adopt = adopt
        self._end = end

    def drain(self, now: float) -> None:
        """Pass events on until none is left."""
        port, multicast = self._port, self._protocols.multicast
        while port.events:
            events, port.events = deque(port.events), []
            try:
                while events:
                    event = events[0]
                    if isinstance(event, Install):
                        # Before the event is taken: where this fails, the next turn installs it.
                        multicast.hand_up_ending(event.view, event.digest, event.mutual, now)
                    self.on_event(events.popleft(), now)
            except BaseException:
                # A bug in one: the others are passed on in the next turn, before newer ones.
                port.events[:0] = events
                raise

    def on_event(self, event: Event, now: float) -> None:  # noqa: PLR0912, PLR0915 it is one table
        """Pass an event on to the protocols that it concerns."""
        to = self._protocols
        match event:
            case said.Suspected(members):
                if to.verify is not None:
                    to.verify.on_suspected(members, now)
                else:
                    to.gms.on_confirmed(members, now)
            case said.Confirmed(members):
                to.gms.on_confirmed(members, now)
            case said.Cleared(member):
                for hears in (to.fd_all, to.fd_sock, to.verify, to.gms):
                    if hears is not None:
                        hears.on_cleared(member, now)
            case said.Vouched(member):
                # Not FD_ALL3: this member has not heard it.
                if to.verify is not None:
                    to.verify.on_cleared(member, now)
                to.gms.on_cleared(member, now)
            case said.Doubted(members):
                # Without verification they are forgotten, until a detector suspects them again.
                if to.verify is not None:
                    to.verify.on_suspected(members, now)
            case said.Discover(seconds):
                to.discovery.discover(seconds, now)
            case said.Discovered(found):
                for one in found:
                    self._port.locate(filter(None, (one.address, one.coordinator)))
                to.gms.on_discovered(found, now)
            case said.Disagreement(views, heard):
                for view in views.values():
                    self._port.locate(view.members)
                to.gms.on_disagreement(views, heard, now)
            case said.Lagging(member):
                to.gms.on_lagging(member, now)
            case said.Tentative(view):
                self._port.locate(view.members)
                to.multicast.on_tentative(view)
                if to.merge is not None:
                    to.merge.on_tentative(view, now)
            case said.SuspendStability(seconds):
                to.multicast.suspend(seconds, now)
                if to.stable is not None:
                    to.stable.suspend(seconds, now)
            case said.ResumeStability():
                to.multicast.resume(now)
                if to.stable is not None:
                    to.stable.resume(now)
            case said.Stability(digest):
                to.multicast.on_stability(digest, now)
            case said.Install():
                self._install(event, now)
            case said.BecameServer():
                to.multicast.become_server(now)
            case said.Left():
                # Here, not by the caller: no timer may find a group that is gone.
                self._end(now)

    def _install(self, event: Install, now: float) -> None:
        """Install digest and view in one step: the same view at all layers, always in the same
        order."""
        self._port.locate(event.view.members)
        # The record first: what windows write next belongs to this view.
        self._adopt(event, now)
        self._port.contacts.on_view(event.view.members)
        for member in event.view.members:
            self._port.strangers.forget(member.short)
        self._protocols.multicast.install(event.view, event.digest, event.mutual, now)
        for layer in self._protocols.layers.values():
            layer.on_view(event.view, now)
        # Lanes may have waited for a member that is gone, or for the first view.
        self._port.woken.append(wire.GROUP)
        self._port.woken += [member.short for member in event.view.members]
