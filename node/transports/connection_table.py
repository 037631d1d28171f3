"""The connections of a member: one per peer, whichever end dialled.

Two members that dial each other at once have two connections, and both keep the one that the member
with the greater identity dialled; the other is retired, not cut, so nothing on it is lost. A peer
that dials while this end still holds a connection has lost that one: it is replaced. With keys the
peer has proved by then that it is the peer.
"""

from __future__ import annotations

import asyncio
import socket
from collections import Counter
from collections.abc import Sequence
from typing import TYPE_CHECKING, Final

from stormcast.node.core.model import Address
from stormcast.node.descriptors import Shares
from stormcast.node.settings.transports import NO_BUNDLER, Nio2Config, TcpConfig
from stormcast.node.transports.bundles import IOV_MAX
from stormcast.node.transports.connection import Connection
from stormcast.node.transports.connection_state import State
from stormcast.node.transports.dialler import Dialler
from stormcast.node.transports.handshake import Hello
from stormcast.node.transports.hellos import Hellos
from stormcast.node.transports.interfaces import Interface, SocketAddress
from stormcast.node.transports.missed import Missed
from stormcast.node.transports.owner import TransportOwner
from stormcast.node.transports.peer_places import Places
from stormcast.node.transports.retired import Retired
from stormcast.node.transports.room import Room
from stormcast.node.transports.strangers import Strangers
from stormcast.node.transports.stream_sockets import tune

if TYPE_CHECKING:
    from stormcast.node.keys.seals import Seals

DRAIN_SECONDS: Final = 2.0
REAPS_PER_LIFE: Final = 4
CLEAN: Final = frozenset({"finished", "self", "given-up"})
"""Causes of a close after which nothing that was sent is missing."""


class ConnectionTable:
    """The connections that are open, being made, or retired."""

    def __init__(
        self,
        config: TcpConfig,
        owner: TransportOwner,
        interface: Interface,
        room: Room,
        counters: Counter[str],
        shares: Shares,
    ) -> None:
        self.owner = owner
        self.counters = counters
        self.max_length = config.max_length
        # One frame is two parts: its head, and its body. TCP writes frame by frame.
        gathers = isinstance(config, Nio2Config) and config.bundler != NO_BUNDLER
        self.gather = IOV_MAX if gathers else 2
        self.open: dict[int, Connection] = {}
        """By the peer's short id."""
        self.places: Places
        self.dialler = Dialler(config, owner, interface, counters, self._make, shares.members)
        self.strangers = Strangers(shares, owner, self._is_fixed)
        self.hellos = Hellos(owner, self.strangers.unknown, counters, config.user_timeout)
        self.retired = Retired(shares.leaving, self.strangers)
        self.missed = Missed()
        self.is_closing = False
        """Whether this member is about to end."""
        self._config = config
        self._interface = interface
        self._room = room
        self._reaper: asyncio.TimerHandle | None = None

    def start(self, own: Address, cluster: int, seals: Seals | None) -> None:
        """Begin, with this member's address, cluster and keys."""
        self.places = Places(self._interface, own, self.open.keys())
        self.hellos.start(own, cluster, seals)
        if self._config.conn_expire_time:
            self._reap()

    # -- Beginning -----------------------------------------------------------------------------

    def _make(self, sock: socket.socket, remote: SocketAddress) -> Connection:
        connection = Connection(self, sock, remote, is_initiated=True)
        self.hellos.number(connection)
        return connection

    def accept(self, sock: socket.socket, remote: SocketAddress) -> None:
        """Take a connection that another process has dialled; if too many are unknown yet, the
        oldest of them ends."""
        tune(sock, self._config)
        connection = Connection(self, sock, remote, is_initiated=False)
        self.strangers.add(connection)
        connection.accept(self._config.peer_addr_read_timeout)

    def on_established(self, connection: Connection, hello: Hello) -> bool:
        peer = hello.address
        if self._is_elsewhere(connection, peer):
            self.counters["refused_hello-elsewhere"] += 1
            connection.peer = None
            connection.drop("bad-hello")
            return False
        self.strangers.discard(connection)
        self.dialler.on_established(connection)
        if peer == self.places.own:
            if connection.is_initiated:  # Else anybody may have said so, from any address.
                self.dialler.note_self(connection.remote)
            connection.drop("self")
            return False
        if self.hellos.are_sealed and connection.is_initiated and peer.short in self.open:
            self._give_up(connection, self.open[peer.short])
            return False
        self._admit(connection, peer)
        return True

    def _is_elsewhere(self, connection: Connection, peer: Address) -> bool:
        """Whether this end dialled the address of another member, and the peer that answered lives
        elsewhere: then somebody there relays its frames. A member that was started anew on the port
        of a dead one names this address as its own."""
        if not self.hellos.are_sealed or not connection.is_initiated:
            return False
        at = connection.remote
        there = self.places.shorts_at(at)
        return bool(there) and peer.short not in there and self.places.resolve(peer.where) != at

    def _admit(self, connection: Connection, peer: Address) -> None:
        """Take in a connection with a peer; which of two with the same one stays is chosen."""
        if peer.short not in self.open:
            self._make_room(connection, peer)
        if connection.is_initiated:
            self.dialler.note_answer(connection.remote, peer.short)
        elif not self.hellos.are_sealed:
            self.hellos.number(connection)
        if not connection.exchange.is_over:
            # Without keys the end that accepted answers now, with keys the one that dialled proves.
            connection.greet()
        self.counters["opened"] += 1
        self.strangers.update(connection, peer, set(self.owner.destinations()))
        self.places.locate(peer)
        other = self.open.get(peer.short)
        if other is None:
            self.open[peer.short] = connection
        else:
            self._choose(other, connection, peer)
        if self.is_closing and connection.state is State.OPEN:
            self._retire(connection)
        if self.missed.take(peer.short):
            self.owner.on_connection_lost(peer.short)

    def _give_up(self, connection: Connection, standing: Connection) -> None:
        """End a connection that this end made, because another one to the same peer stands by now.
        It ends before it counts at the other end: a new connection there means that this end has
        lost the one that stood."""
        self.counters["crossed"] += 1
        standing.out.take_over(connection.out)
        connection.drop("given-up")
        standing.flush()
        if standing.is_rationed:
            self.strangers.note_waiting(standing)

    def is_somebody_else_at(self, at: SocketAddress, peer: int) -> bool:
        """Whether another one than `peer`, to whom a connection stands, is at its place: a member
        that was started anew on the port of its dead incarnation."""
        other = self.dialler.answered.get(at, peer)
        return other != peer and other in self.open

    def _make_room(self, connection: Connection, peer: Address) -> None:
        """Make room for a connection with another peer. For a member there is; a stranger (a
        joiner, a member of another group, or anybody) may take another's place."""
        members = set(self.owner.destinations())
        if peer.short not in members:
            others = (one for short, one in self.open.items() if short not in members)
            self.strangers.make_room(connection, others)

    def _is_fixed(self, connection: Connection) -> bool:
        return connection.peer is not None and self.places.is_fixed(connection.peer.short)

    def _choose(self, old: Connection, new: Connection, peer: Address) -> None:
        """Keep one of two connections with a peer: both ends keep the same one."""
        # The peer made the new one after the old one, so it no longer has the old one.
        is_replaced = not new.is_initiated and new.peer_serial > old.peer_serial
        keeps_new = is_replaced or new.is_initiated == (self.places.own.identity > peer.identity)
        kept, rest = (new, old) if keeps_new else (old, new)
        self.counters["replaced" if is_replaced else "crossed"] += 1
        self.open[peer.short] = kept
        if is_replaced and (unsent := rest.out.drop_rest()):
            self.counters["dropped_unsent"] += unsent
        self.retired.retire(rest)
        if is_replaced:
            self.owner.on_connection_lost(peer.short)

    # -- The end -------------------------------------------------------------------------------

    def _retire(self, connection: Connection) -> None:
        peer = connection.peer
        if peer is not None and self.open.get(peer.short) is connection:
            del self.open[peer.short]
        self.retired.retire(connection)

    def on_view(self, members: Sequence[Address]) -> None:
        """Take in a view: retire the connections to peers that are not in it."""
        shorts = {member.short for member in members}
        self.missed.forget_others(self.owner.is_peer)
        self.places.forget_all_but(shorts)
        self.places.on_view(members)
        for member in members:
            at = self.places.at.get(member.short)
            if at is not None:
                # Of two members at one place the later one lives: it could bind the port.
                self.dialler.note_answer(at, member.short)
        self.retired.on_view(shorts)
        for short, connection in list(self.open.items()):
            if connection.state is State.CLOSED:
                # What others hold, that were retired just now, took its place.
                continue
            assert connection.peer is not None
            self.strangers.update(connection, connection.peer, shorts)
            if short not in shorts:
                self._retire(connection)

    def on_parted(self, connection: Connection) -> None:
        self._retire(connection)

    def on_closed(self, connection: Connection, cause: str) -> None:
        self.counters[f"closed_{cause}"] += 1
        self.strangers.end(connection)
        self.retired.end(connection)
        lost: set[int] = set()
        unsent = len(connection.out.frames)
        if self.dialler.on_closed(connection, cause) and unsent:
            lost = self.places.shorts_at(connection.remote)
        if self.is_closing:
            return
        peer = connection.peer
        if peer is not None:
            if self.open.get(peer.short) is connection:
                del self.open[peer.short]
            if cause not in CLEAN:
                lost.add(peer.short)
        if unsent and cause not in CLEAN:
            self.counters["dropped_unsent"] += unsent
        for short in lost:
            self.owner.on_connection_lost(short)
        self.on_room()

    def _reap(self) -> None:
        """Retire the connections that were not used for `conn_expire_time`."""
        patience = self._config.conn_expire_time
        now = self.owner.now()
        for connection in list(self.open.values()):
            is_idle = connection.state is not State.CLOSED and now - connection.last_used > patience
            # What waits to be written may wait for a peer that is busy for longer.
            if is_idle and not connection.out.frames:
                self.counters["expired"] += 1
                self._retire(connection)
        self._reaper = self.owner.loop.call_later(patience / REAPS_PER_LIFE, self._reap)

    # -- All of them ---------------------------------------------------------------------------

    def living(self) -> list[Connection]:
        """Return the connections that take frames: open, or being made."""
        return [*self.open.values(), *self.dialler.dialled.values()]

    def on_room(self) -> None:
        if self._room.is_full:
            queues = (one.out for one in self.living() if not one.is_rationed)
            self._room.reopen((len(out.frames), out.size) for out in queues)

    async def drain(self) -> None:
        """Retire every connection, and wait until all are closed, for DRAIN_SECONDS at most."""
        self.is_closing = self.dialler.is_stopped = self.retired.is_closing = True
        for connection in list(self.dialler.dialled.values()):
            if connection.state is State.GREETING:
                # It stands, and the peer's hello is on its way: then it is retired like the others.
                self.retired.expect(connection)
            else:
                connection.drop("given-up")
        for connection in list(self.open.values()):
            self._retire(connection)
        await self.retired.wait(DRAIN_SECONDS)

    def close(self) -> None:
        """Close all connections at once."""
        self.is_closing = self.dialler.is_stopped = self.retired.is_closing = True
        if self._reaper is not None:
            self._reaper.cancel()
        for connection in [*self.living(), *self.strangers.unknown, *self.retired.connections]:
            connection.drop("closed")
