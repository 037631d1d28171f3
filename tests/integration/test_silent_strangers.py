"""Strangers hold connections to a control endpoint and say nothing: whoever asks is answered."""

from __future__ import annotations

import asyncio
import contextlib
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

from stormcast.chaos.agent.agent import Agent
from stormcast.chaos.agent.endpoints import endpoints as agent_endpoints
from stormcast.node.control.answers import Answer, Table, as_json
from stormcast.node.control.connections import Limits
from stormcast.node.control.server import Control
from stormcast.node.control.settings import ControlSettings
from tests.helpers.station import on_a_loop, until

Pipe = tuple[asyncio.StreamReader, asyncio.StreamWriter]

TOKEN = "0123456789abcdef"  # noqa: S105 of a test
TURNED_AWAY = (503, 0)
"""The 503 is lost where the connection is reset because of what was not read."""
PATIENT = Limits(connections=32, first_byte=20.0)
"""Nobody is sent away for saying nothing while a test lasts: only evictions make room."""
TABLE: Table = {
    "/livez": {"GET": lambda _: as_json({"live": True})},
    "/readyz": {"GET": lambda _: as_json({"ready": True})},
    "/state": {"GET": lambda _: as_json({"view": None})},
}


class Clients:
    """Connections to one endpoint; closed at the end."""

    def __init__(self, control: Control, where: str) -> None:
        self.control = control
        self.host = where.removeprefix("http://")
        self.opened: list[Pipe] = []

    async def connect(self, source: str = "127.0.0.1") -> Pipe:
        path = self.control.settings.path
        if path:
            pipe = await asyncio.open_unix_connection(path)
        else:
            port = int(self.host.rpartition(":")[2])
            pipe = await asyncio.open_connection("127.0.0.1", port, local_addr=(source, 0))
        self.opened.append(pipe)
        return pipe

    async def silent(self, count: int, addresses: int) -> list[Pipe]:
        """So many connections that say nothing, from so many addresses by turns."""
        return [await self.connect(f"127.0.0.{10 + n % addresses}") for n in range(count)]

    async def ask(self, pipe: Pipe, line: str) -> int:
        """The status of an answer; 0 if there is none."""
        reader, writer = pipe
        head = f"{line} HTTP/1.1\r\nHost: {self.host}\r\nAuthorization: Bearer {TOKEN}\r\n\r\n"
        with contextlib.suppress(OSError, asyncio.IncompleteReadError):
            writer.write(head.encode())
            said = await reader.readuntil(b"\r\n\r\n")
            status, _, rest = said.partition(b"\r\n")
            size = int(rest.lower().split(b"content-length: ")[1].split(b"\r\n")[0])
            await reader.readexactly(size)
            return int(status.split()[1])
        return 0

    async def fresh(self, line: str, source: str = "127.0.0.1") -> int:
        """The status of an answer on a connection of its own."""
        return await self.ask(await self.connect(source), line)


def is_closed(pipe: Pipe) -> bool:
    return pipe[0].at_eof() or pipe[0].exception() is not None


@asynccontextmanager
async def served(
    limits: Limits = PATIENT, *, table: Table = TABLE, token: str = TOKEN, path: str = ""
) -> AsyncIterator[Clients]:
    where = {"path": path} if path else {"host": "127.0.0.1"}
    async with listening(
        Control(ControlSettings(token=token, **where), table, limits=limits)
    ) as it:
        yield it


@asynccontextmanager
async def listening(control: Control) -> AsyncIterator[Clients]:
    clients = Clients(control, await control.open())
    try:
        yield clients
    finally:
        for _, writer in clients.opened:
            writer.transport.abort()
        await control.close()
        await asyncio.sleep(0)


@on_a_loop
async def test_liveness_is_answered_while_strangers_hold_every_place() -> None:
    async with served() as clients:
        await clients.silent(40, addresses=8)
        assert await clients.fresh("GET /livez") == 200
        assert await clients.fresh("GET /state") == 200


@on_a_loop
async def test_one_address_has_its_share_and_takes_no_place_of_another() -> None:
    async with served() as clients:
        other = await clients.connect("127.0.0.9")
        silent = await clients.silent(40, addresses=1)
        await until(lambda: sum(map(is_closed, silent)) == 40 - PATIENT.per_address)
        assert not any(map(is_closed, silent[-PATIENT.per_address :])), "its oldest went"
        assert await clients.ask(other, "GET /livez") == 200


@on_a_loop
async def test_of_idle_connections_those_go_first_that_have_asked_nothing() -> None:
    """A scraper's connection rests between two scrapes, and stays, though it is the oldest."""
    async with served() as clients:
        scraper = await clients.connect()
        assert await clients.ask(scraper, "GET /state") == 200
        silent = await clients.silent(60, addresses=20)
        await until(lambda: sum(map(is_closed, silent)) == 60 - (PATIENT.connections - 1))
        assert await clients.ask(scraper, "GET /state") == 200


@on_a_loop
async def test_what_is_being_answered_is_not_ended_for_a_newcomer() -> None:
    go_on = asyncio.Event()

    async def slow(_body: object) -> Answer:
        await go_on.wait()
        return as_json(1)

    async with served(table={**TABLE, "/slow": {"GET": slow}}) as clients:
        answers = [
            asyncio.ensure_future(clients.fresh("GET /slow", f"127.0.0.{n % 8 + 10}"))
            for n in range(PATIENT.connections)
        ]
        await until(lambda: clients.control.requests == PATIENT.connections)
        assert await clients.fresh("GET /livez") in TURNED_AWAY
        go_on.set()
        assert await asyncio.gather(*answers) == [200] * PATIENT.connections
        assert await clients.fresh("GET /livez") == 200


@on_a_loop
async def test_half_a_request_and_a_wrong_token_hold_no_place() -> None:
    async with served() as clients:
        for _, writer in await clients.silent(20, addresses=5):
            writer.write(b"GET /livez HTTP/1.1\r\nHo")
        for pipe in await clients.silent(20, addresses=5):
            pipe[1].write(f"GET /state HTTP/1.1\r\nHost: {clients.host}\r\n\r\n".encode())
            assert (await pipe[0].readline()).split()[1] == b"401"
        assert await clients.fresh("GET /livez") == 200


@on_a_loop
async def test_the_first_byte_must_come_soon_and_later_requests_may_take_their_time() -> None:
    async with served(Limits(connections=32, first_byte=0.05, idle=20.0)) as clients:
        spoken, silent = await clients.connect(), await clients.connect()
        assert await clients.ask(spoken, "GET /livez") == 200
        await until(lambda: is_closed(silent))
        await asyncio.sleep(0.1)
        assert await clients.ask(spoken, "GET /livez") == 200


@on_a_loop
async def test_a_lease_can_be_renewed_while_strangers_hold_every_place(tmp_path: Path) -> None:
    """The agent's socket: its clients have no address by which they could be counted."""
    table = agent_endpoints(Agent(()))
    async with served(table=table, path=str(tmp_path / "agent.sock")) as clients:
        await clients.silent(40, addresses=1)
        reader, writer = await clients.connect()
        body = json.dumps({"lease": 3.0})
        writer.write(
            f"POST /renew HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {TOKEN}\r\n"
            f"Content-Length: {len(body)}\r\n\r\n{body}".encode()
        )
        assert (await reader.readline()).split()[1] == b"200"


@on_a_loop
async def test_probes_have_places_of_their_own_and_nothing_else_is_there() -> None:
    """All places of the control endpoint are taken by those who may; the probes' listener asks for
    no token, and has nothing for which one would be needed."""
    go_on = asyncio.Event()

    async def slow(_body: object) -> Answer:
        await go_on.wait()
        return as_json(1)

    table: Table = {**TABLE, "/slow": {"GET": slow}}
    probes = Control.for_probes(ControlSettings(host="127.0.0.1"), table)
    async with served(table=table) as clients, listening(probes) as probing:
        answers = [
            asyncio.ensure_future(clients.fresh("GET /slow", f"127.0.0.{n % 8 + 10}"))
            for n in range(PATIENT.connections)
        ]
        await until(lambda: clients.control.requests == PATIENT.connections)
        await probing.silent(40, addresses=8)
        assert await clients.fresh("GET /livez") in TURNED_AWAY
        assert await probing.fresh("GET /livez") == 200
        assert await probing.fresh("GET /readyz") == 200
        assert await probing.fresh("GET /state") == 404
        go_on.set()
        await asyncio.gather(*answers)
