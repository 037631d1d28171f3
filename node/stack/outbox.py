"""Keeps messages that were accepted, and that no window has admitted yet: a lane per destination.

A lane is looked at when the turn ends, if a message was put in, or if room was made for it. When a
connection ends, the messages that waited for room in it are given up, and the application is told.
"""

from __future__ import annotations

from math import inf
from typing import TYPE_CHECKING, Final

from stormcast.node import trace
from stormcast.node.core.errors import ClosedError, require
from stormcast.node.core.wire import GROUP
from stormcast.node.protocols.port import Abandoned
from stormcast.node.stack.handover import FLUSH_INTERVAL
from stormcast.node.stack.lane import Lane

if TYPE_CHECKING:
    from stormcast.node.core.model import Address
    from stormcast.node.protocols.port import Port
    from stormcast.node.stack.sending import Sender


REMEMBERED_LANES: Final = 4096
"""Destinations whose lanes were removed: each incarnation of a member is another one."""


class Outbox:
    """The lanes of one member."""

    def __init__(self, owner: Address, port: Port, bound: int, *, has_group: bool) -> None:
        self.bound = bound
        """Bytes accepted per destination."""
        self.lanes: dict[int, Lane] = {}
        self.queued: list[Lane] = []
        """Lanes to be looked at when the turn ends."""
        self.abandoned: dict[str, int] = {}
        """Messages that were accepted and given up so far, by reason."""
        self.flush_at = inf
        """When to record, at the latest, what was offered."""
        self.is_open = True
        self._owner = owner
        self._port = port
        self._has_group = has_group
        self._numbers: dict[int, int] = {}
        """The number of messages accepted so far for a destination whose lane was removed; the
        latest destination last."""
        self._untold: list[Abandoned] = []
        self._failed: list[int] = []
        """Destinations of lanes from which nothing could be sent, because of a bug."""

    # -- Lanes -------------------------------------------------------------------------------------

    def lane(self, dest: int) -> Lane:
        """Return the lane of `dest`. A caller that keeps it must check whether it `is_queued`."""
        lane = self.lanes.get(dest)
        return lane if lane is not None else self.open(dest)

    def open(self, dest: int) -> Lane:
        """Begin a lane to a destination that has none."""
        if not self.is_open:
            raise ClosedError(f"{self._owner} is closed: open a new channel to send")
        require(
            0 < dest < 1 << 32 or (dest == GROUP and self._has_group),
            f"dest is {dest}: it must be the short id of an address"
            + (", or GROUP" if self._has_group else ""),
        )
        lane = self.lanes[dest] = Lane(dest, self.bound, self._numbers.pop(dest, 0))
        return lane

    def pending(self, dest: int) -> int:
        """Messages for `dest` that were accepted and not yet numbered."""
        lane = self.lanes.get(dest)
        return len(lane) if lane else 0

    def room(self, dest: int) -> int:
        """Bytes that are still accepted for `dest`; all of them when nothing waits there."""
        lane = self.lanes.get(dest)
        return lane.room if lane is not None else self.bound

    @property
    def has_backlog(self) -> bool:
        """Whether anything that was accepted is not yet numbered."""
        return any(not lane.is_empty() for lane in self.lanes.values())

    def queue(self, lane: Lane) -> None:
        """Have a lane looked at when the turn ends."""
        if not lane.is_queued:
            lane.is_queued = True
            self.queued.append(lane)

    def pull(self, unicasts: Sender, multicasts: Sender | None, now: float) -> None:
        """Send from each queued lane what its window and its credits admit."""
        if self.flush_at == inf:
            self.flush_at = now + FLUSH_INTERVAL
        queued, self.queued = self.queued, []
        looked_at = 0
        try:
            for lane in queued:
                looked_at += 1
                lane.is_queued = False
                sender = unicasts if lane.dest or multicasts is None else multicasts
                if sender.send_waiting(lane, now):
                    if lane.blocked_since >= 0:
                        self._note_unblocked(lane, now)
                else:
                    self._note_blocked(lane, now)
        except BaseException:
            # A bug, or no memory, in one lane: the others are looked at in the next turn, and this
            # one with the next record: were it looked at in each turn, none would come to its end.
            self.queued += queued[looked_at:]
            self._failed.append(lane.dest)
            raise

    # -- Room, and ends of connections ---------------------------------------------------------

    def settle(self, now: float) -> None:
        """Act on connections that ended, messages given up and room made in this turn."""
        port = self._port
        if port.closed:
            self._close_lanes(now)
        if port.abandoned:
            self._count_abandoned()
        if port.woken:
            self.wake()

    def wake(self) -> None:
        """Queue the lanes that waited for room, where there is room now."""
        self._queue_again(self._port.woken)

    def _queue_again(self, dests: list[int]) -> None:
        """Queue the lanes of these destinations that hold something; empties the list."""
        for dest in dests:
            lane = self.lanes.get(dest)
            if lane is not None and not lane.is_empty():
                self.queue(lane)
        # Last: what is not done because of a bug is done in the next turn.
        dests.clear()

    def _note_blocked(self, lane: Lane, now: float) -> None:
        """Record that a lane is blocked: not everything in it was admitted."""
        if lane.blocked_since < 0:
            lane.blocked_since = now
            self._port.waiting.add(lane.dest)
            self._port.tracer.record(trace.BLOCKED, now, peer=lane.dest, count=len(lane))

    def _note_unblocked(self, lane: Lane, now: float) -> None:
        """Record that nothing in a lane waits for room any more."""
        lane.blocked_since = -1.0
        self._port.waiting.discard(lane.dest)
        self._port.tracer.record(trace.UNBLOCKED, now, peer=lane.dest)

    def _close_lanes(self, now: float) -> None:
        port = self._port
        for peer in port.closed:
            lane = self.lanes.get(peer)
            if lane is None:
                continue
            if lane.blocked_since >= 0:
                self._note_unblocked(lane, now)
                self._note_offered(lane, now)
                self._abandon(lane, "connection-closed", now)
            if lane.is_empty() and not lane.is_queued:
                # What went through it lately was not recorded yet.
                self._note_offered(lane, now)
                self._remember(peer, lane.numbered)
                del self.lanes[peer]
        # Last: what is not done because of a bug is done in the next turn.
        port.closed.clear()

    def _remember(self, peer: int, numbered: int) -> None:
        self._numbers[peer] = numbered
        if len(self._numbers) > REMEMBERED_LANES:
            del self._numbers[next(iter(self._numbers))]

    # -- What is given up ----------------------------------------------------------------------

    def take_abandoned(self) -> list[Abandoned]:
        """Return the messages that were accepted, and given up since the last call."""
        taken, self._untold = self._untold, []
        return taken

    @property
    def has_abandoned(self) -> bool:
        """Whether `take_abandoned` would return anything."""
        return bool(self._untold)

    def _abandon(self, lane: Lane, why: str, now: float) -> None:
        """Throw away what waits in a lane, and report it."""
        first = lane.numbered + 1
        is_within = lane.is_within_message
        count = lane.clear()
        if not count:
            return
        last = lane.numbered
        told = self._port.abandoned
        if is_within and any(one.dest == lane.dest and one.last == first for one in told):
            # Pieces of the first message were given up with the connection: it was counted there.
            count -= 1
        self._port.tracer.record(
            trace.ABANDONED, now, peer=lane.dest, count=count, lo=first, hi=last, text=why
        )
        if count:
            told.append(Abandoned(lane.dest, count, why, last))

    def _count_abandoned(self) -> None:
        port = self._port
        self._untold += port.abandoned
        told, port.abandoned = port.abandoned, []
        for one in told:
            self.abandoned[one.why] = self.abandoned.get(one.why, 0) + one.count

    def stop(self, now: float) -> None:
        """Accept nothing more, and throw away what waits."""
        self.is_open = False
        for lane in self.lanes.values():
            lane.is_queued = False
            self._note_offered(lane, now)
            self._abandon(lane, "stop", now)
        self._count_abandoned()
        self.lanes.clear()

    # -- The record ----------------------------------------------------------------------------

    def flush(self, now: float) -> None:
        """Record what the application offered, as far as not recorded yet."""
        self.flush_at = inf
        for lane in self.lanes.values():
            self._note_offered(lane, now)
        if self._failed:
            self._queue_again(self._failed)

    def _note_offered(self, lane: Lane, now: float) -> None:
        accepted, before = lane.accepted, lane.offered
        if accepted > before:
            lane.offered = accepted
            self._port.tracer.offered(now, peer=lane.dest, lo=before + 1, hi=accepted)

    def gauge(self, now: float) -> None:
        """Record how full the lanes are that hold something (G5). A message that is larger than the
        bound came in alone: then its own size is the bound."""
        bound = self.bound
        for lane in self.lanes.values():
            if lane.room >= 0:
                lane.alone = 0
            if lane.room < bound:
                self._port.tracer.record(
                    trace.GAUGE,
                    now,
                    stream=trace.OUTBOX_BYTES,
                    peer=lane.dest,
                    lo=bound - lane.room,
                    hi=max(bound, lane.alone),
                )
