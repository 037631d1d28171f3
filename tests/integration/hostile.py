"""A stranger on the members' network: listens to what they say, and says what nobody should.

Usage: hostile.py listen|datagrams|streams|greetings ORDER.json
The order says how; the answer is one JSON object on stdout.
"""

from __future__ import annotations

import json
import random
import socket
import struct
import sys
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from xxhash import xxh3_64_intdigest

from stormcast.node.core import wire
from stormcast.node.core.codec import Codec, pack_body
from stormcast.node.core.model import Address
from stormcast.node.transports.handshake import Hello, pack_hello

UDP, TCP = 17, 6
ETH_P_ALL = 3
RESETS = 0.2
"""Share of streams that end without an end."""
RESET = struct.pack("ii", 1, 0)
BURST = 50
"""Datagrams between two looks at the clock."""


# -- Listening -----------------------------------------------------------------------------------


def listen(order: dict[str, Any]) -> dict[str, int]:
    """Write the payloads that pass on the bridge to a file, in hexadecimal digits, a line each."""
    sniffer = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, socket.htons(ETH_P_ALL))
    sniffer.settimeout(0.1)
    deadline = time.monotonic() + order["seconds"]
    seen: dict[bytes, int] = {}
    while time.monotonic() < deadline and len(seen) < order["most"]:
        try:
            packet = sniffer.recv(65536)
        except TimeoutError:
            continue
        payload, protocol = payload_of(packet)
        if payload:
            seen[payload] = protocol
    lines = [f"{protocol} {payload.hex()}\n" for payload, protocol in seen.items()]
    Path(order["corpus"]).write_text("".join(lines))
    return dict(Counter(f"protocol {protocol}" for protocol in seen.values()))


def payload_of(packet: bytes) -> tuple[bytes, int]:
    """What an Ethernet frame carries for a program, and by which protocol; whole packets only."""
    if packet[12:14] != b"\x08\x00":
        return b"", 0
    header = (packet[14] & 15) * 4
    total, fragment, protocol = (
        *struct.unpack_from(">H2xH", packet, 16),
        packet[23],
    )
    inner = packet[14 + header : 14 + total]
    if fragment & 0x3FFF:
        return b"", 0
    if protocol == UDP:
        return inner[8:], UDP
    if protocol == TCP:
        return inner[(inner[12] >> 4) * 4 :], TCP
    return b"", 0


def corpus_of(order: dict[str, Any]) -> list[bytes]:
    """What was heard before."""
    lines = Path(order["corpus"]).read_text().splitlines()
    return [bytes.fromhex(line.split()[1]) for line in lines]


# -- Saying --------------------------------------------------------------------------------------


class Forgery:
    """Makes bytes that nobody should send, from a seed."""

    def __init__(self, seed: int, corpus: list[bytes], cluster: str, dest: int) -> None:
        self.dice = random.Random(seed)
        self.corpus = corpus
        self.dest = dest
        self.cluster = xxh3_64_intdigest(cluster.encode()) & 0xFFFFFFFF

    def garbage(self) -> bytes:
        """Noise; at times under our magic number."""
        dice = self.dice
        size = dice.choice((1, 3, 31, 63, 64, 65, 200, 1400, dice.randrange(1, 9000)))
        noise = dice.randbytes(size)
        return bytes((wire.MAGIC, wire.VERSION)) + noise if dice.random() < 0.5 else noise

    def mutated(self) -> bytes:
        """A datagram of a member, harmed: never what it was."""
        dice = self.dice
        whole = dice.choice(self.corpus)
        while True:
            made = self._harm(bytearray(whole))
            if made != whole:
                return made

    def _harm(self, data: bytearray) -> bytes:
        dice = self.dice
        # In the first frame, so that nothing of the datagram is good.
        head = min(len(data), wire.HEAD_SIZE)
        how = dice.randrange(5)
        if how == 0:
            for _flip in range(dice.randrange(1, 9)):
                data[dice.randrange(head)] ^= 1 << dice.randrange(8)
        elif how == 1:
            at = dice.randrange(head)
            data[at : at + 4] = dice.choice((b"\xff\xff\xff\xff", b"\0\0\0\0", dice.randbytes(4)))
        elif how == 2:
            del data[dice.randrange(1, head) :]
        elif how == 3:
            at = dice.randrange(head)
            data[at:at] = dice.randbytes(dice.randrange(1, 9))
        else:
            other = dice.choice(self.corpus)
            at = dice.randrange(1, head)
            data[at:] = other[at + 1 :]
        return bytes(data)

    def forged(self) -> bytes:
        """A frame whose sums are right, from somebody whom nobody knows.

        Any kind of any protocol but a message: whoever is let in to the network may send those,
        and they would be delivered.
        """
        dice = self.dice
        source = dice.randrange(1, 1 << 32)
        codec = Codec(self.cluster, source, xxh3_64_intdigest)
        dest = dice.choice((self.dest, self.dest, 0))
        number = dice.choice((0, 1, 2, 1000, 1 << 32, wire.MAX_SEQNO, dice.getrandbits(64)))
        kind, protocol = dice.choice(list(wire.KINDS)), dice.choice(list(wire.PROTOCOLS))
        if kind == wire.DATA:
            # A message that lies about the lengths in it.
            body = pack_body(
                [dice.randbytes(dice.randrange(1, 99))] * dice.randrange(1, 9), xxh3_64_intdigest
            )
            body = body._replace(
                count=body.count + dice.randrange(1, 1000), width=dice.choice((0, 2, 4, 7))
            )
            head = codec.pack_data(
                protocol,
                dest,
                dice.getrandbits(32),
                number,
                body,
                dice.getrandbits(8),
                0,
                dice.getrandbits(64),
                0,
            )
            return head + body.data
        body_bytes = self._body()
        if dice.random() < 0.2:
            lo = dice.randrange(1, 1 << 40)
            ranges = [(lo, lo + dice.randrange(1 << 20))]
            return codec.pack_control(
                kind,
                protocol,
                dest,
                dice.getrandbits(32),
                number,
                ranges=ranges,
                stamp=dice.getrandbits(32),
            )
        return codec.pack_control(
            kind,
            protocol,
            dest,
            dice.getrandbits(32),
            number,
            dice.getrandbits(8),
            dice.getrandbits(64),
            dice.getrandbits(32),
            flags=dice.getrandbits(8),
            body=body_bytes,
        )

    def _body(self) -> bytes:
        """Nothing, noise, or what some member said, harmed or not."""
        dice = self.dice
        how = dice.randrange(4)
        if how == 0:
            return b""
        if how == 1:
            return dice.randbytes(dice.randrange(1, 200))
        body = bytearray(dice.choice(self.corpus)[wire.HEAD_SIZE :][:2000])
        if how == 2 and body:
            body[dice.randrange(len(body))] ^= 1 << dice.randrange(8)
        return bytes(body)

    def replayed(self) -> bytes:
        """What a member said, once more."""
        return self.dice.choice(self.corpus)

    def several(self, kinds: list[str], count: int) -> Iterator[tuple[str, bytes]]:
        """So many, of these kinds."""
        makers = {kind: getattr(self, kind) for kind in kinds}
        for _number in range(count):
            kind = self.dice.choice(kinds)
            yield kind, makers[kind]()


def datagrams(order: dict[str, Any]) -> dict[str, Any]:
    """Send datagrams to members, at a rate that leaves none in the kernel."""
    forgery = Forgery(order["seed"], corpus_of(order), order["cluster"], order["dest"])
    sender = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    places = [tuple(place) for place in order["places"]]
    sent: Counter[str] = Counter()
    begun = time.monotonic()
    for number, (kind, data) in enumerate(forgery.several(order["kinds"], order["count"])):
        if number % BURST == 0:
            ahead = number / order["rate"] - (time.monotonic() - begun)
            if ahead > 0:
                time.sleep(ahead)
        try:
            sender.sendto(data[:65507], places[number % len(places)])
        except OSError as error:
            sent[str(error)] += 1
        else:
            sent[kind] += 1
    return {"sent": dict(sent), "seconds": round(time.monotonic() - begun, 3)}


def streams(order: dict[str, Any]) -> dict[str, Any]:
    """Connect again and again, and write what no member would. Some stay silent, or stop midway."""
    forgery = Forgery(order["seed"], corpus_of(order), order["cluster"], order["dest"])
    dice = forgery.dice
    result: Counter[str] = Counter()
    begun = time.monotonic()
    idle: list[socket.socket] = []
    for _number in range(order["count"]):
        connection = socket.socket()
        connection.settimeout(2.0)
        try:
            connection.connect(tuple(order["place"]))
            connection.sendall(_stream(forgery))
            result["streams"] += 1
            if dice.random() < 0.02 and len(idle) < 50:
                # Open, with whatever was said: half a frame, or half a greeting.
                idle.append(connection)
                continue
            if dice.random() < RESETS:
                result["reset"] += 1
                connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, RESET)
            else:
                connection.shutdown(socket.SHUT_WR)
                while connection.recv(65536):
                    pass
                result["closed by the member"] += 1
        except OSError as error:
            result[type(error).__name__] += 1
        connection.close()
    return {
        "streams": dict(result),
        "idle": len(idle),
        "seconds": round(time.monotonic() - begun, 3),
    }


def greetings(order: dict[str, Any]) -> dict[str, int]:
    """Connect as many members that nobody knows, each of which says that it is somewhere else."""
    dice = random.Random(order["seed"])
    cluster = xxh3_64_intdigest(order["cluster"].encode()) & 0xFFFFFFFF
    for number in range(order["count"]):
        host, port = divmod(number, 250)
        me = Address(dice.getrandbits(128) | 1, "stranger", f"198.19.{host}.{port + 1}[7800]")
        with socket.create_connection(tuple(order["place"]), 2.0) as connection:
            connection.sendall(pack_hello(Hello(cluster, 1, me)))
            connection.shutdown(socket.SHUT_WR)
            while connection.recv(65536):
                pass
    return {"greetings": order["count"]}


def _stream(forgery: Forgery) -> bytes:
    """The beginning of a connection as a member may have made it, and then something else."""
    dice = forgery.dice
    parts = []
    how = dice.random()
    if how < 0.25:
        parts.append(dice.choice(forgery.corpus))
    elif how < 0.75:
        # A perfect greeting, of somebody whom nobody knows.
        me = Address(dice.getrandbits(128) | 1, "stranger", "198.18.0.99[7800]")
        parts.append(pack_hello(Hello(forgery.cluster, dice.randrange(1, 99), me)))
    for _part in range(dice.randrange(4)):
        made = dice.choice((forgery.garbage, forgery.mutated, forgery.forged, forgery.replayed))()
        length = len(made).to_bytes(4, "big")
        prefix = dice.choice((length, length, length, b"", dice.randbytes(4), b"\xff" * 4))
        parts.append(prefix + made)
    whole = b"".join(parts)
    return whole[: dice.randrange(len(whole) + 1)] if dice.random() < 0.3 else whole


if __name__ == "__main__":
    verbs = {f.__name__: f for f in (listen, datagrams, streams, greetings)}
    print(json.dumps(verbs[sys.argv[1]](json.loads(Path(sys.argv[2]).read_text()))))
