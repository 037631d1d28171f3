"""The two directions of one connection of a control endpoint, over TLS or without it."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from typing import Final

from stormcast.node.control.tls import NotTlsError, TlsBytes

READ: Final = 16 << 10
"""Bytes that are read at a time."""
NOT_TLS: Final = (
    b"HTTP/1.1 400 Bad Request\r\nContent-Type: application/json\r\nContent-Length: 63\r\n"
    b"Connection: close\r\n\r\n"
    b'{"error": "this endpoint speaks TLS; ask again with https://"}\n'
)
"""Answers a client that sends plain HTTP to an endpoint with TLS."""


class Stream:
    """Bytes that a client sends, and bytes for it."""

    def __init__(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, tls: TlsBytes | None
    ) -> None:
        self._reader = reader
        self._writer = writer
        self._tls = tls

    async def read(self) -> bytes:
        """Return what came next, b"" at the end; TlsError if there is no way to know."""
        while True:
            data = await self._reader.read(READ)
            if self._tls is None:
                return data
            try:
                found = self._tls.receive(data)
            except NotTlsError:
                self._writer.write(NOT_TLS)
                raise
            finally:
                self._send_sealed()
            # To read what has come already waits for nothing, and a handshake in tiny records, or
            # a head in them, costs much for its size.
            await asyncio.sleep(0)
            if found or not data or self._tls.has_ended:
                return found

    def write(self, data: bytes) -> None:
        """Send bytes, as soon as the connection takes them."""
        if self._tls is None:
            self._writer.write(data)
            return
        self._tls.pack(data)
        self._send_sealed()

    async def drain(self) -> None:
        """Wait until the connection takes more."""
        await self._writer.drain()

    async def end(self, seconds: float) -> None:
        """Say that nothing more comes, and read on for a moment: to close a connection with unread
        bytes resets it, and the client may lose the answer."""
        with suppress(OSError, TimeoutError):
            self._say_end()
            if self._writer.can_write_eof():
                self._writer.write_eof()
            async with asyncio.timeout(seconds):
                while await self._reader.read(READ):
                    pass

    async def finish(self, seconds: float) -> None:
        """Wait until all that was written has left; TimeoutError if the client does not take it in
        so many seconds."""
        self._say_end()
        # From here on `drain` waits for the last byte.
        self._writer.transport.set_write_buffer_limits(high=0)
        async with asyncio.timeout(seconds):
            await self._writer.drain()

    def close(self) -> None:
        """Close the connection, and give up what has not left: a transport that closes waits for a
        client that does not read, and keeps the descriptor for as long."""
        self._say_end()
        if self._writer.transport.get_write_buffer_size():
            self.abort()
        else:
            self._writer.close()

    def abort(self) -> None:
        """Close the connection at once."""
        self._writer.transport.abort()

    def _say_end(self) -> None:
        if self._tls is not None:
            self._tls.end()
            self._send_sealed()

    def _send_sealed(self) -> None:
        assert self._tls is not None
        data = self._tls.take_outgoing()
        if data and not self._writer.is_closing():
            self._writer.write(data)
