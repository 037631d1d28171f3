"""The control endpoint on a TCP port: answers leave at once."""

from __future__ import annotations

import asyncio
import socket

from stormcast.node.control.answers import Table, as_json
from stormcast.node.control.server import Control
from stormcast.node.control.settings import ControlSettings
from tests.helpers.station import on_a_loop


@on_a_loop
async def test_an_answer_is_not_held_back_until_the_one_before_is_acked() -> None:
    """An answer is several writes: where the kernel joins small ones (Nagle), each request after
    the first of a connection takes 40 ms."""
    seen: list[int] = []

    class Watched(Control):
        async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            accepted = writer.get_extra_info("socket")
            seen.append(accepted.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY))
            await super().serve(reader, writer)

    table: Table = {"/state": {"GET": lambda _: as_json({})}}
    control = Watched(ControlSettings(host="127.0.0.1"), table)
    host = (await control.open()).removeprefix("http://")
    reader, writer = await asyncio.open_connection("127.0.0.1", int(host.rpartition(":")[2]))
    writer.write(f"GET /state HTTP/1.1\r\nHost: {host}\r\n\r\n".encode())
    assert (await reader.readline()).split()[1] == b"200"
    assert seen == [1]
    writer.close()
    await control.close()
