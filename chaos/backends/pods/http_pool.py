"""Requests over a connection pool of urllib3, and their answers within bounds of bytes and time."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import IO, Any, Final

from stormcast.chaos.backends.base import BackendError
from stormcast.node.control.client import OK, Reply
from stormcast.node.core.errors import NodeError
from stormcast.node.core.names import one_line

MAX_REPLY: Final = 16 << 20
"""Bytes of an answer; journals may have more. A pod that was taken over must not fill the memory of
who asks it."""
_READ: Final = 64 << 10
_LEAST_RATE: Final = 1 << 20
"""Bytes a second."""


@dataclass(frozen=True, slots=True)
class Request:
    """One request, and the bounds of its answer."""

    method: str
    target: str
    body: bytes | None
    headers: Mapping[str, str]
    timeout: float
    """Seconds for each read of the answer."""
    most: int
    """Bytes that the body of the answer may have."""
    into: IO[bytes] | None = None
    """Where there is a file, the body of a good answer is written there as it comes, and the reply
    has none."""
    connecting: float | None = None
    """Seconds until there is a connection; None: as many as for a read."""


class TooLongError(BackendError):
    """An answer has more bytes than are taken."""


class UnreachableError(NodeError):
    """The API server, or a port of a pod behind it, did not answer."""


def send(pool: Any, base: str, request: Request) -> Reply:  # noqa: ANN401 the package has no types
    """Send one request to its target below `base`, and return the answer. HTTPError of urllib3 if
    there is none, UnreachableError if it comes too slowly, TooLongError if it is too long."""
    from urllib3 import Timeout  # noqa: PLC0415 slow to import, and optional

    answer = pool.request(
        request.method,
        base + request.target,
        body=request.body,
        headers=dict(request.headers),
        timeout=Timeout(
            connect=request.timeout if request.connecting is None else request.connecting,
            read=request.timeout,
        ),
        retries=False,
        # Read below: the pool itself would read, and decompress, whatever comes.
        preload_content=False,
    )
    data = read_bounded(answer, request.most, request.timeout, request.into)
    if data is None:
        raise TooLongError(
            f"{request.method} {request.target}: the answer has more than {request.most} bytes"
        )
    return Reply(answer.status, answer.headers.get("Content-Type", ""), data)


def read_bounded(
    answer: Any,  # noqa: ANN401 the package has no types
    most: int,
    seconds: float,
    into: IO[bytes] | None = None,
) -> bytes | None:
    """Return the body of an answer as it was sent, or write that of a good answer into a file and
    return nothing of it; None, and an end of the connection, if it has more than `most` bytes.
    UnreachableError if it comes slower than `_LEAST_RATE`, but for its
    first `seconds`: the pool bounds each read alone, and a byte now and then would never end."""
    parts: list[bytes] = []
    take: Callable[[bytes], object] = parts.append
    if into is not None:
        if answer.status in OK:
            take = into.write
        else:
            # Of an answer that is an error no more is held than of any other.
            most = min(most, MAX_REPLY)
    size, began = 0, time.monotonic()
    # Whatever there is, where `read` waits until it has as much as was asked for.
    while part := answer.read1(_READ, decode_content=False):
        size += len(part)
        is_late = time.monotonic() - began > seconds + size / _LEAST_RATE
        if size > most or is_late:
            answer.close()
            # Its place, where the number of connections has a bound; it is made anew there.
            answer.release_conn()
            if is_late:
                raise UnreachableError(f"the answer comes too slowly: {size} bytes so far")
            return None
        take(part)
    answer.release_conn()
    return b"".join(parts)


def short(error: Exception) -> str:
    """Return the last reason of a chain of errors: the only part that tells the cause."""
    text = one_line(error)
    return text.rpartition(": ")[2] or text
