"""TCP and TCP_NIO2 on loopback: one connection per pair, whatever happens, and nothing is lost that
need not be."""

from __future__ import annotations

import asyncio
import contextlib
import errno
import socket
import struct
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from itertools import pairwise
from random import Random
from typing import Any, ClassVar

import pytest
from xxhash import xxh3_64_intdigest as hash64

from stormcast.node.core import wire
from stormcast.node.core.codec import Codec, pack_body
from stormcast.node.core.model import Address
from stormcast.node.keys.cluster_keys import ClusterKey
from stormcast.node.protocols.port import EVERYONE
from stormcast.node.settings.transports import Nio2Config, TcpConfig
from stormcast.node.transports import frame_reader
from stormcast.node.transports.binding import BindError
from stormcast.node.transports.frame_reader import CLOSING
from stormcast.node.transports.handshake import LENGTH, Hello, pack_hello
from stormcast.node.transports.strangers import UNFINISHED_BYTES
from stormcast.node.transports.stream_buffers import READ_BYTES, STRANGERS_BYTES
from stormcast.node.transports.tcp import TcpTransport
from tests.helpers.station import CLUSTER, Station, on_a_loop, stations, tcp, until

KINDS = [TcpConfig, Nio2Config]
MIB = 1 << 20
KEY = ClusterKey(bytes(range(32)))
both = pytest.mark.parametrize("kind", KINDS, ids=["tcp", "tcp_nio2"])
with_and_without_key = pytest.mark.parametrize("key", [None, KEY], ids=["clear", "sealed"])


def connections(station: Station[TcpTransport]) -> int:
    return int(station.transport.stats()["connections"])


def meet(*all_of_them: Station[Any]) -> None:
    """A view of all."""
    for one in all_of_them:
        one.view(*(other for other in all_of_them if other is not one))


def nothing_taken(_datagram: memoryview, _now: float) -> int:
    """A member that has ended."""
    return 0


def port_of(station: Station[Any]) -> int:
    port: int = station.transport.port
    return port


NO_PLACES = (
    "",
    "x",
    "\x00[80]",
    "1.2.3.4[²]",
    "1.2.3.4[0]",
    "1.2.3.4[65536]",
    "fe80::1%\x00[80]",
    "::1[80]",
    "name.example[80]",
    "[80]",
)


class Peer:
    """The other end of a connection, written by hand: it says what no honest member would, and
    reads when it is told to."""

    opened: ClassVar[list[socket.socket]] = []

    def __init__(self, identity: int = 7, serial: int = 1, cluster: int = CLUSTER) -> None:
        self.address = Address(identity, "peer", "127.0.0.1[9]")
        self.hello = pack_hello(Hello(cluster, serial, self.address))
        self.sock = socket.socket()
        self.sock.setblocking(False)
        # What it does not read must not all fit its buffer.
        self.sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 16384)
        self.opened.append(self.sock)

    async def dial(self, station: Station[Any], *said: bytes) -> Peer:
        loop = asyncio.get_running_loop()
        await loop.sock_connect(self.sock, ("127.0.0.1", station.transport.port))
        if said:
            await self.say(*said)
        return self

    async def join(self, station: Station[Any]) -> Peer:
        """Dial, say hello, and wait until that was understood."""
        await self.dial(station, self.hello)
        await until(lambda: self.address.short in station.transport._table.open)
        return self

    async def say(self, *parts: bytes) -> None:
        for part in parts:
            await asyncio.get_running_loop().sock_sendall(self.sock, part)

    async def read(self) -> bytes:
        """All until the other end closes."""
        said = b""
        with contextlib.suppress(ConnectionError):
            while more := await asyncio.get_running_loop().sock_recv(self.sock, 65536):
                said += more
        return said

    async def exactly(self, size: int) -> bytes:
        said = b""
        while len(said) < size:
            more = await asyncio.get_running_loop().sock_recv(self.sock, size - len(said))
            assert more, "the connection ended"
            said += more
        return said

    async def frames(self, number: int) -> list[int]:
        """The next frames, by number."""
        numbers: list[int] = []
        while len(numbers) < number:
            (size,) = LENGTH.unpack(await self.exactly(LENGTH.size))
            body = await self.exactly(size)
            if body[0] == wire.MAGIC:
                numbers += struct.unpack_from(">Q", body, wire.OFFSETS["lo"])
        return numbers


@pytest.fixture(autouse=True)
def _peers_are_closed() -> Iterator[None]:
    yield
    while Peer.opened:
        Peer.opened.pop().close()


# -- One connection per pair -----------------------------------------------------------------------


@both
@on_a_loop
async def test_one_connection_serves_both_directions(kind: type[TcpConfig]) -> None:
    async with stations(tcp(kind), "a", "b") as (a, b):
        meet(a, b)
        a.send(b.short, b"1", b"2")
        await until(lambda: len(b.got) == 2)
        b.send(a.short, b"3")
        await until(lambda: len(a.got) == 1)
        assert connections(a) == connections(b) == 1
        assert b.numbers(a) == [1, 2]
        assert a.transport.counters["opened"] == b.transport.counters["opened"] == 1


@with_and_without_key
@pytest.mark.parametrize("seed", range(40))
@on_a_loop
async def test_members_that_dial_each_other_at_once_keep_one_connection_and_lose_nothing(
    seed: int, key: ClusterKey | None
) -> None:
    """Many frames of both before, while and after the two connections cross; who of them is the
    greater, and whose turn comes when, is drawn."""
    dice = Random(seed)
    kind = dice.choice(KINDS)
    config = tcp(kind, send_buffer=dice.choice([0, 4096]))
    identities = {"a": dice.getrandbits(100) + 1, "b": dice.getrandbits(100) + 1}
    async with stations(config, "a", "b", key=key, **identities) as (a, b):
        meet(a, b)
        size = dice.choice([10, 5000])
        for _ in range(60):
            one, other = dice.choice([(a, b), (b, a)])
            one.send(other.short, *[bytes(size)] * dice.randint(1, 5))
            for _ in range(dice.randint(0, 2)):
                await asyncio.sleep(0)
        a.send(b.short, b"last")
        b.send(a.short, b"last")
        sent = [a._number, b._number]
        await until(lambda: [len(b.got), len(a.got)] == sent, f"{sent} frames")
        assert sorted(b.numbers(a)) == list(range(1, sent[0] + 1))
        assert sorted(a.numbers(b)) == list(range(1, sent[1] + 1))
        await until(lambda: connections(a) == connections(b) == 1)
        await until(lambda: not any(one.transport._table.retired.connections for one in (a, b)))
        assert a.lost == b.lost == []
        # It is the same connection at both ends: what either sends now opens no other.
        opened = a.counters["opened"]
        a.send(b.short, b"more")
        b.send(a.short, b"more")
        await until(lambda: [len(b.got), len(a.got)] == [sent[0] + 1, sent[1] + 1])
        assert a.counters["opened"] == opened


@on_a_loop
async def test_connections_do_cross() -> None:
    """What the test above is about happens in it: both dial before either has accepted."""
    async with stations(tcp(), "a", "b") as (a, b):
        meet(a, b)
        a.send(b.short, b"1")
        b.send(a.short, b"2")
        await until(lambda: a.got and b.got)
        await until(lambda: a.counters.get("crossed") and b.counters.get("crossed"))
        assert connections(a) == connections(b) == 1


@on_a_loop
async def test_a_large_backlog_of_the_connection_that_loses_arrives() -> None:
    """The loser of a crossing is retired, not cut: as slowly as its end reads, all of it comes."""
    config = tcp(Nio2Config, send_buffer=4096, receive_buffer=4096)
    async with stations(config, "a", "b", a=1, b=2) as (a, b):
        meet(a, b)
        for _ in range(100):
            a.send(b.short, bytes(40_000))
        b.send(a.short, b"x")
        await until(lambda: len(b.got) == 100 and len(a.got) == 1)
        assert a.counters.get("crossed") == 1
        assert a.lost == b.lost == []


@both
@on_a_loop
async def test_who_lost_its_side_dials_again_and_replaces_the_old_connection(
    kind: type[TcpConfig],
) -> None:
    """The old one looks alive to this end, which hears nothing of its end; a later serial tells.
    What the old one held may be lost, and that is told."""
    async with stations(tcp(kind), "a") as (a,):
        await Peer(serial=1).join(a)
        again = await Peer(serial=2).dial(a)
        await again.say(again.hello)
        await until(lambda: a.counters.get("replaced") == 1)
        assert connections(a) == 1
        assert a.lost == [7]
        # It is the newer one that is used now.
        a.send(7, b"to the newer")
        assert await again.frames(1) == [1]


@on_a_loop
async def test_replacing_a_connection_that_is_broken_leaves_nothing_behind() -> None:
    """The old one ends while it is retired; closing does not wait for it."""
    async with stations(tcp(), "a") as (a,):
        await Peer(serial=1).join(a)
        old = a.transport._table.open[7]
        # Broken, as it is after a reset, but not yet seen to be.
        old._socket.shutdown(socket.SHUT_RDWR)
        a.loop.remove_reader(old._fileno)
        again = await Peer(serial=2).dial(a)
        await again.say(again.hello)
        await until(lambda: a.counters.get("replaced") == 1)
        assert not a.transport._table.retired.connections


@both
@on_a_loop
async def test_a_member_that_restarts_on_its_port_is_another_one(kind: type[TcpConfig]) -> None:
    async with stations(tcp(kind), "a", "b") as (a, b):
        meet(a, b)
        a.send(b.short, b"1")
        await until(lambda: b.got)
        port = port_of(b)
        b.close()
        again = Station[Any]("b", 0xB0B).open(tcp(kind, bind_port=port, port_range=0))
        await until(lambda: connections(a) == 0)
        assert a.lost == [b.short]
        meet(a, again)
        a.send(again.short, b"2")
        await until(lambda: again.got)
        again.send(a.short, b"3")
        await until(lambda: a.got)
        assert connections(a) == connections(again) == 1
        again.close()


@on_a_loop
async def test_a_member_does_not_connect_to_itself() -> None:
    """Also where it is listed by another address than its own."""
    async with stations(tcp(), "a") as (a,):
        a.listed = [("127.0.0.1", port_of(a)), ("127.0.0.2", port_of(a))]
        for _ in range(5):
            a.transport.send([a.control(EVERYONE)])
            await asyncio.sleep(0.02)
        assert connections(a) == 0
        assert a.counters.get("closed_self", 0) == 0


@on_a_loop
async def test_who_says_hello_in_a_members_own_name_blocks_no_address() -> None:
    """Each such connection left an address for ever, to which the member dialled no more."""
    async with stations(tcp(), "a") as (a,):
        own = set(a.transport._table.dialler.own)
        for _ in range(3):
            liar = await Peer().dial(a, pack_hello(Hello(CLUSTER, 1, a.address)))
            await liar.read()
        assert a.counters["closed_self"] == 3
        assert a.transport._table.dialler.own == own


@on_a_loop
async def test_everyone_is_everybody_that_is_listed_or_known_once() -> None:
    async with stations(tcp(), "a", "b", "c") as (a, b, c):
        a.listed = [("127.0.0.1", port_of(b)), ("127.0.0.1", port_of(c))]
        a.transport.send([a.control(EVERYONE)])
        await until(lambda: len(b.got) == len(c.got) == 1)
        a.transport.send([a.control(EVERYONE)])
        await until(lambda: len(b.got) == len(c.got) == 2)
        b.transport.send([b.control(EVERYONE)])
        await until(lambda: len(a.got) == 1)
        assert connections(a) == 2
        assert connections(b) == connections(c) == 1


# -- Who does not answer, or is nobody of ours -----------------------------------------------------


@both
@on_a_loop
async def test_who_says_nothing_is_dropped_after_its_time(kind: type[TcpConfig]) -> None:
    async with stations(tcp(kind, peer_addr_read_timeout=0.1), "a") as (a,):
        peer = await Peer().dial(a)
        await peer.read()
        assert a.closes("hello-timeout") == 1
        assert a.lost == []


@on_a_loop
async def test_a_listener_that_never_answers_costs_one_timeout_and_a_pause() -> None:
    """It accepts, by its backlog, and says nothing. What waited is counted; the next try comes
    after the back-off."""
    mute = socket.create_server(("127.0.0.1", 0))
    config = tcp(sock_conn_timeout=0.15, reconnect_interval=0.3, reconnect_max_interval=0.3)
    async with stations(config, "a") as (a,):
        silent = Address(99, "silent", f"127.0.0.1[{mute.getsockname()[1]}]")
        a.transport.locate(silent)
        a.send(99, b"1", b"2")
        await until(lambda: a.closes("connect-timeout") == 1)
        assert a.transport.queued() == (0, 0)
        a.send(99, b"3")
        assert a.counters["dropped_not_connected"] == 1
        await asyncio.sleep(0.31)
        a.send(99, b"4")
        assert a.transport.stats()["connections_dialled"] == 1
    mute.close()


@both
@on_a_loop
async def test_what_waited_for_a_connection_that_fails_is_counted_and_told(
    kind: type[TcpConfig],
) -> None:
    """And the outbox, which it had closed, is open again."""
    closed = socket.socket()
    closed.bind(("127.0.0.1", 0))
    async with stations(tcp(kind, drop_when_full=False, queue_bytes=1000), "a") as (a,):
        a.transport.locate(Address(99, "gone", f"127.0.0.1[{closed.getsockname()[1]}]"))
        a.send(99, bytes(2000), bytes(2000))
        assert a.transport.room.is_full
        await until(lambda: a.closes("refused") == 1)
        assert not a.transport.room.is_full
        assert a.counters["dropped_unsent"] == 2
        assert a.lost == [99]
    closed.close()


@both
@with_and_without_key
@on_a_loop
async def test_the_outbox_is_open_again_once_what_waited_for_a_connection_has_left(
    kind: type[TcpConfig], key: ClusterKey | None
) -> None:
    """All leaves in the one write that follows the hello: nothing else happens afterwards."""
    config = tcp(kind, drop_when_full=False, queue_frames=4)
    async with stations(config, "a", "b", key=key) as (a, b):
        meet(a, b)
        a.send(b.short, *[b"x"] * 10)
        assert a.transport.room.is_full
        await until(lambda: len(b.got) == 10)
        assert a.transport.queued() == (0, 0)
        assert not a.transport.room.is_full


@on_a_loop
async def test_what_was_thrown_away_without_a_connection_is_told_when_there_is_one() -> None:
    """Not before: only then can the member be told what it missed. And once."""
    async with stations(tcp(), "a") as (a,):
        a.send(7, b"nobody knows where it is", b"still not")
        assert a.counters == {"dropped_not_connected": 2}
        assert a.lost == []
        await Peer().join(a)
        assert a.lost == [7]
        await Peer(serial=2).join(a)
        await until(lambda: a.counters.get("replaced") == 1)
        assert a.lost == [7, 7]


@on_a_loop
async def test_a_refused_connection_is_tried_again_ever_more_rarely() -> None:
    closed = socket.socket()
    closed.bind(("127.0.0.1", 0))
    config = tcp(reconnect_interval=0.04, reconnect_max_interval=0.16)
    async with stations(config, "a") as (a,):
        a.transport.locate(Address(99, "gone", f"127.0.0.1[{closed.getsockname()[1]}]"))
        tries: list[float] = []
        # As it happens: who looks now and then may see one late, and the next one in time.
        a.on_connection_lost = lambda _peer: tries.append(a.now())  # type: ignore[method-assign]
        while len(tries) < 6:
            a.send(99, b"x")
            await asyncio.sleep(0.002)
        gaps = [later - earlier for earlier, later in pairwise(tries)]
        for gap, least in zip(gaps, (0.035, 0.075, 0.155, 0.155, 0.155), strict=True):
            assert gap >= least
    closed.close()


@on_a_loop
async def test_another_cluster_is_told_of_once_in_one_line() -> None:
    """However often it comes, and whoever dials."""
    async with stations(tcp(reconnect_interval=0.01, reconnect_max_interval=0.01), "a") as (a,):
        other = Station[Any]("o", cluster=0xBAD).open(tcp())
        a.listed = [("127.0.0.1", port_of(other))]
        other.listed = [("127.0.0.1", port_of(a))]
        for _ in range(15):
            a.transport.send([a.control(EVERYONE)])
            other.transport.send([other.control(EVERYONE)])
            await asyncio.sleep(0.01)
        await until(lambda: a.counters.get("refused_hello-cluster", 0) > 1)
        (line,) = a.said
        assert "127.0.0.1" in line
        assert "cluster" in line
        assert "\n" not in line
        assert a.got == []
        assert connections(a) == 0
        other.close()


@pytest.mark.parametrize(
    ("bytes_", "reason", "cause"),
    [
        (b"GET / HTTP/1.1\r\n\r\n", "hello-length", "bad-hello"),
        (LENGTH.pack(1025) + bytes(1025), "hello-length", "bad-hello"),
        (LENGTH.pack(40) + b"SCtq" + bytes(36), "hello-cookie", "bad-hello"),
        (LENGTH.pack(0), "hello-short", "bad-hello"),
    ],
)
@on_a_loop
async def test_a_stranger_is_closed_and_the_reason_counted(
    bytes_: bytes, reason: str, cause: str
) -> None:
    async with stations(tcp(), "a") as (a,):
        peer = await Peer().dial(a)
        await peer.say(bytes_)
        await peer.read()
        assert a.counters[f"refused_{reason}"] == 1
        assert a.closes(cause) == 1


@pytest.mark.parametrize(
    ("after", "cause"),
    [
        (LENGTH.pack(63), "bad-length"),
        (LENGTH.pack(MIB + 1), "bad-length"),
        (LENGTH.pack(0), "bad-length"),
        (LENGTH.pack(0xFFFFFFFE), "bad-length"),
        (LENGTH.pack(64) + bytes(64), "bad-frame"),
    ],
)
@both
@on_a_loop
async def test_a_stream_that_no_member_writes_ends_its_connection(
    after: bytes, cause: str, kind: type[TcpConfig]
) -> None:
    async with stations(tcp(kind), "a") as (a,):
        peer = await Peer().dial(a)
        await peer.say(peer.hello, after)
        await peer.read()
        assert a.closes(cause) == 1
        assert a.lost == [7]


@on_a_loop
async def test_a_claimed_length_takes_no_more_memory_than_the_limit() -> None:
    async with stations(tcp(max_length=1 << 16), "a", "b") as (a, b):
        peer = await Peer().dial(a)
        await peer.say(peer.hello, LENGTH.pack(1 << 16))
        await until(lambda: connections(a) == 1)
        await peer.say(bytes(10))
        await asyncio.sleep(0.02)
        assert len(a.transport._table.open[7].reader.buffer.view) <= 256 << 10
        meet(a, b)
        size = (1 << 16) - 64 - 4
        b.send(a.short, bytes(size))
        await until(lambda: a.got)
        b.send(a.short, bytes(size + 1))
        await until(lambda: a.closes("bad-length") == 1)


# -- Strangers -----------------------------------------------------------------------------------


@contextlib.asynccontextmanager
async def narrow(name: str = "a", **shares: int) -> AsyncIterator[Station[Any]]:
    """A station with room for few strangers, which waits long for hellos."""
    station = Station[Any](name)
    station.shares = station.shares._replace(**shares)
    station.open(tcp(peer_addr_read_timeout=20.0))
    try:
        yield station
    finally:
        station.close()
        await asyncio.sleep(0)


async def crowd(station: Station[Any], count: int, addresses: int, *, greets: bool) -> list[Peer]:
    """So many strangers, from so many addresses by turns, that connect and do nothing more."""
    there = []
    for number in range(count):
        peer = Peer(identity=1000 + number)
        peer.sock.bind((f"127.0.0.{10 + number % addresses}", 0))
        if greets:
            await peer.join(station)
        else:
            await peer.dial(station)
            await until(lambda number=number: accepted(station) == number + 1)
        there.append(peer)
    return there


def frame_of(peer: Peer, number: int) -> bytes:
    """A frame of a peer, as it stands in a connection."""
    codec = Codec(CLUSTER, peer.address.short, hash64)
    head = codec.pack_control(wire.ACK, wire.UNICAST3, wire.GROUP, 1, number)
    return LENGTH.pack(len(head)) + head


def accepted(station: Station[Any]) -> int:
    """How many connections have not said who they are, or went before they did."""
    return len(station.transport._table.strangers.unknown) + station.closes("evicted")


@on_a_loop
async def test_of_those_who_do_not_say_who_they_are_the_oldest_go_and_a_joiner_comes_in() -> None:
    async with narrow(unknown=4) as a:
        await crowd(a, 10, addresses=5, greets=False)
        assert a.transport.stats()["connections_unknown"] == 4
        assert a.closes("evicted") == 6
        joiner = await Peer().join(a)
        assert await joiner.exactly(4)
        assert connections(a) == 1


async def stays_while_others_come(a: Station[Any], joiner: Peer) -> None:
    """Have a joiner say something each time before another stranger comes; it keeps its place."""
    for number in range(6):
        await joiner.say(frame_of(joiner, number + 1))
        await until(lambda number=number: len(a.got) == number + 1)
        late = Peer(identity=5000 + number)
        late.sock.bind((f"127.0.0.{30 + number}", 0))
        await late.join(a)
    assert joiner.address.short in a.transport._table.open


@on_a_loop
async def test_of_strangers_who_say_nothing_more_the_oldest_go_and_a_joiner_comes_in() -> None:
    """The joiner has something to say, so it stays when more strangers come."""
    async with narrow(strangers=4) as a:
        await crowd(a, 10, addresses=5, greets=True)
        assert connections(a) == 4
        joiner = await Peer(identity=7).join(a)
        await stays_while_others_come(a, joiner)
        assert connections(a) == 4


@on_a_loop
async def test_one_address_of_strangers_has_half_of_their_places() -> None:
    async with narrow(strangers=8, unknown=8) as a:
        other = Peer(identity=7)
        other.sock.bind(("127.0.0.99", 0))
        await other.join(a)
        await crowd(a, 20, addresses=1, greets=True)
        assert connections(a) == 5
        assert other.address.short in a.transport._table.open
        silent = Peer(identity=8)
        silent.sock.bind(("127.0.0.99", 0))
        await silent.dial(a)
        for _ in range(20):
            await Peer().dial(a)
        await until(lambda: a.closes("evicted") == 16 + 16)
        assert a.transport.stats()["connections_unknown"] == 5
        await silent.say(silent.hello)
        await until(lambda: silent.address.short in a.transport._table.open)


@on_a_loop
async def test_a_member_keeps_its_connection_however_many_strangers_come() -> None:
    async with narrow("a", strangers=3) as a, stations(tcp(), "b") as (b,):
        meet(a, b)
        a.send(b.short, b"x")
        await until(lambda: b.got)
        await crowd(a, 12, addresses=4, greets=True)
        assert connections(a) == 1 + 3
        assert b.short not in a.lost
        a.send(b.short, b"y")
        await until(lambda: len(b.got) == 2)


@on_a_loop
async def test_who_replaces_its_connection_again_and_again_does_not_collect_them() -> None:
    async with narrow(leaving=3) as a:
        for serial in range(1, 21):
            peer = await Peer(identity=7, serial=serial).dial(a)
            await peer.say(peer.hello)
            await until(lambda serial=serial: a.counters.get("opened", 0) == serial)
        assert a.counters["replaced"] == 19
        assert len(a.transport._table.retired.connections) <= 3
        assert connections(a) == 1


@on_a_loop
async def test_no_more_connections_are_in_the_making_than_have_descriptors() -> None:
    """The others listen, and do not say who they are."""
    async with narrow(members=3) as a:
        with contextlib.ExitStack() as stack:
            for number in range(6):
                server = stack.enter_context(socket.create_server(("127.0.0.1", 0)))
                port = server.getsockname()[1]
                a.transport.locate(Address(100 + number, "x", f"127.0.0.1[{port}]"))
                a.send(Address(100 + number, "x").short, b"x")
            assert a.transport.stats()["connections_dialled"] == 3
            assert a.counters["dial_too_many"] == 3


class Exhausted:
    """A listener in front of the real one, while the process has no descriptor left."""

    def __init__(self, real: socket.socket) -> None:
        self._real = real
        self.tries = 0
        self.is_over = False

    def accept(self) -> Any:
        self.tries += 1
        if self.is_over:
            return self._real.accept()
        raise OSError(errno.EMFILE, "Too many open files")

    def __getattr__(self, name: str) -> Any:
        return getattr(self._real, name)


@on_a_loop
async def test_without_a_descriptor_left_accepting_pauses_and_goes_on() -> None:
    """Who waits is still there later; looking again and again would be all that the member does."""
    async with stations(tcp(), "a") as (a,):
        exhausted = Exhausted(a.transport._listener.socket)
        a.transport._listener.socket = exhausted
        peer = await Peer().dial(a, Peer().hello)
        await asyncio.sleep(0.25)
        assert 1 <= exhausted.tries <= 4
        assert a.counters == {"accept_errors": exhausted.tries}
        exhausted.is_over = True
        await until(lambda: connections(a) == 1)
        assert peer.address.short in a.transport._table.open


@on_a_loop
async def test_a_hello_and_frames_in_any_pieces_are_read() -> None:
    dice = Random(5)
    async with stations(tcp(), "a") as (a,):
        writer = Station[Any]("w", 7)
        peer = await Peer().dial(a)
        stream = peer.hello
        for size in [10, 70_000, 0, 300_000, 5]:
            _dest, head, body = (
                writer.frame(a.short, bytes(size)) if size else (writer.control(a.short))
            )
            stream += LENGTH.pack(len(head) + len(body)) + head + body
        at = 0
        while at < len(stream):
            step = dice.choice([1, 3, 700, 50_000])
            await peer.say(stream[at : at + step])
            at += step
            await asyncio.sleep(0)
        await until(lambda: len(a.got) == 5)
        assert a.numbers() == [1, 2, 3, 4, 5]


# -- The end ---------------------------------------------------------------------------------------


@both
@on_a_loop
async def test_closing_lets_what_waits_arrive(kind: type[TcpConfig]) -> None:
    """More than the kernel takes at once waits when the member closes, and the other end goes on
    sending meanwhile: bytes that nobody reads any more must not cut off those that were sent."""
    config = tcp(kind, send_buffer=4096, receive_buffer=4096)
    async with stations(config, "a", "b") as (a, b):
        meet(a, b)
        a.send(b.short, b"hello")
        await until(lambda: b.got)
        for _ in range(60):
            a.send(b.short, bytes(20_000))
        assert a.transport.queued()[0] > 0
        # As a member that has ended: it takes nothing more.
        a.receive = nothing_taken  # type: ignore[method-assign]
        draining = asyncio.ensure_future(a.transport.drain())
        while not draining.done():
            b.send(a.short, bytes(100))
            await asyncio.sleep(0.001)
        await draining
        a.close()
        await until(lambda: len(b.numbers(a)) == 61)
        assert a.closes("finished") == 1
        # Which is no crash.
        assert b.lost == []


@on_a_loop
async def test_a_crash_is_told_and_a_goodbye_is_not() -> None:
    async with stations(tcp(), "a", "b", "c") as (a, b, c):
        meet(a, b, c)
        for one in (b, c):
            one.send(a.short, b"x")
        await until(lambda: connections(a) == 2)
        await b.transport.drain()
        b.close()
        await until(lambda: connections(a) == 1)
        assert a.lost == []
        c.close()
        await until(lambda: connections(a) == 0)
        assert a.lost == [c.short]


@both
@on_a_loop
async def test_frames_wait_until_the_other_end_has_said_who_it_is(kind: type[TcpConfig]) -> None:
    """A stranger may have named any service as a member: it is told who dials, and nothing else."""
    loop = asyncio.get_running_loop()
    with socket.create_server(("127.0.0.1", 0)) as server:
        server.setblocking(False)
        async with stations(tcp(kind), "a") as (a,):
            peer = Peer()
            a.transport.locate(Address(7, "peer", f"127.0.0.1[{server.getsockname()[1]}]"))
            a.send(7, b"the first")
            peer.sock.close()
            peer.sock, _at = await loop.sock_accept(server)
            peer.opened.append(peer.sock)
            a.send(7, b"the second")
            (size,) = LENGTH.unpack(await peer.exactly(LENGTH.size))
            await peer.exactly(size)
            await asyncio.sleep(0.05)
            with pytest.raises(BlockingIOError):
                peer.sock.recv(1)
            await peer.say(peer.hello)
            for payload in (b"the first", b"the second"):
                (size,) = LENGTH.unpack(await peer.exactly(LENGTH.size))
                assert (await peer.exactly(size)).endswith(payload)


@on_a_loop
async def test_closing_waits_for_the_answer_of_a_connection_that_has_just_been_made() -> None:
    """It stands, and the other end has not said yet who it is: it ends like all others, with what
    was to be sent on it read."""
    loop = asyncio.get_running_loop()
    with socket.create_server(("127.0.0.1", 0)) as server:
        server.setblocking(False)
        async with stations(tcp(), "a") as (a,):
            peer = Peer()
            a.transport.locate(Address(7, "peer", f"127.0.0.1[{server.getsockname()[1]}]"))
            a.send(7, b"the only one")
            peer.sock.close()
            peer.sock, _at = await loop.sock_accept(server)
            peer.opened.append(peer.sock)
            (size,) = LENGTH.unpack(await peer.exactly(LENGTH.size))
            await peer.exactly(size)
            draining = asyncio.ensure_future(a.transport.drain())
            await asyncio.sleep(0.01)
            await peer.say(peer.hello)
            said = await peer.read()
            assert b"the only one" in said
            assert said.endswith(LENGTH.pack(CLOSING))
            peer.sock.close()
            await draining
            assert a.closes("finished") == 1


@on_a_loop
async def test_a_view_ends_connections_to_who_is_not_in_it_after_what_waits_for_them() -> None:
    async with stations(tcp(), "a", "b", "c") as (a, b, c):
        meet(a, b, c)
        for other in (b, c):
            a.send(other.short, b"1")
        await until(lambda: b.got and c.got and connections(a) == 2)
        a.send(c.short, *[bytes(50_000)] * 20)
        a.view(b)
        await until(lambda: connections(a) == 1)
        await until(lambda: len(c.got) == 21)
        assert a.lost == c.lost == []
        a.send(c.short, b"gone")
        assert a.asked == [c.short]
        assert a.counters["dropped_not_connected"] == 1


@on_a_loop
async def test_closing_waits_for_nobody_who_does_not_read() -> None:
    async with stations(tcp(Nio2Config, send_buffer=4096), "a") as (a,):
        await Peer().join(a)
        a.send(7, *[bytes(500_000)] * 40)
        begun = a.now()
        await a.transport.drain()
        a.close()
        assert 1.5 < a.now() - begun < 4.0


@on_a_loop
async def test_a_half_closed_stream_without_a_goodbye_is_a_crash() -> None:
    async with stations(tcp(), "a") as (a,):
        peer = await Peer().join(a)
        peer.sock.shutdown(socket.SHUT_WR)
        await until(lambda: a.lost == [7])


@on_a_loop
async def test_a_goodbye_is_answered_with_what_waits_and_a_goodbye() -> None:
    async with stations(tcp(), "a") as (a,):
        peer = await Peer().join(a)
        a.send(7, b"wait for me")
        await peer.say(LENGTH.pack(CLOSING))
        peer.sock.shutdown(socket.SHUT_WR)
        said = await peer.read()
        assert b"wait for me" in said
        assert said.endswith(LENGTH.pack(CLOSING))
        await until(lambda: a.closes("finished") == 1)
        assert a.lost == []


@both
@on_a_loop
async def test_a_connection_in_which_frames_wait_is_not_idle(kind: type[TcpConfig]) -> None:
    """Its other end is busy for longer than a connection may be idle."""
    config = tcp(kind, conn_expire_time=0.4, send_buffer=8192, receive_buffer=8192)
    async with stations(config, "a", "b") as (a, b):
        meet(a, b)
        a.send(b.short, b"x")
        await until(lambda: b.got)
        (busy,) = b.transport._table.open.values()
        loop = asyncio.get_running_loop()
        loop.remove_reader(busy._fileno)
        b.transport._table._reaper.cancel()
        for _ in range(40):
            a.send(b.short, bytes(50_000))
        await asyncio.sleep(1.5)
        assert "expired" not in a.counters
        loop.add_reader(busy._fileno, busy.reader.on_readable, busy)
        await until(lambda: len(b.got) == 41)
        assert not a.lost


@asynccontextmanager
async def restarted(
    kind: type[TcpConfig], identity: int, key: ClusterKey | None
) -> AsyncIterator[tuple[Station[TcpTransport], Address, Station[TcpTransport]]]:
    """A member, the address of another one that it was connected with and that has ended, and the
    one that runs on the port of that now."""
    async with stations(tcp(kind), "a", "b", key=key) as (a, b):
        meet(a, b)
        a.send(b.short, b"x")
        await until(lambda: b.got)
        dead, port = b.address, port_of(b)
        b.close()
        await until(lambda: not connections(a))
        again = Station("b", identity, key=key).open(tcp(kind, bind_port=port, port_range=0))
        try:
            yield a, dead, again
        finally:
            again.close()


async def multicast_to_both(
    a: Station[TcpTransport], dead: Address, again: Station[TcpTransport]
) -> None:
    """Send fifty multicasts in a view that has the dead member and its successor."""
    a.members = (dead.short, again.short)
    a.transport.on_view([a.address, dead, again.address])
    for _ in range(50):
        a.transport.send([a.frame(wire.GROUP)])
        await asyncio.sleep(0.002)
    await until(lambda: len(again.got) >= 50)


@both
@with_and_without_key
@pytest.mark.parametrize("identity", [1, 1 << 60], ids=["lesser", "greater"])
@on_a_loop
async def test_the_place_of_a_dead_member_is_not_dialled_while_its_successor_is_there(
    kind: type[TcpConfig], identity: int, key: ClusterKey | None
) -> None:
    """A member restarts at once on its port, and the view still has its dead incarnation."""
    async with restarted(kind, identity, key) as (a, dead, again):
        await multicast_to_both(a, dead, again)
        assert again.counters["opened"] <= 2
        assert not again.lost


@both
@with_and_without_key
@pytest.mark.parametrize("identity", [1, 1 << 60], ids=["lesser", "greater"])
@on_a_loop
async def test_a_successor_that_dialled_first_is_not_dialled_for_its_dead_predecessor(
    kind: type[TcpConfig], identity: int, key: ClusterKey | None
) -> None:
    """It joins by its own connection, which nothing replaces, so nothing counts as lost."""
    async with restarted(kind, identity, key) as (a, dead, again):
        again.transport.locate(a.address)
        again.send(a.short, b"join")
        await until(lambda: a.got)
        await multicast_to_both(a, dead, again)
        assert again.numbers() == sorted(set(again.numbers()))
        assert a.counters["dropped_not_connected"] == 50
        assert again.counters["opened"] == 1
        assert not again.lost


@on_a_loop
async def test_a_successor_is_dialled_although_the_connection_of_its_predecessor_stands() -> None:
    """The host restarted, and its end was not noticed yet."""
    async with stations(tcp(), "a", "b") as (a, b):
        peer = Peer()
        old = Address(peer.address.identity, "peer", b.address.where)
        peer.hello = pack_hello(Hello(CLUSTER, 1, old))
        peer.address = old
        await peer.join(a)
        a.members = (old.short, b.short)
        a.transport.on_view([a.address, old])
        a.transport.on_view([a.address, old, b.address])
        a.send(b.short, b"x")
        await until(lambda: b.got)
        assert connections(a) == 2


@on_a_loop
async def test_an_idle_connection_expires_and_one_in_use_does_not() -> None:
    async with stations(tcp(conn_expire_time=0.2), "a", "b", "c") as (a, b, c):
        meet(a, b, c)
        a.send(b.short, b"1")
        a.send(c.short, b"1")
        await until(lambda: connections(a) == 2)
        # Either end may notice first.
        while connections(a) == 2:
            a.send(b.short, b"again")
            await asyncio.sleep(0.02)
        assert set(a.transport._table.open) == {b.short}
        assert a.counters.get("expired", 0) + c.counters.get("expired", 0) >= 1
        assert "expired" not in b.counters
        assert a.lost == c.lost == []
        a.send(c.short, b"2")
        await until(lambda: c.numbers(a)[-1] == a._number)


@on_a_loop
async def test_a_peer_that_takes_nothing_is_given_up_after_the_user_timeout() -> None:
    """Its kernel answers, and it never reads: the connection counts as dead in the end."""
    config = tcp(Nio2Config, send_buffer=4096, user_timeout=1.0)
    async with stations(config, "a") as (a,):
        await Peer().join(a)
        a.send(7, *[bytes(500_000)] * 40)
        begun = a.now()
        await until(lambda: a.lost == [7], seconds=15)
        assert a.now() - begun > 0.9
        assert a.counters["dropped_unsent"] > 0


# -- Slow readers ----------------------------------------------------------------------------------


@on_a_loop
async def test_what_a_bounded_connection_does_not_take_is_dropped_whole_and_counted() -> None:
    config = tcp(Nio2Config, send_buffer=4096, max_send_buffers=10)
    async with stations(config, "a") as (a,):
        slow = await Peer().join(a)
        for _ in range(100):
            a.send(7, bytes(200_000))
        dropped = a.counters["dropped_send_buffers_full"]
        assert dropped > 0
        assert a.transport.queued()[0] == 10
        numbers = await slow.frames(100 - dropped)
        # Those that came are whole, in order, and the first of all.
        assert numbers == list(range(1, 100 - dropped + 1))
        await until(lambda: a.transport.queued() == (0, 0))
        a.send(7, b"there is room again")
        assert await slow.frames(1) == [101]


@both
@on_a_loop
async def test_a_full_queue_drops_where_it_may(kind: type[TcpConfig]) -> None:
    config = tcp(kind, send_buffer=4096, queue_bytes=2 * MIB)
    async with stations(config, "a") as (a,):
        slow = await Peer().join(a)
        for _ in range(100):
            a.send(7, bytes(200_000))
        dropped = a.counters["dropped_queue_full"]
        assert dropped > 0
        assert not a.transport.room.is_full
        assert a.transport.queued()[1] <= 2 * MIB + 200_100
        assert len(await slow.frames(100 - dropped)) == 100 - dropped


@both
@on_a_loop
async def test_where_nothing_may_be_dropped_the_outbox_is_closed_until_half_has_left(
    kind: type[TcpConfig],
) -> None:
    config = tcp(kind, send_buffer=4096, queue_bytes=2 * MIB, drop_when_full=False)
    async with stations(config, "a") as (a,):
        slow = await Peer().join(a)
        for _ in range(100):
            a.send(7, bytes(200_000))
        assert a.transport.room.is_full
        turns = a.turns
        seen: list[int] = []
        a.turn = lambda **_more: seen.append(a.transport.queued()[1])  # type: ignore[method-assign]
        assert await slow.frames(100) == list(range(1, 101))
        await until(lambda: not a.transport.room.is_full)
        assert turns == a.turns
        assert seen
        assert MIB // 4 < seen[0] <= MIB
        assert not any("dropped" in what for what in a.counters)


@on_a_loop
async def test_a_slow_member_does_not_delay_the_others() -> None:
    async with stations(tcp(Nio2Config, send_buffer=65_536), "a", "b") as (a, b):
        await Peer().join(a)
        a.members = (7, b.short)
        a.transport.locate(b.address)
        for _ in range(200):
            a.send(0, bytes(50_000))
        await until(lambda: len(b.got) == 200)
        assert a.transport.queued()[0] > 100


@both
@on_a_loop
async def test_frames_of_all_sizes_arrive_whole(kind: type[TcpConfig]) -> None:
    """Smaller and larger than what is read at once, so that writes and reads end anywhere."""
    dice = Random(3)
    sizes = [
        0,
        1,
        65_535,
        65_536,
        262_144,
        262_080,
        MIB - 68,
        *(dice.randrange(3000) for _ in range(2000)),
    ]
    dice.shuffle(sizes)
    async with stations(tcp(kind, send_buffer=4096, receive_buffer=8192), "a", "b") as (a, b):
        meet(a, b)
        payloads = [dice.randbytes(size) for size in sizes]
        for start in range(0, len(payloads), 300):
            a.send(b.short, *payloads[start : start + 300])
            await asyncio.sleep(0)
        await until(lambda: len(b.got) == len(payloads), f"{len(payloads)} frames")
        assert [one.body[4:] for one in b.got] == payloads
        assert b.refused == []


# -- Binding ---------------------------------------------------------------------------------------


@on_a_loop
async def test_a_taken_port_is_passed_over_within_the_range_and_refused_beyond() -> None:
    async with stations(tcp(), "a") as (a,):
        port = port_of(a)
        with pytest.raises(BindError, match=rf"TCP port 127.0.0.1\[{port}\]: in use; choose"):
            Station[Any]("b").open(tcp(bind_port=port, port_range=0))
        b = Station[Any]("b").open(tcp(bind_port=port, port_range=5))
        assert port < port_of(b) <= port + 5
        assert b.transport.where == f"127.0.0.1[{port_of(b)}]"
        b.close()


@on_a_loop
async def test_of_two_that_bind_one_port_at_once_the_second_takes_the_next() -> None:
    """Both may bind it; who listens first has it. So it is when members start together."""
    with socket.socket() as first:
        first.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        first.bind(("127.0.0.1", 0))
        port = first.getsockname()[1]
        bind = socket.socket.bind

        class Rival(socket.socket):
            def bind(self, address: Any, /) -> None:
                bind(self, address)
                if address[1] == port:
                    first.listen()

        a = Station[Any]("a")
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr("stormcast.node.transports.stream_sockets.socket.socket", Rival)
            a.open(tcp(bind_port=port))
        assert port < port_of(a) <= port + 10
        a.close()


@on_a_loop
async def test_ipv6() -> None:
    async with stations(tcp(bind_addr="::1"), "a", "b") as (a, b):
        meet(a, b)
        a.send(b.short, b"1")
        await until(lambda: b.got)
        assert a.transport.where.startswith("::1[")


@on_a_loop
async def test_what_is_told_to_others_may_differ_from_what_is_bound() -> None:
    async with stations(tcp(external_addr="203.0.113.7", external_port=99), "a") as (a,):
        assert a.transport.where == "203.0.113.7[99]"
        line = a.transport.describe()[0]
        assert line == (
            f"tcp 127.0.0.1[{port_of(a)}] on lo (rule 127.0.0.1), told to others as 203.0.113.7[99]"
        )


@on_a_loop
async def test_a_stranger_s_place_is_taken_for_nothing() -> None:
    """Text of the network that is no place, or one of the other family, breaks nothing."""
    async with stations(tcp(), "a") as (a,):
        for where in NO_PLACES:
            a.transport.locate(Address(99, "x", where))
        a.send(99, b"1")
        assert a.asked == [99]
        assert a.counters == {"dropped_not_connected": 1}


# -- Frames that are begun and not ended ----------------------------------------------------------


def begun(size: int = MIB) -> bytes:
    """The length of a frame, and a part of it."""
    return LENGTH.pack(size) + bytes(size // 2)


def large_frame_of(peer: Peer, size: int) -> bytes:
    """A frame of a peer with so many bytes of payload, as it stands in a connection."""
    body = pack_body([bytes(size)], hash64)
    codec = Codec(CLUSTER, peer.address.short, hash64)
    head = codec.pack_data(wire.NONE, wire.GROUP, 0, 1, body, 0, 0, 0, 0)
    return LENGTH.pack(len(head) + len(body.data)) + head + body.data


def buffered(station: Station[Any]) -> int:
    """Bytes of all buffers for what comes."""
    return sum(one.reader.buffer.size for one in station.transport._table.open.values())


@both
@on_a_loop
async def test_frames_that_strangers_do_not_end_have_one_budget(kind: type[TcpConfig]) -> None:
    """Each took a MiB, for as long as its connection stood."""
    async with stations(tcp(kind), "a", "b") as (a, b):
        meet(a, b)
        b.send(a.short, b"x")
        await until(lambda: a.got)
        of_member = buffered(a)
        crowd_of = await crowd(a, 40, addresses=40, greets=True)
        for peer in crowd_of:
            with contextlib.suppress(ConnectionError):
                await peer.say(begun())
        await until(lambda: a.closes("evicted") >= 38)
        assert buffered(a) - of_member <= UNFINISHED_BYTES + 40 * STRANGERS_BYTES
        b.send(a.short, b"y" * 900_000)
        await until(lambda: len(a.got) == 2)
        assert a.got[-1].body[-1:] == b"y"


@on_a_loop
async def test_a_stranger_has_a_limited_time_for_a_frame_and_gives_its_buffer_back(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(frame_reader, "UNFINISHED_SECONDS", 1.5)
    async with stations(tcp(), "a") as (a,):
        slow, quick = await crowd(a, 2, addresses=2, greets=True)
        whole = large_frame_of(quick, 300_000)
        await slow.say(begun())
        for number in range(6):
            await quick.say(whole[: len(whole) // 2])
            await asyncio.sleep(0.3)
            await quick.say(whole[len(whole) // 2 :])
            await until(lambda number=number: len(a.got) == number + 1)
        await until(lambda: a.closes("unfinished") == 1)
        assert quick.address.short in a.transport._table.open
        assert buffered(a) == STRANGERS_BYTES


@on_a_loop
async def test_a_frame_that_began_before_its_sender_was_a_member_may_take_its_time(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(frame_reader, "UNFINISHED_SECONDS", 0.2)
    async with stations(tcp(), "a") as (a,):
        (peer,) = await crowd(a, 1, addresses=1, greets=True)
        whole = large_frame_of(peer, 300_000)
        await peer.say(whole[:1000])
        a.members = (peer.address.short,)
        a.transport.on_view([a.address, peer.address])
        await asyncio.sleep(0.4)
        await peer.say(whole[1000:])
        await until(lambda: a.got)
        assert buffered(a) >= READ_BYTES
