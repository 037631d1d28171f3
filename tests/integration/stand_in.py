"""A process in a member's place: says hello to everyone it knows, and tells whom it hears.

Usage: stand_in.py ADDRESS PEER... It multicasts, too, and answers `GET /state` on control.sock.
"""

from __future__ import annotations

import json
import os
import selectors
import signal
import socket
import struct
import sys
import time

PORT = 7800
GROUP = "228.8.8.8"
EVERY = 0.01


def main(me: str, peers: list[str]) -> None:
    signal.signal(signal.SIGTERM, lambda *_rest: sys.exit(0))
    family = socket.AF_INET6 if ":" in me else socket.AF_INET
    datagrams = socket.socket(family, socket.SOCK_DGRAM)
    datagrams.bind(("", PORT))
    datagrams.setblocking(False)
    if family == socket.AF_INET:
        interface = socket.inet_aton(me)
        join = socket.inet_aton(GROUP) + interface
        datagrams.setsockopt(socket.IPPROTO_IP, socket.IP_ADD_MEMBERSHIP, join)
        datagrams.setsockopt(socket.IPPROTO_IP, socket.IP_MULTICAST_IF, interface)
        datagrams.setsockopt(socket.IPPROTO_IP, socket.IP_MULTICAST_LOOP, 0)
        # Neither cut down to the path's size nor fragmented: what does not fit is an error here.
        datagrams.setsockopt(socket.IPPROTO_IP, 10, 2)  # IP_MTU_DISCOVER, IP_PMTUDISC_DO
    control = socket.socket(socket.AF_UNIX)
    control.bind("control.sock")
    control.listen()

    unicasts: dict[str, int] = dict.fromkeys(peers, 0)
    multicasts: dict[str, int] = dict.fromkeys(peers, 0)
    selector = selectors.DefaultSelector()
    selector.register(datagrams, selectors.EVENT_READ)
    selector.register(control, selectors.EVENT_READ)
    due = time.monotonic()
    while True:
        for key, _events in selector.select(max(0.0, due - time.monotonic())):
            if key.fileobj is control:
                answer(
                    control,
                    {"unicasts": unicasts, "multicasts": multicasts, "largest": largest(me, peers)},
                )
                continue
            data, source = datagrams.recvfrom(65536)
            heard = multicasts if data == b"all" else unicasts
            heard[source[0]] = heard.get(source[0], 0) + 1
        if time.monotonic() >= due:
            due = time.monotonic() + EVERY
            for peer in peers:
                say(datagrams, b"you", peer)
            if family == socket.AF_INET:
                say(datagrams, b"all", GROUP)


def say(datagrams: socket.socket, data: bytes, dest: str) -> None:
    try:
        datagrams.sendto(data, (dest, PORT))
    except OSError as error:
        print(f"{dest}: {error}", file=sys.stderr)


def largest(me: str, peers: list[str]) -> int:
    """The largest datagram that leaves in one packet."""
    if ":" in me:
        return 0
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        probe.setsockopt(socket.IPPROTO_IP, 10, 2)
        probe.connect((peers[0], 9))
        return struct.unpack("i", probe.getsockopt(socket.IPPROTO_IP, 14, 4))[0]  # IP_MTU


def answer(control: socket.socket, state: object) -> None:
    connection, _peer = control.accept()
    with connection:
        connection.recv(65536)
        body = json.dumps(state | {"pid": os.getpid(), "short": f"{os.getpid():08x}"}).encode()
        front = b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n"
        connection.sendall(front % len(body) + body)


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2:])
