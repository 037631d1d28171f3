"""Groups with a key on TCP: a stranger without the key hands on what members say to it, and takes
no connection over."""

from __future__ import annotations

import asyncio
import contextlib
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from stormcast.node.channel import Channel
from stormcast.node.core.model import Address
from stormcast.node.keys.cli import key
from stormcast.node.keys.cluster_keys import ClusterKey
from stormcast.node.keys.seals import Seals
from stormcast.node.protocols.port import EVERYONE
from stormcast.node.transports.exchange import SEALED, Exchange
from stormcast.node.transports.handshake import (
    ACCEPT,
    LENGTH,
    PROVE,
    WATCH,
    WATCHED,
    Hello,
    pack_hello,
    pack_notice,
    unpack_hello_untrusted,
)
from tests.helpers.station import CLUSTER, Station, on_a_loop, stations, tcp, until
from tests.integration.test_channel import KINDS, gather, group

both = pytest.mark.parametrize("kind", ["tcp", "tcp-nio2"])
KEY = ClusterKey(bytes(range(32)))
PATIENCE = 3.0
"""How long what a member says is waited for; a member closes long before."""


@pytest.fixture(name="key_file")
def _key_file(tmp_path: Path) -> str:
    path = str(tmp_path / "key")
    key(["new", path])
    return path


def table_of(channel: Channel) -> Any:
    return channel.runtime.transport._table  # type: ignore[attr-defined]


async def said_to_a_stranger(port: int, words: bytes) -> bytes:
    """All that a member says on a connection to whoever says this first."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.write(words)
    said = b""
    with contextlib.suppress(TimeoutError, ConnectionError):
        async with asyncio.timeout(PATIENCE):
            while more := await reader.read(65536):
                said += more
    writer.close()
    return said


@asynccontextmanager
async def connected(kind: str, key_file: str) -> AsyncIterator[list[Channel]]:
    """Two members that have a connection with each other."""
    async with group(KINDS[kind](), "a", "b", key_file=key_file) as (a, b):
        await until(lambda: b.address.short in table_of(a).open, "a connection")
        await until(lambda: a.address.short in table_of(b).open, "at both ends")
        yield [a, b]


async def hand_on(words: bytes, to: Channel, named: Channel) -> None:
    """Say what another member said, and see that its connection stays."""
    before = table_of(to).open[named.address.short]
    opened = table_of(to).counters["opened"]
    reader, writer = await asyncio.open_connection("127.0.0.1", to.runtime.transport.port)
    writer.write(words)
    # It is closed at once if this is refused, and else after a second.
    with contextlib.suppress(TimeoutError, ConnectionError):
        async with asyncio.timeout(0.3):
            while await reader.read(65536):
                pass
    assert table_of(to).open[named.address.short] is before
    assert table_of(to).counters["opened"] == opened
    writer.close()


async def goes_on(a: Channel, b: Channel) -> None:
    """Messages of both arrive at the other one."""
    got = [gather(a), gather(b)]
    await a.send(None, b"of a")
    await b.send(None, b"of b")
    await until(lambda: all(("a", b"of a") in one and ("b", b"of b") in one for one in got))


@both
@on_a_loop
async def test_what_a_member_says_to_an_unsealed_hello_replaces_no_connection(
    kind: str, key_file: str
) -> None:
    async with connected(kind, key_file) as (a, b):
        for one, other in ((a, b), (b, a)):
            cluster = table_of(one).hellos._cluster
            asked = pack_hello(Hello(cluster, 1, Address(7, "x", "127.0.0.1[9]")))
            said = await said_to_a_stranger(one.runtime.transport.port, asked)
            assert said, "it says that it has a key"
            assert one.address.where.encode() not in said, "and not who it is"
            await hand_on(said, other, one)
        await goes_on(a, b)


@both
@on_a_loop
async def test_what_a_watched_member_says_replaces_no_connection(kind: str, key_file: str) -> None:
    """Neither what it says by itself, nor to what another one says."""
    async with connected(kind, key_file) as (a, b):
        for one, other in ((a, b), (b, a)):
            port = one.runtime._monitors.port
            for words in (b"", pack_hello(Hello(table_of(one).hellos._cluster, 0, other.address))):
                said = await said_to_a_stranger(port, words)
                await hand_on(said, other, one)
                assert said == b""
        await goes_on(a, b)


# -- Hellos by hand --------------------------------------------------------------------------------


class Peer:
    """The end of a connection with a member, that says sealed hellos step by step."""

    def __init__(self, seals: Seals, serial: int = 1) -> None:
        self.address = Address(7, "peer", "127.0.0.1[9]")
        self.seals = seals
        self.serial = serial
        self.exchange = Exchange(SEALED)
        self.reader: asyncio.StreamReader
        self.writer: asyncio.StreamWriter

    async def dial(self, station: Station[Any]) -> None:
        self.reader, self.writer = await asyncio.open_connection(
            "127.0.0.1", station.transport.port
        )

    def next(self) -> bytes:
        """Its next hello."""
        return pack_hello(self.exchange.say(CLUSTER, self.serial, self.address), self.seals)

    async def hear(self) -> Hello:
        """Take the other end's next hello."""
        (size,) = LENGTH.unpack(await self.reader.readexactly(LENGTH.size))
        body = await self.reader.readexactly(size)
        hello = unpack_hello_untrusted(body, CLUSTER, self.seals)
        self.exchange.take_untrusted(hello)
        return hello

    async def is_closed(self) -> bool:
        with contextlib.suppress(ConnectionError):
            return await self.reader.read() == b""
        return True


@asynccontextmanager
async def peers(number: int) -> AsyncIterator[tuple[Station[Any], list[Peer]]]:
    """A member with a key, and connections to it that have said nothing; all are one peer's."""
    seals = Seals([KEY], CLUSTER, 7)
    made = [Peer(seals, serial) for serial in range(1, number + 1)]
    async with stations(tcp(user_timeout=0.5), "a", key=KEY) as (a,):
        for one in made:
            await one.dial(a)
        try:
            yield a, made
        finally:
            for one in made:
                one.writer.transport.abort()
            await asyncio.sleep(0)


async def join(a: Station[Any], peer: Peer) -> None:
    peer.writer.write(peer.next())
    await peer.hear()
    peer.writer.write(peer.next())
    await until(lambda: peer.address.short in a.transport._table.open)


@on_a_loop
async def test_a_hello_that_is_handed_on_counts_for_nothing_without_its_proof() -> None:
    """It is new, and the peer has said it to somebody else. Its end is no end of a connection."""
    async with peers(3) as (a, (peer, silent, ends)):
        await join(a, peer)
        standing = a.transport._table.open[7]
        for one in (silent, ends):
            one.writer.write(one.next())
            await one.hear()
        ends.writer.close()
        await until(lambda: a.closes("hello-timeout") and a.closes("lost"))
        assert a.transport._table.open == {7: standing}
        assert a.counters["opened"] == 1
        assert a.lost == []


@on_a_loop
async def test_a_proof_is_good_on_its_own_connection_alone() -> None:
    async with peers(3) as (a, (peer, old, new)):
        await join(a, peer)
        standing = a.transport._table.open[7]
        for one in (old, new):
            one.writer.write(one.next())
            await one.hear()
        new.writer.write(old.next())
        assert await new.is_closed()
        assert a.counters["refused_hello-echo"] == 1
        assert a.transport._table.open == {7: standing}


@on_a_loop
async def test_who_has_lost_its_connection_proves_it_and_replaces_the_old_one() -> None:
    async with peers(2) as (a, (old, new)):
        await join(a, old)
        new.writer.write(new.next())
        await new.hear()
        new.writer.write(new.next())
        await until(lambda: a.counters.get("replaced") == 1)
        assert a.lost == [7]


@on_a_loop
async def test_who_proves_a_connection_while_the_other_end_proves_one_replaces_none() -> None:
    """The peer has dialled, and its proof is late. Meanwhile this member dials: to the peer it must
    not look as if this member had lost the connection that it has not yet."""
    loop = asyncio.get_running_loop()
    with socket.create_server(("127.0.0.1", 0)) as server:
        server.setblocking(False)
        async with peers(2) as (a, (late, other)):
            for one in (late, other):
                one.address = Address(7, "peer", f"127.0.0.1[{server.getsockname()[1]}]")
            late.writer.write(late.next())
            told = await late.hear()
            a.transport.locate(late.address)
            a.send(7, b"x")
            accepted, _at = await loop.sock_accept(server)
            other.writer.close()
            other.reader, other.writer = await asyncio.open_connection(sock=accepted)
            await other.hear()
            other.writer.write(other.next())
            proof = await other.hear()
            assert proof.role == PROVE
            assert proof.serial < told.serial, "it comes before the other one"
            late.writer.write(late.next())
            await until(lambda: a.counters.get("crossed") == 1)
            assert a.lost == []
            # When it dials without one of the peer's under way, it has lost what there was.
            for one in (late, other):
                one.writer.transport.abort()
            await until(
                lambda: not a.transport._table.open and not a.transport._table.retired.connections
            )
            a.send(7, b"x")
            accepted, _at = await loop.sock_accept(server)
            again = Peer(other.seals, 3)
            again.address = late.address
            again.reader, again.writer = await asyncio.open_connection(sock=accepted)
            await again.hear()
            again.writer.write(again.next())
            assert (await again.hear()).serial > told.serial
            again.writer.transport.abort()


@pytest.mark.parametrize("role", [ACCEPT, PROVE, WATCH, WATCHED])
@on_a_loop
async def test_a_hello_of_another_role_does_not_dial(role: int) -> None:
    async with peers(1) as (a, (peer,)):
        hello = Hello(CLUSTER, 1, peer.address, role, bytes(16), bytes(16))
        peer.writer.write(pack_hello(hello, peer.seals))
        assert await peer.is_closed()
        assert a.counters["refused_hello-role"] == 1


@on_a_loop
async def test_the_notice_that_there_is_a_key_is_no_hello() -> None:
    async with peers(1) as (a, (peer,)):
        peer.writer.write(pack_notice(CLUSTER, peer.seals))
        assert await peer.is_closed()
        assert a.counters["refused_hello-role"] == 1


@on_a_loop
async def test_what_a_member_says_comes_back_to_it_and_it_does_not_answer() -> None:
    async with peers(1) as (a, (peer,)):
        echoed = Exchange(SEALED).say(CLUSTER, 1, a.address)
        peer.writer.write(pack_hello(echoed, a.seals()))
        assert await peer.is_closed()
        assert a.closes("self") == 1


# -- Whom a member dials ---------------------------------------------------------------------------


@asynccontextmanager
async def relay(to: Station[Any]) -> AsyncIterator[int]:
    """A port at which all goes on to a member, and what it says comes back."""
    tasks: list[asyncio.Task[None]] = []

    async def copy(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(ConnectionError):
            while more := await reader.read(65536):
                writer.write(more)
        writer.close()

    async def both_ways(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        onward = await asyncio.open_connection("127.0.0.1", to.transport.port)
        tasks.append(asyncio.create_task(copy(reader, onward[1])))
        tasks.append(asyncio.create_task(copy(onward[0], writer)))

    server = await asyncio.start_server(both_ways, "127.0.0.1", 0)
    try:
        yield server.sockets[0].getsockname()[1]
    finally:
        server.close()
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


@on_a_loop
async def test_who_took_over_the_place_of_a_dead_member_is_no_way_to_another_one() -> None:
    async with stations(tcp(), "a", "b", key=KEY) as (a, b), relay(b) as port:
        a.transport.locate(Address(99, "dead", f"127.0.0.1[{port}]"))
        a.send(99, b"for the dead")
        await until(lambda: a.counters.get("refused_hello-elsewhere"))
        assert not a.transport._table.open
        assert not b.transport._table.open
        assert b.short not in a.lost
        # And it is not dialled again and again.
        for _ in range(20):
            a.send(99, b"for the dead")
            await asyncio.sleep(0.001)
        assert a.counters["refused_hello-elsewhere"] <= 2


@on_a_loop
async def test_who_was_started_on_the_port_of_a_dead_member_answers_there() -> None:
    """Nobody has told of it yet: it says itself that it is there."""
    async with stations(tcp(), "a", "b", key=KEY) as (a, b):
        a.transport.locate(Address(99, "dead", b.address.where))
        a.send(99, b"for the dead")
        await until(lambda: b.short in a.transport._table.open and b.got)
        assert "refused_hello-elsewhere" not in a.counters


@on_a_loop
async def test_a_member_that_is_found_on_a_way_besides_keeps_its_connection() -> None:
    """Whoever holds an address at which members are looked for hands on what both say: the
    connection that stands goes on, and what was for the other one travels on it."""
    async with stations(tcp(), "a", "b", key=KEY) as (a, b), relay(b) as port:
        a.members = (b.short,)
        a.transport.on_view([a.address, b.address])
        a.send(b.short, b"1")
        await until(lambda: b.got)
        standing = [one.transport._table.open.copy() for one in (a, b)]
        a.listed = [("127.0.0.1", port)]
        a.transport.send([a.control(EVERYONE)])
        await until(lambda: a.closes("given-up") and len(b.got) == 3)
        assert [one.transport._table.open for one in (a, b)] == standing
        await until(lambda: not b.transport._table.strangers.unknown)
        assert a.lost == b.lost == []
        assert b.counters["opened"] == 1


@on_a_loop
async def test_an_answer_that_repeats_nothing_opens_no_connection() -> None:
    """The old answer of the very member that is dialled, recorded."""
    loop = asyncio.get_running_loop()
    seals = Seals([KEY], CLUSTER, 7)
    with socket.create_server(("127.0.0.1", 0)) as server:
        server.setblocking(False)
        where = f"127.0.0.1[{server.getsockname()[1]}]"
        peer = Address(7, "peer", where)
        async with stations(tcp(), "a", key=KEY) as (a,):
            a.transport.locate(peer)
            a.send(7, b"secret")
            accepted, _at = await loop.sock_accept(server)
            old = Hello(CLUSTER, 1, peer, ACCEPT, bytes(16), bytes(16))
            await loop.sock_sendall(accepted, pack_hello(old, seals))
            await until(lambda: a.counters.get("refused_hello-echo") == 1)
            assert not a.transport._table.open
            heard = await loop.sock_recv(accepted, 65536)
            assert b"secret" not in heard
            accepted.close()
