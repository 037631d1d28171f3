"""The stack of one member: outbox, protocols, frames. Pure: time is handed in, frames are handed
out.

A turn is: feed it (`receive`, `tick`, `try_send`), then `end_turn`, which pulls from the outbox
what windows admit, hands the turn's events to the trace, and returns the frames to send. The
simulator and a real process run this same object.
"""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Callable
from math import inf
from typing import Final

from node import trace
from node.core import wire
from node.core.codec import Codec, Hash64, pack_body, unpack_lengths_untrusted
from node.core.errors import BadFrame, ClosedError, require
from node.core.model import (
    DONT_BUNDLE,
    DONT_LOOPBACK,
    MESSAGE_FLAGS,
    NO_RELIABILITY,
    Address,
    Delivery,
    Payload,
    View,
)
from node.core.wire import Head
from node.outbox import LENGTH_COST, MESSAGE_OVERHEAD, Lane, Run
from node.protocols.port import Frame, Port
from node.protocols.unicast import UNLIMITED, Unicast
from node.settings import RELIABLE_UNICAST, StackSettings, convert

MAX_MESSAGE: Final = wire.MAX_BODY - LENGTH_COST
"""Bytes of the largest message: what one frame can carry."""
GAUGE_INTERVAL: Final = 0.25
"""Seconds between two looks at how full things are; taken when something happens anyway."""


class Stack:
    """The protocols of one member, and the only way in and out of them."""

    def __init__(
        self,
        address: Address,
        cluster: str,
        settings: StackSettings,
        hash64: Hash64,
        tracer: trace.Tracer,
        now: float,
        *,
        first_conn: int = 1,
        make_unicast: Callable[..., Unicast] | None = None,
    ) -> None:
        self.address = address
        self.settings = settings
        self.view: View | None = None
        self.refused: dict[str, int] = {}
        """What was dropped or refused so far, by reason."""
        self._codec = Codec(hash64(cluster.encode()) & 0xFFFFFFFF, address.short, hash64)
        self._tracer = tracer
        self._port = Port(self._codec, tracer)
        protocol = make_unicast or RELIABLE_UNICAST[settings.unicast]
        self.unicast: Unicast = protocol(
            settings.unicast_config, settings.timing, self._port, first_conn
        )
        self._me = address.short
        self._lanes: dict[int, Lane] = {}
        self._queued: list[Lane] = []
        self._outbox_bytes = settings.outbox_bytes
        self._unreliable_sent = 0
        self._next_gauge = now + GAUGE_INTERVAL
        self._is_open = True
        tracer.record(trace.START, now, text=trace.describe_start(address, self._describe()))

    # -- The application's side ------------------------------------------------------------------

    def try_send(self, dest: int, payload: Payload, flags: int = 0) -> bool:
        """Accept a message for `dest` (a short id), or return False when its lane is full."""
        lane = self._lanes.get(dest)
        if lane is None:
            lane = self._open_lane(dest)
        cost = len(payload) + MESSAGE_OVERHEAD
        if cost > lane.room and not self._admits_alone(lane, payload):
            return False
        run = lane.run
        if flags != run.flags or flags & DONT_BUNDLE:
            run = self._begin_run(lane, flags)
        lane.room -= cost
        run.payloads.append(payload)
        if not lane.is_queued:
            lane.is_queued = True
            self._queued.append(lane)
        return True

    def take_deliveries(self) -> list[Delivery]:
        """What has arrived for the application since the last call, in order."""
        port = self._port
        taken = port.deliveries
        if taken:
            port.deliveries = []
        return taken

    def pending(self, dest: int) -> int:
        """Messages for `dest` that were accepted and not yet numbered."""
        lane = self._lanes.get(dest)
        return len(lane) if lane else 0

    def set_consuming(self, consuming: bool, now: float) -> None:  # noqa: FBT001 it is the whole message
        """Whether the application takes deliveries; while it does not, senders block in the end."""
        self.unicast.set_consuming(consuming, now)

    # -- The network's side --------------------------------------------------------------------

    def receive(self, datagram: bytes, now: float) -> None:
        """Take the frames of one datagram. What is not a frame for us is counted, and changes
        nothing."""
        if not self._is_open:
            return
        at, end = 0, len(datagram)
        try:
            while at < end:
                head, body = self._codec.unpack_untrusted(datagram, at)
                at += wire.HEAD_SIZE + head.size
                if head.dest != self._me:
                    self._port.drop("other-destination")
                elif head.source == self._me or not head.source:
                    self._port.drop("bad-source")
                elif head.protocol == self.unicast.protocol:
                    self.unicast.receive(head, body, now)
                elif head.protocol == wire.NONE and head.kind == wire.DATA:
                    self._deliver_unreliable(head, body, now)
                else:
                    self._port.drop("protocol")
        except BadFrame as bad:
            self._port.drop(bad.reason)

    def tick(self, now: float) -> None:
        """Do what is due."""
        self.unicast.tick(now)

    def next_deadline(self) -> float:
        """When `tick` is wanted next; infinity when nothing waits for time."""
        return self.unicast.next_deadline()

    def end_turn(self, now: float) -> list[Frame]:
        """Pull from the outbox, close the turn's trace, and hand out the frames to send."""
        unicast = self.unicast
        port = self._port
        # Acks first: they are small, and what they free at the peer is what it waits for.
        unicast.finish_turn(now)
        if port.closed:
            self._close_lanes(now)
        if port.woken:
            self._wake_lanes()
        if self._queued:
            self._pull(now)
            # A message to self, or an answer that is due at once, may have been added by the pull.
            unicast.finish_turn(now)
        if now >= self._next_gauge:
            self._gauge(now)
        if port.drops:
            self._count_drops(now)
        self._tracer.turn()
        frames = port.frames
        if frames:
            port.frames = []
        return frames

    # -- Membership and commands -----------------------------------------------------------------

    def install_view(self, view: View, now: float) -> None:
        """Adopt a view: connections to who left start closing."""
        self.view = view
        members = ",".join(f"{member.short:08x}" for member in view.members)
        self._tracer.record(
            trace.VIEW, now, lo=view.id.number, count=len(view.members), text=members
        )
        self.unicast.on_view(frozenset(member.short for member in view.members), now)

    def close_connection(self, peer: int, now: float) -> None:
        """Close both directions to `peer`, flushing what is pending."""
        self.unicast.close(peer, now)

    def forget(self, peer: int, now: float, *, sender: bool = True, receiver: bool = True) -> None:
        """Lose what is known of `peer`, as a one-sided removal does."""
        self.unicast.forget(peer, now, sender=sender, receiver=receiver)

    def set_attribute(self, name: str, value: object, now: float) -> None:
        """Change a setting at run time."""
        kinds = {field.name: field.type for field in dataclasses.fields(self.unicast.config)}
        if name in self.unicast.config.settable:
            value = convert(f"{self.settings.unicast}.{name}", value, kinds[name])
        self.unicast.set_attribute(name, value, now)

    def stop(self, now: float) -> list[Frame]:
        """Leave: send what windows still admit, ack what is pending, end the trace."""
        frames = self.end_turn(now)
        self.unicast.stop(now)
        frames += self.end_turn(now)
        self._is_open = False
        self._lanes = {}
        self._tracer.record(trace.STOP, now)
        self._tracer.seal()
        return frames

    # -- Inside ------------------------------------------------------------------------------

    def _open_lane(self, dest: int) -> Lane:
        if not self._is_open:
            raise ClosedError(f"{self.address} is closed: open a new channel to send")
        require(0 < dest < 1 << 32, f"dest is {dest}: it must be the short id of an address")
        lane = self._lanes[dest] = Lane(dest, self._outbox_bytes)
        return lane

    def _admits_alone(self, lane: Lane, payload: Payload) -> bool:
        """A message beyond the outbox enters an empty lane, if a frame can carry it."""
        require(
            len(payload) <= MAX_MESSAGE,
            f"a message of {len(payload)} bytes: a frame carries {MAX_MESSAGE}; split it",
        )
        return lane.room >= self._outbox_bytes

    def _begin_run(self, lane: Lane, flags: int) -> Run:
        require(
            not flags & ~MESSAGE_FLAGS, f"message flags {flags:#x}: unknown; see node.core.model"
        )
        return lane.cut(flags)

    def _pull(self, now: float) -> None:
        """Batches leave each queued lane while its window has room."""
        queued, self._queued = self._queued, []
        unicast = self.unicast
        max_batch, max_frame = self.settings.max_batch, self.settings.max_frame
        window_bytes = self.settings.unicast_config.window_bytes
        for lane in queued:
            lane.is_queued = False
            dest = lane.dest
            while lane.run.payloads or len(lane.runs) > 1:
                if lane.runs[0].flags & NO_RELIABILITY:
                    self._send_unreliable(lane, now)
                    continue
                messages, size = unicast.room(dest)
                # An empty window admits one message of any size, else that message never leaves.
                single = size if size < window_bytes else UNLIMITED
                batch = (
                    lane.take(min(messages, max_batch), min(size, max_frame), single)
                    if messages > 0
                    else None
                )
                if batch is None:
                    self._note_blocked(lane, now)
                    break
                unicast.send(dest, batch[0], batch[1], now)
            else:
                if lane.blocked_since >= 0:
                    self._note_unblocked(lane, now)

    def _note_blocked(self, lane: Lane, now: float) -> None:
        if lane.blocked_since < 0:
            lane.blocked_since = now
            self._tracer.record(trace.BLOCKED, now, peer=lane.dest, count=len(lane))

    def _note_unblocked(self, lane: Lane, now: float) -> None:
        lane.blocked_since = -1.0
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
        """A connection ended: who waited for room in it is released, and what waited is counted."""
        port = self._port
        closed, port.closed = port.closed, []
        for peer in closed:
            lane = self._lanes.get(peer)
            if lane is None:
                continue
            if lane.blocked_since >= 0:
                self._note_unblocked(lane, now)
                port.drop("connection-closed", lane.clear())
            if lane.is_empty() and not lane.is_queued:
                del self._lanes[peer]

    def _send_unreliable(self, lane: Lane, now: float) -> None:
        batch = lane.take(self.settings.max_batch, self.settings.max_frame, UNLIMITED)
        assert batch is not None
        payloads, flags = batch
        body = pack_body(payloads, self._codec.hash64)
        self._tracer.record(
            trace.SENT,
            now,
            flags=flags,
            peer=lane.dest,
            count=body.count,
            size=len(body.data),
            digest=body.digest,
        )
        # Numbered only to be told apart: a frame's fate is drawn from its preamble.
        self._unreliable_sent += 1
        head = self._codec.pack_data(
            wire.NONE, lane.dest, 0, self._unreliable_sent, body, flags, 0, 0, 0
        )
        if lane.dest != self._me:
            self._port.frames.append((lane.dest, head, body.data))
        elif not flags & DONT_LOOPBACK:
            self._deliver_unreliable(Head._make(wire.HEAD_STRUCT.unpack(head)), body.data, now)

    def _deliver_unreliable(self, head: Head, body: bytes, now: float) -> None:
        start, lengths = unpack_lengths_untrusted(head, body)
        if not self.unicast.is_consuming:
            self._port.drop("not-consuming", head.count)
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
            Delivery(head.source, 0, 1, head.count, head.flags, body, start, lengths)
        )

    def _count_drops(self, now: float) -> None:
        port = self._port
        drops, port.drops = port.drops, {}
        for reason, number in drops.items():
            self.refused[reason] = self.refused.get(reason, 0) + number
            self._tracer.record(trace.DROPPED, now, count=number, text=reason)

    def _gauge(self, now: float) -> None:
        self._next_gauge = now + GAUGE_INTERVAL
        self.unicast.gauge(now)
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

    def _describe(self) -> str:
        """The settings as the trace keeps them: what a checker needs to know about promises."""
        config = self.settings.unicast_config
        values = {field.name: getattr(config, field.name) for field in dataclasses.fields(config)}
        values["historical"] = {
            field.name: getattr(config.historical, field.name)
            for field in dataclasses.fields(config.historical)
        }
        return json.dumps(
            {
                "protocol": self.settings.unicast,
                "timing": self.settings.timing.name,
                "bounds": {
                    name: None if bound == inf else bound
                    for name, bound in self.unicast.bounds().items()
                },
                **values,
            },
            sort_keys=True,
        )
