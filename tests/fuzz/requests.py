"""HTTP requests that nobody should send, for the endpoints of members, keepers and agents.

A request is without the token, with a wrong one, with the right one and a body that no command
means; as large as a body may be, or larger, or in chunks of a byte or three; or no request at all;
or never whole. A few are good: they must be answered all the time.
"""

from __future__ import annotations

import json
import socket
import struct
import time
from collections import deque
from contextlib import suppress
from dataclasses import dataclass
from random import Random
from typing import Any, Final, NamedTuple

from tests.fuzz.tallies import Tally

CHUNK: Final = 8
PATIENCE: Final = 25.0
"""Seconds until a request is answered: an endpoint waits ten for the rest of one."""
IDLE: Final = 12
RESET: Final = struct.pack("ii", 1, 0)
PASSED_ON: Final = "/member/"
"""Beginning of paths below which a keeper asks its member."""
SOME_BYTES: Final = 2000
"""Of a body in tiny chunks."""
MANY_CHUNKS: Final = 8000
"""Of a few bodies. Many more hold up whoever is asked: 65,000 take it a quarter of a second."""
_REFUSED: Final = frozenset({400, 401, 403, 404, 405, 408, 409, 411, 413, 414, 431, 501, 505})
_BUSY: Final = 503


@dataclass(frozen=True, slots=True, kw_only=True)
class Door:
    """An endpoint under attack."""

    name: str
    """Of the member, or of what else it belongs to."""
    host: str
    port: int
    token: str
    reads: tuple[str, ...]
    """Paths that GET answers with the token."""
    commands: tuple[str, ...]
    """Paths that take a body by POST, and refuse one that they do not understand."""
    largest: int
    """Bytes of a body, at most."""

    @classmethod
    def from_words(cls, words: dict[str, Any]) -> Door:
        """Read what `asdict` has made of one."""
        lists = {key: tuple(words[key]) for key in ("reads", "commands")}
        return cls(**{**words, **lists})


class Request(NamedTuple):
    """One hostile request."""

    number: int
    data: bytes
    recipe: str
    wanted: frozenset[int]
    """Statuses that may answer it; empty: it is never whole, and any refusal or none may come."""
    is_last: bool
    """Whether the connection is over after it."""


def requests(door: Door, seed: int, chunk: int) -> list[Request]:
    """Return the requests of a chunk, in the order in which connections carry them."""
    dice = Random(f"{seed} {chunk} requests")
    return [_request(door, dice, chunk * CHUNK + n) for n in range(CHUNK)]


def _request(door: Door, dice: Random, number: int) -> Request:
    how = dice.random()
    if how < 0.03:
        data = _head(door, "GET", dice.choice(door.reads), _bearer(door))
        return Request(number, data, "good", frozenset({200}), is_last=False)
    if how < 0.3:
        return _unknown(door, dice, number)
    if how < 0.6:
        return _with_token(door, dice, number)
    if how < 0.62:
        return _bulky(door, dice, number)
    if how < 0.85:
        return _malformed(door, dice, number)
    return _unfinished(door, dice, number)


def _bearer(door: Door) -> list[tuple[str, str]]:
    return [("Authorization", f"Bearer {door.token}")]


def _head(
    door: Door, method: str, target: str, headers: list[tuple[str, str]], body: bytes = b""
) -> bytes:
    lines = [f"{method} {target} HTTP/1.1", f"Host: {door.host}:{door.port}"]
    lines += [f"{name}: {value}" for name, value in headers]
    if body or method == "POST":
        lines.append(f"Content-Length: {len(body)}")
    return "\r\n".join([*lines, "", ""]).encode("latin-1", "replace") + body


# -- Kinds of lies -------------------------------------------------------------------------------


def _unknown(door: Door, dice: Random, number: int) -> Request:
    """A request of somebody who has no token, or a wrong one."""
    token = door.token
    wrong: list[list[tuple[str, str]]] = [
        [],
        [("Authorization", "Bearer ")],
        [("Authorization", f"Bearer {token[:-1]}")],
        [("Authorization", f"Bearer {token}x")],
        [("Authorization", f"Basic {token}")],
        [("Authorization", token)],
        [("Authorization", f"Bearer {token}")] * 2,
        [("X-Stormcast-Token", "é" * len(token))],
        [("X-Stormcast-Token", "".join(dice.choice("0123456789abcdef") for _ in token))],
    ]
    method = dice.choice(("GET", "POST", "POST", "DELETE"))
    path = dice.choice((*door.reads, *door.commands))
    body = _body(dice) if method == "POST" else b""
    data = _head(door, method, path, dice.choice(wrong), body)
    return Request(number, data, "no-token", frozenset({401}), is_last=False)


def _with_token(door: Door, dice: Random, number: int) -> Request:
    """The right token, and what nobody can mean."""
    headers = _bearer(door)
    how = dice.randrange(6)
    if how == 0:
        headers.append(dice.choice((("Origin", "http://evil"), ("Sec-Fetch-Site", "cross-site"))))
        data = _head(door, "POST", dice.choice(door.commands), headers, b"{}")
        return Request(number, data, "browser", frozenset({403}), is_last=False)
    if how == 1:
        target = dice.choice(("/", "//", "/nothing", "/%00", "/state/../leave", "/" + "a" * 3000))
        data = _head(door, dice.choice(("GET", "POST")), target, headers)
        return Request(number, data, "no-path", frozenset({404}), is_last=False)
    if how == 2:
        method = dice.choice(("PUT", "PATCH", "TRACE", "BREW", "OPTIONS"))
        data = _head(door, method, dice.choice(door.commands), headers)
        return Request(number, data, "no-method", frozenset({405}), is_last=False)
    body = _body(dice)
    data = _head(door, "POST", dice.choice(door.commands), headers, body)
    return Request(number, data, "hostile-body", frozenset({400}), is_last=False)


def _body(dice: Random) -> bytes:
    """Bytes that no command of any endpoint means: no JSON, no mapping, or unknown keys in it."""
    deep = dice.choice((33, 500, 20_000))
    bodies = (
        b"\xff\xfe{}",
        b"{",
        b'{"a":1}{"a":2}',
        b"[" * deep + b"]" * deep,
        b'{"hostile":' * 40 + b"1" + b"}" * 40,
        b'{"hostile":1e999}',
        b'{"hostile":NaN}',
        b'{"hostile":"\\ud800"}',
        b'"' + b"x" * dice.randrange(5000) + b'"',
        b"-1",
        b"[null]",
        b"[[]]",
        b"true",
        json.dumps({f"hostile{n}": n for n in range(dice.choice((1, 50, 800)))}).encode(),
        b'{"hostile":' + b"9" * 4000 + b"}",
        b'{"hostile":{"above":[1]}}',
        dice.randbytes(dice.choice((1, 40, 900))) + b"\x00{",
    )
    return dice.choice(bodies)


def _bulky(door: Door, dice: Random, number: int) -> Request:
    """As many bytes as a body may have, or one more, or tiny chunks; with the token or without.

    Who has no token may be refused before or after the body is read."""
    has_token = dice.random() < 0.5
    headers = _bearer(door) if has_token else []
    path = dice.choice(door.commands)
    kind = dice.choice(
        ("largest", "largest-chunked", "larger-chunked", "tiny", "tiny", "many-tiny")
    )
    wanted = {400} if has_token else {401}
    if kind == "largest":
        data = _head(door, "POST", path, headers, _filled(door.largest))
    else:
        sizes = {"largest-chunked": door.largest, "larger-chunked": door.largest + 1}
        most = min(door.largest, MANY_CHUNKS) if kind == "many-tiny" else SOME_BYTES
        size, step = sizes.get(kind, most), 1 << 15 if kind in sizes else dice.choice((1, 3))
        data = _in_chunks(door, path, headers, _filled(size), step)
    if kind == "larger-chunked":
        # Its length is not announced: it is too large when so much of it has come.
        wanted = {413} if has_token else {401, 413}
    elif path.startswith(PASSED_ON):
        # The member behind a keeper takes less than the keeper does.
        wanted |= {413}
    if kind == "many-tiny":
        # They take a while, on a busy machine longer than a request may take.
        wanted |= {408}
    name = kind if has_token else f"{kind}-no-token"
    return Request(number, data, name, frozenset(wanted), is_last=True)


def _filled(size: int) -> bytes:
    """Return a body of so many bytes: a text, which no command takes."""
    return b'"' + b"x" * (size - 2) + b'"'


def _in_chunks(
    door: Door, path: str, headers: list[tuple[str, str]], body: bytes, step: int
) -> bytes:
    head = _head(door, "PUT", path, [*headers, ("Transfer-Encoding", "chunked")])
    pieces = [body[at : at + step] for at in range(0, len(body), step)]
    chunks = b"".join(b"%x\r\n%b\r\n" % (len(piece), piece) for piece in pieces)
    return b"POST" + head[3:] + chunks + b"0\r\n\r\n"


def _malformed(door: Door, dice: Random, number: int) -> Request:
    """Bytes that are no request."""
    good = _head(door, "GET", dice.choice(door.reads), _bearer(door))
    line, _, rest = good.partition(b"\r\n")
    path = line.split()[1]
    token = f"Authorization: Bearer {door.token}\r\n".encode()
    host = f"Host: {door.host}\r\n".encode()
    post = b"POST " + dice.choice(door.commands).encode() + b" HTTP/1.1\r\n" + host + token
    lies = {
        "line": dice.randbytes(dice.choice((5, 200))) + b"\r\n\r\n",
        "version": b"GET " + path + b" HTTP/" + dice.choice((b"2.0", b"0.9", b"9.9", b"x"))
        + b"\r\n" + rest,
        "long-line": b"GET /" + b"a" * 20_000 + b" HTTP/1.1\r\n" + rest,
        "long-header": line + b"\r\nX: " + b"b" * 20_000 + b"\r\n" + rest,
        "many-headers": line + b"\r\n" + b"X: y\r\n" * 3000 + rest,
        "no-host": line + b"\r\n" + token + b"\r\n",
        "two-hosts": line + b"\r\n" + host + host + token + b"\r\n",
        "zero-in-header": line + b"\r\nX: a\0b\r\n" + rest,
        "length-letters": post + b"Content-Length: ten\r\n\r\n",
        "length-below-0": post + b"Content-Length: -5\r\n\r\n",
        "lengths": post + b"Content-Length: 2\r\nContent-Length: 3\r\n\r\n{}",
        "length-endless": post + b"Content-Length: " + b"9" * 30 + b"\r\n\r\n",
        "too-large": post + b"Content-Length: " + str(door.largest + 1).encode() + b"\r\n\r\n",
        "chunk-letters": post + b"Transfer-Encoding: chunked\r\n\r\nzz\r\n{}\r\n",
        "chunk-endless": post + b"Transfer-Encoding: chunked\r\n\r\n" + b"f" * 20 + b"\r\n",
        "encoding": post + b"Transfer-Encoding: gzip\r\n\r\n",
    }  # fmt: skip  # one lie after the other
    name = dice.choice(sorted(lies))
    return Request(number, lies[name], name, _REFUSED, is_last=True)


def _unfinished(door: Door, dice: Random, number: int) -> Request:
    """Part of a request, after which nothing comes."""
    whole = _head(door, "POST", dice.choice(door.commands), _bearer(door), b'{"hostile": 1}')
    cut = dice.randrange(len(whole))
    end = dice.choice(("half", "half", "reset", "idle", "slow"))
    return Request(number, whole[:cut], end, frozenset(), is_last=True)


# -- Sending -------------------------------------------------------------------------------------


class RequestAttack:
    """Sends requests on one connection after the other, and looks at each answer."""

    def __init__(self, door: Door, seed: int) -> None:
        self._door = door
        self._seed = seed
        self._connection: socket.socket | None = None
        self._unread = b""
        self._idle: deque[socket.socket] = deque()
        self._slow: deque[socket.socket] = deque()
        """Connections on which a byte of a header comes now and then, and the request never ends.
        """

    def send(self, first: int, count: int, rate: float) -> Tally:
        """Send the chunks of a range, at most `rate` requests a second."""
        tally = Tally()
        begun, sent = time.monotonic(), 0
        for chunk in range(first, first + count):
            for request in requests(self._door, self._seed, chunk):
                ahead = sent / rate - (time.monotonic() - begun)
                if ahead > 0:
                    time.sleep(ahead)
                self._send(request, tally)
                self._dribble(tally)
                sent += 1
        return tally

    def _send(self, request: Request, tally: Tally) -> None:
        tally.sent["frames"] += 1
        tally.powers["none"] += 1
        for _ in range(3):
            try:
                connection = self._connection or self._connect(tally)
            except OSError as error:
                tally.find(request.number, f"no connection to {self._door.name}: {error}")
                return
            if not request.wanted:
                self._leave_off(connection, request, tally)
                return
            try:
                connection.sendall(request.data)
                if request.is_last:
                    connection.shutdown(socket.SHUT_WR)
                status = self._status(connection)
            except TimeoutError:
                tally.find(request.number, f"{request.recipe}: no answer in {PATIENCE:g} s")
                self._close()
                return
            except OSError:
                # The connection was ended to make room, or its end crossed the request: once more.
                self._close()
                if request.is_last:
                    tally.sent["closed"] += 1
                    return
                continue
            self._judge(request, status, tally)
            return
        tally.sent["closed"] += 1

    def _dribble(self, tally: Tally) -> None:
        if not self._slow:
            return
        connection = self._slow.popleft()
        try:
            connection.send(b"x")
        except OSError:
            # The member has had enough of it.
            tally.sent["slow ended"] += 1
            connection.close()
        else:
            self._slow.append(connection)

    def _judge(self, request: Request, status: int, tally: Tally) -> None:
        tally.sent[f"status {status}"] += 1
        if status not in request.wanted and status != _BUSY:
            tally.find(request.number, f"{request.recipe}: answered {status}")
        elif request.recipe == "good" and status != _BUSY:
            tally.sent["good"] += 1
        if request.is_last:
            self._close()

    def _connect(self, tally: Tally) -> socket.socket:
        connection = socket.create_connection((self._door.host, self._door.port), PATIENCE)
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._connection, self._unread = connection, b""
        tally.sent["connections"] += 1
        return connection

    def _leave_off(self, connection: socket.socket, request: Request, tally: Tally) -> None:
        tally.sent[request.recipe] += 1
        with suppress(OSError):
            connection.sendall(request.data)
        if request.recipe in {"idle", "slow"}:
            self._connection = None
            kept = self._idle if request.recipe == "idle" else self._slow
            kept.append(connection)
            if len(kept) > IDLE:
                kept.popleft().close()
            return
        self._close()

    def _status(self, connection: socket.socket) -> int:
        """Read one answer whole; OSError if there is none."""
        while b"\r\n\r\n" not in self._unread:
            self._more(connection)
        head, _, rest = self._unread.partition(b"\r\n\r\n")
        lines = head.lower().split(b"\r\n")
        length = next(
            (int(line.split(b":")[1]) for line in lines if line.startswith(b"content-length")), 0
        )
        while len(rest) < length:
            self._unread = b""
            self._more(connection)
            rest += self._unread
        self._unread = rest[length:]
        if b"connection: close" in lines:
            self._close()
        return int(head.split()[1])

    def _more(self, connection: socket.socket) -> None:
        data = connection.recv(65536)
        if not data:
            raise ConnectionResetError
        self._unread += data

    def _close(self) -> None:
        if self._connection is not None:
            with suppress(OSError):
                self._connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, RESET)
            self._connection.close()
            self._connection = None
