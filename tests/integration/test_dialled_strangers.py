"""Strangers that have a member dial them: they take no places from those who come, nor from members
that a member has to dial."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, ExitStack, asynccontextmanager
from typing import Any

import pytest

from stormcast.node.core.model import Address
from stormcast.node.transports.handshake import Hello, pack_hello
from stormcast.node.transports.peer_places import MAX_LEARNED
from tests.helpers.station import CLUSTER, Station, on_a_loop, stations, tcp, until
from tests.integration.test_tcp import (
    Peer,
    connections,
    crowd,
    meet,
    narrow,
    stays_while_others_come,
)


@asynccontextmanager
async def stranger(number: int, host: str) -> AsyncIterator[Address]:
    """A stranger that listens, and greets whoever dials it."""
    held = []

    async def greet(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        held.append(writer)
        writer.write(pack_hello(Hello(CLUSTER, 1, address)))
        await reader.read()

    server = await asyncio.start_server(greet, host, 0)
    port = server.sockets[0].getsockname()[1]
    address = Address(0x7100_0000 + number, "x", f"{host}[{port}]")
    try:
        yield address
    finally:
        server.close()
        for writer in held:
            writer.transport.abort()


async def have_dialled(a: Station[Any], stack: AsyncExitStack, count: int, hosts: int) -> list[int]:
    """Have a member dial so many strangers, at so many hosts by turns; return their short ids."""
    shorts = []
    for number in range(count):
        address = await stack.enter_async_context(
            stranger(number, f"127.66.0.{1 + number % hosts}")
        )
        a.transport.locate(address)
        opened = a.counters.get("opened", 0)
        a.send(address.short, b"x")
        await until(lambda opened=opened: a.counters.get("opened", 0) == opened + 1)
        shorts.append(address.short)
    return shorts


@pytest.mark.parametrize("proves", [False, True])
@on_a_loop
async def test_a_joiner_comes_in_however_many_strangers_a_member_has_dialled(proves: bool) -> None:
    """They name places, and with `proves` they prove them, which costs an answer each. The joiner
    has something to say, so it stays when more come."""
    async with narrow(strangers=8, unknown=8) as a, AsyncExitStack() as stack:
        for short in await have_dialled(a, stack, 12, hosts=12):
            if proves and short in a.transport._table.open:
                a.transport.trust(a.transport._table.open[short].peer)
        assert connections(a) == 8
        joiner = await Peer().join(a)
        await stays_while_others_come(a, joiner)
        assert connections(a) == 8


@on_a_loop
async def test_one_host_that_is_dialled_has_half_of_the_places_of_strangers() -> None:
    async with narrow(strangers=8) as a, AsyncExitStack() as stack:
        other = Peer()
        other.sock.bind(("127.0.0.99", 0))
        await other.join(a)
        await have_dialled(a, stack, 10, hosts=1)
        assert connections(a) == 1 + 4
        assert other.address.short in a.transport._table.open


@on_a_loop
async def test_who_was_dialled_at_a_proved_place_stays_when_strangers_come() -> None:
    """Another group's leader, whom a merge asks: it is idle for longer than those who come."""
    async with narrow(strangers=8, unknown=8) as a, AsyncExitStack() as stack:
        (leader,) = await have_dialled(a, stack, 1, hosts=1)
        a.transport.trust(a.transport._table.open[leader].peer)
        await crowd(a, 20, addresses=10, greets=True)
        assert leader in a.transport._table.open
        assert connections(a) == 8


@on_a_loop
async def test_a_member_is_dialled_while_strangers_name_places_that_never_answer() -> None:
    """As many as connections may be in the making, and more of them at any time."""
    async with narrow(members=8) as a, stations(tcp(), "b") as (b,):
        a.has_group = True
        meet(a, b)
        a.send(b.short, b"1")
        await until(lambda: b.got)
        a.transport._table.open[b.short].drop("lost")
        with ExitStack() as stack:
            for number in range(20):
                host = f"127.66.0.{1 + number}"
                silent = stack.enter_context(socket.create_server((host, 0)))
                where = f"{host}[{silent.getsockname()[1]}]"
                name = Address(0x7100_0000 + number, "x", where)
                a.transport.locate(name)
                a.send(name.short, b"x")
            a.send(b.short, b"2")
            # Long before one of those is given up.
            await until(lambda: len(b.got) == 2, seconds=1.0)


def to_nowhere(a: Station[Any], identity: int) -> Address:
    """A frame for somebody at a place that this host has no way to; the address of that one."""
    address = Address(identity, "x", "::1[9]")
    a.transport.locate(address)
    a.send(address.short, b"x")
    return address


@on_a_loop
async def test_a_member_is_told_what_it_missed_however_many_strangers_are_out_of_reach() -> None:
    """They took all places of the list, and none of them ever left it."""
    async with stations(tcp(), "a") as (a,):
        a.has_group = True
        for number in range(MAX_LEARNED):
            to_nowhere(a, 0x7100_0000 + number)
        member = Peer()
        a.members = (member.address.short,)
        to_nowhere(a, 7)
        await member.join(a)
        await until(lambda: a.lost == [7])


@on_a_loop
async def test_who_has_left_is_missed_no_more_and_a_long_list_forgets_its_oldest() -> None:
    async with stations(tcp(), "a") as (a,):
        missed = a.transport._table.missed.shorts
        for number in range(MAX_LEARNED + 2):
            to_nowhere(a, 0x7100_0000 + number)
        assert list(missed)[:: MAX_LEARNED - 1] == [0x7100_0002, 0x7100_0001 + MAX_LEARNED]
        a.has_group = True
        a.members = (0x7100_0005,)
        a.transport.on_view([a.address])
        assert list(missed) == [0x7100_0005]
