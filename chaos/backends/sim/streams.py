"""The simulated network under a stream transport: a connection per pair, as a kernel keeps it.

Nothing is lost, doubled, corrupted or overtaken on a connection: what the network does to a frame
makes it, and all behind it, late. What a kernel cannot repair ends the connection, and with it
what it still held.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import Final

from chaos.backends.sim.network import Arrive, Network, Path, corrupted
from chaos.faults.fate import Fate, unit
from chaos.faults.message_rules import RuleState

RTO: Final = 0.2
"""Seconds until the first retransmission of a kernel; it doubles with each one in vain."""
MAX_RTO: Final = 1.6
STREAM_TIMEOUT: Final = 15.0
"""Seconds of retransmissions in vain after which a connection is given up."""
_KEY_MASK: Final = (1 << 64) - 1

Call = Callable[[float, Callable[[], None]], None]
"""When, and what to do then."""
Lost = Callable[[int, int], None]
"""At whom (short id), the connection to whom."""


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
        """Since when they wait."""
        self.attempt = 0
        """Retransmissions of the first one."""
        self.in_line = 0
        """Frames that wait for bandwidth."""
        self.last_arrival = 0.0
        """Nothing arrives before it."""


class Line:
    """What waits for bandwidth on the way from one member to another, in order."""

    __slots__ = ("bandwidth", "ends", "frames", "leaves_at", "turn")

    def __init__(self, ends: tuple[str, str]) -> None:
        self.ends = ends
        self.frames: deque[tuple[Channel, bytes]] = deque()
        self.bandwidth = 0.0
        """Under which the first one leaves."""
        self.leaves_at = 0.0
        """When it does."""
        self.turn = 0
        """How often that was said: what was said before no longer holds."""


class StreamNetwork(Network):
    """All connections of a run."""

    def __init__(
        self, fate: Fate, seed: int, arrive: Arrive, call: Call, lost: Lost, max_send_buffers: int
    ) -> None:
        super().__init__(fate, seed, arrive)
        self.overflowed = 0
        """Frames that found no send buffer."""
        self._call = call
        self._lost = lost
        self._max_send_buffers = max_send_buffers
        self._channels: dict[tuple[int, int], Channel] = {}
        self._lines: dict[tuple[str, str], Line] = {}

    def pass_on(self, path: Path, dest: int, frame: bytes, now: float) -> None:
        """Write a frame to the connection from its sender to `dest`."""
        key = int.from_bytes(frame[12:16], "big"), dest
        channel = self._channels.get(key)
        if channel is None:
            channel = self._channel(*key, path)
        self._write(channel, frame, now)

    def end_process(self, short: int) -> list[int]:
        """Drop the connections of a process that is gone; returns whom it was connected to."""
        gone = [key for key in self._channels if short in key]
        for key in gone:
            del self._channels[key]
        return list(dict.fromkeys(peer for key in gone for peer in key if peer != short))

    # -- One connection ------------------------------------------------------------------------

    def _channel(self, source: int, dest: int, path: Path) -> Channel:
        channel = self._channels.get((source, dest))
        if channel is None:
            channel = self._channels[source, dest] = Channel(source, dest, path.ends)
        return channel

    def _write(self, channel: Channel, frame: bytes, now: float) -> None:
        waiting = channel.in_line + len(channel.queue)
        if self._max_send_buffers and waiting >= self._max_send_buffers:
            self.overflowed += 1
            return
        path = self.path(*channel.ends)
        if channel.queue:
            channel.queue.append(frame)
            # It is on the line, too, though nothing is handed up before what it waits for.
            if path.models:
                self.is_lost_by_model(path)
        elif self._fails(path, frame, 0):
            channel.queue.append(frame)
            self._get_stuck(channel, now)
        else:
            self._depart(channel, path, frame, now)

    def _get_stuck(self, channel: Channel, now: float) -> None:
        channel.stuck = now
        channel.attempt = 0
        self._call(now + RTO, lambda: self._retry(channel, now + RTO))

    def _retry(self, channel: Channel, now: float) -> None:
        """The kernel's timer: what waits goes out together, once the first of it gets through."""
        if self._channels.get((channel.source, channel.dest)) is not channel:
            return
        path = self.path(*channel.ends)
        channel.attempt += 1
        if self._fails(path, channel.queue[0], channel.attempt):
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

    def _fails(self, path: Path, frame: bytes, attempt: int) -> bool:
        """Whether the network takes this transmission of a frame, or spoils it."""
        for fault in path.blocked_by:
            self.bite(fault, path)
        if path.blocked_by:
            return True
        fate = self._fate
        for fault, key, below, _amount in path.losses + path.corrupts:
            if fate(frame, (key + attempt) & _KEY_MASK) < below:
                self.bite(fault, path)
                return True
        return bool(path.models) and self.is_lost_by_model(path)

    def _depart(self, channel: Channel, path: Path, frame: bytes, now: float) -> None:
        """A frame that gets through, as soon as there is bandwidth for it."""
        if path.bandwidth:
            self._stand_in_line(channel, path, frame, now)
        else:
            self._travel(channel, path, frame, now)

    def _stand_in_line(self, channel: Channel, path: Path, frame: bytes, now: float) -> None:
        line = self._lines.get(path.ends)
        if line is None:
            line = self._lines[path.ends] = Line(path.ends)
        if line.frames or len(frame) / path.bandwidth > path.delay / 100:
            self.bite(path.limited_by, path)
        line.frames.append((channel, frame))
        channel.in_line += 1
        if len(line.frames) == 1:
            self._time_first(line, len(frame), path.bandwidth, now)

    def _time_first(self, line: Line, size: float, bandwidth: float, now: float) -> None:
        """Have the first in line leave once `size` bytes have, at this rate."""
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
            self._time_first(line, len(line.frames[0][1]), path.bandwidth, now)

    def _take_first(self, line: Line, path: Path, now: float) -> None:
        channel, frame = line.frames.popleft()
        channel.in_line -= 1
        self._travel(channel, path, frame, now)

    def on_change(self, now: float) -> None:
        """Paths were replaced: what waits for bandwidth leaves at the new rate, as it does from a
        kernel's queue, or not at all."""
        for line in self._lines.values():
            path = self.path(*line.ends)
            if not line.frames:
                continue
            if path.blocked_by:
                self._hold_back(line, now)
            elif not path.bandwidth:
                line.turn += 1
                while line.frames:
                    self._take_first(line, path, now)
            elif path.bandwidth != line.bandwidth:
                rest = (line.leaves_at - now) * line.bandwidth
                self._time_first(line, rest, path.bandwidth, now)

    def _hold_back(self, line: Line, now: float) -> None:
        """What has not left is stuck, ahead of what came later."""
        line.turn += 1
        while line.frames:
            channel, frame = line.frames.pop()
            channel.in_line -= 1
            if not channel.queue:
                self._get_stuck(channel, now)
            channel.queue.appendleft(frame)

    def _travel(self, channel: Channel, path: Path, frame: bytes, now: float) -> None:
        """A frame on its way: late by what the path says, and never ahead of others."""
        fate = self._fate
        at = now + path.delay
        for fault in path.delayed_by:
            self.bite(fault, path)
        for fault, key, _below, amount in path.jitters:
            at += amount * unit(fate(frame, key))
            self.bite(fault, path)
        for fault, key, below, amount in path.reorders:
            if fate(frame, key) < below:
                at += amount
                self.bite(fault, path)
        for fault, key, below, _amount in path.duplicates:
            # A segment that comes twice is taken once: it struck, and nobody noticed.
            if fate(frame, key) < below:
                self.bite(fault, path)
        channel.last_arrival = at = max(at, channel.last_arrival)
        self._arrive(at, channel.dest, frame)

    # -- Rules: the member's own, above the connection ---------------------------------------------

    def _apply_rule(
        self, state: RuleState, path: Path, dest: int, frame: bytes, now: float
    ) -> None:
        does = state.rule.does
        if does == "hold":
            state.held.append((path, dest, frame))
        elif does == "delay":
            at = now + state.rule.delay
            self._call(at, lambda: self.pass_on(path, dest, frame, at))
        elif does == "duplicate":
            for _ in range(state.rule.copies + 1):
                self.pass_on(path, dest, frame, now)
        elif does == "corrupt":
            source = int.from_bytes(frame[12:16], "big")
            changed = corrupted(frame, state.taken * 0x9E3779B97F4A7C15)
            self._write(self._channel(source, dest, path), changed, now)

    def release(self, rule: RuleState, now: float) -> int:
        """Write what a rule held, in order; returns how much."""
        held, rule.held = rule.held, []
        for path, dest, frame in held:
            self.pass_on(path, dest, frame, now)
        return len(held)
