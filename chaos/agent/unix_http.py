"""HTTP over a unix socket, to ask members and agents of this machine."""

from __future__ import annotations

import http.client
import json
import os
import socket
from contextlib import closing
from pathlib import Path
from typing import Final, NamedTuple

from stormcast.node.core.errors import NodeError

MAX_ANSWER: Final = 16 << 20
"""Bytes of an answer: a process that was damaged or replaced must not fill the asker's memory."""
_OK: Final = range(200, 300)


class NoAnswerError(NodeError):
    """Nobody listens at the socket, or the answer is no HTTP, or too long."""


class Answered(NamedTuple):
    """An answer of any status."""

    status: int
    kind: str
    """Its Content-Type."""
    text: str

    @property
    def is_ok(self) -> bool:
        """Whether the status says success."""
        return self.status in _OK


def ask(path: Path, method: str, target: str, body: object, timeout: float) -> Answered:
    """Send one request to the socket at `path`, with `body` as JSON, or without a body (None)."""
    data = None if body is None else json.dumps(body)
    headers = {} if data is None else {"Content-Type": "application/json"}
    try:
        with closing(_UnixConnection(path, timeout)) as connection:
            connection.request(method, target, data, headers)
            answer = connection.getresponse()
            kind = answer.getheader("Content-Type") or ""
            content = answer.read(MAX_ANSWER + 1)
            if len(content) > MAX_ANSWER:
                raise NoAnswerError(
                    f"{method} {target} on {path}: the answer has more than {MAX_ANSWER} bytes"
                )
            return Answered(answer.status, kind, content.decode(errors="replace"))
    except (OSError, http.client.HTTPException) as error:
        raise NoAnswerError(f"{method} {target} on {path}: {error!r}") from None


class _UnixConnection(http.client.HTTPConnection):
    """HTTP over a unix socket, however long its path is."""

    def __init__(self, path: Path, timeout: float) -> None:
        super().__init__("localhost", timeout=timeout)
        self._path = path

    def connect(self) -> None:
        self.sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self.sock.settimeout(self.timeout)
        # A socket address has room for 107 bytes: so name the folder by its open file descriptor.
        folder = os.open(self._path.parent, os.O_PATH | os.O_DIRECTORY)
        try:
            self.sock.connect(f"/proc/self/fd/{folder}/{self._path.name}")
        except OSError:
            self.sock.close()
            raise
        finally:
            os.close(folder)
