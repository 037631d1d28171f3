"""Asks control endpoints of this machine, over their unix sockets: HTTP as bytes, without any I/O,
and two ways to wait for it."""

from __future__ import annotations

import asyncio
import json
import os
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import h11

from stormcast.node.core.errors import NodeError

MAX_ANSWER: Final = 16 << 20
"""Bytes of an answer: a process that was damaged or replaced must not fill the asker's memory."""
_READ: Final = 64 << 10
OK: Final = range(200, 300)


class HttpError(NodeError):
    """A request that cannot be written, or an answer that is no HTTP."""


class LongAnswerError(HttpError):
    """An answer has more bytes than are taken."""


class NoAnswerError(NodeError):
    """Nobody listens at the socket, or the answer is no HTTP, or too long."""


@dataclass(frozen=True, slots=True)
class Reply:
    """One answer, of any status."""

    status: int
    kind: str
    """Its Content-Type."""
    body: bytes

    @property
    def is_ok(self) -> bool:
        """Whether the status says success."""
        return self.status in OK

    @property
    def text(self) -> str:
        return self.body.decode(errors="replace")

    def value(self) -> Any:  # noqa: ANN401 as answered
        """Return the body: its value where it is JSON, else its text."""
        if not self.kind.startswith("application/json"):
            return self.text
        try:
            return json.loads(self.text)
        except ValueError:
            return self.text


class HttpExchange:
    """One request, and what has come of its answer."""

    def __init__(self, method: str, target: str, body: bytes) -> None:
        self._http = h11.Connection(h11.CLIENT)
        self._status = 0
        self._kind = ""
        self._parts: list[bytes] = []
        self._size = 0
        headers = [
            ("Host", "localhost"),
            ("Content-Type", "application/json"),
            ("Content-Length", str(len(body))),
        ]
        try:
            head = self._http.send(h11.Request(method=method, target=target, headers=headers))
            rest = self._http.send(h11.Data(data=body))
            self._http.send(h11.EndOfMessage())
        except h11.ProtocolError as error:
            raise HttpError(str(error)) from None
        self.request: Final = (head or b"") + (rest or b"")
        """The bytes to send."""

    def receive(self, data: bytes) -> Reply | None:
        """Take what came, b"" for the end of the connection; return the answer if it is whole."""
        if not data and not self._status:
            raise ConnectionResetError("the connection was closed without an answer")
        try:
            self._http.receive_data(data)
            while (event := self._http.next_event()) is not h11.NEED_DATA:
                if isinstance(event, h11.EndOfMessage):
                    return Reply(self._status, self._kind, b"".join(self._parts))
                self._take(event)
        except h11.ProtocolError as error:
            raise HttpError(str(error)) from None
        return None

    def _take(self, event: Any) -> None:  # noqa: ANN401 one of many
        if isinstance(event, h11.Response):
            self._status = event.status_code
            self._kind = dict(event.headers).get(b"content-type", b"").decode("ascii", "replace")
        elif isinstance(event, h11.Data):
            self._parts.append(bytes(event.data))
            self._size += len(event.data)
            if self._size > MAX_ANSWER:
                raise LongAnswerError(f"the answer has more than {MAX_ANSWER} bytes")


def ask(path: Path, method: str, target: str, body: object, timeout: float) -> Reply:
    """Send one request to the socket at `path`, with `body` as JSON, or without a body (None), and
    wait so many seconds for each part of the answer."""
    data = b"" if body is None else json.dumps(body).encode()
    what = f"{method} {target} on {path}"
    try:
        with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as asked:
            asked.settimeout(timeout)
            with _address(path) as address:
                asked.connect(address)
            exchange = HttpExchange(method, target, data)
            asked.sendall(exchange.request)
            while (reply := exchange.receive(asked.recv(_READ))) is None:
                pass
            return reply
    except LongAnswerError as error:
        raise NoAnswerError(f"{what}: {error}") from None
    except (OSError, HttpError) as error:
        raise NoAnswerError(f"{what}: {error!r}") from None


async def ask_from_loop(path: Path, method: str, target: str, body: bytes) -> Reply:
    """Do the same within an event loop, for as long as the caller waits; OSError or HttpError if
    there is no answer."""
    exchange = HttpExchange(method, target, body)
    with _address(path) as address:
        reader, writer = await asyncio.open_unix_connection(address)
    try:
        writer.write(exchange.request)
        while (reply := exchange.receive(await reader.read(_READ))) is None:
            pass
        return reply
    finally:
        writer.close()


@contextmanager
def _address(path: Path) -> Iterator[str]:
    """Provide a path to a socket that a socket address has room for, which is 107 bytes: it names
    the folder by its open file descriptor."""
    folder = os.open(path.parent, os.O_PATH | os.O_DIRECTORY)
    try:
        yield f"/proc/self/fd/{folder}/{path.name}"
    finally:
        os.close(folder)
