"""HTTP/1.1 on one connection: bytes to requests, answers to bytes."""

from __future__ import annotations

import asyncio
from typing import Any, Final

import h11

from stormcast.node.control.answers import Answer, RefusedError, as_json
from stormcast.node.control.connections import Limits
from stormcast.node.control.streams import Stream

MAX_HEADER: Final = 8 << 10
EVENTS_AT_ONCE: Final = 64
"""Pieces of a body that are taken before the event loop does other work: chunks may have a byte
each, and cost what whole ones do. About half a millisecond."""
LINGER_SECONDS: Final = 0.5
_AROUND_HEADER: Final = len(":\r\n")
_VERSIONS: Final = (b"1.0", b"1.1")


def _header_size(request: h11.Request) -> int:
    """Return the bytes that the target and the headers of a request took, at least."""
    sizes = [len(name) + len(value) for name, value in request.headers.raw_items()]
    return len(request.target) + sum(sizes) + _AROUND_HEADER * len(sizes)


def _announced(request: h11.Request) -> int:
    """Return the bytes that a body is to have, as far as its request says."""
    return int(next((v for name, v in request.headers if name == b"content-length"), b"0"))


def _has_body(request: h11.Request) -> bool:
    is_chunked = any(name == b"transfer-encoding" for name, _ in request.headers)
    return is_chunked or _announced(request) > 0


def _too_large(most: int) -> RefusedError:
    return RefusedError(413, f"a body may have {most} bytes")


def _too_slow() -> RefusedError:
    return RefusedError(408, "the request takes too long")


def error_answer(status: int, message: str, *headers: tuple[str, str]) -> Answer:
    """Return the answer to a request that is refused."""
    return as_json({"error": message}, status)._replace(headers=headers)


class HttpConnection:
    """One connection of a client."""

    def __init__(self, stream: Stream, limits: Limits) -> None:
        self._stream = stream
        self._limits = limits
        self._patience = limits.first_byte
        """Seconds until the first byte of the next request must have come, after a handshake."""
        self._due = 0.0
        """When the request must have come whole."""
        self._http = h11.Connection(h11.SERVER, max_incomplete_event_size=MAX_HEADER)
        self._is_head = False
        """Whether the request is a HEAD: its answer has no body, only the length of one."""

    async def head(self) -> h11.Request | None:
        """Return the next request, of which `body` reads the rest; None when no other comes."""
        event: Any = h11.NEED_DATA
        # Until the first byte of a request has come, the connection is merely idle.
        if not self._http.trailing_data[0]:
            try:
                async with asyncio.timeout(self._patience):
                    self._http.receive_data(await self._stream.read())
            except TimeoutError:
                return None
        self._patience = self._limits.idle
        self._due = asyncio.get_running_loop().time() + self._limits.request
        try:
            async with asyncio.timeout_at(self._due):
                event = await self._event()
                if not isinstance(event, h11.Request):
                    return None
                self._is_head = event.method == b"HEAD"
                if event.http_version not in _VERSIONS:
                    raise h11.RemoteProtocolError("unknown version of HTTP", 505)
                if _header_size(event) > MAX_HEADER:
                    # h11 looks only at what is incomplete, and the whole may arrive at once.
                    raise h11.RemoteProtocolError(f"headers may have {MAX_HEADER} bytes", 431)
                if not _has_body(event):
                    # So that the connection goes on, if the request is refused.
                    await self._event()
                return event
        except TimeoutError:
            raise _too_slow() from None

    async def body(self, request: h11.Request, most: int) -> bytes:
        """Return the body of a request, of so many bytes at most."""
        if self._http.their_state is not h11.SEND_BODY:
            return b""
        try:
            async with asyncio.timeout_at(self._due):
                return await self._body(_announced(request), most)
        except TimeoutError:
            raise _too_slow() from None

    async def _body(self, announced: int, most: int) -> bytes:
        if announced > most:
            raise _too_large(most)
        if self._http.they_are_waiting_for_100_continue:
            self._send(h11.InformationalResponse(status_code=100, headers=[]))
            await self._stream.drain()
        parts: list[bytes] = []
        size = 0
        while isinstance(event := await self._event(), h11.Data):
            parts.append(bytes(event.data))
            size += len(event.data)
            if size > most:
                raise _too_large(most)
            if not len(parts) % EVENTS_AT_ONCE:
                await asyncio.sleep(0)
        return b"".join(parts)

    async def _event(self) -> Any:  # noqa: ANN401 one of many
        while (event := self._http.next_event()) is h11.NEED_DATA:
            self._http.receive_data(await self._stream.read())
        return event

    async def answer(self, answer: Answer, *, is_last: bool = False) -> None:
        """Send an answer; its request may not have been read to the end."""
        http = self._http
        if http.our_state not in (h11.IDLE, h11.SEND_RESPONSE):
            return
        is_last |= http.their_state is not h11.DONE
        self._put(answer, is_last=is_last)
        if answer.parts is not None and not self._is_head:
            for part in answer.parts:
                await self._drain()
                self._send(h11.Data(data=part))
        self._send(h11.EndOfMessage())
        await self._drain()
        if is_last:
            await self.linger()

    async def _drain(self) -> None:
        async with asyncio.timeout(self._limits.request):
            await self._stream.drain()

    def _put(self, answer: Answer, *, is_last: bool) -> None:
        """Send the head and `content` of an answer, without its parts and its end."""
        body = answer.body
        length = [("Content-Length", str(len(body)))] if answer.parts is None else []
        headers = [
            ("Content-Type", answer.content_type),
            *length,
            ("Cache-Control", "no-store"),
            ("X-Content-Type-Options", "nosniff"),
            *answer.headers,
            *([("Connection", "close")] if is_last else []),
        ]
        self._send(h11.Response(status_code=answer.status, headers=headers))
        if not self._is_head:
            self._send(h11.Data(data=body))

    def _send(self, event: Any) -> None:  # noqa: ANN401 any event
        data = self._http.send(event)
        if data:
            self._stream.write(data)

    async def linger(self) -> None:
        """Let the client read what was sent last."""
        await self._stream.end(LINGER_SECONDS)

    def next_cycle(self) -> bool:
        """Whether another request may come on this connection."""
        if self._http.our_state is not h11.DONE or self._http.their_state is not h11.DONE:
            return False
        self._http.start_next_cycle()
        return True

    def turn_away(self) -> None:
        """Refuse with 503, without reading a request."""
        self._put(error_answer(503, "too many connections; try again later"), is_last=True)
        self._send(h11.EndOfMessage())
