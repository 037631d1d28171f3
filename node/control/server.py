"""The control endpoint: HTTP/1.1 for those who run members, on loopback, a unix socket, or over TLS
with a token.

Connections, headers, bodies, and the time each may take are bounded; an idle connection ends when a
new one needs its place. A web page must not use a browser to control a member: requests that a page
made (Origin, Sec-Fetch-Site), or for another name than is bound (DNS rebinding), are refused. The
endpoints are a table that the caller hands in; `Control` only speaks HTTP.
"""

from __future__ import annotations

import asyncio
import hmac
import json
import re
from collections.abc import Awaitable, Callable, Iterable, Mapping
from functools import partial
from math import isfinite
from typing import Any, Final, NamedTuple

import h11

from stormcast.machine import in_words, is_exhausted
from stormcast.node.admission import address_key
from stormcast.node.control.connections import (
    Connections,
    Kept,
    Limits,
    control_limits,
    probe_limits,
)
from stormcast.node.control.settings import ControlSettings
from stormcast.node.control.sockets import (
    BACKLOG,
    inode_of,
    listen_tcp,
    listen_unix,
    remove_socket,
)
from stormcast.node.control.streams import READ, Stream
from stormcast.node.control.tls import Certificate, TlsBytes, TlsError
from stormcast.node.core.errors import NodeError

MAX_HEADER: Final = 8 << 10
MAX_BODY: Final = 64 << 10
EVENTS_AT_ONCE: Final = 64
"""Pieces of a body that are taken before the event loop does other work: chunks may have a byte
each, and cost what whole ones do. About half a millisecond."""
MAX_DEPTH: Final = 32
"""The deepest nesting of a body: deeper than any command needs."""
LINGER_SECONDS: Final = 0.5
ACCEPTS: Final = 8
"""Connections accepted in one turn of the loop. Each has a descriptor before it is counted."""
_AROUND_HEADER: Final = len(":\r\n")
_VERSIONS: Final = (b"1.0", b"1.1")
_SURROGATE: Final = re.compile("[\ud800-\udfff]")
"""JSON can spell half of a surrogate pair; no encoding can."""

OPEN: Final = frozenset(("/livez", "/readyz"))
"""Paths that need no token: they tell no secret, and who checks them has no place for a token."""
TOKEN_HEADER: Final = b"x-stormcast-token"
"""Accepted beside Authorization, which not every proxy passes on."""

Handler = Callable[[object], "Answer | Awaitable[Answer]"]
"""Takes a request's body: bytes, or, when called within the process, the value parsed already."""
Table = Mapping[str, Mapping[str, Handler]]
"""Endpoints by path, then by method."""
Pass = Callable[[str, str, bytes], Awaitable["Answer"]]
"""Takes method, target and body of any request below a path."""


class Answer(NamedTuple):
    """The answer to a request."""

    content: object
    """Bytes are sent as they are; any other value is sent as JSON."""
    status: int = 200
    content_type: str = "application/json"
    headers: tuple[tuple[str, str], ...] = ()
    parts: Iterable[bytes] | None = None
    """The rest of the body, for a body that is too long to be held whole."""

    @property
    def body(self) -> bytes:
        """The bytes that are sent for `content`."""
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
    """Return an answer with a value as JSON."""
    return Answer(value, status)


def parse_body(body: object) -> Any:  # noqa: ANN401 whatever was sent
    """Return the JSON value of a request's body; an empty body is an empty mapping."""
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
    """Refuse text with half a surrogate pair, infinite numbers, and deep nesting: no command
    means them, and a program that shows or stores the value may be unable to write them."""
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
    """Return the JSON mapping of a request's body; refuse an empty one, and other values."""
    value = parse_body(body)
    if not isinstance(value, dict) or not value:
        raise RefusedError(400, f"write a mapping such as {example}")
    return value


class Control:
    """The control endpoint of one process."""

    def __init__(
        self,
        settings: ControlSettings,
        table: Table,
        on_failure: Callable[[Exception], None] | None = None,
        *,
        say: Callable[[str], None] | None = None,
        max_body: int = MAX_BODY,
        passes: Mapping[str, Pass] | None = None,
        limits: Limits | None = None,
    ) -> None:
        self.settings = settings
        self._max_body = max_body
        self._passes = passes or {}
        """By the beginning of a path: the function that answers every path below it."""
        self._on_failure = on_failure or (lambda _error: None)
        # Called with the exception when a bug makes an endpoint fail.
        self._say = say or (lambda _line: None)
        self._certificate: Certificate | None = None
        self.requests = 0
        self.refused = 0
        self._table = table
        self.hosts: frozenset[str] = frozenset()
        """Values of the header Host that are served; empty: all."""
        self._server: asyncio.Server | None = None
        self.connections = Connections(limits or control_limits())
        self._inode = 0

    @classmethod
    def for_probes(
        cls,
        settings: ControlSettings,
        table: Table,
        on_failure: Callable[[Exception], None] | None = None,
    ) -> Control:
        """Return an endpoint that serves nothing but the paths which need no token. Its places are
        its own, so that a probe is answered whatever is done to the control endpoint."""
        probes = {path: methods for path, methods in table.items() if path in OPEN}
        return cls(settings, probes, on_failure, limits=probe_limits())

    # -- Life ----------------------------------------------------------------------------------

    async def open(self) -> str:
        """Listen, and return the address."""
        settings = self.settings
        if settings.tls.is_on:
            self._certificate = Certificate(settings.tls, self._say)
        if settings.path:
            listening = listen_unix(settings.path, settings.setting)
            self._inode = inode_of(settings.path)
            where = f"unix:{settings.path}"
        else:
            listening = listen_tcp(settings.host, settings.port, settings.setting)
            port = listening.getsockname()[1]
            host = f"[{settings.host}]" if ":" in settings.host else settings.host
            where = f"http{'s' if settings.tls.is_on else ''}://{host}:{port}"
            if settings.is_loopback:
                self.hosts = frozenset((f"{host}:{port}", f"localhost:{port}"))
        # Given a socket, and no host: asyncio would look a host up on a thread.
        self._server = await asyncio.start_server(
            self.serve, sock=listening, limit=READ, backlog=ACCEPTS
        )
        # asyncio accepts as many in a turn as the kernel is to queue; more may queue.
        listening.listen(BACKLOG)
        return where

    async def close(self) -> None:
        """Stop listening, and end the open connections."""
        if self._server is None:
            return
        self._server.close()
        tasks = self.connections.tasks()
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        remove_socket(self.settings.path, self._inode)

    # -- One connection ------------------------------------------------------------------------

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Answer the requests of one connection, one after the other."""
        task = asyncio.current_task()
        assert task is not None
        stream = Stream(reader, writer, self._new_tls())
        connection = _Connection(stream, self.connections.limits)
        kept = Kept(address_key(writer.get_extra_info("peername")), task, writer.transport)
        try:
            if not self.connections.admit(kept):
                self.refused += 1
                if self._certificate is None:
                    connection.turn_away()
                return
            while await self._serve_one(connection, kept):
                self.connections.rest(kept)
                # Many requests may have come at once, and to take one waits for nothing.
                await asyncio.sleep(0)
        except (OSError, TimeoutError, TlsError):
            # The client went away, or takes too long to take its answer.
            stream.abort()
        except asyncio.CancelledError:
            # `close` or an eviction cancelled this task, and needs no result of it.
            pass
        finally:
            self.connections.discard(kept)
            stream.close()

    def _new_tls(self) -> TlsBytes | None:
        if self._certificate is None:
            return None
        return TlsBytes(self._certificate.context(asyncio.get_running_loop().time()))

    async def _serve_one(self, connection: _Connection, kept: Kept) -> bool:
        """Answer one request; return whether another may follow."""
        try:
            request = await connection.head()
            if request is None:
                return False
            self.requests += 1
            # Before the body, which costs memory and time: whoever may not ask sends none.
            path, handler = self._admit(request)
            body = await connection.body(request, 0 if path in OPEN else self._max_body)
            kept.is_known |= path not in OPEN
            kept.is_working = True
            answer = await self._answer(path, handler, body)
        except RefusedError as error:
            self.refused += 1
            await connection.answer(_error(error.status, str(error), *error.headers))
        except h11.RemoteProtocolError as error:
            self.refused += 1
            failed = _error(error.error_status_hint, f"bad request: {error}")
            await connection.answer(failed, is_last=True)
            return False
        except TlsError:
            # Whoever it is has been told, and may need a moment to read it.
            self.refused += 1
            await connection.linger()
            return False
        else:
            await connection.answer(answer)
        return connection.next_cycle()

    def _admit(self, request: h11.Request) -> tuple[str, Handler]:
        """Return the path of a request, and the function that answers it; refuse a request that
        nobody may make."""
        target = request.target.decode("ascii", "replace")
        path = target.partition("?")[0]
        self._check(request, path)
        return path, self._handler(request.method.decode("ascii", "replace"), path, target)

    async def _answer(self, path: str, handler: Handler, body: bytes) -> Answer:
        try:
            answer = handler(body)
            return answer if isinstance(answer, Answer) else await answer
        except RefusedError:
            raise
        except NodeError as error:
            raise RefusedError(400, str(error)) from None
        except Exception as error:  # noqa: BLE001 a question must not end the member
            if is_exhausted(error):
                # Whoever asks is told, and no traceback would lead to a bug.
                raise RefusedError(503, f"{path}: {in_words(error)}") from None
            self._on_failure(error)
            raise RefusedError(500, f"{path} failed: {type(error).__name__}; a bug") from None

    def _handler(self, method: str, path: str, target: str) -> Handler:
        for beginning, answer in self._passes.items():
            if path.startswith(beginning):
                return partial(answer, method, target)
        methods = self._table.get(path)
        if methods is None:
            raise RefusedError(404, f"no {path}; there is {', '.join(sorted(self._table))}")
        handler = methods.get(method)
        if handler is None:
            allowed = ", ".join(sorted(methods))
            raise RefusedError(405, f"{path} takes {allowed}", ("Allow", allowed))
        return handler

    def _check(self, request: h11.Request, path: str) -> None:
        """Refuse requests of web pages, for another host name, or without the token."""
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
    """Whether a header was sent once, with this value. It compares in constant time: the duration
    does not tell how much of a guess is right."""
    return len(given) == 1 and hmac.compare_digest(given[0], wanted)


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


def _error(status: int, message: str, *headers: tuple[str, str]) -> Answer:
    return as_json({"error": message}, status)._replace(headers=headers)


class _Connection:
    """One connection: bytes to requests, answers to bytes."""

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
        self._put(_error(503, "too many connections; try again later"), is_last=True)
        self._send(h11.EndOfMessage())
