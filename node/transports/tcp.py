"""TCP and TCP_NIO2: frames over connections, one between each two members."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Final

from stormcast.node.core.model import Address
from stormcast.node.descriptors import Shares
from stormcast.node.protocols.port import EVERYONE, Frame
from stormcast.node.settings.transports import Nio2Config, TcpConfig
from stormcast.node.transports.base import Transport
from stormcast.node.transports.connection import Connection
from stormcast.node.transports.connection_state import State
from stormcast.node.transports.connection_table import ConnectionTable
from stormcast.node.transports.handshake import LENGTH
from stormcast.node.transports.interfaces import Interface
from stormcast.node.transports.listener import Listener
from stormcast.node.transports.owner import TransportOwner
from stormcast.node.transports.strangers import MOST_FOR_ONE

if TYPE_CHECKING:
    from stormcast.node.keys.seals import Seals

BATCH: Final = 128 << 10
"""Most bytes of a frame, unless one message alone is larger: enough to spread the cost of a batch,
and so few that the frames behind it do not wait long."""


class TcpTransport(Transport):
    """Carries frames over TCP connections."""

    def __init__(self, config: TcpConfig, owner: TransportOwner, shares: Shares) -> None:
        super().__init__(config, owner)
        self._config = config
        self._shares = shares
        self._most_waiting = config.max_send_buffers if isinstance(config, Nio2Config) else 0
        """Frames that may wait in one connection; 0: no bound but the room."""
        self._interface: Interface
        self._listener: Listener
        self._table: ConnectionTable

    # -- Life --------------------------------------------------------------------------------

    def open(self, interface: Interface) -> None:
        self._interface = interface
        self._listener = Listener(self._config, self.owner, interface, self.counters)
        self._table = ConnectionTable(
            self._config, self.owner, interface, self.room, self.counters, self._shares
        )
        self._announce(interface.address, self._listener.at[1])

    def start(self, address: Address, cluster: int, seals: Seals | None = None) -> None:
        table = self._table
        table.start(address, cluster, seals)
        own = table.places.resolve(self.where)
        table.dialler.own.update({self._listener.at, own or self._listener.at})
        self._listener.start(table.accept)

    async def drain(self) -> None:
        self._listener.stop()
        await self._table.drain()

    def close(self) -> None:
        self._listener.close()
        self._table.close()

    def frame_limit(self) -> int:
        return min(self._config.max_length, BATCH)

    def describe(self) -> list[str]:
        host, port = self._listener.at[:2]
        interface, config = self._interface, self._config
        name = "tcp_nio2" if isinstance(config, Nio2Config) else "tcp"
        most = min(self._most_waiting or config.queue_frames, config.queue_frames)
        waits = (
            f"up to {most} frames"
            if self._most_waiting or config.drop_when_full
            else "without bound"
        )
        return [
            f"{name} {host}[{port}] on {interface.name} (rule {interface.rule}), told to "
            f"others as {self.where}",
            f"frames up to {config.max_length} bytes; what a slow member does not take waits "
            f"{waits}, and a dead connection is noticed after {config.user_timeout:g} s",
        ]

    # -- Members -----------------------------------------------------------------------------

    def locate(self, address: Address) -> None:
        self._table.places.locate(address)

    def trust(self, address: Address) -> None:
        self._table.places.trust(address)

    def doubt(self, short: int) -> None:
        self._table.places.doubt(short)

    def on_view(self, members: Sequence[Address]) -> None:
        self._table.on_view(members)

    # -- Frames ------------------------------------------------------------------------------

    def poll(self) -> None:
        self.owner.turn()

    def send(self, frames: list[Frame]) -> None:
        touched: dict[Connection, None] = {}
        group: list[Connection | None] | None = None
        for dest, head, body in frames:
            prefix = LENGTH.pack(len(head) + len(body)) + head
            parts = (prefix, body) if body else (prefix,)
            if dest > 0:
                self._queue(self._to(dest), parts, touched)
            elif dest == EVERYONE:
                for connection in self._to_everyone():
                    self._queue(connection, parts, touched)
            else:
                if group is None:
                    group = [self._to(peer) for peer in self.owner.destinations()]
                for member in group:
                    self._queue(member, parts, touched)
        for connection in touched:
            connection.flush()
            if connection.is_rationed:
                self._table.strangers.note_waiting(connection)

    def _queue(
        self,
        connection: Connection | None,
        parts: tuple[bytes, ...],
        touched: dict[Connection, None],
    ) -> None:
        """Put a frame into a connection, or drop it."""
        if connection is None:
            self.counters["dropped_not_connected"] += 1
            return
        out, room = connection.out, self.room
        if connection.is_rationed and not self._admits(connection):
            self.counters["dropped_for_stranger"] += 1
            return
        waiting = len(out.frames)
        if self._most_waiting and waiting >= self._most_waiting:
            self.counters["dropped_send_buffers_full"] += 1
            return
        if waiting and (waiting >= room.frames or out.size >= room.size):
            if room.drops or connection.is_rationed:
                self.counters["dropped_queue_full"] += 1
                return
            room.is_full = True
        out.put(parts)
        touched[connection] = None

    def _admits(self, connection: Connection) -> bool:
        """Whether one more frame may wait in a rationed connection."""
        if connection.out.cost < MOST_FOR_ONE:
            return True
        # Much may be said in one turn to one who takes it.
        connection.flush()
        if connection.state is State.CLOSED:
            return False
        return connection.out.cost < MOST_FOR_ONE or self._table.strangers.is_peer_now(connection)

    def _to(self, peer: int) -> Connection | None:
        """Return the connection to a member; dial if there is none."""
        table = self._table
        connection = table.open.get(peer)
        if connection is not None:
            return connection
        at = table.places.at.get(peer)
        is_peer = self.owner.is_peer(peer)
        dialled = None
        if at is None:
            self.owner.want_address(peer)
        elif not table.is_somebody_else_at(at, peer):
            dialled = table.dialler.dial(at, is_peer=is_peer)
            if dialled is not None:
                table.strangers.expect(dialled, peer)
        if dialled is None and is_peer:
            table.missed.note(peer)
        return dialled

    def _to_everyone(self) -> list[Connection]:
        """Return all open connections, and new ones to all other places where members may be."""
        table, places = self._table, self._table.places
        standing = {one.remote for one in table.open.values()}
        standing.update(places.at[short] for short in table.open if short in places.at)
        wanted = places.of_everyone(self.owner.hosts())
        searched = table.dialler.search(at for at in wanted if at not in standing)
        return list(dict.fromkeys([*table.open.values(), *searched]))

    # -- Figures -----------------------------------------------------------------------------

    def queued(self) -> tuple[int, int]:
        queues = [one.out for one in self._table.living()]
        return sum(len(one.frames) for one in queues), sum(one.size for one in queues)

    def stats(self) -> dict[str, int | float]:
        table = self._table
        return super().stats() | {
            "connections": len(table.open),
            "connections_dialled": len(table.dialler.dialled),
            "connections_unknown": len(table.strangers.unknown),
        }
