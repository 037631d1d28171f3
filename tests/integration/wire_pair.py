"""Two namespaces with a socket in each: what is sent at one end, and what of it comes in."""

from __future__ import annotations

import random
import socket
import struct
import time
from collections.abc import Iterable, Sequence
from pathlib import Path
from types import TracebackType

from stormcast.chaos.backends.netns import Network, RunId
from stormcast.chaos.drivers.netlink import inside
from stormcast.node.core import wire

SO_RCVBUFFORCE = 33
UDP_SEGMENT = 103
"""Of a socket: the kernel cuts what is written into datagrams of so many bytes (GSO)."""
GROUP = "228.8.8.8"
END = b"end"
"""Too short to have a fate."""


def frames(seed: int, count: int) -> list[bytes]:
    """Heads of frames as members send them, no two the same."""
    draw = random.Random(seed)
    made = []
    for number in range(count):
        kind = draw.choice((wire.DATA, wire.DATA, wire.ACK, wire.XMIT_REQ, wire.HEARTBEAT))
        head = wire.Head(
            magic=wire.MAGIC,
            version=wire.VERSION,
            count=draw.choice((1, 1, 1, 7)) if kind == wire.DATA else 0,
            kind=kind,
            protocol=draw.choice((wire.UNICAST3, wire.NAKACK2)),
            transmission=draw.choice((0, 0, 1, 2)),
            flags=draw.choice((0, 0, 1, 0x21)),
            cluster=draw.getrandbits(32),
            source=draw.getrandbits(32),
            dest=draw.getrandbits(32),
            conn=draw.randint(0, 3),
            lo=draw.randint(0, 40),
            digest=0,
            mark=number,
            stamp=0,
            size=0,
            headers=0,
            width=0,
            seal=0,
            check=0,
        )
        made.append(wire.HEAD_STRUCT.pack(*head))
    return made


class Pair:
    """Ends n0 and n1 of one network; use it as a context manager."""

    def __init__(self, *, ipv6: bool = False, network: Network | None = None) -> None:
        self.network = network or Network(RunId.next(), ("n0", "n1"))
        self._is_ours = network is None
        self._family = socket.AF_INET6 if ipv6 else socket.AF_INET
        self.addresses = {name: self.network.address(name, ipv6=ipv6) for name in ("n0", "n1")}
        self.sockets: dict[str, socket.socket] = {}

    def __enter__(self) -> Pair:
        if self._is_ours:
            self.network.make()
        for site in self.network.sites():
            self.sockets[site.name] = inside(Path(str(site.netns)), lambda: self._open(site.name))  # noqa: B023 it is called at once
        return self

    def __exit__(
        self,
        _kind: type[BaseException] | None,
        _error: BaseException | None,
        _trace: TracebackType | None,
    ) -> None:
        for end in self.sockets.values():
            end.close()
        if self._is_ours:
            self.network.remove()

    def _open(self, name: str) -> socket.socket:
        end = socket.socket(self._family, socket.SOCK_DGRAM)
        end.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        end.bind(("", 7800))
        end.setblocking(False)
        end.setsockopt(socket.SOL_SOCKET, SO_RCVBUFFORCE, 8 << 20)
        if self._family == socket.AF_INET:
            me = socket.inet_aton(self.addresses[name])
            end.setsockopt(socket.IPPROTO_IP, socket.IP_MULTICAST_IF, me)
            end.setsockopt(
                socket.IPPROTO_IP, socket.IP_ADD_MEMBERSHIP, socket.inet_aton(GROUP) + me
            )
            end.setsockopt(socket.IPPROTO_IP, socket.IP_MULTICAST_LOOP, struct.pack("i", 0))
        return end

    def say(self, source: str, data: bytes, dest: str = "") -> None:
        """Send one datagram to the other end, or to an address."""
        other = "n1" if source == "n0" else "n0"
        self.sockets[source].sendto(data, (dest or self.addresses[other], 7800))

    def say_in_one_write(self, source: str, datagrams: Sequence[bytes]) -> None:
        """Send datagrams of one size to the other end, which the kernel cuts apart at the end."""
        end = self.sockets[source]
        end.setsockopt(socket.IPPROTO_UDP, UDP_SEGMENT, len(datagrams[0]))
        try:
            self.say(source, b"".join(datagrams))
        finally:
            end.setsockopt(socket.IPPROTO_UDP, UDP_SEGMENT, 0)

    def pass_on(
        self, datagrams: Iterable[bytes], source: str = "n0", dest: str = ""
    ) -> list[bytes]:
        """Send datagrams; returns those that came in. Nothing must keep the END from coming."""
        other = self.sockets["n1" if source == "n0" else "n0"]
        came: list[bytes] = []
        for number, data in enumerate(datagrams):
            self.say(source, data, dest)
            if number % 64 == 0:
                came += drained(other)
        self.say(source, END, dest)
        deadline = time.monotonic() + 10.0
        while END not in came:
            assert time.monotonic() < deadline, "the end came"
            came += drained(other)
        return [data for data in came if data != END]

    def arrives(self, source: str, tries: int = 5, patience: float = 3.0) -> bool:
        """Whether one of some datagrams that are sent now arrives."""
        other = self.sockets["n1" if source == "n0" else "n0"]
        drained(other)
        words = [b"try %d %d" % (time.monotonic_ns(), number) for number in range(tries)]
        for word in words:
            self.say(source, word)
        deadline = time.monotonic() + patience
        while time.monotonic() < deadline:
            if any(word in words for word in drained(other)):
                return True
            time.sleep(0.005)
        return False


def drained(end: socket.socket) -> list[bytes]:
    """Everything that has come in so far."""
    came = []
    while True:
        try:
            came.append(end.recv(65536))
        except BlockingIOError:
            return came
