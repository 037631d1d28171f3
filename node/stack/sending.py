"""Moves messages from lanes into windows, in batches, as far as window and credits admit.

A stack has a sender for unicasts, and, if it has a group, another one for multicasts.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from stormcast.node import trace
from stormcast.node.core.credits import UNLIMITED
from stormcast.node.core.model import NO_FC, NO_RELIABILITY, OOB
from stormcast.node.protocols.frag import HEADER, CutMessage
from stormcast.node.stack.lane import LENGTH_COST, Lane, OpenEarly, Taken

if TYPE_CHECKING:
    from stormcast.node.protocols.flow import Mfc, Ufc, WindowsBelow
    from stormcast.node.protocols.multicast import Multicast
    from stormcast.node.protocols.port import Port
    from stormcast.node.protocols.unicast import Unicast
    from stormcast.node.settings import StackSettings
    from stormcast.node.stack.group import Group
    from stormcast.node.stack.unreliable import Unreliable


class Sender:
    """Sends what waits in lanes: of unicasts, or of multicasts."""

    def __init__(
        self,
        settings: StackSettings,
        port: Port,
        protocol: Unicast | Multicast,
        stream: WindowsBelow,
        flow: Ufc | Mfc | None,
        unreliable: Unreliable,
        group: Group | None = None,
    ) -> None:
        self._max_batch = settings.max_batch
        self._max_frame = settings.max_frame
        self._window_bytes = protocol.config.window_bytes
        self._fragments = settings.fragments
        self._port = port
        self._protocol = protocol
        self._stream = stream
        """Says how far each destination was sent to, and has acked."""
        self._flow = flow
        self._unreliable = unreliable
        self._group = group
        """For multicasts: the protocols that have to know of them. None for unicasts."""

    def send_waiting(self, lane: Lane, now: float) -> bool:
        """Send what is admitted; return whether that was everything."""
        while lane.run.payloads or len(lane.runs) > 1:
            if not lane.runs[0].flags & NO_RELIABILITY:
                if not self._send_batch(lane, now):
                    return False
            elif self._group is not None and self._group.role.view is None:
                return False
            else:
                self._unreliable.send(lane, now)
        return True

    def _send_batch(self, lane: Lane, now: float) -> bool:
        """Send one batch, unless there is no room for it."""
        run, dest = lane.runs[0], lane.dest
        # `begun` is a large message of which nothing has left yet.
        begun = run.cut if not run.at else None
        early = begun if run.flags & OOB and dest != self._port.me else None
        if early is not None and not self._may_begin(lane, early, now):
            return False
        flow = None if run.flags & NO_FC else self._flow
        room = self._protocol.room(dest)
        taken = self._take(lane, flow, room)
        if taken is None:
            self._ask_for_room(lane, flow, now)
            return False
        try:
            if begun is not None:
                self._note_cut(lane, begun, taken.number, now)
            self._protocol.send(
                dest, taken.payloads, taken.flags, now, taken.header, taken.lengths, taken.number
            )
        except BaseException:
            # Memory may be short: a batch is packed into one piece. What has a number is in a
            # window, and repeated from there; the rest is in no other place than the lane.
            if self._protocol.room(dest) == room:
                lane.put_back(run, taken)
            raise
        if early is not None:
            place = self._stream.sent(dest)
            hi = place.seqno + len(early.pieces) - 1
            lane.open_early.append(OpenEarly(place.conn, hi, early.cost))
        if flow is not None:
            flow.spent(dest, taken.size, now, taken.flags)
        if self._group is not None:
            self._group.multicast_sent(len(taken.payloads), taken.size, now)
        return True

    def _take(self, lane: Lane, flow: Ufc | Mfc | None, room: tuple[int, int]) -> Taken | None:
        """Take from a lane what the window has `room` for and credits admit; None if not even one
        message is."""
        messages, size = room
        # An empty window admits one message of any size, else that message never leaves.
        single = size if size < self._window_bytes else UNLIMITED
        if flow is not None:
            credit = flow.room(lane.dest)
            # Credits count payloads only; a lane counts each message with its length and header.
            header = HEADER.size if lane.runs[0].cut is not None else 0
            size, single = min(size, credit), min(single, credit + LENGTH_COST + header)
        if messages <= 0:
            return None
        return lane.take(min(messages, self._max_batch), min(size, self._max_frame), single)

    def _may_begin(self, lane: Lane, cut: CutMessage, now: float) -> bool:
        """Whether the receivers have room for another OOB message in pieces (see FRAG)."""
        config = self._fragments
        assert config is not None
        if not config.historical.sender_keeps_bound:
            return True
        place = self._stream.sent(lane.dest)
        acked = place.seqno - place.unacked
        if lane.has_room_for_early(
            cut.cost, place.conn, acked, config.max_open_messages, config.max_open_bytes
        ):
            return True
        if self._group is not None:
            self._group.multicast_blocked(now)
        return False

    def _ask_for_room(self, lane: Lane, flow: Ufc | Mfc | None, now: float) -> None:
        """Ask for room: the receivers for credits, or the group to empty the window."""
        dest, size = lane.dest, lane.next_size()
        if flow is not None and flow.room(dest) < size:
            flow.blocked(dest, size, now)
        elif self._group is not None:
            self._group.multicast_blocked(now)

    def _note_cut(self, lane: Lane, cut: CutMessage, number: int, now: float) -> None:
        """Record that a message leaves in pieces."""
        self._port.tracer.record(
            trace.CUT,
            now,
            peer=lane.dest,
            count=len(cut.pieces),
            lo=number,
            hi=number,
            size=cut.total,
            digest=cut.digest,
        )
