"""The simulated network under a stream transport: a connection per pair, as a kernel keeps it.

Nothing is lost, doubled, corrupted or overtaken on a connection: a network fault that strikes a
frame delays it, and all frames behind it. A fault that the kernel cannot repair ends the
connection, and the frames that waited on it are lost.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import Final

from stormcast.chaos.backends.sim.network import Arrive, Network
from stormcast.chaos.faults.fate import Fate
from stormcast.chaos.faults.outcome import HOLD, PASS, FrameOutcome, damaged, outcome_of
from stormcast.chaos.faults.paths import Limit, Path
from stormcast.node.core.wire import identity, source_of

RTO: Final = 0.2
"""Seconds until the first retransmission of a kernel; it doubles with each one in vain."""
MAX_RTO: Final = 1.6
STREAM_TIMEOUT: Final = 15.0
"""Seconds of retransmissions in vain after which a connection is given up."""
RECONNECT: Final = 0.05
"""Seconds until a connection stands again that ended by a frame without a known key:
`reconnect_interval` of a transport over connections."""

Call = Callable[[float, Callable[[], None]], None]
"""Schedules a call of an action at a time."""
TakeAway = Callable[[int, int], None]
"""Has no frame of a sender arrive at a receiver that is under way to it: their short ids."""
Lost = Callable[[int, int], None]
"""Reports a lost connection: short ids of the host that loses it, and of its peer."""


class Channel:
    """One direction of a connection between two incarnations."""

    __slots__ = ("attempt", "dest", "ends", "in_line", "last_arrival", "queue", "source", "stuck")

    def __init__(self, source: int, dest: int, ends: tuple[str, str]) -> None:
        self.source = source
        self.dest = dest
        self.ends = ends
        self.queue: deque[bytes] = deque()
        """Frames that wait for the first of them to get through; empty while all goes well."""
        self.stuck = 0.0
        """The time since which frames wait in `queue`."""
        self.attempt = 0
        """The number of retransmissions of the first frame of `queue`."""
        self.in_line = 0
        """Frames that wait for bandwidth."""
        self.last_arrival = 0.0
        """The arrival time of the last frame: no later frame arrives before it."""


class Line:
    """The frames that wait for bandwidth on the way from one member to another, in order."""

    __slots__ = ("bandwidth", "ends", "frames", "leaves_at", "turn")

    def __init__(self, ends: tuple[str, str]) -> None:
        self.ends = ends
        self.frames: deque[tuple[Channel, bytes]] = deque()
        self.bandwidth = 0.0
        """Bytes per second at which the first frame leaves."""
        self.leaves_at = 0.0
        """The time at which the first frame leaves."""
        self.turn = 0
        """The number of the latest timer for the first frame: earlier timers are void."""


class StreamNetwork(Network):
    """All connections of a run."""

    def __init__(
        self,
        fate: Fate,
        arrive: Arrive,
        call: Call,
        take_away: TakeAway,
        lost: Lost,
        max_send_buffers: int,
    ) -> None:
        super().__init__(fate, arrive)
        self.overflowed = 0
        """Frames that were dropped because all send buffers were in use."""
        self._call = call
        self._take_away = take_away
        self._lost = lost
        self._max_send_buffers = max_send_buffers
        self._channels: dict[tuple[int, int], Channel] = {}
        self._lines: dict[tuple[str, str], Line] = {}
        self._stands_from: dict[tuple[int, int], float] = {}
        """By sender and receiver, when their next connection stands: nothing arrives before."""

    def send(self, path: Path, dest: int, frame: bytes, now: float) -> None:
        """Write a frame to the connection from its sender to `dest`. Rules act above connections: a
        frame that a rule selects is written later, more than once, damaged or not at all."""
        rule = self._watch(path, dest, frame) if path.is_watched else None
        if rule is None:
            self._write(self._channel(path, dest, frame), frame, now)
        else:
            self._do_above(outcome_of(rule, now), path, dest, frame, now)

    def end_process(self, short: int) -> list[int]:
        """Drop the connections of a process that has ended; returns the peers' short ids."""
        gone = [key for key in self._channels if short in key]
        for key in gone:
            del self._channels[key]
        return list(dict.fromkeys(peer for key in gone for peer in key if peer != short))

    # -- One connection ------------------------------------------------------------------------

    def _channel(self, path: Path, dest: int, frame: bytes) -> Channel:
        key = source_of(frame), dest
        channel = self._channels.get(key)
        if channel is None:
            channel = self._channels[key] = Channel(*key, path.ends)
            channel.last_arrival = self._stands_from.get(key, 0.0)
        return channel

    def _write(self, channel: Channel, frame: bytes, now: float) -> None:
        waiting = channel.in_line + len(channel.queue)
        if self._max_send_buffers and waiting >= self._max_send_buffers:
            self.overflowed += 1
            return
        path = self.path(*channel.ends)
        if channel.queue:
            channel.queue.append(frame)
            # The frame is sent at once, though it is handed up only after those before it: so the
            # loss model counts it.
            if path.models:
                self.decider.is_lost_by_model(path)
        elif self.decider.fails(path, frame, 0):
            channel.queue.append(frame)
            self._get_stuck(channel, now)
        else:
            self._depart(channel, path, frame, now)

    def _get_stuck(self, channel: Channel, now: float) -> None:
        channel.stuck = now
        channel.attempt = 0
        self._call(now + RTO, lambda: self._retry(channel, now + RTO))

    def _retry(self, channel: Channel, now: float) -> None:
        """Retransmit, as the kernel's timer does: once the first waiting frame gets through, all
        waiting frames leave."""
        if self._channels.get((channel.source, channel.dest)) is not channel:
            return
        path = self.path(*channel.ends)
        channel.attempt += 1
        if self.decider.fails(path, channel.queue[0], channel.attempt):
            if now - channel.stuck >= STREAM_TIMEOUT:
                self._give_up(channel)
                return
            at = now + min(MAX_RTO, RTO * 2**channel.attempt)
            self._call(at, lambda: self._retry(channel, at))
            return
        queue, channel.queue = channel.queue, deque()
        for frame in queue:
            self._depart(channel, path, frame, now)

    def _give_up(self, channel: Channel) -> None:
        self._channels.pop((channel.source, channel.dest), None)
        self._channels.pop((channel.dest, channel.source), None)
        self._lost(channel.source, channel.dest)

    def end_unopened(self, dest: int, frame: bytes, now: float) -> None:
        """End the connection on which a frame came that its receiver cannot open: with it go all
        frames that are under way in it, in both directions. So a process does with a socket. The
        next connection takes a while: as long as the keys do not fit, a process refuses it."""
        channel = self._channels.pop((source_of(frame), dest), None)
        if channel is None:
            return
        self._channels.pop((dest, channel.source), None)
        for ends in ((channel.source, dest), (dest, channel.source)):
            self._stands_from[ends] = now + RECONNECT
        self._take_away(channel.source, dest)
        self._take_away(dest, channel.source)
        self._lost(dest, channel.source)

    def _depart(self, channel: Channel, path: Path, frame: bytes, now: float) -> None:
        """Let a frame that is not lost leave, as soon as there is bandwidth for it."""
        if path.limit is None:
            self._travel(channel, path, frame, now)
        else:
            self._stand_in_line(channel, path, path.limit, frame, now)

    def _stand_in_line(
        self, channel: Channel, path: Path, limit: Limit, frame: bytes, now: float
    ) -> None:
        line = self._lines.get(path.ends)
        if line is None:
            line = self._lines[path.ends] = Line(path.ends)
        if line.frames or len(frame) / limit.rate > path.delay / 100:
            self.decider.bites[limit.fault][path.ends] += 1
        line.frames.append((channel, frame))
        channel.in_line += 1
        if len(line.frames) == 1:
            self._time_first(line, len(frame), limit.rate, now)

    def _time_first(self, line: Line, size: float, bandwidth: float, now: float) -> None:
        """Have the first frame in line leave in the time that `size` bytes take at this rate."""
        line.bandwidth = bandwidth
        line.leaves_at = at = now + size / bandwidth
        line.turn = turn = line.turn + 1
        self._call(at, lambda: self._leave(line, turn, at))

    def _leave(self, line: Line, turn: int, now: float) -> None:
        if turn != line.turn:
            return
        path = self.path(*line.ends)
        self._take_first(line, path, now)
        if line.frames:
            self._time_first(line, len(line.frames[0][1]), line.bandwidth, now)

    def _take_first(self, line: Line, path: Path, now: float) -> None:
        channel, frame = line.frames.popleft()
        channel.in_line -= 1
        self._travel(channel, path, frame, now)

    def on_change(self, now: float) -> None:
        """Adapt to replaced paths: frames that wait for bandwidth leave at the new rate, as from a
        kernel's queue, or are stuck if their path is cut."""
        for line in self._lines.values():
            path = self.path(*line.ends)
            if not line.frames:
                continue
            if path.blocked_by:
                self._hold_back(line, now)
            elif path.limit is None:
                line.turn += 1
                while line.frames:
                    self._take_first(line, path, now)
            elif path.limit.rate != line.bandwidth:
                rest = (line.leaves_at - now) * line.bandwidth
                self._time_first(line, rest, path.limit.rate, now)

    def _hold_back(self, line: Line, now: float) -> None:
        """Put the frames of a line back into their channels' queues, ahead of later frames."""
        line.turn += 1
        while line.frames:
            channel, frame = line.frames.pop()
            channel.in_line -= 1
            if not channel.queue:
                self._get_stuck(channel, now)
            channel.queue.appendleft(frame)

    def _travel(self, channel: Channel, path: Path, frame: bytes, now: float) -> None:
        """Have a frame arrive after the delays of its path, and never before earlier frames."""
        at = now + path.delay
        if not path.is_plain:
            decider, known = self.decider, identity(frame)
            decider.note_delay(path)
            at = decider.late(path, known, at)
            # The receiver takes a doubled segment once: the fault bit, but has no further effect.
            decider.copies(path, known, at)
        channel.last_arrival = at = max(at, channel.last_arrival)
        self._arrive(at, channel.dest, frame)

    # -- Rules -----------------------------------------------------------------------------------

    def _do_above(
        self, outcome: FrameOutcome, path: Path, dest: int, frame: bytes, now: float
    ) -> None:
        at = outcome.at
        if outcome.does == HOLD:
            self._hold(outcome.held_by, path, dest, frame)
        elif outcome.does == PASS and at > now:
            self._call(at, lambda: self._let_go(path, dest, frame, at))
        elif outcome.does == PASS:
            channel = self._channel(path, dest, frame)
            for _ in (at, *outcome.copies):
                self._write(channel, damaged(frame, outcome.flips), now)

    def _let_go(self, path: Path, dest: int, frame: bytes, now: float) -> None:
        self._write(self._channel(path, dest, frame), frame, now)
