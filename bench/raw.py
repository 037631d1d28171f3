"""The ceiling: the same bytes through bare Python sockets, with no protocol at all.

One process per member, which gets commands as lines, like every program that is compared. Messages
are packed into datagrams (or writes) as large as ours; nothing is numbered, acked, checked or
repaired, so what a full socket buffer drops is simply not counted.
"""

from __future__ import annotations

import argparse
import ctypes
import json
import select
import socket
import struct
import sys
from collections.abc import Mapping
from contextlib import suppress
from time import monotonic, sleep
from typing import Final

from bench.errors import BenchError
from bench.percentiles import percentiles
from bench.work import Work

CHUNK: Final = 60_000
"""Bytes of payload per datagram or write, as in a frame of ours."""
SOCKET_BYTES: Final = 4 << 20
HOST: Final = "127.0.0.1"
GROUP: Final = "239.8.8.99"
FIRST_PORT: Final = 18800
PATIENCE: Final = 10.0
"""Seconds until the others must be there."""
LOOK_AGAIN: Final = 0.05
"""Seconds after which a receiver that hears nothing looks at the clock."""

Figures = dict[str, float]


def chunk_of(size: int) -> bytes:
    """Return as many whole messages as a frame holds; of a message larger than that, a part."""
    return bytes(CHUNK // size * size or CHUNK)


class Datagrams:
    """UDP: to one, or to a group whose members all send."""

    def __init__(self, place: int, members: int, port: int, *, is_group: bool) -> None:
        self.peers = members - 1
        self._sender = _udp()
        self._sender.bind((HOST, 0))
        self._receiver = _udp()
        if is_group:
            self._to = GROUP, port
            loopback = socket.inet_aton(HOST)
            self._receiver.bind(self._to)
            joined = socket.inet_aton(GROUP) + loopback
            self._receiver.setsockopt(socket.IPPROTO_IP, socket.IP_ADD_MEMBERSHIP, joined)
            self._sender.setsockopt(socket.IPPROTO_IP, socket.IP_MULTICAST_IF, loopback)
            ignore_port(self._receiver, self._sender.getsockname()[1])
        else:
            # The first member receives, all others send to it.
            self._to = HOST, port
            self._receiver.bind((HOST, port if place == 1 else 0))
        self._receiver.setblocking(False)
        self._buffer = bytearray(1 << 16)

    def send(self, chunk: bytes) -> int:
        """Send a chunk; return the bytes that were sent."""
        return self._sender.sendto(chunk, self._to)

    def receive(self) -> int:
        """Read everything that waits; return its bytes."""
        got, buffer, recv_into = 0, self._buffer, self._receiver.recv_into
        try:
            while True:
                got += recv_into(buffer)
        except BlockingIOError:
            return got

    def wait(self) -> None:
        """Wait until something arrives, for LOOK_AGAIN at most."""
        select.select([self._receiver], [], [], LOOK_AGAIN)

    def bounce(self, seconds: float) -> Figures:
        """Send back what arrives, for `seconds`."""
        end = monotonic() + seconds
        self._receiver.settimeout(LOOK_AGAIN)
        while monotonic() < end:
            try:
                size, source = self._receiver.recvfrom_into(self._buffer)
            except TimeoutError:
                continue
            self._receiver.sendto(memoryview(self._buffer)[:size], source)
        self._receiver.setblocking(False)
        return {"seconds": seconds}

    def ask(self, size: int, seconds: float) -> dict[str, float | None]:
        """Send one request at a time, for `seconds`; return the percentiles of the round trips."""
        took, request, sender = [], bytes(size), self._sender
        sender.settimeout(LOOK_AGAIN)
        end = monotonic() + seconds
        while (start := monotonic()) < end:
            sender.sendto(request, self._to)
            with suppress(TimeoutError):  # Lost: go on with the next request.
                sender.recv_into(self._buffer)
                took.append(monotonic() - start)
        sender.setblocking(True)
        return {"seconds": seconds, "count": len(took), **percentiles(took)}


class Streams:
    """TCP: a connection between each two members."""

    def __init__(self, place: int, members: int, port: int) -> None:
        self.peers = members - 1
        server = socket.create_server((HOST, port + place))
        self._others = [_connected(port + other) for other in range(1, place)]
        server.settimeout(PATIENCE)
        self._others += [server.accept()[0] for _ in range(place, members)]
        server.close()
        for other in self._others:
            other.setblocking(False)
        self._unsent = [memoryview(b"")] * self.peers
        self._buffer = bytearray(1 << 18)

    def send(self, chunk: bytes) -> int:
        """Send a chunk on each connection; return its bytes once all have taken it, else 0."""
        if not any(self._unsent):
            self._unsent = [memoryview(chunk)] * self.peers
        for number, other in enumerate(self._others):
            try:
                if self._unsent[number]:
                    self._unsent[number] = self._unsent[number][other.send(self._unsent[number]) :]
            except BlockingIOError:
                continue
        return 0 if any(self._unsent) else len(chunk)

    def receive(self) -> int:
        """Read what waits, at most a buffer from each connection; return its bytes."""
        got = 0
        for other in self._others:
            try:
                got += other.recv_into(self._buffer)
            except BlockingIOError:
                continue
        return got

    def wait(self) -> None:
        """Wait until something arrives, or can be sent on, for LOOK_AGAIN at most."""
        unsent = [other for other, rest in zip(self._others, self._unsent, strict=True) if rest]
        select.select(self._others, unsent, [], LOOK_AGAIN)


def ignore_port(receiver: socket.socket, port: int) -> None:
    """Let the kernel drop what came from a source port: a sender's own multicasts."""
    # Load the first half word of the UDP header; equal to the port: drop, else take it whole.
    code = ((0x28, 0, 0, 0), (0x15, 0, 1, port), (0x06, 0, 0, 0), (0x06, 0, 0, 0xFFFFFFFF))
    program = ctypes.create_string_buffer(b"".join(struct.pack("HBBI", *step) for step in code))
    attach_filter = 26  # SO_ATTACH_FILTER, which the module socket does not name.
    header = struct.pack("HL", len(code), ctypes.addressof(program))
    receiver.setsockopt(socket.SOL_SOCKET, attach_filter, header)


def load(link: Datagrams | Streams, size: int, seconds: float, *, is_group: bool) -> Figures:
    """Send as fast as the sockets take it; a member of a group delivers its own at once."""
    chunk = chunk_of(size)
    sent = got = 0
    began = now = monotonic()
    while now < began + seconds:
        out = link.send(chunk)
        arrived = link.receive() if is_group else 0
        sent += out
        got += arrived + (out if is_group else 0)
        if not out and not arrived:
            link.wait()
        now = monotonic()
    return _figures(now - began, sent, got, size)


def listen(link: Datagrams | Streams, size: int, seconds: float) -> Figures:
    """Count what arrives."""
    got = 0
    began = now = monotonic()
    while now < began + seconds:
        link.wait()
        got += link.receive()
        now = monotonic()
    return _figures(now - began, 0, got, size)


def drain(link: Datagrams | Streams) -> int:
    """Throw away what a round left in the sockets."""
    sleep(LOOK_AGAIN)
    thrown = 0
    while got := link.receive():
        thrown += got
    return thrown


def _figures(seconds: float, sent: int, got: int, size: int) -> Figures:
    return {"seconds": seconds, "sent": sent // size, "delivered": got // size}


def _udp() -> socket.socket:
    sock = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    for forced, plain in ((33, socket.SO_RCVBUF), (32, socket.SO_SNDBUF)):
        try:
            # SO_RCVBUFFORCE and SO_SNDBUFFORCE go beyond the kernel's cap, for root.
            sock.setsockopt(socket.SOL_SOCKET, forced, SOCKET_BYTES)
        except PermissionError:
            sock.setsockopt(socket.SOL_SOCKET, plain, SOCKET_BYTES)
    return sock


def _connected(port: int) -> socket.socket:
    deadline = monotonic() + PATIENCE
    while True:
        try:
            return socket.create_connection((HOST, port))
        except ConnectionRefusedError:
            if monotonic() > deadline:
                raise
            sleep(0.02)


def commands(work: Work) -> list[list[str]]:
    """Return one command per process, in the order in which they are to be started."""
    if work.is_latency and work.transport != "udp":
        raise BenchError("--peer raw: round trips are for --transport udp")
    words = [sys.executable, "-m", "bench.raw", "--transport", work.transport.partition("-")[0]]
    words += ["--members", str(work.members), "--port", str(FIRST_PORT)]
    words += ["--group"] if work.mode == "multicast" else []
    return [[*words, "--place", str(place)] for place in range(1, work.members + 1)]


def main() -> None:
    """Obey the commands on stdin."""
    parser = argparse.ArgumentParser(prog="bench.raw", allow_abbrev=False)
    parser.add_argument("--transport", choices=("udp", "tcp"), required=True)
    parser.add_argument("--group", action="store_true", help="everyone sends to everyone")
    parser.add_argument("--place", type=int, required=True, help="1..members")
    parser.add_argument("--members", type=int, required=True)
    parser.add_argument("--port", type=int, required=True)
    args = parser.parse_args()
    # Said before the link is made: streams are connected only when all members have started.
    print(json.dumps({"joined": True}), flush=True)
    link: Datagrams | Streams
    if args.transport == "udp":
        link = Datagrams(args.place, args.members, args.port, is_group=args.group)
    else:
        link = Streams(args.place, args.members, args.port)
    size = 8
    print(json.dumps({"ready": True}), flush=True)
    for line in sys.stdin:
        match line.split():
            case ["prepare", number]:
                size = int(number)
                said: Mapping[str, float | None] = {"prepared": size}
            case ["multicast" | "unicast", seconds, *_to]:
                said = load(link, size, float(seconds), is_group=args.group)
            case ["listen", seconds]:
                said = listen(link, size, float(seconds))
            case ["bounce", seconds] if isinstance(link, Datagrams):
                said = link.bounce(float(seconds))
            case ["roundtrip", seconds, _to] if isinstance(link, Datagrams):
                said = link.ask(size, float(seconds))
            case ["rest"]:
                said = {"thrown": drain(link)}
            case words:
                raise SystemExit(f"unknown command {' '.join(words)}")
        print(json.dumps(said), flush=True)


if __name__ == "__main__":
    main()
