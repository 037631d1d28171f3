"""The stack of one member, which works in turns. Pure: time is handed in, frames are handed out.

A turn is: feed the stack (`receive`, `tick`, `try_send`), then `end_turn`, which pulls from the
outbox what windows and credits admit, hands the turn's events to the trace, and returns the frames
to send. The simulator and a real process run this same object.
"""

from __future__ import annotations

from collections.abc import Callable
from random import Random
from typing import TYPE_CHECKING

from stormcast.node import trace
from stormcast.node.core import wire
from stormcast.node.core.codec import Codec, Hash64
from stormcast.node.core.model import Address, Delivery, View
from stormcast.node.protocols.events import Install, Role
from stormcast.node.protocols.multicast import Multicast
from stormcast.node.protocols.port import Frame, Port
from stormcast.node.protocols.unicast import Unicast
from stormcast.node.settings import StackSettings
from stormcast.node.settings.protocols import RELIABLE_UNICAST
from stormcast.node.settings.transports import STREAMS
from stormcast.node.stack.accepting import Acceptor
from stormcast.node.stack.before_leaving import BeforeLeaving
from stormcast.node.stack.changes import Changes
from stormcast.node.stack.departing import Departing
from stormcast.node.stack.group import Group
from stormcast.node.stack.handover import HandOver
from stormcast.node.stack.news import PendingNews
from stormcast.node.stack.outbox import Outbox
from stormcast.node.stack.positions import MulticastPositions, UnicastPositions
from stormcast.node.stack.receiving import Receiver
from stormcast.node.stack.record import Record
from stormcast.node.stack.sending import Sender
from stormcast.node.stack.testing import Let, TestProtocols
from stormcast.node.stack.unreliable import Unreliable
from stormcast.node.trace.tracer import Tracer

if TYPE_CHECKING:
    from stormcast.node.keys.seals import Seals


class Stack:
    """The protocols of one member, and the only way in and out of them."""

    def __init__(
        self,
        address: Address,
        cluster: str,
        settings: StackSettings,
        hash64: Hash64,
        tracer: Tracer,
        now: float,
        *,
        dice: Random | None = None,
        first_conn: int = 1,
        make_unicast: Callable[..., Unicast] | None = None,
        make_multicast: Callable[..., Multicast] | None = None,
        make_codec: Callable[[int, int, Hash64], Codec] = Codec,
        lateness: float = 0.0,
        seals: Seals | None = None,
    ) -> None:
        self.address = address
        self.settings = settings
        self.role = Role(address)
        """The state of this member in its group."""
        self.is_held = False
        """Whether the transport has enough to send: messages stay in the outbox, which fills."""
        codec = make_codec(hash64(cluster.encode()) & 0xFFFFFFFF, address.short, hash64)
        self._tracer = tracer
        self._port = port = Port(codec, tracer)
        self.strangers = port.strangers
        """The budget for what is kept of strangers: senders that are not in the view."""
        self.unicast = _made_unicast(settings, port, make_unicast or Unicast, first_conn)
        unicasts = UnicastPositions(self.unicast, port)
        self.group: Group | None = None
        """The protocols of a group, where the stack has them."""
        if settings.has_group:
            self.group = Group(
                settings,
                self.role,
                port,
                dice or Random(address.identity),
                self._adopt,
                unicasts,
                make_multicast,
            )
        self.multicast = self.group.multicast if self.group is not None else None
        flow = self.group.flow if self.group is not None else {}
        self.outbox = Outbox(address, port, settings.outbox_bytes, has_group=self.group is not None)
        self._before_leaving = BeforeLeaving(self.outbox, self.unicast, self.group)
        self.pending_news = PendingNews(port, self.outbox, self._before_leaving)
        self.has_news, self.take_news = self.pending_news.is_any, self.pending_news.take
        """Methods of the news, as each turn asks whether there are any."""
        self.acceptor = Acceptor(settings, self.outbox, flow, hash64)
        self.try_send = self.acceptor.try_send
        """The acceptor's own method, as each message passes it."""
        self._unreliable = unreliable = Unreliable(settings, port, self.unicast, self.multicast)
        self._unicasts = Sender(
            settings, port, self.unicast, unicasts, flow.get(wire.UFC), unreliable
        )
        self._multicasts = _made_multicasts(settings, port, self.group, unreliable)
        self._hand_over = HandOver(settings, port, self.unicast, self.multicast, flow)
        self._pieces = self._hand_over.pieces
        self._reassembler = self._pieces.reassembler
        self._test_protocols = TestProtocols(
            settings, port, dice or Random(address.identity ^ 1), self.role.name_of
        )
        self._seals = seals
        self._receiver = Receiver(
            port,
            self.unicast,
            unreliable,
            self.group,
            self._test_protocols,
            self._pieces.forget_remembered,
            seals,
        )
        self.receive = self._receiver.receive
        """The receiver's own method, as each datagram passes it."""
        self.record = Record(
            settings,
            port,
            self.unicast,
            self.group,
            self._hand_over,
            self._pieces,
            self.outbox,
        )
        self._departing = Departing(settings.transport_config, port, self._test_protocols, seals)
        self._passed = self._departing.passed
        """The list of that object, as it is looked at in each turn."""
        self.test_protocols = self._test_protocols.listed
        """The test protocols' own method, as all that follow are those of the changes."""
        changes = Changes(
            settings, self.unicast, self.multicast, self._test_protocols, self._let_pass
        )
        self.set_attribute = changes.set_attribute
        self.set_test_protocol = changes.set_test_protocol
        self.unrepaired_test_protocols = changes.unrepaired_test_protocols
        self._now = now
        # In real time turns are late by up to `lateness`, and promises are loosened by as much.
        self.record.start(address, lateness, now)

    # -- Life ------------------------------------------------------------------------------------

    def start(self, now: float) -> None:
        """Begin to join the group, if there is one to join."""
        if self.group is not None:
            self.group.start(now)

    def leave(self, now: float) -> None:
        """Begin to leave: what was accepted leaves first. `has_left` says when it is done."""
        self._before_leaving.start(now)

    @property
    def has_left(self) -> bool:
        """Whether this member has left its group; without one, whether it may end."""
        return self._before_leaving.has_left

    def stop(self, now: float) -> list[Frame]:
        """End: send what windows still admit, ack what is pending, end the trace."""
        frames = self.end_turn(now)
        self._before_leaving.stop()
        if self.group is not None:
            self.group.stop(now)
        self.unicast.stop(now)
        frames += self.end_turn(now)
        self._receiver.is_open = False
        self.outbox.stop(now)
        self.record.flush(now)
        self._tracer.record(trace.STOP, now)
        self._tracer.seal()
        return frames

    # -- The application's side ------------------------------------------------------------------

    @property
    def view(self) -> View | None:
        """The current view."""
        return self.role.view

    def set_consuming(self, consuming: bool, now: float) -> int:  # noqa: FBT001 it is the whole message
        """Set whether the application takes deliveries; while it does not, senders block in the
        end. Returns how many messages, or pieces of them, waited for the application."""
        # Own unicasts to oneself wait in the outbox.
        own = self.outbox.pending(self.address.short)
        waited = sum(map(len, self._port.withheld), own) if consuming else 0
        try:
            waited += self.unicast.set_consuming(consuming, now)
        finally:
            # Also where unicasts could not be handed up: nobody says it again.
            if self.group is not None:
                waited += self.group.set_consuming(consuming, now)
        return waited

    def take_deliveries(self) -> list[Delivery]:
        """Return what has arrived for the application since the last call, in order; all of it must
        be handed to the application now. Before `end_turn` this is what others sent, so that an
        answer leaves in this turn; after it, what `end_turn` delivered to this member itself."""
        # Test protocols look at deliveries once, at the end of the turn.
        if (self._port.deliveries or self._port.withheld) and not self._test_protocols.is_on:
            self._hand_over.run(self._now)
        return self._hand_over.take() if self._hand_over.ready else []

    # -- The network's side --------------------------------------------------------------------

    def on_link(self, peer: int, is_up: bool, now: float) -> None:  # noqa: FBT001 the two ends of a link
        """React to a monitored connection that was made, refused or ended."""
        if self.group is not None:
            self.group.on_link(peer, is_up, now)
            self.group.drain(now)

    def on_connection_lost(self, peer: int, now: float) -> None:
        """React to a connection of the transport that ended or was replaced: what it held may be
        lost."""
        if self.multicast is not None:
            self.multicast.on_link_lost(peer, now)

    def ask_around(self, now: float) -> None:
        """Ask everybody once, by discovery: the answers say where members are."""
        if self.group is not None:
            self.group.discovery.ask_once(now)

    @property
    def unfinished_bytes(self) -> int:
        """The cost of messages of which pieces are missing."""
        return self._reassembler.open_bytes if self._reassembler is not None else 0

    @property
    def standing_gaps(self) -> int:
        """The number of windows of multicasts with a gap that will raise an alarm."""
        return self.multicast.standing_gaps() if self.multicast is not None else 0

    @property
    def refusal(self) -> str:
        """The reason for which the last refused frame was refused."""
        return self._receiver.refusal

    @property
    def keys(self) -> list[str]:
        """The ids of the keys that open what others send; by the first one this member seals."""
        return self._seals.names if self._seals is not None else []

    def tell_keys(self) -> bytes:
        """Return a frame for one who sends without the key of this member."""
        assert self._seals is not None
        return self._seals.tell_keys(self._port.codec)

    def destinations(self) -> tuple[int, ...]:
        """Return where a frame for the group goes when the network has no multicast."""
        return self.group.destinations() if self.group is not None else ()

    def is_peer(self, short: int) -> bool:
        """Whether another one is in the view, or in one that is on its way. Without a group
        everybody is a peer."""
        return self.group is None or self.group.is_peer(short)

    # -- Turns -----------------------------------------------------------------------------------

    def tick(self, now: float) -> None:
        """Do what is due."""
        self._now = now
        if self._seals is not None and self.settings.transport not in STREAMS:
            self._seals.tick(now)
        if self._before_leaving.look_at <= now:
            self._before_leaving.look(now)
        self.unicast.tick(now)
        if self.group is not None:
            self.group.tick(now)
            if self._port.events:
                self.group.drain(now)
        if self._test_protocols.is_on and self._test_protocols.next_deadline() <= now:
            self._let_pass(self._test_protocols.release(now), now)
        self._pieces.expire(now)

    def next_deadline(self) -> float:
        """Return when to call `tick` next; infinity when nothing waits for time."""
        outbox = self.outbox
        if self._port.frames or self._passed or (outbox.queued and not self.is_held):
            # Due now: frames that did not fit the transport, or follow from what the application
            # took, and lanes that were freed at the end of a turn.
            return self._now
        due = self.unicast.next_deadline()
        if outbox.flush_at < due:
            due = outbox.flush_at
        if self._before_leaving.look_at < due:
            due = self._before_leaving.look_at
        if self._hand_over.flush_at < due:
            due = self._hand_over.flush_at
        pieces = self._reassembler
        if pieces is not None and pieces.next_expiry < due and self.unicast.is_consuming:
            due = pieces.next_expiry
        if self._test_protocols.is_on:
            due = min(due, self._test_protocols.next_deadline())
        if self.group is not None:
            when = self.group.next_deadline()
            if when < due:
                due = when
        return due

    def end_turn(self, now: float) -> list[Frame]:
        """Pull from the outbox, close the turn's trace, and hand out the frames to send."""
        self._now = now
        port, unicast, group, outbox = self._port, self.unicast, self.group, self.outbox
        # Acks first: they are small, and the peer may wait for the room that they free.
        if unicast.acks_now or unicast.syncs_now:
            unicast.finish_turn(now)
        if group is not None:
            group.finish_turn(now)
            # Before lanes are woken: a view may be among the events, and free lanes that wait.
            if port.events:
                group.drain(now)
        if outbox.queued or port.woken or port.closed or port.abandoned:
            self._pull(now)
        if now >= self.record.gauge_at:
            self.record.gauge_all(now)
        if self._test_protocols.is_on:
            port.deliveries = self._test_protocols.deliveries_up(port.deliveries, now)
        if port.deliveries or port.withheld:
            # Before the turn's trace is closed, so that it says what the application was handed;
            # and before frames leave, as credits may follow.
            self._hand_over.run(now)
            if port.woken:
                # Credits of this member for itself: lanes that waited for them are queued.
                outbox.wake()
        has_frames = port.frames or self._passed or self._test_protocols.is_on
        frames = self._departing.take(now) if has_frames else []
        if port.drops or now >= outbox.flush_at or now >= self._hand_over.flush_at:
            self.record.end_turn(now)
        tracer = self._tracer
        if len(tracer.records) >= tracer.seal_at:
            tracer.turn()
        return frames

    def _pull(self, now: float) -> None:
        """Act on what ended and what was freed in this turn, and send what may leave now."""
        outbox, port = self.outbox, self._port
        if port.woken or port.closed or port.abandoned:
            outbox.settle(now)
        if outbox.queued and not self.is_held:
            outbox.pull(self._unicasts, self._multicasts, now)
            if self.group is not None and port.woken:
                # A member that is alone purges its own multicasts as it sends them.
                outbox.wake()

    # -- Views -----------------------------------------------------------------------------------

    def install_view(self, view: View, now: float) -> None:
        """Install a view by hand, which no membership protocol made."""
        if self.group is not None:
            self.group.install_by_hand(view, now)
            self.group.drain(now)
        else:
            self.role.view = view
            self._adopt(Install(view), now)

    def _adopt(self, event: Install, now: float) -> None:
        """Record a new view, and pass it to unicast, the hand-over and the application."""
        view = event.view
        self.record.view(event, now)
        shorts = frozenset(member.short for member in view.members)
        if self._seals is not None:
            self._seals.on_view(shorts)
        self._unreliable.on_view(view)
        self.unicast.on_view(shorts, now)
        self._hand_over.on_view(shorts, now)
        self.pending_news.views.append(view)

    # -- Test protocols ------------------------------------------------------------------------

    def _let_pass(self, let: Let, now: float) -> None:
        """Pass on what test protocols released, down and up."""
        frames, arrived = let
        self._passed += frames
        self._receiver.pass_up(arrived, now)


def _made_unicast(
    settings: StackSettings, port: Port, make: Callable[..., Unicast], first_conn: int
) -> Unicast:
    made = make(
        RELIABLE_UNICAST[settings.unicast],
        settings.unicast_config,
        settings.timing,
        port,
        first_conn,
    )
    if settings.has_group:
        made.set_grouped()
    return made


def _made_multicasts(
    settings: StackSettings, port: Port, group: Group | None, unreliable: Unreliable
) -> Sender | None:
    if group is None:
        return None
    multicast = group.multicast
    positions = MulticastPositions(multicast, port)
    flow_control = group.flow.get(wire.MFC)
    return Sender(settings, port, multicast, positions, flow_control, unreliable, group)
