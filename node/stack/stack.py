"""The stack of one member: outbox, protocols, frames. Pure: time is handed in, frames are handed
out.

A turn is: feed it (`receive`, `tick`, `try_send`), then `end_turn`, which pulls from the outbox
what windows and credits admit, hands the turn's events to the trace, and returns the frames to
send. The simulator and a real process run this same object.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping
from math import inf
from random import Random
from typing import Any, Final

from node import trace
from node.core import wire
from node.core.codec import Codec, Hash64, pack_body, unpack_lengths_untrusted
from node.core.credits import Place
from node.core.errors import BadFrame, ClosedError, ConfigError, require
from node.core.model import (
    DONT_BUNDLE,
    DONT_LOOPBACK,
    MESSAGE_FLAGS,
    NO_FC,
    NO_RELIABILITY,
    OOB,
    Address,
    Delivery,
    Payload,
    View,
    as_payload,
)
from node.core.wire import GROUP, Head
from node.protocols.events import Install, Role
from node.protocols.flow import Mfc, Ufc
from node.protocols.frag import HEADER, Cut, Fragmenter, Reassembler
from node.protocols.multicast import Multicast
from node.protocols.port import Abandoned, Frame, Port
from node.protocols.probes import PROBES
from node.protocols.unicast import UNLIMITED, Unicast
from node.settings import StackSettings
from node.settings.description import describe
from node.settings.protocols import RELIABLE_UNICAST
from node.settings.rules import losing_below
from node.settings.values import convert
from node.stack.group import Group
from node.stack.handover import FLUSH_INTERVAL, HandOver, Numbering
from node.stack.lane import LENGTH_COST, MAX_MESSAGE, MESSAGE_OVERHEAD, Lane, OpenEarly, Run, Taken
from node.stack.positions import UnicastPositions
from node.stack.probing import Probing

GAUGE_INTERVAL: Final = 0.25
"""Seconds between two looks at how full things are; taken when something happens anyway."""

Route = Callable[[Head, bytes, float], None]


class Stack:
    """The protocols of one member, and the only way in and out of them."""

    lateness: float = 0.0
    """Seconds by which turns may be late: whoever lives in real time cannot promise better."""

    def __init__(
        self,
        address: Address,
        cluster: str,
        settings: StackSettings,
        hash64: Hash64,
        tracer: trace.Tracer,
        now: float,
        *,
        dice: Random | None = None,
        first_conn: int = 1,
        make_unicast: Callable[..., Unicast] | None = None,
        make_multicast: Callable[..., Multicast] | None = None,
        make_codec: Callable[[int, int, Hash64], Codec] = Codec,
    ) -> None:
        self.address = address
        self.settings = settings
        self.role = Role(address)
        """What this member is to its group."""
        self.refused: dict[str, int] = {}
        """What was dropped or refused so far, by reason."""
        self._codec = make_codec(hash64(cluster.encode()) & 0xFFFFFFFF, address.short, hash64)
        self._tracer = tracer
        self._port = Port(self._codec, tracer)
        self.unicast = self._make_unicast(make_unicast, first_conn)
        self._places = UnicastPositions(self.unicast, self._port)
        self.group: Group | None = None
        """The protocols of a group, where the stack has them."""
        if settings.has_group:
            self.group = Group(
                settings, self.role, self._port, dice or Random(address.identity), self._adopt,
                self._places, make_multicast,
            )  # fmt: skip
        self.multicast = self.group.multicast if self.group is not None else None
        self._flow = self.group.flow if self.group is not None else {}
        self._fragmenter = Fragmenter(pieces, hash64) if (pieces := settings.fragments) else None
        self._reassembler = Reassembler(pieces, self._longest_life()) if pieces else None
        self._hand_over = self._make_hand_over()
        self.large_from = self._cost_of_large()
        """Cost of a message from which on it is not simply queued."""
        self._probe_dice = dice or Random(address.identity ^ 1)
        self._probing = self._make_probing() if settings.probes else None
        """Test protocols, where there are any."""
        self._passed: list[Frame] = []
        """Frames that are through all protocols: let go by a probe, or too many for the last
        turn."""
        self._risen: list[Delivery] = []
        """Deliveries that a probe has let go."""
        self.abandoned: dict[str, int] = {}
        """Messages that were accepted and given up so far, by reason."""
        self._abandoned: list[Abandoned] = []
        self._routes, self._group_routes = self._make_routes()
        self._views: list[View] = []
        self._lanes: dict[int, Lane] = {}
        self._numbers: dict[int, int] = {}
        """How many messages were accepted for a destination whose lane is gone."""
        self._queued: list[Lane] = []
        self._outbox_bytes = settings.outbox_bytes
        self._queue_frames = settings.transport_config.queue_frames
        self.largest_message = MAX_MESSAGE
        """Bytes; a transport may carry less than a frame could."""
        self.is_held = False
        """Whether the transport has enough to do: what waits in the outbox waits on, and fills it.
        """
        self._unreliable_sent = 0
        self._next_gauge, self._flush_at = now + GAUGE_INTERVAL, inf
        self._now = now
        self._is_open = True
        self._record_start(now)

    # -- Life ------------------------------------------------------------------------------------

    def start(self, now: float) -> None:
        """Begin to join the group, if there is one to join."""
        if self.group is not None:
            self.group.start(now)

    def leave(self, now: float) -> None:
        """Begin to leave the group; `has_left` says when it is done."""
        if self.group is not None:
            self.group.leave(now)

    @property
    def has_left(self) -> bool:
        """Whether this member is done with leaving."""
        return self.group is None or self.group.has_left

    @property
    def view(self) -> View | None:
        """The current view."""
        return self.role.view

    # -- The application's side ------------------------------------------------------------------

    def try_send(self, dest: int, payload: Payload, flags: int = 0) -> bool:
        """Accept a message for `dest` (a short id, or GROUP), or return False when its lane is
        full."""
        if payload.__class__ is not bytes:
            # Text has a length, too, and would fail only where batches are packed.
            payload = as_payload(payload)
        try:
            lane = self._lanes[dest]
        except KeyError:
            lane = self._open_lane(dest)
        cost = len(payload) + MESSAGE_OVERHEAD
        if cost > self.large_from:
            if self._fragmenter is not None and not flags & NO_RELIABILITY:
                return self._try_send_in_pieces(lane, payload, flags)
            self._refuse_too_large(dest, payload, flags)
        if cost > lane.room and not self._admits_alone(lane, payload):
            return False
        run = lane.run
        # Both without flags is the rule, and told sooner than what follows.
        if (flags or run.flags) and (flags != run.flags or flags & DONT_BUNDLE):
            run = self._begin_run(lane, flags)
        lane.room -= cost
        run.payloads.append(payload)
        if not lane.is_queued:
            lane.is_queued = True
            self._queued.append(lane)
        return True

    def lane(self, dest: int) -> Lane:
        """The queue towards `dest`; whoever keeps it must look whether it `is_queued`."""
        lane = self._lanes.get(dest)
        return lane if lane is not None else self._open_lane(dest)

    def take_deliveries(self) -> list[Delivery]:
        """What has arrived for the application since the last call, in order: it must be handed
        all of it now."""
        if self._probing is None and (self._port.deliveries or self._port.withheld):
            self._hand(self._now)
        return self._hand_over.take()

    def take_abandoned(self) -> list[Abandoned]:
        """What was accepted and has been given up since the last call."""
        taken, self._abandoned = self._abandoned, []
        return taken

    def take_views(self) -> list[View]:
        """The views installed since the last call, in order."""
        taken, self._views = self._views, []
        return taken

    def pending(self, dest: int) -> int:
        """Messages for `dest` that were accepted and not yet numbered."""
        lane = self._lanes.get(dest)
        return len(lane) if lane else 0

    def room(self, dest: int) -> int:
        """Bytes that the outbox still takes for `dest`; all of it when nothing waits there."""
        lane = self._lanes.get(dest)
        return lane.room if lane is not None else self._outbox_bytes

    @property
    def has_backlog(self) -> bool:
        """Whether anything that was accepted is not yet numbered."""
        return any(not lane.is_empty() for lane in self._lanes.values())

    def set_consuming(self, consuming: bool, now: float) -> int:  # noqa: FBT001 it is the whole message
        """Whether the application takes deliveries; while it does not, senders block in the end.
        Returns how many messages, or pieces of them, waited for it."""
        waited = sum(map(len, self._port.withheld)) if consuming else 0
        waited += self.unicast.set_consuming(consuming, now)
        if self.multicast is not None:
            waited += self.multicast.set_consuming(consuming, now)
        return waited

    # -- The network's side --------------------------------------------------------------------

    def receive(self, datagram: Payload, now: float) -> int:
        """Take the frames of one datagram. What is not a frame for us is counted, and changes
        nothing. Returns the short id of who sent the last good one, 0 where none was."""
        if not self._is_open:
            return 0
        at, end, source = 0, len(datagram), 0
        try:
            while at < end:
                head, body = self._codec.unpack_untrusted(datagram, at)
                at += wire.HEAD_SIZE + head.size
                source = head.source
                self._accept(head, body, now)
        except BadFrame as bad:
            self._port.drop(bad.reason)
        if self._port.events:
            self._drain(now)
        return source

    def _accept(self, head: Head, body: bytes, now: float) -> None:
        source = head.source
        me = self._port.me
        if head.dest == me:
            route = self._routes.get(head.protocol)
        elif head.dest == GROUP:
            route = self._group_routes.get(head.protocol)
        else:
            self._port.drop("other-destination")
            return
        if source == me or not source:
            self._port.drop("bad-source")
        elif route is None:
            self._port.drop("protocol")
        elif self._probing is not None:
            self._rise(self._probing.up(head, body, now), now)
        else:
            # As `_arrive`, but without a call: this is where every frame passes.
            if self.group is not None:
                self.group.heard(head)
            route(head, body, now)
            if self._port.events:
                self._drain(now)

    def _arrive(self, route: Route, head: Head, body: bytes, now: float) -> None:
        if self.group is not None:
            self.group.heard(head)
        route(head, body, now)
        if self._port.events:
            self._drain(now)

    def on_link(self, peer: int, is_up: bool, now: float) -> None:  # noqa: FBT001 the two ends of a link
        """A monitored connection was made, or refused, or ended."""
        if self.group is not None:
            self.group.on_link(peer, is_up, now)
            self._drain(now)

    def take_links(self) -> list[tuple[int, bool]]:
        """Monitored connections to open (True) or to close, by peer."""
        taken, self._port.links = self._port.links, []
        return taken

    def on_connection_lost(self, peer: int, now: float) -> None:
        """The transport's connection to a peer ended or was replaced: what it held may be lost."""
        if self.multicast is not None:
            self.multicast.on_link_lost(peer, now)

    @property
    def has_probes(self) -> bool:
        """Whether test protocols look at deliveries, which they do at the end of a turn."""
        return self._probing is not None

    def has_news(self) -> bool:
        """Whether views, links, places or lost messages are to be taken, or this member has
        left."""
        port = self._port
        return bool(
            self._views
            or self._abandoned
            or port.links
            or port.located
            or (self.group is not None and self.group.has_left)
        )

    def take_located(self) -> list[Address]:
        """Members that were named since the last call, and say where they are."""
        taken, self._port.located = self._port.located, {}
        return list(taken.values())

    def ask_around(self, now: float) -> None:
        """Have everybody who can be found say that it is there."""
        if self.group is not None:
            self.group.discovery.ask_once(now)

    def destinations(self) -> tuple[int, ...]:
        """Where a frame for the group goes when the network has no multicast."""
        return self.group.destinations() if self.group is not None else ()

    def tick(self, now: float) -> None:
        """Do what is due."""
        self._now = now
        self.unicast.tick(now)
        if self.group is not None:
            self.group.tick(now)
            if self._port.events:
                self._drain(now)
        if self._probing is not None and self._probing.next_deadline() <= now:
            self._release(now)
        # What an application that is stalled has yet to take may be the rest of a message.
        reassembler = self._reassembler
        if (
            reassembler is not None
            and reassembler.next_deadline() <= now
            and self.unicast.is_consuming
            and not (self._port.deliveries or self._port.withheld)
        ):
            self._port.drop("fragment-expired", reassembler.expire(now))

    def next_deadline(self) -> float:
        """When `tick` is wanted next; infinity when nothing waits for time."""
        if self._port.frames or self._passed or (self._queued and not self.is_held):
            # What did not fit the transport, answers what the application took, or was freed at
            # the end of a turn, is due.
            return self._now
        due = self.unicast.next_deadline()
        if self._flush_at < due:
            due = self._flush_at
        if self._probing is not None:
            due = min(due, self._probing.next_deadline())
        if self.group is not None:
            when = self.group.next_deadline()
            if when < due:
                due = when
            if self._reassembler is not None and self.unicast.is_consuming:
                due = min(due, self._reassembler.next_deadline())
        return due

    def end_turn(self, now: float) -> list[Frame]:  # noqa: PLR0912 steps that most turns skip
        """Pull from the outbox, close the turn's trace, and hand out the frames to send."""
        self._now = now
        unicast = self.unicast
        port = self._port
        # Acks first: they are small, and what they free at the peer is what it waits for.
        if unicast.acks_now or unicast.syncs_now:
            unicast.finish_turn(now)
        group = self.group
        if group is not None:
            group.finish_turn(now)
            # Before lanes are woken: a view may be among it, and free who waits.
            if port.events:
                group.drain(now)
        if self._queued or port.woken or port.closed or port.abandoned:
            self._pull_lanes(now)
        if now >= self._next_gauge:
            self._gauge(now)
        if self._probing is not None:
            port.deliveries = self._probing.deliveries_up(port.deliveries, now) + self._risen
            self._risen = []
        if port.deliveries or port.withheld:
            # Before the turn's trace is closed, so that it says what the application was handed;
            # and before frames leave, as credits may follow.
            self._hand(now)
            if port.woken:
                # Own credits. Who waited for them is next.
                self._wake_lanes()
        # A list of its own even when nothing leaves: whoever gets it may add to it.
        frames, port.frames = port.frames, []
        if self._probing is not None:
            frames = self._probing.down(frames, now)
            if self._probing.is_empty:
                self._probing = None
        if self._passed:
            frames = self._passed + frames
            self._passed = []
        if len(frames) > self._queue_frames:
            self._overflow(frames)
        if port.drops or now >= self._flush_at:
            self._record_rest(now)
        self._tracer.turn()
        return frames

    def _hand(self, now: float) -> None:
        """What was delivered goes to the application, unless it takes nothing now."""
        port = self._port
        if not self.unicast.is_consuming:
            port.withheld += port.deliveries
            port.deliveries = []
            return
        if port.withheld:
            port.deliveries = port.withheld + port.deliveries
            port.withheld = []
        self._hand_over.run(now)
        if self._flush_at == inf:
            self._flush_at = now + FLUSH_INTERVAL

    def _record_rest(self, now: float) -> None:
        if self._port.drops:
            self._count_drops(now)
        if now >= self._flush_at:
            self.flush(now)

    def flush(self, now: float) -> None:
        """Record what the application offered and was handed, as far as that is not said yet."""
        self._flush_at = inf
        self._hand_over.flush(now)
        for lane in self._lanes.values():
            self._note_offered(lane, now)

    def _overflow(self, frames: list[Frame]) -> None:
        """More frames than the transport queues: the rest is dropped, which a protocol above
        repairs, or waits for the next turn."""
        rest = frames[self._queue_frames :]
        del frames[self._queue_frames :]
        if self.settings.transport_config.drop_when_full:
            self._port.drop("transport-queue-full", len(rest))
        else:
            self._passed = rest

    # -- Membership and commands -----------------------------------------------------------------

    def install_view(self, view: View, now: float) -> None:
        """Adopt a view by hand, in place of what membership would say."""
        if self.group is not None:
            self.group.install_by_hand(view, now)
            self._drain(now)
        else:
            self.role.view = view
            self._adopt(Install(view), now)

    def close_connection(self, peer: int, now: float) -> None:
        """Close both directions to `peer`, flushing what is pending."""
        self.unicast.close(peer, now)

    def forget(self, peer: int, now: float, *, sender: bool = True, receiver: bool = True) -> None:
        """Lose what is known of `peer`, as a one-sided removal does."""
        self.unicast.forget(peer, now, sender=sender, receiver=receiver)

    def set_attribute(self, name: str, value: object, now: float) -> None:
        """Change a setting at run time: `xmit_interval` of unicast, `NAKACK2.xmit_interval` of
        another protocol, `DISCARD.up` of a probe."""
        protocol, _dot, attribute = name.rpartition(".")
        if protocol in PROBES:
            require(
                any(probe["name"] == protocol for probe in self.probes()),
                f"{name}: no {protocol} in the stack; put it in first",
            )
            self.set_probe(protocol, {attribute: value}, now)
            return
        machine: Unicast | Multicast = self.unicast
        if self.multicast is not None and protocol == self.settings.multicast:
            machine = self.multicast
        elif protocol not in ("", self.settings.unicast):
            raise ConfigError(
                f"{name}: no protocol {protocol} with settings that may change; "
                f"there is {self.settings.unicast}"
                + (f" and {self.settings.multicast}" if self.settings.multicast else "")
            )
        kinds = {field.name: field.type for field in dataclasses.fields(machine.config)}
        if attribute in machine.config.settable:
            value = convert(f"{protocol or self.settings.unicast}.{attribute}", value,
                            kinds[attribute])  # fmt: skip
        if machine is self.multicast and attribute == "xmit_interval":
            assert isinstance(value, float)
            self.settings.check_retransmission(value, self._layers_now())
        machine.set_attribute(attribute, value, now)

    def stop(self, now: float) -> list[Frame]:
        """End: send what windows still admit, ack what is pending, end the trace."""
        frames = self.end_turn(now)
        if self.group is not None:
            self.group.stop(now)
        self.unicast.stop(now)
        frames += self.end_turn(now)
        self._is_open = False
        for lane in self._lanes.values():
            lane.is_queued = False
            self._note_offered(lane, now)
            self._abandon(lane, "stop", now)
        self.flush(now)
        self._note_abandoned()
        self._lanes = {}
        self._tracer.record(trace.STOP, now)
        self._tracer.seal()
        return frames

    # -- Test protocols ------------------------------------------------------------------------

    def set_probe(
        self, name: str, values: Mapping[str, object] | None, now: float, above: str = ""
    ) -> None:
        """Put a test protocol in, above another protocol (by default the transport), or change
        the one that is there; without values take it out."""
        if self._probing is None:
            self._probing = self._make_probing()
        self._let_pass(*self._probing.put(name, values, above, now), now)

    def _make_probing(self) -> Probing:
        return Probing(self.settings, self._port, self._probe_dice, self._name_of)

    def probes(self) -> list[dict[str, object]]:
        """The test protocols, top to bottom."""
        return self._probing.listed() if self._probing is not None else []

    def unrepaired_probes(self) -> list[str]:
        """Test protocols that lose multicasts which nobody will ask for again."""
        multicast = self.multicast
        if multicast is None or multicast.config.retransmits:
            return []
        return losing_below(self.settings.multicast or "", self._layers_now())

    def _layers_now(self) -> tuple[tuple[str, Any], ...]:
        if self._probing is not None:
            return self._probing.layers()
        return tuple(layer for layer in self.settings.layers if layer[0] not in PROBES)

    def _release(self, now: float) -> None:
        """What probes held back is due."""
        if self._probing is not None:
            self._let_pass(*self._probing.release(now), now)

    def _let_pass(self, frames: list[Frame], arrived: list[tuple[Head, Any]], now: float) -> None:
        """What probes let go goes on, down and up."""
        self._passed += frames
        self._risen += [data for _head, data in arrived if isinstance(data, Delivery)]
        self._rise([item for item in arrived if not isinstance(item[1], Delivery)], now)

    def _rise(self, frames: list[tuple[Head, bytes]], now: float) -> None:
        """Frames that probes let pass: not only the one that just came, but also others that were
        held back, each to its own protocol. One that is no good must not cost the others."""
        for head, body in frames:
            routes = self._routes if head.dest == self._port.me else self._group_routes
            try:
                self._arrive(routes[head.protocol], head, body, now)
            except BadFrame as bad:
                self._port.drop(bad.reason)

    def _name_of(self, short: int) -> str:
        """The name of a member of the view; of anybody else its short id."""
        known = next((m.name for m in self.role.members if m.short == short), None)
        return known if known is not None else f"{short:08x}"

    # -- Between protocols ---------------------------------------------------------------------

    def _make_routes(self) -> tuple[dict[int, Route], dict[int, Route]]:
        """Which protocol takes a frame, by its number: of those for this member, of those for the
        group."""
        routes: dict[int, Route] = {
            self.unicast.protocol: self.unicast.receive,
            wire.NONE: self._receive_unreliable,
        }
        group_routes: dict[int, Route] = {wire.NONE: self._receive_unreliable}
        if self.group is not None:
            routes |= self.group.routes()
            group_routes |= self.group.routes()
        return routes, group_routes

    def _drain(self, now: float) -> None:
        if self.group is not None:
            self.group.drain(now)

    def _adopt(self, event: Install, now: float) -> None:
        """A view comes into force: the record of it, unicast, and the application."""
        view = event.view
        members = ",".join(f"{member.short:08x}" for member in view.members)
        self._tracer.record(
            trace.VIEW,
            now,
            stream=trace.REGULAR if event.mutual is None else trace.MERGE,
            peer=view.id.creator.short if self.group is not None else 0,
            view=view.id.number & 0xFFFFFFFF,
            lo=view.id.number,
            count=len(view.members),
            text=members,
        )
        shorts = frozenset(member.short for member in view.members)
        self.unicast.on_view(shorts, now)
        self._hand_over.on_view(shorts, now)
        self._views.append(view)

    def _longest_life(self) -> float:
        """Seconds after which nobody goes on with a message to somebody outside its view who has
        not answered since: its connection has aged, or was idle, and is removed."""
        config = self.unicast.config
        idle = config.conn_expiry_timeout + config.conn_close_timeout
        return config.max_retransmit_time + idle

    def _make_unicast(self, make: Callable[..., Unicast] | None, first_conn: int) -> Unicast:
        settings = self.settings
        made: Unicast = (make or RELIABLE_UNICAST[settings.unicast])(
            settings.unicast_config, settings.timing, self._port, first_conn
        )
        made.is_grouped = settings.has_group
        return made

    def _make_hand_over(self) -> HandOver:
        numbering = Numbering(
            self.unicast.protocol, self.multicast.protocol if self.multicast else 0
        )
        ufc, mfc = self._flow.get(wire.UFC), self._flow.get(wire.MFC)
        return HandOver(self._port, numbering, ufc, mfc, self._reassembler)

    def _cost_of_large(self) -> int:
        if self.settings.fragments is not None:
            return self.settings.fragments.frag_size + MESSAGE_OVERHEAD
        granted = [flow.max_message for flow in self._flow.values()]
        return min(granted, default=UNLIMITED) + MESSAGE_OVERHEAD

    # -- The outbox ----------------------------------------------------------------------------

    def _open_lane(self, dest: int) -> Lane:
        if not self._is_open:
            raise ClosedError(f"{self.address} is closed: open a new channel to send")
        require(
            0 < dest < 1 << 32 or (dest == GROUP and self.multicast is not None),
            f"dest is {dest}: it must be the short id of an address"
            + (", or GROUP" if self.multicast is not None else ""),
        )
        lane = self._lanes[dest] = Lane(dest, self._outbox_bytes, self._numbers.get(dest, 0))
        return lane

    def _admits_alone(self, lane: Lane, payload: Payload) -> bool:
        """A message beyond the outbox enters an empty lane, if a frame can carry it."""
        require(
            len(payload) <= MAX_MESSAGE,
            f"a message of {len(payload)} bytes: a frame carries {MAX_MESSAGE}; split it",
        )
        return lane.room >= self._outbox_bytes

    def limit_messages(self, largest: int) -> None:
        """The transport carries so many bytes at most in one frame."""
        self.largest_message = min(self.largest_message, largest)
        self.large_from = min(self.large_from, self.largest_message + MESSAGE_OVERHEAD)

    def _refuse_too_large(self, dest: int, payload: Payload, flags: int) -> None:
        """Without fragmentation, what no frame carries cannot be sent, and what no receiver ever
        grants would wait for ever."""
        require(
            len(payload) <= self.largest_message,
            f"a message of {len(payload)} bytes: {self.settings.transport} carries "
            f"{self.largest_message}; split it, or add FRAG to the stack",
        )
        flow = self._flow.get(wire.UFC if dest else wire.MFC)
        require(
            flow is None
            or flags & (NO_FC | NO_RELIABILITY) != 0
            or len(payload) <= flow.max_message,
            f"a message of {len(payload)} bytes: max_credits is "
            f"{flow.max_message if flow else 0}; add FRAG to the stack, or raise max_credits",
        )

    def _try_send_in_pieces(self, lane: Lane, payload: Payload, flags: int) -> bool:
        """A large message enters its lane as fragments, whole or not at all."""
        assert self._fragmenter is not None
        most = self._fragmenter.config.max_message_size
        require(len(payload) <= most, f"a message of {len(payload)} bytes: the limit is {most}")
        cost = len(payload) + MESSAGE_OVERHEAD
        if cost > lane.room and lane.room < self._outbox_bytes:
            return False
        self._check_flags(flags)
        cut = self._fragmenter.cut(payload)
        lane.begin_large(flags, cut).payloads = cut.pieces
        lane.room -= len(payload) + MESSAGE_OVERHEAD * len(cut.pieces)
        if not lane.is_queued:
            lane.is_queued = True
            self._queued.append(lane)
        return True

    def _begin_run(self, lane: Lane, flags: int) -> Run:
        self._check_flags(flags)
        return lane.begin(flags)

    @staticmethod
    def _check_flags(flags: int) -> None:
        require(
            not flags & ~MESSAGE_FLAGS, f"message flags {flags:#x}: unknown; see node.core.model"
        )

    def _pull_lanes(self, now: float) -> None:
        """What ended and what was freed in this turn, and what may leave now."""
        port = self._port
        if port.closed:
            self._close_lanes(now)
        if port.abandoned:
            self._note_abandoned()
        if port.woken:
            self._wake_lanes()
        if self._queued and not self.is_held:
            self._pull(now)
            # A message to self, or an answer that is due at once, may have been added by the pull.
            if self.unicast.acks_now:
                self.unicast.finish_turn(now)
            if self.group is not None and port.woken:
                # Own multicasts of a member that is alone are purged as they are sent.
                self._wake_lanes()

    def _pull(self, now: float) -> None:
        """Batches leave each queued lane while its window and its credits have room."""
        queued, self._queued = self._queued, []
        for lane in queued:
            lane.is_queued = False
            if self._flush_at == inf:
                self._flush_at = now + FLUSH_INTERVAL
            if self._pull_lane(lane, now):
                if lane.blocked_since >= 0:
                    self._note_unblocked(lane, now)
            else:
                self._note_blocked(lane, now)

    def _pull_lane(self, lane: Lane, now: float) -> bool:
        """Send what is admitted; whether that was everything."""
        dest = lane.dest
        machine: Unicast | Multicast = self.unicast
        if dest == GROUP:
            assert self.multicast is not None
            machine = self.multicast
        flow = self._flow.get(wire.UFC if dest else wire.MFC)
        max_batch, max_frame = self.settings.max_batch, self.settings.max_frame
        window_bytes = machine.config.window_bytes
        while lane.run.payloads or len(lane.runs) > 1:
            run = lane.runs[0]
            flags = run.flags
            cut = run.cut
            # A large message of which nothing has left yet.
            begun = cut if not run.at else None
            early = begun if flags & OOB and dest != self._port.me else None
            if early is not None and not self._may_begin(lane, early, now):
                return False
            if flags & NO_RELIABILITY:
                if dest == GROUP and self.role.view is None:
                    return False
                self._send_unreliable(lane, now)
                continue
            messages, size = machine.room(dest)
            # An empty window admits one message of any size, else that message never leaves.
            single = size if size < window_bytes else UNLIMITED
            if flow is not None and not flags & NO_FC:
                credit = flow.room(dest)
                # Credits count payloads; what is taken is counted with its length and header.
                alone = credit + LENGTH_COST + (HEADER.size if cut is not None else 0)
                size, single = min(size, credit), min(single, alone)
            taken = (
                lane.take(min(messages, max_batch), min(size, max_frame), single)
                if messages > 0
                else None
            )
            if taken is None:
                self._wait_for_room(lane, flow, now)
                return False
            if begun is not None:
                self._note_cut(lane, begun, taken.number, now)
            machine.send(
                dest, taken.payloads, taken.flags, now, taken.header, taken.lengths, taken.number
            )
            if early is not None:
                place = self._place(dest)
                hi = place.seqno + len(early.pieces) - 1
                lane.open_early.append(OpenEarly(place.conn, hi, early.cost))
            if flow is not None and not flags & NO_FC:
                flow.spent(dest, taken.size, now, taken.flags)
            if dest == GROUP and self.group is not None:
                self.group.multicast_sent(len(taken.payloads), taken.size, now)
        return True

    def _may_begin(self, lane: Lane, cut: Cut, now: float) -> bool:
        """Whether the receivers have room for another OOB message in pieces (see FRAG)."""
        assert self._fragmenter is not None
        config = self._fragmenter.config
        if not config.historical.sender_keeps_bound:
            return True
        conn, acked = self._acked(lane.dest)
        if lane.has_room_for_early(
            cut.cost, conn, acked, config.max_open_messages, config.max_open_bytes
        ):
            return True
        if lane.dest == GROUP and self.group is not None:
            self.group.multicast_blocked(now)
        return False

    def _note_cut(self, lane: Lane, cut: Cut, number: int, now: float) -> None:
        """Record that a message leaves in pieces."""
        self._tracer.record(
            trace.CUT, now, peer=lane.dest, count=len(cut.pieces), lo=number, hi=number,
            size=cut.total, digest=cut.digest,
        )  # fmt: skip

    def _acked(self, dest: int) -> tuple[int, int]:
        """The connection to `dest`, and the seqno up to which it is acked."""
        place = self._place(dest)
        return place.conn, place.seqno - place.unacked

    def _place(self, dest: int) -> Place:
        """Where what was sent to `dest` ends."""
        if dest != GROUP:
            return self._places.sent(dest)
        assert self.multicast is not None
        own = self.multicast.own
        return Place(0, own.high, own.high - own.low)

    def _note_offered(self, lane: Lane, now: float) -> None:
        """Record what the application offered since the last time."""
        accepted, before = lane.accepted, lane.offered
        if accepted > before:
            lane.offered = accepted
            self._tracer.records.append(
                (trace.OFFERED, 0, 0, 0, lane.dest, 0, 0, 0,
                 accepted - before, before + 1, accepted, 0, 0, 0, 0, now)
            )  # fmt: skip

    def _wait_for_room(self, lane: Lane, flow: Ufc | Mfc | None, now: float) -> None:
        """Tell who can make room: the receivers' credits, or what empties the window."""
        dest = lane.dest
        is_exempt = lane.runs[0].flags & NO_FC
        if flow is not None and not is_exempt and flow.room(dest) < lane.next_size():
            flow.blocked(dest, lane.next_size(), now)
        elif dest == GROUP and self.group is not None:
            self.group.multicast_blocked(now)

    def _note_blocked(self, lane: Lane, now: float) -> None:
        if lane.blocked_since < 0:
            lane.blocked_since = now
            self._port.waiting.add(lane.dest)
            self._tracer.record(trace.BLOCKED, now, peer=lane.dest, count=len(lane))

    def _note_unblocked(self, lane: Lane, now: float) -> None:
        lane.blocked_since = -1.0
        self._port.waiting.discard(lane.dest)
        self._tracer.record(trace.UNBLOCKED, now, peer=lane.dest)

    def _wake_lanes(self) -> None:
        port = self._port
        woken, port.woken = port.woken, []
        for peer in woken:
            lane = self._lanes.get(peer)
            if lane is not None and not lane.is_queued and not lane.is_empty():
                lane.is_queued = True
                self._queued.append(lane)

    def _close_lanes(self, now: float) -> None:
        """A connection ended: who waited for room in it is released, and is told what became of
        what waited."""
        port = self._port
        closed, port.closed = port.closed, []
        for peer in closed:
            lane = self._lanes.get(peer)
            if lane is None:
                continue
            if lane.blocked_since >= 0:
                self._note_unblocked(lane, now)
                self._note_offered(lane, now)
                self._abandon(lane, "connection-closed", now)
            if lane.is_empty() and not lane.is_queued:
                self._numbers[peer] = lane.numbered
                del self._lanes[peer]

    def _abandon(self, lane: Lane, why: str, now: float) -> None:
        """Throw away what waits in a lane, and say so."""
        first = lane.numbered + 1
        is_within = lane.is_within_message
        count = lane.clear()
        if not count:
            return
        last = lane.numbered
        self._tracer.record(
            trace.ABANDONED, now, peer=lane.dest, count=count, lo=first, hi=last, text=why
        )
        told = self._port.abandoned
        if is_within and any(one.dest == lane.dest and one.last == first for one in told):
            # Its first pieces were given up with the connection: it is one message.
            count -= 1
        if count:
            told.append(Abandoned(lane.dest, count, why, last))

    def _note_abandoned(self) -> None:
        told, self._port.abandoned = self._port.abandoned, []
        for one in told:
            self.abandoned[one.why] = self.abandoned.get(one.why, 0) + one.count
        self._abandoned += told

    # -- Messages without reliability ------------------------------------------------------------

    def _send_unreliable(self, lane: Lane, now: float) -> None:
        batch: Taken | None = lane.take(self.settings.max_batch, self.settings.max_frame, UNLIMITED)
        assert batch is not None
        flags = batch.flags
        body = pack_body(batch.payloads, self._codec.hash64)
        self._tracer.records.append(
            (trace.SENT, flags, 0, 0, lane.dest, 0, 0, 0, body.count, 0, 0, len(body.data),
             body.digest, batch.number & 0xFFFFFFFF, 0, now)
        )  # fmt: skip
        # Numbered only to be told apart: a frame's fate is drawn from its preamble.
        self._unreliable_sent += 1
        head = self._codec.pack_data(
            wire.NONE, lane.dest, 0, self._unreliable_sent, body, flags, 0, 0, 0
        )
        if lane.dest != self._port.me:
            self._port.frames.append((lane.dest, head, body.data))
        if lane.dest in (self._port.me, GROUP) and not flags & DONT_LOOPBACK:
            self._receive_unreliable(Head._make(wire.HEAD_STRUCT.unpack(head)), body.data, now)

    def _receive_unreliable(self, head: Head, body: bytes, now: float) -> None:
        if head.kind != wire.DATA:
            self._port.drop("kind")
            return
        start, lengths = unpack_lengths_untrusted(head, body)
        if not self.unicast.is_consuming:
            self._port.drop("not-consuming", head.count)
            return
        if head.dest == GROUP and head.source not in self._member_shorts():
            self._port.drop("unknown-sender", head.count)
            return
        self._tracer.record(
            trace.DELIVERED,
            now,
            flags=head.flags,
            peer=head.source,
            count=head.count,
            size=len(body),
            digest=head.digest,
        )
        self._port.deliveries.append(
            Delivery(head.source, 0, 1, head.count, head.flags, body, start, lengths, head.dest)
        )

    def _member_shorts(self) -> frozenset[int]:
        return self.multicast.members if self.multicast is not None else frozenset()

    # -- The record ------------------------------------------------------------------------------

    def _count_drops(self, now: float) -> None:
        port = self._port
        drops, port.drops = port.drops, {}
        for reason, number in drops.items():
            if not number:
                continue
            self.refused[reason] = self.refused.get(reason, 0) + number
            self._tracer.record(trace.DROPPED, now, count=number, text=reason)

    def gauge(self, now: float) -> None:
        """Record how full everything bounded is."""
        self.unicast.gauge(now)
        if self.group is not None:
            self.group.gauge(now)
        if self._reassembler is not None and self._reassembler.open_bytes:
            self._tracer.record(
                trace.GAUGE,
                now,
                stream=trace.FRAGMENT_BYTES,
                lo=self._reassembler.open_bytes,
                hi=self._reassembler.bound(),
            )

    def _gauge(self, now: float) -> None:
        self._next_gauge = now + GAUGE_INTERVAL
        self.gauge(now)
        bound = self._outbox_bytes
        for lane in self._lanes.values():
            if lane.room < bound:
                self._tracer.record(
                    trace.GAUGE,
                    now,
                    stream=trace.OUTBOX_BYTES,
                    peer=lane.dest,
                    lo=bound - lane.room,
                    hi=bound,
                )

    def _record_start(self, now: float) -> None:
        """The settings, too: what a checker needs to know about promises."""
        settings = describe(self.settings, self.bounds())
        text = trace.describe_start(self.address, settings)
        self._tracer.record(trace.START, now, text=text)

    def bounds(self) -> dict[str, dict[str, float]]:
        """What each protocol promises, by its name."""
        mine = {self.settings.unicast: self.unicast.bounds()}
        promised = mine | self.group.bounds() if self.group is not None else mine
        return {name: self._loosened(bounds) for name, bounds in promised.items()}

    def _loosened(self, bounds: dict[str, float]) -> dict[str, float]:
        """What stands when turns are late: what is due is later, and two that follow each other are
        closer when the first of them was late."""
        late = self.lateness
        if not late:
            return bounds
        return {
            name: bound + late
            if name.endswith("_within")
            else max(bound / 2, bound - late)
            if name.endswith("_spacing")
            else bound
            for name, bound in bounds.items()
        }
