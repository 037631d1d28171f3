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
from collections.abc import Callable, Mapping
from functools import partial
from typing import Final

import h11

from stormcast.machine import in_words, is_exhausted
from stormcast.node.admission import address_key
from stormcast.node.control.answers import Answer, Handler, Pass, RefusedError, Table
from stormcast.node.control.connections import (
    Connections,
    Kept,
    Limits,
    control_limits,
    probe_limits,
)
from stormcast.node.control.http_connection import HttpConnection, error_answer
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

MAX_BODY: Final = 64 << 10
ACCEPTS: Final = 8
"""Connections accepted in one turn of the loop. Each has a descriptor before it is counted."""

OPEN: Final = frozenset(("/livez", "/readyz"))
"""Paths that need no token: they tell no secret, and who checks them has no place for a token."""
TOKEN_HEADER: Final = b"x-stormcast-token"
"""Accepted beside Authorization, which not every proxy passes on."""


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
        connection = HttpConnection(stream, self.connections.limits)
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
            # While the client takes the last answer, the connection has a place, and may lose it.
            self.connections.rest(kept)
            await stream.finish(self.connections.limits.request)
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

    async def _serve_one(self, connection: HttpConnection, kept: Kept) -> bool:
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
            await connection.answer(error_answer(error.status, str(error), *error.headers))
        except h11.RemoteProtocolError as error:
            self.refused += 1
            failed = error_answer(error.error_status_hint, f"bad request: {error}")
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
