"""Sends: numbers a batch, keeps it until every member has it, sends it as one frame (G1, G6)."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from typing import NamedTuple

from stormcast.node import trace
from stormcast.node.core import wire
from stormcast.node.core.batch import Batch
from stormcast.node.core.codec import Body, pack_body
from stormcast.node.core.model import DONT_LOOPBACK, FIRST, Payload
from stormcast.node.core.timing import Timing
from stormcast.node.core.window import Stored
from stormcast.node.protocols.deliveries import hand_to_self
from stormcast.node.protocols.multicast.announcing import Announcing
from stormcast.node.protocols.multicast.config import MulticastConfig
from stormcast.node.protocols.multicast.flaws import Interruption
from stormcast.node.protocols.multicast.retention import Retention
from stormcast.node.protocols.multicast.state import Streams
from stormcast.node.protocols.port import Abandoned
from stormcast.node.protocols.windowed import note_resent, unconfirmed


class HeldOwn(NamedTuple):
    """An own batch that waits until the application takes deliveries again."""

    lo: int
    body: Body
    payloads: list[Payload]
    flags: int


class Outgoing:
    """Sends and resends the multicasts of this member."""

    def __init__(self, state: Streams, retention: Retention, announcing: Announcing) -> None:
        self._state = state
        self._retention = retention
        self._announcing = announcing
        self._own = state.own
        self._port = state.port
        self._tracer = state.port.tracer
        self._codec = state.port.codec
        self._protocol = state.generation.protocol
        self._held: deque[HeldOwn] = deque()
        splits = state.config.historical.split_send
        self._interruption = Interruption(state.port) if splits else None

    def room(self, dest: int = wire.GROUP) -> tuple[int, int]:
        """Messages and bytes that `send` would take now; nothing before the first view."""
        if self._state.view is None:
            return 0, 0
        return self._own.room()

    def send(
        self,
        dest: int,
        payloads: Sequence[Payload],
        flags: int,
        now: float,
        header: bytes = b"",
        lengths: list[int] | None = None,
        number: int = 0,
    ) -> None:
        """Number a batch that `room` admits, keep it, and send it as one frame: in one step, so
        that messages are sent in the order of their numbers. Where that fails, it has no number."""
        body = pack_body(payloads, self._codec.hash64, header, lengths)
        batch = Batch(body, flags, now, number)
        own, recorded = self._own, len(self._tracer.records)
        lo = own.append(body.count, len(body.data), batch)
        try:
            self._tracer.sent(
                now,
                self._protocol,
                wire.GROUP,
                0,
                self._state.view_number,
                flags,
                body,
                number,
                lo,
                own.high,
            )
            self._emit(lo, batch, wire.GROUP)
            # Behind those that wait, in order (G3): they may still do where handing up failed.
            if self._held or not (self._state.is_consuming or flags & DONT_LOOPBACK):
                self._held.append(HeldOwn(lo, body, list(payloads), flags))
            else:
                self._hand(lo, body, payloads, flags, now)
        except BaseException:
            self._take_back(body, recorded)
            raise
        if self._interruption is not None:
            self._interruption.come_between(lo)
        self._announcing.schedule(now)
        self.purge(self._retention.delivered_here(), now)

    def _take_back(self, body: Body, recorded: int) -> None:
        """Undo what was done of a batch that could not be sent, for a bug or for want of memory:
        others would repeat it from the window, but nobody would hand it to this member."""
        self._own.take_back()
        del self._tracer.records[recorded:]
        frames = self._port.frames
        if frames and frames[-1][2] is body.data:
            del frames[-1]

    def _emit(self, lo: int, batch: Batch, dest: int) -> None:
        head = self._codec.pack_data(
            self._protocol,
            dest,
            0,
            lo,
            batch.body,
            batch.flags,
            batch.transmission,
            self._own.low,
            self._state.view_tag,
        )
        self._port.frames.append((dest, head, batch.body.data))

    def _hand(
        self, lo: int, body: Body, payloads: Sequence[Payload], flags: int, now: float
    ) -> None:
        """Deliver an own batch to this member."""
        state = self._state
        if not flags & DONT_LOOPBACK:
            hand_to_self(
                self._port,
                self._protocol,
                wire.GROUP,
                0,
                state.view_number,
                lo,
                body,
                payloads,
                flags,
                now,
            )
        state.own_delivered = lo + body.count - 1

    def deliver_held(self, now: float) -> int:
        """Hand up own messages that waited for the application. Returns how many did."""
        waited = 0
        while self._held:
            own = self._held[0]
            self._hand(*own, now)
            # Not before: where it fails, the messages come first in the next try.
            self._held.popleft()
            if not own.flags & DONT_LOOPBACK:
                waited += own.body.count
        self.purge(self._retention.delivered_here(), now)
        return waited

    def purge(self, seqno: int, now: float) -> None:
        """Remove own messages that every member has (G6), and let the outbox fill the room."""
        own = self._own
        low = own.low
        seqno = min(seqno, self._state.own_delivered)
        if seqno <= low:
            return
        # At once: nothing else says so where this was all.
        self._port.woken.append(wire.GROUP)
        self._tracer.purged(
            now,
            protocol=self._protocol,
            peer=wire.GROUP,
            view=self._state.view_number,
            lo=low + 1,
            hi=seqno,
        )
        # Last: where the rest fails, the window shows that its messages have numbers.
        own.ack(seqno)

    def resend(self, stored: Stored[Batch], asker: int, now: float) -> None:
        """Send a batch again: to the asker, or to all members, which may miss it as well."""
        batch = stored.item
        config = self._state.config
        dest = wire.GROUP if config.use_mcast_xmit else asker
        if dest == wire.GROUP:
            # Many members may ask for the same lost multicast: one answer serves all of them.
            if now < batch.resent_at + answer_lasts(config, self._state.pacer.timing):
                return
            batch.resent_at = now
        view = self._state.view_number
        note_resent(
            self._tracer,
            stored,
            now,
            protocol=self._protocol,
            peer=dest,
            view=view,
            flags=batch.flags,
        )
        self._emit(stored.lo, batch, dest)

    def send_baseline(self, peer: int, transmission: int = 0, question: int = 0) -> None:
        """Tell a peer which own messages can still be had. To a member of the view this is final
        (FIRST): nothing more is purged without it. The frame names that view, and the `question`
        that it answers."""
        state, own = self._state, self._own
        self._port.control(
            peer,
            wire.BASELINE,
            self._protocol,
            own.high,
            conn=state.view_tag,
            mark=own.low,
            flags=FIRST if peer in state.members else 0,
            transmission=transmission,
            stamp=question or state.view_tag,
        )

    def stop(self, now: float) -> None:
        """Forget own batches that wait for the application, and tell of the multicasts that some
        member may not have: nobody repairs them any more."""
        self._held.clear()
        own = self._own
        count, last = unconfirmed(own)
        if not count:
            return
        self._tracer.record(
            trace.ABANDONED,
            now,
            protocol=self._protocol,
            peer=wire.GROUP,
            count=count,
            lo=own.low + 1,
            hi=own.high,
            text="stop",
        )
        self._port.abandoned.append(Abandoned(wire.GROUP, count, "stop", last))


def answer_lasts(config: MulticastConfig, timing: Timing) -> float:
    """Return the seconds for which a multicast that was resent to all is not resent again: all that
    ask for it in that time have their answer."""
    return min(timing.min_wait, config.xmit_interval / 2) if config.use_mcast_xmit else 0.0
