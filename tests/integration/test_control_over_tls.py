"""A control endpoint with a certificate: who verifies it is served, and nobody else."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import socket
import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from stormcast.node.control import tls
from stormcast.node.control.answers import Answer, Table, as_json, parse_body
from stormcast.node.control.connections import Limits
from stormcast.node.control.server import Control
from stormcast.node.control.settings import ControlSettings
from stormcast.node.control.streams import READ, Stream
from stormcast.node.control.trust import trusting, why_refused
from tests.helpers.certificates import Files, Issuer
from tests.helpers.station import on_a_loop, until
from tests.helpers.tls_records import Sealer, note_secrets

Pipe = tuple[asyncio.StreamReader, asyncio.StreamWriter]

TOKEN = "0123456789abcdef"  # noqa: S105 of a test
PATIENT = Limits(connections=32, first_byte=20.0)
"""Nobody is sent away for saying nothing while a test lasts: only evictions make room."""
LARGE = bytes(range(256)) * 4096
TABLE: Table = {
    "/livez": {"GET": lambda _: as_json({"live": True})},
    "/echo": {"POST": lambda body: as_json({"said": parse_body(body)})},
    "/large": {"GET": lambda _: Answer(b"", parts=iter([LARGE[:100], LARGE[100:]]))},
}


class Endpoint:
    """A control endpoint, and connections to it, which end with it."""

    def __init__(self, files: Files, limits: Limits) -> None:
        self.files = files
        self.said: list[str] = []
        settings = ControlSettings(host="127.0.0.1", token=TOKEN, tls=files.settings)
        self.control = Control(settings, TABLE, say=self.said.append, limits=limits)
        self.host = ""
        self._opened: list[Pipe] = []

    async def connect(self, context: ssl.SSLContext | None, source: str = "127.0.0.1") -> Pipe:
        """A connection over TLS; without a context, a bare one."""
        name = "localhost" if context else None
        port = int(self.host.rpartition(":")[2])
        pipe = await asyncio.open_connection(
            "127.0.0.1", port, ssl=context, server_hostname=name, local_addr=(source, 0)
        )
        self._opened.append(pipe)
        return pipe

    async def trusted(self, source: str = "127.0.0.1") -> Pipe:
        return await self.connect(trusting(str(self.files.ca)), source)

    async def ask(self, pipe: Pipe, line: str, body: bytes = b"") -> tuple[int, bytes]:
        """The status and the body of an answer; 0 if there is none."""
        reader, writer = pipe
        head = f"{line} HTTP/1.1\r\nHost: {self.host}\r\nAuthorization: Bearer {TOKEN}\r\n"
        writer.write(f"{head}Content-Length: {len(body)}\r\n\r\n".encode() + body)
        said = await reader.readuntil(b"\r\n\r\n")
        status = int(said.split()[1])
        if b"content-length: " not in said.lower():
            parts = []
            while size := int(await reader.readline(), 16):
                parts.append(await reader.readexactly(size))
                await reader.readline()
            await reader.readline()
            return status, b"".join(parts)
        size = int(said.lower().split(b"content-length: ")[1].split(b"\r\n")[0])
        return status, await reader.readexactly(size)

    async def close(self) -> None:
        for _, writer in self._opened:
            writer.transport.abort()
        await self.control.close()
        await asyncio.sleep(0)


@asynccontextmanager
async def served(folder: Path, limits: Limits = PATIENT) -> AsyncIterator[Endpoint]:
    endpoint = Endpoint(Issuer().write(folder), limits)
    where = await endpoint.control.open()
    assert where.startswith("https://127.0.0.1:")
    endpoint.host = where.removeprefix("https://")
    try:
        yield endpoint
    finally:
        await endpoint.close()


@on_a_loop
async def test_who_verifies_it_asks_as_ever(tmp_path: Path) -> None:
    async with served(tmp_path) as endpoint:
        pipe = await endpoint.trusted()
        assert await endpoint.ask(pipe, "GET /livez") == (200, b'{"live": true}\n')
        text = "x" * 60_000
        status, body = await endpoint.ask(pipe, "POST /echo", json.dumps(text).encode())
        assert (status, json.loads(body)) == (200, {"said": text})
        assert await endpoint.ask(pipe, "GET /large") == (200, LARGE)
        assert endpoint.control.refused == 0


@on_a_loop
async def test_the_token_is_asked_for_all_the_same(tmp_path: Path) -> None:
    async with served(tmp_path) as endpoint:
        reader, writer = await endpoint.trusted()
        writer.write(f"POST /echo HTTP/1.1\r\nHost: {endpoint.host}\r\n\r\n".encode())
        assert (await reader.readline()).split()[1] == b"401"


@on_a_loop
async def test_a_client_without_tls_gets_one_line(tmp_path: Path) -> None:
    async with served(tmp_path) as endpoint:
        reader, writer = await endpoint.connect(None)
        writer.write(f"GET /livez HTTP/1.1\r\nHost: {endpoint.host}\r\n\r\n".encode())
        head, _, body = (await reader.read()).partition(b"\r\n\r\n")
        assert head.startswith(b"HTTP/1.1 400 ")
        assert f"Content-Length: {len(body)}".encode() in head
        assert json.loads(body) == {
            "error": "this endpoint speaks TLS; ask again with https://",
        }
        assert endpoint.control.refused == 1
        assert (await endpoint.ask(await endpoint.trusted(), "GET /livez"))[0] == 200


@on_a_loop
async def test_a_client_that_trusts_somebody_else_sends_nothing(tmp_path: Path) -> None:
    other = Issuer().write(tmp_path / "other")
    async with served(tmp_path) as endpoint:
        with pytest.raises(ssl.SSLError) as caught:
            await endpoint.connect(trusting(str(other.ca)))
        assert str(why_refused(caught.value)).startswith("its certificate is refused: ")
        await until(lambda: not endpoint.control.connections.tasks())
        assert endpoint.control.requests == 0
        assert (await endpoint.ask(await endpoint.trusted(), "GET /livez"))[0] == 200


@on_a_loop
async def test_an_endpoint_that_closes_while_it_refuses_somebody_does_so_quietly(
    tmp_path: Path,
) -> None:
    """What no loop expects ends a member."""
    failures: list[object] = []
    asyncio.get_running_loop().set_exception_handler(lambda _loop, what: failures.append(what))
    async with served(tmp_path) as endpoint:
        for noise in (b"GET /livez HTTP/1.1\r\n", b"\x16\x03\x01\x00\x10" + bytes(16)):
            _, writer = await endpoint.connect(None)
            writer.write(noise)
        await until(lambda: endpoint.control.refused == 2)
        assert len(endpoint.control.connections.tasks()) == 2, "they may still read the refusal"
    assert failures == []


async def begun(endpoint: Endpoint, source: str) -> Pipe:
    """A connection on which half of a handshake has come."""
    context = trusting(str(endpoint.files.ca))
    incoming, outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
    with contextlib.suppress(ssl.SSLWantReadError):
        context.wrap_bio(incoming, outgoing, server_hostname="localhost").do_handshake()
    pipe = await endpoint.connect(None, source)
    pipe[1].write(outgoing.read()[:60])
    return pipe


@on_a_loop
async def test_a_handshake_must_be_over_as_soon_as_a_first_byte_must_come(tmp_path: Path) -> None:
    """One that stops in the middle, one that goes on drop by drop, and one that is over and says
    nothing: the endpoint ends all of them, and is not kept from others meanwhile."""
    limits = Limits(connections=32, first_byte=0.5)
    async with served(tmp_path, limits) as endpoint:
        stopped = await begun(endpoint, "127.0.0.1")
        silent = await endpoint.connect(None)
        dripping = await endpoint.connect(None)

        async def drip() -> None:
            with contextlib.suppress(OSError):
                for byte in b"\x16\x03\x01\x02\x00" + bytes(500):
                    dripping[1].write(bytes((byte,)))
                    await asyncio.sleep(0.02)

        dropping = asyncio.ensure_future(drip())
        for reader, _ in (stopped, silent, dripping):
            with contextlib.suppress(ConnectionResetError):
                assert await reader.read() == b""
        assert not dropping.done(), "it would have gone on"
        dropping.cancel()


@on_a_loop
async def test_a_stranger_who_changes_keys_without_end_is_hung_up_on(tmp_path: Path) -> None:
    """It has no token, and has asked nothing but whether the endpoint lives, so that it may be
    silent for long."""
    noted = tmp_path / "secrets"
    async with served(tmp_path) as endpoint:
        context = trusting(str(endpoint.files.ca))
        note_secrets(context, noted)
        reader, writer = await endpoint.connect(context)
        sealer = Sealer(noted)
        bare = socket.socket(fileno=os.dup(writer.get_extra_info("socket").fileno()))
        question = sealer.content(f"GET /livez HTTP/1.1\r\nHost: {endpoint.host}\r\n\r\n".encode())
        updates = b"".join(sealer.key_update() for _ in range(1000))
        with bare:
            await asyncio.get_running_loop().sock_sendall(bare, question)
            assert (await reader.readline()).split()[1] == b"200"
            with contextlib.suppress(OSError):
                await asyncio.get_running_loop().sock_sendall(bare, updates)
            await until(lambda: not endpoint.control.connections.tasks())
        assert (endpoint.control.requests, endpoint.control.refused) == (1, 1)


@on_a_loop
async def test_a_handshake_in_tiny_records_leaves_turns_to_others(tmp_path: Path) -> None:
    certificate = tls.Certificate(Issuer().write(tmp_path).settings, print)
    reader = asyncio.StreamReader()
    here, there = socket.socketpair()
    _, writer = await asyncio.open_connection(sock=here)
    stream = Stream(reader, writer, tls.TlsBytes(certificate.context(0.0)))
    hello = b"\x01\x01\x00\x00\x03\x03" + bytes(60_000)
    reader.feed_data(b"".join(b"\x16\x03\x01\x00\x01%c" % byte for byte in hello))
    reader.feed_eof()
    turns = 0

    async def others() -> None:
        nonlocal turns
        while True:
            turns += 1
            await asyncio.sleep(0)

    working = asyncio.ensure_future(others())
    assert await stream.read() == b""
    working.cancel()
    writer.transport.abort()
    there.close()
    assert turns >= 6 * len(hello) // READ


@on_a_loop
async def test_handshakes_that_never_end_have_the_places_of_strangers(tmp_path: Path) -> None:
    async with served(tmp_path) as endpoint:
        known = await endpoint.trusted()
        assert (await endpoint.ask(known, "GET /large"))[0] == 200
        pipes = [await begun(endpoint, f"127.0.0.{10 + n % 8}") for n in range(60)]
        await until(lambda: endpoint.control.connections.evicted >= 60 - PATIENT.connections)
        assert (await endpoint.ask(known, "GET /livez"))[0] == 200
        newcomer = await endpoint.trusted("127.0.0.30")
        assert (await endpoint.ask(newcomer, "GET /livez"))[0] == 200
        assert len(pipes) == 60


@on_a_loop
async def test_a_new_certificate_serves_new_connections_and_ends_no_old_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tls, "LOOK_SECONDS", 0.0)
    async with served(tmp_path) as endpoint:
        old = await endpoint.trusted()
        before = trusting(str(endpoint.files.ca))
        Issuer().write(tmp_path)
        new = await endpoint.trusted()
        assert (await endpoint.ask(new, "GET /livez"))[0] == 200
        assert (await endpoint.ask(old, "GET /livez"))[0] == 200
        with pytest.raises(ssl.SSLCertVerificationError):
            await endpoint.connect(before)
        assert endpoint.said == [f"the certificate of {tmp_path / 'tls.crt'} was read again"]
