"""UDP: one socket to send from and be reached at, one that hears the group's multicasts.

A frame for the group is one datagram where every member hears multicasts, else one to each. Small
frames of one turn for one destination share a datagram; batches of MTU size share a system call,
and the kernel cuts them apart again.
"""

from __future__ import annotations

import socket
from collections.abc import Sequence
from functools import partial
from secrets import randbits
from typing import TYPE_CHECKING, Final

from stormcast.node.core import wire
from stormcast.node.core.model import Address
from stormcast.node.protocols.port import EVERYONE, Frame
from stormcast.node.settings.transports import MAX_DATAGRAM, NO_BUNDLER, UdpConfig
from stormcast.node.transports.base import Transport
from stormcast.node.transports.binding import (
    bind_in_range,
    reason,
    set_receive_buffer,
    set_send_buffer,
)
from stormcast.node.transports.bundles import join_frames, line_up_segments
from stormcast.node.transports.datagram_reader import DatagramReader
from stormcast.node.transports.datagram_sockets import datagram_socket, join_packets, kernel_drops
from stormcast.node.transports.datagram_writer import DatagramWriter
from stormcast.node.transports.group_socket import GroupSocket, group_name
from stormcast.node.transports.interfaces import Interface, SocketAddress
from stormcast.node.transports.owner import TransportOwner
from stormcast.node.transports.peer_places import HeardPlaces
from stormcast.node.transports.reach import Reach
from stormcast.node.transports.routes import Routes

if TYPE_CHECKING:
    from stormcast.node.keys.seals import Seals

FRAGMENTED: Final = 60_000
"""Bytes of a large datagram; with a larger MTU an interface carries it whole."""


class UdpTransport(Transport):
    """Carries frames in UDP datagrams."""

    def __init__(self, config: UdpConfig, owner: TransportOwner) -> None:
        super().__init__(config, owner)
        self._config = config
        self._bundles = config.bundler != NO_BUNDLER
        self._limit = MAX_DATAGRAM
        """Bytes of a datagram."""
        self._granted = (0, 0)
        """Bytes of the send buffer and the receive buffer that the system gave."""
        self._group: GroupSocket | None = None
        self._reach: Reach | None = None
        self._interface: Interface
        self._socket: socket.socket
        self._writer: DatagramWriter
        self._reader: DatagramReader
        self._places: HeardPlaces
        self._routes: Routes

    # -- Life --------------------------------------------------------------------------------

    def open(self, interface: Interface) -> None:
        config = self._config
        self._interface = interface
        self._socket = bind_in_range(
            partial(datagram_socket, interface), interface.host, config, "UDP port"
        )
        self._granted = (
            set_send_buffer(self._socket, config.send_buffer),
            set_receive_buffer(self._socket, config.receive_buffer),
        )
        mtu = interface.mtu()
        is_large = config.frames == "large" or (config.frames == "auto" and mtu > FRAGMENTED)
        self._limit = MAX_DATAGRAM if is_large else mtu - (48 if interface.is_ipv6 else 28)
        offloads = not is_large and config.offload == "auto" and join_packets(self._socket)
        self._writer = DatagramWriter(
            self._socket, self.owner.loop, self.room, self.counters, offloads=offloads
        )
        if config.ip_mcast != "never":
            self._join_group()
        self._announce(interface.address, self._socket.getsockname()[1])

    def _join_group(self) -> None:
        try:
            group = GroupSocket(self._config, self._interface, self._socket)
        except OSError as error:
            name = group_name(self._config, self._interface)
            self.no_multicast = (
                f"multicast {name}[{self._config.mcast_port}] on {self._interface.name}: "
                f"{reason(error)}"
            )
            self.owner.say(
                f"{self.no_multicast}; each frame for the group goes to every member by itself"
            )
            return
        self.no_multicast = group.trouble
        if self._writer.offloads:
            join_packets(group.socket)
        self._group = group
        self._writer.group = group.at

    def start(self, address: Address, cluster: int, seals: Seals | None = None) -> None:
        owner, group, config = self.owner, self._group, self._config
        self._places = HeardPlaces(self._interface, address)
        if group is not None:
            group.filter_own(address.short)
            self._reach = Reach(
                cluster,
                address.short,
                partial(randbits, 64),
                self._ask,
                self._answer,
                owner.now,
                owner.loop.call_later,
                self.counters,
                seals,
            )
        needs_proof = config.ip_mcast != "always"
        self._routes = Routes(
            owner,
            self._places.places,
            group.at if group is not None else None,
            self._reach if needs_proof else None,
            self.counters,
        )
        self._reader = DatagramReader(
            owner,
            self._socket,
            group.socket if group is not None else None,
            self._reach,
            self._places,
            self.counters,
            config.busy_poll,
        )
        for sock in self._sockets():
            owner.loop.add_reader(sock.fileno(), self._reader.poll)

    async def drain(self) -> None:
        """Do nothing: queued frames leave in `close`, or are lost like any datagram."""

    def close(self) -> None:
        loop = self.owner.loop
        if self._reach is not None:
            self._reach.close()
        self._writer.close()
        for sock in self._sockets():
            loop.remove_reader(sock.fileno())
            loop.remove_writer(sock.fileno())
            sock.close()

    def _sockets(self) -> list[socket.socket]:
        return [self._socket, *([self._group.socket] if self._group is not None else [])]

    def frame_limit(self) -> int:
        return min(MAX_DATAGRAM, self._limit) - wire.HEAD_SIZE

    def describe(self) -> list[str]:
        host, port = self._socket.getsockname()[:2]
        lines = [
            f"udp {host}[{port}] on {self._interface.name} (rule {self._interface.rule}), "
            f"told to others as {self.where}"
        ]
        if self._group is not None:
            lines.append(self._group.describe())
        else:
            lines.append("no multicast: a frame for the group goes to every member by itself")
        lines.append(
            f"datagrams up to {self._limit} bytes"
            + (", cut and joined by the kernel (GSO, GRO)" if self._writer.offloads else "")
        )
        return lines + _buffer_warnings(self._config, *self._granted)

    # -- Members -----------------------------------------------------------------------------

    def locate(self, address: Address) -> None:
        if not self._places.locate(address):
            self.counters["located_full"] += 1

    def trust(self, address: Address) -> None:
        self._places.places.trust(address)

    def doubt(self, short: int) -> None:
        self._places.doubt(short)

    def on_view(self, members: Sequence[Address]) -> None:
        self._places.on_view(members)
        if self._reach is not None and self._config.ip_mcast == "auto":
            own = self._places.places.own.short
            self._reach.on_view({member.short for member in members} - {own})

    # -- Frames ------------------------------------------------------------------------------

    def poll(self) -> None:
        self._reader.poll()

    def send(self, frames: list[Frame]) -> None:
        single: list[Frame] = []
        group: list[SocketAddress] | None = None
        write = self._writer.write
        for frame in frames:
            dest, head, body = frame
            if dest > 0:
                single.append(frame)
                continue
            if dest == EVERYONE:
                to_all = self._routes.to_everyone(self.where)
            else:
                if group is None:
                    group = self._routes.to_group()
                to_all = group
            parts = [head, body] if body else [head]
            for to in to_all:
                write(to, parts)
        if single:
            self._send_single(single)

    def _send_single(self, frames: list[Frame]) -> None:
        """Send frames for one member each; small frames for the same member share a datagram."""
        if self._writer.offloads or (self._bundles and len(frames) > 1):
            self._send_bundled(frames)
            return
        places, write = self._places.places.at, self._writer.write
        for dest, head, body in frames:
            at = places.get(dest)
            if at is None:
                self._routes.miss(dest)
            else:
                write(at, [head, body] if body else [head])

    def _send_bundled(self, frames: list[Frame]) -> None:
        by_dest: dict[int, list[tuple[bytes, bytes]]] = {}
        for dest, head, body in frames:
            waiting = by_dest.get(dest)
            if waiting is None:
                by_dest[dest] = [(head, body)]
            else:
                waiting.append((head, body))
        writer = self._writer
        for dest, ordered in by_dest.items():
            at = self._places.places.at.get(dest)
            if at is None:
                self._routes.miss(dest)
            elif writer.offloads:
                for parts, segment in line_up_segments(ordered, self._limit):
                    writer.write(at, parts, segment)
            else:
                for parts in join_frames(ordered, self._limit):
                    writer.write(at, parts)

    def answer(self, at: SocketAddress, datagram: bytes) -> None:
        """Send bytes to an address from which a datagram came."""
        self._writer.write(at, [datagram])

    # -- Questions by multicast -----------------------------------------------------------------

    def _ask(self, datagram: bytes) -> None:
        assert self._group is not None
        # A copy of the address, so that the writer does not count a multicast: that count stands
        # for what the filter dropped, and the filter lets own questions pass.
        self._writer.write((*self._group.at,), [datagram])

    def _answer(self, short: int, datagram: bytes) -> None:
        at = self._places.places.at.get(short)
        if at is not None:
            self._writer.write(at, [datagram])

    # -- Figures -------------------------------------------------------------------------------

    def queued(self) -> tuple[int, int]:
        return self._writer.queued()

    def stats(self) -> dict[str, int | float]:
        writer, reader = self._writer, self._reader
        return super().stats() | {
            "datagrams_sent": writer.sent,
            "bytes_sent": writer.sent_bytes,
            "datagrams_received": reader.received,
            "bytes_received": reader.received_bytes,
            "kernel_drops": self._kernel_drops(),
            "multicast_reached": len(self._reach.reached) if self._reach is not None else 0,
        }

    def _kernel_drops(self) -> int:
        """Count the datagrams that came while the receive buffers were full."""
        drops = sum(map(kernel_drops, self._sockets()))
        if self._group is not None and self._group.filters_own:
            # What the filter dropped is counted by the kernel, too: own multicasts, one each.
            drops -= self._writer.multicasts
        return max(0, drops)


def _buffer_warnings(config: UdpConfig, sends: int, receives: int) -> list[str]:
    """Return a line for each buffer that the kernel did not grant whole."""
    return [
        f"warning: {what} is {got} of {wanted} bytes; raise net.core.{limit}, "
        "or expect losses under load"
        for what, wanted, got, limit in (
            ("send_buffer", config.send_buffer, sends, "wmem_max"),
            ("receive_buffer", config.receive_buffer, receives, "rmem_max"),
        )
        if got < wanted
    ]
