"""Reads a connection, and hands whole frames to the member. A stranger gets little memory, and
little time for a frame that it has begun.

The methods take the connection as an argument: a reader that kept it would make a cycle, and the
buffer of a closed connection would stay until the garbage collector comes.
"""

from __future__ import annotations

import asyncio
import socket
from typing import TYPE_CHECKING, Final

from stormcast.node.core import wire
from stormcast.node.transports.connection_state import State
from stormcast.node.transports.handshake import LENGTH
from stormcast.node.transports.stream_buffers import READ_BYTES, STRANGERS_BYTES, InBuffer

if TYPE_CHECKING:
    from stormcast.node.transports.connection import Connection, Table

READS: Final = 4
"""Reads of one connection before the member has a turn, and others are read."""
CLOSING: Final = 0xFFFFFFFF
"""Sent in place of a length: this end closes on purpose."""
UNFINISHED_SECONDS: Final = 5.0
"""Seconds that a stranger may take to send a frame that it has begun."""


class FrameReader:
    """The incoming half of a connection."""

    __slots__ = (
        "_most", "_owner", "_socket", "_table", "_timer", "buffer", "is_ended", "is_stranger",
    )  # fmt: skip  # one to a line, they would be half a page

    def __init__(self, table: Table, sock: socket.socket) -> None:
        self.buffer = InBuffer(STRANGERS_BYTES)
        self.is_stranger = True
        """Whether the other end is in no view with this member, or has not said who it is."""
        self.is_ended = False
        """Whether the other end has said, or shown, that nothing more comes."""
        self._table = table
        self._owner = table.owner
        self._most = table.max_length
        self._socket = sock
        self._timer: asyncio.TimerHandle | None = None
        """Drops an open connection of a stranger whose frame stays unfinished."""

    def on_readable(self, connection: Connection) -> None:
        """Read what has come, and have a turn."""
        got = has_more = False
        for _ in range(READS):
            buffer = self.buffer
            if buffer.end == buffer.size:
                buffer.make_room()
            free = buffer.view[buffer.end :]
            try:
                size = self._socket.recv_into(free)
            except (BlockingIOError, InterruptedError):
                break
            except OSError:
                connection.drop("read-error")
                break
            if not size:
                connection.on_end()
                break
            buffer.end += size
            got = True
            has_more = size == len(free)
            if connection.state is State.GREETING:
                goes_on = connection.take_hello()
            else:
                goes_on = self.take_frames(connection)
            if not goes_on or not has_more:
                break
        if got:
            self._owner.turn(has_more=has_more)

    def take_frames(self, connection: Connection) -> bool:
        """Hand whole frames to the member; return whether to go on reading."""
        owner, buffer = self._owner, self.buffer
        now = owner.now()
        if not self.is_stranger:
            connection.last_used = now
        view, start, end = buffer.view, buffer.start, buffer.end
        first = start
        most = self._most
        while end - start >= LENGTH.size:
            (size,) = LENGTH.unpack_from(view, start)
            body = start + LENGTH.size
            if size == CLOSING and not self.is_ended:
                self.is_ended = True
                start = body
                continue
            if not wire.HEAD_SIZE <= size <= most:
                connection.drop("bad-length")
                return False
            if end - body < size:
                buffer.start = start
                return self._wait_for(connection, LENGTH.size + size, is_new=start != first)
            start = body + size
            if not owner.receive(view[body:start], now) and not self._table.is_closing:
                # TCP lets nothing be damaged on the way: the other end is no member of this stack.
                connection.drop("bad-frame")
                return False
            if connection.state is State.CLOSED:
                return False
        is_new = start != first
        if start == end:
            start = buffer.end = 0
        buffer.start = start
        if self.is_stranger:
            if is_new:
                connection.last_used = now
            self._give_back(connection)
        return True

    def _wait_for(self, connection: Connection, size: int, *, is_new: bool) -> bool:
        """Make room for a frame that has begun, in this read if it is new; return whether to go on
        reading."""
        if self.is_stranger:
            if is_new:
                connection.last_used = self._owner.now()
                self.cancel_timer()
            # Of a retired connection the whole time is bounded.
            if self._timer is None and connection.state is State.OPEN:
                loop = self._owner.loop
                self._timer = loop.call_later(UNFINISHED_SECONDS, connection.drop, "unfinished")
            if size > self.buffer.size:
                self._table.strangers.make_room_for(connection, size)
        self.buffer.need(size)
        return connection.state is not State.CLOSED

    def _give_back(self, connection: Connection) -> None:
        """Give back what the last frame of a stranger took."""
        self.cancel_timer()
        if self.buffer.size > STRANGERS_BYTES:
            # What is left is less than the length of a frame.
            self.buffer.shrink(STRANGERS_BYTES)
            self._table.strangers.make_room_for(connection, 0)

    @property
    def buffered(self) -> int:
        """Bytes of the buffer for a frame that has begun, if it is a large one."""
        return self.buffer.size if self.buffer.size > STRANGERS_BYTES else 0

    def bound(self) -> None:
        """Give the reader of a retired connection the buffer of a stranger's."""
        self.is_stranger = True
        if self.buffer.start == self.buffer.end and self.buffered:
            self.buffer = InBuffer(STRANGERS_BYTES)

    def set_stranger(self, is_stranger: bool) -> None:  # noqa: FBT001 it is the whole message
        """Set whether the other end is in no view with this member."""
        if self.is_stranger and not is_stranger:
            self.cancel_timer()
            self.buffer.need(READ_BYTES)
        self.is_stranger = is_stranger

    def cancel_timer(self) -> None:
        """Let a frame that has begun take its time."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
