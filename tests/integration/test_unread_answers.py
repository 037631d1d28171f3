"""Clients of a control endpoint that do not take their answers: they have a place for as long as a
descriptor, and both end."""

from __future__ import annotations

import asyncio
import contextlib
import socket
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

from stormcast.node.control.answers import Table, as_json
from stormcast.node.control.connections import Limits
from stormcast.node.control.server import Control
from stormcast.node.control.settings import ControlSettings
from tests.helpers.station import on_a_loop, until

TEXT = "x" * 40_000
TABLE: Table = {"/livez": {"GET": lambda _: as_json(TEXT)}}
SMALL = 4096
"""Bytes of the kernel's buffers: what waits for a client waits in the endpoint."""


class Endpoint:
    """A control endpoint whose connections are known to its test."""

    def __init__(self, limits: Limits) -> None:
        self.control = Control(ControlSettings(host="127.0.0.1"), TABLE, limits=limits)
        self.transports: list[asyncio.WriteTransport] = []
        self.clients: list[socket.socket] = []
        real = self.control.serve

        async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            self.transports.append(writer.transport)
            await real(reader, writer)

        self.control.serve = serve  # type: ignore[method-assign]

    async def open(self) -> None:
        where = await self.control.open()
        self.port = int(where.rpartition(":")[2])
        assert self.control._server is not None
        for listening in self.control._server.sockets:
            listening.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, SMALL)

    async def ask(self, source: str, *, ending: bytes = b"bad\r\n\r\n") -> socket.socket:
        """Ask once, and say something that ends the connection, from an address."""
        client = socket.socket()
        client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, SMALL)
        client.setblocking(False)
        client.bind((source, 0))
        self.clients.append(client)
        loop = asyncio.get_running_loop()
        await loop.sock_connect(client, ("127.0.0.1", self.port))
        host = f"127.0.0.1:{self.port}"
        await loop.sock_sendall(
            client, f"GET /livez HTTP/1.1\r\nHost: {host}\r\n\r\n".encode() + ending
        )
        return client

    @property
    def descriptors(self) -> int:
        """Connections that the endpoint has a descriptor for."""
        sockets = (one.get_extra_info("socket") for one in self.transports)
        return sum(one.fileno() >= 0 for one in sockets)

    @property
    def places(self) -> int:
        """Connections that it counts."""
        return len(self.control.connections.tasks())


@asynccontextmanager
async def endpoint(limits: Limits) -> AsyncIterator[Endpoint]:
    made = Endpoint(limits)
    await made.open()
    try:
        yield made
    finally:
        for client in made.clients:
            client.close()
        await made.control.close()
        await asyncio.sleep(0)


async def always(holds: Callable[[], object], seconds: float) -> None:
    deadline = asyncio.get_running_loop().time() + seconds
    while asyncio.get_running_loop().time() < deadline:
        assert holds()
        await asyncio.sleep(0.01)


@on_a_loop
async def test_who_does_not_read_an_answer_loses_the_connection_in_the_time_of_a_request() -> None:
    async with endpoint(Limits(connections=8, request=0.5)) as it:
        for number in range(4):
            await it.ask(f"127.0.0.{10 + number}")
        await until(lambda: it.control.requests == 4)
        await until(lambda: it.descriptors == 0, "the descriptors are closed", seconds=5.0)
        assert it.places == 0


@on_a_loop
async def test_a_descriptor_counts_for_as_long_as_it_is_open() -> None:
    """So newcomers end those who do not read: there are never more than places."""
    async with endpoint(Limits(connections=4, request=20.0)) as it:
        for number in range(4):
            await it.ask(f"127.0.0.{10 + number}")
        await until(lambda: it.control.requests == 4)
        # Longer than the answer to a bad request waits for its client to read.
        await always(lambda: it.places == it.descriptors == 4, 1.0)
        for number in range(4):
            await it.ask(f"127.0.0.{20 + number}")
        await until(lambda: it.control.requests == 8)
        await until(lambda: it.descriptors == it.places == 4, seconds=5.0)


@on_a_loop
async def test_who_reads_slowly_gets_the_whole_answer() -> None:
    """Also the last one of a connection, whose end it is slow to read."""
    async with endpoint(Limits(connections=4, request=10.0)) as it:
        client = await it.ask("127.0.0.10")
        await asyncio.sleep(1.0)
        said = b""
        with contextlib.suppress(ConnectionError):
            while more := await asyncio.get_running_loop().sock_recv(client, 8192):
                said += more
        assert TEXT.encode() in said
        assert b"HTTP/1.1 400" in said
        await until(lambda: it.descriptors == it.places == 0)


@on_a_loop
async def test_no_descriptor_stays_when_the_endpoint_closes() -> None:
    async with endpoint(Limits(connections=4, request=20.0)) as it:
        await it.ask("127.0.0.10")
        await until(lambda: it.control.requests == 1)
        await it.control.close()
        await until(lambda: it.descriptors == 0, seconds=5.0)
