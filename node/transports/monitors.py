"""FD_SOCK2's connections: to members that this one watches, and from members that watch this one.

The watched end sends its hello on them, with keys as the answer to one of the watcher, and nothing
else is sent. When a process is gone, its operating system closes them; the protocol decides what
that means.
"""

from __future__ import annotations

import asyncio
import contextlib
import errno
import os
import socket
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Final

from stormcast.node.core.errors import BadFrame
from stormcast.node.core.model import Address
from stormcast.node.protocols.fd_sock2 import FdSock2Config
from stormcast.node.settings.transports import PORTS
from stormcast.node.transports.binding import BindError, reason
from stormcast.node.transports.exchange import WATCHING, Exchange
from stormcast.node.transports.handshake import (
    LENGTH,
    MAX_HELLO,
    Hello,
    pack_hello,
    unpack_hello_untrusted,
)
from stormcast.node.transports.interfaces import Interface, SocketAddress
from stormcast.node.transports.listener import BACKLOG
from stormcast.node.transports.peer_places import parse_where
from stormcast.node.transports.watchers import SealedWatcher, Watcher, Watchers

if TYPE_CHECKING:
    from stormcast.node.keys.seals import Seals

ACCEPTS: Final = 8
"""Connections accepted in one turn of the loop. Each has a descriptor before it is counted."""
ACCEPT_STEPS: Final = 4
"""Turns of the loop until a connection that was accepted is made, refused and closed."""


class Monitors:
    """Both ends of the monitored connections of one member."""

    def __init__(
        self,
        config: FdSock2Config,
        address: Address,
        cluster: int,
        interface: Interface,
        on_link: Callable[[int, bool], None],
        most_watchers: int,
        seals: Seals | None = None,
    ) -> None:
        self._config = config
        self._interface = interface
        self._cluster = cluster
        self._on_link = on_link
        self._server: asyncio.Server | None = None
        self._watchers = Watchers(most_watchers)
        self._watched: dict[int, asyncio.Task[None]] = {}
        self._address = address
        self._seals = seals
        self.port = 0

    # -- This member is watched ----------------------------------------------------------------

    async def open(self, transport_port: int) -> None:
        """Listen on the transport's port plus the offset, or one of the next."""
        first = transport_port + self._config.offset
        last = min(first + self._config.port_range, PORTS - 1)
        error: OSError | None = None
        loop, host = asyncio.get_running_loop(), self._interface.host
        for port in range(first, last + 1):
            try:
                # Given a socket: some loops start threads to look up even a numeric host.
                bound = _bound(host, port)
                self._server = await loop.create_server(self._welcome, sock=bound, backlog=ACCEPTS)
                # asyncio accepts as many in a turn as the kernel is to queue; more may queue.
                bound.listen(BACKLOG)
            except OSError as failed:
                error = failed
            else:
                self.port = port
                return
        if error is None:
            raise BindError(
                f"FD_SOCK2 listens {self._config.offset} above the transport's port, and "
                f"{transport_port} is too high for that; choose a lower bind_port, or a smaller "
                "FD_SOCK2.offset"
            )
        raise BindError(
            f"FD_SOCK2 port {host[0]}[{first}..{last}]: {reason(error)}; "
            "choose another FD_SOCK2.offset or port_range"
        )

    def _welcome(self) -> Watcher:
        if self._seals is not None:
            return SealedWatcher(
                self._answer_untrusted, self._watchers, self._config.connect_timeout
            )
        return Watcher(pack_hello(Hello(self._cluster, 0, self._address)), self._watchers)

    def _answer_untrusted(self, body: bytes) -> bytes:
        exchange = Exchange(WATCHING)
        exchange.take_untrusted(self._read_untrusted(body))
        return self._say(exchange)

    def _say(self, exchange: Exchange) -> bytes:
        """Return the next hello of this member on a connection with keys."""
        return pack_hello(exchange.say(self._cluster, 0, self._address), self._seals)

    def on_view(self, members: Iterable[Address]) -> None:
        """Take in the members of a view: their connections are kept before those of strangers."""
        self._watchers.on_view(members)

    def stats(self) -> dict[str, int]:
        """Return counters of watchers, by name."""
        watchers = self._watchers
        return {
            "watchers_evicted": watchers.evicted,
            "watchers_refused": watchers.refused,
            "watchers_unasked_bytes": watchers.unasked_bytes,
        }

    # -- This member watches -------------------------------------------------------------------

    def change(self, peer: Address | int, *, is_wanted: bool) -> None:
        """Open the connection to a peer, or close it. A peer that is only a short id has no known
        place, and is reported as not there."""
        short = peer if isinstance(peer, int) else peer.short
        known = self._watched.pop(short, None)
        if known is not None:
            known.cancel()
        if not is_wanted:
            return
        if isinstance(peer, int):
            asyncio.get_running_loop().call_soon(self._on_link, short, False)
            return
        task = asyncio.get_running_loop().create_task(self._watch(peer))
        self._watched[short] = task

    async def _watch(self, peer: Address) -> None:
        """Connect to the peer, trying its ports in turn, and report when that connection ends."""
        at = parse_where(peer.where)
        at = self._interface.reach(at) if at is not None else None
        if at is not None:
            first = at[1] + self._config.offset
            for port in range(first, min(first + self._config.port_range, PORTS - 1) + 1):
                if await self._watch_port(peer, (at[0], port, *at[2:])):
                    break
        if self._watched.get(peer.short) is asyncio.current_task():
            del self._watched[peer.short]
            self._on_link(peer.short, False)

    async def _watch_port(self, peer: Address, at: SocketAddress) -> bool:
        """Connect to a port. Return False if the peer does not listen there; else wait until the
        connection ends, and return True."""
        try:
            async with asyncio.timeout(self._config.connect_timeout):
                reader, writer = await self._connect(at)
        except (OSError, TimeoutError):
            return False
        is_peer = False
        try:
            async with asyncio.timeout(self._config.connect_timeout):
                is_peer = await self._is(peer, reader, writer)
            if is_peer:
                self._on_link(peer.short, True)
                while await reader.read(MAX_HELLO):
                    pass
        except (OSError, TimeoutError):
            # Another process listens there and says nothing; or the peer is gone.
            pass
        finally:
            writer.close()
        return is_peer

    async def _connect(
        self, at: SocketAddress
    ) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        sock = socket.socket(self._interface.family, socket.SOCK_STREAM)
        try:
            sock.setblocking(False)
            with contextlib.suppress(OSError):
                # From the address in the view: by that the peer tells a member from a stranger.
                sock.bind(self._interface.host)
            await _connected(sock, at)
            return await asyncio.open_connection(sock=sock, limit=MAX_HELLO)
        except BaseException:
            sock.close()
            raise

    async def _is(
        self, peer: Address, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> bool:
        """Whether the other end is the peer, in this very incarnation."""
        exchange = None
        if self._seals is not None:
            exchange = Exchange(WATCHING)
            writer.write(self._say(exchange))
        try:
            (length,) = LENGTH.unpack(await reader.readexactly(LENGTH.size))
            if length > MAX_HELLO:
                return False
            body = await reader.readexactly(length)
            hello = self._read_untrusted(body)
            if exchange is not None:
                exchange.take_untrusted(hello)
            return hello.address == peer
        except (asyncio.IncompleteReadError, BadFrame):
            return False

    def _read_untrusted(self, body: bytes) -> Hello:
        return unpack_hello_untrusted(body, self._cluster, self._seals)

    # -- The end -------------------------------------------------------------------------------

    async def close(self) -> None:
        """Close all connections, and stop listening."""
        watched, self._watched = list(self._watched.values()), {}
        for task in watched:
            task.cancel()
        await asyncio.gather(*watched, return_exceptions=True)
        if self._server is not None:
            self._server.close()
        self._watchers.close()
        for _ in range(ACCEPT_STEPS):
            # What was accepted a moment ago gets to the watchers first, and is closed there.
            await asyncio.sleep(0)
        if self._server is not None:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(1.0):
                    await self._server.wait_closed()


async def _connected(sock: socket.socket, at: SocketAddress) -> None:
    """Wait until a socket is connected. `loop.sock_connect` of uvloop looks also numbers up, in
    threads that stay."""
    loop = asyncio.get_running_loop()
    error = sock.connect_ex(at)
    if error == errno.EINPROGRESS:
        is_writable = asyncio.Event()
        loop.add_writer(sock, is_writable.set)
        try:
            await is_writable.wait()
        finally:
            loop.remove_writer(sock)
        error = sock.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR)
    if error:
        raise OSError(error, os.strerror(error))


def _bound(host: SocketAddress, port: int) -> socket.socket:
    """Return a socket that listens on a port of the address that is bound."""
    family = socket.AF_INET6 if ":" in host[0] else socket.AF_INET
    bound = socket.socket(family, socket.SOCK_STREAM)
    try:
        bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        bound.bind((host[0], port, *host[2:]))
        # Two processes may bind a port at once; only one of them can listen there.
        bound.listen()
    except OSError:
        bound.close()
        raise
    return bound
