"""A stranger on the members' network: costs them memory, or has them send to somebody else.

Usage: costly.py windows|multicasts|unfinished|joins ORDER.json
The order says how; the answer is one JSON object on stdout.
"""

from __future__ import annotations

import json
import selectors
import socket
import struct
import sys
import threading
import time
from pathlib import Path
from typing import Any

from xxhash import xxh3_64_intdigest

from stormcast.node.core import wire
from stormcast.node.core.codec import Codec, pack_body
from stormcast.node.core.model import FIRST, Address
from stormcast.node.core.packing import Writer
from stormcast.node.transports.handshake import Hello, pack_hello

UDP, TCP = 17, 6
ETH_P_ALL = 3
MIB = 1 << 20
PAYLOAD = 50_000
FIRST_NAME = 0x7100_0000
VICTIMS_PORT = 7999


class Mouth:
    """Says frames in any name, by datagrams or over one connection that has greeted."""

    def __init__(self, order: dict[str, Any], number: int = 0) -> None:
        self.order = order
        self.cluster = xxh3_64_intdigest(order["cluster"].encode()) & 0xFFFFFFFF
        self.place = tuple(order["place"])
        self.is_stream = order["stack"] != "udp"
        self.sent = 0
        kind = socket.SOCK_STREAM if self.is_stream else socket.SOCK_DGRAM
        self.socket = socket.socket(socket.AF_INET, kind)
        self.socket.connect(self.place)
        self.host = self.socket.getsockname()[0]
        if self.is_stream:
            me = Address(FIRST_NAME - 100 + number, "stranger", f"{self.host}[7800]")
            self.write(pack_hello(Hello(self.cluster, 1, me)))

    def codec(self, source: int) -> Codec:
        return Codec(self.cluster, source, xxh3_64_intdigest)

    def write(self, data: bytes) -> None:
        self.socket.sendall(data)
        self.sent += len(data)

    def say(self, frame: bytes) -> None:
        self.write(len(frame).to_bytes(4, "big") + frame if self.is_stream else frame)

    def data(self, source: int, protocol: int, dest: int, conn: int, lo: int, flags: int) -> None:
        """A message of 50,000 bytes."""
        body = pack_body([lo.to_bytes(8, "big") * (PAYLOAD // 8)], xxh3_64_intdigest)
        head = self.codec(source).pack_data(protocol, dest, conn, lo, body, flags, 0, 0, 0)
        self.say(head + body.data)


def windows(order: dict[str, Any]) -> dict[str, Any]:
    """Open a window in each of many names, and fill it with what comes after a gap."""
    mouth = Mouth(order)
    begun = time.monotonic()
    for name in range(order["names"]):
        source = FIRST_NAME + order["first"] + name
        for number in range(order["bytes"] // PAYLOAD):
            flags = FIRST if not number else 0
            lo = 1 if not number else 2 + number
            mouth.data(source, wire.UNICAST3, order["dest"], 1, lo, flags)
            pause(mouth, begun, order["rate"])
    return {"sent": mouth.sent, "seconds": round(time.monotonic() - begun, 2)}


def pause(mouth: Mouth, begun: float, rate: int) -> None:
    ahead = mouth.sent / rate - (time.monotonic() - begun)
    if ahead > 0:
        time.sleep(ahead)


def multicasts(order: dict[str, Any]) -> dict[str, Any]:
    """Push multicasts without order over two connections, as fast as they are taken."""
    mouths = [Mouth(order, number) for number in range(2)]
    begun = time.monotonic()
    number = 0
    while time.monotonic() < begun + order["seconds"]:
        number += 1
        for name, mouth in enumerate(mouths):
            mouth.data(FIRST_NAME + name, wire.NAKACK2, wire.GROUP, 0, 1 + 2 * number, 0)
    return {"sent": sum(mouth.sent for mouth in mouths), "seconds": order["seconds"]}


def unfinished(order: dict[str, Any]) -> dict[str, Any]:
    """Greet on many connections, begin a frame of a MiB on each, and do not end it."""
    begun = time.monotonic()
    mouths = [Mouth(order, number) for number in range(order["count"])]
    waiting = selectors.DefaultSelector()
    for mouth in mouths:
        mouth.socket.setblocking(False)
        rest = bytearray(MIB.to_bytes(4, "big") + bytes(order["bytes"]))
        waiting.register(mouth.socket, selectors.EVENT_WRITE, rest)
    sent = 0
    until = begun + order["seconds"]
    while waiting.get_map() and time.monotonic() < until:
        for key, _events in waiting.select(0.1):
            try:
                took = key.fileobj.send(key.data)  # type: ignore[union-attr]
            except BlockingIOError:
                continue
            except OSError:
                waiting.unregister(key.fileobj)
                continue
            sent += took
            del key.data[:took]
            if not key.data:
                waiting.unregister(key.fileobj)
    time.sleep(max(0.0, until - time.monotonic()))
    return {"sent": sent, "seconds": round(time.monotonic() - begun, 2)}


class Meter(threading.Thread):
    """Counts the bytes of IP packets to two places."""

    def __init__(self, **places: tuple[str, int]) -> None:
        super().__init__(daemon=True)
        self.places = {
            (socket.inet_aton(host), port): name for name, (host, port) in places.items()
        }
        self.bytes = dict.fromkeys(places, 0)
        self.packets = dict.fromkeys(places, 0)
        self.socket = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, socket.htons(ETH_P_ALL))
        self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 64 * MIB)
        self.start()

    def run(self) -> None:
        while True:
            packet = self.socket.recv(65536)
            if packet[12:14] != b"\x08\x00" or packet[23] not in (UDP, TCP):
                continue
            header = (packet[14] & 15) * 4
            total, fragment = struct.unpack_from(">H2xH", packet, 16)
            (port,) = struct.unpack_from(">H", packet, 14 + header + 2)
            name = self.places.get((packet[30:34], port))
            if name is not None and not fragment & 0x1FFF:
                self.bytes[name] += total
                self.packets[name] += 1


def joins(order: dict[str, Any]) -> dict[str, Any]:
    """Ask to join in many names, all of which say that they are where the victim is."""
    mouth = Mouth(order)
    victim = (mouth.host, VICTIMS_PORT)
    kind = socket.SOCK_STREAM if mouth.is_stream else socket.SOCK_DGRAM
    listening = socket.socket(socket.AF_INET, kind)
    listening.bind(victim)
    if mouth.is_stream:
        listening.listen(100)
    meter = Meter(victim=victim, member=mouth.place)
    begun = time.monotonic()
    for number in range(order["count"]):
        me = Address(FIRST_NAME + number, "x", f"{mouth.host}[{VICTIMS_PORT}]")
        body = Writer().address(me).bytes()
        codec = mouth.codec(me.short)
        mouth.say(codec.pack_control(wire.JOIN_REQ, wire.GMS, order["dest"], 0, 1, body=body))
        if number % 20 == 0:
            time.sleep(0.01)
    time.sleep(max(0.0, begun + order["seconds"] - time.monotonic()))
    return {
        "sent": meter.bytes["member"],
        "arrived": meter.bytes["victim"],
        "packets sent": meter.packets["member"],
        "packets arrived": meter.packets["victim"],
        "seconds": round(time.monotonic() - begun, 2),
    }


if __name__ == "__main__":
    verbs = {f.__name__: f for f in (windows, multicasts, unfinished, joins)}
    print(json.dumps(verbs[sys.argv[1]](json.loads(Path(sys.argv[2]).read_text()))))
