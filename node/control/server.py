"""The control endpoint: HTTP/1.1 for those who run members, on loopback, a unix socket, or with a
token.

Everything that comes is bounded: connections, headers, bodies, and the time each may take. A
browser must not be led to drive it: requests that a page made (Origin, Sec-Fetch-Site), or for
another name than is bound (DNS rebinding), are refused. What there is to ask stands in a table;
`Control` only knows how to be asked.
"""

from __future__ import annotations

import asyncio
import hmac
import json
import re
from collections.abc import Awaitable, Callable, Iterable, Mapping
from contextlib import suppress
from math import isfinite
from typing import Any, Final, NamedTuple

import h11

from stormcast.node.control.settings import ControlSettings
from stormcast.node.control.sockets import inode_of, listen_tcp, listen_unix, remove_socket
from stormcast.node.core.errors import NodeError

MAX_HEADER: Final = 8 << 10
MAX_BODY: Final = 64 << 10
MAX_DEPTH: Final = 32
"""How deep a body may be nested: more than anything that can be asked for takes."""
MAX_CONNECTIONS: Final = 32
IDLE_SECONDS: Final = 75.0
"""For the next request of a connection. Longer than a scraper's interval of a minute."""
REQUEST_SECONDS: Final = 10.0
"""For all of a request, once it has begun, and for taking the answer."""
LINGER_SECONDS: Final = 0.5
_READ: Final = 16 << 10
_VERSIONS: Final = (b"1.0", b"1.1")
_SURROGATE: Final = re.compile("[\ud800-\udfff]")
"""JSON can spell half of a pair; no encoding can."""

OPEN: Final = frozenset(("/livez", "/readyz"))
"""What anybody may ask: it tells no secret, and who asks for it has no place for a token."""
TOKEN_HEADER: Final = b"x-stormcast-token"
"""Beside Authorization, which not every proxy passes on."""

Handler = Callable[[object], "Answer | Awaitable[Answer]"]
"""Takes a request's body: its bytes, or from within one process the value that they would spell."""
Table = Mapping[str, Mapping[str, Handler]]
"""Endpoints by path, then by method."""
Pass = Callable[[str, str, bytes], Awaitable["Answer"]]
"""Takes method, target and body of what is below a path, whatever it is."""


class Answer(NamedTuple):
    """What is sent back."""

    content: object
    """Bytes as they are; anything else is a value, which is written as JSON."""
    status: int = 200
    content_type: str = "application/json"
    headers: tuple[tuple[str, str], ...] = ()
    parts: Iterable[bytes] | None = None
    """The body where it is too long to be held whole."""

    @property
    def body(self) -> bytes:
        """As it is written."""
        if isinstance(self.content, bytes):
            return self.content
        return json.dumps(self.content).encode() + b"\n"


class RefusedError(NodeError):
    """A request that gets an error for an answer."""

    def __init__(self, status: int, message: str, *headers: tuple[str, str]) -> None:
        super().__init__(message)
        self.status = status
        self.headers = headers


def as_json(value: object, status: int = 200) -> Answer:
    """A value as an answer."""
    return Answer(value, status)


def parse_body(body: object) -> Any:  # noqa: ANN401 whatever was sent
    """The JSON value of a request; an empty one is an empty mapping."""
    if not isinstance(body, bytes):
        return body
    if not body.strip():
        return {}
    try:
        value = json.loads(body, parse_constant=_refuse_constant)
    except (ValueError, RecursionError) as error:
        raise RefusedError(400, f"the body is no JSON: {error}") from None
    _check_plain(value)
    return value


def _refuse_constant(name: str) -> None:
    raise RefusedError(400, f"the body is no JSON: {name} is no number there; write a finite one")


def _check_plain(value: object) -> None:
    """Refuse what no command can mean, and what those who show or store it could not write: text
    that is half a character, numbers without an end, lists within lists within lists."""
    level = [value]
    for _ in range(MAX_DEPTH):
        inner: list[object] = []
        for one in level:
            if isinstance(one, dict):
                inner += (*one, *one.values())
            elif isinstance(one, list):
                inner += one
            elif isinstance(one, str) and _SURROGATE.search(one):
                raise RefusedError(
                    400, f"the body has half a character in {one!r}; write all of it"
                )
            elif isinstance(one, float) and not isfinite(one):
                raise RefusedError(400, "the body has a number that is too large; write less")
        level = inner
        if not level:
            return
    raise RefusedError(400, f"the body is nested deeper than {MAX_DEPTH} times; write it flatter")


def parse_mapping(body: object, example: str) -> dict[str, Any]:
    """The JSON mapping of a request."""
    value = parse_body(body)
    if not isinstance(value, dict) or not value:
        raise RefusedError(400, f"write a mapping such as {example}")
    return value


class Control:
    """The endpoint of one member."""

    def __init__(
        self,
        settings: ControlSettings,
        table: Table,
        on_failure: Callable[[Exception], None] | None = None,
        *,
        max_body: int = MAX_BODY,
        passes: Mapping[str, Pass] | None = None,
    ) -> None:
        self.settings = settings
        self._max_body = max_body
        self._passes = passes or {}
        """By the beginning of a path: who answers everything below it."""
        self._on_failure = on_failure or (lambda _error: None)
        # Is told of bugs behind an endpoint.
        self.requests = 0
        self.refused = 0
        self._table = table
        self.hosts: frozenset[str] = frozenset()
        """What a request may call us; empty: anything."""
        self._server: asyncio.Server | None = None
        self._connections: set[asyncio.Task[None]] = set()
        self._inode = 0

    # -- Life ----------------------------------------------------------------------------------

    async def open(self) -> str:
        """Listen; returns where."""
        settings = self.settings
        if settings.path:
            listening = listen_unix(settings.path)
            self._inode = inode_of(settings.path)
            where = f"unix:{settings.path}"
        else:
            listening = listen_tcp(settings.host, settings.port)
            port = listening.getsockname()[1]
            host = f"[{settings.host}]" if ":" in settings.host else settings.host
            where = f"http://{host}:{port}"
            if settings.is_loopback:
                self.hosts = frozenset((f"{host}:{port}", f"localhost:{port}"))
        # The socket is made here: a name would be looked up on a thread.
        self._server = await asyncio.start_server(self.serve, sock=listening, limit=_READ)
        return where

    async def close(self) -> None:
        """Listen no more, and end what is open."""
        if self._server is None:
            return
        self._server.close()
        for task in self._connections:
            task.cancel()
        await asyncio.gather(*self._connections, return_exceptions=True)
        remove_socket(self.settings.path, self._inode)

    # -- One connection ------------------------------------------------------------------------

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Answer the requests of one connection, one after the other."""
        task = asyncio.current_task()
        assert task is not None
        connection = _Connection(reader, writer, self._max_body)
        try:
            if len(self._connections) >= MAX_CONNECTIONS:
                self.refused += 1
                connection.turn_away()
                return
            self._connections.add(task)
            while await self._serve_one(connection):
                pass
        except (OSError, TimeoutError):
            # It went away, or takes too long to take its answer.
            connection.abort()
        except asyncio.CancelledError:
            # Closing; the server asks nobody how this ended.
            pass
        finally:
            self._connections.discard(task)
            connection.close()

    async def _serve_one(self, connection: _Connection) -> bool:
        """Answer one request; returns whether another may follow."""
        try:
            request, body = await connection.request()
            if request is None:
                return False
            self.requests += 1
            answer = await self._answer(request, body)
        except RefusedError as error:
            self.refused += 1
            await connection.answer(_error(error.status, str(error), *error.headers))
        except h11.RemoteProtocolError as error:
            self.refused += 1
            failed = _error(error.error_status_hint, f"bad request: {error}")
            await connection.answer(failed, is_last=True)
            return False
        else:
            await connection.answer(answer)
        return connection.next_cycle()

    async def _answer(self, request: h11.Request, body: bytes) -> Answer:
        target = request.target.decode("ascii", "replace")
        path = target.partition("?")[0]
        self._check(request, path)
        handler = self._handler(request.method.decode("ascii", "replace"), path, target)
        try:
            answer = handler(body)
            return answer if isinstance(answer, Answer) else await answer
        except RefusedError:
            raise
        except NodeError as error:
            raise RefusedError(400, str(error)) from None
        except Exception as error:  # noqa: BLE001 a question must not end the member
            self._on_failure(error)
            raise RefusedError(500, f"{path} failed: {type(error).__name__}; a bug") from None

    def _handler(
        self, method: str, path: str, target: str
    ) -> Callable[[bytes], Answer | Awaitable[Answer]]:
        for beginning, answer in self._passes.items():
            if path.startswith(beginning):
                return lambda body: answer(method, target, body)
        methods = self._table.get(path)
        if methods is None:
            raise RefusedError(404, f"no {path}; there is {', '.join(sorted(self._table))}")
        handler = methods.get(method)
        if handler is None:
            allowed = ", ".join(sorted(methods))
            raise RefusedError(405, f"{path} takes {allowed}", ("Allow", allowed))
        return handler

    def _check(self, request: h11.Request, path: str) -> None:
        """Refuse whoever has no business here."""
        headers: dict[bytes, list[bytes]] = {}
        for name, value in request.headers:
            headers.setdefault(name, []).append(value)
        site = headers.get(b"sec-fetch-site", [b"none"])
        if b"origin" in headers or site not in ([b"none"], [b"same-origin"]):
            raise RefusedError(403, "a page in a browser may not ask; use another client")
        host = headers.get(b"host", [b""])[0].decode("ascii", "replace").lower()
        if self.hosts and host not in self.hosts:
            raise RefusedError(
                403, f"the Host is {host!r}, and only {', '.join(sorted(self.hosts))} is served"
            )
        if self.settings.token and path not in OPEN:
            bearer = headers.get(b"authorization", [])
            given = headers.get(TOKEN_HEADER, [])
            token = self.settings.token.encode()
            if not (_is_one(bearer, b"Bearer " + token) or _is_one(given, token)):
                raise RefusedError(
                    401,
                    "the token is missing or wrong; send Authorization: Bearer TOKEN, or "
                    "X-Stormcast-Token: TOKEN",
                    ("WWW-Authenticate", "Bearer"),
                )


def _is_one(given: list[bytes], wanted: bytes) -> bool:
    """Whether a header was sent once, and says this. In constant time: how long it takes says
    nothing about how much of it is right."""
    return len(given) == 1 and hmac.compare_digest(given[0], wanted)


def _error(status: int, message: str, *headers: tuple[str, str]) -> Answer:
    return as_json({"error": message}, status)._replace(headers=headers)


class _Connection:
    """One connection: bytes to requests, answers to bytes."""

    def __init__(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, max_body: int = MAX_BODY
    ) -> None:
        self._reader = reader
        self._writer = writer
        self._max_body = max_body
        self._http = h11.Connection(h11.SERVER, max_incomplete_event_size=MAX_HEADER)
        self._is_head = False
        """Whether the answer has no body, only its length."""

    async def request(self) -> tuple[h11.Request | None, bytes]:
        """The next request with its body; None when there is no other."""
        event: Any = h11.NEED_DATA
        # Nothing is begun until a byte of it is there: until then it is merely idle.
        if not self._http.trailing_data[0]:
            try:
                async with asyncio.timeout(IDLE_SECONDS):
                    self._http.receive_data(await self._reader.read(_READ))
            except TimeoutError:
                return None, b""
        try:
            async with asyncio.timeout(REQUEST_SECONDS):
                event = await self._event()
                if not isinstance(event, h11.Request):
                    return None, b""
                self._is_head = event.method == b"HEAD"
                if event.http_version not in _VERSIONS:
                    raise h11.RemoteProtocolError("unknown version of HTTP", 505)
                return event, await self._body(event)
        except TimeoutError:
            raise RefusedError(408, "the request takes too long") from None

    async def _body(self, request: h11.Request) -> bytes:
        announced = next((v for name, v in request.headers if name == b"content-length"), b"0")
        if int(announced) > self._max_body:
            raise RefusedError(413, f"a body may have {self._max_body} bytes")
        if self._http.they_are_waiting_for_100_continue:
            self._send(h11.InformationalResponse(status_code=100, headers=[]))
            await self._writer.drain()
        parts: list[bytes] = []
        size = 0
        while isinstance(event := await self._event(), h11.Data):
            parts.append(bytes(event.data))
            size += len(event.data)
            if size > self._max_body:
                raise RefusedError(413, f"a body may have {self._max_body} bytes")
        return b"".join(parts)

    async def _event(self) -> Any:  # noqa: ANN401 one of many
        while (event := self._http.next_event()) is h11.NEED_DATA:
            self._http.receive_data(await self._reader.read(_READ))
        return event

    async def answer(self, answer: Answer, *, is_last: bool = False) -> None:
        """Send it; what it is about may not have been read to its end."""
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
            await self._linger()

    async def _drain(self) -> None:
        async with asyncio.timeout(REQUEST_SECONDS):
            await self._writer.drain()

    def _put(self, answer: Answer, *, is_last: bool) -> None:
        """Everything but what comes in parts, and the end."""
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
            self._writer.write(data)

    async def _linger(self) -> None:
        """Read what is still coming, for a moment: a connection that is closed upon unread bytes
        is reset, and the answer with it."""
        with suppress(OSError, TimeoutError):
            if self._writer.can_write_eof():
                self._writer.write_eof()
            async with asyncio.timeout(LINGER_SECONDS):
                while await self._reader.read(_READ):
                    pass

    def next_cycle(self) -> bool:
        """Whether another request may come on this connection."""
        if self._http.our_state is not h11.DONE or self._http.their_state is not h11.DONE:
            return False
        self._http.start_next_cycle()
        return True

    def turn_away(self) -> None:
        """Say that there is no room, whatever is asked."""
        self._put(_error(503, "too many connections; try again later"), is_last=True)
        self._send(h11.EndOfMessage())

    def close(self) -> None:
        """End it, once what was written has left."""
        self._writer.close()

    def abort(self) -> None:
        """End it at once."""
        self._writer.transport.abort()
