"""FD_SOCK2 on real sockets: a process that ends is noticed at once, and nobody is held for dead who
is not."""

from __future__ import annotations

import asyncio
import contextlib
import socket
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from random import SystemRandom

import pytest

from stormcast.node.core.model import Address
from stormcast.node.keys.cluster_keys import ClusterKey
from stormcast.node.keys.seals import Seals
from stormcast.node.protocols.fd_sock2 import FdSock2Config
from stormcast.node.transports.binding import BindError
from stormcast.node.transports.handshake import LENGTH, WATCH, WATCHED, Hello, pack_hello
from stormcast.node.transports.interfaces import choose
from stormcast.node.transports.monitors import Monitors
from tests.helpers.station import CLUSTER, on_a_loop, until

QUICK = FdSock2Config(connect_timeout=0.3)
KEY = ClusterKey(bytes(range(32)))


def free_block(host: str, config: FdSock2Config) -> socket.socket:
    """A bound socket, above which the detector's ports are free, too. Below those that the system
    gives to others."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    dice = SystemRandom()
    for _ in range(100):
        first = dice.randrange(20_000, 30_000)
        held = socket.socket(family)
        try:
            held.bind((host, first))
            for port in range(first + config.offset, first + config.offset + 4):
                with socket.socket(family) as probe:
                    probe.bind((host, port))
        except OSError:
            held.close()
        else:
            return held
    pytest.fail("no free ports")


class Member:
    """A member that can be watched, and what it is told of those it watches."""

    def __init__(
        self,
        name: str,
        identity: int,
        config: FdSock2Config = QUICK,
        cluster: int = CLUSTER,
        host: str = "127.0.0.1",
        most: int = 100,
        key: ClusterKey | None = None,
    ) -> None:
        self.links: list[tuple[int, bool]] = []
        self.config = config
        # The transport's port: nobody else may take it meanwhile.
        self.held = free_block(host, config)
        self.port: int = self.held.getsockname()[1]
        self.address = Address(identity, name, f"{host}[{self.port}]")
        self.seals = Seals([key], cluster, self.address.short) if key is not None else None
        self.monitors = Monitors(
            config,
            self.address,
            cluster,
            choose(host),
            lambda *link: self.links.append(link),
            most,
            self.seals,
        )

    async def open(self) -> Member:
        await self.monitors.open(self.port)
        return self

    def watch(self, other: Address | int, *, is_wanted: bool = True) -> None:
        self.monitors.change(other, is_wanted=is_wanted)

    async def close(self) -> None:
        await self.monitors.close()
        self.held.close()
        await asyncio.sleep(0)


@asynccontextmanager
async def members(
    *names: str, config: FdSock2Config = QUICK, key: ClusterKey | None = None
) -> AsyncIterator[list[Member]]:
    made = [
        await Member(name, number, config, key=key).open() for number, name in enumerate(names, 1)
    ]
    try:
        yield made
    finally:
        for one in made:
            await one.close()


@contextlib.contextmanager
def listener(port: int) -> Iterator[socket.socket]:
    with socket.create_server(("127.0.0.1", port)) as server:
        yield server


@on_a_loop
async def test_a_connection_that_stands_is_told_and_its_end_is_told() -> None:
    async with members("a", "b") as (a, b):
        a.watch(b.address)
        await until(lambda: a.links == [(b.address.short, True)])
        await b.close()
        await until(lambda: a.links == [(b.address.short, True), (b.address.short, False)])


@on_a_loop
async def test_strangers_do_not_take_the_place_of_a_member_at_an_address_of_its_own() -> None:
    """It watches from the address that the view has of it, by which the watched one knows it."""
    a = await Member("a", 1, host="127.0.0.2").open()
    b = await Member("b", 2, host="127.0.0.3", most=8).open()
    b.monitors.on_view([a.address, b.address])
    a.watch(b.address)
    await until(lambda: a.links == [(b.address.short, True)])
    with contextlib.ExitStack() as stack:
        for number in range(40):
            source = (f"127.0.0.{10 + number % 10}", 0)
            place = ("127.0.0.3", b.monitors.port)
            stack.enter_context(socket.create_connection(place, source_address=source))
            await asyncio.sleep(0.005)
        await until(lambda: b.monitors.stats()["watchers_evicted"] >= 30)
    assert a.links == [(b.address.short, True)]
    await a.close()
    await b.close()


@on_a_loop
async def test_who_is_not_wanted_any_more_is_not_told_of() -> None:
    async with members("a", "b") as (a, b):
        a.watch(b.address)
        await until(lambda: len(a.links) == 1)
        a.watch(b.address, is_wanted=False)
        await until(lambda: not b.monitors._watchers)
        await b.close()
        await asyncio.sleep(0.02)
        assert len(a.links) == 1


@on_a_loop
async def test_a_wish_that_is_repeated_makes_a_new_connection() -> None:
    async with members("a", "b") as (a, b):
        for number in range(1, 4):
            a.watch(b.address)
            await until(lambda number=number: len(a.links) == number)
        assert a.links == [(b.address.short, True)] * 3
        await until(lambda: len(b.monitors._watchers) == 1)


@on_a_loop
async def test_a_port_that_refuses_and_a_place_that_is_unknown_are_told() -> None:
    async with members("a") as (a,):
        gone = Member("gone", 9)
        a.watch(gone.address)
        await until(lambda: a.links == [(9, False)])
        a.watch(77)
        await until(lambda: a.links[1:] == [(77, False)])
        a.watch(Address(78, "x", "nowhere"))
        await until(lambda: a.links[2:] == [(78, False)])
        a.watch(Address(79, "x", "::1[80]"))
        await until(lambda: a.links[3:] == [(79, False)])
        gone.held.close()


@on_a_loop
async def test_the_next_ports_are_tried_at_both_ends() -> None:
    """Something else listens on the first two: one is silent, one says what it likes."""
    b = Member("b", 2)
    with listener(b.port + b.config.offset), listener(b.port + b.config.offset + 1):
        await b.open()
        assert b.monitors.port == b.port + b.config.offset + 2
        async with members("a") as (a,):
            a.watch(b.address)
            await until(lambda: a.links == [(2, True)])
    await b.close()


@on_a_loop
async def test_no_free_port_in_the_range_is_refused_with_what_to_do() -> None:
    b = Member("b", 2, FdSock2Config(port_range=0))
    port = b.port + b.config.offset
    with listener(port), pytest.raises(BindError) as refused:
        await b.open()
    assert str(refused.value).startswith(f"FD_SOCK2 port 127.0.0.1[{port}..{port}]: ")
    assert str(refused.value).endswith("choose another FD_SOCK2.offset or port_range")
    await b.close()


@pytest.mark.parametrize(("port", "fits"), [(65_435, True), (65_436, False)])
@on_a_loop
async def test_a_transport_port_that_leaves_none_above_it_is_refused(
    port: int,
    fits: bool,
) -> None:
    b = Member("b", 2)
    if fits:
        await b.monitors.open(port)
        assert b.monitors.port == 65_535
    else:
        with pytest.raises(BindError, match="65436 is too high for that; choose a lower bind_port"):
            await b.monitors.open(port)
    await b.close()


@pytest.mark.parametrize(
    "said",
    [
        b"",
        b"HTTP/1.1 400 Bad Request\r\n\r\n",
        LENGTH.pack(2000) + bytes(2000),
        LENGTH.pack(20) + bytes(20),
        LENGTH.pack(100) + bytes(3),
        # The member that was there before: its place is the same, and it is another one.
        pack_hello(Hello(CLUSTER, 0, Address(1234, "b", "127.0.0.1[1]"))),
        pack_hello(Hello(CLUSTER + 1, 0, Address(2, "b", "127.0.0.1[1]"))),
    ],
    ids=["silent", "http", "too-long", "noise", "cut", "restarted", "cluster"],
)
@on_a_loop
async def test_who_answers_and_is_not_the_member_does_not_stand_for_it(said: bytes) -> None:
    b = Member("b", 2, FdSock2Config(connect_timeout=0.1, port_range=0))
    await is_not_taken_for(b, said)


async def is_not_taken_for(b: Member, said: bytes, key: ClusterKey | None = None) -> None:
    """Say this at the place of a member: who watches it takes it for gone."""
    taken: list[asyncio.StreamWriter] = []

    async def answer(_reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(said)
        taken.append(writer)

    server = await asyncio.start_server(answer, "127.0.0.1", b.port + b.config.offset)
    async with members("a", config=b.config, key=key) as (a,):
        a.watch(b.address)
        await until(lambda: a.links == [(2, False)])
    server.close()
    for writer in taken:
        writer.close()
    await b.close()


async def strangers(b: Member, count: int, addresses: int) -> list[asyncio.StreamWriter]:
    """So many connections from so many addresses by turns, that say much and mean nothing."""
    opened = []
    for number in range(count):
        source = (f"127.0.0.{10 + number % addresses}", 0)
        _reader, writer = await asyncio.open_connection(
            "127.0.0.1", b.monitors.port, local_addr=source
        )
        writer.write(bytes(1000))
        await until(lambda number=number: arrived(b) == number + 1)
        opened.append(writer)
    return opened


def arrived(b: Member) -> int:
    watchers = b.monitors._watchers
    return len(watchers) + watchers.evicted


def end(opened: list[asyncio.StreamWriter]) -> None:
    for writer in opened:
        writer.transport.abort()


@on_a_loop
async def test_watchers_say_nothing_that_counts_and_are_bounded() -> None:
    b = await Member("b", 2, most=8).open()
    opened = await strangers(b, 20, addresses=10)
    assert len(b.monitors._watchers) == 4, "strangers have half of all places"
    end(opened)
    await until(lambda: not b.monitors._watchers)
    await b.close()


@on_a_loop
async def test_a_member_can_watch_however_many_strangers_are_there() -> None:
    b = await Member("b", 2, most=8).open()
    opened = await strangers(b, 20, addresses=10)
    async with members("a") as (a,):
        a.watch(b.address)
        await until(lambda: a.links == [(b.address.short, True)])
    end(opened)
    await b.close()


@on_a_loop
async def test_a_member_that_watches_is_not_cut_off_for_strangers() -> None:
    """From its address, too: the oldest connection from where one member is is taken for its own.
    To cut it off would look as if the member that it watches had died."""
    b = await Member("b", 2, most=8).open()
    async with members("a") as (a,):
        b.monitors.on_view([a.address])
        a.watch(b.address)
        await until(lambda: a.links == [(b.address.short, True)])
        opened = [await asyncio.open_connection("127.0.0.1", b.monitors.port) for _ in range(20)]
        await until(lambda: arrived(b) == 21)
        end([writer for _, writer in opened])
        more = [
            await asyncio.open_connection(
                "127.0.0.1", b.monitors.port, local_addr=(f"127.0.0.{10 + number}", 0)
            )
            for number in range(20)
        ]
        await until(lambda: arrived(b) >= 22)
        await asyncio.sleep(0.02)
        assert a.links == [(b.address.short, True)]
        end([writer for _, writer in more])
    await b.close()


@on_a_loop
async def test_what_a_watcher_says_is_thrown_away_and_counted() -> None:
    async with members("a", "b") as (a, b):
        a.watch(b.address)
        await until(lambda: a.links)
        _, writer = await asyncio.open_connection("127.0.0.1", b.monitors.port)
        writer.write(b"x" * 3000)
        await until(lambda: b.monitors.stats()["watchers_unasked_bytes"] == 3000)
        assert b.monitors.stats()["watchers_evicted"] == 0
        assert a.links == [(b.address.short, True)]
        end([writer])


# -- With a key ------------------------------------------------------------------------------------


@on_a_loop
async def test_members_with_a_key_watch_each_other() -> None:
    async with members("a", "b", key=KEY) as (a, b):
        a.watch(b.address)
        b.watch(a.address)
        await until(lambda: a.links == [(2, True)] and b.links == [(1, True)])
        # Nobody waits for more of who has said hello.
        await asyncio.sleep(2 * QUICK.connect_timeout)
        await b.close()
        await until(lambda: a.links == [(2, True), (2, False)])
        assert a.monitors.stats()["watchers_refused"] == 0


@pytest.mark.parametrize("said", [b"", b"GET / HTTP/1.1\r\n\r\n", b"clear", b"another key"])
@on_a_loop
async def test_who_has_not_the_key_is_told_nothing_and_keeps_no_place(said: bytes) -> None:
    address = Address(1, "a", "127.0.0.1[1]")
    if said == b"clear":
        said = pack_hello(Hello(CLUSTER, 0, address))
    elif said == b"another key":
        said = pack_hello(
            Hello(CLUSTER, 0, address, WATCH), Seals([ClusterKey(bytes(32))], CLUSTER, 1)
        )
    async with members("b", key=KEY) as (b,):
        reader, writer = await asyncio.open_connection("127.0.0.1", b.monitors.port)
        writer.write(said)
        with contextlib.suppress(ConnectionError):
            assert await reader.read() == b""
        writer.close()
        await until(lambda: not b.monitors._watchers)
        assert b.monitors.stats()["watchers_refused"] == 1


@on_a_loop
async def test_the_recorded_answer_of_a_member_does_not_stand_for_it() -> None:
    b = Member("b", 2, FdSock2Config(connect_timeout=0.3, port_range=0), key=KEY)
    recorded = Hello(CLUSTER, 0, b.address, WATCHED, bytes(16), bytes(16))
    await is_not_taken_for(b, pack_hello(recorded, b.seals), KEY)


@on_a_loop
async def test_what_comes_after_the_hello_of_a_watcher_is_thrown_away_and_counted() -> None:
    """In whatever pieces the hello comes."""
    async with members("b", key=KEY) as (b,):
        seals = Seals([KEY], CLUSTER, 1)
        hello = Hello(CLUSTER, 0, Address(1, "a"), WATCH, bytes(16))
        words = pack_hello(hello, seals) + b"more"
        _, writer = await asyncio.open_connection("127.0.0.1", b.monitors.port)
        for at in range(0, len(words), 50):
            writer.write(words[at : at + 50])
            await asyncio.sleep(0.005)
        writer.write(b"and more")
        await until(lambda: b.monitors.stats()["watchers_unasked_bytes"] == 12)
        end([writer])


@on_a_loop
async def test_ipv6() -> None:
    b = await Member("b", 2, host="::1").open()
    a = await Member("a", 1, host="::1").open()
    a.watch(b.address)
    await until(lambda: a.links == [(2, True)])
    await a.close()
    await b.close()


@on_a_loop
async def test_closing_leaves_no_task_and_no_socket() -> None:
    async with members("a", "b") as (a, b):
        a.watch(b.address)
        b.watch(a.address)
        await until(lambda: a.links and b.links)
        slow = Member("slow", 9, FdSock2Config(connect_timeout=20.0))
        with listener(slow.port + 100):
            a.watch(slow.address)
            await asyncio.sleep(0.02)
            await a.close()
        slow.held.close()
        assert len(asyncio.all_tasks()) <= 3
        await until(lambda: b.links[-1] == (a.address.short, False))
