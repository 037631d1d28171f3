"""One TCP connection: frames with their lengths, out and in. Its table decides when it ends.

A frame is queued whole and leaves in order; what the kernel does not take waits here. A connection
ends in one of two ways. *Retired*: it sends what waits, says that it closes on purpose, and goes on
reading until the other end has done the same, so that nothing is lost. *Dropped*: it is broken, and
what it held may be lost.
"""

from __future__ import annotations

import asyncio
import socket
from itertools import islice
from math import inf
from typing import Final, Protocol

from stormcast.node.core.errors import BadFrame
from stormcast.node.core.model import Address
from stormcast.node.transports.connection_state import State
from stormcast.node.transports.exchange import Exchange
from stormcast.node.transports.frame_reader import CLOSING, FrameReader
from stormcast.node.transports.handshake import LENGTH, Hello, whole_hello_untrusted
from stormcast.node.transports.interfaces import SocketAddress
from stormcast.node.transports.owner import TransportOwner
from stormcast.node.transports.stream_buffers import OutQueue

RETIRE_SECONDS: Final = 2.0
"""Seconds without progress after which a retired connection is dropped. Bytes from a stranger are
progress only when they complete a frame."""
STRANGERS_RETIRE_SECONDS: Final = 10.0
"""Seconds that a retired connection of a stranger may take in all."""


class Budget(Protocol):
    """The bytes that strangers may cost, as a connection sees it."""

    def make_room_for(self, connection: Connection, size: int) -> None:
        """Note that a stranger has begun a frame that takes a buffer of so many bytes: others that
        began theirs earlier may end for it."""

    def note_waiting(self, connection: Connection) -> None:
        """Note what waits in a rationed connection: others in which something waits for longer may
        end for it."""


class Greetings(Protocol):
    """The hellos of a member, as a connection sees them."""

    roles: tuple[int, ...]
    """The roles of the hellos of a connection."""

    def next_of(self, connection: Connection) -> bytes:
        """Return the next hello of this end, packed."""

    def read_untrusted(self, body: bytes) -> Hello:
        """Return the hello of the other end; BadFrame if it is no member of this cluster."""

    def on_claim(self, connection: Connection, claimed: Address) -> None:
        """Answer who the other end says it is, which it has to prove yet."""

    def on_refused(self, connection: Connection, reason: str) -> None:
        """Note that the other end is no member of this cluster, and why."""


class Table(Protocol):
    """The table that keeps the connections, as a connection sees it."""

    owner: TransportOwner
    max_length: int
    gather: int
    is_closing: bool

    @property
    def strangers(self) -> Budget: ...

    @property
    def hellos(self) -> Greetings: ...

    def on_established(self, connection: Connection, hello: Hello) -> bool:
        """Take in a connection whose other end has sent its hello; return whether it may stay."""

    def on_parted(self, connection: Connection) -> None:
        """Note that the other end sends nothing more, on purpose."""

    def on_closed(self, connection: Connection, cause: str) -> None:
        """Note that a connection is closed, and why."""

    def on_room(self) -> None:
        """Note that queued frames have left."""


class Connection:
    """One end of a connection, from dialling or accepting to its close."""

    __slots__ = (
        "_fileno", "_is_shut", "_is_writing", "_retire_by", "_socket", "_table", "_timer",
        "exchange", "is_initiated", "is_rationed", "last_used", "out", "peer", "peer_serial",
        "reader", "remote", "serial", "state",
    )  # fmt: skip  # one to a line, they would be half a page

    def __init__(
        self, table: Table, sock: socket.socket, remote: SocketAddress, *, is_initiated: bool
    ) -> None:
        self.state = State.CONNECTING if is_initiated else State.GREETING
        self.is_initiated = is_initiated
        """Whether this end dialled."""
        self.remote = remote
        self.exchange = Exchange(table.hellos.roles)
        self.peer: Address | None = None
        """The member at the other end; None until its hello has come, and with keys has proved
        that."""
        self.serial = 0
        """The number that this end gave to the connection; see `Hello`."""
        self.peer_serial = 0
        self.out = OutQueue()
        """Frames that leave with the next flush, each with its length in front."""
        self.reader = FrameReader(table, sock)
        self.last_used = table.owner.now()
        self.is_rationed = True
        """Whether what waits to be sent counts in the budget of strangers; not if this end dials
        for a frame to a member, and never without a group."""
        self._table = table
        self._socket = sock
        self._fileno = sock.fileno()
        self._is_writing = False
        self._retire_by = inf
        """When a stranger's retired connection ends at the latest."""
        self._is_shut = False
        """Whether this end is shut for writing: to shut it twice is an error."""
        self._timer: asyncio.TimerHandle | None = None
        """Ends the connection if no hello comes, or once it is retired nothing moves."""

    # -- Beginning -----------------------------------------------------------------------------

    def connect(self, timeout: float) -> None:
        """Dial; the connection is dropped if the other end has not said hello within `timeout`."""
        self._socket.connect_ex(self.remote)
        loop = self._table.owner.loop
        loop.add_writer(self._fileno, self._on_connected)
        self._timer = loop.call_later(timeout, self.drop, "connect-timeout")

    def _on_connected(self) -> None:
        loop = self._table.owner.loop
        loop.remove_writer(self._fileno)
        if self._socket.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR):
            self.drop("refused")
            return
        self.state = State.GREETING
        loop.add_reader(self._fileno, self.reader.on_readable, self)
        self.say_hello()

    def say_hello(self) -> None:
        """Send a hello, and nothing else: until the other end has said what it has to, it may be
        anybody who was named as a member."""
        self.say(self._table.hellos.next_of(self))

    def say(self, words: bytes) -> None:
        """Send what is no frame, at once."""
        try:
            is_sent = self._socket.send(words) == len(words)
        except OSError:
            is_sent = False
        if not is_sent:
            # A new connection has room for more than a hello.
            self.drop("write-error")

    def accept(self, timeout: float) -> None:
        """Wait for the hello of the other end, for `timeout` seconds."""
        self._table.owner.loop.add_reader(self._fileno, self.reader.on_readable, self)
        self.wait_for_hello(timeout)

    def wait_for_hello(self, timeout: float) -> None:
        """Drop the connection if the next hello has not come within `timeout` seconds."""
        self._cancel_timer()
        self._timer = self._table.owner.loop.call_later(timeout, self.drop, "hello-timeout")

    def greet(self) -> None:
        """Queue the last hello of this end, before the frames that wait for it."""
        self.out.put_first(self._table.hellos.next_of(self))

    def take_hello(self) -> bool:
        """Take the hello of the other end, and frames after it; return whether to go on reading."""
        buffer, table = self.reader.buffer, self._table
        try:
            body = whole_hello_untrusted(buffer.view[buffer.start : buffer.end])
            if body is None:
                return True
            hello = table.hellos.read_untrusted(body)
            is_proven = self.exchange.take_untrusted(hello)
        except BadFrame as bad:
            table.hellos.on_refused(self, bad.reason)
            self.drop("bad-hello")
            return False
        buffer.start += LENGTH.size + len(body)
        if not is_proven:
            table.hellos.on_claim(self, hello.address)
            return self.state is State.GREETING and self.take_hello()
        self.peer, self.peer_serial = hello.address, hello.serial
        self._cancel_timer()
        self.state = State.OPEN
        self.last_used = table.owner.now()
        if not table.on_established(self, hello):
            return False
        self.flush()
        if self.is_rationed:
            table.strangers.note_waiting(self)
        return self.reader.take_frames(self)

    # -- Sending -------------------------------------------------------------------------------

    def flush(self) -> None:
        """Write what the kernel takes, unless the socket is full already, or the connection does
        not stand yet."""
        if not self._is_writing and self.state in (State.OPEN, State.RETIRING):
            self._flush()

    def _flush(self) -> None:
        self._write()
        # Nobody else knows of this room if everything has left: no event follows.
        if self.state is not State.CLOSED:
            self._table.on_room()

    def _write(self) -> None:
        out, gather = self.out, self._table.gather
        while out.parts:
            try:
                sent = self._socket.sendmsg(list(islice(out.parts, gather)))
            except (BlockingIOError, InterruptedError):
                self._wait_for_room()
                return
            except OSError:
                self.drop("write-error")
                return
            out.take(sent)
            self.last_used = self._table.owner.now()
        if self._is_writing:
            self._is_writing = False
            self._table.owner.loop.remove_writer(self._fileno)
        if self.state is State.RETIRING:
            self._end_writing()

    def _wait_for_room(self) -> None:
        if not self._is_writing:
            self._is_writing = True
            self._table.owner.loop.add_writer(self._fileno, self._on_writable)

    def _on_writable(self) -> None:
        self._flush()
        if self.is_rationed:
            self._table.strangers.note_waiting(self)

    # -- The end -------------------------------------------------------------------------------

    @property
    def is_bounded(self) -> bool:
        """Whether this retired connection has the time of a stranger's."""
        return self._retire_by < inf

    def bound(self) -> None:
        """Give a retired connection the time and the buffer of a stranger's."""
        self.is_rationed = True
        self._retire_by = self._table.owner.now() + STRANGERS_RETIRE_SECONDS
        self.reader.bound()

    def retire(self) -> None:
        """Let what is under way arrive, in both directions, then close."""
        if self.state is not State.OPEN:
            if self.state is not State.RETIRING:
                self.drop("given-up")
            return
        self.state = State.RETIRING
        self._cancel_timer()
        self.reader.cancel_timer()
        self.out.put((LENGTH.pack(CLOSING),))
        self.last_used = self._table.owner.now()
        self._wait_for_progress()
        if not self._is_writing:
            self._flush()

    def _wait_for_progress(self) -> None:
        """Drop the connection if it was idle for RETIRE_SECONDS; a slow one may take its time."""
        now = self._table.owner.now()
        idle = now - self.last_used
        if idle >= RETIRE_SECONDS or now >= self._retire_by:
            self.drop("retire-timeout")
        else:
            loop = self._table.owner.loop
            self._timer = loop.call_later(RETIRE_SECONDS - idle, self._wait_for_progress)

    def _end_writing(self) -> None:
        """Shut the connection for writing: everything has left."""
        if self._is_shut:
            return
        self._is_shut = True
        try:
            self._socket.shutdown(socket.SHUT_WR)
        except OSError:
            self.drop("write-error")
            return
        if self.reader.is_ended:
            self.drop("finished")

    def on_end(self) -> None:
        """Act on the end of the stream from the other end."""
        if self.state is State.RETIRING:
            self.reader.is_ended = True
            if not self.out.parts:
                self.drop("finished")
            else:
                # A stream that has ended stays readable: the loop would ask again at once.
                self._table.owner.loop.remove_reader(self._fileno)
        elif self.reader.is_ended and self.state is State.OPEN:
            # The other end may still read the frames that wait for it.
            self._table.on_parted(self)
        else:
            self.drop("lost")

    def drop(self, cause: str) -> None:
        """Close now; what waits is thrown away."""
        if self.state is State.CLOSED:
            return
        self.state = State.CLOSED
        self._cancel_timer()
        self.reader.cancel_timer()
        loop = self._table.owner.loop
        loop.remove_reader(self._fileno)
        loop.remove_writer(self._fileno)
        self._socket.close()
        self.out.parts.clear()
        self._table.on_closed(self, cause)

    def _cancel_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
