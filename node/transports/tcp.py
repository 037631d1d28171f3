"""TCP and TCP_NIO2: one connection per pair of members, kept in a table by who is at the other end.

Two members that dial each other at once end up with two connections, and both keep the one that the
greater of them dialled; the other is retired, not cut, so nothing on it is lost. Who dials although
the other end still holds a connection has lost that one: it is replaced.
"""

from __future__ import annotations

import asyncio
import contextlib
import socket
import struct
from collections.abc import Iterable, Sequence
from typing import Final

from stormcast.node.core.model import Address
from stormcast.node.protocols.port import EVERYONE, Frame
from stormcast.node.settings.transports import NO_BUNDLER, Nio2Config, TcpConfig
from stormcast.node.transports.base import (
    MAX_LEARNED,
    SO_RCVBUFFORCE,
    SO_SNDBUFFORCE,
    Station,
    Transport,
    bind_in_range,
    set_buffer,
)
from stormcast.node.transports.connection import IOV_MAX, Connection, State
from stormcast.node.transports.handshake import LENGTH, Hello
from stormcast.node.transports.interfaces import Interface, SocketAddress

BACKLOG: Final = 128
BATCH: Final = 128 << 10
"""Bytes of a frame at most, where one message alone is not larger: what is paid per batch is spread
over so much, and what stands behind it waits no longer than that."""
MAX_STRANGERS: Final = 256
"""Accepted connections whose other end has not said yet who it is. As many of those that have, and
are in no view with this member: joiners, other groups."""
ACCEPT_PAUSE: Final = 0.1
TCP_USER_TIMEOUT: Final = 18
DRAIN_SECONDS: Final = 2.0
REAPS_PER_LIFE: Final = 4
CLEAN: Final = frozenset({"finished", "self", "given-up"})
"""Ends at which nothing that was sent is missing."""


class TcpTransport(Transport):
    """Connections."""

    def __init__(self, config: TcpConfig, station: Station) -> None:
        super().__init__(config, station)
        self._config = config
        self.max_length = config.max_length
        is_nio = isinstance(config, Nio2Config)
        self._name = "tcp_nio2" if is_nio else "tcp"
        # One frame is two parts: its head, and its body. TCP writes frame by frame.
        self.gather = IOV_MAX if is_nio and config.bundler != NO_BUNDLER else 2
        self._most_waiting = config.max_send_buffers if isinstance(config, Nio2Config) else 0
        self._cluster = 0
        self._serial = 0
        self._listener: socket.socket
        self._open: dict[int, Connection] = {}
        """By who is at the other end."""
        self._dialled: dict[SocketAddress, Connection] = {}
        """Those that do not stand yet, by where they lead."""
        self._strangers: set[Connection] = set()
        self._leaving: set[Connection] = set()
        """Retired, and not yet closed."""
        self._at: dict[int, SocketAddress] = {}
        self._own: set[SocketAddress] = set()
        """Where this member finds itself."""
        self._refused: dict[SocketAddress, tuple[float, float]] = {}
        """Where dialling failed: not before when, and how long to wait after the next failure."""
        self._missed: set[int] = set()
        """For whom frames were thrown away, because there was no connection and could be none."""
        self._foreign: set[str] = set()
        """Hosts of other clusters, told of once."""
        self._touched: dict[Connection, None] = {}
        self._reaper: asyncio.TimerHandle | None = None
        self.is_closing = False
        self._is_drained = asyncio.Event()
        self._granted = (0, 0)

    # -- Life --------------------------------------------------------------------------------

    def open(self, interface: Interface) -> None:
        config = self._config
        self._interface = interface
        self._listener = bind_in_range(self._make, interface.host, config, "TCP port", BACKLOG)
        self._granted = (
            set_buffer(self._listener, socket.SO_SNDBUF, SO_SNDBUFFORCE, config.send_buffer),
            set_buffer(self._listener, socket.SO_RCVBUF, SO_RCVBUFFORCE, config.receive_buffer),
        )
        self._announce(interface.address, self._listener.getsockname()[1])
        own = self._place(self.where)
        if own is not None:
            self._own.add(own)
        self._own.add(self._listener.getsockname())

    def frame_limit(self) -> int:
        return min(self.max_length, BATCH)

    def _make(self) -> socket.socket:
        made = socket.socket(self._interface.family, socket.SOCK_STREAM)
        made.setblocking(False)
        made.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        return made

    def _tune(self, sock: socket.socket) -> None:
        config = self._config
        sock.setblocking(False)
        if config.tcp_nodelay:
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        if config.linger >= 0:
            lingers = struct.pack("ii", 1, config.linger)
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, lingers)
        # A peer that went without a word: what was written is not acked for so long, or, where
        # nothing was written, the kernel asks and gets no answer.
        seconds = config.user_timeout
        sock.setsockopt(socket.IPPROTO_TCP, TCP_USER_TIMEOUT, round(seconds * 1000))
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPIDLE, max(1, round(seconds)))
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPINTVL, max(1, round(seconds / 3)))
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPCNT, 3)
        set_buffer(sock, socket.SO_SNDBUF, SO_SNDBUFFORCE, config.send_buffer)
        set_buffer(sock, socket.SO_RCVBUF, SO_RCVBUFFORCE, config.receive_buffer)

    def start(self, address: Address, cluster: int) -> None:
        self.address = address
        self._cluster = cluster
        self.station.loop.add_reader(self._listener.fileno(), self._on_acceptable)
        if self._config.conn_expire_time:
            self._reap()

    async def drain(self) -> None:
        """Retire every connection, and wait until the other ends are through, or time is over."""
        self.is_closing = True
        self.station.loop.remove_reader(self._listener.fileno())
        for connection in list(self._dialled.values()):
            if connection.state is State.GREETING:
                # It stands, and an answer is on its way: then it can end like all others.
                self._leaving.add(connection)
            else:
                connection.drop("given-up")
        for connection in list(self._open.values()):
            self._retire(connection)
        self._is_drained.clear()
        if self._leaving:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(DRAIN_SECONDS):
                    await self._is_drained.wait()

    def close(self) -> None:
        self.is_closing = True
        if self._reaper is not None:
            self._reaper.cancel()
        self.station.loop.remove_reader(self._listener.fileno())
        self._listener.close()
        for connection in [
            *self._open.values(),
            *self._dialled.values(),
            *self._strangers,
            *self._leaving,
        ]:
            connection.drop("closed")

    def describe(self) -> list[str]:
        host, port = self._listener.getsockname()[:2]
        interface, config = self._interface, self._config
        most = min(self._most_waiting or config.queue_frames, config.queue_frames)
        waits = (
            f"up to {most} frames"
            if self._most_waiting or config.drop_when_full
            else "without bound"
        )
        return [
            f"{self._name} {host}[{port}] on {interface.name} (rule {interface.rule}), told to "
            f"others as {self.where}",
            f"frames up to {config.max_length} bytes; what a slow member does not take waits "
            f"{waits}, and a dead connection is noticed after {config.user_timeout:g} s",
        ]

    # -- Addresses ---------------------------------------------------------------------------

    def locate(self, address: Address) -> None:
        at = self._place(address.where)
        if at is not None and address != self.address:
            if len(self._at) >= MAX_LEARNED:
                self._at = {short: one for short, one in self._at.items() if short in self._open}
            self._at[address.short] = at

    def on_view(self, members: Sequence[Address]) -> None:
        """Connections to who is out of the view end, on purpose and after what waits for it."""
        super().on_view(members)
        shorts = {member.short for member in members}
        self._at = {short: at for short, at in self._at.items() if short in shorts}
        for short, connection in list(self._open.items()):
            if short not in shorts:
                self._retire(connection)

    # -- Sending -----------------------------------------------------------------------------

    def send(self, frames: list[Frame]) -> None:
        group: list[Connection | None] | None = None
        for dest, head, body in frames:
            prefix = LENGTH.pack(len(head) + len(body)) + head
            if dest > 0:
                self._queue(self._to(dest), prefix, body)
            elif dest == EVERYONE:
                for connection in self._to_everyone():
                    self._queue(connection, prefix, body)
            else:
                if group is None:
                    group = [self._to(peer) for peer in self.station.destinations()]
                for member in group:
                    self._queue(member, prefix, body)
        touched, self._touched = self._touched, {}
        for connection in touched:
            connection.flush()
            if self.is_full:
                # It may all have left at once: then nothing else will say that there is room.
                self.on_room(connection)

    def _queue(self, connection: Connection | None, prefix: bytes, body: bytes) -> None:
        if connection is None:
            self.count("dropped_not_connected")
            return
        waiting = connection.out_frames
        if self._most_waiting and waiting >= self._most_waiting:
            self.count("dropped_send_buffers_full")
            return
        config = self._config
        if waiting and (
            waiting >= config.queue_frames or connection.out_bytes >= config.queue_bytes
        ):
            if config.drop_when_full:
                self.count("dropped_queue_full")
                return
            self.is_full = True
        connection.queue(prefix, body)
        self._touched[connection] = None

    def on_room(self, connection: Connection) -> None:
        """A full member took something: let the outbox go on when half of the room is there."""
        if not self.is_full:
            return
        config = self._config
        frames, size = config.queue_frames // 2, config.queue_bytes // 2
        if all(one.out_bytes <= size and one.out_frames <= frames for one in self._living()):
            self.is_full = False
            self.station.turn()

    def _living(self) -> Iterable[Connection]:
        return (*self._open.values(), *self._dialled.values())

    def _to(self, peer: int) -> Connection | None:
        """The connection to a member; dialled if there is none."""
        connection = self._open.get(peer)
        if connection is not None:
            return connection
        at = self._at.get(peer)
        if at is None:
            self.station.want_address(peer)
        dialled = self._dial(at) if at is not None else None
        if dialled is None and len(self._missed) < MAX_LEARNED:
            self._missed.add(peer)
        return dialled

    def _to_everyone(self) -> list[Connection]:
        standing = {one.remote: one for one in self._open.values()}
        for short, connection in self._open.items():
            if short in self._at:
                standing[self._at[short]] = connection
        chosen = dict.fromkeys(self._open.values())
        for at in self._askable():
            if at not in standing:
                connection_or_none = self._dial(at)
                if connection_or_none is not None:
                    chosen[connection_or_none] = None
        return list(chosen)

    def _dial(self, at: SocketAddress) -> Connection | None:
        """A connection that is being made; None where that just failed."""
        known = self._dialled.get(at)
        if known is not None:
            return known
        if at in self._own or self.is_closing:
            return None
        now = self.station.now()
        not_before, _wait = self._refused.get(at, (0.0, 0.0))
        if now < not_before:
            return None
        try:
            sock = socket.socket(
                socket.AF_INET6 if ":" in at[0] else socket.AF_INET, socket.SOCK_STREAM
            )
        except OSError:
            self.count("no_socket")
            return None
        self._tune(sock)
        try:
            # From the address that others know, so that rules and people can tell who it is.
            sock.bind(self._interface.host)
        except OSError:
            self.count("no_own_address")
        connection = Connection(self, sock, at, is_initiated=True)
        self._serial += 1
        connection.serial = self._serial
        self._dialled[at] = connection
        connection.connect(self._config.sock_conn_timeout)
        return connection

    # -- The table ---------------------------------------------------------------------------

    def greeting(self, connection: Connection) -> Hello:
        return Hello(self._cluster, connection.serial, self.address)

    def _on_acceptable(self) -> None:
        for _ in range(BACKLOG):
            try:
                sock, remote = self._listener.accept()
            except (BlockingIOError, InterruptedError):
                return
            except OSError:
                # Out of descriptors, mostly: whoever waits is still there after a pause.
                self.count("accept_errors")
                self._pause_accepting()
                return
            if len(self._strangers) >= MAX_STRANGERS:
                self.count("refused_too_many")
                sock.close()
                continue
            self._tune(sock)
            connection = Connection(self, sock, remote, is_initiated=False)
            self._strangers.add(connection)
            connection.accept(self._config.peer_addr_read_timeout)

    def _pause_accepting(self) -> None:
        loop = self.station.loop
        loop.remove_reader(self._listener.fileno())
        loop.call_later(ACCEPT_PAUSE, self._accept_again)

    def _accept_again(self) -> None:
        if not self.is_closing:
            self.station.loop.add_reader(self._listener.fileno(), self._on_acceptable)

    def on_foreign(self, connection: Connection) -> None:
        host = connection.remote[0]
        if host not in self._foreign and len(self._foreign) < MAX_LEARNED:
            self._foreign.add(host)
            self.station.say(
                f"{host} has members of another cluster: give all the same cluster name, or take "
                "it out of the list of hosts"
            )

    def on_established(self, connection: Connection, hello: Hello) -> bool:
        self._strangers.discard(connection)
        if self._dialled.get(connection.remote) is connection:
            del self._dialled[connection.remote]
        self._refused.pop(connection.remote, None)
        peer = hello.address
        if peer == self.address:
            self._own.add(connection.remote)
            connection.drop("self")
            return False
        if peer.short not in self._open and self._has_too_many():
            self.count("refused_too_many")
            connection.drop("too-many")
            return False
        if not connection.is_initiated:
            # It speaks first; now that it is known, say who is here.
            self._serial += 1
            connection.serial = self._serial
            connection.greet()
        self.count("opened")
        self.locate(peer)
        other = self._open.get(peer.short)
        if other is None:
            self._open[peer.short] = connection
        else:
            self._choose(other, connection, peer)
        if self.is_closing and connection.state is State.OPEN:
            self._retire(connection)
        if peer.short in self._missed:
            self._missed.discard(peer.short)
            self.station.on_connection_lost(peer.short)
        return True

    def _has_too_many(self) -> bool:
        """Whether no more connections are kept of who is in no view with this member."""
        return len(self._open) >= MAX_STRANGERS + len(self.station.destinations())

    def _choose(self, old: Connection, new: Connection, peer: Address) -> None:
        """Two connections with one member: keep one, the same at both ends."""
        if not new.is_initiated and new.peer_serial > old.peer_serial:
            # It dialled after it had the old one, so it has that no more.
            self.count("replaced")
            self._open[peer.short] = new
            # Before it ends: one that is broken ends at once.
            self._leaving.add(old)
            old.retire()
            self.station.on_connection_lost(peer.short)
            return
        we_are_greater = self.address.identity > peer.identity
        keeps_new = new.is_initiated == we_are_greater
        kept, rest = (new, old) if keeps_new else (old, new)
        self.count("crossed")
        self._open[peer.short] = kept
        self._leaving.add(rest)
        rest.retire()

    def _retire(self, connection: Connection) -> None:
        peer = connection.peer
        if peer is not None and self._open.get(peer.short) is connection:
            del self._open[peer.short]
        self._leaving.add(connection)
        connection.retire()

    def on_parted(self, connection: Connection) -> None:
        self._retire(connection)

    def on_closed(self, connection: Connection, cause: str) -> None:
        self.count(f"closed_{cause}")
        self._strangers.discard(connection)
        self._leaving.discard(connection)
        if not self._leaving:
            self._is_drained.set()
        self._touched.pop(connection, None)
        lost: set[int] = set()
        if self._dialled.get(connection.remote) is connection:
            del self._dialled[connection.remote]
            self._note_refusal(connection.remote)
            if connection.out_frames:
                lost = {short for short, at in self._at.items() if at == connection.remote}
        peer = connection.peer
        if self.is_closing:
            return
        if peer is not None:
            if self._open.get(peer.short) is connection:
                del self._open[peer.short]
            if cause not in CLEAN:
                lost.add(peer.short)
        if connection.out_frames and cause not in CLEAN:
            self.count("dropped_unsent", connection.out_frames)
        for short in lost:
            self.station.on_connection_lost(short)
        self.on_room(connection)

    def _note_refusal(self, at: SocketAddress) -> None:
        config = self._config
        if len(self._refused) >= MAX_LEARNED:
            self._refused.clear()
        _not_before, wait = self._refused.get(at, (0.0, config.reconnect_interval))
        self._refused[at] = (
            self.station.now() + wait,
            min(2 * wait, config.reconnect_max_interval),
        )

    def _reap(self) -> None:
        """Close what was not used for too long."""
        patience = self._config.conn_expire_time
        now = self.station.now()
        for connection in list(self._open.values()):
            if now - connection.last_used > patience:
                self.count("expired")
                self._retire(connection)
        self._reaper = self.station.loop.call_later(patience / REAPS_PER_LIFE, self._reap)

    # -- Figures -----------------------------------------------------------------------------

    def queued(self) -> tuple[int, int]:
        living = list(self._living())
        return sum(one.out_frames for one in living), sum(one.out_bytes for one in living)

    def stats(self) -> dict[str, int | float]:
        return super().stats() | {
            "connections": len(self._open),
            "connections_dialled": len(self._dialled),
            "connections_unknown": len(self._strangers),
        }
