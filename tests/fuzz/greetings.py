"""Connections of many strangers: those that greet and leave, and those that ask and never read."""

from __future__ import annotations

import socket
import struct
from typing import Final

from xxhash import xxh3_64_intdigest as hash64
from xxhash import xxh3_128_intdigest

from stormcast.node.core import wire
from stormcast.node.core.codec import Codec
from stormcast.node.core.model import Address
from stormcast.node.core.packing import Writer
from stormcast.node.transports.handshake import Hello, pack_hello
from tests.fuzz.datagrams import place
from tests.fuzz.frames import FrameMaker
from tests.fuzz.streams import PATIENCE
from tests.fuzz.tallies import Tally

_LENGTH: Final = struct.Struct(">I")
QUESTIONS: Final = 30_000
"""That are asked on a connection on which nothing is read."""
QUESTIONS_AT_ONCE: Final = 100
QUESTION_BYTES: Final = 288


class GreetingAttack:
    """Connects as members that nobody knows, each said to be somewhere else, and leaves."""

    def __init__(self, maker: FrameMaker) -> None:
        self._maker = maker

    def send(self, first: int, count_: int, _rate: float) -> Tally:
        """Greet the first member once for each number of a range."""
        tally = Tally()
        facts = self._maker.facts
        at = place(facts.members[0].where)
        for number in range(first, first + count_):
            host, port = divmod(number, 250)
            identity = xxh3_128_intdigest(b"%d" % number) | 1
            me = Address(identity, "stranger", f"198.19.{host}.{port + 1}[7800]")
            with socket.create_connection(at, PATIENCE) as connection:
                connection.sendall(pack_hello(Hello(facts.cluster, 1, me)))
                connection.shutdown(socket.SHUT_WR)
                while connection.recv(65536):
                    pass
            tally.sent["connections"] += 1
        return tally


class DeafAttack:
    """Connects as strangers, each of which asks who is there, again and again, and reads nothing
    of the answers. Its connections stand until the attacker ends."""

    def __init__(self, maker: FrameMaker) -> None:
        self._maker = maker
        self._connections: list[socket.socket] = []

    def send(self, first: int, count_: int, _rate: float) -> Tally:
        """Ask the first member on one connection for each number of a range."""
        tally = Tally()
        member = self._maker.facts.members[0]
        for number in range(first, first + count_):
            stranger = self._maker.others[number % len(self._maker.others)]
            connection = socket.socket()
            self._connections.append(connection)
            # Little waits in this end's kernel: what is not read waits at the member.
            connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 1)
            connection.settimeout(PATIENCE)
            connection.connect(place(member.where))
            tally.sent["connections"] += 1
            asked = 0
            try:
                connection.sendall(pack_hello(Hello(self._maker.facts.cluster, 1, stranger)))
                for at in range(0, QUESTIONS, QUESTIONS_AT_ONCE):
                    several = range(at + 1, at + 1 + QUESTIONS_AT_ONCE)
                    connection.sendall(
                        b"".join(_question(self._maker, stranger, member, lo) for lo in several)
                    )
                    asked += QUESTIONS_AT_ONCE
            except OSError:
                # The member has ended it, or reads no more of it: both bound what it keeps.
                tally.sent["cut off"] += 1
            tally.sent["frames"] += asked
        return tally


def _question(maker: FrameMaker, stranger: Address, member: Address, number: int) -> bytes:
    """Return a GET_MBRS_REQ behind its length: the longest question of which each is answered."""
    body = Writer().address(stranger).u8(0).bytes()
    body += bytes(max(0, QUESTION_BYTES - len(body)))
    codec = Codec(maker.facts.cluster, stranger.short, hash64)
    frame = codec.pack_control(
        wire.GET_MBRS_REQ, wire.DISCOVERY, member.short, 0, number, body=body
    )
    return _LENGTH.pack(len(frame)) + frame
