"""UDP: one socket to send from and be reached at, one that hears the group's multicasts.

A frame for the group is one datagram where every member hears multicasts, else one to each. Small
frames of one turn for one destination share a datagram; batches of MTU size share a system call,
and the kernel cuts them apart again.
"""

from __future__ import annotations

import errno
import socket
import struct
from collections import deque
from collections.abc import Sequence
from secrets import randbits
from typing import Final

from stormcast.node.core import wire
from stormcast.node.core.model import Address
from stormcast.node.protocols.port import EVERYONE, Frame
from stormcast.node.settings.transports import MAX_DATAGRAM, NO_BUNDLER, UdpConfig
from stormcast.node.transports import bpf
from stormcast.node.transports.base import (
    MAX_LEARNED,
    SO_RCVBUFFORCE,
    SO_SNDBUFFORCE,
    Station,
    Transport,
    bind_in_range,
    reason,
    set_buffer,
)
from stormcast.node.transports.interfaces import Interface, SocketAddress
from stormcast.node.transports.reach import Reach

BURST: Final = 32
"""Datagrams that are taken before a turn ends and others have theirs."""
LONGEST_POLL: Final = 0.005
"""Seconds after which the loop's other work has its turn, however much comes meanwhile."""
LARGE_FROM: Final = 16384
"""A body of so many bytes travels in a datagram of its own, uncopied."""
FRAGMENTED: Final = 60_000
"""Bytes of a large datagram; an interface that carries it whole needs no smaller ones."""
MAX_SEGMENTS: Final = 64
"""Frames that the kernel cuts out of one write."""
SOL_UDP: Final = 17
UDP_SEGMENT: Final = 103
UDP_GRO: Final = 104
IP_MTU_DISCOVER: Final = 10
IP_PMTUDISC_DONT: Final = 0
IP_MULTICAST_ALL: Final = 49
IPV6_MULTICAST_ALL: Final = 29
IPV6_MTU_DISCOVER: Final = 23
SO_MEMINFO: Final = 55
_MEMINFO: Final = struct.Struct("9I")
_DROPS: Final = 8
_NOT_CUT: Final = frozenset({errno.EINVAL, errno.EIO, errno.EMSGSIZE, errno.EOPNOTSUPP})
IOV_MAX: Final = 1024
"""Parts of one write."""
_UNREACHABLE: Final = frozenset(
    {errno.ECONNREFUSED, errno.EHOSTUNREACH, errno.ENETUNREACH, errno.EPERM, errno.EACCES}
)
GROUPS: Final = {socket.AF_INET: "239.8.8.8", socket.AF_INET6: "ff0e::8:8:8"}

Datagram = tuple[SocketAddress, list[bytes], int]
"""Where to, its parts, and the size of a segment (0: not to be cut)."""


class UdpTransport(Transport):
    """Datagrams."""

    def __init__(self, config: UdpConfig, station: Station) -> None:
        super().__init__(config, station)
        self._config = config
        self._socket: socket.socket
        self._group_socket: socket.socket | None = None
        self._group: SocketAddress = ("", 0)
        self._reach: Reach | None = None
        self._at: dict[int, SocketAddress] = {}
        """Where members are."""
        self._located: set[int] = set()
        """Of those, the ones that a view named: no frame moves them."""
        self._known: dict[SocketAddress, int] = {}
        """Who sent from where last."""
        self._waiting: deque[Datagram] = deque()
        self._waiting_bytes = 0
        self._buffer = bytearray(1 << 16)
        self._view = memoryview(self._buffer)
        self._limit = MAX_DATAGRAM
        self._uses_offload = False
        self._bundles = config.bundler != NO_BUNDLER
        self._filters_own = False
        self._granted = (0, 0)
        self._multicasts = 0
        self.sent = 0
        self.sent_bytes = 0
        self.received = 0
        self.received_bytes = 0

    # -- Life --------------------------------------------------------------------------------

    def open(self, interface: Interface) -> None:
        config = self._config
        self._interface = interface
        self._socket = bind_in_range(self._make, interface.host, config, "UDP port")
        sent, received = (
            set_buffer(self._socket, socket.SO_SNDBUF, SO_SNDBUFFORCE, config.send_buffer),
            set_buffer(self._socket, socket.SO_RCVBUF, SO_RCVBUFFORCE, config.receive_buffer),
        )
        self._granted = sent, received
        mtu = interface.mtu()
        overhead = 48 if interface.is_ipv6 else 28
        is_large = config.frames == "large" or (config.frames == "auto" and mtu > FRAGMENTED)
        self._limit = MAX_DATAGRAM if is_large else mtu - overhead
        if not is_large and config.offload == "auto":
            self._uses_offload = self._try_offload(self._socket)
        if config.ip_mcast != "never":
            self._open_group()
        self._announce(interface.address, self._socket.getsockname()[1])

    def frame_limit(self) -> int:
        return min(MAX_DATAGRAM, self._limit) - wire.HEAD_SIZE

    def _make(self) -> socket.socket:
        made = socket.socket(self._interface.family, socket.SOCK_DGRAM)
        made.setblocking(False)
        if self._interface.is_ipv6:
            made.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
            made.setsockopt(socket.IPPROTO_IPV6, IPV6_MTU_DISCOVER, IP_PMTUDISC_DONT)
        else:
            # Where a packet is too large for a path, it is cut there: a router's word of it may
            # never come back through a network that loses packets.
            made.setsockopt(socket.IPPROTO_IP, IP_MTU_DISCOVER, IP_PMTUDISC_DONT)
        return made

    @staticmethod
    def _try_offload(sock: socket.socket) -> bool:
        try:
            sock.setsockopt(SOL_UDP, UDP_GRO, 1)
        except OSError:
            return False
        return True

    def _open_group(self) -> None:
        """Join the group, on the interface that is bound."""
        config, interface = self._config, self._interface
        name = config.mcast_addr or GROUPS[interface.family]
        scope = (0, interface.number) if interface.is_ipv6 else ()
        self._group = (name, config.mcast_port, *scope)
        hears = self._make()
        try:
            # Several members of one host share the port.
            hears.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            hears.bind(self._group)
            self._join(hears, name)
        except OSError as error:
            hears.close()
            self.station.say(
                f"multicast {name}[{config.mcast_port}] on {interface.name}: {reason(error)}; "
                "each frame for the group goes to every member by itself"
            )
            return
        set_buffer(hears, socket.SO_RCVBUF, SO_RCVBUFFORCE, config.receive_buffer)
        if self._uses_offload:
            self._try_offload(hears)
        self._group_socket = hears

    def _join(self, hears: socket.socket, name: str) -> None:
        index, ttl, sends = self._interface.number, self._config.ip_ttl, self._socket
        packed = socket.inet_pton(self._interface.family, name)
        if self._interface.is_ipv6:
            level = socket.IPPROTO_IPV6
            hears.setsockopt(level, socket.IPV6_JOIN_GROUP, packed + struct.pack("@I", index))
            hears.setsockopt(level, IPV6_MULTICAST_ALL, 0)
            sends.setsockopt(level, socket.IPV6_MULTICAST_IF, index)
            sends.setsockopt(level, socket.IPV6_MULTICAST_HOPS, ttl)
            sends.setsockopt(level, socket.IPV6_MULTICAST_LOOP, 1)
        else:
            level = socket.IPPROTO_IP
            request = packed + socket.inet_aton(self._interface.address) + struct.pack("@I", index)
            hears.setsockopt(level, socket.IP_ADD_MEMBERSHIP, request)
            hears.setsockopt(level, IP_MULTICAST_ALL, 0)
            sends.setsockopt(level, socket.IP_MULTICAST_IF, request)
            sends.setsockopt(level, socket.IP_MULTICAST_TTL, ttl)
            sends.setsockopt(level, socket.IP_MULTICAST_LOOP, 1)

    def start(self, address: Address, cluster: int) -> None:
        self.address = address
        loop = self.station.loop
        if self._group_socket is not None:
            try:
                bpf.attach(self._group_socket, bpf.reject_source(address.short))
                self._filters_own = True
            except OSError:
                # They cost a look each, then.
                self._filters_own = False
            self._reach = Reach(
                cluster, address.short, randbits(64), self._probe, self._answer, loop.call_later
            )
            loop.add_reader(self._group_socket.fileno(), self.poll)
        loop.add_reader(self._socket.fileno(), self.poll)

    def close(self) -> None:
        loop = self.station.loop
        if self._reach is not None:
            self._reach.close()
        self._flush()
        for sock in (self._socket, self._group_socket):
            if sock is not None:
                loop.remove_reader(sock.fileno())
                loop.remove_writer(sock.fileno())
                sock.close()
        self._waiting.clear()

    def describe(self) -> list[str]:
        interface, config = self._interface, self._config
        lines = [
            f"udp {self._socket.getsockname()[0]}[{self._socket.getsockname()[1]}] on "
            f"{interface.name} (rule {interface.rule}), told to others as {self.where}"
        ]
        if self._group_socket is not None:
            lines.append(
                f"multicast {self._group[0]}[{self._group[1]}] on {interface.name}, "
                f"ttl {config.ip_ttl}; own copies "
                + ("filtered in the kernel" if self._filters_own else "thrown away here")
                + ("" if config.ip_mcast == "always" else "; used once all members hear it")
            )
        else:
            lines.append("no multicast: a frame for the group goes to every member by itself")
        lines.append(
            f"datagrams up to {self._limit} bytes"
            + (", cut and joined by the kernel (GSO, GRO)" if self._uses_offload else "")
        )
        for what, wanted, got in (
            ("send_buffer", config.send_buffer, self._granted[0]),
            ("receive_buffer", config.receive_buffer, self._granted[1]),
        ):
            if got < wanted:
                limit = "wmem_max" if what == "send_buffer" else "rmem_max"
                lines.append(
                    f"warning: {what} is {got} of {wanted} bytes; raise net.core.{limit}, "
                    "or expect losses under load"
                )
        return lines

    # -- Addresses ---------------------------------------------------------------------------

    def locate(self, address: Address) -> None:
        at = self._place(address.where)
        if at is None or address == self.address:
            return
        if len(self._located) >= MAX_LEARNED and address.short not in self._located:
            # Strangers can name whom they like between two views.
            self.count("located_full")
            return
        self._at[address.short] = at
        self._located.add(address.short)

    def on_view(self, members: Sequence[Address]) -> None:
        shorts = {member.short for member in members} - {self.address.short}
        if len(self._at) > MAX_LEARNED // 2:
            self._at = {short: at for short, at in self._at.items() if short in shorts}
        self._located &= shorts
        super().on_view(members)
        if self._reach is not None and self._config.ip_mcast == "auto":
            self._reach.on_view(shorts)

    def _learn(self, short: int, source: SocketAddress) -> None:
        """Who sends from somewhere can be reached there, unless a view knows better."""
        if len(self._known) >= MAX_LEARNED:
            self._known.clear()
        self._known[source] = short
        if short in self._located:
            return
        if len(self._at) >= MAX_LEARNED:
            self._at = {one: at for one, at in self._at.items() if one in self._located}
        self._at[short] = source

    # -- Receiving ---------------------------------------------------------------------------

    def poll(self) -> None:
        """Take what came, the group's first: what a member says of its multicasts by unicast must
        not overtake them, or they are taken for lost."""
        self.station.turn(has_more=self._take_all())
        if self._config.busy_poll:
            self._poll_on()

    def _take_all(self) -> bool:
        """A burst of each socket; whether there may be more."""
        has_more = False
        if self._group_socket is not None:
            has_more = self._receive(self._group_socket, by_multicast=True)
        return self._receive(self._socket, by_multicast=False) or has_more

    def _poll_on(self) -> None:
        """Look again and again for a moment: what answers this turn is here sooner than the system
        would wake a process that sleeps."""
        station, patience = self.station, self._config.busy_poll
        now = station.now()
        until, longest = now + patience, now + LONGEST_POLL
        while now < until and now < longest:
            before = self.received
            has_more = self._take_all()
            now = station.now()
            if self.received != before:
                station.turn(has_more=has_more)
                until = now + patience

    def _receive(self, sock: socket.socket, *, by_multicast: bool) -> bool:
        """Take a burst; whether there may be more."""
        station, view, known = self.station, self._view, self._known
        buffer = self._buffer
        receive, take, clock = station.receive, sock.recvfrom_into, station.now
        got = total = 0
        while got < BURST:
            try:
                size, source = take(buffer)
            except BlockingIOError:
                break
            except OSError:
                # What an earlier datagram met, told on this socket.
                self.count("receive_errors")
                break
            got += 1
            total += size
            if size < wire.HEAD_SIZE and self._is_probe(view[:size], by_multicast=by_multicast):
                continue
            # The clock is read after each: nothing may seem to arrive before it was sent.
            short = receive(view[:size], clock())
            if short and known.get(source) != short:
                self._learn(short, source)
        self.received += got
        self.received_bytes += total
        return got == BURST

    def _is_probe(self, datagram: memoryview, *, by_multicast: bool) -> bool:
        reach = self._reach
        return reach is not None and reach.receive_untrusted(datagram, by_multicast=by_multicast)

    # -- Sending -----------------------------------------------------------------------------

    def send(self, frames: list[Frame]) -> None:
        single: list[Frame] = []
        group: list[SocketAddress] | None = None
        write = self._write
        for frame in frames:
            dest, head, body = frame
            if dest > 0:
                single.append(frame)
                continue
            if dest == EVERYONE:
                to_all = self._everyone()
            else:
                if group is None:
                    group = self._group_addresses()
                to_all = group
            parts = [head, body] if body else [head]
            for to in to_all:
                write(to, parts)
        if single:
            self._send_single(single)

    def _group_addresses(self) -> list[SocketAddress]:
        """One multicast for those who hear it, and one datagram to each who may not."""
        if self._group_socket is not None and self._config.ip_mcast == "always":
            return [self._group]
        dests = self.station.destinations()
        reach = self._reach
        if reach is None or not reach.reached:
            return self._addresses(dests)
        return [self._group, *self._addresses([one for one in dests if one not in reach.reached])]

    def _addresses(self, dests: Sequence[int]) -> list[SocketAddress]:
        found = []
        for dest in dests:
            at = self._at.get(dest)
            if at is None:
                self._miss(dest)
            else:
                found.append(at)
        return found

    def _everyone(self) -> list[SocketAddress]:
        told = self._askable()
        told.pop(self._place(self.where) or ("", 0), None)
        if self._group_socket is not None:
            return [self._group, *told]
        return list(told)

    def _miss(self, dest: int) -> None:
        self.count("unknown_address")
        self.station.want_address(dest)

    def _send_single(self, frames: list[Frame]) -> None:
        """Frames for one member each; small ones for the same share a datagram."""
        if self._uses_offload or (self._bundles and len(frames) > 1):
            self._send_bundled(frames)
            return
        for dest, head, body in frames:
            at = self._at.get(dest)
            if at is None:
                self._miss(dest)
            else:
                self._write(at, [head, body] if body else [head])

    def _send_bundled(self, frames: list[Frame]) -> None:
        by_dest: dict[int, list[tuple[bytes, bytes]]] = {}
        for dest, head, body in frames:
            waiting = by_dest.get(dest)
            if waiting is None:
                by_dest[dest] = [(head, body)]
            else:
                waiting.append((head, body))
        for dest, ordered in by_dest.items():
            at = self._at.get(dest)
            if at is None:
                self._miss(dest)
            elif self._uses_offload:
                self._write_segments(at, ordered)
            else:
                self._write_joined(at, ordered)

    def _write_joined(self, at: SocketAddress, frames: list[tuple[bytes, bytes]]) -> None:
        parts: list[bytes] = []
        size = 0
        for head, body in frames:
            length = len(head) + len(body)
            if parts and (
                size + length > self._limit
                or len(body) >= LARGE_FROM
                # One write takes no more, and each frame adds two at most.
                or len(parts) > IOV_MAX - 2
            ):
                self._write(at, parts)
                parts, size = [], 0
            parts += (head, body) if body else (head,)
            size += length
        self._write(at, parts)

    def _write_segments(self, at: SocketAddress, frames: list[tuple[bytes, bytes]]) -> None:
        """Runs of frames of one length, and at most one shorter after them, in one write."""
        parts: list[bytes] = []
        segment = number = total = 0
        is_ended = False
        for head, body in frames:
            length = len(head) + len(body)
            if parts and (
                is_ended
                or length > segment
                or segment > self._limit  # What is larger than a packet, the kernel does not cut.
                or number == MAX_SEGMENTS
                or total + length > MAX_DATAGRAM
            ):
                self._write(at, parts, segment if number > 1 else 0)
                parts, segment, number, total, is_ended = [], 0, 0, 0, False
            if not parts:
                segment = length
            is_ended = length < segment
            parts += (head, body) if body else (head,)
            number += 1
            total += length
        self._write(at, parts, segment if number > 1 else 0)

    def _write(self, to: SocketAddress, parts: list[bytes], segment: int = 0) -> None:
        if self._waiting:
            self._keep((to, parts, segment))
            return
        try:
            if segment:
                cut = [(SOL_UDP, UDP_SEGMENT, struct.pack("@H", segment))]
                size = self._socket.sendmsg(parts, cut, 0, to)
            else:
                size = self._socket.sendmsg(parts, (), 0, to)
        except BlockingIOError:
            self._keep((to, parts, segment))
            return
        except OSError as error:
            self._on_send_error(error, to, parts, segment)
            return
        self.sent += 1
        self.sent_bytes += size
        if to is self._group:
            self._multicasts += 1

    def _on_send_error(
        self, error: OSError, to: SocketAddress, parts: list[bytes], segment: int
    ) -> None:
        if segment and error.errno in _NOT_CUT:
            # An interface, or a path that became narrower, for which the kernel does not cut.
            self.count("offload_refused")
            self._uses_offload = False
            self._write_apart(to, parts, segment)
        elif error.errno == errno.ENOBUFS:
            self.count("send_no_buffers")
        elif error.errno in _UNREACHABLE:
            self.count("send_unreachable")
        elif error.errno == errno.EMSGSIZE:
            self.count("send_too_large")
        else:
            self.count("send_errors")

    def _write_apart(self, to: SocketAddress, parts: list[bytes], segment: int) -> None:
        whole = b"".join(parts)
        for start in range(0, len(whole), segment):
            self._write(to, [whole[start : start + segment]])

    # -- Waiting -----------------------------------------------------------------------------

    def _keep(self, datagram: Datagram) -> None:
        """The socket is full: wait for it, or drop what is too much."""
        config = self._config
        if config.drop_when_full and len(self._waiting) >= config.queue_frames:
            self.count("dropped_queue_full")
            return
        if not self._waiting:
            self.station.loop.add_writer(self._socket.fileno(), self._flush)
        self._waiting.append(datagram)
        self._waiting_bytes += sum(map(len, datagram[1]))
        if self._waiting_bytes > config.queue_bytes or len(self._waiting) >= config.queue_frames:
            self.is_full = True

    def _flush(self) -> None:
        waiting = self._waiting
        while waiting:
            to, parts, segment = waiting[0]
            cut = [(SOL_UDP, UDP_SEGMENT, struct.pack("@H", segment))] if segment else []
            try:
                size = self._socket.sendmsg(parts, cut, 0, to)
            except BlockingIOError:
                break
            except OSError as error:
                self._on_send_error(error, to, parts, segment)
            else:
                self.sent += 1
                self.sent_bytes += size
                if to is self._group:
                    self._multicasts += 1
            waiting.popleft()
            self._waiting_bytes -= sum(map(len, parts))
        if not waiting:
            self.station.loop.remove_writer(self._socket.fileno())
        config = self._config
        frames, size = config.queue_frames // 2, config.queue_bytes // 2
        if self.is_full and len(waiting) <= frames and self._waiting_bytes <= size:
            self.is_full = False
            self.station.turn()

    def queued(self) -> tuple[int, int]:
        return len(self._waiting), self._waiting_bytes

    def stats(self) -> dict[str, int | float]:
        members = self._reach.reached if self._reach is not None else ()
        return super().stats() | {
            "datagrams_sent": self.sent,
            "bytes_sent": self.sent_bytes,
            "datagrams_received": self.received,
            "bytes_received": self.received_bytes,
            "kernel_drops": self._kernel_drops(),
            "multicast_reached": len(members),
        }

    def _kernel_drops(self) -> int:
        """Datagrams that came while the receive buffers were full."""
        # What the filter dropped is counted by the kernel, too: own multicasts, one each.
        drops = -self._multicasts if self._filters_own else 0
        for sock in (self._socket, self._group_socket):
            if sock is not None and sock.fileno() >= 0:
                info = sock.getsockopt(socket.SOL_SOCKET, SO_MEMINFO, _MEMINFO.size)
                drops += _MEMINFO.unpack(info)[_DROPS]
        return max(0, drops)

    # -- Probes of the multicast ---------------------------------------------------------------

    def _probe(self, datagram: bytes) -> None:
        # A copy of the address: the filter lets own probes pass, so they do not count as filtered.
        self._write((*self._group,), [datagram])

    def _answer(self, short: int, datagram: bytes) -> None:
        at = self._at.get(short)
        if at is not None:
            self._write(at, [datagram])
