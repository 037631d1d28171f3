"""One TCP connection: frames with their lengths, out and in. What becomes of it, its table decides.

A frame is queued whole and leaves in order; what the kernel does not take waits here. A connection
ends in one of two ways. *Retired*: it sends what waits, says that it closes on purpose, and goes on
reading until the other end has done the same, so that nothing is lost. *Dropped*: it is broken, and
what it held may be lost.
"""

from __future__ import annotations

import asyncio
import socket
from collections import deque
from enum import Enum
from itertools import islice
from typing import Final, Protocol

from stormcast.node.core import wire
from stormcast.node.core.errors import BadFrame
from stormcast.node.core.model import Address
from stormcast.node.transports.base import Station
from stormcast.node.transports.handshake import (
    LENGTH,
    MAX_HELLO,
    Hello,
    pack_hello,
    unpack_hello_untrusted,
)
from stormcast.node.transports.interfaces import SocketAddress

READ_BYTES: Final = 256 << 10
"""What is read at once, and the least that is kept for it."""
READS: Final = 4
"""Reads before a turn ends and others have theirs."""
CLOSING: Final = 0xFFFFFFFF
"""In place of a length: this end closes on purpose."""
RETIRE_SECONDS: Final = 2.0
"""How long the other end may do nothing before it has finished."""
IOV_MAX: Final = 1024


class State(Enum):
    """The life of a connection."""

    CONNECTING = "connecting"
    GREETING = "greeting"
    OPEN = "open"
    RETIRING = "retiring"
    CLOSED = "closed"


class Table(Protocol):
    """Who keeps the connections."""

    station: Station
    max_length: int
    gather: int
    is_closing: bool

    def greeting(self, connection: Connection) -> Hello:
        """What this end says of itself."""

    def on_established(self, connection: Connection, hello: Hello) -> bool:
        """The other end has said who it is; whether it may stay."""

    def on_foreign(self, connection: Connection) -> None:
        """The other end is of another cluster."""

    def on_parted(self, connection: Connection) -> None:
        """The other end sends nothing more, on purpose."""

    def on_closed(self, connection: Connection, cause: str) -> None:
        """It is gone."""

    def on_room(self, connection: Connection) -> None:
        """Something that waited has left."""

    def count(self, what: str, number: int = 1) -> None:
        """Something rare happened."""


class Connection:
    """One of them."""

    __slots__ = (
        "_buffer",
        "_end",
        "_fileno",
        "_is_ended",
        "_is_shut",
        "_is_writing",
        "_out",
        "_sizes",
        "_socket",
        "_start",
        "_table",
        "_timer",
        "_view",
        "is_initiated",
        "last_used",
        "out_bytes",
        "peer",
        "peer_serial",
        "remote",
        "serial",
        "state",
    )

    def __init__(
        self, table: Table, sock: socket.socket, remote: SocketAddress, *, is_initiated: bool
    ) -> None:
        self.state = State.CONNECTING if is_initiated else State.GREETING
        self.is_initiated = is_initiated
        """Whether this end dialled."""
        self.remote = remote
        self.peer: Address | None = None
        self.serial = 0
        """What this end did with connections before this one; see `Hello`."""
        self.peer_serial = 0
        self.out_bytes = 0
        self.last_used = table.station.now()
        self._table = table
        self._socket = sock
        self._fileno = sock.fileno()
        self._out: deque[bytes | memoryview] = deque()
        self._sizes: deque[int] = deque()
        """Bytes that are left of each frame in `_out`."""
        self._buffer = bytearray(READ_BYTES)
        self._view = memoryview(self._buffer)
        self._start = self._end = 0
        self._is_writing = False
        self._is_ended = False
        """Whether the other end has said, or shown, that nothing more comes."""
        self._is_shut = False
        """Whether this end has shown the same: doing so twice is an error."""
        self._timer: asyncio.TimerHandle | None = None

    @property
    def out_frames(self) -> int:
        """Frames that wait."""
        return len(self._sizes)

    # -- Beginning -----------------------------------------------------------------------------

    def connect(self, timeout: float) -> None:
        """Dial."""
        self._socket.connect_ex(self.remote)
        self._table.station.loop.add_writer(self._fileno, self._on_connected)
        self._set_timer(timeout, "connect-timeout")

    def _on_connected(self) -> None:
        loop = self._table.station.loop
        loop.remove_writer(self._fileno)
        if self._socket.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR):
            self.drop("refused")
            return
        self.state = State.GREETING
        self.greet()
        # Before what has waited for the connection to stand.
        self._out.rotate(1)
        self._sizes.rotate(1)
        loop.add_reader(self._fileno, self._on_readable)
        self._flush()

    def accept(self, timeout: float) -> None:
        """Wait for the other end to say who it is."""
        self._set_timer(timeout, "hello-timeout")
        self._table.station.loop.add_reader(self._fileno, self._on_readable)

    def greet(self) -> None:
        """Say who is here."""
        self._queue((pack_hello(self._table.greeting(self)),))

    # -- Sending -------------------------------------------------------------------------------

    def queue(self, prefix: bytes, body: bytes) -> None:
        """Keep a frame, its length in front, for the next flush."""
        self._queue((prefix, body) if body else (prefix,))

    def _queue(self, parts: tuple[bytes, ...]) -> None:
        self._out += parts
        size = sum(map(len, parts))
        self._sizes.append(size)
        self.out_bytes += size

    def flush(self) -> None:
        """Hand the kernel what it takes, unless it is to say first when it takes more."""
        if self._is_writing or self.state in (State.CONNECTING, State.CLOSED):
            return
        if self.state is State.GREETING and not self.is_initiated:
            return
        self._flush()

    def _flush(self) -> None:
        out, gather = self._out, self._table.gather
        while out:
            parts = list(islice(out, gather))
            try:
                sent = self._socket.sendmsg(parts)
            except (BlockingIOError, InterruptedError):
                self._wait_for_room()
                return
            except OSError:
                self.drop("write-error")
                return
            self._took(sent)
        if self._is_writing:
            self._is_writing = False
            self._table.station.loop.remove_writer(self._fileno)
        if self.state is State.RETIRING:
            self._end_writing()

    def _wait_for_room(self) -> None:
        if not self._is_writing:
            self._is_writing = True
            self._table.station.loop.add_writer(self._fileno, self._on_writable)

    def _on_writable(self) -> None:
        self._flush()
        if self.state is not State.CLOSED:
            self._table.on_room(self)

    def _took(self, sent: int) -> None:
        """So many bytes have left."""
        self.out_bytes -= sent
        self.last_used = self._table.station.now()
        out, sizes = self._out, self._sizes
        left = sent
        while left:
            part = out[0]
            if len(part) > left:
                out[0] = memoryview(part)[left:]
                break
            left -= len(part)
            out.popleft()
        while sent:
            if sizes[0] > sent:
                sizes[0] -= sent
                break
            sent -= sizes.popleft()

    # -- Receiving -----------------------------------------------------------------------------

    def _on_readable(self) -> None:
        got = has_more = False
        for _ in range(READS):
            if self._end == len(self._buffer):
                self._make_room()
            wanted = len(self._buffer) - self._end
            try:
                size = self._socket.recv_into(self._view[self._end :])
            except (BlockingIOError, InterruptedError):
                break
            except OSError:
                self.drop("read-error")
                break
            if not size:
                self._on_end()
                break
            self._end += size
            got = True
            has_more = size == wanted
            if not self._take_frames() or not has_more:
                break
        if got:
            self._table.station.turn(has_more=has_more)

    def _take_frames(self) -> bool:  # noqa: PLR0911 one way out for each thing that can be wrong
        """Hand on what is whole; whether to go on reading."""
        station, view = self._table.station, self._view
        now = station.now()
        self.last_used = now
        start, end = self._start, self._end
        most = self._table.max_length
        while end - start >= LENGTH.size:
            (size,) = LENGTH.unpack_from(view, start)
            body = start + LENGTH.size
            if self.state is State.GREETING:
                if size > MAX_HELLO:
                    self._table.count("refused_hello-length")
                    self.drop("bad-hello")
                    return False
                if end - body < size:
                    break
                start = self._start = body + size
                if not self._on_hello(bytes(view[body:start])):
                    return False
                continue
            if size == CLOSING:
                self._is_ended = True
                start = body
                continue
            if not wire.HEAD_SIZE <= size <= most:
                self.drop("bad-length")
                return False
            if end - body < size:
                self._start = start
                self._need(LENGTH.size + size)
                return True
            start = body + size
            if not station.receive(view[body:start], now) and not self._table.is_closing:
                # Nothing corrupts a stream on its way: this is no member of ours.
                self.drop("bad-frame")
                return False
            if self.state is State.CLOSED:
                return False
        self._start = start
        if start == end:
            self._start = self._end = 0
        return True

    def _need(self, size: int) -> None:
        """A frame of so many bytes must fit."""
        if len(self._buffer) - self._start < size:
            self._make_room(size)

    def _make_room(self, size: int = 0) -> None:
        """Move what is left to the front; of a larger buffer, if a frame needs it."""
        left = self._end - self._start
        if size > len(self._buffer):
            fresh = bytearray(size)
            fresh[:left] = self._view[self._start : self._end]
            self._buffer, self._view = fresh, memoryview(fresh)
        else:
            self._view[:left] = bytes(self._view[self._start : self._end])
        self._start, self._end = 0, left

    def _on_hello(self, body: bytes) -> bool:
        try:
            hello = unpack_hello_untrusted(body, self._table.greeting(self).cluster)
        except BadFrame as bad:
            self._table.count(f"refused_{bad.reason}")
            if bad.reason == "hello-cluster":
                self._table.on_foreign(self)
            self.drop("bad-hello")
            return False
        self.peer, self.peer_serial = hello.address, hello.serial
        self._cancel_timer()
        self.state = State.OPEN
        if not self._table.on_established(self, hello):
            return False
        self.flush()
        return True

    # -- The end -------------------------------------------------------------------------------

    def retire(self) -> None:
        """Finish what is under way, in both directions, and close."""
        if self.state is not State.OPEN:
            if self.state is not State.RETIRING:
                self.drop("given-up")
            return
        self.state = State.RETIRING
        self._queue((LENGTH.pack(CLOSING),))
        self.last_used = self._table.station.now()
        self._wait_for_progress()
        if not self._is_writing:
            self._flush()

    def _wait_for_progress(self) -> None:
        """A slow end may take as long as it takes; one at which nothing happens is given up."""
        idle = self._table.station.now() - self.last_used
        if idle >= RETIRE_SECONDS:
            self.drop("retire-timeout")
        else:
            loop = self._table.station.loop
            self._timer = loop.call_later(RETIRE_SECONDS - idle, self._wait_for_progress)

    def _end_writing(self) -> None:
        """Everything has left."""
        if self._is_shut:
            return
        self._is_shut = True
        try:
            self._socket.shutdown(socket.SHUT_WR)
        except OSError:
            self.drop("write-error")
            return
        if self._is_ended:
            self.drop("finished")

    def _on_end(self) -> None:
        """Nothing more comes."""
        if self.state is State.RETIRING:
            self._is_ended = True
            if not self._out:
                self.drop("finished")
        elif self._is_ended and self.state is State.OPEN:
            # What waits for it may still be read there.
            self._table.on_parted(self)
        else:
            self.drop("lost")

    def drop(self, cause: str) -> None:
        """Close now."""
        if self.state is State.CLOSED:
            return
        self.state = State.CLOSED
        self._cancel_timer()
        loop = self._table.station.loop
        loop.remove_reader(self._fileno)
        loop.remove_writer(self._fileno)
        self._socket.close()
        self._out.clear()
        self._table.on_closed(self, cause)

    # -- Time ----------------------------------------------------------------------------------

    def _set_timer(self, seconds: float, cause: str) -> None:
        self._cancel_timer()
        self._timer = self._table.station.loop.call_later(seconds, self.drop, cause)

    def _cancel_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
