"""A control endpoint without a network: bytes in, answers out."""

from __future__ import annotations

import asyncio
import json
from typing import Any, NamedTuple

from stormcast.node.control.server import Control

HOST = "127.0.0.1:9000"


class Reply(NamedTuple):
    """One response, taken apart."""

    status: int
    headers: dict[str, str]
    body: bytes

    @property
    def error(self) -> str:
        text: str = json.loads(self.body)["error"]
        return text


class Wire(asyncio.Transport):
    """The writing half of a connection in memory."""

    def __init__(self) -> None:
        super().__init__()
        self.data = b""
        self.is_closed = False
        self.is_aborted = False
        self.has_ended = False

    def write(self, data: Any) -> None:
        self.data += bytes(data)

    def get_write_buffer_size(self) -> int:
        return 0

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        pass

    def can_write_eof(self) -> bool:
        return True

    def write_eof(self) -> None:
        self.has_ended = True

    def is_closing(self) -> bool:
        return self.is_closed

    def close(self) -> None:
        self.is_closed = True

    def abort(self) -> None:
        self.is_closed = self.is_aborted = True


def replies(data: bytes) -> list[Reply]:
    """Responses back to back."""
    found: list[Reply] = []
    while data:
        head, _, data = data.partition(b"\r\n\r\n")
        lines = head.decode().split("\r\n")
        pairs = [line.split(": ", 1) for line in lines[1:]]
        headers = {name.lower(): value for name, value in pairs}
        size = int(headers.get("content-length", "0"))
        found.append(Reply(int(lines[0].split()[1]), headers, data[:size]))
        data = data[size:]
    return found


async def exchange(served: Control, sent: bytes) -> Wire:
    """Everything that a connection sends, then its end; what it was sent."""
    reader = asyncio.StreamReader()
    reader.feed_data(sent)
    reader.feed_eof()
    wire = Wire()
    await served.serve(reader, writer_to(reader, wire))
    return wire


def request(line: str, *headers: str, body: bytes = b"", host: str | None = HOST) -> bytes:
    lines = [f"{line} HTTP/1.1", *([f"Host: {host}"] if host is not None else []), *headers]
    if body:
        lines.append(f"Content-Length: {len(body)}")
    return "\r\n".join(lines).encode() + b"\r\n\r\n" + body


def writer_to(reader: asyncio.StreamReader, wire: Wire) -> asyncio.StreamWriter:
    protocol = asyncio.StreamReaderProtocol(reader)
    protocol.connection_made(wire)
    return asyncio.StreamWriter(wire, protocol, reader, asyncio.get_running_loop())
