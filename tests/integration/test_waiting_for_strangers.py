"""What waits to be sent to strangers who read nothing, in connections open or being made."""

from __future__ import annotations

import socket
import tracemalloc
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from typing import Any

import pytest

from stormcast.node.core.model import Address
from stormcast.node.settings.transports import Nio2Config, TcpConfig
from stormcast.node.transports.strangers import MOST_FOR_ONE, UNFINISHED_BYTES
from stormcast.node.transports.stream_buffers import OutQueue
from tests.helpers.station import Station, on_a_loop, stations, tcp, until
from tests.integration.test_tcp import Peer, both

SMALL = bytes(20)
LARGEST = 1000
"""Bytes of one frame more than a bound admits, at most."""


@pytest.fixture(autouse=True)
def _peers_are_closed() -> Iterator[None]:
    yield
    while Peer.opened:
        Peer.opened.pop().close()


@asynccontextmanager
async def member(
    kind: type[TcpConfig] = Nio2Config, *names: str, **settings: object
) -> AsyncIterator[list[Station[Any]]]:
    """A member of a group, to whom others than its members are strangers."""
    async with stations(tcp(kind, send_buffer=4096, **settings), "a", *names) as all_of_them:
        for one in all_of_them:
            one.has_group = True
        yield all_of_them


def waiting(station: Station[Any]) -> int:
    """Bytes of memory that all queues take."""
    return sum(one.out.cost for one in station.transport._table.living())


def answer(station: Station[Any], short: int, times: int = 30_000) -> None:
    """Answer one who asks again and again, some frames in each turn."""
    for _ in range(times // 20):
        station.send(short, *[SMALL] * 20)


@both
@pytest.mark.parametrize("drops", [True, False], ids=["drops", "waits"])
@on_a_loop
async def test_a_stranger_that_reads_nothing_holds_nobody_up(
    kind: type[TcpConfig],
    drops: bool,
) -> None:
    """It had 16,384 frames; and where nothing may be dropped any number, and closed the outbox."""
    async with member(kind, "b", drop_when_full=drops) as (a, b):
        a.view(b)
        b.view(a)
        stranger = await Peer().join(a)
        answer(a, stranger.address.short)
        assert waiting(a) <= MOST_FOR_ONE + LARGEST
        assert not a.transport.room.is_full
        assert a.counters["dropped_for_stranger"] > 20_000
        assert stranger.address.short in a.transport._table.open
        a.send(b.short, *[bytes(50_000)] * 50)
        await until(lambda: len(b.got) == 50)


@both
@on_a_loop
async def test_strangers_that_read_nothing_have_one_budget(kind: type[TcpConfig]) -> None:
    """With begun frames and retired connections. The first of them go, and one that reads stays."""
    async with member(kind, drop_when_full=False) as (a,):
        reader = await Peer(identity=99).join(a)
        for identity in range(100, 110):
            peer = await Peer(identity).join(a)
            answer(a, peer.address.short, 6000)
            a.send(reader.address.short, *[bytes(10_000)] * 10)
            assert len(await reader.frames(10)) == 10
            assert waiting(a) <= UNFINISHED_BYTES
            assert not a.transport.room.is_full
        # Each has a quarter of the budget, and a frame.
        assert a.lost == list(range(100, 107))
        assert a.closes("evicted") == 7
        assert reader.address.short in a.transport._table.open


@on_a_loop
async def test_what_waits_for_a_joiner_passes_once_the_view_that_has_it_is_on_its_way() -> None:
    """The transport learns of the view after the frames that bring it to the joiner."""
    async with member() as (a,):
        joiner = await Peer().join(a)
        answer(a, 7, 6000)
        dropped = a.counters["dropped_for_stranger"]
        assert dropped
        a.members = (7,)
        a.send(7, *[bytes(100_000)] * 30)
        assert a.counters["dropped_for_stranger"] == dropped
        assert waiting(a) > UNFINISHED_BYTES
        a.transport.on_view([a.address, joiner.address])
        assert a.closes("evicted") == 0
        assert len(await joiner.frames(6030 - dropped)) == 6030 - dropped


@on_a_loop
async def test_a_large_frame_for_a_stranger_passes() -> None:
    """Such as what a merge says, of many members, and much in one turn to one who takes it."""
    async with member() as (a,):
        stranger = await Peer().join(a)
        a.send(7, bytes(1_000_000))
        assert len(await stranger.frames(1)) == 1
        await until(lambda: waiting(a) == 0)
        assert not a.transport._table.strangers._held
        assert a.transport._table.strangers._held_bytes == 0


@on_a_loop
async def test_what_waits_until_a_stranger_is_reached_is_bounded_and_of_a_member_is_not() -> None:
    """Somebody listens there, and never says a hello."""
    with socket.create_server(("127.0.0.1", 0)) as silent:
        port = silent.getsockname()[1]
        for is_member in (False, True):
            async with member(sock_conn_timeout=30.0) as (a,):
                other = Address(8, "other", f"127.0.0.1[{port}]")
                a.transport.locate(other)
                a.members = (other.short,) if is_member else ()
                answer(a, other.short, 10_000)
                assert (waiting(a) > MOST_FOR_ONE + LARGEST) is is_member
                assert (a.counters["dropped_for_stranger"] == 0) is is_member


@on_a_loop
async def test_without_a_group_nobody_is_a_stranger() -> None:
    async with stations(tcp(send_buffer=4096), "a") as (a,):
        await Peer().join(a)
        a.send(7, *[bytes(100_000)] * 30)
        assert waiting(a) > UNFINISHED_BYTES
        assert a.closes("evicted") == 0
        assert a.counters["dropped_for_stranger"] == 0


def test_what_a_frame_in_a_queue_costs() -> None:
    count = 10_000
    queue = OutQueue()
    tracemalloc.start()
    try:
        for number in range(count):
            head = b"%064d" % number
            queue.put((head, bytes([number & 255]) * 20))
        taken, _peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert queue.cost / 2 <= taken <= queue.cost
