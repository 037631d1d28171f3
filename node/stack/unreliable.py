"""Messages without reliability: sent once, unnumbered, and delivered if they arrive."""

from __future__ import annotations

from typing import TYPE_CHECKING

from stormcast.node import trace
from stormcast.node.core import wire
from stormcast.node.core.codec import pack_body, unpack_lengths_untrusted
from stormcast.node.core.credits import UNLIMITED
from stormcast.node.core.model import DONT_LOOPBACK, Delivery
from stormcast.node.core.wire import GROUP, Head

if TYPE_CHECKING:
    from stormcast.node.core.model import View
    from stormcast.node.protocols.multicast import Multicast
    from stormcast.node.protocols.port import Port
    from stormcast.node.protocols.unicast import Unicast
    from stormcast.node.settings import StackSettings
    from stormcast.node.stack.lane import Lane


class Unreliable:
    """Sends and delivers messages without reliability, for one member."""

    def __init__(
        self, settings: StackSettings, port: Port, unicast: Unicast, multicast: Multicast | None
    ) -> None:
        self._max_batch = settings.max_batch
        self._max_frame = settings.max_frame
        self._port = port
        self._unicast = unicast
        self._multicast = multicast
        self._sent = 0
        self._view = 0
        """The number of this member's view."""
        self._since: dict[int, int] = {}
        """By short id of each member of the view: the number of the view with which it came, as
        this member saw it."""

    def on_view(self, view: View) -> None:
        """Take in a view. What a member multicast before it and this member were together was sent
        to others, and is not delivered: somebody recorded it."""
        self._view = view.id.number
        self._since = {
            member.short: self._since.get(member.short, self._view) for member in view.members
        }

    def send(self, lane: Lane, now: float) -> None:
        """Send the next messages of a lane as one batch."""
        port, dest = self._port, lane.dest
        run = lane.runs[0]
        batch = lane.take(self._max_batch, self._max_frame, UNLIMITED)
        assert batch is not None
        flags = batch.flags
        # Numbered only so that frames differ: a frame's fate is drawn from its preamble.
        self._sent += 1
        view = self._view if dest == GROUP else 0
        try:
            body = pack_body(batch.payloads, port.codec.hash64)
            head = port.codec.pack_data(wire.NONE, dest, 0, self._sent, body, flags, 0, view, 0)
            port.tracer.sent(now, wire.NONE, dest, 0, 0, flags, body, batch.number, 0, 0)
        except BaseException:
            # It was not sent, not even once.
            lane.put_back(run, batch)
            raise
        if dest != port.me:
            port.frames.append((dest, head, body.data))
        if dest in (port.me, GROUP) and not flags & DONT_LOOPBACK:
            self.receive(Head._make(wire.HEAD_STRUCT.unpack(head)), body.data, now)

    def receive(self, head: Head, body: bytes, now: float) -> None:
        """Deliver what came, unless the application takes nothing or the sender is unknown."""
        port = self._port
        if head.kind != wire.DATA:
            port.drop("kind")
            return
        start, lengths = unpack_lengths_untrusted(head, body)
        if not self._unicast.is_consuming:
            port.drop("not-consuming", head.count)
            return
        if head.dest == GROUP and (reason := self._refusal(head)):
            port.drop(reason, head.count)
            return
        delivery = Delivery(
            head.source, 0, 1, head.count, head.flags, body, start, lengths, head.dest
        )
        port.tracer.record(
            trace.DELIVERED,
            now,
            flags=head.flags,
            peer=head.source,
            count=head.count,
            size=len(body),
            digest=head.digest,
        )
        port.deliveries.append(delivery)

    def _refusal(self, head: Head) -> str:
        """Return the reason to refuse a multicast; empty if there is none."""
        source = head.source
        if self._multicast is None or source not in self._multicast.members:
            return "unknown-sender"
        return "other-view" if head.mark < self._since.get(source, 0) else ""
